"""Real tables drawn as pictures, with the questions that people wrote about them, and look-ups made from them.

Pasupat and Liang, "Compositional Semantic Parsing on Semi-Structured Tables" (ACL 2015): WikiTableQuestions, CC BY-SA 4.0.
`python -m training.data wikitables:PATH` counts what can be drawn.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import NamedTuple

from PIL import Image

from training.data.check import DataError
from training.data.examples import Box, Example, Examples
from training.data.table_archive import Archive, Asked, Table, read_archive
from training.data.table_comparing import evidence_of, stems
from training.data.table_lookups import Find, Lookup, finds, further_lookups, lookup_task, words_of
from training.data.table_numbers import counted, number_in, running
from training.data.table_page import Plan, TableCell, Task, draw, plan
from training.data.table_reasoning import reasoned
from training.data.table_style import TableStyle, covers, pick_style, vary
from training.world.canvas import CELL
from training.world.fonts import FURTHER_FONTS, HELD_OUT_FONTS, TRAIN_FONTS
from training.world.layout import SPLITS, stable_hash
from training.world.wordings import find_question, lookup_question, spoken

HUMAN, LOOKUP, FIND, REASON = "table_human", "table_lookup", "table_find", "table_reason"  # families
ASKED = ("human", "lookup", "both")
_RECKONS = re.compile(
    r"\bhow (?:many|much|long|old|far)\b|\b(?:number of|difference|total|combined|average|sum|consecutive|streak)\b",
    re.IGNORECASE,
)
_COUNTS = re.compile(
    r"\bhow (?:many|much|long)\b|\b(?:number of|amount of|difference|consecutive|streak)\b", re.IGNORECASE
)


@dataclass(frozen=True)
class TableOptions:
    """What is drawn. `page_cells` is the largest page, (rows, columns) of 16 x 16 pixels, `font_sizes` the smallest and
    largest font in pixels. `crop` leaves out rows and columns that don't fit; without it such tables are not drawn.
    Tables of more than `max_rows` x `max_columns` are not drawn at all (None: any). `lookups` is how many pages are
    drawn of a table to ask look-ups of, `together` how many questions are asked of a page at most: those after its first are
    look-ups. `find` is how many texts of the page it is asked for besides, where they stand, `reason` how many questions
    that take more than a look-up. With `compared` what people's questions compare is evidence beside the cell that answers
    (`evidence_of`). With `varied` pages differ in more than the few ways of the reported results (`vary`), in
    more fonts. `reworded` asks in more wordings, those of a split its own. `fonts` names the fonts (None: those of training,
    or for held-out tables those kept back from it)."""

    page_cells: tuple[int, int] = (20, 24)
    font_sizes: tuple[int, int] = (11, 13)
    max_rows: int | None = None
    max_columns: int | None = None
    crop: bool = True
    lookups: int = 2
    together: int = 1
    find: int = 0
    reason: int = 0
    varied: bool = False
    reworded: bool = False
    compared: bool = False
    fonts: tuple[str, ...] | None = None

    def __post_init__(self):
        if min(self.page_cells) < 4 or not 6 <= self.font_sizes[0] <= self.font_sizes[1]:
            raise ValueError(
                f"page_cells={self.page_cells} and font_sizes={self.font_sizes}: give at least 4 cells a side, and sizes from 6 "
                "pixels on, the smaller first"
            )
        if self.together < 1:
            raise ValueError(f"together={self.together} asks nothing of a page; give a whole number from 1 on")

    def takes(self, table: Table) -> bool:
        """Whether the table is within `max_rows` and `max_columns`."""
        return len(table.rows) <= (self.max_rows or len(table.rows)) and len(table.header) <= (
            self.max_columns or len(table.header)
        )

    def fonts_of(self, split: str) -> tuple[str, ...]:
        """The fonts of a split's body texts."""
        further = FURTHER_FONTS if self.varied else ()
        every = self.fonts or ((*TRAIN_FONTS, *further) if split == "train" else HELD_OUT_FONTS)
        return tuple(font for font in every if not font.endswith(" bold")) or every


def answer_cell(table: Table, answer: str) -> TableCell | None:
    """(row, column) of the one body cell whose text is the answer, apart from case; None if there is none or are several."""
    wanted = answer.lower()
    cells = [(r, c) for r, row in enumerate(table.rows) for c, text in enumerate(row) if text.lower() == wanted]
    return cells[0] if len(cells) == 1 else None


