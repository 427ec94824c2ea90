"""How a page arranges its fields, and which arrangements are kept for the held-out split."""

import hashlib
from dataclasses import astuple, dataclass
from itertools import product
from random import Random

SPLITS = ("train", "held_out")
_HELD_OUT_SHARE = 5  # every fifth layout family
_HELD_OUT_VALUES = 10  # every tenth value


@dataclass(frozen=True)
class Layout:
    """One layout family: how a label and its value stand to each other, and how blocks stand on the page."""

    arrangement: str  # beside: value right of its label; below: under it; apart: at the other margin
    separator: str  # drawn after the label
    frame: str  # drawn around or under the value
    emphasis: str  # which of the two is larger
    placement: str  # blocks in a column at the left, the middle or the right, or scattered


ALL_LAYOUTS = tuple(
    Layout(*parts)
    for parts in product(
        ("beside", "below", "apart"),
        ("", ":", " -"),
        ("none", "underline", "box", "shade"),
        ("none", "label", "value"),
        ("left", "middle", "right", "scattered"),
    )
)


def stable_hash(text: str) -> int:
    """A whole number from the text, the same in every process and version of Python."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")


def layout_split(layout: Layout) -> str:
    """The split that owns the layout family: its hash decides, so no family is in both."""
    return "held_out" if stable_hash("layout " + "|".join(astuple(layout))) % _HELD_OUT_SHARE == 0 else "train"


def value_split(value: str) -> str:
    """The split that owns a field's value: its hash decides, so no answer of one split occurs in the other."""
    return "held_out" if stable_hash("value " + value) % _HELD_OUT_VALUES == 0 else "train"


_BY_SPLIT = {split: tuple(x for x in ALL_LAYOUTS if layout_split(x) == split) for split in SPLITS}


def pick_layout(random: Random, split: str) -> Layout:
    """A layout family of that split."""
    return random.choice(_BY_SPLIT[split])


def layouts(split: str) -> tuple[Layout, ...]:
    """All layout families of that split."""
    return _BY_SPLIT[split]


def pick_value(random: Random, kind: str, split: str) -> str:
    """A field's value of that kind and split: 3 to 8 characters. `ValueError` for an unknown kind."""
    while True:
        value = _value(random, kind)
        if value_split(value) == split:
            return value


def _value(random: Random, kind: str) -> str:
    digits = "0123456789"

    def some(alphabet: str, count: int) -> str:
        return "".join(random.choice(alphabet) for _ in range(count))

    if kind == "number":
        return some(digits, random.randint(3, 6))
    if kind == "amount":
        return f"{random.randint(1, 999)}.{some(digits, 2)}"
    if kind == "time":
        return f"{random.randint(0, 23):02d}:{random.randint(0, 59):02d}"
    if kind == "code":
        letters = "ABCDEFGHJKLMNPRSTUVWXYZ"
        return some(letters, random.randint(1, 2)) + random.choice(("", "-")) + some(digits, random.randint(2, 4))
    raise ValueError(f"value kind {kind!r} is not one of number, amount, time, code")
