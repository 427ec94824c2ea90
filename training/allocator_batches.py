"""Examples to what the allocator trains on: the processor's inputs, budgets, evidence cells, and prompts with answers."""

import math
from collections.abc import Iterator, Sequence
from random import Random

import torch
from torch.utils.data import IterableDataset, get_worker_info

from arrcoc.placement import merged_grids
from evaluation.baselines.interface import Shown, prompt
from training.batches import IGNORED
from training.data.examples import Example, by_picture, evidence_share

SHARES = (0.04, 0.6)  # of an image's tokens: the budgets that are drawn, evenly on a log scale
IMAGE_INPUTS = (
    "pixel_values", "image_grid_thw", "texture_images", "query_input_ids", "query_attention_mask",
)  # fmt: skip


class AllocatorCollator:
    """Makes a batch of examples into the arguments of `AllocatorLearner.forward`.

    Args:
        processor: `ARRCOCProcessor` of the base.
        language: whether prompts with answers are needed, for a signal that runs the language model.
        prompt: whether prompts without answers are needed, for a scorer that reads the language model's states.
        shares: lowest and highest share of an image's tokens that is drawn as its budget.
        seed: of the budgets.
    """

    def __init__(self, processor, language: bool, prompt: bool = False, shares=SHARES, seed: int = 0):
        if not 0 < shares[0] <= shares[1] < 1:
            raise ValueError(f"shares={shares} must be 0 < lowest <= highest < 1; pass such as {SHARES}")
        self.processor, self.language, self.prompt = processor, language, prompt
        self.shares, self.seed = shares, seed

    def budgets(self, cells: Sequence[int], number: int) -> torch.Tensor:
        """(images,) K of each image of batch `number`: at least 1, and below its cells where it has several."""
        random = Random(f"budgets {self.seed} {number}")
        low, high = map(math.log, self.shares)
        drawn = [round(math.exp(random.uniform(low, high)) * count) for count in cells]
        return torch.tensor([max(1, min(k, count - 1)) for k, count in zip(drawn, cells, strict=True)])

    def __call__(self, examples: Sequence[Example], number: int) -> dict[str, torch.Tensor]:
        """The batch `number`: image inputs, `image_token_counts`, `evidence`, `context` (all cells), and prompts where needed."""
        opened = {}  # each picture once
        for page in by_picture(examples):
            opened |= dict.fromkeys(map(id, page), page[0].image)
        images = [opened[id(example)] for example in examples]
        shown = [Shown(image, example.question) for image, example in zip(images, examples, strict=True)]
        inputs = prompt(self.processor, shown, padding_side="right", token_budget="full")
        merge = self.processor.image_processor.merge_size
        grids = [grid[1:] for grid in merged_grids(inputs["image_grid_thw"], merge)]
        batch = {name: inputs[name] for name in IMAGE_INPUTS}
        batch["image_token_counts"] = self.budgets([h * w for h, w in grids], number)
        for name in ("evidence", "context"):
            covered = [
                evidence_share(getattr(example, name), image.size, grid).flatten()
                for example, image, grid in zip(examples, images, grids, strict=True)
            ]
            batch[name] = torch.cat(covered)
        asked = [ids[mask.bool()] for ids, mask in zip(inputs["input_ids"], inputs["attention_mask"], strict=True)]
        if self.prompt:
            batch |= _renamed(self._padded(asked), "prompt_")
        if self.language:
            answered = [torch.cat([ids, self._answer(e)]) for ids, e in zip(asked, examples, strict=True)]
            kept = [self._shorten(ids, k) for ids, k in zip(answered, batch["image_token_counts"], strict=True)]
            lengths = [len(full) - len(ids) for full, ids in zip(answered, asked, strict=True)]
            batch |= _renamed(self._padded(answered, lengths), "full_")
            batch |= _renamed(self._padded(kept, lengths), "kept_")
        return batch

    def _answer(self, example: Example) -> torch.Tensor:
        tokenizer = self.processor.tokenizer
        ids = tokenizer(example.answers[0], add_special_tokens=False)["input_ids"]
        return torch.tensor([*ids, tokenizer.convert_tokens_to_ids("<|im_end|>")])

    def _shorten(self, ids: torch.Tensor, count: torch.Tensor) -> torch.Tensor:
        """A prompt with its first `count` placeholders alone."""
        placeholder = ids == self.processor.image_token_id
        return ids[~placeholder | (placeholder.cumsum(0) <= count)]

    def _padded(self, rows, answer_lengths=None) -> dict[str, torch.Tensor]:
        length = max(len(row) for row in rows)
        pad = self.processor.tokenizer.pad_token_id or 0
        ids = torch.full((len(rows), length), pad)
        mask = torch.zeros_like(ids)
        labels = torch.full_like(ids, IGNORED)
        for number, row in enumerate(rows):
            ids[number, : len(row)] = row
            mask[number, : len(row)] = 1
            if answer_lengths is not None:
                answer = slice(len(row) - answer_lengths[number], len(row))
                labels[number, answer] = row[answer]
        types = ((ids == self.processor.image_token_id) & mask.bool()).long()
        padded = {"input_ids": ids, "attention_mask": mask, "mm_token_type_ids": types}
        return padded if answer_lengths is None else padded | {"labels": labels}


