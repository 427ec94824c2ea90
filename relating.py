"""What the place of a cell among others tells: the row below a name, the last one of a column, the largest of them."""

import torch
import torch.nn.functional as F
from torch import nn

from .knowing import Float32Conv2d, Float32Linear

_ROWS = 7  # of cells, in the middle of which a cell sees what was found above and below it: a table's row takes one to three


class RelatingStep(nn.Module):
    """One step from what was found in cells to what follows from it for others, added to what was found.

    Each cell sees what was found a few cells above and below it, then the most of that in each of four directions along its row
    and its column (directional maxima as in corner pooling, Law and Deng 2018, "CornerNet", section 3.3). So the row after a
    name is told from the row before it, a last row from all others; two steps lead from a number that none exceeds to the name
    in its row.

    Args:
        size: features of a cell.
    """

    def __init__(self, size: int):
        super().__init__()
        self.near = Float32Conv2d(size, size, (_ROWS, 1), padding=(_ROWS // 2, 0))
        self.enter = Float32Linear(6 * size, size)
        self.leave = Float32Linear(size, size)

    def forward(self, cells: torch.Tensor) -> torch.Tensor:
        """(..., h, w, size) float32 of the same."""
        flat = cells.flatten(0, -4) if cells.ndim > 3 else cells[None]
        near = F.gelu(self.near(flat.movedim(-1, 1))).movedim(1, -1).view_as(cells)
        seen = torch.cat([cells, near, *_directions(near)], -1)
        return cells + self.leave(F.gelu(self.enter(seen)))


def _directions(cells: torch.Tensor) -> list[torch.Tensor]:
    """Four of (..., h, w, C): the largest of each channel above, below, left and right of a cell; 0 where none is above 0."""
    found = []
    for axis in (-3, -2):
        padding = (0, 0) * (-axis - 1)
        before = F.pad(cells.narrow(axis, 0, cells.shape[axis] - 1), (*padding, 1, 0))
        after = F.pad(cells.narrow(axis, 1, cells.shape[axis] - 1), (*padding, 0, 1))
        found.append(before.cummax(axis).values)
        found.append(after.flip(axis).cummax(axis).values.flip(axis))
    return found
