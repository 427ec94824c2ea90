"""Signs (text in a coloured box), every colour at most once per page, and filled shapes."""

from dataclasses import dataclass
from random import Random

from training.world import words
from training.world.canvas import Box, Canvas, Colour, Thing, Written, inner, text_width

_WHITE, _BLACK = (255, 255, 255), (0, 0, 0)


@dataclass(frozen=True)
class Sign:
    """A sign as it is drawn: its colour, its text and where the text stands."""

    colour: str
    text: str
    place: Written


@dataclass(frozen=True)
class Shape:
    """A shape as it is drawn: its kind, its colour and its box in pixels."""

    kind: str
    colour: str
    box: Box


def draw_signs(canvas: Canvas, random: Random, count: int, fonts: tuple[str, ...]) -> list[Sign]:
    """Draws up to `count` signs, of different colours, where there is room, in the bold ones of the fonts if there are."""
    drawn, bold = [], [font for font in fonts if font.endswith("bold")] or fonts
    for colour in random.sample(sorted(words.COLOURS), count):
        text, font, size = random.choice(words.SIGN_WORDS), random.choice(bold), random.randint(13, 22)
        width, height = text_width(text, font, size) + 12, round(size * 1.3) + 8
        box = canvas.find_place(random, width, height, margin=3)
        if box is None:
            continue
        canvas.draw.rectangle(inner(box), fill=words.COLOURS[colour])
        place = canvas.write(text, box[0] + 6, box[3] - 4 - round(size * 0.3), font, size, _WHITE)
        canvas.things.append(Thing(box, (colour,)))
        canvas.taken.append(box)
        drawn.append(Sign(colour, text, place))
    return drawn


def draw_shapes(
    canvas: Canvas,
    random: Random,
    kinds: list[str],
    colours: list[str],
    sides: tuple[int, int] = (18, 32),
    outline: str = "none",
) -> list[Shape]:
    """Draws the shapes of these kinds and colours for which there is room."""
    drawn = []
    edge = {"none": None, "dark": _BLACK, "light": _WHITE}[outline]
    for kind, colour in zip(kinds, colours, strict=True):
        side = random.randint(*sides)
        box = canvas.find_place(random, side, side, margin=3)
        if box is None:
            continue
        _draw_shape(canvas, kind, box, words.COLOURS[colour], edge)
        canvas.things.append(Thing(box, (colour, kind)))
        canvas.taken.append(box)
        drawn.append(Shape(kind, colour, box))
    return drawn


def _draw_shape(canvas: Canvas, kind: str, box: Box, fill: Colour, edge: Colour | None) -> None:
    left, top, right, bottom = inner(box)
    middle, centre, third = (left + right) // 2, (top + bottom) // 2, (right - left) // 3
    if kind == "circle":
        canvas.draw.ellipse((left, top, right, bottom), fill=fill, outline=edge)
    elif kind == "square":
        canvas.draw.rectangle((left, top, right, bottom), fill=fill, outline=edge)
    elif kind == "triangle":
        canvas.draw.polygon(((middle, top), (right, bottom), (left, bottom)), fill=fill, outline=edge)
    elif kind == "diamond":
        corners = ((middle, top), (right, centre), (middle, bottom), (left, centre))
        canvas.draw.polygon(corners, fill=fill, outline=edge)
    else:
        west, east, north, south = left + third, right - third, top + third, bottom - third
        corners = (
            (west, top), (east, top), (east, north), (right, north), (right, south), (east, south),
            (east, bottom), (west, bottom), (west, south), (left, south), (left, north), (west, north),
        )  # fmt: skip
        canvas.draw.polygon(corners, fill=fill, outline=edge)
