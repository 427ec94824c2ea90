"""The numbers of a table's cells, and what those of a column are: amounts, ranks, times or mere labels."""

import re
from collections.abc import Iterable, Sequence
from itertools import pairwise

# By what a column counts: the words for its largest number, and for its smallest.
WORDS = {
    "amount": (("most", "highest", "largest", "greatest", "top"), ("least", "lowest", "smallest", "fewest")),
    "rank": (("worst", "lowest"), ("best", "top", "highest")),
    "time": (("latest", "most recent"), ("earliest", "oldest")),
    "duration": (("longest", "slowest"), ("shortest", "fastest")),
}
_NUMBER = re.compile(r"([^\d.+\u2212\u2013\u2014-]{0,2})(\d{1,3}(?:,\d{3})+|\d+)(\.\d+)?(\D{0,3})")
_MARKS = re.compile(r"st|nd|rd|th|[\s*\u2020]")  # of ordinals and footnotes, which are no units
_RANK = re.compile(r"(?i)\b(rank|ranking|pos|position|place|standing|finish)s?\b")
_LABEL = re.compile(r"(?i)\b(no|number|seed|pick|draw|lane|round|id|code)\b(?!\.? of\b)|#(?! of\b)")
_TIME = re.compile(r"(?i)\b(year|date|season|founded|opened|built|born|died|since)s?\b")
_DURATION = re.compile(r"(?i)\btime\b")
_YEAR = re.compile(r"(1[5-9]|20)\d\d")
_ORDINAL = re.compile(r"\d+(st|nd|rd|th)\b")
_TOTAL = re.compile(r"(?i)\W*((grand |sub)?totals?|averages?|sum)\b")
_LATEST = 2100  # year
_RUN = 3  # numbers that rise by one are no chance
_STEPS = 0.8  # of the steps from row to row; a total or a gap may stand among them


def number_in(text: str) -> tuple[float, str] | None:
    """The number that a cell's text is, and its unit; None if it is none, or several, or below 0."""
    found = _NUMBER.fullmatch(text)
    if found is None:
        return None
    before, whole, part, after = found.groups()
    return float(whole.replace(",", "") + (part or "")), _MARKS.sub("", before + after)


def numbers_in(texts: Iterable[str]) -> list[float] | None:
    """The numbers that texts are, of one unit; None where one is none, or where units differ."""
    found = [number_in(text) for text in texts]
    return None if None in found or len({unit for _, unit in found}) > 1 else [number for number, _ in found]


def counted(title: str, texts: Sequence[str] = ()) -> str:
    """What the numbers of a column are: one of `WORDS`, or "label" where more of them is nothing.

    A header that says so goes before the texts below it: years are times and ordinals are ranks under any other header, numbers
    that run are labels.
    """
    if _RANK.search(title):
        return "rank"
    if _LABEL.search(title):
        return "label"
    if texts and all(map(_YEAR.fullmatch, texts)):
        return "time"
    if _DURATION.search(title):
        return "duration"
    if running(texts):
        return "label"
    if texts and all(map(_ORDINAL.match, texts)):
        return "rank"
    late = max(numbers_in(texts) or [0]) > _LATEST
    return "time" if _TIME.search(title) and not late else "amount"


def running(texts: Sequence[str]) -> bool:
    """Whether texts down a column number its rows: each is by one more, or by one less, than that above it."""
    numbers = [number[0] if (number := number_in(text)) else None for text in texts]
    steps = [one - other for other, one in pairwise(numbers) if None not in (one, other)]
    least = max(_RUN - 1, _STEPS * (len(texts) - 1))
    return max(steps.count(1), steps.count(-1)) >= least


def sums_up(text: str) -> bool:
    """Whether a row that begins with this text sums others up."""
    return _TOTAL.match(text) is not None
