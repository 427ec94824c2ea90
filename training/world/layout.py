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


@dataclass(frozen=True)
class FormLayout:
    """How a form looks: its rows, whether two stand side by side where the page is wide, title, labels and values."""

    rows: str
    columns: str
    title: str
    separator: str
    values: str  # beside: all at one column; right: at the right margin


@dataclass(frozen=True)
class TableLayout:
    """How a table looks: its rules, its header row, where cells stand in their column, and what stands above it."""

    rules: str
    header: str
    align: str
    title: str


@dataclass(frozen=True)
class ChartLayout:
    """How a bar chart looks: where its bars grow to, their colours, its axis, and what stands above it."""

    direction: str
    bars: str
    axis: str
    title: str


@dataclass(frozen=True)
class SceneLayout:
    """What a scene stands before: background, the direction of its parts, the page's border, the shapes' outline."""

    background: str
    direction: str
    border: str
    outline: str


AnyLayout = Layout | FormLayout | TableLayout | ChartLayout | SceneLayout

_OTHER_LAYOUTS = {
    "form": (FormLayout, ("ruled", "boxed", "shaded", "boxes"), ("one", "two"), ("left", "middle", "bar"),
             ("", ":"), ("beside", "right")),
    "table": (TableLayout, ("grid", "horizontal", "zebra", "plain"), ("plain", "shaded", "inverse", "line"),
              ("left", "middle", "right"), ("none", "line")),
    "chart": (ChartLayout, ("up", "right"), ("one colour", "colours", "outlined"), ("none", "line", "grid"),
              ("none", "line")),
    "scene": (SceneLayout, ("plain", "textured", "two-tone", "gradient"), ("across", "down"),
              ("none", "thin", "thick"), ("none", "dark", "light")),
}  # fmt: skip


def stable_hash(text: str) -> int:
    """A whole number from the text, the same in every process and version of Python."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")


def layout_split(layout: AnyLayout) -> str:
    """The split that owns the layout family: its hash decides, so no family is in both."""
    return "held_out" if stable_hash("layout " + "|".join(astuple(layout))) % _HELD_OUT_SHARE == 0 else "train"


def value_split(value: str) -> str:
    """The split that owns a field's value: its hash decides, so no answer of one split occurs in the other."""
    return "held_out" if stable_hash("value " + value) % _HELD_OUT_VALUES == 0 else "train"


def _split_up(families: tuple[AnyLayout, ...]) -> dict[str, tuple[AnyLayout, ...]]:
    return {split: tuple(x for x in families if layout_split(x) == split) for split in SPLITS}


_BY_CONTENT = {"fields": _split_up(ALL_LAYOUTS)} | {
    content: _split_up(tuple(kind(*parts) for parts in product(*choices)))
    for content, (kind, *choices) in _OTHER_LAYOUTS.items()
}


def layouts(split: str, content: str = "fields") -> tuple[AnyLayout, ...]:
    """All layout families of that split for pages of that content; all but form, table, chart and scene hold fields."""
    return _BY_CONTENT.get(content, _BY_CONTENT["fields"])[split]


def pick_layout(random: Random, split: str, content: str = "fields") -> AnyLayout:
    """A layout family of that split for pages of that content."""
    return random.choice(layouts(split, content))


def pick_value(random: Random, kind: str, split: str) -> str:
    """A value of that kind and split: 1 to 8 characters. `ValueError` for an unknown kind."""
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
    if kind == "short":
        return str(random.randint(1, 999))
    if kind == "amount":
        return f"{random.randint(1, 999)}.{some(digits, 2)}"
    if kind == "time":
        return f"{random.randint(0, 23):02d}:{random.randint(0, 59):02d}"
    if kind == "code":
        letters = "ABCDEFGHJKLMNPRSTUVWXYZ"
        return some(letters, random.randint(1, 2)) + random.choice(("", "-")) + some(digits, random.randint(2, 4))
    if kind == "word":
        letters = "abcdefghijklmnopqrstuvwxyz"
        word = "".join(some("bcdfghjklmnpqrstvwxyz", 1) + some("aeiou", 1) for _ in range(random.randint(1, 3)))
        word = random.choice((word, word + some(letters, 1), some(letters, random.randint(3, 7))))
        return random.choice((word, word.capitalize(), word.capitalize(), word.upper()))
    raise ValueError(f"value kind {kind!r} is not one of number, short, amount, time, code, word")
