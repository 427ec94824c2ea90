"""One question about one picture, and where on the token grid its answer stands."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from arrcoc.picture import open_picture

Box = tuple[float, float, float, float]  # left, top, right, bottom in pixels
Picture = Image.Image | str | Path | Callable[[], Image.Image]


@dataclass(frozen=True)
class Example:
    """A question about a picture; any of `answers` counts, `evidence` holds the boxes that the answer is read from, `context`
    those of what else has to be seen to know so, such as labels and headers.

    `picture` is an image, a path, or a function that draws or reads one; `image` opens it on every access, so that a list of
    examples holds no pixels (a function may keep its last pictures: do not draw into them). Boxes are in pixels of `image`.
    `name` is unique within its source.
    """

    picture: Picture
    question: str
    answers: tuple[str, ...]
    family: str = "all"
    evidence: tuple[Box, ...] = ()
    name: str = ""
    context: tuple[Box, ...] = ()

    @property
    def image(self) -> Image.Image:
        """The picture as upright 8-bit RGB, as the processor opens it. `FileNotFoundError` or `ValueError` if it is gone."""
        return open_picture(self.picture() if callable(self.picture) else self.picture)


class Examples(list[Example]):
    """A list of examples; `left_out` says how many records were left out, by reason."""

    def __init__(self, examples: Sequence[Example] = (), left_out: dict[str, int] | None = None):
        super().__init__(examples)
        self.left_out = dict(left_out or {})


def by_picture(examples: Sequence[Example]) -> list[list[Example]]:
    """The examples of each picture, in their order: those of one path, or of functions that draw it and are equal."""
    found: dict[object, list[Example]] = {}
    for example in examples:
        found.setdefault(_identity(example.picture), []).append(example)
    return list(found.values())


def _identity(picture: Picture):
    if isinstance(picture, (str, Path)):
        return str(picture)
    try:
        hash(picture)
    except TypeError:  # an image, or what reads one from a dict
        return id(picture)
    return picture


def evidence_share(evidence: Sequence[Box], image_size: tuple[int, int], grid: tuple[int, int]) -> torch.Tensor:
    """(rows, columns) float32: the share of each cell's area that the union of the boxes covers, 0 to 1.

    Args:
        evidence: boxes (left, top, right, bottom) in pixels; parts outside the picture don't count.
        image_size: (width, height) of the picture that the boxes belong to. The processor may resize it: cells
            are found by relative coordinates.
        grid: (rows, columns) of merged tokens.

    Raises:
        ValueError: the size or the grid has no area.
    """
    cell_area = image_size[0] / max(grid[1], 1) * (image_size[1] / max(grid[0], 1))
    return torch.from_numpy((_covered(evidence, image_size, grid) / cell_area).clip(0, 1)).to(torch.float32)


def evidence_weight(evidence: Sequence[Box], image_size: tuple[int, int], grid: tuple[int, int]) -> torch.Tensor:
    """(rows, columns) float32: the share of the evidence's area that lies in each cell; sums to 1, or to 0 without evidence.

    Overlapping boxes count once. Arguments and errors as `evidence_share`; the sum over the kept cells is the evidence recall.
    """
    covered = _covered(evidence, image_size, grid)
    return torch.from_numpy(covered / (covered.sum() or 1.0)).to(torch.float32)


def _covered(evidence: Sequence[Box], image_size: tuple[int, int], grid: tuple[int, int]) -> np.ndarray:
    """(rows, columns) float64: area of the boxes' union in each cell, in square pixels.

    Exact: all edges of boxes and cells cut the picture into rectangles that are wholly inside or outside of each.
    """
    if min(image_size) <= 0 or min(grid) <= 0:
        raise ValueError(f"image_size={image_size} and grid={grid} must be at least 1 on each side")
    (width, height), (rows, columns) = image_size, grid
    boxes = np.asarray(evidence, dtype=np.float64).reshape(-1, 4).clip(0, (width, height, width, height))
    cells_x, cells_y = np.linspace(0, width, columns + 1), np.linspace(0, height, rows + 1)
    x = np.unique(np.concatenate([cells_x, boxes[:, 0], boxes[:, 2]]))
    y = np.unique(np.concatenate([cells_y, boxes[:, 1], boxes[:, 3]]))
    in_x = (boxes[:, :1] <= x[:-1]) & (x[1:] <= boxes[:, 2:3])  # (boxes, pieces across)
    in_y = (boxes[:, 1:2] <= y[:-1]) & (y[1:] <= boxes[:, 3:])
    inside = (in_y[:, :, None] & in_x[:, None, :]).any(axis=0)
    area = np.where(inside, np.diff(y)[:, None] * np.diff(x), 0.0)
    # every cell edge is a cut, so whole pieces add up to cells
    first_x, first_y = np.searchsorted(x, cells_x[:-1]), np.searchsorted(y, cells_y[:-1])
    return np.add.reduceat(np.add.reduceat(area, first_y, axis=0), first_x, axis=1)
