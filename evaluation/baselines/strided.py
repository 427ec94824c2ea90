"""Evenly spaced cells, at their true positions."""

import torch

from evaluation.baselines.interface import Prepared
from evaluation.baselines.selection import encode, fill, plan_cells


def spread(height: int, width: int, count: int) -> torch.Tensor:
    """(count,) raster indices of cells that lie evenly over the grid.

    Rows are as far from each other as cells within a row, as nearly as `count` allows. Taking each n-th token in raster order
    instead would take the same few columns of every row wherever n divides the width.
    """
    rows = round((count * height / width) ** 0.5)
    rows = min(max(rows, -(-count // width)), height, count)
    cells = []
    for number in range(rows):
        row = (2 * number + 1) * height // (2 * rows)
        here = (number + 1) * count // rows - number * count // rows
        cells += [row * width + (2 * place + 1) * width // (2 * here) for place in range(here)]
    return torch.tensor(cells)


def strided(model, processor, examples, budgets) -> Prepared:
    """Inputs with K evenly spaced cells of each picture."""
    encoded = encode(model, processor, examples, budgets)
    plans = [
        plan_cells(spread(height, width, count).to(model.device), height * width)
        for (height, width), count in zip(encoded.grids, encoded.counts, strict=True)
    ]
    return fill(encoded, plans)
