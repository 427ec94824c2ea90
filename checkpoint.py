"""Whether a loaded model is whole: transformers only warns of tensors that a checkpoint lacks."""

import torch
from torch import nn

# Parts of the allocator that may be new alone, by how the names of their tensors begin: files of older code lack them, and a model
# without pooled cells has no adapter.
STAGE_1 = ("early_participation.", "reader.")
RESTORER = ("restorer.",)
_OPTIONAL = (("adapter.",), STAGE_1, RESTORER)


def with_new_parts(tensors: dict[str, torch.Tensor], new: nn.Module) -> dict[str, torch.Tensor]:
    """`tensors` of an allocator, and those of the layer `new` for stage 1 and for the restorer where there are none of theirs."""
    for part in (STAGE_1, RESTORER):
        if not any(name.startswith(part) for name in tensors):
            tensors = tensors | {name: own for name, own in new.state_dict().items() if name.startswith(part)}
    return tensors


def check_loaded(model: nn.Module, info: dict):
    """Refuses a model whose weights did not all come from the checkpoint, or are not finite.

    Only the allocator may be new, and only as a whole (a stock checkpoint has none of it); its adapter, stage 1, and the
    restorer may each be new alone. Quantised weights have no NaN to look for.

    Raises:
        ValueError: naming the first tensors, and what to do.
    """
    missing, unexpected = sorted(info["missing_keys"]), sorted(info["unexpected_keys"])
    layer = "model.arrcoc."
    own = {name for name in model.state_dict() if name.startswith(layer)}
    parts = [own, *({name for name in own if name.removeprefix(layer).startswith(names)} for names in _OPTIONAL)]
    may_be_new = set().union(*(part for part in parts if part <= set(missing)))
    lost = [name for name in missing if name not in may_be_new]
    if lost:
        hint = f" Tensors of unknown name in the file: {unexpected[:3]}." if unexpected else ""
        raise ValueError(
            f"the checkpoint lacks {len(lost)} tensors, the first of them {lost[:3]}.{hint} Download it again, or rename the "
            "tensors to the names of the model"
        )
    other = sorted(name for name, *_ in info.get("mismatched_keys", ()) if ".arrcoc." in name)  # and both shapes
    if other:
        raise ValueError(
            f"{len(other)} tensors of the checkpoint's allocator have other shapes than the config asks for, the first of them "
            f"{other[0]}; a new one beside the rest of a trained allocator would choose at random. Leave its shape as it is saved"
        )
    for name, parameter in model.named_parameters():
        plain = type(parameter.data) is torch.Tensor and parameter.is_floating_point() and parameter.dtype.itemsize > 1
        if plain and parameter.device.type != "meta" and not torch.isfinite(parameter).all():
            raise ValueError(f"{name} holds NaN or infinity; the checkpoint is damaged, download or save it again")
