"""Pages with some cells left out, before the vision tower or after it, as when only what a question needs is encoded or kept."""

from dataclasses import replace
from random import Random

import torch
from torch.nn import functional

from arrcoc.configuration_arrcoc import ARRCOCQwen3VLConfig
from arrcoc.encoding import coarse_grid
from training.base_model import CELL
from training.batches import IGNORED, Batch, image_start, labelled_places

_INK = 16  # a cell is empty if its pixels differ by no more than this, of 255
# Cells that can be kept: up to 126 the sizes of whole pages, which compiled layers know already, and of larger pages.
_COUNTS = (36, 49, 64, 96, 100, 126, 160, 225, 320)
_FEWER = (8, 14, 20, 28)  # besides, after the tower
COARSE_VIEW_SHARE = ARRCOCQwen3VLConfig.coarse_view_share
_WHOLE = 0.75  # of the pages keep all that their questions name


def leave_out(batch: Batch, random: Random, encoded_whole: bool = False, foveated: bool = False) -> Batch:
    """The batch with as many cells of each page left out; itself where a page needs more than can be kept.

    They are left out before the vision tower, or after it where the page is `encoded_whole`; `foveated`, a coarse view of the
    whole page stands before what is kept, as in the model's foveated mode with `coarse_view_min_tokens=1`: small pages have
    room for smaller views alone.

    What stays, in this order: the cells that answers are read from, those that a question of the page names, then any
    others. On half of the pages, and where an answer is read from no place, empty ones go before they do.
    """
    size, cells = len(batch.images), batch.cells[0] * batch.cells[1]
    rows, _ = labelled_places(batch.labels)
    read = torch.zeros(size, cells).index_add(0, rows, batch.pointers.float()) > 0
    nowhere = torch.zeros(size).index_add(0, rows, (~batch.pointers.any(-1)).float()) > 0
    generator = torch.Generator().manual_seed(random.getrandbits(48))
    empty_first = nowhere | (torch.rand(size, generator=generator) < 0.5)
    wanted = torch.rand(size, cells, generator=generator) + (_inked(batch) & empty_first[:, None])
    wanted += 4 * batch.named + 8 * read
    least = max(read.sum(-1).max(), (read | batch.named).sum(-1).float().quantile(_WHOLE))
    numbers = _numbers(batch.cells, float(least), encoded_whole or foveated, foveated)
    if not numbers:
        return batch
    count, coarse = random.choice(numbers)
    kept = wanted.topk(count, -1).indices.sort(-1).values
    start = image_start(batch.input_ids)
    by_page = (kept + torch.arange(size)[:, None] * cells).flatten()

    def without(ids: torch.Tensor) -> torch.Tensor:
        short = torch.cat([ids[:, :start], ids[:, start + cells - count - coarse :]], 1)
        return functional.pad(short, (0, -short.shape[1] % 16), value=IGNORED)

    return replace(
        batch, kept=kept, input_ids=without(batch.input_ids).clamp(min=0), labels=without(batch.labels),
        glyphs=None if batch.glyphs is None else batch.glyphs[by_page],
        keys=None if batch.keys is None else batch.keys[by_page],
        pointers=functional.pad(batch.pointers.gather(1, kept[rows]), (coarse, 0)),
        encoded_whole=encoded_whole or foveated, coarse=coarse,
    )  # fmt: skip


def _numbers(grid: tuple[int, int], least: float, after: bool, foveated: bool) -> list[tuple[int, int]]:
    # (cells kept, tokens of the coarse view) that can be had
    found = []
    for count in (*_FEWER, *_COUNTS) if after else _COUNTS:
        _, rows, columns = (foveated and coarse_grid((1, *grid), count, COARSE_VIEW_SHARE)) or (0, 0, 0)
        coarse = rows * columns
        if foveated and not coarse:  # too few for any view
            continue
        if least <= count - coarse and count < grid[0] * grid[1]:
            found.append((count - coarse, coarse))
    return found


def _inked(batch: Batch) -> torch.Tensor:
    # (pages, cells) bool: what is not empty
    tall, wide = batch.cells
    cut = batch.images.view(len(batch.images), tall, CELL, wide, CELL, 3)
    return (cut.amax((2, 4)).int() - cut.amin((2, 4)).int()).amax(-1).flatten(1) > _INK
