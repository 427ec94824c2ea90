"""Forms: a title, then labels and values in rows, in two columns where the page is wide."""

from random import Random

from training.world import words
from training.world.canvas import CELL, SMALLEST, Canvas, text_width
from training.world.fields import Field
from training.world.layout import FormLayout, pick_value
from training.world.styles import Style

_WIDE = 12  # cells from which on two columns have room
_EDGE = 4  # pixels left free at the page's edges
_GAP = 6  # pixels between a label and its value


def draw_form(canvas: Canvas, random: Random, layout: FormLayout, split: str, style: Style) -> list[Field]:
    """Draws a form of as many fields as the style wants and the page holds; none where not even two fit."""
    font = random.choice(style.fonts)
    columns = 2 if layout.columns == "two" and canvas.width >= _WIDE * CELL else 1
    width = (canvas.width - 2 * _EDGE) // columns
    wanted = random.randint(*style.fields)
    for size in range(random.randint(*style.font_sizes), SMALLEST - 1, -1):
        title_size = min(30, round(size * random.uniform(1.3, 1.8)))
        top = _EDGE + round(title_size * 1.3) + 4
        pitch = round(size * 1.3) + 4
        room = (canvas.height - top - _EDGE) // pitch
        pairs = _fitting_pairs(random, layout, split, style, font, size, width, min(wanted, room * columns))
        if len(pairs) >= min(3, wanted):
            break
    if len(pairs) < 2:
        return []
    rows = -(-len(pairs) // columns)
    pitch += random.randint(0, min(pitch, (canvas.height - top - _EDGE) // rows - pitch))
    _draw_title(canvas, random, layout, font, title_size)
    left_out = max(text_width(label + layout.separator, font, size) for label, _ in pairs) + _GAP
    fields = []
    for index, (label, value) in enumerate(pairs):
        left, row_top = _EDGE + index // rows * width, top + index % rows * pitch
        _draw_row(canvas, layout, index % rows, (left, row_top, left + width - 2, row_top + pitch - 1))
        baseline = row_top + (pitch + round(size * 0.7)) // 2
        canvas.write(label + layout.separator, left + 3, baseline, font, size, canvas.ink, names=(label,))
        value_left = left + 3 + left_out
        if layout.values == "right":
            value_left = left + width - 6 - text_width(value, font, size)
        place = canvas.write(value, value_left, baseline, font, size, canvas.ink, names=(label,))
        fields.append(Field(label, value, place))
    canvas.taken.append((_EDGE, _EDGE, canvas.width - _EDGE, top + rows * pitch))
    return fields


def _fitting_pairs(random, layout, split, style, font, size, width, count) -> list[tuple[str, str]]:
    pairs, widest_label, widest_value = [], 0, 0
    for label in random.sample(words.LABELS, min(3 * count, len(words.LABELS))):
        if len(pairs) == count:
            break
        value = pick_value(random, random.choice(style.values), split)
        label_width = max(widest_label, text_width(label + layout.separator, font, size))
        value_width = max(widest_value, text_width(value, font, size))
        if label_width + _GAP + value_width + 10 <= width:
            pairs.append((label, value))
            widest_label, widest_value = label_width, value_width
    return pairs


def _draw_title(canvas: Canvas, random: Random, layout: FormLayout, font: str, size: int) -> None:
    text = random.choice(words.TITLES)
    width, height = text_width(text, font, size), round(size * 1.3)
    left = _EDGE if layout.title == "left" else (canvas.width - width) // 2
    fill = canvas.ink
    if layout.title == "bar":
        canvas.draw.rectangle((0, 0, canvas.width, _EDGE + height), fill=canvas.mixed(0.8))
        fill = canvas.paper
    canvas.write(text, left, _EDGE + round(size * 0.95), font, size, fill)


def _draw_row(canvas: Canvas, layout: FormLayout, row: int, box: tuple[int, int, int, int]) -> None:
    left, top, right, bottom = box
    if layout.rows == "ruled":
        canvas.draw.line((left, bottom, right, bottom), fill=canvas.mixed(0.4))
    elif layout.rows == "boxed":
        canvas.draw.rectangle((left, top, right, bottom + 1), outline=canvas.mixed(0.4))
    elif layout.rows == "boxes":
        canvas.draw.rectangle((left, top + 1, right, bottom - 1), outline=canvas.mixed(0.4))
    elif row % 2 == 0:
        canvas.draw.rectangle((left, top, right, bottom), fill=canvas.mixed(0.1))
