"""Batches of pages as the model takes them: patches, token ids, labels, and where each character stands."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from random import Random

import numpy as np
import torch
from PIL import Image

from training.base_model import CELL, MERGE, PATCH, TEMPORAL_PATCH
from training.tokenizer import build_tokenizer
from training.world import Page, Question, make_page, words
from training.world.beside import with_sentences
from training.world.layout import stable_hash
from training.world.wordings import instructed, world_question

_KEY_NUMBERS = {name: number for number, name in enumerate(words.KEYS)}
IGNORED = -100  # a label that the loss leaves out
GLYPHS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz.:-"
_MOST_CELLS = 144  # of a page in a batch of full size
MOST_PAGES = 1009  # of a batch; further ones would be those of the next seed
SLOTS = 8  # per cell: 2 rows of 4, each 4 x 8 pixels, so that a slot rarely holds two centres


def pages_of(size: int, cells: tuple[int, int]) -> int:
    """Pages of a batch of `size`: fewer where they are larger than 12 x 12 cells, so that it has as many cells."""
    return max(1, size * _MOST_CELLS // max(_MOST_CELLS, cells[0] * cells[1]))


@dataclass
class Batch:
    """Pages of one grid.

    Attributes:
        images: (batch, height, width, 3) uint8.
        input_ids, labels: (batch, length) long, padded at the right.
        glyphs: (batch * cells, SLOTS) long, 0 where no character has its centre; `None` for pages other than the world's.
        keys: (batch * cells, len(KEYS)) bool, the names that what stands in a cell can be asked for by; `None` likewise.
        pointers: (labelled places, coarse + cells) bool, in the order of the labels, the cells that each answer token is read
            from, all False where there are none.
        asked: (turns, len(KEYS)) bool, the names that each question asks by; `None` for pages other than the world's.
        named: (batch, cells) bool, of all cells, those that a question of the page names.
        cells: (rows, columns).
        kept: (batch, count) long, the raster index of the cells that are shown, `None` for all; of `glyphs`, `keys` and
            `pointers` there are then these alone.
        encoded_whole: whether the vision tower sees the others too.
        coarse: tokens of a coarse view, which stand before the kept ones.
    """

    images: torch.Tensor
    input_ids: torch.Tensor
    labels: torch.Tensor
    glyphs: torch.Tensor | None
    keys: torch.Tensor | None
    pointers: torch.Tensor
    asked: torch.Tensor | None
    named: torch.Tensor
    cells: tuple[int, int]
    kept: torch.Tensor | None = None
    encoded_whole: bool = False
    coarse: int = 0

    @property
    def shown(self) -> int:
        """Visual tokens of each page."""
        return self.cells[0] * self.cells[1] if self.kept is None else self.coarse + self.kept.shape[1]


@lru_cache(maxsize=1)
def _tokenizer():
    return build_tokenizer()


@lru_cache(maxsize=20000)
def _ids(text: str) -> tuple[int, ...]:
    return tuple(_tokenizer()(text)["input_ids"])


def conversation(
    cells: tuple[int, int], questions: list[Question]
) -> tuple[list[int], list[int], list[tuple[tuple[float, float], ...]]]:
    """A conversation about one image: token ids, labels (only the answers and the ends of their turns are labelled), and
    for each label the points (x, y; pixels) that it is read from."""
    ids = list(_ids("<|im_start|>user\n<|vision_start|>"))
    ids += _ids("<|image_pad|>") * (cells[0] * cells[1])
    ids += _ids("<|vision_end|>")
    labels, points = [IGNORED] * len(ids), []
    for index, question in enumerate(questions):
        opening = "" if index == 0 else "\n<|im_start|>user\n"
        asked = _ids(f"{opening}{question.text}<|im_end|>\n<|im_start|>assistant\n")
        answered = _ids(question.answer) + _ids("<|im_end|>")
        ids += asked + answered
        labels += [IGNORED] * len(asked) + list(answered)
        points += _token_points(question)
    return ids, labels, points


def _token_points(question: Question) -> list[tuple[tuple[float, float], ...]]:
    # byte-level tokens have one symbol per byte, and the world's answers are ASCII; the turn ends at the last character
    tokens = _tokenizer().convert_ids_to_tokens(list(_ids(question.answer)))
    if not question.reads:
        return [()] * (len(tokens) + 1)
    points, first = [], 0
    for token in tokens:
        points.append(tuple(point for read in question.reads[first : first + len(token)] for point in read))
        first += len(token)
    return [*points, points[-1]]


def asked_names(text: str) -> tuple[bool, ...]:
    """(len(KEYS),) which names a question asks by, see `words.asked`."""
    found = words.asked(text)
    return tuple(name in found for name in words.KEYS)


def glyph_targets(page: Page, cells: tuple[int, int]) -> np.ndarray:
    """(cells, SLOTS) int64: which character (1 + its index in GLYPHS) has its centre in each slot of each cell."""
    targets = np.zeros((cells[0], cells[1], SLOTS), dtype=np.int64)
    for character, x, y in page.glyphs:
        row, column = int(y // CELL), int(x // CELL)
        if 0 <= row < cells[0] and 0 <= column < cells[1]:
            slot = int(y % CELL >= CELL / 2) * 4 + int(x % CELL // 4)
            targets[row, column, slot] = 1 + GLYPHS.index(character)
    return targets.reshape(-1, SLOTS)


def key_targets(page: Page, cells: tuple[int, int]) -> np.ndarray:
    """(cells, len(KEYS)) bool: the names of the things that cover a quarter of a cell's height and width at least, or have
    their centre in it."""
    targets = np.zeros((*cells, len(words.KEYS)), dtype=bool)
    for thing in page.things:
        if not thing.names:
            continue
        rows, columns = (
            slice(_first_cell(low, high), _last_cell(low, high))
            for low, high in ((thing.box[1], thing.box[3]), (thing.box[0], thing.box[2]))
        )
        for name in thing.names:
            targets[rows, columns, _KEY_NUMBERS[name]] = True
    return targets.reshape(-1, len(words.KEYS))


def _first_cell(low: float, high: float) -> int:
    return int(min((low + CELL / 4) // CELL if low % CELL > CELL * 3 / 4 else low // CELL, (low + high) / 2 // CELL))


def _last_cell(low: float, high: float) -> int:
    last = high // CELL if high % CELL > CELL / 4 else high // CELL - 1
    return int(max(last, (low + high) / 2 // CELL)) + 1


def pointer_targets(points: list[tuple[tuple[float, float], ...]], cells: tuple[int, int]) -> np.ndarray:
    """(labels, cells) bool: the cells that hold a label's points."""
    targets = np.zeros((len(points), *cells), dtype=bool)
    for index, places in enumerate(points):
        for x, y in places:
            targets[index, min(int(y // CELL), cells[0] - 1), min(int(x // CELL), cells[1] - 1)] = True
    return targets.reshape(len(points), -1)


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


def labelled_places(labels: torch.Tensor) -> torch.Tensor:
    """(2, n): the row, and the place that predicts it, of each of the n labels of `labels` (batch, length)."""
    return (labels[:, 1:] != IGNORED).nonzero().T


def image_start(input_ids: torch.Tensor) -> int:
    """The place of the first image token, the same in every row."""
    return int((input_ids[0] == _ids("<|image_pad|>")[0]).int().argmax())


def opens_answer(rows: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    """(n,) bool: which of the `labelled_places` begin an answer: those with nothing labelled just before."""
    begins = torch.ones_like(rows, dtype=torch.bool)
    begins[1:] = (rows[1:] != rows[:-1]) | (places[1:] != places[:-1] + 1)
    return begins


def _put(questions: Sequence[Question], reworded: float, split: str, seed: int) -> list[Question]:
    # a share of a page's questions in other words, half of these with how to answer behind them
    random, put = Random(stable_hash(f"put {split} {seed}")), []
    for question in questions:
        if random.random() < reworded:
            text = world_question(question.text, split, random)
            question = replace(question, text=instructed(text, split, random) if random.random() < 0.5 else text)
        put.append(question)
    return put


def _among(questions: Sequence[Question], beside: float, split: str, seed: int) -> list[Question]:
    # of a share of the pages, every question with other sentences beside it
    random = Random(stable_hash(f"beside {split} {seed}"))
    if random.random() >= beside:
        return list(questions)
    return [replace(question, text=with_sentences(question.text, split, random)) for question in questions]


def make_batch(stage, split: str, seed: int, size: int, cells=None, shown=None) -> Batch:
    """The batch of `size` pages that belongs to the stage and the seed; its grid is drawn too where it is not given."""
    random = Random(stable_hash(f"batch {split} {seed}"))
    if cells is None:
        cells, shown = random.choice(stage.grids)
    shown = shown or cells
    pages = []
    for index in range(size):
        style = random.choice(stage.styles_of(cells, shown))
        pages.append(make_page(seed * MOST_PAGES + index, split, cells, style, shown))
    count = 1 if split == "held_out" else stage.questions
    asked = [
        _put(page.questions[:count], stage.reworded, split, seed * MOST_PAGES + index)
        for index, page in enumerate(pages)
    ]
    keys = [key_targets(page, shown) for page in pages]
    names = [[asked_names(question.text) for question in questions] for questions in asked]
    named = [(of & np.any(by, 0)).any(-1) for of, by in zip(keys, names, strict=True)]
    # behind the names: what else is said there may have some of them
    asked = [_among(put, stage.beside, split, seed * MOST_PAGES + index) for index, put in enumerate(asked)]
    batch = assembled([page.image for page in pages], asked, named, shown)
    return replace(
        batch,
        glyphs=torch.from_numpy(np.concatenate([glyph_targets(page, shown) for page in pages])),
        keys=torch.from_numpy(np.concatenate(keys)),
        asked=torch.tensor([by for page in names for by in page]),
    )


def assembled(
    images: Sequence[Image.Image], asked: Sequence[list[Question]], named: Sequence[np.ndarray], cells: tuple[int, int]
) -> Batch:
    """A batch of the pages that `images` show, without letters and names: what is asked of each in one conversation, and
    the cells (cells,) bool that its questions name."""
    conversations = [conversation(cells, questions) for questions in asked]
    length = -(-max(len(ids) for ids, _, _ in conversations) // 16) * 16
    input_ids = torch.full((len(images), length), _ids("<|endoftext|>")[0])
    labels = torch.full((len(images), length), IGNORED)
    for row, (ids, wanted, _) in enumerate(conversations):
        input_ids[row, : len(ids)] = torch.tensor(ids)
        labels[row, : len(wanted)] = torch.tensor(wanted)
    pointers = np.concatenate([pointer_targets(points, cells) for _, _, points in conversations])
    return Batch(
        torch.from_numpy(np.stack([np.asarray(image) for image in images])), input_ids, labels, glyphs=None, keys=None,
        pointers=torch.from_numpy(pointers), asked=None, named=torch.from_numpy(np.stack(named)), cells=cells,
    )  # fmt: skip
