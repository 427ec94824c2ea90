"""Things on a page that nothing asks for: rules, noise patches, and strokes that look like writing but say nothing."""

from random import Random

from PIL import Image

from training.world.canvas import Box, Canvas


def draw_clutter(canvas: Canvas, random: Random, count: int) -> None:
    """Draws up to `count` distractors where there is room."""
    for _ in range(count):
        kind = random.choice(("rule", "noise", "strokes"))
        if kind == "rule":
            length = random.randint(canvas.width // 4, canvas.width - 8)
            box = canvas.find_place(random, length, random.randint(1, 3), margin=3)
        else:
            box = canvas.find_place(random, random.randint(16, 64), random.randint(10, 32), margin=3)
        if box is None:
            continue
        canvas.taken.append(box)
        if kind == "rule":
            canvas.draw.rectangle((box[0], box[1], box[2] - 1, box[3] - 1), fill=_grey(random))
        elif kind == "noise":
            _noise(canvas, random, box)
        else:
            _strokes(canvas, random, box)


def _grey(random: Random) -> tuple[int, int, int]:
    shade = random.randint(60, 190)
    return (shade, shade, shade)


def _noise(canvas: Canvas, random: Random, box: Box) -> None:
    width, height = box[2] - box[0], box[3] - box[1]
    patch = Image.frombytes("L", (width, height), random.randbytes(width * height))
    canvas.image.paste(patch.convert("RGB"), box[:2])


def _strokes(canvas: Canvas, random: Random, box: Box) -> None:
    fill = _grey(random)
    step = random.randint(4, 7)
    for left in range(box[0], box[2] - step, step):
        if random.random() < 0.2:
            continue
        for _ in range(2):
            ends = [random.randint(left, left + step - 1), random.randint(box[1], box[3] - 1),
                    random.randint(left, left + step - 1), random.randint(box[1], box[3] - 1)]  # fmt: skip
            canvas.draw.line(ends, fill=fill, width=1)
