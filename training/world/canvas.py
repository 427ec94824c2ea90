"""A page under construction: what is drawn where, which places are taken, and where each character stands."""

from dataclasses import dataclass, field
from random import Random

from PIL import Image, ImageDraw

from training.world.fonts import load_font

Box = tuple[int, int, int, int]  # left, top, right, bottom in pixels, right and bottom exclusive
Glyph = tuple[str, float, float]  # a character and its centre (x, y) in pixels


@dataclass
class Canvas:
    """An RGB image being drawn, `width` x `height` pixels, with the boxes already taken and the glyphs written."""

    width: int
    height: int
    paper: tuple[int, int, int]
    ink: tuple[int, int, int]
    taken: list[Box] = field(default_factory=list)
    glyphs: list[Glyph] = field(default_factory=list)
    owner: int = 0  # 1 + the label of the field being written, 0 for other text
    owners: list[int] = field(default_factory=list)  # of each glyph

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

    def write(
        self, text: str, left: int, baseline: int, font: str, size: int, fill: tuple[int, int, int], pitch: int = 0
    ) -> Box:
        """Writes one line and returns the box of its ink; with a `pitch`, every character takes that many pixels."""
        loaded = load_font(font, size)
        if pitch:
            for index, character in enumerate(text):
                self.draw.text((left + index * pitch, baseline), character, font=loaded, fill=fill, anchor="ls")
        else:
            self.draw.text((left, baseline), text, font=loaded, fill=fill, anchor="ls")
        middle = baseline - 0.36 * size
        before = 0.0
        for index, character in enumerate(text):
            after = (index + 1) * pitch if pitch else loaded.getlength(text[: index + 1])
            if character != " ":
                self.glyphs.append((character, left + (before + after) / 2, middle))
                self.owners.append(self.owner)
            before = after
        x0, y0, x1, y1 = loaded.getbbox(text, anchor="ls")
        right = len(text) * pitch if pitch else x1
        return (left + min(0, x0), baseline + y0, left + right, baseline + y1)


def text_width(text: str, font: str, size: int, pitch: int = 0) -> int:
    """The width in pixels that `Canvas.write` needs for the text."""
    return len(text) * pitch if pitch else int(load_font(font, size).getlength(text)) + 1
