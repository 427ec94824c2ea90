"""Pictures of where a question's visual tokens went: heatmap, kept cells, the maps behind the choice, and what was missed."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from PIL import Image, ImageDraw

from arrcoc.allocation import Allocation
from arrcoc.overlay import heatmap
from arrcoc.texture import TEXTURE_CHANNELS, pixel_canvas, texture_array
from training.data.examples import Box, evidence_weight

SIDE = 768  # pixels; a smaller picture is enlarged before it is shown
MOST_SIDE = 1536  # pixels; a larger one is reduced
MAP_SIDE = 240  # pixels
FADED = 0.85  # of white over a cell that no token stands for
EVIDENCE = (214, 39, 40)


@dataclass(frozen=True, eq=False)
class Seen:
    """What a question's tokens were chosen from and where they went, on the CPU.

    Attributes:
        image: the picture, at most `MOST_SIDE` pixels a side.
        size: (width, height) of the picture as asked.
        question: as asked.
        allocation: the plan.
        texture_image: (3, S, S) uint8, what the texture channels are measured on.
        max_cell_pixels: as the model's config has it.
    """

    image: Image.Image
    size: tuple[int, int]
    question: str
    allocation: Allocation
    texture_image: torch.Tensor
    max_cell_pixels: int

    @classmethod
    def of(cls, image, question, allocation, texture_image, max_cell_pixels) -> "Seen":
        """With every tensor on the CPU."""
        shown = image.copy()
        shown.thumbnail((MOST_SIDE, MOST_SIDE))
        return cls(shown, image.size, question, allocation.to("cpu"), texture_image.cpu(), max_cell_pixels)

    @property
    def kept(self) -> torch.Tensor:
        """(rows, columns) bool: the cells that have a token of their own."""
        return self.allocation.kept[0]


def enlarged(image: Image.Image) -> Image.Image:
    """The picture, its sides multiplied by a whole number so that the longer one comes near to `SIDE`; never smaller."""
    factor = max(1, SIDE // max(image.size))
    return image.resize((image.width * factor, image.height * factor), Image.Resampling.NEAREST)


def heat_pair(seen: Seen) -> tuple[Image.Image, Image.Image]:
    """The picture, and the same under its relevance with the kept cells outlined."""
    shown = enlarged(seen.image)
    return shown, seen.allocation.overlay(shown)


def kept_picture(seen: Seen) -> Image.Image:
    """What the language model got: kept cells as they are, others as coarsely as a shared token has them, or faded."""
    shown = enlarged(seen.image)
    plan = seen.allocation
    owner = plan.cell_token.view(plan.grid[1:])
    level = torch.where(owner < 0, -1, plan.level[owner.clamp_min(0)])
    picture = Image.blend(shown, Image.new("RGB", shown.size, "white"), FADED)
    for shared in (number for number in level.unique().tolist() if number >= 0):
        rows, columns = (max(1, -(-side // 2**shared)) for side in plan.grid[1:])
        cell = max(
            1, max(seen.image.size) // max(plan.grid[1:])
        )  # pixels of a cell, of which a shared token sees fewer
        coarse = seen.image.resize((columns * cell, rows * cell), Image.Resampling.BICUBIC) if shared else seen.image
        coarse = coarse.resize(shown.size, Image.Resampling.NEAREST)
        picture.paste(coarse, mask=_mask(level == shared, shown.size))
    return picture


def _mask(cells: torch.Tensor, size: tuple[int, int]) -> Image.Image:
    return Image.fromarray((cells.numpy() * 255).astype(np.uint8)).resize(size, Image.Resampling.NEAREST)


def maps(seen: Seen) -> list[tuple[Image.Image, str]]:
    """(picture, title) of the relevance, the three scores and every texture channel."""
    grid = seen.allocation.grid[1:]
    canvas = pixel_canvas(seen.texture_image, grid, max_cell_pixels=seen.max_cell_pixels)
    named = [("relevance", seen.allocation.relevance[0])]
    named += [(f"{name} score", score[0]) for name, score in seen.allocation.scores.items()]
    named += list(zip(TEXTURE_CHANNELS, texture_array(canvas, grid), strict=True))
    scale = MAP_SIDE / max(seen.image.size)
    size = tuple(max(1, round(side * scale)) for side in seen.image.size)
    return [
        (Image.fromarray(heatmap(values.float().numpy())).resize(size, Image.Resampling.NEAREST), title)
        for title, values in named
    ]


def tensions(seen: Seen) -> list[tuple[str, float]]:
    """The three tensions by name, each in (-1, 1): below 0 leans to the first word, above to the second."""
    return [(name.replace("_", " - "), float(value)) for name, value in seen.allocation.tensions.items()]


def missed(seen: Seen, evidence: Sequence[Box]) -> tuple[Image.Image, float]:
    """The kept picture with the boxes that the answer is read from, and the share of their area whose cells were kept.

    Args:
        evidence: one box or more, in pixels of the picture as asked.
    """
    weight = evidence_weight(evidence, seen.size, seen.allocation.grid[1:])
    picture = kept_picture(seen)
    draw, scale = ImageDraw.Draw(picture), picture.width / seen.size[0]
    line = max(2, picture.width // 200)
    for left, top, right, bottom in evidence:
        draw.rectangle(
            (left * scale - line, top * scale - line, right * scale + line, bottom * scale + line),
            outline=EVIDENCE,
            width=line,
        )
    return picture, float((weight * seen.kept).sum())
