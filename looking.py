"""Stage 1: what a look at the raw image tells, before the vision tower has seen a patch of it."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F

from .attending import choose_cells
from .compiling import uncompiled
from .texture import cell_geometry

# "auto" never drops a cell one of whose pixels differs from its surroundings by more than this, in any channel of [0, 1].
EMPTY_CONTRAST = 8 / 255
_IMAGE_STD = 0.5  # by which Qwen3-VL's processor has divided the pixels of its patches


@dataclass(frozen=True, eq=False)
class Glance:
    """What stage 1 knows of one image; `texture`, `information`, `canvas` and `contrast` depend on no trained weights.

    Attributes:
        texture: (13, h, w) texture array.
        information: (h, w) score map that needs no vision features.
        canvas: (3, h * p, w * p) in [0, 1], see `pixel_canvas`; `None` once nothing will read it again.
        contrast: (h, w), from `with_contrast`; `None` where nothing asks what is empty.
        perspective: (h, w) score map, with its gradient; `None` where `rate` was not asked.
        early: (h * w,) relevance from raw image and question alone, with its gradient; `None` where it was not asked for.
        read: (h * w, `READ_FEATURES`) from `CellReader`, with its gradient; `None` before it is needed and after its last use.
        encoded: (M,) raster index of the cells that the vision tower encodes, ascending; `None` for all.
        everywhere: scalar bool, whether the question is about the whole image; `None` where `rate` was not asked.
    """

    texture: torch.Tensor
    information: torch.Tensor
    canvas: torch.Tensor | None
    contrast: torch.Tensor | None = None
    perspective: torch.Tensor | None = None
    early: torch.Tensor | None = None
    read: torch.Tensor | None = None
    encoded: torch.Tensor | None = None
    everywhere: torch.Tensor | None = None


def beside_each_other(glances: Sequence[Glance]) -> Glance:
    """What was seen of several images of one grid, with one more dimension in front of each tensor that all of them have."""
    fields = {name: [getattr(glance, name) for glance in glances] for name in Glance.__dataclass_fields__}
    return Glance(
        **{name: None if any(seen is None for seen in of) else torch.stack(of) for name, of in fields.items()}
    )


def one_by_one(glances: Glance) -> list[Glance]:
    """The opposite of `beside_each_other`."""
    fields = {name: getattr(glances, name) for name in Glance.__dataclass_fields__}
    return [
        Glance(**{name: None if of is None else of[number] for name, of in fields.items()})
        for number in range(len(glances.texture))
    ]


def cell_contrast(canvas: torch.Tensor, grid_hw: tuple[int, int]) -> torch.Tensor:
    """(h, w) in [0, 1]: how far a cell differs from its surroundings.

    The larger of the range of the cell's own pixels and the difference of its mean to that of any neighbour (of 8) which is
    itself plain, over all channels. So both sides of an edge between two plain areas count, and blank paper beside print does
    not.
    """
    height, width, cell_pixels = cell_geometry(canvas, grid_hw)
    within = F.max_pool2d(canvas, cell_pixels) + F.max_pool2d(-canvas, cell_pixels)
    within = within.amax(0)
    mean = F.avg_pool2d(canvas, cell_pixels)
    even = within <= EMPTY_CONTRAST
    near = F.unfold(torch.cat([mean, even[None].to(mean.dtype)])[None], 3, padding=1).view(4, 9, height, width)
    between = ((mean[:, None] - near[:3]).abs().amax(0) * near[3]).amax(0)
    return torch.maximum(within, between)


def patch_contrast(patches: torch.Tensor, grid_hw: tuple[int, int]) -> torch.Tensor:
    """(h, w) in [0, 1]: the range of a cell's own pixels as the vision tower would see them, the largest of all channels.

    On a large picture thin print all but vanishes from the canvas of `cell_contrast`, which is made of the squeezed raw image.

    Args:
        patches: `pixel_values` of one image, the patches of a cell in a row; as the processor makes them unless told otherwise,
            in [-1, 1] (in [0, 1], as with `do_normalize=False`, they count half).
    """
    height, width = grid_hw
    cells = patches.view(height * width, -1, 3, patches.shape[-1] // 3)
    span = cells.amax((1, 3)).float() - cells.amin((1, 3)).float()
    return (span.amax(-1) * _IMAGE_STD).view(height, width)


@uncompiled
def with_contrast(glance: Glance, patches: torch.Tensor, grid_hw: tuple[int, int]) -> Glance:
    """`glance` with its `contrast` as "auto" promises it, that of the raw image or of the patches; see `patch_contrast`.

    Raises:
        ValueError: the glance has no canvas any more.
    """
    if glance.canvas is None:
        raise ValueError("the glance has no canvas any more; pass what ARRCOCLayer.look returns")
    squeezed = cell_contrast(glance.canvas.float(), grid_hw)
    return replace(glance, contrast=torch.maximum(squeezed, patch_contrast(patches, grid_hw).to(squeezed.device)))


@uncompiled
def count_inked(glances: Sequence[Glance]) -> list[int]:
    """How many cells of each image `EMPTY_CONTRAST` does not call empty, read from the device in one go.

    Raises:
        ValueError: a glance lacks `contrast`.
    """
    return torch.stack([_inked(glance).sum() for glance in glances]).tolist() if glances else []


def _inked(glance: Glance) -> torch.Tensor:
    if glance.contrast is None:
        raise ValueError("the glance does not tell what is empty; pass what with_contrast returns")
    return glance.contrast > EMPTY_CONTRAST


@uncompiled
def choose_to_encode(
    glance: Glance,
    grid: tuple[int, int, int],
    encode_ratio: float | str,
    budget: int,
    coverage_floor: float,
    inked: int | None = None,
) -> torch.Tensor | None:
    """(M,) raster index of the cells that the vision tower encodes, `budget` of them at least; `None` for all.

    A share is taken by early relevance, with the coverage floor, or evenly where `glance.everywhere`. "auto" takes every cell that
    `EMPTY_CONTRAST` does not call empty, whatever is asked: `inked` of them (see `count_inked`), which is read where it is not
    given.

    Raises:
        ValueError: the glance lacks what the ratio needs.
    """
    cells = math.prod(grid)
    if isinstance(encode_ratio, str):  # "auto"
        count = max(count_inked([glance])[0] if inked is None else inked, budget)
        if count >= cells:
            return None
        scores = torch.where(_inked(glance).flatten(), torch.inf, glance.information.flatten())
        return choose_cells(scores, grid, count, 0.0)
    if glance.early is None:
        raise ValueError("the glance has not seen the question; pass what ARRCOCLayer.rate returns")
    count = max(math.ceil(encode_ratio * cells - 1e-9), budget)
    if count >= cells:
        return None
    return choose_cells(glance.early.detach(), grid, count, coverage_floor, glance.everywhere)
