"""Average pooling of the visual tokens on their grid."""

import torch

from evaluation.baselines.interface import Prepared, grid_of, largest_grid
from evaluation.baselines.selection import encode, fill, plan_groups


def pooled_grid(height: int, width: int, budget: int) -> tuple[int, int]:
    """(rows, columns) of the pooled grid: at most `budget` blocks, at the aspect of the grid, no side above the grid's."""
    if budget >= height * width:
        return height, width
    return largest_grid(height, width, budget, (height, width))


def blocks(height: int, width: int, rows: int, columns: int) -> torch.Tensor:
    """(height * width,) number of each cell's block, of rows x columns blocks whose sides differ by one cell at most."""
    row = torch.arange(height) * rows // height
    column = torch.arange(width) * columns // width
    return (row[:, None] * columns + column).flatten()


def pooling(model, processor, examples, budgets) -> Prepared:
    """Inputs with the means of blocks of cells: 2 x 2 at a quarter of the tokens, 4 x 4 at a sixteenth, between them uneven.

    As PLLaVA's adaptive average pooling to a target grid (Xu et al. 2024, arXiv 2404.16994), with blocks that do not overlap.
    DeepStack levels are pooled alike, and a token stands on the cell nearest to the middle of its block. Never more than K
    tokens, often a few fewer.
    """
    grids = [pooled_grid(*grid_of(processor, e), budget) for e, budget in zip(examples, budgets, strict=True)]
    encoded = encode(model, processor, examples, [rows * columns for rows, columns in grids])
    plans = [
        plan_groups(blocks(*shape, *grid).to(model.device), shape[1])
        for shape, grid in zip(encoded.grids, grids, strict=True)
    ]
    return fill(encoded, plans)
