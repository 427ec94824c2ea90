"""Tables of named rows and columns, looked up by both names, or by a column's value."""

from dataclasses import dataclass
from random import Random

from training.world import words
from training.world.canvas import SMALLEST, Canvas, Written, text_width
from training.world.layout import TableLayout, pick_value
from training.world.question import Question, found, placeless, written
from training.world.styles import Style

_ROWS, _COLUMNS = (2, 5), (2, 4)
_PAD = 3  # pixels at each side of a cell's text


@dataclass
class _Table:
    kind: str
    rows: list[str]
    columns: list[str]
    values: list[list[str]]  # by row, then column
    font: str
    size: int = SMALLEST

    def texts(self, column: int) -> list[str]:
        """The texts of a column from its header down; column 0 holds the row names."""
        if column == 0:
            return ["", *self.rows]
        return [self.columns[column - 1], *(row[column - 1] for row in self.values)]

    def widths(self) -> list[int]:
        """The width of each column in pixels, padding included."""
        return [
            max(text_width(text, self.font, self.size) for text in self.texts(column)) + 2 * _PAD
            for column in range(len(self.columns) + 1)
        ]

    def row_height(self) -> int:
        """In pixels, padding included."""
        return round(self.size * 1.3) + 3


def draw_table(canvas: Canvas, random: Random, layout: TableLayout, split: str, style: Style) -> list[Question]:
    """Draws a table that fits the page and asks for all of its cells, by cell and by row; none where it doesn't fit."""
    table = _choose(random, split, style)
    if not _fit(table, canvas, random.randint(*style.font_sizes), layout.title == "line"):
        return []
    widths, height = table.widths(), table.row_height()
    spare = canvas.width - 4 - sum(widths)
    widths = [width + random.randint(0, min(spare // len(widths), 2 * width)) for width in widths]
    rows = len(table.rows) + 1
    height += random.randint(0, min(height // 2, (canvas.height - 4 - _title_height(table, layout)) // rows - height))
    left = 2 + random.randint(0, canvas.width - 4 - sum(widths))
    top = 2 + random.randint(0, canvas.height - 4 - _title_height(table, layout) - rows * height)
    canvas.taken.append((left, top, left + sum(widths), top + _title_height(table, layout) + rows * height))
    if layout.title == "line":
        title = random.choice(words.TITLES)
        canvas.write(title, left + _PAD, top + table.size, table.font, table.size, canvas.ink)
        top += _title_height(table, layout)
    edges = [left + sum(widths[:index]) for index in range(len(widths) + 1)]
    _draw_rules(canvas, layout, edges, top, height, rows)
    return _ask(random, table, _write_cells(canvas, layout, table, edges, top, height))


def ask_absent_cell(random: Random, kind_and_names: list[str]) -> Question:
    """A question for a row that is not in the table; the names are all that the table shows."""
    rows = [name for name in words.ROW_NAMES if name not in kind_and_names]
    column = random.choice([name for name in words.COLUMNS if name in kind_and_names])
    text = random.choice(words.TABLE_QUESTIONS).format(column=column.lower(), row=random.choice(rows))
    return placeless(text, words.ABSENT, "absent")


def _choose(random: Random, split: str, style: Style) -> _Table:
    kind = random.choice(sorted(words.ROWS))
    rows = random.sample(words.ROWS[kind], random.randint(*_ROWS))
    columns = random.sample(words.COLUMNS, random.randint(*_COLUMNS))
    by_column = []
    for _ in columns:
        sort, values = random.choice(style.values), []
        while len(values) < len(rows):
            value = pick_value(random, sort, split)
            if value not in values:
                values.append(value)
        by_column.append(values)
    return _Table(kind, rows, columns, [list(row) for row in zip(*by_column, strict=True)], random.choice(style.fonts))


def _fit(table: _Table, canvas: Canvas, size: int, title: bool) -> bool:
    table.size = size
    while True:
        wide = sum(table.widths()) > canvas.width - 4
        tall = table.row_height() * (len(table.rows) + 1 + title) > canvas.height - 4
        if not wide and not tall:
            return True
        if table.size > SMALLEST:
            table.size -= 1
        elif wide and len(table.columns) > _COLUMNS[0]:
            table.columns.pop()
            table.values = [row[:-1] for row in table.values]
        elif tall and len(table.rows) > _ROWS[0]:
            table.rows.pop()
            table.values.pop()
        else:
            return False


def _title_height(table: _Table, layout: TableLayout) -> int:
    return table.row_height() if layout.title == "line" else 0


def _draw_rules(canvas: Canvas, layout: TableLayout, edges: list[int], top: int, height: int, rows: int) -> None:
    left, right, line = edges[0], edges[-1], canvas.mixed(0.4)
    if layout.rules == "zebra":
        for row in range(2, rows, 2):
            canvas.draw.rectangle(
                (left, top + row * height, right, top + (row + 1) * height - 1), fill=canvas.mixed(0.1)
            )
    if layout.header in ("shaded", "inverse"):
        share = 0.2 if layout.header == "shaded" else 0.85
        canvas.draw.rectangle((left, top, right, top + height - 1), fill=canvas.mixed(share))
    elif layout.header == "line":
        canvas.draw.line((left, top + height, right, top + height), fill=canvas.ink, width=2)
    if layout.rules in ("grid", "horizontal"):
        for row in range(rows + 1):
            canvas.draw.line((left, top + row * height, right, top + row * height), fill=line)
    if layout.rules == "grid":
        for edge in edges:
            canvas.draw.line((edge, top, edge, top + rows * height), fill=line)


def _write_cells(canvas: Canvas, layout: TableLayout, table: _Table, edges: list[int], top: int, height: int):
    cells: dict[tuple[int, int], Written] = {}
    for column in range(len(edges) - 1):
        for row, text in enumerate(table.texts(column)):
            if not text:
                continue
            names = (() if row == 0 else (table.rows[row - 1],)) + (() if column == 0 else (table.columns[column - 1],))
            slack = edges[column + 1] - edges[column] - 2 * _PAD - text_width(text, table.font, table.size)
            align = "left" if column == 0 else layout.align
            left = edges[column] + _PAD + {"left": 1, "middle": slack // 2, "right": slack}[align]
            baseline = top + row * height + (height + round(table.size * 0.7)) // 2
            fill = canvas.paper if row == 0 and layout.header == "inverse" else canvas.ink
            cells[row, column] = canvas.write(text, left, baseline, table.font, table.size, fill, names=names)
    return cells


def _ask(random: Random, table: _Table, cells: dict[tuple[int, int], Written]) -> list[Question]:
    asked = []
    for i, row in enumerate(table.rows):
        for j, column in enumerate(table.columns):
            value = table.values[i][j]
            text = random.choice(words.TABLE_QUESTIONS).format(column=column.lower(), row=row)
            asked.append(written(text, value, cells[i + 1, j + 1], "table"))
            frame = random.choice(words.TABLE_REVERSE_QUESTIONS)
            text = frame.format(kind=table.kind, column=column.lower(), value=value)
            asked.append(found(text, row, cells[i + 1, 0], cells[i + 1, j + 1], "table_reverse"))
    return asked
