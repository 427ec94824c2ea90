"""Real tables drawn as pictures, with the questions that people wrote about them, and look-ups made from them.

Pasupat and Liang, "Compositional Semantic Parsing on Semi-Structured Tables" (ACL 2015): WikiTableQuestions, CC BY-SA 4.0.
`python -m training.data wikitables:PATH` counts what can be drawn.
"""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property, partial
from random import Random

from PIL import Image

from training.data.check import DataError
from training.data.examples import Example, Examples
from training.data.stream import ExampleStream
from training.data.table_archive import Archive, Asked, Table, read_archive
from training.data.table_page import Task, draw, plan
from training.data.table_style import pick_style
from training.world.canvas import CELL
from training.world.fonts import HELD_OUT_FONTS, TRAIN_FONTS
from training.world.layout import SPLITS, stable_hash

HUMAN, LOOKUP = "table_human", "table_lookup"  # families
ASKED = ("human", "lookup", "both")
LOOKUP_QUESTIONS = (
    "what is the {target} where {key} is {value}?",
    "which {target} has {key} {value}?",
    "{key} is {value}: what is the {target}?",
)
_LONGEST = 40  # characters of a generated question's key and answer
_TRIES = 30
_WORD = re.compile(r"[^\W_]+")


@dataclass(frozen=True)
class TableOptions:
    """What is drawn. `page_cells` is the largest page, (rows, columns) of 16 x 16 pixels, `font_sizes` the smallest and
    largest font in pixels. `crop` leaves out rows and columns that don't fit; without it such tables are not drawn.
    Tables of more than `max_rows` x `max_columns` are not drawn at all (None: any). `lookups` is how many questions are
    made from a table, `fonts` the fonts (None: those of training, or for held-out tables those kept back from it)."""

    page_cells: tuple[int, int] = (20, 24)
    font_sizes: tuple[int, int] = (11, 13)
    max_rows: int | None = None
    max_columns: int | None = None
    crop: bool = True
    lookups: int = 2
    fonts: tuple[str, ...] | None = None

    def __post_init__(self):
        if min(self.page_cells) < 4 or not 6 <= self.font_sizes[0] <= self.font_sizes[1]:
            raise ValueError(
                f"page_cells={self.page_cells} and font_sizes={self.font_sizes}: give at least 4 cells a side, and sizes from 6 "
                "pixels on, the smaller first"
            )

    def takes(self, table: Table) -> bool:
        """Whether the table is within `max_rows` and `max_columns`."""
        return len(table.rows) <= (self.max_rows or len(table.rows)) and len(table.header) <= (
            self.max_columns or len(table.header)
        )

    def fonts_of(self, split: str) -> tuple[str, ...]:
        """The fonts of a split's body texts."""
        every = self.fonts or (TRAIN_FONTS if split == "train" else HELD_OUT_FONTS)
        return tuple(font for font in every if not font.endswith(" bold")) or every


def answer_cell(table: Table, answer: str) -> tuple[int, int] | None:
    """(row, column) of the one body cell whose text is the answer, apart from case; None if there is none or are several."""
    wanted = answer.lower()
    cells = [(r, c) for r, row in enumerate(table.rows) for c, text in enumerate(row) if text.lower() == wanted]
    return cells[0] if len(cells) == 1 else None


def _words(text: str) -> str:
    """The words of the text in lower case with a space around each, to look for one text in another."""
    return " " + " ".join(_WORD.findall(text.lower())) + " "


def _mentioned(table: Table, question: str, answer: tuple[int, int]) -> tuple[tuple[int, int], ...]:
    """Cells whose text the question names, few enough to be of use, and the answer row's cells below headers that it names."""
    asked = _words(question)
    found = []
    for column, title in enumerate(table.header):
        if len(_words(title)) > 2 and _words(title) in asked:
            found.append((answer[0], column))
    for row, cells in enumerate(table.rows):
        found += [(row, column) for column, text in enumerate(cells) if len(_words(text)) > 4 and _words(text) in asked]
    return tuple(found[:8])


def human_task(table: Table, asked: Asked) -> Task | None:
    """What a page for a written question has to show; None if its answer isn't exactly one cell."""
    answer = answer_cell(table, asked.answer)
    if answer is None:
        return None
    return Task(table.header, table.rows, answer, mentioned=_mentioned(table, asked.question, answer))


def lookup_task(table: Table, random: Random) -> tuple[str, Task] | None:
    """A question that a table answers in exactly one place, by a value that one row alone has; None if none was found."""
    titled = [column for column, title in enumerate(table.header) if title and table.header.count(title) == 1]
    if len(titled) < 2:
        return None
    for _ in range(_TRIES):
        key, target = random.sample(titled, 2)
        row = random.randrange(len(table.rows))
        value, answer = table.rows[row][key], table.rows[row][target]
        named = sum(_words(cells[key]) == _words(value) for cells in table.rows)
        speaks = all(len(_words(text)) > 2 and len(text) <= _LONGEST for text in (value, answer))
        if speaks and named == 1:
            question = random.choice(LOOKUP_QUESTIONS)
            question = question.format(target=table.header[target], key=table.header[key], value=value)
            return question, Task(table.header, table.rows, (row, target), needed=((row, key),))
    return None


@dataclass(frozen=True)
class _Drawing:
    """A page that is drawn when it is asked for; the same arguments draw the same page."""

    task: Task = field(repr=False)
    options: TableOptions
    split: str
    seed: int

    def page(self, ink: bool = True) -> tuple[Image.Image, tuple] | str:
        """The picture and the answer's boxes, or why it can't be drawn."""
        random = Random(self.seed)
        options, task = self.options, self.task
        texts = [(task.header if row < 0 else task.rows[row])[column] for row, column in sorted(task.kept_whole())]
        style = pick_style(random, options.fonts_of(self.split), options.font_sizes, "".join(texts))
        if style is None:
            return "letters that no font has"
        height, width = (side * CELL for side in options.page_cells)
        fitted = plan(task, style, (height, width), random, options.crop)
        return "too large for the page" if fitted is None else draw(task, style, fitted, random, ink)

    def __call__(self) -> Image.Image:
        return self.page()[0]


