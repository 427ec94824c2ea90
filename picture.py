"""Any picture a user may have, as RGB: what a PIL image, an array or a file has to be before it can be encoded."""

import os

import numpy as np
import torch
from PIL import Image, ImageOps, UnidentifiedImageError

_DEEP_MODES = ("I;16", "I;16L", "I;16B", "I;16N", "I")  # whole numbers wider than 8 bits
_DEEP_MAXIMUM = 65535


def open_picture(source):
    """`source` with local files opened, and every PIL image as RGB of 8 bits, upright by its EXIF tag.

    16-bit pictures are scaled to 8 bits (PIL would clip them to white); CMYK, palette, grey and alpha go through PIL's own
    conversion, like in stock Qwen3-VL. Lists are converted entry by entry; URLs, base64 strings and arrays are left to the
    image processor.

    Raises:
        FileNotFoundError: a path-like string with no file behind it.
        ValueError: the file is no picture, is damaged, or has no pixels, or an array is not of 8 bits per channel.
    """
    if isinstance(source, (list, tuple)):
        return [open_picture(entry) for entry in source]
    if isinstance(source, os.PathLike):
        source = os.fspath(source)
    if isinstance(source, str):
        return source if _is_remote(source) else _open_file(source)
    if isinstance(source, Image.Image):
        return to_rgb(source, "the image")
    _check_array(source)
    return source


def _is_remote(source: str) -> bool:
    if source.startswith(("http://", "https://", "data:")):
        return True
    # Base64 of an image is long and has no file extension; what is short or looks like a path is one.
    return not os.path.exists(source) and len(source) > 255


def _open_file(path: str) -> Image.Image:
    if not os.path.isfile(path):
        raise FileNotFoundError(f"there is no image file {path!r}; check the path")
    try:
        with Image.open(path) as image:
            image.load()
            return to_rgb(image, path)
    except UnidentifiedImageError as error:
        raise ValueError(f"{path} is not a picture that PIL reads; convert it to PNG or JPEG") from error
    except (OSError, SyntaxError, Image.DecompressionBombError) as error:
        raise ValueError(f"{path} can't be read as a picture ({error}); it may be truncated or too large") from error


def to_rgb(image: Image.Image, name: str) -> Image.Image:
    """`image` as upright 8-bit RGB.

    Raises:
        ValueError: it has no pixels, is damaged, or its values have no known scale.
    """
    if image.width == 0 or image.height == 0:
        raise ValueError(f"{name} is {image.width} x {image.height} pixels; pass an image with at least one pixel")
    try:
        image = ImageOps.exif_transpose(image)
        if image.mode in _DEEP_MODES:
            return _from_deep(image, name)
        if image.mode == "F":
            raise ValueError(f"{name} has floating-point pixels of unknown scale; convert it to 8-bit RGB first")
        return image if image.mode == "RGB" else image.convert("RGB")
    except OSError as error:
        raise ValueError(f"{name} can't be read as a picture ({error}); it may be truncated") from error


def _from_deep(image: Image.Image, name: str) -> Image.Image:
    values = np.asarray(image).astype(np.int64)
    if values.min() < 0 or values.max() > _DEEP_MAXIMUM:
        raise ValueError(
            f"{name} has values {values.min()} to {values.max()}; 16-bit pictures have 0 to {_DEEP_MAXIMUM}: convert it to 8-bit "
            "RGB first"
        )
    return Image.fromarray((values / 257).round().astype(np.uint8)).convert("RGB")


def _check_array(array):
    dtype = getattr(array, "dtype", None)
    kind = np.asarray(array[:0] if len(getattr(array, "shape", ())) else array)
    if dtype is not None and kind.dtype != np.uint8 and not np.issubdtype(kind.dtype, np.floating):
        raise ValueError(f"an image array has dtype {dtype}; pass uint8 with values 0 to 255, or a PIL image")


def square(image, size: int) -> torch.Tensor:
    """(3, size, size) uint8: an image, squeezed or stretched into a square.

    Args:
        image: PIL image, or an array or tensor with 1 or 3 channels first or last; floating-point arrays hold values in
            [0, 1] if no value is above 1, else in [0, 255].
        size: side of the square in pixels.

    Raises:
        ValueError: the array is no picture.
    """
    if not isinstance(image, Image.Image):
        image = _array_to_pil(image)
    # Reducing by whole numbers first makes large pictures several times faster; the gap keeps the result antialiased.
    squared = image.convert("RGB").resize((size, size), Image.Resampling.BILINEAR, reducing_gap=2.0)
    return torch.from_numpy(np.array(squared)).permute(2, 0, 1).contiguous()


def _array_to_pil(array) -> Image.Image:
    values = np.asarray(array.detach().cpu() if isinstance(array, torch.Tensor) else array)
    if values.ndim == 2:
        values = values[..., None]
    if values.ndim != 3 or 0 in values.shape or not {values.shape[0], values.shape[-1]} & {1, 3}:
        raise ValueError(
            f"an image array has shape {values.shape}; pass (height, width, 3), (3, height, width) or a PIL image"
        )
    if values.shape[0] in (1, 3) and values.shape[-1] not in (1, 3):
        values = values.transpose(1, 2, 0)
    if np.issubdtype(values.dtype, np.floating):
        if not np.isfinite(values).all():
            raise ValueError("an image array holds NaN or infinity; pass finite values")
        values = (values * (255 if values.max() <= 1 else 1)).clip(0, 255).round().astype(np.uint8)
    return Image.fromarray(values[..., 0] if values.shape[-1] == 1 else values)
