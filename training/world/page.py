"""One page of the drawn world, with its questions, answers and the boxes of their evidence."""

from dataclasses import dataclass
from random import Random

from PIL import Image

from training.world import words
from training.world.canvas import Box, Canvas, Glyph
from training.world.clutter import draw_clutter
from training.world.fields import draw_fields
from training.world.fonts import TRAIN_FONTS
from training.world.layout import SPLITS, Layout, pick_layout, stable_hash
from training.world.objects import draw_shapes, draw_signs

CELL = 16  # pixels per merged token and side


@dataclass(frozen=True)
class Question:
    """A question on a page; `evidence` holds the boxes (left, top, right, bottom; pixels) that its answer is read from."""

    text: str
    answer: str
    evidence: tuple[Box, ...]
    family: str  # one_field, several_fields, sign, shape_colour or colour_shape


@dataclass(frozen=True)
class Page:
    """An RGB image, what can be asked of it, all of its text in reading order, and where each character stands."""

    image: Image.Image
    questions: tuple[Question, ...]
    transcript: str
    glyphs: tuple[Glyph, ...]
    owners: tuple[int, ...]  # of each glyph: 1 + the index in LABELS of the field that it belongs to, or 0
    layout: Layout


@dataclass(frozen=True)
class Style:
    """What pages of one kind hold. Sizes are in pixels, shares between 0 and 1, ranges include both ends."""

    fields: tuple[int, int] = (1, 1)
    font_sizes: tuple[int, int] = (12, 24)
    fonts: tuple[str, ...] = TRAIN_FONTS
    values: tuple[str, ...] = ("number", "amount", "time")  # "code" has capital letters too
    clutter: tuple[int, int] = (0, 3)
    signs: tuple[int, int] = (0, 0)
    shapes: tuple[int, int] = (0, 0)
    aligned: bool = False  # one width for every character, two characters per cell, values begin at a cell
    dark: float = 0.0  # share of pages with light ink on dark paper


def make_page(
    seed: int,
    split: str = "train",
    cells: tuple[int, int] = (8, 8),
    style: Style | None = None,
    shown: tuple[int, int] | None = None,
) -> Page:
    """The page that belongs to the arguments, the same on every call and machine.

    `cells` is (rows, columns) of 16 x 16 pixels; `shown` draws the page at `cells` and then scales it to that many cells,
    boxes and glyphs with it. A held-out page has a layout family and field values that no train page has: both spaces are
    partitioned by a hash (`layout_split`, `value_split`) and drawn from their own part only; the seeds are salted with
    the split. `ValueError` for an unknown split or a page below 4 rows or 8 columns.
    """
    if split not in SPLITS:
        raise ValueError(f"split={split!r} is not one of {', '.join(SPLITS)}")
    if cells[0] < 4 or cells[1] < 8:
        raise ValueError(f"cells={cells} is too small to write on; give at least 4 rows and 8 columns")
    style = style or Style()
    random = Random(stable_hash(f"page {split} {seed}"))
    layout = pick_layout(random, split)
    paper, ink = _paper_and_ink(random, style)
    canvas = Canvas(cells[1] * CELL, cells[0] * CELL, paper, ink)
    fields = draw_fields(canvas, random, layout, split, style)
    signs = draw_signs(canvas, random, random.randint(*style.signs))
    shapes = draw_shapes(canvas, random, random.randint(*style.shapes))
    draw_clutter(canvas, random, random.randint(*style.clutter))
    entries = sorted(
        [(box, text) for _, _, box, text in fields]
        + [(box, text) for _, text, box in signs]
        + [(box, f"{colour} {shape}") for shape, colour, box in shapes],
        key=lambda entry: ((entry[0][1] + entry[0][3]) // 2 // 8, entry[0][0]),
    )
    questions = _questions(random, fields, signs, shapes)
    page = Page(
        canvas.image,
        tuple(questions),
        "\n".join(text for _, text in entries),
        tuple(canvas.glyphs),
        tuple(canvas.owners),
        layout,
    )
    return page if shown is None or shown == cells else _scaled(page, shown)


def _paper_and_ink(random: Random, style: Style) -> tuple[tuple[int, int, int], tuple[int, int, int]]:
    paper = tuple(random.randint(225, 255) for _ in range(3))
    ink = tuple(random.randint(0, 80) for _ in range(3))
    return (ink, paper) if random.random() < style.dark else (paper, ink)


def _questions(random: Random, fields, signs, shapes) -> list[Question]:
    family = "one_field" if len(fields) == 1 else "several_fields"
    asked = []
    for label, value, box, _ in fields:
        text = random.choice(words.FIELD_QUESTIONS).format(label=label.lower())
        asked.append(Question(text, value, (box,), family))
    for colour, text, box in signs:
        asked.append(Question(random.choice(words.SIGN_QUESTIONS).format(colour=colour), text, (box,), "sign"))
    for shape, colour, box in shapes:
        frame = random.choice(words.SHAPE_COLOUR_QUESTIONS)
        asked.append(Question(frame.format(shape=shape), colour, (box,), "shape_colour"))
        frame = random.choice(words.COLOUR_SHAPE_QUESTIONS)
        asked.append(Question(frame.format(colour=colour), shape, (box,), "colour_shape"))
    random.shuffle(asked)
    return asked


def _scaled(page: Page, shown: tuple[int, int]) -> Page:
    width, height = page.image.size
    across, down = shown[1] * CELL / width, shown[0] * CELL / height
    image = page.image.resize((shown[1] * CELL, shown[0] * CELL), Image.Resampling.BICUBIC)

    def smaller(box: Box) -> Box:
        # outwards, so that a box never loses ink
        return (
            int(box[0] * across), int(box[1] * down),
            min(image.width, int(-(-box[2] * across // 1))), min(image.height, int(-(-box[3] * down // 1))),
        )  # fmt: skip

    questions = tuple(
        Question(q.text, q.answer, tuple(smaller(box) for box in q.evidence), q.family) for q in page.questions
    )
    glyphs = tuple((character, x * across, y * down) for character, x, y in page.glyphs)
    return Page(image, questions, page.transcript, glyphs, page.owners, page.layout)
