"""Examples from the drawn world's pages."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from random import Random

from PIL import Image

from training import world
from training.data.beside import put_more_words
from training.data.check import near_name
from training.data.examples import Example, Examples
from training.data.table_lookups import FIND_QUESTIONS, words_of
from training.data.worn import wear
from training.world import Page, Style
from training.world.canvas import Box
from training.world.layout import stable_hash
from training.world.wordings import find_question, world_question

GRIDS = ((8, 8), (8, 12), (10, 10), (12, 12))  # (rows, columns) of merged tokens
_ATTEMPTS = 100  # pages that may come without a question


def kinds_of(names: Sequence[str] = ()) -> dict[str, Style]:
    """The world's kinds of pages by name, all of them if none is named. `ValueError` for an unknown name."""
    known = world.KINDS
    unknown = [name for name in names if name not in known]
    if unknown:
        near = near_name(unknown[0], known)
        hint = f"did you mean {near!r}?" if near else f"there are {', '.join(known)}"
        raise ValueError(f"the world has no kind {unknown[0]!r}; {hint}")
    return {name: known[name] for name in names or known}


@lru_cache(maxsize=4)
def _page(seed: int, split: str, grid: tuple[int, int], kind: str) -> Page:
    return world.make_page(seed, split, grid, world.KINDS[kind])


@dataclass(frozen=True)
class _Drawing:
    """Draws a page when it is opened; equal to every other of the same page."""

    arguments: tuple[int, str, tuple[int, int], str]

    def __call__(self) -> Image.Image:
        return _page(*self.arguments).image


def _example(page: Page, question, arguments: tuple, number: int) -> Example:
    seed, split, grid, kind = arguments
    name = f"world/{split}/{kind}/{grid[0]}x{grid[1]}/{seed}#{number}"
    answers = (question.answer,)
    context = world.named_boxes(page, question)
    return Example(_Drawing(arguments), question.text, answers, question.family, question.evidence, name, context)


def _finds(page: Page, count: int, arguments: tuple) -> list[Example]:
    """At most `count` questions for where a text of the page stands, each for one that no other text has in it.

    Evidence, and what is named, are all places that show it.
    """
    seed, split, grid, kind = arguments
    places: dict[str, list[tuple[str, Box]]] = {}
    for text, box in page.texts:
        places.setdefault(words_of(text), []).append((text.strip(" :-=.|"), box))
    asked = [drawn for words, drawn in places.items() if words.strip() and sum(words in other for other in places) == 1]
    random = Random(stable_hash(f"find {split} {kind} {seed}"))
    random.shuffle(asked)
    picture, name = _Drawing(arguments), f"world/{split}/{kind}/{grid[0]}x{grid[1]}/{seed}#find"
    found = []
    for place, drawn in enumerate(asked[:count]):
        question, boxes = random.choice(FIND_QUESTIONS).format(text=drawn[0][0]), tuple(box for _, box in drawn)
        found.append(Example(picture, question, (drawn[0][0],), "find", boxes, f"{name}{place}", boxes))
    return found


def _reworded(examples: list[Example], split: str) -> list[Example]:
    # in the words that people might choose, always the same for the same page
    random = Random(stable_hash(f"reworded {split} {examples[0].name}" if examples else ""))

    def put(one: Example) -> str:
        if one.family == "find":
            return find_question(one.question, one.answers[0], split, random)
        return world_question(one.question, split, random)

    return [replace(one, question=put(one)) for one in examples]


def world_examples(
    split: str = "held_out",
    seed: int = 0,
    kinds: Sequence[str] = (),
    grids: Sequence[tuple[int, int]] = GRIDS,
    pages: int = 100,
    questions: int | None = 1,
    find: int = 0,
    reworded: bool = False,
    beside: int = 0,
    phrased: int = 0,
    joined: int = 0,
    worn: int = 0,
) -> Examples:
    """The examples of `pages` pages, spread evenly over every pair of kind and grid; pictures are drawn when opened.

    Args:
        split: "train" or "held_out".
        seed: of the first page; the others follow.
        kinds: names from `training.world.KINDS`; none means all.
        grids: (rows, columns) of merged tokens.
        questions: at most so many of a page, in the page's own random order; None takes all.
        find: how many texts of a page it is asked for besides, where they stand.
        reworded: asked in more wordings than the world draws; those of a split are its own.
        beside, phrased, joined: percent of the questions that have other sentences beside them, a split's own too, small words in
            them, and another of the page's behind them.
        worn: percent of the pages that are shown as cameras and screens do.

    Raises:
        ValueError: an unknown kind or split, a grid that is too small to write on, or no page.
    """
    if pages < 1 or not grids:
        raise ValueError(f"pages={pages} with grids={tuple(grids)} holds nothing; pass at least one of each")
    pairs = [(kind, grid) for grid in grids for kind in kinds_of(kinds)]
    examples = []
    for number in range(pages):
        kind, grid = pairs[number % len(pairs)]
        arguments = (seed + number, split, tuple(grid), kind)
        page = _page(*arguments)
        asked = page.questions[:questions]
        found = [_example(page, question, arguments, place) for place, question in enumerate(asked)]
        found += _finds(page, find, arguments)
        examples += _reworded(found, split) if reworded else found
    return wear(put_more_words(examples, split, phrased, joined, beside), split, worn)


@dataclass(frozen=True)
class WorldSource:
    """The world as an endless row of examples: kind, grid, page and question are drawn from the seed and the index.

    `questions` examples in a row show the same page and ask something else each, as far as the page has as many; the last of
    them where up to `find` of its texts stand. With `reworded` all of it is asked in more wordings than the world draws, and
    `beside` percent of it have other sentences beside them, `phrased` percent small words in them, `joined` percent another of the
    page's behind them; `worn` percent of the pages are shown as cameras and screens do.
    """

    seed: int = 0
    split: str = "train"
    kinds: tuple[str, ...] = ()
    grids: tuple[tuple[int, int], ...] = GRIDS
    questions: int = 1
    find: int = 0
    reworded: bool = False
    beside: int = 0
    phrased: int = 0
    joined: int = 0
    worn: int = 0

    def __post_init__(self):
        kinds_of(self.kinds)

    def example(self, index: int) -> Example:
        """The example of `index`. `RuntimeError` if the kinds draw pages without any question."""
        number, place = divmod(index, self.questions)
        asked = self.page(number)
        return asked[place % len(asked)]

    def page(self, number: int) -> list[Example]:
        """What is asked of the page of a number, once each. `RuntimeError` as for `example`."""
        page, arguments, asked = self._drawn(number)
        examples = [_example(page, page.questions[chosen], arguments, chosen) for chosen in asked]
        examples = (examples + _finds(page, self.find, arguments))[: self.questions]
        examples = _reworded(examples, self.split) if self.reworded else examples
        return wear(put_more_words(examples, self.split, self.phrased, self.joined, self.beside), self.split, self.worn)

    def _drawn(self, number: int) -> tuple[Page, tuple, list[int]]:
        # a page, what it is drawn from, and which of its questions are asked
        random = Random(stable_hash(f"world example {self.seed} {number}"))
        for _ in range(_ATTEMPTS):
            kind, grid = random.choice(tuple(kinds_of(self.kinds))), random.choice(self.grids)
            arguments = (random.getrandbits(48), self.split, tuple(grid), kind)
            page = _page(*arguments)
            if page.questions:
                order = random.sample(range(len(page.questions)), len(page.questions))
                return page, arguments, order[: self.questions]
        raise RuntimeError(
            f"{_ATTEMPTS} pages of the kinds {', '.join(kinds_of(self.kinds))} held no question; name other kinds"
        )