def _named(asked: str, text: str, least: int) -> bool:
    # `least` keeps out texts that a question holds by chance
    return len(words_of(text)) > least and words_of(text) in words_of(asked)


def _mentioned(table: Table, question: str, answer: TableCell) -> tuple[TableCell, ...]:
    """Cells whose text the question names, few enough to be of use, and the answer row's cells below headers that it names."""
    found = [(answer[0], column) for column, title in enumerate(table.header) if _named(question, title, 2)]
    for row, cells in enumerate(table.rows):
        found += [(row, column) for column, text in enumerate(cells) if _named(question, text, 4)]
    return tuple(found[:8])


def context_of(task: Task, question: str, drawn: Collection[TableCell]) -> set[TableCell]:
    """The drawn cells and headers that a written question names."""
    named = {cell for cell in drawn if _named(question, task.text(*cell), 2 if cell[0] < 0 else 4)}
    return named - {task.answer}


def _by_chance(table: Table, question: str, answer: TableCell) -> bool:
    """Whether the question asks for a number that is counted or reckoned, and the cell holds that number by chance: its column is
    one that the question does not name, or numbers its rows."""
    texts = [row[answer[1]] for row in table.rows]
    if not _RECKONS.search(question) or number_in(texts[answer[0]]) is None:
        return False
    title = table.header[answer[1]]
    numbers_rows = running(texts) or counted(title) == "rank"
    return not stems(title) & stems(question) or (numbers_rows and _COUNTS.search(question) is not None)


def human_task(table: Table, asked: Asked) -> Task | None:
    """What a page for a written question has to show; None if its answer isn't exactly one cell, or stands in one by chance."""
    answer = answer_cell(table, asked.answer)
    if answer is None or _by_chance(table, asked.question, answer):
        return None
    return Task(table.header, table.rows, answer, mentioned=_mentioned(table, asked.question, answer))


@dataclass(frozen=True)
class _Drawing:
    """A page that is drawn when it is asked for; the same arguments draw the same page."""

    task: Task = field(repr=False)
    options: TableOptions
    split: str
    seed: int

    def fitted(self) -> tuple[TableStyle, Plan, Random] | str:
        """Its style, what it shows of the table, and the random numbers that place it; or why it can't be drawn."""
        random = Random(self.seed)
        options, task = self.options, self.task
        texts = [task.text(*cell) for cell in sorted(task.kept_whole())]
        style = pick_style(random, options.fonts_of(self.split), options.font_sizes, "".join(texts))
        if style is None:
            return "letters that no font has"
        if options.varied:
            style = vary(style, random, task.header)
        height, width = (side * CELL for side in options.page_cells)
        shown = plan(task, style, (height, width), random, options.crop)
        return "too large for the page" if shown is None else (style, shown, random)

    def __call__(self) -> Image.Image:
        return draw(*self.fitted())[0]


class _Wording:
    """How the questions of a page are put: as they were made, or with `reworded` in other words."""

    def __init__(self, task: Task, drawing: _Drawing):
        self.task, self.split, self.reworded = task, drawing.split, drawing.options.reworded
        self.random = Random(stable_hash(f"reworded {drawing.seed}"))

    def plain(self, question: str) -> str:
        return spoken(question, self.split, self.random) if self.reworded else question

    def lookup(self, lookup: Lookup) -> str:
        if not self.reworded or self.random.random() < 0.3:
            return self.plain(lookup.question)
        task, value = self.task, self.task.text(*lookup.key)
        words = words_of(value)
        alone = sum(words in words_of(text) for cells in (task.header, *task.rows) for text in cells) == 1
        named = {"target": task.header[lookup.answer[1]], "key": task.header[lookup.key[1]], "value": value}
        return self.plain(lookup_question(named, alone, self.split, self.random))

    def find(self, find: Find) -> str:
        if not self.reworded:
            return find.question
        return find_question(find.question, self.task.text(*find.cells[0]), self.split, self.random)


class _Put(NamedTuple):
    # a question as it is put; answered by its first cell of evidence, or by a number
    family: str
    question: str
    evidence: Sequence[TableCell]
    context: Collection[TableCell]
    number: int | None = None


