"""Pages as cameras and screens show them: tinted, pale, in shadow, blurred, with noise, in a frame, or larger."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from io import BytesIO
from random import Random

import numpy as np
from PIL import Image, ImageFilter, ImageOps

from training.data.examples import Example, Examples, Picture, by_picture
from training.world.layout import stable_hash

_FRAME = 16  # pixels


def wear(examples: Sequence[Example], split: str, percent: int) -> Examples:
    """The examples, `percent` percent of the pictures worn, each in one way, with the boxes of what is asked of them where they
    then stand. Which, and how, depends on the name of a picture's first example."""
    worn = {}
    if not percent:
        return Examples(examples, getattr(examples, "left_out", None))
    for page in by_picture(examples):
        random = Random(stable_hash(f"worn {split} {page[0].name}"))
        if random.uniform(0, 100) < percent:
            picture = Worn(page[0].picture, random.choice(list(WAYS)), random.getrandbits(32))
            worn |= {id(one): _moved(one, picture) for one in page}
    return Examples([worn.get(id(one), one) for one in examples], getattr(examples, "left_out", None))


@dataclass(frozen=True)
class Worn:
    """Opens a picture, and wears it in a way of `WAYS`; the same for the same seed."""

    picture: Picture
    way: str
    seed: int

    def __call__(self) -> Image.Image:
        return WAYS[self.way](Example(self.picture, "", ()).image, Random(self.seed))


def _moved(one: Example, picture: Worn) -> Example:
    scale = _enlargement(Random(picture.seed)) if picture.way == "larger" else 1.0
    step = _FRAME if picture.way == "framed" else 0

    def boxes_of(boxes):
        return tuple(tuple(edge * scale + step for edge in box) for box in boxes)

    return replace(one, picture=picture, evidence=boxes_of(one.evidence), context=boxes_of(one.context))


def _enlargement(random: Random) -> float:
    return random.uniform(1.25, 1.5)


def _as_image(pixels: np.ndarray) -> Image.Image:
    return Image.fromarray(pixels.round().clip(0, 255).astype(np.uint8))


def tinted(image: Image.Image, random: Random) -> Image.Image:
    """On coloured paper: every channel times 0.45 to 1, one of them 1."""
    tint = [random.uniform(0.45, 1.0) for _ in range(3)]
    tint[random.randrange(3)] = 1.0
    return _as_image(np.asarray(image, np.float32) * np.asarray(tint, np.float32))


def pale(image: Image.Image, random: Random) -> Image.Image:
    """With 25 to 60% of its contrast, about black, grey or white."""
    share, about = random.uniform(0.25, 0.6), random.choice((0, 128, 255))
    return _as_image(about + share * (np.asarray(image, np.float32) - about))


def shaded(image: Image.Image, random: Random) -> Image.Image:
    """With light that falls by 30 to 65% from one side or corner to the other."""
    across, down = random.choice(((1, 0), (-1, 0), (0, 1), (0, -1), (1, 1), (-1, 1), (1, -1), (-1, -1)))
    x, y = np.meshgrid(np.linspace(-1, 1, image.width), np.linspace(-1, 1, image.height))
    light = (across * x + down * y) / (abs(across) + abs(down))  # -1 to 1
    sharp = random.choice((1.0, 8.0))  # the shadow of something has an edge
    light = 1 - random.uniform(0.3, 0.65) / (1 + np.exp(-4 * sharp * (light - random.uniform(-0.4, 0.4))))
    return _as_image(np.asarray(image, np.float32) * light[..., None].astype(np.float32))


def blurred(image: Image.Image, random: Random) -> Image.Image:
    """By a Gaussian of 0.4 to 0.9 pixels."""
    return image.filter(ImageFilter.GaussianBlur(random.uniform(0.4, 0.9)))


def noisy(image: Image.Image, random: Random) -> Image.Image:
    """With noise, then saved as JPEG."""
    noise = np.random.default_rng(random.getrandbits(32)).normal(
        0, random.uniform(4, 24), (image.height, image.width, 3)
    )
    file = BytesIO()
    _as_image(np.asarray(image, np.float32) + noise).save(file, "JPEG", quality=random.randint(20, 80))
    return Image.open(file).convert("RGB")


def framed(image: Image.Image, random: Random) -> Image.Image:
    """In a frame of 16 pixels, of one colour or with an edge of another."""
    colour, edge = (tuple(random.randrange(256) for _ in range(3)) for _ in range(2))
    width = random.choice((0, 2, 4, 8))
    return ImageOps.expand(ImageOps.expand(image, _FRAME - width, colour), width, edge)


def larger(image: Image.Image, random: Random) -> Image.Image:
    """Enlarged by 1.25 to 1.5."""
    scale = _enlargement(random)
    return image.resize((round(image.width * scale), round(image.height * scale)), Image.Resampling.BICUBIC)


WAYS: dict[str, Callable[[Image.Image, Random], Image.Image]] = {
    "tinted": tinted, "pale": pale, "shaded": shaded, "blurred": blurred, "noisy": noisy, "framed": framed, "larger": larger,
}  # fmt: skip
