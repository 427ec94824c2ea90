"""Label-value fields: choosing them, fitting them on the page, writing them in the page's layout."""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from training.world.canvas import SMALLEST, Box, Canvas, Written, text_width
from training.world.layout import Layout, pick_value
from training.world.styles import Style

Finder = Callable[[int, int], Box | None]  # a free box of that width and height in pixels, or None


@dataclass(frozen=True)
class Field:
    """A field as it is drawn: its two texts and where its value stands."""

    label: str
    value: str
    place: Written


@dataclass(frozen=True)
class _Block:
    """One field before it is drawn: its two texts, fonts, sizes (pixels per em) and the room it needs (pixels)."""

    label: str
    value: str
    written_label: str
    font: str
    label_size: int
    value_size: int
    label_width: int
    value_width: int
    width: int
    height: int


def draw_fields(
    canvas: Canvas,
    random: Random,
    layout: Layout,
    split: str,
    style: Style,
    labels: list[str],
    count: int | None = None,
    find: Finder | None = None,
) -> list[Field]:
    """Draws the fields of these labels that fit, `count` at most; `find` says where, the layout where it is None."""
    font = random.choice(style.fonts)
    drawn: list[Field] = []
    for label in labels:
        if len(drawn) == (len(labels) if count is None else count):
            break
        if len(labels) > 1 and random.random() < 0.2:
            font = random.choice(style.fonts)
        value = pick_value(random, random.choice(style.values), split)
        block = _fitting_block(canvas, layout, label, value, font, random.randint(*style.font_sizes))
        if block is None:
            continue
        place = find(block.width, block.height) if find else _place(canvas, random, layout, block)
        if place is None:
            continue
        drawn.append(_draw_block(canvas, layout, block, place))
        canvas.taken.append(place)
    return drawn


def _fitting_block(canvas: Canvas, layout: Layout, label: str, value: str, font: str, size: int):
    for smaller in range(size, SMALLEST - 1, -1):
        block = _block(canvas, layout, label, value, font, smaller)
        if block.width <= canvas.width - 4 and block.height <= canvas.height - 2:
            return block
    return None


def _block(canvas: Canvas, layout: Layout, label: str, value: str, font: str, size: int) -> _Block:
    written = label + layout.separator
    label_size = round(size * 1.2) if layout.emphasis == "label" else size
    value_size = round(size * 1.2) if layout.emphasis == "value" else size
    label_width = text_width(written, font, label_size)
    value_width = text_width(value, font, value_size)
    tall = max(label_size, value_size)
    if layout.arrangement == "below":
        width, height = max(label_width, value_width) + 6, round((label_size + value_size) * 1.3) + 4
    else:
        gap = _gap(tall)
        width, height = label_width + gap + value_width + 6, round(tall * 1.3) + 4
        if layout.arrangement == "apart":
            width = max(width, canvas.width - 8)
    return _Block(
        label, value, written, font, label_size, value_size, label_width, value_width, width, height
    )  # fmt: skip


def _gap(size: int) -> int:
    return max(6, size // 2)


def _place(canvas: Canvas, random: Random, layout: Layout, block: _Block) -> Box | None:
    if layout.placement == "scattered":
        return canvas.find_place(random, block.width, block.height, margin=2)
    slack = canvas.width - 2 - block.width
    if slack < 0:
        return None
    jitter = random.randint(0, max(0, slack // 4))
    left = 1 + {"left": jitter, "middle": slack // 2, "right": slack - jitter}[layout.placement]
    for _ in range(40):
        top = random.randint(1, max(1, canvas.height - 1 - block.height))
        box = (left, top, left + block.width, top + block.height)
        if canvas.is_free(box, margin=1):
            return box
    return None


def _draw_block(canvas: Canvas, layout: Layout, block: _Block, place: Box) -> Field:
    left, top, right, bottom = place
    if layout.arrangement == "below":
        label_left, label_base = left + 3, top + 1 + block.label_size
        value_left, value_base = left + 3, bottom - 3 - block.value_size // 4
    else:
        base = top + 1 + max(block.label_size, block.value_size)
        label_left, label_base = left + 3, base
        value_left, value_base = left + 3 + block.label_width + _gap(max(block.label_size, block.value_size)), base
        if layout.arrangement == "apart":
            value_left = right - 3 - block.value_width
    _draw_frame(canvas, layout, block, value_left, value_base)
    names = (block.label,)
    canvas.write(block.written_label, label_left, label_base, block.font, block.label_size, canvas.ink, names)
    value = canvas.write(block.value, value_left, value_base, block.font, block.value_size, canvas.ink, names)
    return Field(block.label, block.value, value)


def _draw_frame(canvas: Canvas, layout: Layout, block: _Block, left: int, baseline: int) -> None:
    right = left + block.value_width
    top, bottom = baseline - round(block.value_size * 0.85), baseline + max(2, block.value_size // 5)
    between = canvas.mixed(1 / 3)
    if layout.frame == "underline":
        canvas.draw.line((left, bottom, right, bottom), fill=between, width=1)
    elif layout.frame == "box":
        canvas.draw.rectangle((left - 3, top - 2, right + 2, bottom), outline=between, width=1)
    elif layout.frame == "shade":
        canvas.draw.rectangle((left - 3, top - 2, right + 2, bottom), fill=canvas.mixed(0.1))
