"""Questions about a drawn table that take more than a look-up: neighbours, first and last rows, extremes, comparisons, rows that
share a value, and how many do."""

import re
from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import dataclass
from functools import cached_property
from random import Random
from typing import NamedTuple

from training.data.table_lookups import speaks, titled, words_of
from training.data.table_numbers import WORDS, counted, numbers_in, sums_up
from training.data.table_page import TableCell, Task

# {t}: the column asked for; {k}: the column that decides; {x}, {y}: texts of cells; {n}: a number. Those that say where
# something stands are true of any column; the others, too, of a column that has an order of its own.
BELOW = (
    "what {t} is listed after {x}?", "which {t} is below {x}?", "who is listed right after {x}?", "what stands below {x}?",
    "which is directly under {x}?", "what is the next one on the list after {x}?",
)  # fmt: skip
AFTER = (
    *BELOW, "which {t} comes after {x}?", "what is the next {t} after {x}?", "what {t} follows {x}?", "who came next after {x}?",
    "what is after {x}?", "who is ranked after {x}?", "what comes immediately after {x}?",
)  # fmt: skip
ABOVE = (
    "what {t} is listed before {x}?", "which {t} is above {x}?", "who is listed right before {x}?", "what stands above {x}?",
    "which is directly above {x}?", "what is the one on the list before {x}?",
)  # fmt: skip
BEFORE = (
    *ABOVE, "which {t} comes before {x}?", "what is the previous {t} to {x}?", "what {t} precedes {x}?", "who came prior to {x}?",
    "what is before {x}?", "who is ranked previous to {x}?", "what comes immediately before {x}?",
)  # fmt: skip
TOP = (
    "what is the first {t} on the list?", "which {t} is at the top of the table?", "who is the first {t} listed?",
    "name the first {t} on the chart", "who is at the top of the list?", "what is listed first?",
)  # fmt: skip
FIRST = (*TOP, "what {t} comes first?", "what was the first {t}?", "who came first?", "which is the first one?")
BOTTOM = (
    "what is the last {t} on the list?", "which {t} is at the bottom of the table?", "who is the last {t} listed?",
    "name the final {t} on the chart", "who is at the bottom of the list?", "what is listed last?",
)  # fmt: skip
LAST = (*BOTTOM, "what {t} comes last?", "what was the last {t}?", "who came last?", "which is the final one?")
EXTREME = (
    "which {t} has the {most} {k}?", "what {t} had the {most} {k}?", "the {t} with the {most} {k}", "which has the {most} {k}?",
    "who had the {most} {k}?", "what was the {most} {k}?",
)  # fmt: skip
EITHER = (
    "which {t} has {more} {k}, {x} or {y}?", "who had {more} {k}, {x} or {y}?", "does {x} or {y} have {more} {k}?",
    "{more} {k}: {x} or {y}?",
)  # fmt: skip
LIMIT = ("which {t} has a {k} of {than} {n}?", "what {t} had {than} {n} {k}?", "who has {than} {n} {k}?")
SAME = (
    "which {t} has the same {k} as {x}?", "who has the same {k} as {x}?", "what other {t} shares the {k} of {x}?",
    "what {t} had the same {k} as {x}?",
)  # fmt: skip
OTHER = (
    "other than {x}, which {t} has {k} {y}?", "besides {x}, who else has {k} {y}?", "which other {t} has {k} {y}, not {x}?",
    "what {t} apart from {x} was {y}?",
)  # fmt: skip
COUNT = (
    "how many have {k} {y}?", "how many rows have {y} as {k}?", "what is the number of entries with {k} {y}?",
    "how many times is {y} listed as the {k}?", "how many times does {y} appear?", "number of rows with {k} {y}",
)  # fmt: skip
MORE, LESS = ("more", "a higher", "a larger", "the most"), ("less", "a lower", "a smaller", "the least")
OVER, UNDER = ("more than", "over", "greater than"), ("less than", "under", "fewer than")
_TRIES = 12  # for each question that is wanted
_PLAIN = 0.3  # of the questions keep their capitals


class Reasoned(NamedTuple):
    """A question, the cell that answers it, the cells and headers that it names, and those that have to be compared or counted;
    `number` is the answer where that is how many cells `answer` and `compared` are."""

    question: str
    answer: TableCell
    context: frozenset[TableCell]
    compared: frozenset[TableCell] = frozenset()
    number: int | None = None

    @property
    def evidence(self) -> tuple[TableCell, ...]:
        """What the answer is read from, the cell that answers first."""
        return (self.answer, *sorted(self.compared - {self.answer}))