def _example(drawing: _Drawing, question: str, family: str, name: str) -> Example | str:
    page = drawing.page(ink=False)
    if isinstance(page, str):
        return page
    row, column = drawing.task.answer
    return Example(drawing, question, (drawing.task.rows[row][column],), family, page[1], name)


def load_tables(
    path: str,
    split: str = "held_out",
    seed: int = 0,
    questions: str = "both",
    options: TableOptions | None = None,
    limit: int | None = None,
    skip_bad: bool = False,
) -> Examples:
    """The drawable questions of a split's tables, human and generated ones; pictures are drawn when opened.

    The split belongs to the table and doesn't depend on the seed, which chooses styles, parts of tables, generated
    questions, and what `limit` takes. `left_out` says how many questions were not used, by reason.

    Args:
        path: as `read_archive` takes it.
        questions: "human", "lookup" or "both".

    Raises:
        DataError: no archive there, bad lines (see `skip_bad`), or nothing that can be drawn.
        ValueError: an unknown split, or unknown questions.
    """
    if split not in SPLITS or questions not in ASKED:
        raise ValueError(f"split={split!r}, questions={questions!r}: give one of {SPLITS} and one of {ASKED}")
    options = options or TableOptions()
    archive = read_archive(path)
    left_out = Counter(archive.problems.settle(len(archive.questions), skip_bad))
    asked = list(enumerate(_asked(archive, split, seed, questions, options)))
    if limit is not None:
        Random(stable_hash(f"limit {seed}")).shuffle(asked)
    kept = []
    for number, entry in asked:
        if limit is not None and len(kept) == limit:
            break
        example = entry()
        if isinstance(example, str):
            left_out[example] += 1
        elif example is not None:
            kept.append((number, example))
    if not kept:
        raise DataError(
            f"{path} has no question of split={split!r} that can be drawn: {dict(left_out)}; try a larger page"
        )
    return Examples([example for _, example in sorted(kept, key=lambda entry: entry[0])], left_out)


def _asked(archive: Archive, split: str, seed: int, questions: str, options: TableOptions) -> Iterator[partial]:
    """For every question of the split a function that gives its example, or why there is none."""
    owned = {context: table for context, table in archive.tables.items() if table.split == split}
    if questions != "lookup":
        for asked in archive.questions:
            if asked.context in owned:
                yield partial(_human, owned[asked.context], asked, options, split, str(seed))
    if questions != "human":
        for context, table in owned.items():
            if options.takes(table):
                for number in range(options.lookups):
                    yield partial(_lookup, table, context, options, split, f"{seed}.{number}")


def _human(table: Table, asked: Asked, options: TableOptions, split: str, salt: str) -> Example | str:
    if not options.takes(table):
        return "larger than max_rows x max_columns"
    task = human_task(table, asked)
    if task is None:
        return "answer is not exactly one cell"
    drawing = _Drawing(task, options, split, stable_hash(f"table {salt} {asked.name}"))
    return _example(drawing, asked.question, HUMAN, f"wikitables/{asked.name}#{salt}")


def _lookup(table: Table, context: str, options: TableOptions, split: str, salt: str) -> Example | str | None:
    random = Random(stable_hash(f"lookup {salt} {context}"))
    found = lookup_task(table, random)
    if found is None:
        return None
    drawing = _Drawing(found[1], options, split, random.getrandbits(48))
    return _example(drawing, found[0], LOOKUP, f"wikitables/{context}#{salt}")


@dataclass(frozen=True)
class TableSource:
    """Real tables as an endless row of examples: `human` is the share of questions that people wrote, the rest are look-ups.

    `path` as `read_archive` takes it; the archive is read once per process.
    """

    path: str
    seed: int = 0
    split: str = "train"
    human: float = 0.5
    options: TableOptions = TableOptions()

    @cached_property
    def _owned(self) -> tuple[list[str], list[Asked]]:
        archive = read_archive(self.path)
        tables = [
            name for name, table in archive.tables.items() if table.split == self.split and self.options.takes(table)
        ]
        inside = set(tables)
        asked = [
            asked for asked in archive.questions
            if asked.context in inside and answer_cell(archive.tables[asked.context], asked.answer) is not None
        ]  # fmt: skip
        return tables, asked

    def example(self, index: int) -> Example:
        """The example of `index`. `DataError` if the archive has nothing that can be drawn."""
        random = Random(stable_hash(f"table example {self.seed} {index}"))
        tables, written = self._owned
        archive = read_archive(self.path)
        for attempt in range(_TRIES):
            salt, example = f"{self.seed}.{index}.{attempt}", None
            if written and random.random() < self.human:
                asked = random.choice(written)
                example = _human(archive.tables[asked.context], asked, self.options, self.split, salt)
            elif tables:
                context = random.choice(tables)
                example = _lookup(archive.tables[context], context, self.options, self.split, salt)
            if isinstance(example, Example):
                return example
        raise DataError(
            f"{_TRIES} questions of {self.path}, split={self.split!r}, could not be drawn; try a larger page"
        )


def table_stream(source: TableSource, **sharing) -> ExampleStream:
    """The endless examples of the source; `start`, `batch_size`, `rank` and `processes` as in `ExampleStream`."""
    return ExampleStream(source, **sharing)
