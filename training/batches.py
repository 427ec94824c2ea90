"""Batches of pages as the model takes them: patches, token ids, labels, and where each character stands."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from random import Random

import numpy as np
import torch
from torch.utils.data import IterableDataset

from training.base_model import CELL, MERGE, PATCH, TEMPORAL_PATCH
from training.tokenizer import build_tokenizer
from training.world import Page, make_page, words
from training.world.layout import stable_hash

IGNORED = -100  # a label that the loss leaves out
GLYPHS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz.:-"
SLOTS = 8  # per cell: 2 rows of 4, each 4 x 8 pixels, so that a slot rarely holds two centres


@dataclass
class Batch:
    """Pages of one grid. `images` (batch, height, width, 3) uint8; `input_ids`, `labels` (batch, length) long, padded at
    the right; `glyphs` (batch * cells, SLOTS) long, 0 where no character has its centre; `owners`
    (batch * cells,) long, 1 + the label of the field that is written in the cell, or 0; `cells` (rows, columns)."""

    images: torch.Tensor
    input_ids: torch.Tensor
    labels: torch.Tensor
    glyphs: torch.Tensor
    owners: torch.Tensor
    cells: tuple[int, int]


@lru_cache(maxsize=1)
def _tokenizer():
    return build_tokenizer()


@lru_cache(maxsize=20000)
def _ids(text: str) -> tuple[int, ...]:
    return tuple(_tokenizer()(text)["input_ids"])


def conversation(cells: tuple[int, int], turns: list[tuple[str, str]]) -> tuple[list[int], list[int]]:
    """Token ids and labels of a conversation about one image; only the answers and the ends of their turns are labelled."""
    ids = list(_ids("<|im_start|>user\n<|vision_start|>"))
    ids += _ids("<|image_pad|>") * (cells[0] * cells[1])
    ids += _ids("<|vision_end|>")
    labels = [IGNORED] * len(ids)
    for index, (question, answer) in enumerate(turns):
        opening = "" if index == 0 else "\n<|im_start|>user\n"
        asked = _ids(f"{opening}{question}<|im_end|>\n<|im_start|>assistant\n")
        answered = _ids(answer) + _ids("<|im_end|>")
        ids += asked + answered
        labels += [IGNORED] * len(asked) + list(answered)
    return ids, labels


def glyph_targets(page: Page, cells: tuple[int, int]) -> np.ndarray:
    """(cells, SLOTS) int64: which character (1 + its index in GLYPHS) has its centre in each slot of each cell."""
    targets = np.zeros((cells[0], cells[1], SLOTS), dtype=np.int64)
    for character, x, y in page.glyphs:
        row, column = int(y // CELL), int(x // CELL)
        if 0 <= row < cells[0] and 0 <= column < cells[1]:
            slot = int(y % CELL >= CELL / 2) * 4 + int(x % CELL // 4)
            targets[row, column, slot] = 1 + GLYPHS.index(character)
    return targets.reshape(-1, SLOTS)


def owner_targets(page: Page, cells: tuple[int, int]) -> np.ndarray:
    """(cells,) int64: 1 + the index in LABELS of the field whose label or value is written in the cell, or 0."""
    targets = np.zeros(cells, dtype=np.int64)
    for owner, (_, x, y) in zip(page.owners, page.glyphs, strict=True):
        row, column = int(y // CELL), int(x // CELL)
        if owner and row < cells[0] and column < cells[1]:
            targets[row, column] = owner
    return targets.reshape(-1)


def patches(images: torch.Tensor) -> torch.Tensor:
    """`pixel_values` (batch * patches, 384) float32 of uint8 images (batch, height, width, 3), as the image processor
    makes them: values -1 to 1, 2 x 2 patches of a cell together, each patch twice in time."""
    batch, height, width, _ = images.shape
    scaled = (images.to(torch.float32) / 255 - 0.5) / 0.5
    cut = scaled.permute(0, 3, 1, 2).reshape(
        batch, 3, height // CELL, MERGE, PATCH, width // CELL, MERGE, PATCH
    )  # fmt: skip
    cut = cut.permute(0, 2, 5, 3, 6, 1, 4, 7).unsqueeze(6)
    cut = cut.expand(-1, -1, -1, -1, -1, -1, TEMPORAL_PATCH, -1, -1)
    return cut.reshape(-1, 3 * TEMPORAL_PATCH * PATCH * PATCH)


def make_batch(stage, split: str, seed: int, size: int, cells=None, shown=None) -> Batch:
    """The batch of `size` pages that belongs to the stage and the seed; its grid is drawn too where it is not given."""
    random = Random(stable_hash(f"batch {split} {seed}"))
    if cells is None:
        cells, shown = random.choice(stage.grids)
    shown = shown or cells
    images, conversations, glyphs, owners = [], [], [], []
    for index in range(size):
        style = random.choice(stage.styles) if split == "train" else stage.styles[0]
        page = make_page(seed * 1009 + index, split, cells, style, shown)
        images.append(np.asarray(page.image))
        conversations.append(conversation(shown, _turns(random, page, stage, split)))
        glyphs.append(glyph_targets(page, shown))
        owners.append(owner_targets(page, shown))
    length = -(-max(len(ids) for ids, _ in conversations) // 16) * 16
    pad = _ids("<|endoftext|>")[0]
    input_ids = torch.full((size, length), pad)
    labels = torch.full((size, length), IGNORED)
    for row, (ids, wanted) in enumerate(conversations):
        input_ids[row, : len(ids)] = torch.tensor(ids)
        labels[row, : len(wanted)] = torch.tensor(wanted)
    return Batch(
        torch.from_numpy(np.stack(images)), input_ids, labels, torch.from_numpy(np.concatenate(glyphs)),
        torch.from_numpy(np.concatenate(owners)), shown,
    )  # fmt: skip


def _turns(random: Random, page: Page, stage, split: str) -> list[tuple[str, str]]:
    # In held-out batches one question. In training, several questions share the cost of one picture: no answer helps
    # with another, and the transcript, which would, comes last or alone.
    asked = [(question.text, question.answer) for question in page.questions]
    if split == "held_out":
        return asked[:1]
    read = (words.TRANSCRIBE, page.transcript)
    if not asked or random.random() < stage.transcribe_only:
        return [read]
    turns = asked[: stage.questions]
    return [*turns, read] if random.random() < stage.transcribe_after else turns


class Batches(IterableDataset):
    """The endless stream of a stage's training batches from step `start` on; batch `i` depends on `i`, the seed and the
    process's `rank` alone, its grid on `i` and the seed."""

    def __init__(self, stage, seed: int, start: int, size: int, rank: int = 0):
        self.stage, self.seed, self.start, self.size, self.rank = stage, seed, start, size, rank

    def __iter__(self) -> Iterator[Batch]:
        worker = torch.utils.data.get_worker_info()
        first, stride = (0, 1) if worker is None else (worker.id, worker.num_workers)
        step = self.start + first
        while True:
            number = self.seed * 1_000_003 + step
            cells, shown = Random(number).choice(self.stage.grids)
            yield make_batch(self.stage, "train", number * 8 + self.rank, self.size, cells, shown)
            step += stride
