"""The stages that the base model learns in: aligned before free, few fonts before many, one field before several.

A stage ends when the exact match on held-out layouts reaches its mark, not after a number of steps.
"""

from dataclasses import dataclass

from training.world import Style
from training.world.fonts import PLAIN_FONTS

Grid = tuple[tuple[int, int], tuple[int, int] | None]  # (rows, columns) drawn, and shown if scaled


@dataclass(frozen=True)
class Stage:
    """What a stage shows and when it ends. `pass_mark` is a share of held-out questions answered exactly."""

    name: str
    styles: tuple[Style, ...]
    grids: tuple[Grid, ...]
    pass_mark: float
    questions: int = 1  # asked per page at most
    transcribe_only: float = 0.5  # share of pages that are only read out
    transcribe_after: float = 0.0  # share of the others that are read out after the questions


def _native(*cells: tuple[int, int]) -> tuple[Grid, ...]:
    return tuple((size, None) for size in cells)


_SMALL = _native((8, 8), (6, 10), (8, 10))
_MIDDLE = _native((8, 8), (8, 8), (8, 12), (10, 10), (9, 9))
_LARGE = _native((8, 8), (8, 12), (10, 10), (12, 12), (9, 14), (12, 10))
# a page of 144, 100 or 64 cells shown on fewer: what a smaller image of the same page looks like
_SCALED: tuple[Grid, ...] = (
    ((12, 12), (8, 8)), ((12, 12), (6, 6)), ((10, 10), (7, 7)), ((8, 12), (6, 9)), ((12, 12), (10, 10)),
    ((8, 8), (6, 6)), ((8, 8), (4, 4)), ((9, 14), (6, 9)),
)  # fmt: skip

_ALIGNED = Style(aligned=True, clutter=(0, 0), values=("number",))
_PLAIN = Style(fonts=PLAIN_FONTS, font_sizes=(12, 18), clutter=(0, 1), values=("number",))
_ONE = Style()
_SEVERAL = Style(fields=(2, 4))
_WORLD = Style(fields=(1, 4), signs=(0, 2), shapes=(0, 2), dark=0.1)

STAGES = (
    Stage("aligned", (_ALIGNED,), _native((8, 8)), pass_mark=0.8, transcribe_only=0.3, transcribe_after=1.0),
    Stage("free", (_PLAIN,), _SMALL, pass_mark=0.8, transcribe_only=0.3, transcribe_after=1.0),
    Stage("one field", (_ONE,), _MIDDLE, pass_mark=0.8, transcribe_only=0.2, transcribe_after=1.0),
    Stage("several fields", (_ONE, _SEVERAL), _MIDDLE, pass_mark=0.75, questions=3, transcribe_only=0.2,
          transcribe_after=0.5),
    Stage("world", (_ONE, _SEVERAL, _WORLD), _LARGE + _LARGE + _SCALED, pass_mark=1.0, questions=4, transcribe_only=0.1,
          transcribe_after=0.3),
)  # fmt: skip
