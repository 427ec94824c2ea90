"""Loading, and whether what was loaded is whole: transformers only warns of tensors that a checkpoint lacks."""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from safetensors import SafetensorError
from torch import nn
from transformers import PreTrainedModel, Qwen3VLConfig

from .arguments import place_of
from .configuration_arrcoc import model_dials

# Parts of the allocator that may be new alone, by how the names of their tensors begin: files of older code lack them, and a model
# without pooled cells has no adapter.
ADAPTER = ("adapter.",)
STAGE_1 = ("early_participation.", "reader.")
RESTORER = ("restorer.",)
COARSE_MARK = ("coarse_mark.",)
SCOPE = ("scope.",)
_NEW = (STAGE_1, RESTORER, COARSE_MARK, SCOPE)
_OPTIONAL = (ADAPTER, *_NEW)


def with_new_parts(
    tensors: dict[str, torch.Tensor], new: nn.Module, parts: Iterable[tuple[str, ...]] = _NEW
) -> dict[str, torch.Tensor]:
    """`tensors` of an allocator, and those of the layer `new` for each of `parts` where there are none of its."""
    for part in parts:
        if not any(name.startswith(part) for name in tensors):
            tensors = tensors | {name: own for name, own in new.state_dict().items() if name.startswith(part)}
    return tensors


def fitted(tensors: dict[str, torch.Tensor], new: nn.Module) -> dict[str, torch.Tensor]:
    """`tensors` of an allocator for the layer `new`, which may have an adapter for pooled cells where they have none, or none where
    they have one; else as `with_new_parts`."""
    tensors, own = with_new_parts(tensors, new, _OPTIONAL), new.state_dict()
    return {name: tensor for name, tensor in tensors.items() if name in own or not name.startswith(ADAPTER)}


def check_loaded(model: nn.Module, info: dict):
    """Refuses a model whose weights did not all come from the checkpoint, or are not finite.

    Only the allocator may be new, and only as a whole (a stock checkpoint has none of it); its adapter, stage 1, the restorer, the
    mark of coarse views, and the scope of questions may each be new alone. Quantised weights have no NaN to look for.

    Raises:
        ValueError: naming the first tensors, and what to do.
    """
    missing, unexpected = sorted(info["missing_keys"]), sorted(info["unexpected_keys"])
    layer = "arrcoc." if model is model.base_model else "model.arrcoc."
    own = {name for name in model.state_dict() if name.startswith(layer)}
    parts = [own, *({name for name in own if name.removeprefix(layer).startswith(names)} for names in _OPTIONAL)]
    may_be_new = set().union(*(part for part in parts if part <= set(missing)))
    # PEFT's tokens of a tied head are those of the embeddings, and are saved once
    lost = [name for name in missing if name not in may_be_new and not name.startswith("lm_head.token_adapter.")]
    if lost:
        if any("lora_magnitude_vector" in name for name in lost):
            raise ValueError(
                "the adapter's DoRA vectors are not read this way; load the model it was trained on, and the adapter with "
                "PeftModel.from_pretrained(model, FOLDER)"
            )
        hint = f" Tensors of unknown name in the file: {unexpected[:3]}." if unexpected else ""
        raise ValueError(
            f"the checkpoint lacks {len(lost)} tensors, the first of them {lost[:3]}.{hint} Download it again, or rename the "
            "tensors to the names of the model"
        )
    other = sorted(name for name, *_ in info.get("mismatched_keys", ()) if name.startswith(layer))  # and both shapes
    if other:
        raise ValueError(
            f"{len(other)} tensors of the checkpoint's allocator have other shapes than the config asks for, the first of them "
            f"{other[0]}; a new one beside the rest of a trained allocator would choose at random. Leave its shape as it is saved"
        )
    for name, parameter in model.named_parameters():
        plain = type(parameter.data) is torch.Tensor and parameter.is_floating_point() and parameter.dtype.itemsize > 1
        held = plain and parameter.device.type != "meta" and parameter.numel() > 0
        # the two ends, which NaN and infinity reach: a fraction of the time that it takes to ask each number
        if held and not torch.isfinite(torch.stack(parameter.detach().aminmax())).all():
            raise ValueError(f"{name} holds NaN or infinity; the checkpoint is damaged, download or save it again")


