"""One page of the drawn world, with its questions, answers and the boxes of their evidence."""

from dataclasses import dataclass, replace
from random import Random

from PIL import Image

from training.world import words
from training.world.adversarial import (
    draw_corner,
    draw_crowded,
    draw_empty_complex,
    draw_near_identical,
    draw_noisy,
    draw_small_print,
)
from training.world.asking import ask_absent, ask_counts, ask_fields, ask_gist, ask_shapes, ask_signs
from training.world.canvas import CELL, SMALLEST, Box, Canvas, Colour, Glyph, Point, Thing, scaled
from training.world.charts import draw_chart
from training.world.clutter import draw_clutter
from training.world.fields import draw_fields
from training.world.fonts import HELD_OUT_FONTS, TRAIN_FONTS
from training.world.forms import draw_form
from training.world.layout import SPLITS, AnyLayout, pick_layout, stable_hash
from training.world.objects import draw_shapes, draw_signs
from training.world.question import Question
from training.world.scenes import draw_scene
from training.world.styles import Style
from training.world.tables import ask_absent_cell, draw_table

_TRIES = 60  # pages drawn until one holds something to ask for
_SMALLEST_GRIDS = {"form": (6, 8), "table": (8, 8), "chart": (8, 8)}  # rows, columns
_MIXED = {"gist": ("form", "table", "chart", "scene", "fields"), "absent": ("fields", "form", "table", "crowded")}


@dataclass(frozen=True)
class Page:
    """An RGB image, what can be asked of it, where each character and line of text stands, and the things that a question can
    ask for. Questions about the whole page (gist, absent) come after the others."""

    image: Image.Image
    questions: tuple[Question, ...]
    glyphs: tuple[Glyph, ...]
    texts: tuple[tuple[str, Box], ...]
    things: tuple[Thing, ...]
    layout: AnyLayout


def named_boxes(page: Page, question: Question) -> tuple[Box, ...]:
    """Boxes of the things that go by none but names that the question asks by: labels, headers, and the answer's own place."""
    named = words.asked(question.text)
    return tuple(thing.box for thing in page.things if thing.names and named.issuperset(thing.names))


def make_page(
    seed: int,
    split: str = "train",
    cells: tuple[int, int] = (8, 8),
    style: Style | None = None,
    shown: tuple[int, int] | None = None,
) -> Page:
    """The page that belongs to the arguments, the same on every call and machine.

    `cells` is (rows, columns) of 16 x 16 pixels; `shown` draws the page at `cells` and then scales it to that many cells,
    all places with it. A held-out page has a layout family and values that no train page has: both spaces are
    partitioned by a hash (`layout_split`, `value_split`) and drawn from their own part only; the seeds are salted with
    the split. Where the style leaves the fonts open, its fonts are held out too.

    Raises:
        ValueError: an unknown split, a page below 4 rows or 8 columns (6 rows for forms, 8 for tables and charts), or a
            style whose questions no page of that size offers.
    """
    if split not in SPLITS:
        raise ValueError(f"split={split!r} is not one of {', '.join(SPLITS)}")
    style = style or Style()
    if split == "held_out" and style.fonts == TRAIN_FONTS:
        style = replace(style, fonts=HELD_OUT_FONTS)
    rows, columns = _SMALLEST_GRIDS.get(style.content, (4, 8))
    if cells[0] < rows or cells[1] < columns:
        raise ValueError(f"cells={cells} is too small to write on; give at least {rows} rows and {columns} columns")
    random = Random(stable_hash(f"page {split} {style.content} {seed}"))
    for attempt in range(_TRIES):
        page = _draw(random, split, cells, _smaller(_unmixed(random, style, cells), attempt))
        if page.questions:
            return page if shown is None or shown == cells else _scaled(page, shown)
    raise ValueError(f"no page of cells={cells} offers questions of {style}; give more cells or another style")


def _unmixed(random: Random, style: Style, cells: tuple[int, int]) -> Style:
    if style.content not in _MIXED:
        return style
    fitting = [
        content
        for content in _MIXED[style.content]
        if all(have >= need for have, need in zip(cells, _SMALLEST_GRIDS.get(content, (4, 8)), strict=True))
    ]
    content = random.choice(fitting)
    style = replace(style, content=content, families=(style.content,))
    return replace(style, signs=(0, 0), shapes=(0, 0)) if content == "fields" else style


def _smaller(style: Style, attempt: int) -> Style:
    # a page that held nothing to ask for is drawn again, in time with smaller letters
    low, high = style.font_sizes
    if attempt < 4:
        return style
    return replace(style, font_sizes=(min(low, SMALLEST + 1), max(SMALLEST + 1, high - attempt)))


