"""Any picture a user may have, as RGB: what a PIL image, an array or a file has to be before it can be encoded."""

import base64
import binascii
import inspect
import os
import re
from io import BytesIO
from urllib.parse import unquote, urlsplit
from urllib.request import url2pathname

import numpy as np
import torch
import torch.nn.functional as F
from PIL import ExifTags, Image, UnidentifiedImageError

_DEEP_MODES = ("I;16", "I;16L", "I;16B", "I;16N", "I")  # whole numbers wider than 8 bits
_DEEP_MAXIMUM = 65535
# Of arrays: torchvision does not round these to bytes, nor clip them.
_WIDE = ("float16", "bfloat16", "float32", "float64", "int32", "int64")
_REDUCING_GAP = 2.0  # PIL first reduces by whole numbers a picture of more than twice this many times the target size
_ROUNDING = 1e-3  # what resizing may leave beyond 0 and 1
_SCHEME = re.compile(r"(?:https?|file)://|data:", re.IGNORECASE)
_NO_BASE64 = re.compile(r"[^A-Za-z0-9+/=\s]")
_SECONDS = 60  # without a byte, after which a server is given up
MAX_ASPECT = 200  # times as long as wide is what Qwen3-VL's image processors take
_TURN = Image.Transpose
# how a picture is turned upright, by its EXIF orientation
_TURNS = {
    2: _TURN.FLIP_LEFT_RIGHT, 3: _TURN.ROTATE_180, 4: _TURN.FLIP_TOP_BOTTOM, 5: _TURN.TRANSPOSE, 6: _TURN.ROTATE_270,
    7: _TURN.TRANSVERSE, 8: _TURN.ROTATE_90,
}  # fmt: skip
_SAYS_HOW = ("exif", "Raw profile type exif", "xmp", "XML:com.adobe.xmp")  # where a file may hold its orientation


def open_picture(source, data_format: str | None = None, keep_arrays: bool = False, keep_wide: bool = False):
    """`source` with local files opened, and every picture and array as a PIL image: RGB of 8 bits, upright by its EXIF tag.

    16-bit pictures are scaled to 8 bits (PIL would clip them to white); CMYK, palette, grey and alpha go through the
    conversion of stock Qwen3-VL, which lays what is transparent on white from transformers 5.21 on. Lists are converted entry
    by entry; what is no picture at all is left to the image processor.

    Args:
        source: path, URL, base64 string, PIL image, bytes of a file, open file, array or tensor, `{"bytes": ..., "path": ...}` as
            the library `datasets` has a picture that it did not decode, or a list of these.
        data_format: "channels_first" or "channels_last" where the shape of an array does not tell; see `to_pil`.
        keep_arrays: leave floating-point arrays to the image processor, unchecked.
        keep_wide: leave it arrays of three channels of these `_WIDE` types too, once checked, but for those in [0, 1].

    Raises:
        FileNotFoundError: a path-like string with no file behind it.
        ValueError: the file or text is no picture, is damaged, or has no pixels, an array is no picture, a URL can't be fetched,
            an entry of a list is `None`, or a dict or an array holds no picture.
    """
    if isinstance(source, (list, tuple)):
        opened: list = []
        for place, entry in enumerate(source):
            if entry is None:
                raise ValueError(
                    f"entry {place} of images is None; leave it out, or pass [] for a text without a picture"
                )
            one = open_picture(entry, data_format, keep_arrays, keep_wide)
            batch = isinstance(one, list) and isinstance(entry, (np.ndarray, torch.Tensor))  # may stand beside pictures
            opened += one if batch else [one]
        return opened
    if isinstance(source, dict) and source.keys() & {"bytes", "path"}:
        source = source.get("bytes") or source.get("path")
        if not source:
            raise ValueError("a picture has neither bytes nor a path; give one of the two, or leave the picture out")
    if isinstance(source, os.PathLike):
        source = os.fspath(source)
        if isinstance(source, str):
            return _open_path(source)
    if isinstance(source, (bytes, bytearray, memoryview)):
        return _open_file(BytesIO(source), "the picture in bytes")
    if hasattr(source, "read") and not isinstance(source, Image.Image):
        return _open_file(source, f"the picture in {getattr(source, 'name', 'the open file')}")
    if isinstance(source, str):
        return _open_text(source)
    if isinstance(source, Image.Image):
        return to_rgb(source, "the image")
    if isinstance(source, (np.ndarray, torch.Tensor)) and source.ndim == 4:
        if len(source) == 0:
            raise ValueError(
                f"an array of shape {tuple(source.shape)} holds no picture; leave it out, or pass [] for none"
            )
        pictures = [open_picture(entry, data_format, keep_arrays, keep_wide) for entry in source]
        return pictures[0] if len(pictures) == 1 else pictures  # a part of a chat is one picture
    if isinstance(source, (np.ndarray, torch.Tensor)):
        kind = str(source.dtype).removeprefix("torch.")
        if keep_arrays and "float" in kind:
            return source
        picture = to_pil(source, data_format)
        channels = [size for size in (source.shape[0], source.shape[-1]) if size in (1, 3, 4)]
        wide = keep_wide and kind in _WIDE and source.ndim == 3 and channels == [3] and source.max() > 1 + _ROUNDING
        return source if wide else picture
    return source


