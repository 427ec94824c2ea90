"""From relevance to a frozen plan (which cells, where, how deep), and how to apply the plan to tokens."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import torch
import torch.nn.functional as F

# Scores are compared on this grid. Two cells that are equal in exact arithmetic stay equal on every device and in every
# batch, and raster order decides between them.
SCORE_STEP = 1e-4
# Cells compared with each other for similarity, for each token of the budget. Cells that rank lower are never reached.
CANDIDATES_PER_TOKEN = 4


@dataclass(frozen=True, eq=False)
class Allocation:
    """Where one image's visual tokens go.

    Attributes:
        positions: (K, 3) long, (t, row, column) of each token on the merged grid, in raster order; in the foveated mode the
            tokens of the coarse view come first.
        grid: (t, h, w) of the merged grid.
        relevance: (t, h, w) float32, the balanced map that the choice was made on.
        scores: the maps "information", "perspective" and "participation" by name, each (t, h, w).
        tensions: "compress_particularize", "exploit_explore" and "focus_diversify" by name, scalar tensors in (-1, 1).
        level: (K,) long, 0 for a fine cell, 1 for a 2 x 2 and 2 for a 4 x 4 pooled cell; n for a token of a coarse view at
            1 / 2^n of the sides.
        depth: (K,) long, how many DeepStack levels the token receives.
        cell_token: (t * h * w,) long, the token that each cell feeds, -1 for a dropped cell.
        pooled: whether a token stands for a pooled cell; `None` to read it off `level`, for which a GPU is waited for.
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
        moved = {
            name: getattr(self, name).to(device) for name in ("positions", "relevance", "level", "depth", "cell_token")
        }
        scores = {name: score.to(device) for name, score in self.scores.items()}
        tensions = {name: tension.to(device) for name, tension in self.tensions.items()}
        return replace(self, **moved, scores=scores, tensions=tensions)

    @property
    def is_full(self) -> bool:
        """Whether every cell has a token of its own, so that the plan changes nothing."""
        return len(self) == math.prod(self.grid)

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


