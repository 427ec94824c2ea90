"""The model's own allocator."""

import torch

from evaluation.baselines import staged
from evaluation.baselines.interface import Prepared
from evaluation.baselines.selection import encode

refuses = staged.refuses


@torch.no_grad()
def arrcoc(model, processor, examples, budgets) -> Prepared:
    """Inputs with the tokens that the model's allocator chooses; as the model itself would fill K placeholders.

    Kept are the cells that have a token to themselves, which with `coarse_share` above 0 are not all that are read.
    """
    if model.config.encode_ratio != 1 or model.config.allocation_mode != "select":
        return staged.staged(model, processor, examples, budgets)
    encoded = encode(model, processor, examples, budgets)
    base, inputs = model.model, encoded.inputs
    decisions = base.decide(
        encoded.vision,
        inputs["image_grid_thw"],
        encoded.counts,
        encoded.asked["texture_images"],
        encoded.asked["query_input_ids"],
        encoded.asked["query_attention_mask"],
        skip_full=True,
    )
    kept = [
        torch.ones(grid, dtype=torch.bool) if decision is None else decision.allocation.kept[0]
        for decision, grid in zip(decisions, encoded.grids, strict=True)
    ]
    if any(decision is not None for decision in decisions):
        base.keep(encoded.vision, decisions)
    inputs["mm_encoder_outputs"] = {"image": encoded.vision}
    return Prepared(inputs, kept, [float(count) for count in encoded.counts])
