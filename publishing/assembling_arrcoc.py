"""The entry of an allocator-only repository: loads the base that its config names and gives it the allocator.

`base_model` and `base_revision` in config.json and processor_config.json say which; the revision is a commit, so that
the base can't change under the allocator. What is loaded is an ordinary ARR-COC model, which `save_pretrained` writes whole.
"""

import copy
import logging
from contextlib import contextmanager

import torch
from safetensors.torch import load_file
from transformers.utils import cached_file

from .checkpoint import fitted
from .configuration_arrcoc import PROCESSOR_DIALS, ARRCOCQwen3VLConfig
from .modeling_arrcoc_qwen import ARRCOCQwen3VLForConditionalGeneration as WholeModel
from .processing_arrcoc import ARRCOCProcessor

ALLOCATOR = "allocator.safetensors"
_HERE = ("revision", "subfolder", "_commit_hash", "adapter_kwargs", "_from_auto")  # of this repository, not of the base
_HUB = ("cache_dir", "force_download", "local_files_only", "token")


def take_base(holder: dict) -> tuple[str, str]:
    """Name and commit of the base, removed from `holder`.

    Raises:
        ValueError: one of them is missing.
    """
    base, revision = holder.pop("base_model", None), holder.pop("base_revision", None)
    if not base or not revision:
        raise ValueError(
            f"base_model={base!r} and base_revision={revision!r}: the config must name the base and its commit; stage the "
            "repository again with `python upload.py stage --allocator-only`"
        )
    return base, revision


def _of_this_repository(kwargs: dict) -> dict:
    """Where this repository's own files are looked up; what says so of it and not of the base is removed from `kwargs`."""
    here = {name: kwargs.pop(name) for name in _HERE if name in kwargs}
    hub = {name: kwargs[name] for name in _HUB if kwargs.get(name) is not None}
    return hub | {name: here[name] for name in ("revision", "subfolder") if here.get(name)}


@contextmanager
def _no_load_report():
    """Without the report that the base lacks the allocator: it follows. What else is missing is refused as ever."""

    def told(record: logging.LogRecord) -> bool:
        return "LOAD REPORT" not in record.getMessage()

    reporter = logging.getLogger("transformers.modeling_utils")
    reporter.addFilter(told)  # a level would have transformers check what it else does not, and warn of that
    try:
        yield
    finally:
        reporter.removeFilter(told)


class ARRCOCQwen3VLForConditionalGeneration(WholeModel):
    """Loads a `WholeModel` from a base and an allocator; has no instances of its own.

    It has the name of what it loads because the pipeline compares names, and warns of a model that it does not know.
    """

    @classmethod
    def from_pretrained(cls, pretrained_model_name_or_path, *args, config=None, output_loading_info=False, **kwargs):
        """The base at its pinned commit, with the allocator of this repository.

        Raises:
            ValueError: the allocator's tensors do not fit the config, or hold NaN or infinity, or are offloaded to disk.
        """
        adapter = dict(kwargs.get("adapter_kwargs") or {})
        adapter_path = adapter.pop("_adapter_model_path", None)  # PEFT's, whose base is this repository
        hub = _of_this_repository(kwargs)
        if config is None:
            config = ARRCOCQwen3VLConfig.from_pretrained(pretrained_model_name_or_path, **hub)
        config = copy.deepcopy(config)
        config._commit_hash = None  # of this repository; the base's files are looked up under their own
        config.auto_map = {}
        base, revision = take_base(vars(config))
        tensors = load_file(cached_file(pretrained_model_name_or_path, ALLOCATOR, **hub))
        with _no_load_report():
            model, info = WholeModel.from_pretrained(
                base, *args, config=config, revision=revision, output_loading_info=True, **kwargs
            )
        layer = model.model.arrcoc
        fill(layer, fitted(tensors, type(layer)(model.config)))
        if adapter_path is not None:
            model.load_adapter(adapter_path, adapter_kwargs=adapter)
        model.name_or_path = model.config._name_or_path = str(pretrained_model_name_or_path)
        info["missing_keys"] = {name for name in info["missing_keys"] if ".arrcoc." not in name}
        return (model, info) if output_loading_info else model


def fill(layer: torch.nn.Module, tensors: dict[str, torch.Tensor]):
    """Loads the allocator's tensors, all of them or none.

    Raises:
        ValueError: a tensor is missing, unknown, of another shape or not finite, or the layer's are offloaded to disk.
    """
    own = layer.state_dict()
    differ = sorted(n for n in {*own, *tensors} if n not in own or n not in tensors or own[n].shape != tensors[n].shape)
    if differ:
        raise ValueError(
            f"{ALLOCATOR} does not fit the config, the first difference is {differ[0]}; leave perspective_channels, "
            "scorer_hidden_size and scorer_heads as this repository has them, or else download it again"
        )
    for name, tensor in tensors.items():
        if not torch.isfinite(tensor).all():
            raise ValueError(f"{name} in {ALLOCATOR} holds NaN or infinity; download it again")
    if any(tensor.device.type == "meta" for tensor in own.values()):
        raise ValueError(
            "the allocator was offloaded and can't be filled; pass a device_map that keeps model.arrcoc on a device"
        )
    layer.load_state_dict(tensors)


class ARRCOCProcessorFromBase(ARRCOCProcessor):
    """Loads an `ARRCOCProcessor` from a base's tokenizer and the budget of this repository; has no instances of its own."""

    @classmethod
    def from_pretrained(cls, pretrained_model_name_or_path, **kwargs):
        """The base's processor at its pinned commit, with this repository's dials where `kwargs` says nothing else."""
        hub = _of_this_repository(kwargs)
        settings, _ = cls.get_processor_dict(pretrained_model_name_or_path, **hub)
        base, revision = take_base(settings)
        dials = {name: settings[name] for name in (*PROCESSOR_DIALS, "padding_side") if name in settings}
        kwargs = {**dials, **kwargs, "trust_remote_code": False}
        return ARRCOCProcessor.from_pretrained(base, revision=revision, **kwargs)
