"""The arguments of a processor's call, and of the model's: reading them, and refusing those that are not its."""

import difflib
from collections.abc import Mapping

import numpy as np

from .configuration_arrcoc import CALL_ARGUMENTS, PROCESSOR_DIALS, model_dials

_LATE = (
    "{0} is an argument of the model's calls, not of the processor's; pass it to forward() or generate(), in a pipeline as "
    "generate_kwargs={{'{0}': ...}}"
)
_OF_TEMPLATES = ("thinking_budget", "reasoning_budget")  # no misspelt dials
_TENSORS = ("input_ids", "attention_mask", "pixel_values", "image_grid_thw", "query_input_ids", "query_attention_mask")
_PICTURE_KEYS = ("image", "url", "path", "base64")  # where transformers looks in a part of type image
_GROUPS = ("text_kwargs", "images_kwargs", "videos_kwargs", "common_kwargs")


def is_empty(images) -> bool:
    """Whether a call brings no image: an empty list, or one empty list per prompt."""
    lists = (list, tuple)
    return isinstance(images, lists) and all(isinstance(entry, lists) and not entry for entry in images)


def setting(kwargs: dict, group: str, name: str, default):
    """An argument of a call, given flat or within its group, as transformers merges them."""
    nested = {**kwargs.get("common_kwargs", {}), **kwargs.get(group, {})}
    return kwargs.get(name, nested.get(name, default))


def place_of(kwargs: dict) -> dict:
    """What of a `from_pretrained` call's arguments says where a folder or Hub repository is looked up."""
    names = ("cache_dir", "force_download", "local_files_only", "token", "revision", "subfolder", "proxies")
    return {name: kwargs[name] for name in names if kwargs.get(name) is not None}


def refuse_misspelt_dials(names):
    """Raises TypeError where one of `names` is not a dial but looks like one, or is the model's."""
    for name in names:
        if name in PROCESSOR_DIALS or name in _OF_TEMPLATES:
            continue
        if name in CALL_ARGUMENTS:
            raise TypeError(_LATE.format(name))
        if name in model_dials():
            raise TypeError(
                f"{name} is a dial of the model, not of the processor; pass it to the model's from_pretrained(), or set "
                f"model.config.{name}"
            )
        close = difflib.get_close_matches(name, PROCESSOR_DIALS, n=1, cutoff=0.8)
        if close or "budget" in name:
            meant = close[0] if close else "token_budget"
            raise TypeError(f"{name} is not an argument of ARRCOCProcessor; did you mean {meant}?")


def refuse_unread(kwargs: dict, processor_kwargs: dict):
    """Raises TypeError where a chat template that makes text alone is given what only a call of the processor reads."""
    for name in ("token_budget", "question"):
        if any(given.get(name) is not None for given in (kwargs, processor_kwargs)):
            raise TypeError(
                f"{name} counts for nothing with tokenize=False, which makes text alone; pass it to processor(text=..., "
                "images=...), or tokenize=True"
            )
    refuse_misspelt_dials([*kwargs, *processor_kwargs])


def check_parts(conversation, collected: bool):
    """Raises ValueError where a part of a chat has a form in which its text or picture would not be found.

    Args:
        conversation: messages, or a list of such lists; what is neither is left to transformers.
        collected: whether pictures are taken from the chat; otherwise its parts only hold their places.
    """
    chats = conversation if isinstance(conversation, list | tuple) else []
    for chat in chats if chats and isinstance(chats[0], list | tuple) else [chats]:
        for turn, message in enumerate(chat):
            content = message.get("content") if isinstance(message, Mapping) else None
            for number, part in enumerate(content if isinstance(content, list | tuple) else []):
                if fault := _fault_of(part, collected):
                    raise ValueError(
                        f'content[{number}] of message {turn} {fault}; write {{"type": "image", "image": ...}} or '
                        '{"type": "text", "text": ...}'
                    )


