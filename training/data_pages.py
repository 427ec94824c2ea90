"""Pages of `--data` beside the world's in the base's language stage: real tables, everyday pages, folders of pictures."""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

import numpy as np

from training.base_model import CELL
from training.batches import Batch, assembled, pages_of
from training.data import Example, by_picture, evidence_share, load_examples
from training.data.check import DataError
from training.run_folder import fingerprint_of
from training.world import Question
from training.world.canvas import Point
from training.world.wordings import instructed

MOST_LETTERS = 48  # of an answer
LARGEST = 1024  # of a page: attention over its patches takes memory with the square of them
_AT_ONCE = (1, 2, 4, 6, 6)  # questions of a page in a batch: few, so that most cells can be left out, or all
_NAMED = 0.25  # of a cell is covered by what a question names
_BESIDE = 2.0  # pixels: a letter's place within a box is a guess


@dataclass(frozen=True)
class _Page:
    """What is asked of one picture; `size` (width, height) is the picture's, `cells` (rows, columns) what it is shown on."""

    asked: tuple[Example, ...]
    size: tuple[int, int]

    @property
    def cells(self) -> tuple[int, int]:
        return max(1, round(self.size[1] / CELL)), max(1, round(self.size[0] / CELL))


def load_pages(specs: Sequence[str], seed: int, limit: int | None = None, skip_bad: bool = False) -> "DataPages":
    """The training questions of `specs`, at most `limit` of each, that the language model can be taught to read: those whose
    evidence is known, with an answer of at most `MOST_LETTERS` ASCII letters, about pictures of at most `LARGEST` cells
    (16 x 16 pixels). How many others there were stands in `left_out`; with `skip_bad` bad data are left out, too.

    Raises:
        DataError: bad data, or no such question in them.
        ValueError: an unknown spec or option.
    """
    pages, left_out = [], 0
    for spec in specs:
        examples = load_examples(spec, "train", seed, limit, skip_bad)
        readable = [example for example in examples if _readable(example)]
        drawn = [_Page(tuple(asked), asked[0].image.size) for asked in by_picture(readable)]
        fitting = [page for page in drawn if page.cells[0] * page.cells[1] <= LARGEST]
        left_out += len(examples) - sum(len(page.asked) for page in fitting)
        pages += fitting
    if not pages:
        raise DataError(
            f"--data {' '.join(specs)}: no training question has evidence, an answer of 1 to {MOST_LETTERS} ASCII letters and a "
            f"picture of at most {LARGEST} cells of {CELL} x {CELL} pixels"
        )
    return DataPages(pages, left_out)


def _readable(example: Example) -> bool:
    answer = example.answers[0] if example.answers else ""
    return bool(example.evidence) and answer.isascii() and answer.isprintable() and 0 < len(answer) <= MOST_LETTERS


class DataPages:
    """Batches of the pages of `load_pages`, each of one grid, which is drawn the more often the more pages have it."""

    def __init__(self, pages: Sequence[_Page], left_out: int = 0):
        self.left_out = left_out
        self.fingerprint = fingerprint_of(example for page in pages for example in page.asked)
        self.grids: dict[tuple[int, int], list[_Page]] = {}
        for page in pages:
            self.grids.setdefault(page.cells, []).append(page)

    def batch(self, shared: Random, own: Random, size: int, instructed: float = 0.0) -> Batch:
        """`size` pages, or fewer large ones (`pages_of`), which `own` chooses; `shared`, alike in all processes of a run, chooses
        their grid and how many questions each is asked at most. A share of these, `instructed`, has how to answer behind them."""
        cells = shared.choices(list(self.grids), [len(pages) for pages in self.grids.values()])[0]
        count = shared.choice(_AT_ONCE)
        images, asked, named = [], [], []
        for page in own.choices(self.grids[cells], k=pages_of(size, cells)):
            chosen = own.sample(page.asked, min(count, len(page.asked)))
            images.append(chosen[0].image.resize((cells[1] * CELL, cells[0] * CELL)))
            asked.append([_question(page, example, own, instructed) for example in chosen])
            named.append(_named(page, chosen))
        return assembled(images, asked, named, cells)


def _question(page: _Page, example: Example, random: Random, share: float) -> Question:
    text, answer = example.question, example.answers[0]
    if random.random() < share:
        text = instructed(text, "train", random)
    return Question(text, answer, example.evidence, example.family, _reads(page, example, len(answer)))


def _named(page: _Page, asked: Sequence[Example]) -> np.ndarray:
    boxes = [box for example in asked for box in example.context]
    return (evidence_share(boxes, page.size, page.cells) >= _NAMED).flatten().numpy()


def _reads(page: _Page, example: Example, letters: int) -> tuple[tuple[Point, ...], ...]:
    # where each letter would stand if all were as wide: its share of the way through the boxes, which are a line each
    across, down = page.cells[1] * CELL / page.size[0], page.cells[0] * CELL / page.size[1]
    ends = np.cumsum([right - left for left, _, right, _ in example.evidence])
    found = []
    for place in (np.arange(letters) + 0.5) / letters * ends[-1]:
        line = int(np.searchsorted(ends, place, side="right"))
        left, top, right, bottom = example.evidence[line]
        x, y = right - (ends[line] - place), (top + bottom) / 2
        found.append(tuple((min(max(x + step, left), right) * across, y * down) for step in (-_BESIDE, _BESIDE)))
    return tuple(found)
