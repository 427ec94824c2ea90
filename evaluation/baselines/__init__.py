"""Ways to answer from K visual tokens, each in a file of its own; a method's module is imported when it is asked for."""

import difflib
import importlib
from collections.abc import Callable

from evaluation.baselines.interface import Method, Prepared, cells_of, is_arrcoc, prompt

# Name -> (module, function). A module may have, beside its function:
#   supports(model) -> str | None: why a model can't run it; without, it runs ours alone
#   refuses(name, config) -> str | None: why a configuration of ours excludes it
#   load_weights(model, file): what a learned method needs first
#   prefill(model, processor, examples, budgets): its prefill as published, for timing, where the function answers another way
#   PREPARES: names of its functions that do what a processor does, which is no prefill
#   OWN_PIXELS: True where the vision tower sees something else than the whole pictures
#   READS_ALL: True where the language model's first layers read every token at any budget
#   UNTIMED: why neither tells what the published method costs
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
    "cdpruner_negated": ("evaluation.baselines.cdpruner", "cdpruner_negated"),
    "vision_selector": ("evaluation.baselines.vision_selector", "vision_selector"),
    "glimpse_prune": ("evaluation.baselines.glimpse_prune", "glimpse_prune"),
    "query_blind": ("evaluation.baselines.query_blind", "query_blind"),
    "two_stage": ("evaluation.baselines.staged", "two_stage"),
    "two_stage_30": ("evaluation.baselines.staged", "two_stage_30"),
    "two_stage_40": ("evaluation.baselines.staged", "two_stage_40"),
    "auto_stage": ("evaluation.baselines.staged", "auto_stage"),
    "foveated": ("evaluation.baselines.staged", "foveated"),
    "oracle": ("evaluation.baselines.oracle", "oracle"),
}

# How tables name the methods that keep a paper's idea and not all of its procedure; the others go by their own name.
TITLES = {
    "tome": "in the style of ToMe",
    "vision_selector": "in the style of VisionSelector",
    "glimpse_prune": "in the style of GlimpsePrune",
}


def title(name: str) -> str:
    """The method as tables and curves name it, with what its count of tokens does not say."""
    named = TITLES.get(name, name)
    return f"{named} (first layers read all tokens)" if name in METHODS and reads_all(name) else named


def find(name: str) -> Method:
    """The method of this name.

    Raises:
        ValueError: there is none; the message lists the names.
    """
    module, function = _entry(name)
    return getattr(importlib.import_module(module), function)


def prefill_of(name: str) -> Callable:
    """What is timed as this method's prefill, by the arguments of `Method`: its own `prefill`, or the method and one forward.

    Raises:
        ValueError: there is no method of this name.
    """
    method, module = find(name), importlib.import_module(_entry(name)[0])

    def first_token(model, processor, examples, budgets):
        prepared = method(model, processor, examples, budgets)
        with prepared.during:
            return model(**prepared.inputs, use_cache=True, logits_to_keep=1).logits[:, -1]

    return getattr(module, "prefill", first_token)


def preparing(name: str) -> list[tuple[object, str]]:
    """The functions of this method that prepare pictures, as (module, name of the function).

    Raises:
        ValueError: there is no method of this name.
    """
    module = importlib.import_module(_entry(name)[0])
    return [(module, function) for function in getattr(module, "PREPARES", ())]


def untimed(name: str) -> str | None:
    """Why the time of this method's code is not reported, or `None` where it is.

    Raises:
        ValueError: there is no method of this name.
    """
    return getattr(importlib.import_module(_entry(name)[0]), "UNTIMED", None)


def own_pixels(name: str) -> bool:
    """Whether the vision tower sees something else of this method than the whole pictures.

    Raises:
        ValueError: there is no method of this name.
    """
    return getattr(importlib.import_module(_entry(name)[0]), "OWN_PIXELS", False)


def reads_all(name: str) -> bool:
    """Whether the language model's first layers read every token of this method at any budget.

    Raises:
        ValueError: there is no method of this name.
    """
    return getattr(importlib.import_module(_entry(name)[0]), "READS_ALL", False)


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
            f"{name} acts on Qwen3-VL's vision features, and this is {type(model).__name__}: full and resize alone take any model; "
            "for the others load a Qwen3-VL checkpoint, with ARRCOCQwen3VLForConditionalGeneration"
        )
    return module.refuses(name, model.config) if hasattr(module, "refuses") else None


def _entry(name: str) -> tuple[str, str]:
    if name not in METHODS:
        close = difflib.get_close_matches(name, METHODS, n=1)
        hint = f"; did you mean {close[0]}?" if close else "."
        raise ValueError(f"{name!r} is not a method{hint} Choose from {', '.join(METHODS)}")
    return METHODS[name]


__all__ = [
    "METHODS", "TITLES", "Method", "Prepared", "cells_of", "find", "is_arrcoc", "prefill_of", "preparing", "prompt", "reads_all",
    "supports", "title", "untimed",
]  # fmt: skip