def _open_text(source: str):
    scheme = (_SCHEME.match(source) or [""])[0].lower()
    if scheme in ("http://", "https://"):
        return _open_file(BytesIO(_fetched(source)), f"the picture at {source}")
    if scheme == "file://":
        return _open_path(url2pathname(urlsplit(source).path))
    # A path has at most 255 characters between two slashes, and mostly a dot, which base64 has not; short texts may be either.
    longest = max(map(len, source.split("/")))
    path = len(source) <= 255 or (longest <= 255 and _NO_BASE64.search(source) is not None)
    if scheme != "data:" and (os.path.isfile(source) or (path and not _is_base64_picture(source))):
        return _open_path(source)
    name = f"the base64 text {source[:20]}..."
    try:
        text = unquote(source.partition(",")[2]) if scheme == "data:" else source
        content = base64.b64decode("".join(text.split()), validate=True)
    except (binascii.Error, ValueError) as error:
        raise ValueError(f"{name} can't be decoded ({error}); pass a path, a URL or the base64 of an image") from error
    return _open_file(BytesIO(content), name)


def _fetched(url: str) -> bytes:
    """The bytes at an address: transformers' own `load_image` also decodes them, and turns what is transparent or has 16 bits into
    black or white."""
    try:
        from huggingface_hub.utils import httpx  # the one that the installed release is built on
    except ImportError:
        import httpx
    try:
        answer = httpx.get(url, follow_redirects=True, timeout=_SECONDS)
        answer.raise_for_status()
    except (httpx.HTTPError, httpx.InvalidURL, UnicodeError) as error:  # the last of a host that is no name
        told = f"status {answer.status_code}" if isinstance(error, httpx.HTTPStatusError) else str(error) or repr(error)
        raise ValueError(f"the picture at {url} can't be fetched ({told}); check the address") from error
    return answer.content


def _open_path(path: str) -> Image.Image:
    if not os.path.isfile(path):
        raise FileNotFoundError(f"there is no image file {path!r}; check the path")
    return _open_file(path, path)


def _is_base64_picture(text: str) -> bool:
    try:
        with Image.open(BytesIO(base64.b64decode("".join(text.split()), validate=True))):
            return True
    except Exception:
        return False


def _open_file(file, name: str) -> Image.Image:
    with _loaded(file, name) as image:
        return to_rgb(image, name)


def _loaded(file, name: str) -> Image.Image:
    try:
        image = Image.open(file)
        image.load()
    except UnidentifiedImageError as error:
        raise ValueError(f"{name} is not a picture that PIL reads; convert it to PNG or JPEG") from error
    except Exception as error:  # the decoders of PIL's many formats raise what they meet
        raise ValueError(f"{name} can't be read as a picture ({error}); it may be truncated or too large") from error
    return image


