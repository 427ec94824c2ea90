"""The picture of an allocation: relevance as a heatmap over the image, kept cells outlined."""

import numpy as np
from PIL import Image, ImageDraw
from transformers.utils import logging

from .picture import to_rgb

logger = logging.get_logger(__name__)

HEAT_OPACITY = 0.45
# Control points of the heatmap from low to high relevance, RGB.
HEAT_COLOURS = ((13, 8, 135), (156, 23, 158), (237, 121, 83), (240, 249, 33))
FINE_OUTLINE, POOLED_OUTLINE = (0, 200, 83), (0, 145, 234)


def heatmap(values: np.ndarray) -> np.ndarray:
    """(h, w, 3) uint8 colours of a map, stretched from its lowest to its highest value."""
    low, high = float(values.min()), float(values.max())
    scaled = (values - low) / (high - low) if high > low else np.zeros_like(values)
    stops = np.linspace(0, 1, len(HEAT_COLOURS))
    channels = [np.interp(scaled, stops, [colour[c] for colour in HEAT_COLOURS]) for c in range(3)]
    return np.stack(channels, axis=-1).round().astype(np.uint8)


def draw_overlay(allocation, image: Image.Image) -> Image.Image:
    """`image` under its relevance, with kept fine cells outlined in green and pooled blocks in blue.

    Args:
        allocation: `Allocation` of that image.
        image: PIL image of any size and mode; cells fall where they do in the resized image that the model saw. One of another
            shape by more than a cell is drawn with a warning: it may be another picture.

    Returns:
        RGB image of the same size, upright by its EXIF tag as the model saw it.

    Raises:
        TypeError: `image` is not a PIL image.
    """
    if not isinstance(image, Image.Image):
        raise TypeError(f"overlay needs the PIL image that was allocated, got {type(image).__name__}; open it with PIL")
    picture = to_rgb(image, "the image")
    _, height, width = allocation.grid
    if (
        abs(picture.width / picture.height * height - width) > 1.5
        and abs(picture.height / picture.width * width - height) > 1.5
    ):
        logger.warning(
            f"the image is {picture.width} x {picture.height} pixels, and the allocation is of {width} x {height} cells; is it "
            "that of another image?"
        )
    heat = Image.fromarray(heatmap(allocation.relevance[0].float().cpu().numpy()))
    # Nearest, so that a cell's colour ends exactly where the cell ends.
    picture = Image.blend(picture, heat.resize(picture.size, Image.Resampling.NEAREST), HEAT_OPACITY)
    draw = ImageDraw.Draw(picture)
    rows = np.linspace(0, picture.height, height + 1)
    columns = np.linspace(0, picture.width, width + 1)
    owner = allocation.cell_token.view(height, width).cpu().numpy()
    level = allocation.level.cpu().numpy()
    line = max(1, round(min(picture.height / height, picture.width / width) / 12))
    for row, column in np.argwhere(owner >= 0):
        token = owner[row, column]
        colour = POOLED_OUTLINE if level[token] else FINE_OUTLINE
        top, left = round(rows[row]), round(columns[column])
        bottom, right = max(round(rows[row + 1]) - 1, top), max(round(columns[column + 1]) - 1, left)
        # An edge between two cells of the same pooled token is not drawn, so that the block reads as one.
        sides = {(-1, 0): (left, top, right, top), (1, 0): (left, bottom, right, bottom)}
        sides |= {(0, -1): (left, top, left, bottom), (0, 1): (right, top, right, bottom)}
        for (down, across), (x0, y0, x1, y1) in sides.items():
            near_row, near_column = row + down, column + across
            inside = 0 <= near_row < height and 0 <= near_column < width
            if inside and level[token] and owner[near_row, near_column] == token:
                continue
            x0, x1 = (x0, min(x0 + line - 1, right)) if across < 0 else (max(x1 - line + 1, left) if across else x0, x1)
            y0, y1 = (y0, min(y0 + line - 1, bottom)) if down < 0 else (max(y1 - line + 1, top) if down else y0, y1)
            draw.rectangle((x0, y0, x1, y1), fill=colour)
    return picture
