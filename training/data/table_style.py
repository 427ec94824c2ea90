"""How a drawn table looks, and how its texts are measured and broken into lines."""

from dataclasses import dataclass, replace
from functools import lru_cache
from random import Random

from fontTools.ttLib import TTFont
from PIL import ImageFont

from training.world.fonts import load_font

LOOKS = ("ruled", "zebra", "plain", "shaded")
VARIED_LOOKS = (*LOOKS, "rows", "dotted")
_FALLBACK = "dejavu"  # covers the most letters
_BOLD = {"mono", "dejavu", "roboto", "source sans", "source serif", "lato", "caladea"}
_LINES = 2  # of a cell whose text may be cut
_ELLIPSIS = "..."


@dataclass(frozen=True)
class TableStyle:
    """How a table is drawn; sizes in pixels of the page before `stretch`."""

    look: str  # one of VARIED_LOOKS
    font: str
    size: int
    pad_x: int
    pad_y: int
    paper: tuple[int, int, int]
    ink: tuple[int, int, int]
    shade: tuple[int, int, int]
    align: str  # left, centre, right, or figures: texts without letters to the right, others to the left
    bold_header: bool
    middle: bool = False  # lines stand in the middle of their row, not at its top
    wide: bool = False  # columns share the whole width of the page
    whole_page: bool = False  # the page has its largest size, the table stands at its corner
    capitals: bool = False  # of the header
    title: str = ""  # stands above the table
    header_colours: tuple[tuple[int, int, int], tuple[int, int, int]] | None = None  # paper and ink
    stretch: tuple[float, float] = (1.0, 1.0)  # of the drawn page, height and width

    def body(self) -> ImageFont.FreeTypeFont:
        """The font of the body."""
        return load_font(self.font, self.size)

    def head(self) -> ImageFont.FreeTypeFont:
        """The font of the header."""
        return load_font(f"{self.font} bold" if self.bold_header and self.font in _BOLD else self.font, self.size)

    def ink_of(self, row: int) -> tuple[int, int, int]:
        """The colour of a row's text, -1 for the header's."""
        return self.header_colours[1] if self.header_colours and row < 0 else self.ink

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
        align="centre" if random.random() < 0.25 else "left",
        bold_header=random.random() < 0.7,
    )


def vary(style: TableStyle, random: Random, header: tuple[str, ...]) -> TableStyle:
    """`style` with what tables elsewhere have: dark paper, coloured headers, other rules, gaps and alignments, a title, texts
    that are drawn smaller, larger, narrower or wider."""
    dark = random.random() < 0.2
    paper = tuple(random.randint(10, 50) for _ in range(3)) if dark else style.paper
    ink = tuple(random.randint(190, 255) for _ in range(3)) if dark else style.ink
    full = tuple(random.randint(20, 130) for _ in range(3)), tuple(random.randint(215, 255) for _ in range(3))
    size, narrow = random.uniform(0.85, 1.2), random.uniform(0.85, 1.12)
    return replace(
        style,
        look=random.choice(VARIED_LOOKS),
        pad_x=random.randint(2, 8),
        pad_y=random.randint(0, 5),
        paper=paper,
        ink=ink,
        shade=tuple(value + random.randint(14, 60) * (1 if dark else -1) for value in paper),
        align=random.choice(("left", "left", "centre", "right", "figures")),
        middle=random.random() < 0.6,
        wide=random.random() < 0.3,
        whole_page=random.random() < 0.5,
        capitals=random.random() < 0.15,
        title=random.choice(("", "", f"Table {random.randint(1, 9)}. {random.choice(header)}", "Results (see notes)")),
        header_colours=full if random.random() < 0.3 else None,
        stretch=(size, size * narrow),
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