def to_rgb(image: Image.Image, name: str) -> Image.Image:
    """`image` as upright 8-bit RGB.

    Raises:
        ValueError: it has no pixels, is damaged, or its values have no known scale.
    """
    if image.width == 0 or image.height == 0:
        raise ValueError(f"{name} is {image.width} x {image.height} pixels; pass an image with at least one pixel")
    try:
        image.load()  # PIL opens a file without reading it
    except (OSError, SyntaxError, ValueError) as error:
        raise ValueError(f"{name} can't be read as a picture ({error}); it may be truncated or closed") from error
    image = upright(image, name)
    if image.mode in _DEEP_MODES:
        return _from_deep(image, name)
    if image.mode == "F":
        raise ValueError(f"{name} has floating-point pixels of unknown scale; convert it to 8-bit RGB first")
    if image.mode == "LAB":  # whose A is no alpha, but is taken for it
        image = image.convert("RGB")
    try:
        return image if image.mode == "RGB" and "transparency" not in image.info else _stock_rgb(image)
    except (ValueError, TypeError) as error:  # the latter from what a file says of its transparency
        said = image.info.get("transparency")
        told = "" if said is None or image.mode == "P" else f" and transparency {said!r}"
        do = "save it without that" if told else "convert it to 8-bit RGB first"
        raise ValueError(f"{name} has mode {image.mode}{told}, which PIL can't convert; {do}") from error


def upright(image: Image.Image, name: str) -> Image.Image:
    """`image`, turned as its EXIF tag says; a copy that says so no longer, if it is turned.

    PIL's own `exif_transpose` writes the other tags anew, and fails where one of them has a type that it does not expect.

    Raises:
        ValueError: its EXIF data can't be read.
    """
    try:
        turn = _TURNS.get(image.getexif().get(ExifTags.Base.Orientation))
    except Exception as error:  # PIL's parser raises what it meets
        raise ValueError(f"{name} has EXIF data that can't be read ({error}); save it without them") from error
    if turn is None:
        return image
    turned = image.transpose(turn)
    for place in _SAYS_HOW:
        turned.info.pop(place, None)
    return turned


def _stock_rgb(image: Image.Image) -> Image.Image:
    from transformers.image_transforms import convert_to_rgb  # nothing else here needs more than PIL and torch

    if "return_numpy" not in inspect.signature(convert_to_rgb).parameters:  # before 5.21
        if "A" in image.getbands() or "transparency" in image.info:
            _warn_once(
                "a picture is transparent in parts, and below transformers 5.21 those show whatever colour hides there, mostly "
                "black: lay it on a page first, or run: pip install 'transformers>=5.21,<6'"
            )
        return convert_to_rgb(image)
    return Image.fromarray(convert_to_rgb(image, return_numpy=True))


def _warn_once(message: str):
    from transformers.utils import logging

    logging.get_logger(__name__).warning_once(message)


def _from_deep(image: Image.Image, name: str) -> Image.Image:
    values = np.asarray(image).astype(np.int64)
    # 8-bit values in a wider mode: as 16 bits the page would be black
    if values.min() >= 0 and values.max() <= 255:
        return Image.fromarray(values.astype(np.uint8)).convert("RGB")
    if values.min() < 0 or values.max() > _DEEP_MAXIMUM:
        raise ValueError(
            f"{name} has values {values.min()} to {values.max()}; 16-bit pictures have 0 to {_DEEP_MAXIMUM}: convert it to 8-bit "
            "RGB first"
        )
    return Image.fromarray((values / 257).round().astype(np.uint8)).convert("RGB")


def check_sizes(pictures, multiple: int | None) -> None:
    """Refuses PIL images that can't be cut into cells, by number and size.

    Args:
        multiple: pixels of a cell's side, where pictures are not resized to whole cells; None where they are.

    Raises:
        ValueError: a side is no multiple, or one is more than 200 times the other.
    """
    for number, picture in enumerate(pictures):
        if not isinstance(picture, Image.Image):
            continue
        told = f"picture {number} (from 0) is {picture.width} x {picture.height} pixels"
        if multiple is None and max(picture.size) > MAX_ASPECT * min(picture.size):
            raise ValueError(f"{told}; one side may be {MAX_ASPECT} times the other at most: crop it, or pad it")
        if multiple is not None and any(side % multiple for side in picture.size):
            raise ValueError(
                f"{told}; with do_resize=False both must be multiples of {multiple}: resize it to such, or leave do_resize out"
            )


def square(image, size: int, data_format: str | None = None) -> torch.Tensor:
    """(3, size, size) uint8: an image, squeezed or stretched into a square.

    Args:
        image: PIL image, or an array or tensor as `to_pil` takes it.
        size: side of the square in pixels.
        data_format: of an array, see `to_pil`.

    Raises:
        ValueError: the array is no picture.
    """
    if not isinstance(image, Image.Image):
        image = to_pil(image, data_format)
    image = image if image.mode == "RGB" else image.convert("RGB")  # which would copy it
    if max(image.size) < 2 * _REDUCING_GAP * size:  # as PIL does, to a step of 255, two to four times as fast
        whole = torch.from_numpy(np.array(image)).permute(2, 0, 1)[None]
        return F.interpolate(whole, size=(size, size), mode="bilinear", antialias=True)[0].contiguous()
    # Reducing by whole numbers first makes large pictures several times faster; the gap keeps the result antialiased.
    squared = image.resize((size, size), Image.Resampling.BILINEAR, reducing_gap=_REDUCING_GAP)
    return torch.from_numpy(np.array(squared)).permute(2, 0, 1).contiguous()