def reasoned(
    task: Task, rows: Sequence[int], columns: Sequence[int], drawn: Set[TableCell], count: int, random: Random
) -> list[Reasoned]:
    """At most `count` questions, all different, about the `rows` and `columns` that a page shows, in their order.

    Answers, and all that a question names, are in `drawn`, the cells that are shown whole.
    """
    page = _Page(task, tuple(rows), tuple(columns), drawn, random)
    found: dict[str, Reasoned] = {}
    for _ in range(_TRIES * count):
        made = random.choice(_KINDS)(page)
        if (
            made is not None
            and {made.answer, *made.context, *made.compared} <= drawn
            and speaks(task.text(*made.answer))
        ):
            question = made.question if random.random() < _PLAIN else made.question.lower()
            found.setdefault(question.lower(), made._replace(question=question))
        if len(found) == count:
            break
    return list(found.values())


@dataclass
class _Page:
    task: Task
    rows: tuple[int, ...]
    shown: tuple[int, ...]
    drawn: Set[TableCell]
    random: Random

    def text(self, row: int, column: int) -> str:
        return self.task.text(row, column)

    @cached_property
    def columns(self) -> list[int]:
        """Columns with a header of their own that is shown."""
        return [column for column in titled(self.task.header) if (-1, column) in self.drawn]

    @cached_property
    def entries(self) -> list[int]:
        """The rows without those that sum others up."""
        return [row for row in self.rows if not any(sums_up(self.text(row, column)) for column in self.shown)]

    @cached_property
    def numbers(self) -> dict[int, list[float]]:
        """The numbers of the entries, in the columns that hold nothing else, of one unit, each shown whole."""
        found = {}
        for column in self.columns:
            values = numbers_in(self.text(row, column) for row in self.entries)
            if values and all((row, column) in self.drawn for row in self.entries):
                found[column] = values
        return found

    def counts(self, column: int) -> str:
        """What the numbers of a column are: one of `WORDS`, or "label" where more of them is nothing."""
        return counted(self.task.header[column], [self.text(row, column) for row in self.entries])

    @cached_property
    def amounts(self) -> list[int]:
        """The columns of `numbers` of which more is more."""
        return [column for column in self.numbers if self.counts(column) == "amount"] if len(self.entries) > 1 else []

    @cached_property
    def names(self) -> int | None:
        """The column that names the rows: the first with words, each of them once."""
        for column in self.columns:
            texts = [words_of(self.text(row, column)) for row in self.rows]
            if len(set(texts)) == len(texts) and not self.ordered(column):
                return column
        return None

    def ordered(self, column: int) -> bool:
        """Whether a column may have an order of its own, which need not be that of the rows."""
        return column in self.numbers or self.counts(column) != "amount"

    @cached_property
    def disordered(self) -> bool:
        """Whether ranks or times are shown that do not rise down the page: what came first may be another row than the first."""
        orders = [self.numbers.get(column) for column in self.columns if self.counts(column) in ("rank", "time")]
        return any(values is None or values != sorted(values) for values in orders)

    def alone(self, row: int, column: int) -> bool:
        """Whether a cell's text stands in it alone of all that the page shows, and is worth asking with."""
        text = words_of(self.text(row, column))
        same = sum(words_of(self.text(r, c)) == text for r in self.rows for c in self.shown)
        return speaks(self.text(row, column)) and same == 1

    def target(self, other: int) -> int | None:
        """A column to ask for, most often that which names the rows."""
        if self.names not in (None, other) and self.random.random() < 0.6:
            return self.names
        left = [column for column in self.columns if column != other]
        return self.random.choice(left) if left else None

    def make(
        self,
        wordings: Sequence[str],
        answer: TableCell,
        named: Iterable[TableCell],
        compared: Iterable[TableCell] = (),
        **words: str,
    ) -> Reasoned | None:
        """The question; None where the wording does not say which column is meant and the answer's is not the one that names
        the rows."""
        wording, named = self.random.choice(wordings), {*named}
        if "{t}" in wording:
            named.add((-1, answer[1]))
        elif answer[1] != self.names:
            return None
        words = {"t": self.task.header[answer[1]], **words}
        return Reasoned(wording.format(**words), answer, frozenset(named) - {answer}, frozenset(compared))

    def column(self, key: int) -> list[TableCell]:
        """The entries' cells of a column."""
        return [(row, key) for row in self.entries]


def _neighbour(page: _Page) -> Reasoned | None:
    if len(page.rows) < 2 or not page.columns:
        return None
    place, after = page.random.randrange(len(page.rows) - 1), page.random.random() < 0.5
    row, other = page.rows[place : place + 2] if after else page.rows[place : place + 2][::-1]
    key = page.random.choice(page.columns)
    target = key if page.random.random() < 0.7 else page.target(key)
    if target is None or not page.alone(row, key):
        return None
    places, order = (BELOW, AFTER) if after else (ABOVE, BEFORE)
    wordings = places if page.ordered(key) or page.ordered(target) or page.disordered else order
    if key in page.numbers:  # below 0.825 is less than it
        wordings = [wording for wording in wordings if not re.search(r"is (below|above) ", wording)]
    if target != key or target != page.names:  # nobody asks who is listed after 38
        wordings = [wording for wording in wordings if "{t}" in wording]
    return page.make(wordings, (other, target), [(row, key)], x=page.text(row, key))


