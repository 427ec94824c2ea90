"""Pages made to mislead a choice of cells: crowds, corners, near-identical labels, small print, noise, two conditions."""

from random import Random

from training.world import words
from training.world.asking import ask_absent, ask_fields
from training.world.canvas import Box, Canvas
from training.world.clutter import draw_line, draw_noise
from training.world.fields import Field, draw_fields
from training.world.layout import Layout
from training.world.question import Question, written
from training.world.styles import Style

_LARGE = (22, 40)  # pixels per em of unimportant text


def _labels(random: Random) -> list[str]:
    return random.sample(words.LABELS, len(words.LABELS))


def _names(fields: list[Field]) -> list[str]:
    return [field.label for field in fields]


class _Shelves:
    """Places boxes side by side in rows from the top down, with small random gaps."""

    def __init__(self, canvas: Canvas, random: Random):
        self.width, self.height, self.random = canvas.width, canvas.height, random
        self.left, self.top, self.below = random.randint(1, 4), random.randint(1, 4), 0

    def __call__(self, width: int, height: int) -> Box | None:
        if self.left + width > self.width - 1:
            self.left, self.top = self.random.randint(1, 4), max(self.top, self.below) + self.random.randint(0, 3)
        if self.left + width > self.width - 1 or self.top + height > self.height - 1:
            return None
        box = (self.left, self.top, self.left + width, self.top + height)
        self.left, self.below = box[2] + self.random.randint(4, 12), max(self.below, box[3])
        return box


def draw_crowded(canvas: Canvas, random: Random, layout: Layout, split: str, style: Style):
    """A page full of fields, as many as the style wants where they fit, and lines of text between and after them."""
    shelves, fields, wanted = _Shelves(canvas, random), [], random.randint(*style.fields)
    full = 0
    for label in _labels(random):
        if full > 2:
            break
        if len(fields) < wanted:
            fields += (new := draw_fields(canvas, random, layout, split, style, [label], find=shelves))
            full += not new
        if len(fields) >= wanted or random.random() < 0.3:
            font, size = random.choice(style.fonts), random.randint(*style.font_sizes)
            full += not draw_line(canvas, random, split, font, size, shelves)
    return ask_fields(random, fields, "crowded"), ask_absent(random, _names(fields)) if fields else []


def draw_corner(canvas: Canvas, random: Random, layout: Layout, split: str, style: Style):
    """One to three fields in corners, and lines of text elsewhere."""

    def corner(width: int, height: int) -> Box | None:
        right, bottom = canvas.width - 1 - width, canvas.height - 1 - height
        corners = [(1, 1), (right, 1), (1, bottom), (right, bottom)]
        random.shuffle(corners)
        boxes = ((left, top, left + width, top + height) for left, top in corners)
        return next((box for box in boxes if canvas.is_free(box, margin=1)), None)

    fields = draw_fields(canvas, random, layout, split, style, _labels(random)[:6], random.randint(1, 3), corner)
    for _ in range(random.randint(2, canvas.height // 24)):
        draw_line(canvas, random, split, random.choice(style.fonts), random.randint(10, 22))
    return ask_fields(random, fields, "corner"), []


def draw_near_identical(canvas: Canvas, random: Random, layout: Layout, split: str, style: Style):
    """One to three pairs of labels that are easily taken for each other, and other fields where there is room."""
    pairs = random.sample(words.NEAR_LABELS, min(len(words.NEAR_LABELS), max(1, random.randint(*style.fields) // 2)))
    near = list(dict.fromkeys(label for pair in pairs for label in pair))
    fields = draw_fields(canvas, random, layout, split, style, near)
    drawn = _names(fields)
    asked = [field for field in fields if any({field.label, other} in map(set, words.NEAR_LABELS) for other in drawn)]
    others = [label for label in _labels(random) if label not in near]
    draw_fields(canvas, random, layout, split, style, others[:4], random.randint(0, 2))
    return ask_fields(random, asked, "near_identical"), []


def draw_small_print(canvas: Canvas, random: Random, layout: Layout, split: str, style: Style):
    """The fields in the style's small size, beside large text that nothing asks for."""
    fields = draw_fields(canvas, random, layout, split, style, _labels(random)[:8], random.randint(*style.fields))
    lines = [
        draw_line(canvas, random, split, random.choice(style.fonts), random.randint(*_LARGE))
        for _ in range(2 + canvas.height // 40)
    ]
    if not any(lines):
        return [], []
    return ask_fields(random, fields, "small_print"), []


def draw_noisy(canvas: Canvas, random: Random, layout: Layout, split: str, style: Style):
    """Fields beside large noise textures."""
    fields = draw_fields(canvas, random, layout, split, style, _labels(random)[:8], random.randint(*style.fields))
    if not draw_noise(canvas, random, random.randint(1, 4)):
        return [], []
    return ask_fields(random, fields, "noise"), []


def draw_empty_complex(canvas: Canvas, random: Random, layout: Layout, split: str, style: Style):
    """Two labels are asked for, the second where the first is not on the page; one or both of them are."""
    first, *others = _labels(random)
    unlike = [label for label in others if not words.alike(first, label)]
    second, third = unlike[0], next(x for x in unlike[1:] if not words.alike(unlike[0], x))
    wanted = random.choice(([first], [second], [first, second], [second, third]))
    fields = draw_fields(canvas, random, layout, split, style, random.sample(wanted, len(wanted)))
    if len(fields) < len(wanted):
        return [], []
    answer = next(field for field in fields if field.label == (first if first in wanted else second))
    frame = random.choice(words.EITHER_QUESTIONS)
    text = frame.format(first=first.lower(), second=second.lower())
    asked: list[Question] = [written(text, answer.value, answer.place, "empty_complex")]
    return asked, []
