"""Questions made from a table: what stands in one column, in the row that a value of another column names, and where a text
stands."""

import functools
import re
from collections import Counter
from collections.abc import Collection, Set
from random import Random
from typing import NamedTuple

from training.data.table_archive import Table
from training.data.table_page import TableCell, Task

LOOKUP_QUESTIONS = (
    "what is the {target} where {key} is {value}?",
    "which {target} has {key} {value}?",
    "{key} is {value}: what is the {target}?",
)
FIND_QUESTIONS = ("where is {text}?", "where does it say {text}?", "find {text}")
_LONGEST = 40  # characters of a question's key and answer
_TRIES = 30
_WORD = re.compile(r"[^\W_]+")


class Lookup(NamedTuple):
    """A look-up: its question, the cell that answers it, and the cell whose value names the row."""

    question: str
    answer: TableCell
    key: TableCell

    @property
    def context(self) -> set[TableCell]:
        """What else has to be seen: the value that names the row, and the headers of both columns."""
        return {self.key, (-1, self.key[1]), (-1, self.answer[1])}


@functools.lru_cache(maxsize=1 << 17)  # the texts of a table are looked for in each of its questions
def words_of(text: str) -> str:
    """The words of the text in lower case with a space around each, to look for one text in another."""
    return " " + " ".join(_WORD.findall(text.lower())) + " "


def lookup_task(table: Table, random: Random) -> tuple[Lookup, Task] | None:
    """A look-up that a table answers in exactly one place, by a value that one row alone has; None if none was found."""
    columns = titled(table.header)
    if len(columns) < 2:
        return None
    for _ in range(_TRIES):
        key, target = random.sample(columns, 2)
        row = random.randrange(len(table.rows))
        value, answer = table.rows[row][key], table.rows[row][target]
        named = sum(words_of(cells[key]) == words_of(value) for cells in table.rows)
        if speaks(value) and speaks(answer) and named == 1:
            task = Task(table.header, table.rows, (row, target), needed=((row, key),))
            return _lookup(task, row, key, target, random), task
    return None


def further_lookups(task: Task, drawn: Collection[TableCell], count: int, random: Random) -> list[Lookup]:
    """At most `count` more look-ups on a page drawn for `task`.

    Each has another answer cell, none that of `task`. All that a look-up is about is in `drawn`: the answer, the value that
    names its row, which no other row of the table has, and both their headers. Rows, keys and columns asked about take turns.
    """
    choices = _choices(task, drawn)
    random.shuffle(choices)
    used = Counter([("row", task.answer[0]), ("target", task.answer[1]), *(("key", key) for _, key in task.needed)])
    found: list[Lookup] = []
    while choices and len(found) < count:
        row, key, target = min(choices, key=lambda c: used["row", c[0]] + used["key", c[1]] + used["target", c[2]])
        used.update([("row", row), ("key", key), ("target", target)])
        found.append(_lookup(task, row, key, target, random))
        choices = [choice for choice in choices if (choice[0], choice[2]) != (row, target)]
    return found


class Find(NamedTuple):
    """A question for where a text stands, and the cells that show it."""

    question: str
    cells: tuple[TableCell, ...]


def finds(task: Task, page: Collection[TableCell], drawn: Set[TableCell], count: int, random: Random) -> list[Find]:
    """At most `count` questions for where a text of the `page` stands, each for another text.

    Asked are texts that no cell has among others, and of which every cell is in `drawn`, the cells that show all of theirs.
    """
    places: dict[str, list[TableCell]] = {}
    for cell in sorted(page):
        places.setdefault(words_of(task.text(*cell)), []).append(cell)
    asked = [
        cells
        for text, cells in places.items()
        if speaks(task.text(*cells[0])) and drawn >= set(cells) and sum(text in other for other in places) == 1
    ]
    random.shuffle(asked)
    return [
        Find(random.choice(FIND_QUESTIONS).format(text=task.text(*cells[0])), tuple(cells)) for cells in asked[:count]
    ]


def _choices(task: Task, drawn: Collection[TableCell]) -> list[tuple[int, int, int]]:
    """(row, key, target) of every look-up among the drawn cells but those that `task`'s answer would answer."""
    columns = [column for column in titled(task.header) if (-1, column) in drawn]
    spoken = [cell for cell in sorted(drawn) if cell[0] >= 0 and cell[1] in columns and speaks(task.text(*cell))]
    named = {column: Counter(words_of(cells[column]) for cells in task.rows) for column in columns}
    keys = [cell for cell in spoken if named[cell[1]][words_of(task.text(*cell))] == 1]
    return [
        (row, key, target)
        for row, key in keys
        for answering, target in spoken
        if answering == row and target != key and (row, target) != task.answer
    ]


def titled(header: tuple[str, ...]) -> list[int]:
    """The columns whose header names them alone."""
    return [column for column, title in enumerate(header) if title and header.count(title) == 1]


def speaks(text: str) -> bool:
    """Whether a cell's text can be asked for or asked with: some letters or digits, and not too long."""
    return len(words_of(text)) > 2 and len(text) <= _LONGEST


def _lookup(task: Task, row: int, key: int, target: int, random: Random) -> Lookup:
    question = random.choice(LOOKUP_QUESTIONS)
    asked = question.format(target=task.header[target], key=task.header[key], value=task.text(row, key))
    return Lookup(asked, (row, target), (row, key))
