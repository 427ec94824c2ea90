"""The endless stream of a stage's training batches."""

from collections.abc import Iterator
from random import Random

import torch
from torch.utils.data import IterableDataset

from training.batches import Batch, make_batch, pages_of
from training.data_pages import DataPages
from training.leaving_out import leave_out
from training.world.layout import stable_hash

MOST_PROCESSES = 8  # each has its own pages of a step; with more, some would be those of the next step


class Batches(IterableDataset):
    """Training batches from step `start` on; batch `i` depends on `i`, the seed and the process's `rank` alone, its grid
    and whether cells are left out on `i` and the seed. Of all batches the share `data_share` shows pages of `data`."""

    def __init__(
        self, stage, seed: int, start: int, size: int, rank: int = 0, data: DataPages | None = None, data_share: float = 0.0
    ):  # fmt: skip
        if rank >= MOST_PROCESSES:
            raise ValueError(f"process {rank + 1} would draw pages of other steps; train with at most {MOST_PROCESSES}")
        self.stage, self.seed, self.start, self.size, self.rank = stage, seed, start, size, rank
        self.data, self.data_share = data, data_share

    def __iter__(self) -> Iterator[Batch]:
        worker = torch.utils.data.get_worker_info()
        first, stride = (0, 1) if worker is None else (worker.id, worker.num_workers)
        step = self.start + first
        while True:
            number = self.seed * 1_000_003 + step
            random = Random(number)
            yield self._shown(self._batch(number, random), random)
            step += stride

    def _batch(self, number: int, random: Random) -> Batch:
        own = number * MOST_PROCESSES + self.rank
        if self.data is not None and random.random() < self.data_share:
            share = self.stage.reworded / 2  # as of the world's questions
            return self.data.batch(random, Random(stable_hash(f"data {own}")), self.size, share)
        cells, shown = random.choice(self.stage.grids)
        return make_batch(self.stage, "train", own, pages_of(self.size, shown or cells), cells, shown)

    def _shown(self, batch: Batch, random: Random) -> Batch:
        # whole, or with cells left out before the tower, after it, or beside a coarse view
        stage, drawn = self.stage, random.random()
        for share, options in (
            (stage.left_out, {}), (stage.pruned, {"encoded_whole": True}), (stage.foveated, {"foveated": True}),
        ):  # fmt: skip
            if drawn < share:
                return leave_out(batch, random, **options)
            drawn -= share
        return batch
