"""How a drawn table looks, and how its texts are measured and broken into lines."""

from dataclasses import dataclass
from functools import lru_cache
from random import Random

from fontTools.ttLib import TTFont
from PIL import ImageFont

from training.world.fonts import load_font

LOOKS = ("ruled", "zebra", "plain", "shaded")
_FALLBACK = "dejavu"  # covers the most letters
_BOLD = {"mono", "dejavu", "roboto", "source sans", "source serif", "lato", "caladea"}
_LINES = 2  # of a cell whose text may be cut
_ELLIPSIS = "..."


@dataclass(frozen=True)
class TableStyle:
    """How a table is drawn; sizes in pixels."""

    look: str  # ruled, zebra, plain or shaded
    font: str
    size: int
    pad_x: int
    pad_y: int
    paper: tuple[int, int, int]
    ink: tuple[int, int, int]
    shade: tuple[int, int, int]
    centred: bool
    bold_header: bool

    def body(self) -> ImageFont.FreeTypeFont:
        """The font of the body."""
        return load_font(self.font, self.size)

    def head(self) -> ImageFont.FreeTypeFont:
        """The font of the header."""
        return load_font(f"{self.font} bold" if self.bold_header and self.font in _BOLD else self.font, self.size)

    def line(self) -> int:
        """Height of a line."""
        return max(sum(font.getmetrics()) for font in (self.body(), self.head()))


def pick_style(random: Random, fonts: tuple[str, ...], sizes: tuple[int, int], text: str) -> TableStyle | None:
    """A style whose font has all letters of `text`; None if no font has."""
    able = [font for font in fonts if covers(font, text)] or [font for font in (_FALLBACK,) if covers(font, text)]
    if not able:
        return None
    paper = tuple(random.randint(232, 255) for _ in range(3))
    return TableStyle(
        look=random.choice(LOOKS),
        font=random.choice(able),
        size=random.randint(*sizes),
        pad_x=random.randint(3, 5),
        pad_y=random.randint(1, 3),
        paper=paper,
        ink=tuple(random.randint(0, 70) for _ in range(3)),
        shade=tuple(value - random.randint(14, 40) for value in paper),
        centred=random.random() < 0.25,
        bold_header=random.random() < 0.7,
    )


@lru_cache(maxsize=64)
def _letters(font: str) -> frozenset[int]:
    return frozenset(TTFont(load_font(font, 12).path).getBestCmap())


def covers(font: str, text: str) -> bool:
    """Whether the font, and its bold one, has a glyph for every character of the text."""
    names = (font, f"{font} bold") if font in _BOLD else (font,)
    return all(ord(character) in _letters(name) for name in names for character in set(text) - {" "})


@lru_cache(maxsize=200_000)
def width_of(text: str, font: ImageFont.FreeTypeFont) -> int:
    """Width of the text in one line, in whole pixels, rounded up."""
    return -int(-font.getlength(text) // 1)


def wrap(text: str, width: int, font: ImageFont.FreeTypeFont) -> list[str]:
    """`text` in lines of at most `width` pixels, broken at spaces, and inside of words that are wider."""
    lines, line = [], ""
    for word in text.split():
        joined = f"{line} {word}".lstrip()
        if width_of(joined, font) <= width:
            line = joined
            continue
        if line:
            lines.append(line)
        while width_of(word, font) > width and len(word) > 1:
            cut = max(1, next(n for n in range(len(word), -1, -1) if width_of(word[:n], font) <= width))
            lines.append(word[:cut])
            word = word[cut:]
        line = word
    return [*lines, line] if line else lines


def shortened(lines: list[str], width: int, font: ImageFont.FreeTypeFont) -> list[str]:
    """At most `_LINES` of the lines, the last with an ellipsis if there were more."""
    if len(lines) <= _LINES:
        return lines
    last = lines[_LINES - 1]
    while last and width_of(last + _ELLIPSIS, font) > width:
        last = last[:-1]
    return [*lines[: _LINES - 1], last.rstrip() + _ELLIPSIS]
