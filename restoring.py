"""What a cell would look like, had the vision tower seen the whole page."""

import torch
import torch.nn.functional as F
from torch import nn

from .knowing import Float32Conv2d, Float32Linear, NeutralLinear
from .matching import normalised
from .reading import READ_FEATURES

_DISTANCES = (1, 2, 4)  # of the cells that a look takes in


class ContextRestorer(nn.Module):
    """Brings the features of cells that the tower encoded without their neighbours back to those of the whole page.

    Cells see only each other in the tower, so what was left out is missing in the features of what was not: the other half of a
    letter, the label of a value. Stage 1 has read all cells, if coarsely; from both, a few convolutions guess what the whole page
    would have added (a hint, FitNets, Romero et al. 2015, section 2.2). Exactly nothing before training.

    Args:
        feature_sizes: of the visual tokens, and of what each DeepStack level adds.
        hidden_size: width of the convolutions.
    """

    def __init__(self, feature_sizes: list[int], hidden_size: int = 192):
        super().__init__()
        self.feature_sizes = tuple(feature_sizes)
        self.enter = nn.ModuleList(Float32Linear(size, hidden_size) for size in self.feature_sizes)
        self.read = Float32Linear(READ_FEATURES, hidden_size)
        self.looks = nn.ModuleList(
            Float32Conv2d(hidden_size, hidden_size, 3, padding=distance, dilation=distance) for distance in _DISTANCES
        )
        self.adds = nn.ModuleList(Float32Linear(hidden_size, hidden_size) for _ in _DISTANCES)
        self.leave = nn.ModuleList(NeutralLinear(hidden_size, size) for size in self.feature_sizes)

    def forward(
        self, levels: list[torch.Tensor], read: torch.Tensor, encoded: torch.Tensor, grid_hw: tuple[int, int]
    ) -> list[torch.Tensor]:
        """`levels`, restored; their dtype is kept. The guess sends no gradient into what it is made of.

        Args:
            levels: (M, size) per entry of `feature_sizes`, of the encoded cells.
            read: (h * w, `READ_FEATURES`) what `CellReader` reads of all cells.
            encoded: (M,) long, raster index of the encoded cells.
            grid_hw: rows and columns of cells.
        """
        with torch.autocast(read.device.type, enabled=False):
            rows = [level.detach().float() for level in levels]
            entered = sum(layer(normalised(row)) for layer, row in zip(self.enter, rows, strict=True))
            cells = self.read(normalised(read.detach())).index_add(0, encoded, entered)
            for look, add in zip(self.looks, self.adds, strict=True):
                picture = normalised(cells).T.unflatten(1, grid_hw)
                cells = cells + add(F.gelu(look(picture[None])[0].flatten(1).T))
            found = normalised(cells[encoded])
            # in units of each cell's own spread, whatever the base's features are measured in
            added = [layer(found) * row.std(-1, keepdim=True) for layer, row in zip(self.leave, rows, strict=True)]
        wide = [level.to(torch.promote_types(level.dtype, torch.float32)) for level in levels]
        return [(row + more).to(level.dtype) for row, more, level in zip(wide, added, levels, strict=True)]
