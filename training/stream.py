"""The endless stream of a stage's training batches."""

from collections.abc import Iterator
from random import Random

import torch
from torch.utils.data import IterableDataset

from training.batches import Batch, make_batch
from training.leaving_out import leave_out

MOST_PROCESSES = 8  # each has its own pages of a step; with more, some would be those of the next step


class Batches(IterableDataset):
    """Training batches from step `start` on; batch `i` depends on `i`, the seed and the process's `rank` alone, its grid
    and whether cells are left out on `i` and the seed."""

    def __init__(self, stage, seed: int, start: int, size: int, rank: int = 0):
        if rank >= MOST_PROCESSES:
            raise ValueError(f"process {rank + 1} would draw pages of other steps; train with at most {MOST_PROCESSES}")
        self.stage, self.seed, self.start, self.size, self.rank = stage, seed, start, size, rank

    def __iter__(self) -> Iterator[Batch]:
        worker = torch.utils.data.get_worker_info()
        first, stride = (0, 1) if worker is None else (worker.id, worker.num_workers)
        step = self.start + first
        while True:
            number = self.seed * 1_000_003 + step
            random = Random(number)
            cells, shown = random.choice(self.stage.grids)
            batch = make_batch(self.stage, "train", number * MOST_PROCESSES + self.rank, self.size, cells, shown)
            yield self._shown(batch, random)
            step += stride

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
