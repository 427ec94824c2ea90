"""Everyday pages, such as bills, lists, settings and messages, with questions as people type them.

They hold made-up texts, and some of real tables (WikiTableQuestions, as `training.data.tables` takes them). The tables of held-out
pages are held out, the made-up texts are those of all pages; held-out pages are drawn in fonts kept back from training, but for
texts whose letters these have not.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random

from PIL import Image

from training.data.check import DataError
from training.data.document_content import Asking, Content, Text
from training.data.document_page import Page, room_of
from training.data.document_variety import varied as varied_content
from training.data.document_writing import make_content, phrases_of
from training.data.examples import Box, Example, Examples
from training.data.table_archive import Table, read_archive
from training.data.table_lookups import words_of
from training.data.table_style import TableStyle, covers, pick_style, vary
from training.data.tables import TableOptions
from training.world.canvas import CELL, scaled
from training.world.layout import SPLITS, stable_hash

_SIZES = (10, 14)  # of fonts, pixels per em
_PLAIN_FONT = "dejavu"  # has the most letters


@dataclass(frozen=True)
class _Drawing:
    """A page that is drawn when it is asked for; the same arguments draw the same page."""

    tables: Sequence[Table] = field(repr=False)  # of the split
    phrases: Sequence[str] = field(repr=False)  # of these
    split: str
    seed: int
    page_cells: tuple[int, int]
    varied: bool

    def made(self) -> tuple[Content, Page]:
        random = Random(self.seed)
        rows = self.page_cells[0] * CELL // _SIZES[0]
        content = make_content(random, self.tables, self.phrases, max(random.randint(3, rows), random.randint(3, rows)))
        if self.varied:
            content = varied_content(content, self.phrases, random, self.split)
        style = self._style(random, content)
        return content, Page(content, style, room_of(self.page_cells, style), random, self.varied)

    def _style(self, random: Random, content: Content) -> TableStyle:
        texts = "".join(text.text for line in content.lines for text in line)
        texts += content.title.text if content.title else ""
        fonts = TableOptions(varied=True).fonts_of(self.split)
        style = pick_style(random, fonts, _SIZES, texts) or pick_style(random, (_PLAIN_FONT,), _SIZES, "")
        return vary(style, random, ("",))

    def size(self) -> tuple[int, int]:
        """(width, height) of the picture."""
        return self.page_cells[1] * CELL, self.page_cells[0] * CELL

    def __call__(self) -> Image.Image:
        return self.made()[1].draw().resize(self.size(), Image.Resampling.BICUBIC)


def load_documents(
    path: str,
    split: str = "held_out",
    seed: int = 0,
    pages: int = 1000,
    page_cells: tuple[int, int] = (12, 16),
    questions: int = 8,
    varied: bool = False,
    limit: int | None = None,
    skip_bad: bool = False,
) -> Examples:
    """The questions of `pages` everyday pages, at most so many `questions` of each; pictures are drawn when opened.

    Args:
        path: of WikiTableQuestions, as `read_archive` takes it.
        page_cells: (rows, columns) of 16 x 16 pixels.
        varied: values also stand above, below and before their labels, larger than these, texts also in capitals, and more is
            asked in more ways, as `training.data.document_variety` has them.
        limit: at most so many examples; all those of a page, but for the last page that is taken.
        skip_bad: leave bad questions and tables of the archive out instead of refusing; `left_out` counts them.

    Raises:
        DataError: no archive there, bad lines (see `skip_bad`), or nothing that can be drawn.
        ValueError: an unknown split, or a page of fewer than 4 rows or 8 columns.
    """
    if split not in SPLITS:
        raise ValueError(f"split={split!r} is not one of {', '.join(SPLITS)}")
    if page_cells[0] < 4 or page_cells[1] < 8:
        raise ValueError(f"page={page_cells} is too small to write on; give at least 4 rows and 8 columns")
    archive = read_archive(path)
    left_out = archive.problems.settle(len(archive.questions), skip_bad)
    tables = tuple(table for table in archive.tables.values() if table.split == split)
    if not tables:
        raise DataError(f"{path} has no table of split={split!r}; pass the whole folder of WikiTableQuestions")
    phrases, found = phrases_of(tables), Examples()
    for number in range(pages):
        drawing = _Drawing(tables, phrases, split, stable_hash(f"document {split} {seed} {number}"), page_cells, varied)
        found += _examples(drawing, questions, f"documents/{split}/{seed}/{number}")
        if limit is not None and len(found) >= limit:
            break
    if not found:
        raise DataError(
            f"{pages} pages of {page_cells[0]} x {page_cells[1]} cells held nothing to ask; give larger ones"
        )
    return Examples(found[:limit], left_out)


def _examples(drawing: _Drawing, questions: int, name: str) -> list[Example]:
    content, page = drawing.made()
    shown = [words_of(one.text.text) for one in page.placed]
    asked, found = list(content.questions), []
    Random(drawing.seed).shuffle(asked)
    for one in asked:
        if len(found) == questions:
            break
        if not stands_once(one, shown):
            continue
        boxes = _boxes(drawing, page, (one.answer, *one.compared)), _boxes(drawing, page, one.named)
        if None in boxes:
            continue
        found.append(
            Example(
                drawing, one.question, (one.answer.text,), content.family, boxes[0], f"{name}#{len(found)}", boxes[1]
            )
        )
    return found


def stands_once(one: Asking, shown: Sequence[str]) -> bool:
    """Whether what a question names stands once on a page, also within other texts, and so does an answer that nothing names.

    Args:
        shown: `words_of` each text of the page.
    """
    return all(sum(words_of(text.text) in other for other in shown) <= 1 for text in one.named or (one.answer,))


def _boxes(drawing: _Drawing, page: Page, texts: Sequence[Text]) -> tuple[Box, ...] | None:
    """The boxes of the texts on the picture; `None` where one has no place."""
    (width, height), found = drawing.size(), []
    for text in texts:
        box = page.box(text)
        if box is None or not covers(page.style.font, text.text):
            return None
        across, down = width / page.width, height / page.height
        found.append(scaled(box, across, down, (width, height)))
    return tuple(found)
