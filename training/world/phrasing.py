"""Small words that people put into a question, and none of which a cell of the page is about: where to look, whose it is, that it
is shown, how to ask for it. Those of the held-out split are mostly other ones than those of training."""

import re
from collections.abc import Callable
from random import Random

_PLACES = {
    "train": (
        "on this page", "on the page", "in this image", "in the image", "in the picture", "in this picture", "in this document",
        "in the document", "here", "on this sheet", "on the screen", "on this form", "on this receipt", "on this list",
        "in this table", "in the table", "in this letter", "on this bill", "on the card", "shown here", "shown on the page",
        "shown in the picture", "given in the document", "written on this page", "listed here", "listed on the page",
        "that is shown", "as shown", "stated in the letter", "in this menu", "according to the page", "in this chart",
    ),
    "held_out": (
        "in this photo", "in the photo", "on this screen", "on this invoice", "on the ticket", "printed here", "in this scan",
        "mentioned in the document", "on the page", "in this image", "on this label", "in this form",
    ),
}  # fmt: skip
_WHOSE = {"train": ("this", "this", "my", "our"), "held_out": ("this", "that", "your")}
_SOON = {"train": ("again", "exactly", "then", "actually", "now"), "held_out": ("precisely", "please")}
_INDIRECT = {
    "train": (
        "can you tell me what {it} is?", "tell me what {it} is", "I'd like to know what {it} is", "do you know what {it} is?",
        "please say what {it} is", "what would {it} be?", "could you read {it} to me?", "{it} is what?",
        "what does it give as {it}?",
    ),
    "held_out": ("I want to know what {it} is", "what might {it} be?", "any idea what {it} is?", "and {it}, what is that?"),
}  # fmt: skip
_ORDINALS = {
    "first": "1st", "second": "2nd", "third": "3rd", "fourth": "4th", "fifth": "5th", "sixth": "6th", "seventh": "7th",
    "eighth": "8th", "ninth": "9th", "tenth": "10th",
}  # fmt: skip
_ASKS_WHAT = re.compile(r"what(?:'s| is| was| are) (?P<it>the .+?)[?.]?", re.IGNORECASE)
_THE = re.compile(r"\bthe\b", re.IGNORECASE)
_OF = re.compile(r"\b(of|for)(?= (?!the\b|an?\b|it\b|this\b|all\b|what\b))", re.IGNORECASE)
_PLACED = re.compile(r"\b(?:page|pages|here|image|picture|document|this|chart|there)\b", re.IGNORECASE)
_LONG_WORD = re.compile(r"[A-Za-z]{5,}")
_Phrase = Callable[[str, str, Random], str]


def phrased(question: str, split: str, random: Random) -> str:
    """The question with one of these, or two: a phrase that says where to look, "this" or "my" before what is named, what is asked
    for in a subordinate clause, an ordinal in digits, a slip of the fingers. As it is where none of them fits."""
    as_typed = str.upper if question.isupper() else str.lower if question.islower() else str
    return as_typed(_phrased(question, split, random))


def _phrased(question: str, split: str, random: Random) -> str:
    ways: list[_Phrase] = [_placed, _placed, _placed, _owned, _owned, _indirect, _indirect, _counted, _soon, _mistyped]
    for way in random.sample(ways, random.choice((3, 3, 4))):
        changed = way(question, split, random)
        if changed != question:
            question = changed
            if random.random() < 0.7:
                break
    return question


def _ended(question: str, phrase: str) -> str:
    mark = question[-1] if question[-1] in "?." else ""
    return f"{question.rstrip('?. ')} {phrase}{mark}"


def _placed(question: str, split: str, random: Random) -> str:
    return question if _PLACED.search(question) else _ended(question, random.choice(_PLACES[split]))


def _soon(question: str, split: str, random: Random) -> str:
    return _ended(question, random.choice(_SOON[split]))


def _owned(question: str, split: str, random: Random) -> str:
    said, found = random.choice(_WHOSE[split]), [*_THE.finditer(question)]
    if found:
        first, last = random.choice(found).span()
        return question[:first] + (said.capitalize() if question[first].isupper() else said) + question[last:]
    return _OF.sub(rf"\1 {said}", question, count=1)


def _indirect(question: str, split: str, random: Random) -> str:
    found = _ASKS_WHAT.fullmatch(question)
    return random.choice(_INDIRECT[split]).format(it=found["it"]) if found else question


def _counted(question: str, split: str, random: Random) -> str:
    return re.sub(r"\b\w+\b", lambda word: _ORDINALS.get(word[0].lower(), word[0]), question)


def _mistyped(question: str, split: str, random: Random) -> str:
    found = [*_LONG_WORD.finditer(question)]
    if not found or random.random() < 0.5:
        return question
    first, last = random.choice(found).span()
    place = random.randrange(first + 1, last - 1)
    before, one, two, after = question[:place], question[place], question[place + 1], question[place + 2 :]
    return before + random.choice((two + one, two, one + one + two)) + after