def _fault_of(part, collected: bool) -> str | None:
    if isinstance(part, str):
        return None
    if not isinstance(part, Mapping):
        return f"is a {type(part).__name__}, no part of a chat"
    filled = {name for name, value in part.items() if value is not None}  # Arrow gives every part all fields
    kind = part.get("type")
    if kind is None and collected:
        return "has no type"
    if kind == "text" and not isinstance(part.get("text"), str):
        return "is of type 'text' and has no text"
    if kind == "image" and collected and not filled & {*_PICTURE_KEYS}:
        return f"is of type 'image' and has no picture under {', '.join(_PICTURE_KEYS[:-1])} or {_PICTURE_KEYS[-1]}"
    if kind not in ("image", "image_url", "text", "video", None) and filled & {"image", "image_url"}:
        return f"is of type {kind!r} and has a picture"
    return None


def refuse_packed(inputs):
    """Raises TypeError where a processor's output came as it is, in place of a model's first argument."""
    if isinstance(inputs, Mapping):
        raise TypeError(
            f"the inputs came as one {type(inputs).__name__}; unpack them with two stars, as in model(**inputs)"
        )


def refuse_lists(arguments: Mapping):
    """Raises TypeError where one of a model's `arguments` is a list or an array, as processors give without `return_tensors`, or
    all that a processor gives."""
    for name in _TENSORS:
        refuse_packed(arguments.get(name))
        if isinstance(value := arguments.get(name), list | tuple | np.ndarray):
            raise TypeError(
                f"{name} is a {type(value).__name__} and no tensor; pass return_tensors='pt' to the processor, or to "
                "apply_chat_template() beside return_dict=True"
            )


def check_texts(text):
    """Raises TypeError where a processor's `text` is none, nor several."""
    if text is not None and not isinstance(text, str | list | tuple):
        raise TypeError(f"text is of type {type(text).__name__}; pass a prompt, or a list of prompts")


def check_nesting(images, text, image_token: str):
    """Raises ValueError where `images` come in a list per prompt, as many as there are placeholders in all but not in each."""
    lists = (list, tuple)
    nested = isinstance(images, lists) and len(images) > 0 and all(isinstance(own, lists) for own in images)
    if not nested or not isinstance(text, lists) or len(text) == 1 or not all(isinstance(each, str) for each in text):
        return
    came, wanted = [len(own) for own in images], [prompt.count(image_token) for prompt in text]
    if came != wanted and sum(came) == sum(wanted):  # other sums transformers tells
        raise ValueError(
            f"images come in lists of {came}, but the prompts have {wanted} placeholders; pass a list with the images of each "
            "prompt, or all of them in one flat list"
        )


def refuse_halves(text, name: str = "text"):
    """Raises ValueError where `text`, or one of several, holds a lone surrogate, as JSON may: no tokenizer reads it."""
    for each in text if isinstance(text, list | tuple) else [text]:
        try:
            str(each).encode("utf-8")
        except UnicodeEncodeError as error:
            raise ValueError(
                f"{name} holds half of a character (a lone surrogate, {error.object[error.start]!r}); take it out"
            ) from None


def given(kwargs: dict) -> dict:
    """The arguments of a call without groups that are `None`, which say nothing and which transformers can't read."""
    return {name: value for name, value in kwargs.items() if value is not None or name not in _GROUPS}


def refuse_late(kwargs: dict):
    """Raises TypeError where a call brings what is set on the processor or nearly called `question`, or a group of its arguments
    what stands beside it."""
    for name in PROCESSOR_DIALS:
        if name in kwargs:
            raise TypeError(f"{name} is not an argument of a call; set it on the processor: processor.{name} = ...")
    for name in kwargs:
        if difflib.get_close_matches(name, ["question"], cutoff=0.9):
            raise TypeError(f"{name} is not an argument of ARRCOCProcessor; did you mean question?")
    for group in _GROUPS:
        for name in kwargs.get(group, {}):
            if name in PROCESSOR_DIALS or "budget" in name:
                raise TypeError(f"{name} is not an argument of {group}; pass token_budget beside it")
            if difflib.get_close_matches(name, ["question"], cutoff=0.9):
                raise TypeError(f"{name} is not an argument of {group}; pass question beside it")
        refuse_misspelt_dials(kwargs.get(group, {}))
