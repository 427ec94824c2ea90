"""What a method is: it turns questions about pictures into what `generate()` reads, from at most K visual tokens each."""

import contextlib
import inspect
import math
import sys
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from PIL import Image
from transformers import BatchFeature

from arrcoc.configuration_arrcoc import OWN_INPUTS


class BudgetTooSmall(ValueError):
    """A method can't show a picture in as few tokens."""


@dataclass
class Prepared:
    """One batch, ready for `generate()`.

    Most methods have run the vision tower already: what a method costs is its own call and the first token together, but see
    `evaluation.baselines.prefill_of`.

    Attributes:
        inputs: goes to `model.generate(**inputs)`, any number of times.
        kept: per example (h, w) bool on the merged grid, the cells whose token reaches the language model; `None` where
            tokens are not cells of this picture.
        tokens: visual tokens per example that the language model reads; their mean over its layers where they differ.
        during: entered around `generate()`, for methods that act inside the language model. Can be entered again.
    """

    inputs: BatchFeature
    kept: list[torch.Tensor | None]
    tokens: list[float]
    during: contextlib.AbstractContextManager = field(default_factory=contextlib.nullcontext)


@dataclass(frozen=True)
class Shown:
    """A picture and what is asked of it: all that a method needs of an example, but those that look at the evidence."""

    image: Image.Image
    question: str


# (model, processor, examples, budgets) -> Prepared. An example has `image` (PIL, RGB), `question` and `evidence` (boxes: left,
# top, right, bottom; pixels); budgets are K of each example, 1 to its cells.
Method = Callable[..., Prepared]


def is_arrcoc(model) -> bool:
    """Whether `model` is an `ARRCOCQwen3VLForConditionalGeneration`, also one that the Hub loader made.

    The configuration's class tells: loaded from a stock folder, its instance keeps the stock name.
    """
    return getattr(type(model.config), "model_type", None) == "arrcoc_qwen3_vl"


def prompt(processor, examples, **processor_kwargs) -> BatchFeature:
    """One left-padded batch, a chat with picture and question for each example."""
    chats = [
        [
            {
                "role": "user",
                "content": [{"type": "image", "image": example.image}, {"type": "text", "text": example.question}],
            }
        ]
        for example in examples
    ]
    return processor.apply_chat_template(
        chats,
        tokenize=True,
        add_generation_prompt=True,
        return_dict=True,
        return_tensors="pt",
        processor_kwargs={"padding": True, "padding_side": "left", **processor_kwargs},
    )


def full_prompt(processor, examples, **processor_kwargs) -> BatchFeature:
    """`prompt` with every visual token, for any processor and for stock models too."""
    budget = {"token_budget": "full"} if hasattr(processor, "token_budget") else {}
    inputs = prompt(processor, examples, **budget, **processor_kwargs)
    for name in OWN_INPUTS:
        inputs.pop(name, None)
    return inputs


def image_token_id(model) -> int:
    """Id of the placeholder that the model fills with visual tokens; a processor's may be that of what stands around them.

    Raises:
        ValueError: the model's config names none.
    """
    for name in ("image_token_id", "image_token_index"):
        if isinstance(value := getattr(model.config, name, None), int):
            return value
    raise ValueError(
        f"{type(model.config).__name__} has neither image_token_id nor image_token_index, so that visual tokens can't be counted; "
        "take a model whose prompt has one placeholder per visual token"
    )


def count_image_tokens(model, inputs) -> list[int]:
    """Image placeholders of each prompt."""
    return (inputs["input_ids"] == image_token_id(model)).sum(-1).tolist()


def resizes_freely(processor) -> bool:
    """Whether the image processor turns any picture into a grid of its own aspect, as Qwen-VL's do."""
    images = getattr(processor, "image_processor", None)
    size = getattr(images, "size", None) or {}
    if not all(size.get(edge) for edge in ("shortest_edge", "longest_edge")):
        return False
    if not (hasattr(images, "patch_size") and hasattr(images, "merge_size")):
        return False
    rounding = _rounding(images)  # GLM's begins with a number of frames
    return rounding is not None and list(inspect.signature(rounding).parameters)[:2] == ["height", "width"]


def _rounding(images):
    # With torchvision and without it, transformers has a module each, and only one of them can be imported.
    return getattr(sys.modules[type(images).__module__], "smart_resize", None)


def grid_of(processor, example, min_pixels: int | None = None) -> tuple[int, int]:
    """(h, w) merged grid of the whole picture, for a Qwen-VL processor; `min_pixels` replaces its own smallest size."""
    images = processor.image_processor
    cell = images.patch_size * images.merge_size
    width, height = example.image.size
    height, width = _rounding(images)(
        height,
        width,
        factor=cell,
        min_pixels=images.size["shortest_edge"] if min_pixels is None else min_pixels,
        max_pixels=images.size["longest_edge"],
    )
    return height // cell, width // cell


def cells_of(model, processor, example) -> int:
    """Visual tokens of the whole picture, counted in its prompt, for any model.

    Raises:
        ValueError: its config names no placeholder, or the prompt has none.
    """
    (count,) = count_image_tokens(model, full_prompt(processor, [example]))
    if not count:
        raise ValueError(
            f"a prompt of {type(processor).__name__} has no placeholder of id {image_token_id(model)}, so that visual tokens can't "
            "be counted; take a model whose prompt has one placeholder per visual token"
        )
    return count


def largest_grid(height: float, width: float, budget: int, whole: tuple[int, int] | None = None) -> tuple[int, int]:
    """(rows, columns) of the grid of at most `budget` cells that spends most of them near the aspect of height : width, no side
    longer than that of `whole`.

    A change of the aspect by a factor of e weighs as much as a quarter of the budget; of two that are as good, the wider, in
    which the letters of a line stay further apart.
    """

    def worth(grid: tuple[int, int]) -> float:
        rows, columns = grid
        return round(rows * columns / budget - abs(math.log(rows * width / (columns * height))) / 4, 9)

    highest, widest = whole or (budget, budget)
    grids = []
    for rows in range(1, min(budget, highest) + 1):
        most = min(budget // rows, widest)
        grids += [(rows, most), (rows, min(most, max(1, round(rows * width / height))))]
    return max(grids, key=worth)
