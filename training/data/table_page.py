"""A part of a table drawn as a page: which rows and columns fit, where they stand, and where each cell's ink is."""

from collections.abc import Collection
from dataclasses import dataclass
from random import Random

from PIL import Image, ImageDraw, ImageFont

from training.data.examples import Box
from training.data.table_style import TableStyle, shortened, width_of, wrap
from training.world.canvas import CELL, scaled

TableCell = tuple[int, int]  # (row, column) of a table, rows counted from 0 below the header, which is row -1

_MARGIN = 4  # least space around the table, in pixels
_WIDE_WORD = 7  # times the font size: words that are wider may be broken where the text may be cut


@dataclass(frozen=True)
class Task:
    """What a page has to show: `rows` of a table below its `header`, above all the cell at `answer`.

    `needed` holds further cells and `mentioned` further rows and columns that should be seen if there is space. All texts
    have single spaces.
    """

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    answer: TableCell
    needed: tuple[TableCell, ...] = ()
    mentioned: tuple[TableCell, ...] = ()

    def text(self, row: int, column: int) -> str:
        """What stands in a cell."""
        return (self.header if row < 0 else self.rows[row])[column]

    def kept_whole(self) -> set[TableCell]:
        """Cells that are never cut: the answer, what is needed, and their headers."""
        cells = {self.answer, *self.needed}
        return cells | {(-1, column) for _, column in cells}


@dataclass(frozen=True)
class Plan:
    """The rows and columns of the table that are drawn, in order, with the lines of each cell (header first), and those of the
    title. `page` is the room there is, (height, width) in pixels before the page is stretched."""

    rows: tuple[int, ...]
    columns: tuple[int, ...]
    widths: tuple[int, ...]
    heights: tuple[int, ...]
    lines: tuple[tuple[tuple[str, ...], ...], ...]
    page: tuple[int, int]
    title: tuple[str, ...] = ()

    def whole(self, task: Task) -> set[TableCell]:
        """Cells of the plan's `task` that are drawn with all of their text, no word of it broken."""
        return {
            (row, column)
            for row, cells in zip((-1, *self.rows), self.lines, strict=True)
            for column, lines in zip(self.columns, cells, strict=True)
            if " ".join(lines).lower() == task.text(row, column).lower()
        }


