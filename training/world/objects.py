"""Signs (text in a coloured box) and shapes; every colour and every shape at most once per page."""

from random import Random

from training.world import words
from training.world.canvas import Box, Canvas, text_width

_SIGN_FONTS = ("dejavu bold", "roboto bold", "source sans bold")


def draw_signs(canvas: Canvas, random: Random, count: int) -> list[tuple[str, str, Box]]:
    """Draws up to `count` signs where there is room; returns (colour, text, box of the sign in pixels) each."""
    drawn = []
    for colour in random.sample(sorted(words.COLOURS), count):
        text, font, size = random.choice(words.SIGN_WORDS), random.choice(_SIGN_FONTS), random.randint(13, 22)
        width, height = text_width(text, font, size) + 12, round(size * 1.3) + 8
        box = canvas.find_place(random, width, height, margin=3)
        if box is None:
            continue
        canvas.draw.rectangle((box[0], box[1], box[2] - 1, box[3] - 1), fill=words.COLOURS[colour])
        canvas.write(text, box[0] + 6, box[3] - 4 - round(size * 0.3), font, size, (255, 255, 255))
        canvas.taken.append(box)
        drawn.append((colour, text, box))
    return drawn


def draw_shapes(canvas: Canvas, random: Random, count: int) -> list[tuple[str, str, Box]]:
    """Draws up to `count` filled shapes where there is room; returns (shape, colour, box in pixels) each."""
    drawn = []
    colours = random.sample(sorted(words.COLOURS), count)
    for shape, colour in zip(random.sample(words.SHAPES, count), colours, strict=True):
        side = random.randint(18, 32)
        box = canvas.find_place(random, side, side, margin=3)
        if box is None:
            continue
        _draw_shape(canvas, shape, box, words.COLOURS[colour])
        canvas.taken.append(box)
        drawn.append((shape, colour, box))
    return drawn


def _draw_shape(canvas: Canvas, shape: str, box: Box, fill: tuple[int, int, int]) -> None:
    left, top, right, bottom = box[0], box[1], box[2] - 1, box[3] - 1
    middle, centre, third = (left + right) // 2, (top + bottom) // 2, (right - left) // 3
    if shape == "circle":
        canvas.draw.ellipse((left, top, right, bottom), fill=fill)
    elif shape == "square":
        canvas.draw.rectangle((left, top, right, bottom), fill=fill)
    elif shape == "triangle":
        canvas.draw.polygon(((middle, top), (right, bottom), (left, bottom)), fill=fill)
    elif shape == "diamond":
        canvas.draw.polygon(((middle, top), (right, centre), (middle, bottom), (left, centre)), fill=fill)
    else:
        canvas.draw.rectangle((left + third, top, right - third, bottom), fill=fill)
        canvas.draw.rectangle((left, top + third, right, bottom - third), fill=fill)
