"""The stages that the base model learns in: letters before text, one field before several, fields before everything.

A stage ends when its score on held-out pages reaches its mark, not after a number of steps.
"""

from dataclasses import dataclass, replace

from training.world import KINDS, Style
from training.world.fonts import PLAIN_FONTS

Grid = tuple[tuple[int, int], tuple[int, int] | None]  # (rows, columns) drawn, and shown if scaled


@dataclass(frozen=True)
class Stage:
    """What a stage shows and when it ends. `pass_mark` is a share of questions answered exactly, or of letters read, on
    held-out pages of the same styles."""

    name: str
    styles: tuple[Style, ...]
    grids: tuple[Grid, ...]
    pass_mark: float
    letters_only: bool = False  # only the vision half learns, from the glyph loss
    learning_rate: float = 1.0  # times the run's
    questions: int = 1  # asked of a page at most
    reworded: float = 0.0  # the share of questions that are put in other words; see `training.world.wordings`
    beside: float = (
        0.0  # the share of pages whose questions have other sentences beside them; see `training.world.beside`
    )
    # of all batches the share that has cells left out before the vision tower, that has them left out after it, and that has a
    # coarse view beside what is kept; see `training.leaving_out`
    left_out: float = 0.0
    pruned: float = 0.0
    foveated: float = 0.0
    # the vision half and the embeddings stay as they are: what was trained on them still fits
    language_only: bool = False
    scaled_styles: tuple[Style, ...] = ()  # shown on fewer cells, where a small print would be lost; `styles` if none

    def styles_of(self, cells: tuple[int, int], shown: tuple[int, int]) -> tuple[Style, ...]:
        """The styles of pages drawn at `cells` and shown on `shown`."""
        return self.scaled_styles if self.scaled_styles and shown != cells else self.styles


def _native(*cells: tuple[int, int]) -> tuple[Grid, ...]:
    return tuple((size, None) for size in cells)


_SMALL = _native((8, 8), (8, 8), (8, 12))
# smaller grids oftener, because they cost less: 12 x 12 takes as long as three and a half pages of 8 x 8
_ALL = _native((8, 8), (8, 12), (8, 12), (10, 10), (10, 10), (12, 12), (12, 12), (9, 14))
# a page of 144, 100 or 64 cells shown on fewer: what a smaller image of the same page looks like
_SCALED: tuple[Grid, ...] = (
    ((12, 12), (8, 8)), ((12, 12), (6, 6)), ((10, 10), (7, 7)),
)  # fmt: skip

# larger than the tower learned on, which reads their letters as well up to 20 x 20, and nearly so at 24 x 24
_LARGE = _native((12, 16), (16, 12), (16, 16), (20, 20), (24, 24))

# Pages full of text teach the letters: three times as many of them for the same picture.
_PLAIN_TEXT = Style(fields=(6, 12), fonts=PLAIN_FONTS, font_sizes=(11, 18), clutter=(0, 1))
_TEXT = Style(fields=(4, 10), font_sizes=(11, 22), clutter=(0, 1))
_EVERY_LETTER = Style(
    fields=(4, 14), font_sizes=(9, 22), clutter=(0, 1), dark=0.2,
    values=("number", "amount", "time", "code", "word", "word"),
)  # fmt: skip
_ONE = Style(families=("one_field",))
_FEW = Style(fields=(2, 4), font_sizes=(11, 18), families=("several_fields",))
_TRAINED = {**KINDS, "table": replace(KINDS["table"], families=("table",))}  # no reverse look-up
# what asks most is shown most
_WORLD = tuple(
    _TRAINED[kind]
    for kind in (
        "one_field", "several_fields", *3 * ("form",), *2 * ("crowded",), *5 * ("table",), *3 * ("chart",),
        *2 * ("scene",), "near_identical", "corner", "small_print", "noise", *2 * ("absent",), "empty_complex", "gist",
    )
)  # fmt: skip

_LEGIBLE = (_ONE, replace(_FEW, font_sizes=(14, 22)), KINDS["scene"])  # on fewer cells too
_REVERSE = replace(KINDS["table"], families=("table_reverse",))
_EXTREME = replace(KINDS["chart"], families=("chart_extreme",))
_COUNTED = replace(KINDS["scene"], families=("counting",))
_ASKED = (
    *(
        KINDS[kind]
        for kind in (
            "one_field", "several_fields", *3 * ("form",), *3 * ("crowded",), "table", "chart", "scene",
            *2 * ("near_identical",), *2 * ("corner",), *2 * ("small_print",), *2 * ("noise",), *2 * ("absent",),
            *2 * ("empty_complex",), "gist",
        )
    ),
    *2 * (_TRAINED["table"],), *3 * (_REVERSE,), *4 * (_EXTREME,), *3 * (_COUNTED,),
)  # fmt: skip

STAGES = (
    Stage("letters", (_PLAIN_TEXT,), _native((8, 8)), pass_mark=0.8, letters_only=True, learning_rate=2.0),
    Stage("all letters", (_TEXT,), _native((8, 8)), pass_mark=0.8, letters_only=True, learning_rate=2.0),
    Stage("every letter", (_EVERY_LETTER,), _native((8, 8), (8, 8), (8, 12), (10, 10), (12, 12)), pass_mark=0.85,
          letters_only=True, learning_rate=2.0),
    Stage("one field", (_ONE, replace(_ONE, fonts=PLAIN_FONTS)), _SMALL, pass_mark=0.5),
    Stage("several fields", (_FEW, _FEW, _ONE), _SMALL, pass_mark=0.6, questions=2),
    Stage("world", _WORLD, _ALL + _ALL + _SCALED, pass_mark=1.0, questions=3, left_out=0.5,
          scaled_styles=_LEGIBLE),
    Stage("language", _ASKED, _ALL + _ALL + _SCALED + _LARGE, pass_mark=1.0, questions=3, left_out=0.25, pruned=0.4,
          foveated=0.15, reworded=0.7, beside=0.3, language_only=True, scaled_styles=_LEGIBLE),
)  # fmt: skip
