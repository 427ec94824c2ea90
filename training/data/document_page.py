"""An everyday page drawn: how its lines stand, and where the ink of each text is."""

import math
from dataclasses import dataclass
from random import Random

from PIL import Image, ImageDraw, ImageFont

from training.data.document_content import Block, Content, Text
from training.data.document_variety import Tiles
from training.data.examples import Box
from training.data.table_numbers import numbers_in
from training.data.table_style import TableStyle, width_of
from training.world.canvas import CELL

LAYOUTS = {
    "pairs": ("apart", "beside", "columns", "stacked", "cards", "right"),
    "rows": ("apart", "apart", "columns", "beside", "stacked", "bars"),
    "records": ("columns", "wide_columns", "folded", "folded", "cards", "stacked", "beside"),
    "headed": ("columns", "right", "wide_columns", "wide_columns"),
    "text": ("prose", "bubbles", "bullets"),
    "bar": ("apart", "beside"),
}
VARIED_LAYOUTS = {"pairs": ("tiles",) * 18 + ("wide_columns",) * 8, "rows": ("tiles",) * 12}  # of varied pages, besides
_MARKS = (".", ",", ":", "!", "?")


@dataclass(frozen=True)
class Placed:
    """A text where it stands: the corner (x, y) of its first letter's line, and its font."""

    text: Text
    x: int
    y: int
    font: ImageFont.FreeTypeFont