def to_pil(array, data_format: str | None = None) -> Image.Image:
    """An array or tensor of one picture as 8-bit RGB.

    Stock Qwen3-VL divides every array by 255, so that one in [0, 1] reaches it all but black; here it is scaled.

    Args:
        array: (height, width), or 1, 3 or 4 channels (the fourth is alpha) first or last; whole numbers in [0, 255], or
            floating-point with values in [0, 1] if none is above 1 but by rounding, else in [0, 255].
        data_format: "channels_first" or "channels_last", for shapes such as (3, 40, 3) that do not tell.

    Raises:
        ValueError: the array is no picture; the message says what it is.
    """
    if isinstance(array, torch.Tensor):
        array = array.detach().cpu()
        array = array.float() if array.dtype == torch.bfloat16 else array  # numpy has none
    values = np.asarray(array)
    if np.issubdtype(values.dtype, np.integer) and values.size and values.min() >= 0 and values.max() <= 255:
        if values.min() == 0 and values.max() == 1:
            _warn_once(
                "an image array holds 0 and 1 alone, which are all but black; if it is a mask, pass it times 255"
            )
        values = values.astype(np.uint8)
    if values.dtype != np.uint8 and not np.issubdtype(values.dtype, np.floating):
        raise ValueError(f"an image array has dtype {values.dtype}; pass uint8 with values 0 to 255, or a PIL image")
    values = _channels_last(values, data_format)
    if np.issubdtype(values.dtype, np.floating):
        if not np.isfinite(values).all():
            raise ValueError("an image array holds NaN or infinity; pass finite values")
        if values.min() >= -_ROUNDING and values.max() <= 1 + _ROUNDING:
            values = values.clip(0, 1)
        elif 1 < values.max() < 2 and (values % 1 != 0).any():
            raise ValueError(
                f"an image array has values up to {values.max():g}, which may be of 0 to 1 or of 0 to 255; clip them to 0 to 1, or "
                "pass uint8"
            )
        if values.min() < 0 or values.max() > 255:
            raise ValueError(
                f"an image array has values {values.min():g} to {values.max():g}; pass 0 to 1 or 0 to 255, not normalized"
            )
        if values.shape[-1] == 4 and values.max() > 1:
            raise ValueError("an image array has floating-point alpha with values above 1; pass uint8, or 0 to 1")
        values = (values * (255 if values.max() <= 1 else 1)).round().astype(np.uint8)
    return _stock_rgb(Image.fromarray(values[..., 0] if values.shape[-1] == 1 else values))


def _channels_last(values: np.ndarray, data_format) -> np.ndarray:
    if values.ndim == 2:
        values = values[..., None]
        data_format = "channels_last"
    fits_first = values.ndim == 3 and values.shape[0] in (1, 3)
    fits_last = values.ndim == 3 and values.shape[-1] in (1, 3)
    if values.ndim == 3 and (data_format is not None or not (fits_first or fits_last)):
        fits_first, fits_last = fits_first or values.shape[0] == 4, fits_last or values.shape[-1] == 4
    if data_format is not None:
        data_format = getattr(data_format, "value", data_format)  # transformers' ChannelDimension
        fits_first, fits_last = (
            fits_first and data_format == "channels_first",
            fits_last and data_format == "channels_last",
        )
    if 0 in values.shape or not (fits_first or fits_last):
        raise ValueError(
            f"an image array has shape {values.shape}; pass (height, width, 3), (3, height, width), 4 channels with alpha, or a "
            "PIL image"
        )
    if fits_first and fits_last and values.shape != (1, 1, 1):
        raise ValueError(
            f"an image array has shape {values.shape}, whose channels may be first or last; pass "
            "input_data_format='channels_first' or 'channels_last', or a PIL image"
        )
    return values if fits_last else values.transpose(1, 2, 0)
