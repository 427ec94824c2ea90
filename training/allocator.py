"""The allocator on its own: a safetensors file of a few MB that loads onto any copy of its base, and onto no other.

save_allocator(model, "allocator.safetensors")
load_allocator(model, "allocator.safetensors")
"""

import copy
import json
import os
from pathlib import Path

import torch
from huggingface_hub.errors import StrictDataclassError
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import nn

from arrcoc.checkpoint import with_new_parts
from arrcoc.configuration_arrcoc import SHAPES, ARRCOCQwen3VLConfig
from evaluation.dials import DIALS
from training.fingerprint import base_fingerprint, base_metadata, is_of

VERSION = 1  # of the file's form
_FILE = "allocator.safetensors"  # as training names it
_DEFAULTS = {name: ARRCOCQwen3VLConfig.__dataclass_fields__[name].default for name in DIALS}
_TRAINED = {"arrcoc": "with the question", "query_blind": "without the question"}


def allocator_dials(config) -> dict:
    """The allocator's own fields of an `ARRCOCQwen3VLConfig`, by name."""
    return {name: getattr(config, name) for name in DIALS}


def write_tensors(path: str | Path, tensors: dict[str, torch.Tensor], metadata: dict[str, str]) -> None:
    """Writes a safetensors file, whole or not at all: under a temporary name first, then renamed.

    Raises:
        OSError: the disk is full or not writable, or `path` is a folder; what stood at `path` still stands.
    """
    path = Path(path)
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder; pass a file to write, such as {path / _FILE}")
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(path.name + ".new")
    # copies, because safetensors refuses tensors that share memory
    tensors = {name: tensor.detach().to("cpu", copy=True).contiguous() for name, tensor in tensors.items()}
    try:
        temporary.touch()
        mode = temporary.stat().st_mode  # safetensors writes for its owner alone
        save_file(tensors, temporary, metadata={"format": "pt", **metadata})
        temporary.chmod(mode)
        os.replace(temporary, path)
    except (OSError, SafetensorError) as error:
        temporary.unlink(missing_ok=True)
        raise OSError(
            f"{path} could not be written ({error}); free some space, an earlier file is untouched"
        ) from error


