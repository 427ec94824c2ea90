"""A frozen plan, which cells of an image get its tokens, and its application to features."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from types import MappingProxyType

import torch


@dataclass(frozen=True, eq=False)
class Allocation:
    """Where one image's visual tokens go.

    Attributes:
        positions: (K, 3) long, (t, row, column) of each token on the merged grid, in raster order; in the foveated mode the
            tokens of the coarse view come first.
        grid: (t, h, w) of the merged grid.
        relevance: (t, h, w) float32, the balanced map. The choice ranks it, with `diversity` above 0 after similar cells suppressed
            each other; where `everywhere`, within each block of the image.
        scores: the maps "information", "perspective" and "participation" by name, each (t, h, w).
        tensions: "compress_particularize", "exploit_explore" and "focus_diversify" by name, scalar tensors in (-1, 1).
        level: (K,) long, 0 for a fine cell, 1 for a 2 x 2 and 2 for a 4 x 4 pooled cell; n for a token of a coarse view at
            1 / 2^n of the sides.
        depth: (K,) long, how many DeepStack levels the token receives.
        cell_token: (t * h * w,) long, the token that each cell feeds, -1 for a dropped cell.
        pooled: whether a token stands for a pooled cell; `None` to read it off `level`, for which a GPU is waited for.
        coarse: how many of the tokens are those of a coarse view.
        shallow: whether a token may receive fewer DeepStack levels than there are; `False` where every one is known to receive all.
        everywhere: scalar bool, whether the question is about the whole image, over which the fine tokens are then spread evenly;
            `None` where that was not asked.
    """

    positions: torch.Tensor
    grid: tuple[int, int, int]
    relevance: torch.Tensor
    scores: Mapping[str, torch.Tensor]
    tensions: Mapping[str, torch.Tensor]
    level: torch.Tensor
    depth: torch.Tensor
    cell_token: torch.Tensor
    pooled: bool | None = None
    coarse: int = 0
    everywhere: torch.Tensor | None = None
    shallow: bool = True

    def __post_init__(self):
        if self.pooled is None:
            object.__setattr__(self, "pooled", bool(self.level.any()))
        object.__setattr__(self, "scores", MappingProxyType(dict(self.scores)))
        object.__setattr__(self, "tensions", MappingProxyType(dict(self.tensions)))

    def __reduce__(self):  # a mapping proxy can't be pickled
        values = (getattr(self, name) for name in self.__dataclass_fields__)
        return type(self), tuple(dict(value) if isinstance(value, MappingProxyType) else value for value in values)

    def __len__(self) -> int:
        return len(self.positions)

    def to(self, device) -> "Allocation":
        """The plan with all of its tensors on `device`."""
        if self.positions.device == torch.device(device):
            return self
        own = ("positions", "relevance", "level", "depth", "cell_token", "everywhere")
        moved = {name: getattr(self, name).to(device) for name in own if getattr(self, name) is not None}
        scores = {name: score.to(device) for name, score in self.scores.items()}
        tensions = {name: tension.to(device) for name, tension in self.tensions.items()}
        return replace(self, **moved, scores=scores, tensions=tensions)

    @cached_property
    def raster(self) -> torch.Tensor:
        """(K,) long, the raster index of the cell that each token stands on."""
        _, height, width = self.grid
        t, row, column = self.positions.unbind(-1)
        return (t * height + row) * width + column

    @property
    def kept(self) -> torch.Tensor:
        """(t, h, w) bool, the cells that have a token of their own; on the CPU."""
        kept = torch.zeros(self.grid, dtype=torch.bool)
        kept[tuple(self.positions[self.level == 0].cpu().T)] = True
        return kept

    def overlay(self, image):
        """A heatmap of the relevance over `image` with the kept cells outlined, as a PIL image of the image's own size.

        Args:
            image: PIL image that was allocated.
        """
        from .overlay import draw_overlay

        return draw_overlay(self, image)


def apply_to_tokens(allocation: Allocation, tokens: torch.Tensor, encoded: torch.Tensor | None = None) -> torch.Tensor:
    """The kept rows of `tokens` (t * h * w, C), pooled cells as the mean of their rows: (K, C).

    Args:
        encoded: (M,) ascending, the cells that `tokens` has rows of, where not of all; the plan then has fine cells alone.

    Raises:
        ValueError: the plan has tokens of a coarse view, which are rows of another picture.
    """
    if allocation.coarse:
        raise ValueError(
            f"the first {allocation.coarse} tokens of this plan are those of a coarse view, and `tokens` has the rows of the "
            "cells; call get_image_features(), which encodes both, or allocate with allocation_mode='select'"
        )
    if encoded is not None:
        return tokens[torch.searchsorted(encoded, allocation.raster)]
    if not allocation.pooled:
        return tokens[allocation.raster]
    return mean_of_cells(tokens, allocation.cell_token, len(allocation))


def mean_of_cells(features: torch.Tensor, cell_token: torch.Tensor, count: int) -> torch.Tensor:
    """(count, C): of each token the mean of its rows of `features` (cells, C); `cell_token` (cells,) is a row's token, or -1."""
    fed = cell_token >= 0
    token = cell_token[fed]
    rows = features[fed].to(torch.promote_types(features.dtype, torch.float32))  # a sum may exceed what float16 holds
    sums = rows.new_zeros(count, rows.shape[-1]).index_add(0, token, rows)
    return (sums / torch.bincount(token, minlength=count)[:, None]).to(features.dtype)


def apply_to_deepstack(
    allocation: Allocation, levels: list[torch.Tensor], encoded: torch.Tensor | None = None
) -> list[torch.Tensor]:
    """The kept rows of each DeepStack level, zero where a token is too shallow for it: list of (K, C)."""
    kept = [apply_to_tokens(allocation, level, encoded) for level in levels]
    if not allocation.shallow:
        return kept
    return [features.masked_fill((allocation.depth <= number)[:, None], 0) for number, features in enumerate(kept)]