def _end(page: _Page) -> Reasoned | None:
    if not page.columns:
        return None
    first = page.random.random() < 0.5
    row = page.rows[0 if first else -1]
    target = page.random.choice(page.columns if page.names is None else [*page.columns, *[page.names] * 4])
    if row not in page.entries:
        return None
    if page.ordered(target) or page.disordered:
        return page.make(TOP if first else BOTTOM, (row, target), [])
    return page.make(FIRST if first else LAST, (row, target), [])


def _extreme(page: _Page) -> Reasoned | None:
    keys = [column for column in page.numbers if page.counts(column) in WORDS]
    if not keys or len(page.entries) < 2:
        return None
    key, most = page.random.choice(keys), page.random.random() < 0.65
    values, kind = page.numbers[key], page.counts(key)
    most = most if kind == "amount" else not most
    best = (max if most else min)(values)
    target = page.target(key)
    if values.count(best) > 1 or target is None:
        return None
    row = page.entries[values.index(best)]
    word = page.random.choice(WORDS[kind][0 if most else 1])
    named = [(-1, key)]
    if page.random.random() < 0.15:
        question = EXTREME[-1].format(most=word, k=page.task.header[key])
        return Reasoned(question, (row, key), frozenset(named), frozenset(page.column(key)))
    return page.make(EXTREME[:-1], (row, target), named, page.column(key), most=word, k=page.task.header[key])


def _either(page: _Page) -> Reasoned | None:
    if not page.amounts:
        return None
    key, more = page.random.choice(page.amounts), page.random.random() < 0.65
    target, values = page.target(key), page.numbers[key]
    one, two = page.random.sample(range(len(values)), 2)
    rows = [page.entries[place] for place in (one, two)]
    if target is None or values[one] == values[two] or not all(page.alone(row, target) for row in rows):
        return None
    answer = rows[0] if (values[one] > values[two]) == more else rows[1]
    x, y = (page.text(row, target) for row in rows)
    named = [(-1, key), *((row, target) for row in rows)]
    word = page.random.choice(MORE if more else LESS)
    both = [(row, key) for row in rows]
    return page.make(EITHER, (answer, target), named, both, more=word, k=page.task.header[key], x=x, y=y)


def _limit(page: _Page) -> Reasoned | None:
    if not page.amounts:
        return None
    key, over = page.random.choice(page.amounts), page.random.random() < 0.5
    values, target = page.numbers[key], page.target(key)
    ranked = sorted(values, reverse=over)
    limit = int((ranked[0] + ranked[1]) / 2)
    matching = [
        row for row, value in zip(page.entries, values, strict=True) if (value > limit if over else value < limit)
    ]
    if target is None or len(matching) != 1:
        return None
    word = page.random.choice(OVER if over else UNDER)
    words = {"than": word, "n": f"{limit:,}", "k": page.task.header[key]}
    return page.make(LIMIT, (matching[0], target), [(-1, key)], page.column(key), **words)


def _shared(page: _Page, wordings: tuple[str, ...], value_named: bool) -> Reasoned | None:
    if len(page.entries) < 3 or not page.columns:
        return None
    key = page.random.choice(page.columns)
    target = page.target(key)
    value = page.text(page.random.choice(page.entries), key).lower()
    rows = [row for row in page.entries if page.text(row, key).lower() == value]
    if target is None or len(rows) != 2:
        return None
    page.random.shuffle(rows)
    given, answer = rows
    if not page.alone(given, target) or not speaks(page.text(answer, key)):
        return None
    words = {"k": page.task.header[key], "x": page.text(given, target), "y": page.text(answer, key)}
    both = [(given, key), (answer, key)]
    named = [(given, target), (-1, key), *(both if value_named else [])]
    return page.make(wordings, (answer, target), named, both, **words)


def _same(page: _Page) -> Reasoned | None:
    return _shared(page, SAME, False)


def _other(page: _Page) -> Reasoned | None:
    return _shared(page, OTHER, True)


def _count(page: _Page) -> Reasoned | None:
    keys = [column for column in page.columns if column not in page.numbers]
    if not keys or not page.entries:
        return None
    key = page.random.choice(keys)
    value = page.text(page.random.choice(page.entries), key)
    words = words_of(value)
    rows = [row for row in page.rows if words_of(page.text(row, key)) == words]
    within = sum(words in words_of(page.text(row, column)) for row in page.rows for column in page.shown)
    if not 1 < len(rows) < len(page.rows) or within > len(rows) or len({page.text(row, key) for row in rows}) > 1:
        return None
    question = page.random.choice(COUNT).format(k=page.task.header[key], y=value)
    cells = [(row, key) for row in rows]
    return Reasoned(question, cells[0], frozenset([(-1, key), *cells]), frozenset(cells), len(rows))


_KINDS: tuple[Callable[[_Page], Reasoned | None], ...] = (
    _neighbour, _neighbour, _neighbour, _end, _end, _extreme, _extreme, _extreme, _either, _limit, _same, _other, _count, _count,
)  # fmt: skip
