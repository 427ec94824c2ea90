"""How people put what they ask: other wordings of drawn questions, and what stands around them.

Those of the held-out split are other ones than those of training.
"""

import re
from collections.abc import Sequence
from random import Random

from training.world import words
from training.world.wording_lists import AROUND, FINDS, INSTRUCTIONS, TABLE_ALONE, TABLE_KEYED, WORLD


def put_around(question: str, around: str, random: Random) -> str:
    """The question inside of `around`, one of `AROUND`'s; its first letter small and its question mark left out where fit."""
    inside = question.rstrip("?") if around.startswith("{q}") else question[0].lower() + question[1:]
    return around.format(q=inside.rstrip("?") if around.endswith("}") and random.random() < 0.5 else inside)


def spoken(question: str, split: str, random: Random) -> str:
    """The question as someone types it: with something around it, in small letters, in capitals, or as it is."""
    if random.random() < 0.4:
        question = put_around(question, random.choice(AROUND[split]), random)
    draw = random.random()
    if draw < 0.06:
        return question.upper()
    if draw < 0.3:
        return question.lower()
    return question[0].upper() + question[1:] if draw < 0.5 else question


def world_question(question: str, split: str, random: Random) -> str:
    """A question of the drawn world in other words, half of the time, and `spoken`."""
    if random.random() < 0.5:
        for drawn, further in WORLD:
            names = _names(question, drawn)
            if names is not None:
                question = random.choice(further[split]).format(**names)
                break
    return spoken(question, split, random)


def instructed(question: str, split: str, random: Random) -> str:
    """The question with how to answer it behind it, in the same line or the next."""
    between = random.choice((" ", "\n"))
    ended = question if question[-1] in ".?!" else question + "."
    return ended + between + random.choice(INSTRUCTIONS[split])


def lookup_question(named: dict[str, str], alone: bool, split: str, random: Random) -> str:
    """What stands in a table's column `target`, in the row that `value` of the column `key` names.

    Args:
        named: these three by name.
        alone: whether no other cell has the value, so that its column need not be named.
    """
    frames = TABLE_KEYED[split] + (TABLE_ALONE[split] if alone else ())
    return random.choice(frames).format(**named)


def find_question(question: str, text: str, split: str, random: Random) -> str:
    """A question for where a text stands in other words, half of the time, and `spoken`."""
    if random.random() < 0.5:
        question = random.choice(FINDS[split]).format(text=text)
    return spoken(question, split, random)


_LISTS = {
    "column": words.COLUMNS, "row": words.ROW_NAMES, "kind": words.ROWS, "extreme": words.EXTREMES, "colour": words.COLOURS,
    "shape": words.SHAPES, "shapes": words.PLURALS.values(),
}  # fmt: skip


def _names(question: str, drawn: Sequence[str]) -> dict[str, str] | None:
    # what a question names, where it was drawn from one of these
    for frame in drawn:
        found = re.fullmatch(re.sub(r"\\{(\w+)\\}", r"(?P<\1>.+)", re.escape(frame)), question)
        if found and all(_known(name, text) for name, text in found.groupdict().items()):
            return found.groupdict()
    return None


def _known(name: str, text: str) -> bool:
    return name not in _LISTS or text.lower() in {one.lower() for one in _LISTS[name]}
