"""What a stranger sends to the app: a picture file and a question, taken as they should be or refused with a sentence."""

import re
from dataclasses import dataclass
from pathlib import Path

from PIL import Image, UnidentifiedImageError

from arrcoc.picture import to_rgb

FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP")  # PIL opens others through outside programs
MAX_BYTES, MAX_PIXELS, MAX_ASPECT = 10 * 2**20, 16_000_000, 50
MAX_QUESTION = 500  # characters
_HALF = re.compile(r"[\ud800-\udfff]")
_CONTROL = re.compile(r"<\|[a-z0-9_]+\|>")


def open_upload(path: str | Path) -> Image.Image:
    """A file that a stranger sent, as upright 8-bit RGB; the pixels are read only once bytes, format and size are allowed.

    Raises:
        ValueError: it is too large, no picture of `FORMATS`, or damaged. The message does not say where the file lies.
    """
    if (size := Path(path).stat().st_size) > MAX_BYTES:
        raise ValueError(
            f"The picture has {size / 2**20:.1f} MB, more than the {MAX_BYTES // 2**20} allowed; make it smaller."
        )
    try:
        with Image.open(path, formats=FORMATS) as image:
            width, height = image.size
            if width * height <= MAX_PIXELS and max(width, height) <= MAX_ASPECT * min(width, height):
                return to_rgb(image, "the picture")
    except (UnidentifiedImageError, Image.DecompressionBombError) as error:
        raise ValueError(
            f"The file is not a picture of up to {MAX_PIXELS // 10**6} million pixels in {', '.join(FORMATS)}; convert it."
        ) from error
    except Exception as error:  # PIL's decoders fail on broken files in ways that no list holds
        raise ValueError(
            "The picture can't be read: it is damaged or cut off. Save it again as PNG or JPEG."
        ) from error
    raise ValueError(
        f"The picture has {width} x {height} pixels; up to {MAX_PIXELS // 10**6} million are allowed, and one side up to "
        f"{MAX_ASPECT} times the other. Make it smaller, or crop it."
    )


@dataclass(frozen=True, eq=False)
class Asking:
    """One question about one picture, and how many visual tokens it may cost.

    Attributes:
        image: PIL image, RGB.
        budget, allocation_mode, encode_ratio: as the processor's `token_budget` and the model's arguments of these names.
        max_new_tokens: of each answer.

    Raises:
        ValueError: the question is empty, too long, or holds control tokens or half of a character.
    """

    image: Image.Image
    question: str
    budget: int | str = "auto"
    allocation_mode: str = "select"
    encode_ratio: float | str = 1.0
    max_new_tokens: int = 64

    def __post_init__(self):
        if not self.question.strip():
            raise ValueError("There is no question; type what you want to know about the picture.")
        if len(self.question) > MAX_QUESTION:
            raise ValueError(f"The question has {len(self.question)} characters; at most {MAX_QUESTION} are allowed.")
        if found := _CONTROL.search(self.question):
            raise ValueError(f"The question holds the control token {found[0]}; leave it out.")
        if _HALF.search(self.question):
            raise ValueError("The question holds half of a character (a lone surrogate); type it again.")
