"""Scenes: signs and shapes before a coloured, textured, two-tone or shaded background."""

from random import Random

from PIL import Image

from training.world import words
from training.world.canvas import Canvas, Colour
from training.world.layout import SceneLayout
from training.world.objects import Shape, Sign, draw_shapes, draw_signs
from training.world.styles import Style

_MOST_OF_A_KIND = 5


def draw_scene(canvas: Canvas, random: Random, layout: SceneLayout, style: Style) -> tuple[list[Sign], list[Shape]]:
    """Draws the background, then signs and shapes of one to four kinds, five of a kind at most."""
    _draw_background(canvas, random, layout)
    signs = draw_signs(canvas, random, random.randint(*style.signs), style.fonts)
    kinds, count = [], random.randint(*style.shapes)
    several = random.sample(words.SHAPES, random.randint(1, 4))
    for _ in range(count):
        kind = random.choice(several)
        if kinds.count(kind) < _MOST_OF_A_KIND:
            kinds.append(kind)
    colours = [random.choice(sorted(words.COLOURS)) for _ in kinds]
    sides = (14, max(30, min(canvas.width, canvas.height) // 6))
    return signs, draw_shapes(canvas, random, kinds, colours, sides, layout.outline)


def _draw_background(canvas: Canvas, random: Random, layout: SceneLayout) -> None:
    # far from every colour of shapes and signs: pale, or nearly black where the ink is light
    low, high = (185, 245) if sum(canvas.paper) > 384 else (5, 45)
    first, second = (tuple(random.randint(low, high) for _ in range(3)) for _ in range(2))
    canvas.paper = first
    width, height = canvas.width, canvas.height
    canvas.draw.rectangle((0, 0, width, height), fill=first)
    if layout.background == "two-tone":
        share = random.uniform(0.3, 0.7)
        across = layout.direction == "across"
        corner = (round(width * share), 0) if across else (0, round(height * share))
        canvas.draw.rectangle((*corner, width, height), fill=second)
    elif layout.background == "gradient":
        canvas.image.paste(
            _gradient(first, second, layout.direction).resize((width, height), Image.Resampling.BILINEAR)
        )
    elif layout.background == "textured":
        canvas.image.paste(_texture(random, canvas, layout.direction))
    if layout.border != "none":
        canvas.draw.rectangle(
            (0, 0, width - 1, height - 1), outline=canvas.mixed(0.5), width=1 if layout.border == "thin" else 3
        )


def _gradient(first: Colour, second: Colour, direction: str) -> Image.Image:
    ends = bytes(first) + bytes(second)
    return Image.frombytes("RGB", (2, 1) if direction == "across" else (1, 2), ends)


def _texture(random: Random, canvas: Canvas, direction: str) -> Image.Image:
    # grain of a few pixels, stretched along the direction
    step = random.randint(1, 5)
    long = step * random.choice((1, 1, 8))
    across, down = (long, step) if direction == "across" else (step, long)
    size = (-(-canvas.width // across), -(-canvas.height // down))
    grain = Image.frombytes("L", size, random.randbytes(size[0] * size[1])).resize(canvas.image.size)
    return Image.blend(canvas.image, grain.convert("RGB"), random.uniform(0.08, 0.2))