def read_tensors(path: str | Path) -> tuple[dict[str, torch.Tensor], dict[str, str]]:
    """The tensors of a safetensors file and its metadata.

    Raises:
        ValueError: the file is missing or damaged, or a tensor holds NaN or infinity.
    """
    if Path(path).is_dir():
        raise ValueError(f"{path} is a folder; pass the file in it, such as {Path(path) / _FILE}")
    if not Path(path).is_file():
        raise ValueError(f"{path} does not exist; pass the safetensors file that training wrote")
    try:
        with safe_open(path, "pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            metadata = file.metadata() or {}
    except (OSError, SafetensorError) as error:
        raise ValueError(f"{path} is no whole safetensors file ({error}); copy or train it again") from error
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and not torch.isfinite(tensor).all():
            raise ValueError(f"{path}: {name} holds NaN or infinity; the file is damaged, copy or train it again")
    return tensors, metadata


def fill(module: nn.Module, tensors: dict[str, torch.Tensor], path: str | Path) -> None:
    """Loads `tensors` into `module`, all of them or none.

    Raises:
        ValueError: a name is missing or unknown, or a shape differs; the message names the first.
    """
    own = module.state_dict()
    missing, unknown = sorted(own.keys() - tensors.keys()), sorted(tensors.keys() - own.keys())
    if missing or unknown:
        raise ValueError(
            f"{path} does not fit: it lacks {missing[:3]} and has unknown {unknown[:3]}; pass another file"
        )
    for name, tensor in tensors.items():
        if tensor.shape != own[name].shape:
            raise ValueError(
                f"{path}: {name} has shape {tuple(tensor.shape)}, wanted {tuple(own[name].shape)}; pass the file of a "
                "model of this geometry"
            )
    module.load_state_dict(tensors)


def check_kind(path: str | Path, metadata: dict[str, str], kind: str, model: nn.Module, scorer: str = "arrcoc") -> None:
    """Refuses a file of another kind, of a newer version or of another base than `model`.

    Raises:
        ValueError: saying what came and what was wanted.
    """
    came = metadata.get("kind")
    if came != kind:
        raise ValueError(
            f"{path} holds {came or 'something else'}, wanted {kind}; pass the file that training wrote for it"
        )
    if int(metadata["version"]) > VERSION:
        raise ValueError(
            f"{path} is of version {metadata['version']}, this code reads up to {VERSION}; update the code"
        )
    if is_of(metadata, model, scorer):
        return
    told = "load the base that it was trained on, or train an allocator for this one"
    if model.get_input_embeddings().weight.dtype == torch.float16:
        told += (
            ". In float16 its own base may look like another where the file is of older code, or the base is stored in float32: "
            "load it in bfloat16 or float32, and save_allocator() from there"
        )
    own = base_fingerprint(model, scorer)
    if own == metadata["base"]:
        own = f"{own} with another vision tower or other embeddings"
    raise ValueError(f"{path} was trained on base {metadata['base']}, but this model is base {own}; {told}")


def save_allocator(
    model: nn.Module, path: str | Path, scorer: str = "arrcoc", base: dict[str, str] | None = None,
    tensors: dict[str, torch.Tensor] | None = None,
) -> None:  # fmt: skip
    """Writes the allocator of `model` to a safetensors file, with its dials and its base's fingerprint as metadata.

    Matrices are written in bfloat16, which halves the file; loaded, they are float32 again.

    Args:
        scorer: "arrcoc", or "query_blind" for one that was trained without the question.
        base, tensors: `base_metadata`, and of the allocator, where the model itself is sharded; else read from it.

    Raises:
        OSError: see `write_tensors`.
    """
    metadata = {
        "kind": "arrcoc allocator",
        "version": str(VERSION),
        **(base or base_metadata(model)),
        "dials": json.dumps(allocator_dials(model.config)),
        "scorer": scorer,
    }
    tensors = tensors or model.model.arrcoc.state_dict()
    if model.config.coarse_share == 0:  # as it may have been made since; what reads the file has no adapter then
        tensors = {name: tensor for name, tensor in tensors.items() if not name.startswith("adapter.")}
    write_tensors(path, {name: t.bfloat16() if t.ndim > 1 else t for name, t in tensors.items()}, metadata)


def read_allocator(
    model: nn.Module, path: str | Path, dials: dict | None = None, scorer: str = "arrcoc"
) -> tuple[nn.Module, dict, dict[str, str]]:
    """The layer that a file holds, made for `model` but not given to it; its dials; the file's metadata.

    Stage 1 is new, and neutral, where the file has none of it; the restorer of pages in part and the mark of coarse views, too.

    Args:
        dials: values that win over the file's, by name; those of the layer's shape can't.
        scorer: what the file must have been trained as.

    Raises:
        ValueError: the file is missing, damaged, of another base, scorer or form, or can't have one of `dials`; or the model's
            own allocator is offloaded.
    """
    tensors, metadata = read_tensors(path)
    check_kind(path, metadata, "arrcoc allocator", model)
    if (came := metadata.get("scorer", "arrcoc")) != scorer:
        raise ValueError(
            f"{path} was trained {_TRAINED.get(came, came)}, wanted one that was trained {_TRAINED.get(scorer, scorer)}; train "
            f"it with --scorer {scorer}. One without the question is measured by evaluation.run --methods query_blind "
            "--baseline-weights DIR"
        )
    config, old = copy.deepcopy(model.config), model.model.arrcoc
    if next(old.parameters()).device.type == "meta":
        raise ValueError(
            f"the model's allocator is offloaded and can't take {path}; load the model with a device_map that keeps model.arrcoc "
            "on a device"
        )
    try:
        chosen = _DEFAULTS | dict(json.loads(metadata["dials"]))  # a file of older code lacks what came later
        config.update(chosen)
    except (KeyError, TypeError, ValueError, StrictDataclassError) as error:
        raise ValueError(
            f"{path} has dials {metadata.get('dials')!r}, which no config takes ({' '.join(str(error).split())}); it is damaged: "
            "save the allocator anew"
        ) from error
    layer = type(old)(config)
    for name, part in old.named_children():  # a scorer of the caller's own stays where it was put
        if (own := getattr(layer, name)) is not None and type(part) is not type(own):
            setattr(layer, name, copy.deepcopy(part))
    fill(layer, with_new_parts(tensors, layer), path)
    if dials:
        _check_dials(dials, chosen, path)
        config.update(dials)
        if config.coarse_share == 0:
            layer.adapter = None
        layer.follow(config)
    return layer.to(next(old.parameters()).device).train(old.training), chosen | (dials or {}), metadata


def _check_dials(dials: dict, held: dict, path: str | Path) -> None:
    """Refuses dials that a trained layer, which was built with those `held`, can't take over."""
    fixed = [name for name in SHAPES if name in dials and dials[name] != held[name]]
    if fixed:
        raise ValueError(
            f"{path} was built with {fixed[0]}={held[fixed[0]]}, which can't become {dials[fixed[0]]}; train a new allocator "
            "with it"
        )
    if dials.get("coarse_share", 0) > 0 and held["coarse_share"] == 0:
        raise ValueError(
            f"{path} was trained with coarse_share=0 and has no adapter for pooled cells, which "
            f"coarse_share={dials['coarse_share']} needs; leave it at 0, or train a new allocator with it"
        )


def load_allocator(
    model: nn.Module, path: str | Path, dials: dict | None = None, scorer: str = "arrcoc"
) -> dict[str, str]:
    """Gives `model` the allocator of a file, dials included. On any error the model is left as it was.

    Args:
        dials, scorer: see `read_allocator`.

    Returns:
        The file's metadata.

    Raises:
        ValueError: see `read_allocator`.
    """
    layer, chosen, metadata = read_allocator(model, path, dials, scorer)
    model.config.update(chosen)
    model.model.arrcoc = layer
    return metadata


def save_baseline(tensors: dict[str, torch.Tensor], path: str | Path, name: str, base: dict[str, str]) -> None:
    """Writes the weights of a learned baseline of a base, of which `base` is the `base_metadata`."""
    write_tensors(path, tensors, {"kind": name, "version": str(VERSION), **base})


def load_baseline(module: nn.Module, model: nn.Module, path: str | Path, name: str) -> None:
    """Fills a learned baseline for `model` from a file.

    Raises:
        ValueError: the file is missing, damaged, of another base or another form.
    """
    tensors, metadata = read_tensors(path)
    check_kind(path, metadata, name, model, name)
    fill(module, tensors, path)


def check_parameters(module: nn.Module, tensors: dict[str, torch.Tensor], path: str | Path) -> dict[str, nn.Parameter]:
    """The parameters of `module` that are trained, by name.

    Raises:
        ValueError: `tensors`, which come from the file, are not for exactly these.
    """
    own = {name: parameter for name, parameter in module.named_parameters() if parameter.requires_grad}
    differ = [n for n in {*own, *tensors} if n not in own or n not in tensors or own[n].shape != tensors[n].shape]
    if differ:
        raise ValueError(
            f"{path} does not hold what is trained here, the first difference is {min(differ)}; resume with the options that "
            "the run began with"
        )
    return own


def fill_parameters(module: nn.Module, tensors: dict[str, torch.Tensor], path: str | Path) -> None:
    """Loads `tensors` into the parameters of `module` that are trained, all of them or none. Raises as `check_parameters`."""
    own = check_parameters(module, tensors, path)
    with torch.no_grad():
        for name, parameter in own.items():
            parameter.copy_(tensors[name])