class Page:
    """Places those of a content's lines that fit on a page of (height, width) pixels; `placed` holds them, `shapes` what is drawn
    behind them, `layouts` how each block stands. `varied` pages have tiles, values far from their labels and wide lines, too."""

    def __init__(
        self, content: Content, style: TableStyle, room: tuple[int, int], random: Random, varied: bool = False
    ):
        self.varied, self.style, self.random, (self.height, self.width) = varied, style, random, room
        self.margin = random.randint(2, 12)
        self.gap = random.randint(4, 14)  # between the texts of a line
        self.step = style.line() + style.pad_y + random.randint(0, 3)  # from line to line
        if varied and random.random() < 0.3:
            self.step += random.randint(0, 2 * style.line())  # few lines on much paper
        self.placed: list[Placed] = []
        self.shapes: list[tuple[str, tuple[int, int, int, int]]] = []
        self.top, self.lines, self.rules = self.margin, 0, ""
        self.pale = random.random() < 0.25  # labels in a paler ink
        self.labels = {line[0] for block in content.blocks if block.shape == "pairs" for line in block.lines}
        self.layouts: list[str] = []
        if content.title:
            self._title(content.title)
        for block in content.blocks:
            self._block(block)

    def _block(self, block: Block) -> None:
        """Places a block in one of its layouts, the first that has room for any of it."""
        ways = [*LAYOUTS[block.shape], *(VARIED_LAYOUTS.get(block.shape, ()) if self.varied else ())]
        self.random.shuffle(ways)
        said = block.lines[block.shape == "headed" :]  # headers alone say nothing
        needed = {text for line in said for text in line}
        top = self.top + (self.random.randint(0, 8) if self.layouts else 0)
        placed, shapes = len(self.placed), len(self.shapes)
        for layout in dict.fromkeys(ways):
            self.top, self.rules = top, self.random.choice(("", "", "line", "dotted", "zebra"))
            getattr(self, f"_{layout}")(block.lines)
            if any(one.text in needed for one in self.placed[placed:]):
                self.layouts.append(layout)
                return
            del self.placed[placed:], self.shapes[shapes:]
        self.top = top
        if block.shape == "headed":  # columns too wide for the page
            self._block(Block("records", block.lines[1:]))

    def _title(self, text: Text) -> None:
        font = self.style.head().font_variant(size=self.style.size + self.random.randint(0, 6))
        width = width_of(text.text, font)
        x = self.random.choice((self.margin, max(self.margin, (self.width - width) // 2)))
        if x + width <= self.width:
            self.placed.append(Placed(text, x, self.top, font))
            self.top += sum(font.getmetrics()) + self.random.randint(0, 5)

    def _font(self, text: Text) -> ImageFont.FreeTypeFont:
        return self.style.head() if text.strong else self.style.body()

    def _wide(self, text: Text) -> int:
        return width_of(text.text, self._font(text))

    def _fits(self, texts: tuple[Text, ...], xs: list[int]) -> bool:
        """Whether texts at their x stay on the page and apart."""
        end = max(x + self._wide(text) for text, x in zip(texts, xs, strict=True))
        crossed = any(x + self._wide(text) + 2 > after for text, x, after in zip(texts, xs, xs[1:], strict=False))
        return end <= self.width - 1 and not crossed

    def _line(self, texts: tuple[Text, ...], xs: list[int]) -> bool:
        """Places texts at their x on the next line; False where they don't fit."""
        if not self._fits(texts, xs) or self.top + self.step > self.height:
            return False
        self.lines += 1
        if self.rules == "zebra" and self.lines % 2:
            self.shapes.append(("shade", (0, self.top - 1, self.width, self.top + self.step - 2)))
        elif self.rules in ("line", "dotted"):
            self.shapes.append((self.rules, (self.margin, self.top + self.step - 1, self.width - self.margin, 0)))
        for text, x in zip(texts, xs, strict=True):
            self.placed.append(Placed(text, x, self.top, self._font(text)))
        self.top += self.step
        return True

    def _apart(self, lines) -> None:
        for texts in lines:
            self._line(texts, self._ends(texts))

    def _ends(self, texts) -> list[int]:
        """Where texts stand that share the whole width."""
        free = self.width - 2 * self.margin - sum(map(self._wide, texts))
        xs, x = [], self.margin
        for text in texts:
            xs.append(int(x))
            x += self._wide(text) + free / max(1, len(texts) - 1)
        return xs

    def _side_by_side(self, texts, left: int) -> list[int]:
        xs, x = [], left
        for text in texts:
            xs.append(x)
            x += self._wide(text) + self.gap
        return xs

    def _beside(self, lines) -> None:
        for texts in lines:
            self._line(texts, self._side_by_side(texts, self.margin))

    def _columns(self, lines, right: bool = False, wide: bool = False) -> None:
        most = max(len(texts) for texts in lines)
        widths = [max((self._wide(t[n]) for t in lines if n < len(t)), default=0) for n in range(most)]
        free = self.width - 2 * self.margin - sum(widths)
        gap = max(self.gap, free // max(1, most - 1)) if wide else self.gap
        for texts in lines:
            xs = [self.margin + sum(widths[:n]) + n * gap for n in range(len(texts))]
            if right:
                xs = [x + width - self._wide(t) for x, width, t in zip(xs, widths, texts, strict=False)]
            self._line(texts, xs)

    def _right(self, lines) -> None:
        self._columns(lines, right=True)

    def _wide_columns(self, lines) -> None:
        self._columns(lines, wide=True)

    def _folded(self, lines) -> None:
        """Each in two lines: the first and the last text apart in the upper one, the others in the lower one."""
        indent = self.margin + self.random.choice((0, 0, 8))
        for texts in lines:
            if self.top + 2 * self.step > self.height:
                break
            upper, lower = ((texts[0], texts[-1]), texts[1:-1]) if len(texts) > 2 else (texts[:1], texts[1:])
            rows = [(upper, self._ends(upper)), *([(lower, self._side_by_side(lower, indent))] if lower else [])]
            if all(self._fits(*row) for row in rows):
                for row in rows:
                    self._line(*row)
                self.top += self.random.randint(0, 3)

    def _stacked(self, lines) -> None:
        for texts in lines:
            if self.top + len(texts) * self.step > self.height:
                break
            if all(self._fits((text,), [self.margin]) for text in texts):
                for text in texts:
                    self._line((text,), [self.margin])
                self.top += self.random.randint(0, 4)

    def _cards(self, lines) -> None:
        across, most = self.random.choice((2, 2, 3)), max(map(len, lines))
        width, high = (self.width - 2 * self.margin) // across, most * self.step + 6
        self.rules = ""
        for first in range(0, len(lines), across):
            if self.top + high > self.height:
                break
            for place, texts in enumerate(lines[first : first + across]):
                left = self.margin + place * width
                if max(map(self._wide, texts)) > width - 8:
                    continue
                self.shapes.append(("box", (left, self.top, left + width - 4, self.top + high - 3)))
                for number, text in enumerate(texts):
                    self.placed.append(Placed(text, left + 4, self.top + 2 + number * self.step, self._font(text)))
            self.top += high

    def _tiles(self, lines) -> None:
        """Side by side in tiles, each a value and its label in sizes of their own; one that is too wide is left out."""
        tiles = Tiles.pick(self.style, self.random)
        wide = (self.width - 2 * self.margin) // tiles.across
        for first in range(0, len(lines), tiles.across):
            row = [tiles.place(texts, self.style.body()) for texts in lines[first : first + tiles.across]]
            high = max(high for _, _, high in row) + tiles.below
            if self.top + high > self.height:
                break
            for place, (texts, width, _) in enumerate(row):
                left = self.margin + place * wide
                if width > wide - 6:
                    continue
                if tiles.framed:
                    self.shapes.append(("box", (left, self.top, left + wide - 4, self.top + high - 2)))
                left += 3 + ((wide - 6 - width) // 2 if tiles.middle else 0)
                self.placed += [Placed(text, left + x, self.top + y, font) for text, font, x, y in texts]
            self.top += high

    def _bars(self, lines) -> None:
        self.rules = ""
        left = self.margin + max(self._wide(texts[0]) for texts in lines) + 4
        for texts, length in zip(lines, self._lengths([texts[-1].text for texts in lines]), strict=True):
            top = self.top
            if self._line((texts[0], texts[-1]), [self.margin, left + length + 4]):
                self.shapes.append(("bar", (left, top + 2, left + length, top + self.style.line() - 3)))

    def _lengths(self, values: list[str]) -> list[int]:
        """How long the bars of values are: as these are to the largest, or of any length where they can't be compared."""
        numbers, longest = numbers_in(values), max(5, self.width // 3)
        if not numbers or not max(numbers):
            return [self.random.randint(4, longest) for _ in values]
        return [max(1, round(longest * number / max(numbers))) for number in numbers]

    def _flow(self, texts, left: int, right: int) -> list[list[tuple[Text, int]]]:
        """The texts in lines from `left` to `right`."""
        space, rows, x = width_of(" ", self.style.body()) or 3, [[]], left
        for text in texts:
            mark = text.text in _MARKS  # stands right behind what it follows
            if x > left and not mark and x + self._wide(text) > right:
                rows.append([])
                x = left
            x -= space if mark and x > left else 0
            rows[-1].append((text, x))
            x += self._wide(text) + space
        return rows

    def _paragraph(self, texts, left: int, right: int) -> bool:
        rows = self._flow(texts, left, right)
        if self.top + len(rows) * self.step > self.height or any(
            x + self._wide(t) > self.width for r in rows for t, x in r
        ):
            return False
        for row in rows:
            self.placed += [Placed(text, x, self.top, self._font(text)) for text, x in row]
            self.top += self.step
        return True

    def _prose(self, lines) -> None:
        self._paragraph([text for texts in lines for text in texts], self.margin, self.width - self.margin)

    def _bullets(self, lines) -> None:
        sign = self.random.choice(("-", "*", "1."))
        for number, texts in enumerate(lines):
            mark = Text(f"{number + 1}." if sign == "1." else sign)
            if self._paragraph([mark, *texts], self.margin, self.width - self.margin):
                self.top += self.random.randint(0, 4)

    def _bubbles(self, lines) -> None:
        for number, texts in enumerate(lines):
            room = int(self.width * self.random.uniform(0.6, 0.9)) - 2 * self.margin
            long = max(x + self._wide(t) for row in self._flow(texts, 0, room) for t, x in row)
            left = self.margin + 4 if number % 2 == 0 else max(self.margin, self.width - self.margin - long - 4)
            top = self.top
            if self._paragraph(texts, left, left + room):
                self.shapes.append(("bubble", (left - 4, top - 1, left + long + 4, self.top)))
                self.top += 5

    def draw(self) -> Image.Image:
        """The page's picture."""
        image = Image.new("RGB", (self.width, self.height), self.style.paper)
        pen = ImageDraw.Draw(image)
        for kind, (left, top, right, bottom) in self.shapes:
            if kind in ("shade", "bubble"):
                pen.rounded_rectangle((left, top, right, bottom), 4 if kind == "bubble" else 0, fill=self.style.shade)
            elif kind == "box":
                pen.rounded_rectangle((left, top, right, bottom), 3, outline=self.style.shade)
            elif kind == "bar":
                pen.rectangle((left, top, right, bottom), fill=(self.style.header_colours or (self.style.shade,))[0])
            else:
                for x in range(left, right, 1 if kind == "line" else 3):
                    pen.point((x, top), fill=self.style.shade)
        for one in self.placed:
            pen.text((one.x, one.y), one.text.text, font=one.font, fill=self._ink(one.text))
        return image

    def _ink(self, text: Text) -> tuple[int, int, int]:
        if not (self.pale and text in self.labels):
            return self.style.ink
        return tuple((3 * ink + 2 * paper) // 5 for ink, paper in zip(self.style.ink, self.style.paper, strict=True))

    def box(self, text: Text) -> Box | None:
        """The box of a text's ink, `None` where it has no place."""
        pen = ImageDraw.Draw(Image.new("L", (1, 1)))
        for one in self.placed:
            if one.text is text:
                left, top, right, bottom = pen.textbbox((one.x, one.y), text.text, font=one.font)
                return (
                    max(0, math.floor(left)),
                    max(0, math.floor(top)),
                    min(self.width, math.ceil(right)),
                    min(self.height, math.ceil(bottom)),
                )
        return None


def room_of(page_cells: tuple[int, int], style: TableStyle) -> tuple[int, int]:
    """(height, width) in pixels of a page before it is stretched."""
    return tuple(
        max(4 * CELL, round(side * CELL / scale)) for side, scale in zip(page_cells, style.stretch, strict=True)
    )
