"""One pass of the vision tower for all methods and budgets that show it the same pictures."""

import contextlib
import copy

import torch

from evaluation.baselines import is_arrcoc


@contextlib.contextmanager
def shared_vision_tower(model):
    """While entered, the vision tower of `model` answers from memory where it is given what it was last given.

    What it answers is the same, bit for bit. Where hooks watch its modules it runs, since they would see nothing. One output is
    held, that of the last batch. A model other than `ARRCOCQwen3VLForConditionalGeneration` stays as it is.
    """
    if not is_arrcoc(model):
        yield
        return
    tower, last = model.model.visual, []
    forward = tower.forward
    own = "forward" in vars(tower)  # that of a wrapper, such as accelerate's

    def remembering(*args, **kwargs):
        if any(module._forward_hooks or module._forward_pre_hooks for module in tower.modules()):
            return forward(*args, **kwargs)
        if not last or not _same(last[0], (args, kwargs)):
            last[:] = (args, kwargs), forward(*args, **kwargs)
        return copy.copy(last[1])  # whose entries a caller may replace

    tower.forward = remembering
    try:
        yield
    finally:
        if own:
            tower.forward = forward
        else:
            del tower.forward


def _same(one, other) -> bool:
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        alike = (one.shape, one.dtype, one.device) == (other.shape, other.dtype, other.device)
        return one is other or (alike and torch.equal(one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(value, other[name]) for name, value in one.items())
    if isinstance(one, (tuple, list)) and isinstance(other, (tuple, list)):
        return len(one) == len(other) and all(map(_same, one, other))
    return type(one) is type(other) and one == other
