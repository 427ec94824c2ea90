"""From relevance to a plan: which cells, where, how deep."""

import math
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F

from .allocation import Allocation

# Scores are compared on this grid. Two cells that are equal in exact arithmetic stay equal on every device and in every
# batch, and raster order decides between them.
SCORE_STEP = 1e-4
# Cells compared with each other for similarity, for each token of the budget. Cells that rank lower stay below them.
CANDIDATES_PER_TOKEN = 4


def rank(scores: torch.Tensor) -> torch.Tensor:
    """Indices of `scores` (N,) from the highest to the lowest, raster order among equals."""
    return torch.sort((scores.detach() / SCORE_STEP).round(), descending=True, stable=True).indices


def first_of_each(group: torch.Tensor, order: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """`order` (N,), indices of cells, with those of one `group` (cells,) side by side and else as it was, and (N,) bool, which are
    the first of theirs."""
    grouped = torch.sort(group[order], stable=True)
    first = torch.ones_like(order, dtype=torch.bool)
    first[1:] = grouped.values[1:] != grouped.values[:-1]
    return order[grouped.indices], first


def suppress_similar(relevance: torch.Tensor, features: torch.Tensor, strength: torch.Tensor, budget: int):
    """Relevance after each cell lost `strength` x its similarity to the most similar cell that ranks above it.

    One pass over all pairs instead of a greedy loop (the form of matrix NMS: Wang et al. 2020, "SOLOv2", section 3.4).

    Args:
        relevance: (N,) float32; a cell loses of what it has more than the lowest one: only differences between cells count.
        features: (N, C); their cosine similarity after the image's mean is taken off, clamped to [0, 1], is used.
        strength: scalar tensor in [0, 1]. The result is differentiable in it and in `relevance`.
        budget: tokens to choose; only `CANDIDATES_PER_TOKEN` times as many cells are compared, the others stay below them.

    Returns:
        (N,) float32.
    """
    ranked = rank(relevance)
    order, rest = ranked[: CANDIDATES_PER_TOKEN * budget], ranked[CANDIDATES_PER_TOKEN * budget :]
    directions = features.detach().float()
    directions = F.normalize((directions - directions.mean(0))[order], dim=-1)
    similarity = (directions @ directions.T).tril(-1).clamp(0, 1)  # row: the cell, columns: those above it
    nearest = (similarity.amax(-1) / SCORE_STEP).round() * SCORE_STEP
    suppression = torch.zeros_like(relevance).index_copy(0, order, nearest)
    left = relevance - strength * suppression * (relevance - relevance.detach().amin())
    if len(rest):  # they move down together, so that none passes one that was compared
        left = left.index_add(0, rest, (left[order].amin() - left[rest[0]]).clamp_max(0).expand(len(rest)))
    return left


def cover(scores: torch.Tensor, grid: tuple[int, int, int], count: int, order: torch.Tensor) -> torch.Tensor:
    """(N,) bool, the best cell in each block of an even partition of the grid into at most `count` blocks, as many in every row of
    blocks: on high and narrow grids they may be a third less.

    Args:
        scores: (N,) scores of the cells in raster order; -inf for a cell that can't be chosen.
        grid: (t, h, w); the frames share the rows of one tall grid.
        order: what `rank` makes of the scores.
    """
    if count < 1:
        return torch.zeros_like(scores, dtype=torch.bool)
    height, width = grid[0] * grid[1], grid[2]
    rows = min(height, count, max(1, round(math.sqrt(count * height / width))))
    columns = min(width, count // rows)
    row = torch.arange(height, device=scores.device) * rows // height
    column = torch.arange(width, device=scores.device) * columns // width
    block = (row[:, None] * columns + column[None]).flatten()
    by_block, first = first_of_each(block, order)
    return torch.empty_like(first).scatter_(0, by_block, first & (scores[by_block] > -math.inf))


def choose_cells(
    scores: torch.Tensor,
    grid: tuple[int, int, int],
    count: int,
    coverage_floor: float,
    everywhere: torch.Tensor | None = None,
) -> torch.Tensor:
    """`count` cells in raster order: the coverage floor first, then the highest scores.

    Args:
        scores: (N,) scores in raster order.
        coverage_floor: share of `count` that is spread evenly over the grid.
        everywhere: scalar bool, whether all of `count` is, as far as `cover` has blocks; `None` for no.
    """
    order = rank(scores)
    spread = cover(scores, grid, int(coverage_floor * count), order)
    if everywhere is not None:  # of two, not by a branch: a GPU would be waited for
        spread = torch.where(everywhere, cover(scores, grid, count, order), spread)
    # a stable sort, not a mask: the length of what a mask leaves is known only when the GPU is done
    order = order[spread[order].long().argsort(descending=True, stable=True)]
    return order[:count].sort().values


def _block_mean(values, block, free, members):
    """(blocks,) mean of `values` over the free cells of each block."""
    return torch.zeros_like(members).index_add(0, block, values * free) / members.clamp_min(1)


def pool_elsewhere(scores: torch.Tensor, grid: tuple[int, int, int], cell_token: torch.Tensor, count: int):
    """Spends up to `count` tokens on pooled 2 x 2 and 4 x 4 blocks of the cells that have no token yet.

    The most relevant blocks get the finer half of the tokens. A pooled token stands on the cell of its block that is
    nearest to the middle of the cells that it pools.

    Args:
        scores: (N,) scores in raster order.
        cell_token: (N,) long, the token of each cell, -1 for none.

    Returns:
        (N,) cell_token with the pooled cells filled in, and of the C <= `count` new tokens (C,) the cell that each stands on and
        (C,) its level.
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
        members = scores.new_zeros(frames * blocks_high * blocks_wide).index_add(0, block, free.to(scores))

        block_mean = partial(_block_mean, block=block, free=free, members=members)
        value = block_mean(scores.detach()).masked_fill(members == 0, -math.inf)
        chosen = rank(value)[: min(int(share * count), int((members > 0).sum()))]
        number = torch.full((len(members),), -1, device=scores.device)
        number[chosen] = torch.arange(len(chosen), device=scores.device)
        token = torch.where(free, number[block], -1)
        off_centre = (row - block_mean(row.float())[block]) ** 2 + (column - block_mean(column.float())[block]) ** 2
        order = rank(-off_centre)
        order, first = first_of_each(token, order[token[order] >= 0])
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
        minimum: levels of the least relevant token, where there are more tokens than levels to lose; `None` gives all tokens all
            levels.
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
    everywhere: torch.Tensor | None = None,
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
        everywhere: scalar bool, whether all fine tokens are spread so; `None` for no.

    Raises:
        ValueError: the budget is outside 1 .. t * h * w.
    """
    cells = math.prod(grid)
    if not 1 <= budget <= cells:
        raise ValueError(f"a budget of {budget} tokens does not fit a grid of {grid}; pass 1 to {cells} tokens")
    scores = scores.detach().float()
    fine = max(1, budget - int(coarse_share * budget))
    while True:
        kept = choose_cells(scores, grid, fine, coverage_floor, everywhere)
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
    if fine < budget:
        order = kept.argsort()
        kept, level = kept[order], level[order]
        renumber = torch.full((budget + 1,), -1, dtype=torch.long, device=scores.device)  # last entry: dropped cells
        renumber[order] = torch.arange(budget, device=scores.device)
        cell_token = renumber[cell_token]
    _, height, width = grid
    return {
        "positions": torch.stack([kept // (height * width), kept // width % height, kept % width], dim=-1),
        "level": level,
        "depth": depths(scores[kept], min_deepstack_levels, num_levels),
        "cell_token": cell_token,
        "pooled": fine < budget,
        "shallow": min_deepstack_levels is not None and min_deepstack_levels < num_levels,
    }


def soft_gates(scores: torch.Tensor, allocation: Allocation, temperature: torch.Tensor) -> torch.Tensor:
    """(K,) sigmoid((score - threshold) / temperature) of the kept cells.

    The threshold lies between the lowest kept and the highest dropped score.
    """
    kept = scores[allocation.raster]
    dropped = scores[(allocation.cell_token < 0) & (scores > -math.inf)]
    ends = [kept.detach().min(), dropped.detach().max()] if len(dropped) else [kept.detach().min()]
    return torch.sigmoid((kept - torch.stack(ends).mean()) / temperature)


def straight_through_gates(scores: torch.Tensor, allocation: Allocation, temperature: torch.Tensor) -> torch.Tensor:
    """(K,) gates whose value is exactly 1 and whose gradient is that of `soft_gates`.

    Multiplied into the kept tokens, the gates carry the language-model loss to the scores without changing what the language
    model sees (straight-through estimator: Bengio et al. 2013, section 3).
    """
    soft = soft_gates(scores, allocation, temperature)
    return 1 + (soft - soft.detach())
