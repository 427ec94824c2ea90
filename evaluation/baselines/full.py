"""All visual tokens: what the other methods are measured against."""

import torch

from evaluation.baselines.interface import Prepared, count_image_tokens, full_prompt


def supports(model) -> None:
    """Any image-text-to-text model."""


def full(model, processor, examples, budgets) -> Prepared:
    """Inputs with every visual token; `budgets` is ignored."""
    inputs = full_prompt(processor, examples).to(model.device, model.dtype)
    tokens = count_image_tokens(model, inputs)
    kept = [None] * len(tokens)
    merge = getattr(getattr(processor, "image_processor", None), "merge_size", None)
    if merge and "image_grid_thw" in inputs:
        shapes = (inputs["image_grid_thw"][:, 1:] // merge).tolist()
        kept = [torch.ones(shape, dtype=torch.bool) for shape in shapes]
    return Prepared(inputs, kept, [float(count) for count in tokens])
