"""What the vision tower is given: some cells of an image, and a coarse view beside them."""

from dataclasses import dataclass, field, replace
from functools import partial
from itertools import accumulate

import torch
import torch.nn.functional as F
from transformers.vision_utils import get_vision_interpolation_indices_and_weights, get_vision_position_ids

from .allocation import Allocation
from .compiling import uncompiled

COARSE_FACTORS = (2, 4, 8)  # sides of an image over those of its coarse view

# What a packed prompt brings for its language model.
_OF_THE_PROMPT = ("cu_seq_lens_q", "cu_seq_lens_k", "max_length_q", "max_length_k")


def tower_arguments(arguments: dict) -> dict:
    """Those of a forward's further arguments that the vision tower is given where it sees chosen cells, as stock Qwen3-VL tells
    them apart where it sees all.

    Raises:
        ValueError: the tower's own inputs, such as `image_position_ids`, are there ready made: they are of all cells.
    """
    for name in arguments:
        if name.startswith("image_"):
            raise ValueError(
                f"{name} is made for every cell of the images, and here the vision tower sees some of them or a coarse view "
                "too; leave it out, or pass encode_ratio=1.0 and allocation_mode='select'"
            )
    return {k: v for k, v in arguments.items() if not k.startswith("video_") and k not in _OF_THE_PROMPT}


