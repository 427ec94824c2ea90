"""The cells of the evidence boxes: what a choice that knows the answer's place would keep."""

import torch

from evaluation.baselines.interface import Prepared
from evaluation.baselines.selection import encode, fill, plan_cells
from evaluation.baselines.strided import spread
from training.data.examples import evidence_share


def evidence_distance(boxes, size: tuple[int, int], grid: tuple[int, int]) -> torch.Tensor:
    """(h, w) distance in pixels from each cell's middle to the nearest box."""
    y = ((torch.arange(grid[0]) + 0.5) * (size[1] / grid[0]))[:, None]
    x = (torch.arange(grid[1]) + 0.5) * (size[0] / grid[1])
    distances = []
    for left, top, right, bottom in boxes:
        away_x = torch.maximum(left - x, x - right).clamp_min(0)
        away_y = torch.maximum(top - y, y - bottom).clamp_min(0)
        distances.append(torch.hypot(away_x.expand(grid), away_y.expand(grid)))
    return torch.stack(distances).amin(0)


def evidence_cells(boxes, size: tuple[int, int], grid: tuple[int, int], count: int) -> torch.Tensor:
    """(count,) cells by their share of evidence, then by their distance to it; evenly spaced ones where there is none."""
    if not len(boxes):
        return spread(*grid, count)
    order = evidence_distance(boxes, size, grid).flatten().argsort(stable=True)
    share = evidence_share(boxes, size, grid).flatten()
    return order[share[order].argsort(descending=True, stable=True)][:count]


def oracle(model, processor, examples, budgets) -> Prepared:
    """Inputs with the cells of each question's evidence, and the nearest to it while the budget lasts."""
    encoded = encode(model, processor, examples, budgets)
    plans = []
    for example, grid, count in zip(examples, encoded.grids, encoded.counts, strict=True):
        cells = evidence_cells(example.evidence, example.image.size, grid, count)
        plans.append(plan_cells(cells.to(model.device), grid[0] * grid[1]))
    return fill(encoded, plans)
