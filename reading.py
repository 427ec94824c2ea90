"""What stage 1 reads of a raw image, where the vision tower has not seen it yet."""

from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import nn

from .knowing import Float32Conv2d
from .texture import cell_geometry

READ_PIXELS = 16  # side of a cell as it is read
READ_FEATURES = 128
_STEM = (3, 24, 48, 96, READ_FEATURES)  # each step halves the picture: four make one place of 16 pixels
_BLOCKS = 2


class _Block(nn.Module):
    def __init__(self, channels: int):
        super().__init__()
        self.look = Float32Conv2d(channels, channels, 3, padding=1)
        self.add = Float32Conv2d(channels, channels, 1)

    def forward(self, cells: torch.Tensor) -> torch.Tensor:
        return cells + self.add(F.gelu(self.look(_normalised(cells))))


class CellReader(nn.Module):
    """A small convolutional network: features of each cell, from the pixels in it and in the cells around it.

    It learns to guess the visual tokens that the tower would make of the cells (a hint, FitNets, Romero et al. 2015, section
    2.2), at less than a hundredth of a published tower's cost (a seventh of the bundled one's): enough to tell print from paper
    and one kind of label from another.
    """

    def __init__(self):
        super().__init__()
        self.stem = nn.ModuleList(
            Float32Conv2d(before, after, 3, stride=2, padding=1) for before, after in pairwise(_STEM)
        )
        self.blocks = nn.ModuleList(_Block(READ_FEATURES) for _ in range(_BLOCKS))

    def forward(self, canvas: torch.Tensor, grid_hw: tuple[int, int]) -> torch.Tensor:
        """(..., h * w, `READ_FEATURES`) float32 of a canvas (3, h * p, w * p) in [0, 1], or of several, in raster order.

        Cells of another size than `READ_PIXELS` are resampled to it. Raises ValueError if the canvas does not fit the grid.
        """
        height, width, cell_pixels = cell_geometry(canvas, grid_hw)
        with torch.autocast(canvas.device.type, enabled=False):
            picture = (canvas if canvas.ndim == 4 else canvas[None]).float() - 0.5
            if cell_pixels != READ_PIXELS:
                size = (height * READ_PIXELS, width * READ_PIXELS)
                picture = F.interpolate(picture, size, mode="bilinear", align_corners=False, antialias=True)
            for step in self.stem:
                picture = F.gelu(_normalised(step(picture)))
            for block in self.blocks:
                picture = block(picture)
            cells = picture.flatten(2).mT
            return cells if canvas.ndim == 4 else cells[0]


def _normalised(picture: torch.Tensor) -> torch.Tensor:
    # each place by itself, over its channels
    return F.layer_norm(picture.movedim(1, -1), picture.shape[1:2]).movedim(-1, 1)
