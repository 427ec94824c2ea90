"""Things on a page that nothing asks for: rules, noise, strokes that look like writing, and lines of made-up words."""

from random import Random

from PIL import Image

from training.world.canvas import Box, Canvas, Colour, inner, text_width
from training.world.layout import pick_value

NOISES = ("noise", "blocks", "checker", "stripes")


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
            canvas.draw.rectangle(inner(box), fill=_grey(random))
        elif kind == "noise":
            _noise(canvas, random, box, "noise")
        else:
            _strokes(canvas, random, box)


def draw_noise(canvas: Canvas, random: Random, count: int) -> int:
    """Draws up to `count` noise textures, each as large as there is room for; returns how many."""
    drawn = 0
    for _ in range(count):
        share = random.uniform(0.5, 0.9)
        while share > 0.15:
            width, height = round(canvas.width * share), round(canvas.height * share * random.uniform(0.5, 1.0))
            box = canvas.find_place(random, width, height, margin=3, tries=10)
            if box is not None:
                canvas.taken.append(box)
                _noise(canvas, random, box, random.choice(NOISES))
                drawn += 1
                break
            share *= 0.8
    return drawn


def draw_line(canvas: Canvas, random: Random, split: str, font: str, size: int, find=None) -> bool:
    """Writes one to four made-up words in a line where there is room, or where `find` says. Returns whether there was any."""
    text = " ".join(pick_value(random, "word", split) for _ in range(random.randint(1, 4)))
    while " " in text and text_width(text, font, size) > canvas.width - 4:
        text = text.rsplit(" ", 1)[0]
    width, height = text_width(text, font, size) + 2, round(size * 1.25)
    box = find(width, height) if find else canvas.find_place(random, width, height, margin=2, tries=25)
    if box is None:
        return False
    fill = canvas.mixed(random.uniform(0.6, 1))
    canvas.write(text, box[0] + 1, box[1] + round(size * 0.95), font, size, fill)
    canvas.taken.append(box)
    return True


def _grey(random: Random) -> Colour:
    shade = random.randint(60, 190)
    return (shade, shade, shade)


def _noise(canvas: Canvas, random: Random, box: Box, kind: str) -> None:
    width, height = box[2] - box[0], box[3] - box[1]
    step = 1 if kind == "noise" else random.randint(2, 6)
    across, down = -(-width // step), -(-height // step)
    if kind in ("noise", "blocks"):
        mode = random.choice(("L", "RGB"))
        patch = Image.frombytes(mode, (across, down), random.randbytes(across * down * len(mode)))
    else:
        pair = bytes((random.randint(0, 90), random.randint(160, 255)))
        row = pair * across
        if kind == "checker":
            patch = Image.frombytes("L", (across, down), b"".join(row[i % 2 : i % 2 + across] for i in range(down)))
        elif random.random() < 0.5:
            patch = Image.frombytes("L", (across, 1), row[:across])
        else:
            patch = Image.frombytes("L", (1, down), (pair * down)[:down])
    canvas.image.paste(patch.convert("RGB").resize((width, height), Image.Resampling.NEAREST), box[:2])


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