def refuse_allocator_alone(read: Callable, place, kwargs: dict, error: Exception):
    """Says of a repository with the allocator alone, which its own code loads, what to do instead.

    Args:
        read: `get_config_dict` or the like, which is given `place` and, of `kwargs`, `place_of` them.
        error: what loading it as a whole one met.

    Raises:
        ValueError: `place` is such a repository.
    """
    try:
        settings, _ = read(place, **place_of(kwargs))
    except Exception:
        return  # it has no config either, which `error` tells
    if (base := settings.get("base_model")) is not None:
        raise ValueError(
            f"{place} holds an allocator without its base, and arrcoc is imported, whose classes load whole models: load {base} "
            f"(revision {settings.get('base_revision')}) and give it the file with training.allocator.load_allocator, or in a "
            "process that does not import arrcoc use Auto classes with trust_remote_code=True. Commands take the base as --model "
            "and the file as --allocator"
        ) from error


def forget_dials(model):
    """Takes the config's dials off `generation_config`, where transformers writes, and saves, what `from_pretrained` was given. One
    of another value than the config's stays, which `generate()` refuses."""
    held = getattr(model, "generation_config", None)
    for name in () if held is None else model_dials() & vars(held).keys():
        if getattr(held, name) == getattr(model.config, name):
            delattr(held, name)


def class_of_code(kind: type) -> type:
    """`kind`, or the model that it is of where it stands in no file that could be saved: in a notebook, or made by torch's
    `fully_shard`."""
    models = (each for each in kind.__mro__ if issubclass(each, PreTrainedModel))  # and no mixin beside it
    return next(each for each in models if not each.__module__.startswith(("torch.", "__main__")))


class LoadingMixin:
    """How the model loads, and its base model alone."""

    config_class: Any  # what both have

    @classmethod
    def from_pretrained(cls, pretrained_model_name_or_path, *args, output_loading_info: bool = False, **kwargs):
        """Loads our own folder or a stock Qwen3-VL checkpoint, and refuses one that is incomplete or not finite. A stock `config`
        becomes one of ours, with the allocator's defaults.

        Raises:
            ValueError: a file of weights can't be read or has other shapes than the config, a tensor of the base is missing, the
                allocator's are there in part, or a tensor holds NaN or infinity.
        """
        config = kwargs.get("config")
        if isinstance(config, Qwen3VLConfig) and config.model_type == Qwen3VLConfig.model_type:
            kwargs["config"] = own = cls.config_class.from_dict(
                config.to_dict() | {"model_type": cls.config_class.model_type}
            )
            for ours, theirs in ((own, config), *((getattr(own, p), getattr(config, p)) for p in config.sub_configs)):
                ours._attn_implementation = theirs._attn_implementation  # which no dict of a config holds
        try:
            load = super().from_pretrained  # type: ignore[misc]
            model, info = load(pretrained_model_name_or_path, *args, output_loading_info=True, **kwargs)
        except OSError as error:
            refuse_allocator_alone(cls.config_class.get_config_dict, pretrained_model_name_or_path, kwargs, error)
            raise
        except SafetensorError as error:
            raise ValueError(
                f"the weights of {pretrained_model_name_or_path} can't be read ({error}); a file of them is cut off or "
                "damaged, download or copy it again"
            ) from error
        except RuntimeError as error:
            if "ignore_mismatched_sizes" not in str(error):
                raise
            raise ValueError(
                f"{pretrained_model_name_or_path} has weights of other shapes than its config; transformers' report names the "
                f"mismatched tensors. Take both from one folder, and no dial of the model's shape ({error})"
            ) from error
        if pretrained_model_name_or_path is not None:  # else the caller's own state_dict, which may be partial
            check_loaded(model, info)
        forget_dials(model)
        layer = model.base_model.arrcoc
        if not any(parameter.device.type == "meta" for parameter in layer.parameters()):
            layer.float()  # what a stock checkpoint lacks was made in its dtype
        return (model, info) if output_loading_info else model

    def save_pretrained(self, *args, **kwargs):
        """As transformers' own, with the code of `class_of_code`.

        Raises:
            ValueError: the config has a dial that the allocator was not built with; nothing is written.
        """
        self.base_model.arrcoc.check_shapes(self.config)
        own, self.__class__ = type(self), class_of_code(type(self))
        try:
            return super().save_pretrained(*args, **kwargs)
        finally:
            self.__class__ = own
