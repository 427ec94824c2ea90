"""Examples that are made on demand: the i-th depends on i and the seed alone, in any worker and on any machine."""

from collections.abc import Iterator
from typing import Protocol

from torch.utils.data import Dataset, IterableDataset, get_worker_info

from training.data.examples import Example


class Source(Protocol):
    """Anything that makes the example of an index; it travels to DataLoader workers, so it can be pickled."""

    def example(self, index: int) -> Example:
        """The example that belongs to `index`, the same on every call."""


class ExampleStream(IterableDataset):
    """The endless examples of a source from index `start` on, shared out in blocks of `batch_size`.

    Batch `s` of process `rank` holds the indexes start + (s * processes + rank) * batch_size + 0, 1, ...; a DataLoader with
    the same `batch_size` gives them in this order with any number of workers. So a run of `s` steps goes on with
    start = s * processes * batch_size, to the same examples as if it had not stopped. Leave `rank` and `processes` alone
    where a launcher shares out the batches itself (accelerate's dispatcher does).
    """

    def __init__(self, source: Source, start: int = 0, batch_size: int = 1, rank: int = 0, processes: int = 1):
        if start < 0 or batch_size < 1 or not 0 <= rank < processes:
            raise ValueError(
                f"start={start}, batch_size={batch_size}, rank={rank}, processes={processes}: start from 0 or later, "
                "with batches of at least 1, and a rank below the number of processes"
            )
        self.source, self.start, self.batch_size, self.rank, self.processes = source, start, batch_size, rank, processes

    def __iter__(self) -> Iterator[Example]:
        worker = get_worker_info()
        step, stride = (0, 1) if worker is None else (worker.id, worker.num_workers)
        while True:
            first = self.start + (step * self.processes + self.rank) * self.batch_size
            for index in range(first, first + self.batch_size):
                yield self.source.example(index)
            step += stride


class ExampleSet(Dataset):
    """The first `length` examples of a source, by index: for Trainer, whose samplers share out and skip indexes."""

    def __init__(self, source: Source, length: int):
        if length < 1:
            raise ValueError(f"length={length} holds no example; pass at least 1")
        self.source, self.length = source, length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Example:
        if not 0 <= index < self.length:
            raise IndexError(f"example {index} of {self.length}")
        return self.source.example(index)