def _plan(cells, level, depth, cell_token, grid, pooled: bool):
    _, height, width = grid
    positions = torch.stack([cells // (height * width), cells // width % height, cells % width], dim=-1)
    return {"positions": positions, "level": level, "depth": depth, "cell_token": cell_token, "pooled": pooled}


def rank(scores: torch.Tensor) -> torch.Tensor:
    """Indices of `scores` (N,) from the highest to the lowest, raster order among equals."""
    return torch.sort((scores.detach() / SCORE_STEP).round(), descending=True, stable=True).indices


def suppress_similar(relevance: torch.Tensor, features: torch.Tensor, strength: torch.Tensor, budget: int):
    """Relevance after each cell lost `strength` x its similarity to the most similar cell that ranks above it.

    One pass over all pairs instead of a greedy loop (the form of matrix NMS: Wang et al. 2020, "SOLOv2", section 3.4).

    Args:
        relevance: (N,) float32; cells below 0 are not suppressed further.
        features: (N, C); their cosine similarity after the image's mean is taken off, clamped to [0, 1], is used.
        strength: scalar tensor in [0, 1]. The result is differentiable in it and in `relevance`.
        budget: tokens to choose; only `CANDIDATES_PER_TOKEN` times as many cells are compared.

    Returns:
        (N,) float32.
    """
    order = rank(relevance)[: CANDIDATES_PER_TOKEN * budget]
    directions = features.detach().float()
    directions = F.normalize((directions - directions.mean(0))[order], dim=-1)
    similarity = (directions @ directions.T).tril(-1).clamp(0, 1)  # row: the cell, columns: those above it
    nearest = (similarity.amax(-1) / SCORE_STEP).round() * SCORE_STEP
    suppression = torch.zeros_like(relevance).index_copy(0, order, nearest)
    return relevance - strength * suppression * relevance.clamp_min(0)


def cover(scores: torch.Tensor, grid: tuple[int, int, int], count: int) -> torch.Tensor:
    """(N,) bool, the best cell in each block of an even partition of the grid into at most `count` blocks.

    Args:
        scores: (N,) scores of the cells in raster order; -inf for a cell that can't be chosen.
        grid: (t, h, w); the frames share the rows of one tall grid.
    """
    if count < 1:
        return torch.zeros_like(scores, dtype=torch.bool)
    height, width = grid[0] * grid[1], grid[2]
    rows = min(height, count, max(1, round(math.sqrt(count * height / width))))
    columns = min(width, count // rows)
    row = torch.arange(height, device=scores.device) * rows // height
    column = torch.arange(width, device=scores.device) * columns // width
    block = (row[:, None] * columns + column[None]).flatten()
    order = rank(scores)
    # In rank order, the first cell of each block is its best.
    by_block = order[torch.sort(block[order], stable=True).indices]
    sorted_block = block[by_block]
    first = torch.ones_like(sorted_block, dtype=torch.bool)
    first[1:] = sorted_block[1:] != sorted_block[:-1]
    return torch.empty_like(first).scatter_(0, by_block, first & (scores[by_block] > -math.inf))


def choose_cells(scores: torch.Tensor, grid: tuple[int, int, int], count: int, coverage_floor: float):
    """`count` cells in raster order: the coverage floor first, then the highest scores.

    Args:
        scores: (N,) scores in raster order.
        coverage_floor: share of `count` that is spread evenly over the grid.
    """
    order = rank(scores)
    spread = cover(scores, grid, int(coverage_floor * count))
    # a stable sort, not a mask: the length of what a mask leaves is known only when the GPU is done
    order = order[spread[order].long().argsort(descending=True, stable=True)]
    return order[:count].sort().values


def pool_elsewhere(scores: torch.Tensor, grid: tuple[int, int, int], cell_token: torch.Tensor, count: int):
    """Spends up to `count` tokens on pooled 2 x 2 and 4 x 4 blocks of the cells that have no token yet.

    The most relevant blocks get the finer half of the tokens. A pooled token stands on the cell of its block that is
    nearest to the middle of the cells that it pools.

    Args:
        scores: (N,) scores in raster order.
        cell_token: (N,) long, the token of each cell, -1 for none.

    Returns:
        cell_token with the pooled cells filled in, the cell each new token stands on, and the level of each new token.
    """
    frames, height, width = grid
    index = torch.arange(len(scores), device=scores.device)
    row, column = index // width, index % width  # frames are stacked as one tall grid of whole blocks each
    cell_token, stands, levels = cell_token.clone(), [], []
    for level, share in ((1, 0.5), (2, 1.0)):
        size = 2**level
        blocks_high, blocks_wide = -(-height // size), -(-width // size)
        block = (row // height * blocks_high + row % height // size) * blocks_wide + column // size
        free = cell_token < 0
        members = torch.zeros(frames * blocks_high * blocks_wide, device=scores.device).index_add(
            0, block, free.float()
        )

        def block_mean(values, block=block, free=free, members=members):
            return torch.zeros_like(members).index_add(0, block, values * free) / members.clamp_min(1)

        value = block_mean(scores.detach()).masked_fill(members == 0, -math.inf)
        chosen = rank(value)[: min(int(share * count), int((members > 0).sum()))]
        number = torch.full((len(members),), -1, device=scores.device)
        number[chosen] = torch.arange(len(chosen), device=scores.device)
        token = torch.where(free, number[block], -1)
        off_centre = (row - block_mean(row.float())[block]) ** 2 + (column - block_mean(column.float())[block]) ** 2
        order = rank(-off_centre)
        order = order[token[order] >= 0]
        order = order[torch.sort(token[order], stable=True).indices]
        first = torch.ones_like(order, dtype=torch.bool)
        first[1:] = token[order][1:] != token[order][:-1]
        base = int(cell_token.max()) + 1
        cell_token = torch.where(token >= 0, token + base, cell_token)
        stands.append(order[first])
        levels.append(torch.full_like(order[first], level))
        count -= len(chosen)
    return cell_token, torch.cat(stands), torch.cat(levels)


def depths(scores: torch.Tensor, minimum: int | None, num_levels: int) -> torch.Tensor:
    """How many DeepStack levels each kept token receives: from `num_levels` for the most relevant down to `minimum`.

    Args:
        scores: (K,) scores of the kept tokens.
        minimum: levels of the least relevant token; `None` gives all tokens all levels.
    """
    depth = torch.full((len(scores),), num_levels, dtype=torch.long, device=scores.device)
    if minimum is None or minimum >= num_levels:
        return depth
    order = rank(scores)
    place = torch.arange(len(scores), device=scores.device)
    depth[order] = num_levels - place * (num_levels - minimum + 1) // len(scores)
    return depth


def attend(
    scores: torch.Tensor,
    grid: tuple[int, int, int],
    budget: int,
    *,
    coverage_floor: float,
    coarse_share: float,
    min_deepstack_levels: int | None,
    num_levels: int,
) -> dict[str, Any]:
    """The plan that spends `budget` tokens: the fields of an `Allocation`.

    Args:
        scores: (t * h * w,) scores in raster order, -inf for a cell that can't be chosen (not with pooled cells); the choice
            is not differentiable.
        grid: (t, h, w) merged grid.
        budget: number of tokens, 1 <= budget <= t * h * w.
        coverage_floor: share of the fine tokens that is spread evenly over the grid.
        coarse_share: share of the budget that goes to pooled cells; what finds no block returns to fine cells.
        min_deepstack_levels, num_levels: see `depths`.

    Raises:
        ValueError: the budget is outside 1 .. t * h * w.
    """
    cells = math.prod(grid)
    if not 1 <= budget <= cells:
        raise ValueError(f"a budget of {budget} tokens does not fit a grid of {grid}; pass 1 to {cells} tokens")
    scores = scores.detach().float()
    fine = max(1, budget - int(coarse_share * budget))
    while True:
        kept = choose_cells(scores, grid, fine, coverage_floor)
        cell_token = torch.full((cells,), -1, dtype=torch.long, device=scores.device)
        cell_token[kept] = torch.arange(fine, device=scores.device)
        level = torch.zeros_like(kept)
        if fine == budget:
            break
        cell_token, stands, levels = pool_elsewhere(scores, grid, cell_token, budget - fine)
        missing = budget - fine - len(stands)
        if not missing:
            kept, level = torch.cat([kept, stands]), torch.cat([level, levels])
            break
        fine += missing
    order = kept.argsort()
    kept, level = kept[order], level[order]
    renumber = torch.full((budget + 1,), -1, dtype=torch.long, device=scores.device)  # last entry: dropped cells
    renumber[order] = torch.arange(budget, device=scores.device)
    depth = depths(scores[kept], min_deepstack_levels, num_levels)
    return _plan(kept, level, depth, renumber[cell_token], grid, pooled=fine < budget)


def straight_through_gates(scores: torch.Tensor, allocation: Allocation, temperature: torch.Tensor) -> torch.Tensor:
    """(K,) gates whose value is exactly 1 and whose gradient is that of sigmoid((score - threshold) / temperature).

    The threshold lies between the lowest kept and the highest dropped score. Multiplied into the kept tokens, the gates
    carry the language-model loss to the scores without changing what the language model sees (straight-through
    estimator: Bengio et al. 2013, section 3).
    """
    kept = scores[flat_index(allocation)]
    dropped = scores[(allocation.cell_token < 0) & (scores > -math.inf)]
    ends = [kept.detach().min(), dropped.detach().max()] if len(dropped) else [kept.detach().min()]
    soft = torch.sigmoid((kept - torch.stack(ends).mean()) / temperature)
    return 1 + (soft - soft.detach())


def flat_index(allocation: Allocation) -> torch.Tensor:
    """(K,) raster index of the cell that each token stands on."""
    _, height, width = allocation.grid
    t, row, column = allocation.positions.unbind(-1)
    return (t * height + row) * width + column


def apply_to_tokens(allocation: Allocation, tokens: torch.Tensor, encoded: torch.Tensor | None = None) -> torch.Tensor:
    """The kept rows of `tokens` (t * h * w, C), pooled cells as the mean of their rows: (K, C).

    Args:
        encoded: (M,) ascending, the cells that `tokens` has rows of, where not of all; the plan then has fine cells alone.
    """
    if encoded is not None:
        return tokens[torch.searchsorted(encoded, flat_index(allocation))]
    if not allocation.pooled:
        return tokens[flat_index(allocation)]
    fed = allocation.cell_token >= 0
    token = allocation.cell_token[fed]
    count = torch.bincount(token, minlength=len(allocation)).to(tokens.dtype)
    pooled = tokens.new_zeros(len(allocation), tokens.shape[-1]).index_add(0, token, tokens[fed])
    return pooled / count[:, None]


def apply_to_deepstack(
    allocation: Allocation, levels: list[torch.Tensor], encoded: torch.Tensor | None = None
) -> list[torch.Tensor]:
    """The kept rows of each DeepStack level, zero where a token is too shallow for it: list of (K, C)."""
    kept = [apply_to_tokens(allocation, level, encoded) for level in levels]
    return [features * (allocation.depth > number)[:, None] for number, features in enumerate(kept)]