def encode_cells(visual, pixel_values, grid_thw, cells: list[torch.Tensor | None], **kwargs):
    """Qwen3-VL's vision tower on some cells of each image, each at its true place: what it returns, for these cells alone.

    The tower takes its position inputs ready made, so nothing of it is repeated here. Cells see only each other.

    Args:
        visual: the vision tower.
        pixel_values: (patches, patch size) of all cells of all images, those of one cell beside each other.
        grid_thw: (images, 3) in patches.
        cells: per image (M,) long, ascending, or `None` for all.
        kwargs: see `tower_arguments`.

    Returns:
        `BaseModelOutputWithDeepstackFeatures` with `pooler_output` and each DeepStack level split by image: (M, C) each.
    """
    kwargs = tower_arguments(kwargs)
    unit, device = visual.spatial_merge_unit, grid_thw.device
    sizes = (grid_thw.prod(-1) // unit).tolist()
    counts = [size if kept is None else len(kept) for size, kept in zip(sizes, cells, strict=True)]
    if counts != sizes or any(kept is not None for kept in cells):
        starts = accumulate(sizes[:-1], initial=0)
        chosen = [
            start + (torch.arange(size, device=device) if kept is None else kept.to(device))
            for start, size, kept in zip(starts, sizes, cells, strict=True)
        ]
        rows = (torch.cat(chosen)[:, None] * unit + torch.arange(unit, device=device)).flatten()
        indices, weights = get_vision_interpolation_indices_and_weights(
            grid_thw,
            num_grid_per_side=visual.num_grid_per_side,
            mode=visual.interpolation_mode,
            align_corners=visual.interpolation_align_corners,
            spatial_merge_size=visual.spatial_merge_size,
        )
        ends = torch.tensor(counts, device=device).cumsum(0) * unit
        # what comes ready made wins: training lets a batch of one grid attend at once
        kwargs = {
            "position_ids": get_vision_position_ids(grid_thw, visual.spatial_merge_size)[rows],
            "interp_indices": indices[rows],
            "interp_weights": weights[rows],
            "cu_seqlens": F.pad(ends, (1, 0)).to(torch.int32),
        } | kwargs
        pixel_values = pixel_values[rows.to(pixel_values.device)]
    output = visual(pixel_values.to(visual.dtype), grid_thw=grid_thw, return_dict=True, **kwargs)
    output.pooler_output = output.pooler_output.split(counts)
    output.deepstack_features = [level.split(counts) for level in output.deepstack_features]
    return output


def parted(vision, images: int):
    """The output of `encode_cells` of the first `images`, and that of the others."""
    counts = [len(tokens) for tokens in vision.pooler_output]
    rows = sum(counts[:images]) * (len(vision.last_hidden_state) // sum(counts))

    def part(states: torch.Tensor, some: slice):
        levels = [level[some] for level in vision.deepstack_features]
        return type(vision)(
            last_hidden_state=states, pooler_output=vision.pooler_output[some], deepstack_features=levels
        )

    states = vision.last_hidden_state
    return part(states[:rows], slice(images)), part(states[rows:], slice(images, None))


@dataclass(frozen=True, eq=False)
class CoarseView:
    """A whole image at a fraction of its sides.

    Attributes:
        factor: of `COARSE_FACTORS`.
        pixel_values: (patches, patch size), `None` once it is encoded.
        grid: (t, h, w) in patches.
        positions: (C, 3) long, (t, row, column) on the image's own merged grid of the middle of what each token covers.
        covers: (h * w,) long, the coarse token of each cell.
        tokens, deepstack: (C, size) and one (C, size) per level, once it is encoded; `None` and nothing before.
    """

    factor: int
    pixel_values: torch.Tensor | None
    grid: tuple[int, int, int]
    positions: torch.Tensor
    covers: torch.Tensor
    tokens: torch.Tensor | None = None
    deepstack: list[torch.Tensor] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.positions)

    def fits(self, budget: int, share: float) -> bool:
        """Whether it takes at most `share` of `budget` tokens; one that does not was made for larger budgets."""
        return len(self) <= budget * share

    def encoded(self, tokens: torch.Tensor, deepstack: list[torch.Tensor]) -> "CoarseView":
        """The view with its features, in place of its pixels."""
        return replace(self, pixel_values=None, tokens=tokens, deepstack=deepstack)

    def beside(self, fine: Allocation) -> Allocation:
        """The plan of the coarse view's tokens and then those of `fine`; cells without a token of their own feed the view's."""
        level = torch.full_like(self.positions[:, 0], COARSE_FACTORS.index(self.factor) + 1)
        depth = torch.full_like(level, int(fine.depth.max()))
        return replace(
            fine,
            positions=torch.cat([self.positions, fine.positions]),
            level=torch.cat([level, fine.level]),
            depth=torch.cat([depth, fine.depth]),
            cell_token=torch.where(fine.cell_token < 0, self.covers, fine.cell_token + len(self)),
            coarse=len(self),
        )


def coarse_grid(
    grid: tuple[int, int, int], budget: int, share: float, least: int = 1, always: bool = False
) -> tuple[int, int, int] | None:
    """(factor, rows, columns) of the finest coarse view that takes at most `share` of `budget` tokens, and `least` of them: fewer
    say less than they do as cells. Where there is none, `None`; with `always` the coarsest that takes `least`."""
    _, height, width = grid
    coarsest = None
    for factor in COARSE_FACTORS:
        found = factor, -(-height // factor), -(-width // factor)
        if found[1] * found[2] < least:
            break
        if found[1] * found[2] <= budget * share:
            return found
        coarsest = found
    return coarsest if always else None


@uncompiled
def coarse_view(
    pixel_values, grid: tuple[int, int, int], budget: int, share: float, visual, least: int = 1, always: bool = False
) -> CoarseView | None:
    """The coarse view of one image, made from its own patches; `None` where the budget is too small for one, see `coarse_grid`.

    Args:
        pixel_values: (patches, patch size) of the image, as Qwen3-VL's processor lays them out.
        grid: (1, h, w) merged grid.
        budget: tokens of the image, coarse and fine together.
        share, least: the part of them that is meant for the coarse view, see `coarse_grid`.
        always: make the coarsest where the budget is too small, for larger budgets.
    """
    _, height, width = grid
    found = coarse_grid(grid, budget, share, least, always)
    if found is None:
        return None
    factor, rows, columns = found
    merge, patch = visual.spatial_merge_size, visual.patch_size
    frames = visual.config.temporal_patch_size
    cells = pixel_values.view(height, width, merge, merge, -1, frames, patch, patch)
    picture = cells[:, :, :, :, :, 0].float().permute(4, 0, 2, 5, 1, 3, 6)  # of an image all frames are alike
    picture = picture.reshape(1, -1, height * merge * patch, width * merge * patch)
    size = (rows * merge * patch, columns * merge * patch)
    small = F.interpolate(picture, size, mode="bicubic", antialias=True).clamp(picture.amin(), picture.amax())
    small = small.view(1, -1, rows, merge, patch, columns, merge, patch).expand(frames, *[-1] * 7)
    small = small.permute(2, 5, 3, 6, 1, 0, 4, 7)
    up_to = partial(torch.arange, device=pixel_values.device)
    row, column = up_to(rows), up_to(columns)
    # the cell whose middle lies at, or just above and left of, the middle of what a coarse token covers
    row, column = ((2 * row + 1) * height - rows) // (2 * rows), ((2 * column + 1) * width - columns) // (2 * columns)
    places = torch.cartesian_prod(up_to(1), row, column)
    of_row = (2 * up_to(height) + 1) * rows // (2 * height)  # in which a cell's middle lies
    of_column = (2 * up_to(width) + 1) * columns // (2 * width)
    return CoarseView(
        factor=factor,
        pixel_values=small.reshape(rows * columns * merge**2, -1).to(pixel_values.dtype),
        grid=(1, rows * merge, columns * merge),
        positions=places,
        covers=(of_row[:, None] * columns + of_column).flatten(),
    )
