"""Pictures to measure on: half noise, half a page of text, the same for the same size and seed."""

import numpy as np
from PIL import Image, ImageDraw

QUESTION = "what is the total?"
LINE = 16  # pixels from one line of text to the next


def draw(pixels: int, seed: int = 0) -> Image.Image:
    """An RGB picture of `pixels` x `pixels`: coloured noise above, lines of text on white below."""
    random = np.random.default_rng([pixels, seed])
    image = Image.new("RGB", (pixels, pixels), "white")
    noise = random.integers(0, 256, (pixels // 2, pixels, 3), dtype=np.uint8)
    image.paste(Image.fromarray(noise), (0, 0))
    pen = ImageDraw.Draw(image)
    for top in range(pixels // 2, pixels, LINE):
        words = " ".join(f"total {number}" for number in random.integers(0, 10000, 1 + pixels // 64))
        pen.text((int(random.integers(0, 1 + pixels // 4)), top), words, fill="black")
    return image
