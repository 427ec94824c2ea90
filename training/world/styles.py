"""What pages of one kind hold, and the kinds by the name of what they ask."""

from dataclasses import dataclass

from training.world.fonts import TRAIN_FONTS

CONTENTS = (
    "fields", "form", "table", "chart", "scene", "gist", "absent", "crowded", "corner", "near_identical", "small_print",
    "noise", "empty_complex",
)  # fmt: skip


@dataclass(frozen=True)
class Style:
    """What pages of one kind hold. Sizes are in pixels, shares between 0 and 1, ranges include both ends."""

    fields: tuple[int, int] = (1, 1)
    font_sizes: tuple[int, int] = (12, 24)
    fonts: tuple[str, ...] = TRAIN_FONTS
    values: tuple[str, ...] = ("number", "amount", "time")  # "code" has capital letters too, "word" all letters
    clutter: tuple[int, int] = (0, 3)
    signs: tuple[int, int] = (0, 0)
    shapes: tuple[int, int] = (0, 0)
    dark: float = 0.0  # share of pages with light ink on dark paper
    content: str = "fields"  # one of CONTENTS: "gist" and "absent" draw one of the others, and ask that alone
    families: tuple[str, ...] = ()  # of questions; all that the page offers where empty

    def __post_init__(self):
        if self.content not in CONTENTS:
            raise ValueError(f"content={self.content!r} is not one of {', '.join(CONTENTS)}")


_VALUES = ("number", "amount", "time", "code", "short")
_FORM = Style(content="form", fields=(3, 8), font_sizes=(9, 18), values=_VALUES, clutter=(0, 1), dark=0.1)
_TABLE = Style(content="table", font_sizes=(9, 18), values=("short", "number", "amount", "time"), dark=0.1)
_CHART = Style(content="chart", font_sizes=(9, 16), clutter=(0, 1), dark=0.1)
_SCENE = Style(
    content="scene", fields=(0, 1), font_sizes=(10, 16), clutter=(0, 3), signs=(0, 3), shapes=(1, 8), dark=0.15
)

KINDS = {
    "one_field": Style(),
    "several_fields": Style(fields=(2, 6), font_sizes=(10, 20), values=_VALUES, dark=0.1),
    "world": Style(fields=(1, 4), signs=(0, 2), shapes=(0, 2), dark=0.1),
    "form": _FORM,
    "table": _TABLE,
    "chart": _CHART,
    "scene": _SCENE,
    "gist": Style(content="gist", fields=(3, 8), font_sizes=(9, 18), values=_VALUES, clutter=(0, 2), signs=(0, 3),
                  shapes=(1, 8), dark=0.1),
    "absent": Style(content="absent", fields=(2, 8), font_sizes=(9, 18), values=_VALUES, dark=0.1),
    "crowded": Style(content="crowded", fields=(8, 16), font_sizes=(9, 13), values=_VALUES, clutter=(0, 2), dark=0.1),
    "corner": Style(content="corner", font_sizes=(10, 16), values=_VALUES, clutter=(0, 3), dark=0.1),
    "near_identical": Style(content="near_identical", fields=(2, 6), font_sizes=(10, 18), values=_VALUES,
                            clutter=(0, 2), dark=0.1),
    "small_print": Style(content="small_print", fields=(1, 2), font_sizes=(9, 11), values=_VALUES, clutter=(0, 1),
                         dark=0.1),
    "noise": Style(content="noise", fields=(1, 2), font_sizes=(10, 18), values=_VALUES, clutter=(0, 0), dark=0.1),
    "empty_complex": Style(content="empty_complex", font_sizes=(10, 20), values=_VALUES, clutter=(0, 0), dark=0.1),
}  # fmt: skip
