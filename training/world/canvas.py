"""A page under construction: what is drawn where, which places are taken, and where each character stands."""

import math
from dataclasses import dataclass, field
from functools import lru_cache
from random import Random

from PIL import Image, ImageDraw

from training.world.fonts import load_font

CELL = 16  # pixels per merged token and side
SMALLEST = 9  # pixels per em

Box = tuple[int, int, int, int]  # left, top, right, bottom in pixels, right and bottom exclusive
Point = tuple[float, float]  # x, y in pixels
Glyph = tuple[str, float, float]  # a character and its centre (x, y) in pixels
Colour = tuple[int, int, int]


def scaled(box: Box, across: float, down: float, size: tuple[int, int]) -> Box:
    """The box on a page of `size` (width, height) that was drawn `across` and `down` times as large: outwards, so that it loses no
    ink."""
    left, top, right, bottom = box
    return (
        int(left * across), int(top * down), min(size[0], math.ceil(right * across)), min(size[1], math.ceil(bottom * down))
    )  # fmt: skip


def inner(box: Box) -> Box:
    """The box as PIL draws it, which takes in its last row and column."""
    return box[0], box[1], box[2] - 1, box[3] - 1


@dataclass(frozen=True)
class Thing:
    """One drawn thing: the box of its ink in pixels, and the names, of `words.KEYS`, by which a question can ask for it."""

    box: Box
    names: tuple[str, ...]


@dataclass(frozen=True)
class Written:
    """One written line: the box of its ink in pixels, and the centre of each of its characters, spaces too."""

    box: Box
    centres: tuple[Point, ...]


@dataclass
class Canvas:
    """An RGB image being drawn, `width` x `height` pixels, with the boxes already taken, the glyphs and texts written, and the
    things that can be asked for."""

    width: int
    height: int
    paper: Colour
    ink: Colour
    taken: list[Box] = field(default_factory=list)
    glyphs: list[Glyph] = field(default_factory=list)
    texts: list[tuple[str, Box]] = field(default_factory=list)
    things: list[Thing] = field(default_factory=list)

    def __post_init__(self):
        self.image = Image.new("RGB", (self.width, self.height), self.paper)
        self.draw = ImageDraw.Draw(self.image)

    def is_free(self, box: Box, margin: int) -> bool:
        """Whether the box with that margin is on the page and touches nothing that is taken."""
        left, top, right, bottom = box[0] - margin, box[1] - margin, box[2] + margin, box[3] + margin
        if box[0] < 1 or box[1] < 1 or box[2] > self.width - 1 or box[3] > self.height - 1:
            return False
        return all(right <= t[0] or left >= t[2] or bottom <= t[1] or top >= t[3] for t in self.taken)

    def find_place(self, random: Random, width: int, height: int, margin: int, tries: int = 40) -> Box | None:
        """A free box of that size anywhere on the page, or None where none was found."""
        if width > self.width - 2 or height > self.height - 2:
            return None
        for _ in range(tries):
            left = random.randint(1, self.width - 1 - width)
            top = random.randint(1, self.height - 1 - height)
            box = (left, top, left + width, top + height)
            if self.is_free(box, margin):
                return box
        return None

    def mixed(self, ink: float) -> Colour:
        """The paper's colour with that share of the ink's."""
        return tuple(round((1 - ink) * p + ink * i) for p, i in zip(self.paper, self.ink, strict=True))

    def write(
        self,
        text: str,
        left: int,
        baseline: int,
        font: str,
        size: int,
        fill: Colour,
        names: tuple[str, ...] = (),
    ) -> Written:
        """Writes one line, a thing where it has names."""
        loaded = load_font(font, size)
        self.draw.text((left, baseline), text, font=loaded, fill=fill, anchor="ls")
        middle = baseline - 0.36 * size
        advances = [_advance(character, font, size) for character in text]
        # kerning is spread over the line: less than a pixel at each character
        share, before, centres = loaded.getlength(text) / sum(advances), 0.0, []
        for character, advance in zip(text, advances, strict=True):
            centres.append((left + (before + advance / 2) * share, middle))
            before += advance
            if character != " ":
                self.glyphs.append((character, *centres[-1]))
        y0, y1 = loaded.getbbox(text, anchor="ls")[1::2]
        # getbbox goes from the pen's start to its end; the ink begins and ends with the outer characters
        first, last = _ink(text[0], font, size)[0], _ink(text[-1], font, size)[1]
        start = loaded.getlength(text[:-1])
        box = (
            max(0, left + first), max(0, baseline + int(y0)),
            min(self.width, left + round(start) + last), min(self.height, baseline + int(y1)),
        )  # fmt: skip
        self.texts.append((text, box))
        if names:
            self.things.append(Thing(box, names))
        return Written(box, tuple(centres))


@lru_cache(maxsize=32768)
def _advance(character: str, font: str, size: int) -> float:
    return load_font(font, size).getlength(character)


@lru_cache(maxsize=32768)
def _ink(character: str, font: str, size: int) -> tuple[int, int]:
    # where a character's ink begins and ends, in pixels from the pen
    mask, offset = load_font(font, size).getmask2(character, anchor="ls")
    left, _, right, _ = mask.getbbox() or (0, 0, mask.size[0], 0)
    return offset[0] + left, offset[0] + right


@lru_cache(maxsize=65536)
def text_width(text: str, font: str, size: int) -> int:
    """The width in pixels that `Canvas.write` needs for the text."""
    return int(load_font(font, size).getlength(text)) + 1


def centre(box: Box) -> Point:
    """The middle of a box."""
    return ((box[0] + box[2]) / 2, (box[1] + box[3]) / 2)