def _renamed(tensors: dict[str, torch.Tensor], prefix: str) -> dict[str, torch.Tensor]:
    return {prefix + name: tensor for name, tensor in tensors.items()}


class ListSource:
    """A list as an endless source: each pass in another order, drawn from the seed."""

    def __init__(self, examples: Sequence, seed: int = 0):
        if not examples:
            raise ValueError("there is no example to train on; pass data that hold at least one")
        self.examples, self.seed = examples, seed
        self._order: tuple[int, list[int]] = (-1, [])

    def example(self, index: int):
        """The entry of `index`."""
        turn, place = divmod(index, len(self.examples))
        if self._order[0] != turn:
            order = list(range(len(self.examples)))
            Random(f"order {self.seed} {turn}").shuffle(order)
            self._order = (turn, order)
        return self.examples[self._order[1][place]]


class PictureSource:
    """Examples as an endless source of pictures: what is asked of one comes in a row, `questions` at most; each pass in
    another order, drawn from the seed."""

    def __init__(self, examples: Sequence[Example], seed: int = 0, questions: int = 1):
        pages = by_picture(examples)
        parts = [rows[first : first + questions] for rows in pages for first in range(0, len(rows), questions)]
        self._pages = ListSource(parts, seed)
        self._count = len(examples)
        self._row: tuple[int, list[Example]] = (-1, [])

    def __len__(self) -> int:
        return len(self._pages.examples)

    def page(self, number: int) -> list[Example]:
        """What is asked of the picture of a number."""
        return self._pages.example(number)

    def example(self, index: int) -> Example:
        """The example of `index`, where all questions of a picture count."""
        turn, place = divmod(index, self._count)
        if self._row[0] != turn:
            rows = (self.page(turn * len(self) + number) for number in range(len(self)))
            self._row = (turn, [example for row in rows for example in row])
        return self._row[1][place]


class MixedSource:
    """Several sources in turn, `run` examples or one page of each."""

    def __init__(self, sources: Sequence, run: int = 1):
        self.sources, self.run = list(sources), run

    def example(self, index: int) -> Example:
        """The example of `index`."""
        turn, place = divmod(index, self.run)
        turn, which = divmod(turn, len(self.sources))
        return self.sources[which].example(turn * self.run + place)

    def page(self, number: int) -> list[Example]:
        """What is asked of the page of a number."""
        turn, which = divmod(number, len(self.sources))
        return self.sources[which].page(turn)


def repeated_pages(source, pages: int) -> list[tuple[int, int, int]]:
    """(number, pages asked of it, pages that it has) of each source of a `MixedSource` whose pages come again within `pages`.

    A source without a length, such as the drawn world, never ends. Empty for a source that is not mixed.
    """
    sources = source.sources if isinstance(source, MixedSource) else []
    found = []
    for number, each in enumerate(sources):
        asked = len(range(number, pages, len(sources)))
        if hasattr(each, "__len__") and asked > len(each):
            found.append((number, asked, len(each)))
    return found


class AllocatorBatches(IterableDataset):
    """The endless batches of a source from step `start` on. Batch `i` depends on `i`, the source and the collator's seed.

    Args:
        source: has `example(index)`.
        collator: `AllocatorCollator`.
        batch_size: examples of one process.
        start: batches of this process to leave out: a resumed run begins where it stopped, without drawing them again.
        rank, processes: batch `s` of process `r` is number `s * processes + r` of all.
        own_source: whether the source is this process's alone, which then goes over all of it.
    """

    def __init__(
        self,
        source,
        collator,
        batch_size: int,
        start: int = 0,
        rank: int = 0,
        processes: int = 1,
        own_source: bool = False,
    ):
        self.source, self.collator, self.batch_size = source, collator, batch_size
        self.start, self.rank, self.processes, self.own_source = start, rank, processes, own_source

    def __iter__(self) -> Iterator[dict[str, torch.Tensor]]:
        worker = get_worker_info()
        step, stride = (0, 1) if worker is None else (worker.id, worker.num_workers)
        step += self.start
        while True:
            number = step * self.processes + self.rank
            first = (step if self.own_source else number) * self.batch_size
            examples = [self.source.example(index) for index in range(first, first + self.batch_size)]
            yield self.collator(examples, number)
            step += stride
