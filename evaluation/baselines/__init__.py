"""Ways to answer from K visual tokens, each in a file of its own; a method's module is imported when it is asked for."""

import difflib
import importlib

from evaluation.baselines.interface import Method, Prepared, cells_of, is_arrcoc, prompt

# Name -> (module, function). A module may say in `supports(model) -> str | None` which models it runs; without, ours.
METHODS = {
    "full": ("evaluation.baselines.full", "full"),
    "arrcoc": ("evaluation.baselines.arrcoc", "arrcoc"),
    "resize": ("evaluation.baselines.resize", "resize"),
    "random": ("evaluation.baselines.random", "random"),
    "strided": ("evaluation.baselines.strided", "strided"),
    "pooling": ("evaluation.baselines.pooling", "pooling"),
    "tome": ("evaluation.baselines.tome", "tome"),
    "fastv": ("evaluation.baselines.fastv", "fastv"),
    "visionzip": ("evaluation.baselines.visionzip", "visionzip"),
    "divprune": ("evaluation.baselines.divprune", "divprune"),
    "cdpruner": ("evaluation.baselines.cdpruner", "cdpruner"),
    "vision_selector": ("evaluation.baselines.vision_selector", "vision_selector"),
    "glimpse_prune": ("evaluation.baselines.glimpse_prune", "glimpse_prune"),
    "query_blind": ("evaluation.baselines.query_blind", "query_blind"),
    "oracle": ("evaluation.baselines.oracle", "oracle"),
}


def find(name: str) -> Method:
    """The method of this name.

    Raises:
        ValueError: there is none; the message lists the names.
    """
    module, function = _entry(name)
    return getattr(importlib.import_module(module), function)


def supports(name: str, model) -> str | None:
    """Why `model` can't run the method of this name, or `None` where it can.

    Raises:
        ValueError: there is no method of this name.
    """
    path, function = _entry(name)
    try:
        module = importlib.import_module(path)
    except ModuleNotFoundError as error:
        if error.name != path:
            raise
        return f"{path} is not part of this copy of the project"
    if not hasattr(module, function):
        return f"{path} has no method {function}"
    if hasattr(module, "supports"):
        return module.supports(model)
    if not is_arrcoc(model):
        return (
            f"{name} acts on Qwen3-VL's vision features, and this is {type(model).__name__}; load a Qwen3-VL checkpoint "
            "with ARRCOCQwen3VLForConditionalGeneration"
        )
    return None


def _entry(name: str) -> tuple[str, str]:
    if name not in METHODS:
        close = difflib.get_close_matches(name, METHODS, n=1)
        hint = f"; did you mean {close[0]}?" if close else "."
        raise ValueError(f"{name!r} is not a method{hint} Choose from {', '.join(METHODS)}")
    return METHODS[name]


__all__ = ["METHODS", "Method", "Prepared", "cells_of", "find", "is_arrcoc", "prompt", "supports"]
