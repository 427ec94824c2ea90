"""A smaller picture: what a user would do instead of choosing tokens."""

from PIL import Image
from transformers import BatchFeature

from arrcoc.picture import MAX_ASPECT
from evaluation.baselines.interface import (
    BudgetTooSmall,
    Prepared,
    Shown,
    count_image_tokens,
    full_prompt,
    grid_of,
    largest_grid,
    resizes_freely,
)

# Halvings of the interval in which the largest size within the budget is looked for, and its least side in pixels: below, rounding
# makes another aspect, by which some processors count.
STEPS = 10
LEAST_SIDE = 16
PREPARES = ("small_prompt",)
OWN_PIXELS = True


def supports(model) -> None:
    """Any image-text-to-text model whose processor gives smaller pictures fewer tokens."""


def resize(model, processor, examples, budgets) -> Prepared:
    """Inputs of the same pictures made small enough for K tokens: at most K, as near to K as the picture's aspect allows.

    For Qwen-VL's processors the grid is computed; for any other the largest size within the budget is found by halving. A
    picture whose budget is all its tokens stays as it is.

    Raises:
        BudgetTooSmall: the processor spends more than K tokens on a picture with a side of `LEAST_SIDE` pixels.
    """
    inputs = small_prompt(model, processor, examples, budgets).to(model.device, model.dtype)
    tokens = [float(count) for count in count_image_tokens(model, inputs)]
    return Prepared(inputs, [None] * len(tokens), tokens)


def small_prompt(model, processor, examples, budgets) -> BatchFeature:
    """The batch of the smaller pictures, on the CPU."""
    # opened once: each access to an example's image opens it anew
    examples = [Shown(example.image, example.question) for example in examples]
    if resizes_freely(processor):
        kwargs = {}
        shown = [_shrink_to_grid(processor, *pair) for pair in zip(examples, budgets, strict=True)]
        if any(new.image is not old.image for new, old in zip(shown, examples, strict=True)):
            # As small as one cell, in place of the processor's own smallest size.
            kwargs["images_kwargs"] = {
                "size": dict(processor.image_processor.size) | {"shortest_edge": _cell(processor) ** 2}
            }
        inputs = full_prompt(processor, shown, **kwargs)
        # some add tokens of their own to those of the grid
        if all(count <= budget for count, budget in zip(count_image_tokens(model, inputs), budgets, strict=True)):
            return inputs
    shown = [_shrink_by_count(model, processor, *pair) for pair in zip(examples, budgets, strict=True)]
    return full_prompt(processor, shown)


def _cell(processor) -> int:
    return processor.image_processor.patch_size * processor.image_processor.merge_size


def _shrink_to_grid(processor, example, budget: int) -> Shown:
    cell = _cell(processor)
    width, height = example.image.size
    rows, columns = grid_of(processor, example)
    if budget < rows * columns:
        rows, columns = largest_grid(height, width, budget, (rows, columns))
        rows, columns = min(rows, MAX_ASPECT * columns), min(columns, MAX_ASPECT * rows)
    elif grid_of(processor, example, min_pixels=cell * cell) == (rows, columns):
        return Shown(example.image, example.question)
    # Below the processor's smallest size a whole picture is brought up to it here, since neighbours may lower that size.
    image = example.image.resize((columns * cell, rows * cell), resample=Image.Resampling.BICUBIC)
    return Shown(image, example.question)


def _shrink_by_count(model, processor, example, budget: int) -> Shown:
    def at(scale: float) -> Shown:
        size = [max(1, round(side * scale)) for side in example.image.size]
        return Shown(example.image.resize(size, resample=Image.Resampling.BICUBIC), example.question)

    def fits(shown: Shown) -> bool:
        return count_image_tokens(model, full_prompt(processor, [shown]))[0] <= budget

    whole = Shown(example.image, example.question)
    if fits(whole):
        return whole
    low, high = min(1.0, LEAST_SIDE / min(example.image.size)), 1.0
    best = at(low)
    if not fits(best):
        raise BudgetTooSmall(
            f"{type(processor).__name__} spends more than {budget} tokens on a picture of {example.image.size} that is made "
            f"{best.image.size}; pass a larger budget, or leave out resize for this model"
        )
    for _ in range(STEPS):
        middle = (low + high) / 2
        if fits(shown := at(middle)):
            low, best = middle, shown
        else:
            high = middle
    return best
