"""What a written question about a table compares: the numbers that its answer is told from."""

import re
from collections.abc import Collection, Sequence

from training.data.table_lookups import words_of
from training.data.table_numbers import sums_up
from training.data.table_page import TableCell, Task

_STEMS = (
    "tall|short|long|heavi|light|fast|slow|quick|deep|old|young|new|earli|lat|larg|bigg|small|high|low|great|few|strong|rich|near|"
    "clos|wid|cheap|busi"
)
# "at least 3" is a limit; the answer is not the least
_MOST = re.compile(rf"(?i)(?<!\bat )\b(?:most|least|maximum|minimum|top|best|worst|(?:{_STEMS})est)\b")
_EITHER = re.compile(rf"(?is)(?=.*\bor\b).*\b(?:more|less|fewer|better|worse|(?:{_STEMS})e?r)\b")
# Words of comparison, and stems of headers that they are about where a question names none.
_ABOUT = (
    (re.compile(r"(?i)\b(?:tall|high|low)e"), {"height", "elevat"}),
    (re.compile(r"(?i)\b(?:long|short)e"), {"length", "durati", "distan", "height"}),
    (re.compile(r"(?i)\b(?:heavi|light)e"), {"weight", "mass"}),
    (re.compile(r"(?i)\b(?:fast|slow|quick)e"), {"time", "speed"}),
    (
        re.compile(r"(?i)\b(?:old|young|new|earli|lat)e|\brecent\b"),
        {"year", "date", "age", "built", "founde", "season"},
    ),
    (re.compile(r"(?i)\b(?:large|bigge|smalle)"), {"area", "size", "popula"}),
)
_NUMBER = re.compile(r"[^\w-]{0,3}(\d+(?:,\d{3})*(?::\d\d)*(?:\.\d+)?)")
_DATED = re.compile(r"[^\W\d]{3,} \d{4}\b|\d[-/.]\d+[-/.]\d")
_SMALL = {"the", "and", "for", "with", "number"}  # words of headers that a question may have without naming them
_FEWEST = 3  # rows of which one can be said to have the most


def evidence_of(
    task: Task, question: str, rows: Sequence[int], drawn: Collection[TableCell], named: Collection[TableCell]
) -> tuple[TableCell, ...]:
    """What a written question is answered from: the cell that answers, first, and the numbers that it is compared by.

    "Which ... has the most points?" compares a column, "... more points, X or Y?" two of its cells. What is compared has a header
    that the question names, or that its word of comparison is about ("the oldest": a year), and holds numbers alone, among which
    the answer's row has the largest or smallest. A question that asks for more than that ("the most points of those from ...") has
    the answer's cell alone.

    Args:
        rows: the rows that the page shows.
        drawn: the cells that it shows whole.
        named: those of them that the question names.
    """
    columns = sorted({column for _, column in drawn})
    entries = [row for row in rows if not any(sums_up(task.text(row, column)) for column in columns)]
    least = _FEWEST
    if not _MOST.search(question):
        either = {task.answer[0], *(row for row, _ in named if row >= 0)}
        entries, least = [row for row in entries if row in either], 2
        if len(entries) != 2 or not _EITHER.match(question):
            return (task.answer,)
    asked = stems(question).union(*(about for word, about in _ABOUT if word.search(question)))
    compared: set[TableCell] = set()
    for column in columns:
        numbers = _numbers(task, entries, column) if (stems(task.header[column]) - _SMALL) & asked else {}
        best, cells = numbers.get(task.answer[0]), {(row, column) for row in numbers}
        if len(numbers) >= least and cells <= {*drawn} and best in (min(numbers.values()), max(numbers.values())):
            compared |= cells
    return (task.answer, *sorted(compared - {task.answer}))


def stems(text: str) -> set[str]:
    """The words of more than two letters, each without an s at its end and at most six letters of it."""
    return {word.rstrip("s")[:6] for word in words_of(text).split() if len(word) > 2}


def _numbers(task: Task, rows: Sequence[int], column: int) -> dict[int, float]:
    """The numbers that cells of a column begin with by their rows, without empty cells; none where a cell begins with a word or
    holds a date, or all are the same."""
    texts = {row: task.text(row, column) for row in rows if words_of(task.text(row, column)).strip()}
    begun = {row: _NUMBER.match(text) for row, text in texts.items()}
    if None in begun.values() or any(_DATED.search(text) for text in texts.values()):
        return {}
    found = {row: _worth(one[1]) for row, one in begun.items()}
    return found if len({*found.values()}) > 1 else {}


def _worth(digits: str) -> float:
    """12,345.6 as it is, 1:02.5 in seconds."""
    return sum(float(part) * 60**place for place, part in enumerate(digits.replace(",", "").split(":")[::-1]))