class _Fitter:
    """Measures cells in a style, for `plan`."""

    def __init__(self, task: Task, style: TableStyle, room: tuple[int, int], rows: list[int]):
        self.task, self.style, self.room, self.rows = task, style, room, rows
        self.whole = task.kept_whole()
        self.must = sorted({row for row, _ in self.whole if row >= 0})
        self.known: dict[int, int] = {}  # least widths

    def text(self, row: int, column: int) -> tuple[str, ImageFont.FreeTypeFont]:
        if row >= 0:
            return self.task.text(row, column), self.style.body()
        text = self.task.text(row, column)
        return text.upper() if self.style.capitals else text, self.style.head()

    def lines(self, row: int, column: int, width: int) -> list[str]:
        text, font = self.text(row, column)
        lines = wrap(text, width, font)
        return lines if (row, column) in self.whole else shortened(lines, width, font)

    def least(self, column: int) -> int:
        """Width that the column can't go below: whole words, those of cells that may be cut only up to a limit."""
        if column not in self.known:
            widest = {True: 2 * self.style.size, False: 0}
            for row in (-1, *self.rows, *self.must):
                text, font = self.text(row, column)
                widths = [width_of(word, font) for word in text.split()]
                whole = (row, column) in self.whole
                widest[whole] = max([widest[whole], *widths])
            self.known[column] = max(widest[True], min(widest[False], _WIDE_WORD * self.style.size))
        return self.known[column]

    def wish(self, column: int) -> int:
        """Width that shows the column's cells on one line, or about half of that for long texts."""
        widths = [width_of(*self.text(row, column)) for row in (-1, *self.rows)]
        return max(self.least(column), min(max(widths), max(9 * self.style.size, max(widths) // 2)))

    def height(self, row: int, columns, widths) -> int:
        count = max(len(self.lines(row, column, width)) for column, width in zip(columns, widths, strict=True))
        return max(count, 1) * self.style.line() + 2 * self.style.pad_y

    def taken(self, columns, widths) -> int:
        return sum(widths) + 2 * self.style.pad_x * len(columns)


def plan(task: Task, style: TableStyle, page: tuple[int, int], random: Random, crop: bool = True) -> Plan | None:
    """What of the table fits on a page of `page` (height, width) pixels; None if the cells that are never cut don't.

    With `crop`, columns and rows are left out as far as needed: last those that are mentioned, and never those that hold
    a cell of `kept_whole`. Without it, None where the whole table doesn't fit.
    """
    order = _row_order(task, random)
    page = tuple(int(side / scale / CELL) * CELL for side, scale in zip(page, style.stretch, strict=True))
    most = max(1, page[0] // style.line())
    title = tuple(wrap(style.title, page[1] - 2 * _MARGIN, style.body()))
    room = page[0] - 2 * _MARGIN - len(title) * style.line(), page[1] - 2 * _MARGIN
    fitter = _Fitter(task, style, room, order[:most] if crop else order)
    columns = _columns(task, fitter, random, crop)
    rows = None if columns is None else _rows(fitter, columns, order, crop)
    if columns is not None and rows is None and crop:
        # a column for the answer alone is wider, and its text takes fewer lines
        columns = sorted({column for _, column in fitter.whole})
        rows = _rows(fitter, columns, order, crop)
    if rows is None:
        return None
    widths = _widths(fitter, columns)
    shown = (-1, *rows)
    lines = tuple(tuple(tuple(fitter.lines(r, c, w)) for c, w in zip(columns, widths, strict=True)) for r in shown)
    heights = tuple(fitter.height(row, columns, widths) for row in shown)
    return Plan(tuple(rows), tuple(columns), tuple(widths), heights, lines, page, title)


def _rows(fitter: _Fitter, columns: list[int], order: list[int], crop: bool) -> list[int] | None:
    """The rows that fit below the header, in the table's order; None if one that has to be there doesn't."""
    widths = _widths(fitter, columns)
    left, rows = fitter.room[0] - fitter.height(-1, columns, widths), []
    for row in order:
        height = fitter.height(row, columns, widths)
        if height <= left:
            rows.append(row)
            left -= height
        elif row in fitter.must or not crop:
            return None
        elif left < fitter.style.line():
            break
    return sorted(rows)


def _row_order(task: Task, random: Random) -> list[int]:
    """All rows, the most wanted first: answer and needed cells, mentioned ones, then the answer's neighbours outwards."""
    answer = task.answer[0]
    wanted = [answer, *(row for row, _ in task.needed), *(row for row, _ in task.mentioned)]
    above = random.random()  # share of the neighbours that stand above the answer
    distance = {
        row: (answer - row) / max(above, 1e-6) if row < answer else (row - answer) / max(1 - above, 1e-6)
        for row in range(len(task.rows))
    }
    return list(dict.fromkeys([*wanted, *sorted(distance, key=lambda row: (distance[row], row))]))


def _columns(task: Task, fitter: _Fitter, random: Random, crop: bool) -> list[int] | None:
    """The columns that fit at their least widths, in the table's order."""
    must = list(dict.fromkeys(column for _, column in fitter.whole))
    others = list(range(1, len(task.header)))
    random.shuffle(others)
    order = list(dict.fromkeys([*must, *(column for _, column in task.mentioned), 0, *others]))
    chosen: list[int] = []
    for column in order:
        tried = [*chosen, column]
        if fitter.taken(tried, [fitter.least(each) for each in tried]) <= fitter.room[1]:
            chosen = tried
        elif column in must or not crop:
            return None
    return sorted(chosen)


def _widths(fitter: _Fitter, columns: list[int]) -> list[int]:
    """Widths between the least and the wished ones, shrunk by one share where the wishes take too much."""
    least = [fitter.least(column) for column in columns]
    wish = [fitter.wish(column) for column in columns]
    over = fitter.taken(columns, wish) - fitter.room[1]
    if over < 0 and fitter.style.wide:
        wish = [width + -over // len(columns) for width in wish]
    spare = sum(wish) - sum(least)
    share = max(0.0, 1 - over / spare) if over > 0 else 1.0
    return [low + int((high - low) * share) for low, high in zip(least, wish, strict=True)]


def draw(
    style: TableStyle, plan: Plan, random: Random, boxed: Collection[TableCell] = (), ink: bool = True
) -> tuple[Image.Image, dict[TableCell, tuple[Box, ...]]]:
    """The page, its sides multiples of the token cell, and the boxes of the ink of each `boxed` cell that the plan shows, one
    per line of its text.

    Without `ink` the page stays empty: quicker where the boxes alone are wanted.
    """
    above = len(plan.title) * style.line()
    table = (sum(plan.widths) + 2 * style.pad_x * len(plan.columns), sum(plan.heights))
    taken = max(table[0], *(width_of(line, style.body()) for line in (*plan.title, ""))), table[1] + above
    size = [-(-(side + 2 * _MARGIN) // CELL) * CELL for side in taken]
    left, top = (random.randint(_MARGIN, whole - side - _MARGIN) for whole, side in zip(size, taken, strict=True))
    image = Image.new("RGB", plan.page[::-1] if style.whole_page else tuple(size), style.paper)
    pen = ImageDraw.Draw(image)
    if ink:
        for number, line in enumerate(plan.title):
            pen.text((left, top + number * style.line()), line, font=style.body(), fill=style.ink)
        _draw_lines(pen, style, plan, left, top + above, table[0])
    boxes: dict[TableCell, tuple[Box, ...]] = {}
    y = top + above
    for row, height, cells in zip((-1, *plan.rows), plan.heights, plan.lines, strict=True):
        x = left
        for column, width, lines in zip(plan.columns, plan.widths, cells, strict=True):
            font = style.head() if row < 0 else style.body()
            down = (height - 2 * style.pad_y - len(lines) * style.line()) // 2 if style.middle else 0
            corner = (x + style.pad_x, y + style.pad_y + down)
            placed = list(_placed(style, font, lines, corner, width)) if ink or (row, column) in boxed else []
            if ink:
                for place, line in placed:
                    pen.text(place, line, font=font, fill=style.ink_of(row))
            if (row, column) in boxed:
                boxes[row, column] = tuple(
                    tuple(int(edge) for edge in pen.textbbox(place, line, font=font)) for place, line in placed
                )
            x += width + 2 * style.pad_x
        y += height
    return _stretched(style, image, boxes)


def _stretched(style: TableStyle, image: Image.Image, boxes: dict[TableCell, tuple[Box, ...]]):
    """The page and its boxes, drawn larger or smaller as the style says; its sides stay multiples of the token cell."""
    if style.stretch == (1, 1):
        return image, boxes
    sides = [
        max(1, round(side * scale / CELL)) * CELL for side, scale in zip(image.size, style.stretch[::-1], strict=True)
    ]
    across, down = sides[0] / image.width, sides[1] / image.height
    size = sides[0], sides[1]
    stretched = {cell: tuple(scaled(box, across, down, size) for box in found) for cell, found in boxes.items()}
    return image.resize(size, Image.Resampling.BICUBIC), stretched


def _placed(style: TableStyle, font, lines, corner: tuple[int, int], width: int):
    """((x, y), text) of each line of a cell."""
    align = style.align
    if align == "figures":
        align = "left" if any(letter.isalpha() for line in lines for letter in line) else "right"
    for number, line in enumerate(lines):
        spare = width - width_of(line, font)
        x = corner[0] + {"left": 0, "centre": spare // 2, "right": spare}[align]
        yield (x, corner[1] + number * style.line()), line


def _draw_lines(pen, style: TableStyle, plan: Plan, left: int, top: int, width: int) -> None:
    """Everything but the text: rules and shades by the style's look."""
    right = left + width - 1
    y = top
    for number, height in enumerate(plan.heights):
        striped = style.look == "zebra" and number % 2 == 0
        if number == 0 and style.header_colours:
            pen.rectangle((left, y, right, y + height - 1), fill=style.header_colours[0])
        elif striped or (style.look == "shaded" and number == 0):
            pen.rectangle((left, y, right, y + height - 1), fill=style.shade)
        y += height
        if style.look in ("ruled", "rows") or (number == 0 and style.look in ("plain", "shaded")):
            pen.line((left, y - 1, right, y - 1), fill=style.ink if style.look in ("plain", "shaded") else style.shade)
        elif style.look == "dotted":
            for x in range(left, right, 3):
                pen.point((x, y - 1), fill=style.ink)
    if style.look == "ruled":
        pen.line((left, top, right, top), fill=style.shade)
        x = left
        for column in (0, *plan.widths):
            x += column + 2 * style.pad_x if column else 0
            pen.line((min(x, right), top, min(x, right), y - 1), fill=style.shade)