def _examples(drawing: _Drawing, asked: str | Lookup, name: str) -> list[Example] | str:
    """The question about `drawing`'s answer and further look-ups on the same picture; or why it can't be drawn."""
    fitted = drawing.fitted()
    if isinstance(fitted, str):
        return fitted
    task, (style, shown, random) = drawing.task, fitted
    whole = shown.whole(task)
    words = _Wording(task, drawing)
    if isinstance(asked, Lookup):
        every = [_Put(LOOKUP, words.lookup(asked), (asked.answer,), asked.context)]
    else:
        named = context_of(task, asked, whole)
        evidence = evidence_of(task, asked, shown.rows, whole, named) if drawing.options.compared else (task.answer,)
        every = [_Put(HUMAN, words.plain(asked), evidence, named)]
    readable = {cell for cell in whole if covers(style.font, task.text(*cell))}
    if drawing.options.together > 1:
        choice = Random(stable_hash(f"further {drawing.seed}"))
        further = further_lookups(task, readable, drawing.options.together - 1, choice)
        every += [_Put(LOOKUP, words.lookup(lookup), (lookup.answer,), lookup.context) for lookup in further]
    if drawing.options.find:
        page = [(row, column) for row in (-1, *shown.rows) for column in shown.columns]
        choice = Random(stable_hash(f"find {drawing.seed}"))
        # what is asked for is what is named, too
        found = finds(task, page, readable, drawing.options.find, choice)
        every += [_Put(FIND, words.find(one), one.cells, one.cells) for one in found]
    if drawing.options.reason:
        choice = Random(stable_hash(f"reason {drawing.seed}"))
        every += [
            _Put(REASON, words.plain(made.question), made.evidence, made.context, made.number)
            for made in reasoned(task, shown.rows, shown.columns, readable, drawing.options.reason, choice)
        ]
    _, boxes = draw(style, shown, random, {cell for one in every for cell in (*one.evidence, *one.context)}, ink=False)
    return [
        Example(
            drawing,
            one.question,
            (task.text(*one.evidence[0]) if one.number is None else str(one.number),),
            one.family,
            _boxes(boxes, one.evidence),
            f"{name}/{place}" if place else name,
            _boxes(boxes, sorted(one.context)),
        )
        for place, one in enumerate(every)
    ]


def _boxes(boxes: dict[TableCell, tuple[Box, ...]], cells: Collection[TableCell]) -> tuple[Box, ...]:
    return tuple(box for cell in cells for box in boxes[cell])


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
        questions: what pages are drawn for, "human", "lookup" or "both"; further look-ups (`together`) are asked of either.
        limit: at most so many questions; all those of a page, but for the last page that is taken.

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
    kept: dict[int, list[Example]] = {}
    wanted = limit
    for number, entry in asked:
        if wanted == 0:
            break
        examples = entry()
        if isinstance(examples, str):
            left_out[examples] += 1
        else:
            kept[number] = examples[:wanted]
            wanted = None if limit is None else wanted - len(kept[number])
    if not any(kept.values()):
        raise DataError(
            f"{path} has no question of split={split!r} that can be drawn: {dict(left_out)}; try a larger page"
        )
    return Examples([example for number in sorted(kept) for example in kept[number]], left_out)


def _asked(archive: Archive, split: str, seed: int, questions: str, options: TableOptions) -> Iterator[partial]:
    """For every page of the split a function that gives the examples of its page, or why there are none."""
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


def _human(table: Table, asked: Asked, options: TableOptions, split: str, salt: str) -> list[Example] | str:
    if not options.takes(table):
        return "larger than max_rows x max_columns"
    task = human_task(table, asked)
    if task is None:
        found = answer_cell(table, asked.answer)
        return "answer is not exactly one cell" if found is None else "answer is a number that is counted or reckoned"
    drawing = _Drawing(task, options, split, stable_hash(f"table {salt} {asked.name}"))
    return _examples(drawing, asked.question, f"wikitables/{asked.name}#{salt}")


def _lookup(table: Table, context: str, options: TableOptions, split: str, salt: str) -> list[Example] | str:
    random = Random(stable_hash(f"lookup {salt} {context}"))
    found = lookup_task(table, random)
    if found is None:
        return "no look-up that names one row"
    drawing = _Drawing(found[1], options, split, random.getrandbits(48))
    return _examples(drawing, found[0], f"wikitables/{context}#{salt}")
