"""Filling the image placeholders of a batch with chosen or merged tokens, each at the true place of a cell."""

from dataclasses import dataclass
from typing import Any

import torch
from transformers import BatchFeature

from arrcoc.allocation import mean_of_cells
from arrcoc.attending import first_of_each
from arrcoc.configuration_arrcoc import OWN_INPUTS
from arrcoc.placement import merged_grids
from evaluation.baselines.interface import Prepared, prompt


@dataclass(frozen=True, eq=False)
class Encoded:
    """A batch whose pictures went through the vision tower, with all cells.

    Attributes:
        inputs: what `generate()` reads, without pixels.
        vision: as `model.model.encode` returns it.
        grids: (h, w) merged grid of each picture.
        counts: image placeholders of each prompt.
        asked: the allocator's own inputs by name.
    """

    inputs: BatchFeature
    vision: Any
    grids: list[tuple[int, int]]
    counts: list[int]
    asked: dict[str, torch.Tensor]


@dataclass(frozen=True, eq=False)
class Plan:
    """Which cells of one picture feed which token.

    Attributes:
        stands: (K,) long, raster index of the cell that each token stands on, ascending.
        cell_token: (h * w,) long, the token that each cell feeds, -1 for a dropped cell. A token is the mean of its cells.
        kept: (h * w,) bool, the cells that count as kept; `None` where tokens are no cells.
    """

    stands: torch.Tensor
    cell_token: torch.Tensor
    kept: torch.Tensor | None


def plan_cells(cells: torch.Tensor, total: int) -> Plan:
    """The plan that keeps `cells` (K,) of `total`, in any order, and drops the others."""
    stands = cells.sort().values
    cell_token = torch.full((total,), -1, dtype=torch.long, device=cells.device)
    cell_token[stands] = torch.arange(len(stands), device=cells.device)
    return Plan(stands, cell_token, cell_token >= 0)


def plan_groups(groups: torch.Tensor, width: int, stands: torch.Tensor | None = None, kept=None) -> Plan:
    """The plan whose tokens are the means of groups of cells.

    Args:
        groups: (h * w,) long, 0 .. K - 1, -1 for a dropped cell. A group of one keeps its cell.
        width: columns of the grid.
        stands: (K,) cell that each group stands on; `None` takes the member nearest to the middle of the group.
        kept: (h * w,) bool for the plan. Groups of one each are a choice of cells whatever is given.
    """
    count = int(groups.max()) + 1
    stands = _middles(groups, width, count) if stands is None else stands
    order = stands.argsort()
    number = torch.full((count + 1,), -1, dtype=torch.long, device=groups.device)  # last entry: dropped cells
    number[order] = torch.arange(count, device=groups.device)
    if count == int((groups >= 0).sum()):
        kept = groups >= 0
    return Plan(stands[order], number[groups], kept)


def _middles(groups: torch.Tensor, width: int, count: int) -> torch.Tensor:
    cells = (groups >= 0).nonzero().flatten()
    member = groups[cells]
    places = torch.stack([cells // width, cells % width], dim=-1).float()
    sizes = torch.bincount(member, minlength=count)[:, None]
    centres = places.new_zeros(count, 2).index_add(0, member, places) / sizes
    order = (places - centres[member]).square().sum(-1).argsort(stable=True)
    order, first = first_of_each(member, order)
    return cells[order][first]


def mix(plan: Plan, features: torch.Tensor) -> torch.Tensor:
    """(K, C): of `features` (h * w, C), the mean over the cells of each token; a cell alone stays as it is, bit for bit."""
    if int((plan.cell_token >= 0).sum()) == len(plan.stands):
        return features[plan.stands]
    return mean_of_cells(features, plan.cell_token, len(plan.stands))


@torch.no_grad()
def encode(model, processor, examples, budgets) -> Encoded:
    """The prompts with `budgets` placeholders ("full" for all), and every picture's vision features."""
    inputs = prompt(processor, examples, token_budget=budgets).to(model.device)
    vision = model.model.encode(inputs.pop("pixel_values"), inputs["image_grid_thw"])
    asked = {name: inputs.pop(name) for name in OWN_INPUTS if name in inputs}
    merge = model.config.vision_config.spatial_merge_size
    grids = [grid[1:] for grid in merged_grids(inputs["image_grid_thw"], merge)]
    counts = (inputs["input_ids"] == model.config.image_token_id).sum(-1).tolist()
    return Encoded(inputs, vision, grids, counts, asked)


def fill(encoded: Encoded, plans: list[Plan]) -> Prepared:
    """The batch with each picture's plan applied to its tokens and to every DeepStack level alike.

    Where the tokens stand travels as one more DeepStack entry, which `ARRCOCQwen3VLModel.forward` takes off again.
    """
    vision, offsets = encoded.vision, []
    for plan, count, (_, width) in zip(plans, encoded.counts, encoded.grids, strict=True):
        assert len(plan.stands) == count, f"{len(plan.stands)} tokens for {count} placeholders"
        if count == len(plan.cell_token):  # get_rope_index places a full picture's tokens itself
            offsets.append(plan.stands.new_zeros(count, 3))
        else:
            offsets.append(torch.stack([plan.stands * 0, plan.stands // width, plan.stands % width], dim=-1))
    with torch.no_grad():
        vision.pooler_output = tuple(mix(*pair) for pair in zip(plans, vision.pooler_output, strict=True))
        levels = [[mix(*pair) for pair in zip(plans, level, strict=True)] for level in vision.deepstack_features]
    vision.deepstack_features = [*levels, offsets]
    kept = [
        None if plan.kept is None else plan.kept.view(grid).cpu()
        for plan, grid in zip(plans, encoded.grids, strict=True)
    ]
    inputs = encoded.inputs
    inputs["mm_encoder_outputs"] = {"image": vision}
    return Prepared(inputs, kept, [float(count) for count in encoded.counts])