def _draw(random: Random, split: str, cells: tuple[int, int], style: Style) -> Page:
    layout = pick_layout(random, split, style.content)
    canvas = Canvas(cells[1] * CELL, cells[0] * CELL, *_paper_and_ink(random, style))
    questions, extras = _CONTENTS[style.content](canvas, random, layout, split, style)
    draw_clutter(canvas, random, random.randint(*style.clutter))
    random.shuffle(questions)
    random.shuffle(extras)
    return Page(
        canvas.image,
        tuple(q for q in [*questions, *extras] if not style.families or q.family in style.families),
        tuple(canvas.glyphs),
        tuple(canvas.texts),
        tuple(canvas.things),
        layout,
    )


def _paper_and_ink(random: Random, style: Style) -> tuple[Colour, Colour]:
    paper = tuple(random.randint(225, 255) for _ in range(3))
    ink = tuple(random.randint(0, 80) for _ in range(3))
    return (ink, paper) if random.random() < style.dark else (paper, ink)


def _fields_page(canvas: Canvas, random: Random, layout, split: str, style: Style):
    count = random.randint(*style.fields)
    labels = random.sample(words.LABELS, len(words.LABELS))
    # a label that doesn't fit is left out; where none did so far, more are tried
    fields = draw_fields(canvas, random, layout, split, style, labels[:count], count)
    if count and not fields:
        fields = draw_fields(canvas, random, layout, split, style, labels[count:], 1)
    if len(fields) < min(1, count):
        return [], []
    signs = draw_signs(canvas, random, random.randint(*style.signs), style.fonts)
    number = random.randint(*style.shapes)
    kinds, colours = random.sample(words.SHAPES, number), random.sample(sorted(words.COLOURS), number)
    shapes = draw_shapes(canvas, random, kinds, colours)
    asked = ask_fields(random, fields, "one_field" if len(fields) == 1 else "several_fields")
    asked += ask_signs(random, signs) + ask_shapes(random, shapes, signs)
    extras = ask_absent(random, [field.label for field in fields])
    if len(fields) > 1 and not signs and not shapes:
        extras.append(ask_gist(random, "list"))
    return asked, extras


def _form_page(canvas: Canvas, random: Random, layout, split: str, style: Style):
    fields = draw_form(canvas, random, layout, split, style)
    if not fields:
        return [], []
    extras = [*ask_absent(random, [field.label for field in fields]), ask_gist(random, "form")]
    return ask_fields(random, fields, "form"), extras


def _table_page(canvas: Canvas, random: Random, layout, split: str, style: Style):
    asked = draw_table(canvas, random, layout, split, style)
    if not asked:
        return [], []
    names = [name for thing in canvas.things for name in thing.names]
    return asked, [ask_absent_cell(random, names), ask_gist(random, "table")]


def _chart_page(canvas: Canvas, random: Random, layout, split: str, style: Style):
    asked = draw_chart(canvas, random, layout, split, style)
    return (asked, [ask_gist(random, "chart")]) if asked else ([], [])


def _scene_page(canvas: Canvas, random: Random, layout, split: str, style: Style):
    signs, shapes = draw_scene(canvas, random, layout, style)
    wanted = random.randint(*style.fields)
    labels = random.sample(words.LABELS, wanted)
    fields = draw_fields(canvas, random, pick_layout(random, split), split, style, labels)
    asked = ask_signs(random, signs) + ask_shapes(random, shapes, signs) + ask_counts(random, shapes)
    asked += ask_fields(random, fields, "one_field" if len(fields) == 1 else "several_fields")
    return asked, [ask_gist(random, "scene")]


_CONTENTS = {
    "fields": _fields_page,
    "form": _form_page,
    "table": _table_page,
    "chart": _chart_page,
    "scene": _scene_page,
    "crowded": draw_crowded,
    "corner": draw_corner,
    "near_identical": draw_near_identical,
    "small_print": draw_small_print,
    "noise": draw_noisy,
    "empty_complex": draw_empty_complex,
}


def _scaled(page: Page, shown: tuple[int, int]) -> Page:
    width, height = page.image.size
    across, down = shown[1] * CELL / width, shown[0] * CELL / height
    image = page.image.resize((shown[1] * CELL, shown[0] * CELL), Image.Resampling.BICUBIC)

    def box_of(box: Box) -> Box:
        return scaled(box, across, down, image.size)

    def point_of(point: Point) -> Point:
        return (point[0] * across, point[1] * down)

    questions = tuple(
        replace(
            question,
            evidence=tuple(map(box_of, question.evidence)),
            reads=tuple(tuple(map(point_of, points)) for points in question.reads),
        )
        for question in page.questions
    )
    glyphs = tuple((character, x * across, y * down) for character, x, y in page.glyphs)
    texts = tuple((text, box_of(box)) for text, box in page.texts)
    things = tuple(Thing(box_of(thing.box), thing.names) for thing in page.things)
    return Page(image, questions, glyphs, texts, things, page.layout)
