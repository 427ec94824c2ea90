"""The stages that the base model learns in: letters before text, aligned before free, one field before several.

A stage ends when the exact match on held-out layouts reaches its mark, not after a number of steps.
"""

from dataclasses import dataclass

from training.world import Style
from training.world.fonts import PLAIN_FONTS

Grid = tuple[tuple[int, int], tuple[int, int] | None]  # (rows, columns) drawn, and shown if scaled


@dataclass(frozen=True)
class Stage:
    """What a stage shows and when it ends. `pass_mark` is a share of questions answered exactly, on held-out pages of the
    first style."""

    name: str
    styles: tuple[Style, ...]
    grids: tuple[Grid, ...]
    pass_mark: float
    letters_only: bool = (
        False  # only the vision half learns, from the glyph loss; its score is the share of letters read
    )
    learning_rate: float = 1.0  # times the run's
    questions: int = 1  # asked of a page at most
    transcribe_only: float = 0.5  # share of pages that are only read out
    transcribe_after: float = 0.0  # share of the others that are read out after the questions


def _native(*cells: tuple[int, int]) -> tuple[Grid, ...]:
    return tuple((size, None) for size in cells)


_FIRST = _native((8, 8))
# smaller grids oftener, because they cost less: 12 x 12 takes as long as three and a half pages of 8 x 8
_ALL = _native((8, 8), (8, 8), (8, 8), (8, 12), (8, 12), (10, 10), (10, 10), (12, 12), (9, 14), (12, 10))
# a page of 144, 100 or 64 cells shown on fewer: what a smaller image of the same page looks like
_SCALED: tuple[Grid, ...] = (
    ((12, 12), (8, 8)), ((12, 12), (6, 6)), ((10, 10), (7, 7)), ((8, 12), (6, 9)), ((8, 8), (6, 6)), ((8, 8), (4, 4)),
)  # fmt: skip

_ALIGNED = Style(aligned=True, clutter=(0, 0), values=("number",))
_PLAIN = Style(fonts=PLAIN_FONTS, font_sizes=(12, 18), clutter=(0, 1), values=("number",))
_ONE = Style()
_SEVERAL = Style(fields=(2, 4))
_WORLD = Style(fields=(1, 4), signs=(0, 2), shapes=(0, 2), dark=0.1)
# Pages full of text teach the letters: three times as many of them for the same picture.
_PLAIN_TEXT = Style(fields=(6, 12), fonts=PLAIN_FONTS, font_sizes=(11, 18), clutter=(0, 1))
_TEXT = Style(fields=(4, 10), font_sizes=(11, 22), clutter=(0, 1))

STAGES = (
    Stage("letters", (_PLAIN_TEXT,), _FIRST, pass_mark=0.8, letters_only=True, learning_rate=2.0),
    Stage("all letters", (_TEXT,), _FIRST, pass_mark=0.8, letters_only=True, learning_rate=2.0),
    Stage("aligned and free", (_ALIGNED, _PLAIN), _FIRST, pass_mark=0.6, transcribe_only=0.2, transcribe_after=1.0),
    Stage("one field", (_ONE,), _ALL + _ALL + _SCALED, pass_mark=0.75, transcribe_only=0.1, transcribe_after=1.0),
    # answers alone and mostly small pages: what is to be learned here is to look up the label that is asked for
    Stage("several fields", (_SEVERAL,), _native((8, 8), (8, 8), (8, 8), (8, 12)), pass_mark=0.6, questions=3,
          transcribe_only=0.0),
    Stage("world", (_SEVERAL, _ONE, _ONE, _WORLD), _ALL + _ALL + _SCALED, pass_mark=1.0, questions=4,
          transcribe_only=0.1, transcribe_after=0.3),
)  # fmt: skip
