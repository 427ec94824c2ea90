"""Draws how a page is read: its 13 texture channels, its three scores, its relevance and its kept cells.

python -m demo.figures --image demo/page.png --budget 16 --out docs/how_it_works.png
"""

import argparse
import sys
from pathlib import Path

import torch
from PIL import Image, ImageDraw, ImageFont

from arrcoc import ARRCOCProcessor, ARRCOCQwen3VLForConditionalGeneration
from arrcoc.overlay import heatmap
from arrcoc.picture import open_picture
from arrcoc.texture import TEXTURE_CHANNELS, pixel_canvas, texture_array
from demo.answer import HERE, TOLD, budget_of, default_questions, prepare
from upload import DEFAULT_CHECKPOINT

PANEL, TITLE, COLUMNS = 220, 22, 6  # pixels, pixels, panels


def panels_of(image: Image.Image, question: str, budget, folder) -> list[tuple[str, Image.Image]]:
    """(title, picture) of the page, each channel, each score, the relevance, and the kept cells."""
    processor = ARRCOCProcessor.from_pretrained(folder)
    model = ARRCOCQwen3VLForConditionalGeneration.from_pretrained(folder, dtype=torch.float32).eval()
    inputs = prepare(processor, image, question, budget)
    allocation = model.allocate(**inputs)[0]
    grid = allocation.grid[1:]
    canvas = pixel_canvas(inputs["texture_images"][0], grid, max_cell_pixels=model.config.max_cell_pixels)
    texture = texture_array(canvas, grid)
    maps = list(zip(TEXTURE_CHANNELS, texture, strict=True))
    maps += [(f"{name} score", score[0]) for name, score in allocation.scores.items()]
    maps.append(("relevance", allocation.relevance[0]))
    shown = image.resize((PANEL, round(PANEL * image.height / image.width)), Image.Resampling.LANCZOS)
    drawn = [(name, Image.fromarray(heatmap(values.numpy())).resize(shown.size, 0)) for name, values in maps]
    return [
        ("page", shown),
        *drawn,
        (f"{len(allocation)} of {grid[0] * grid[1]} cells kept", allocation.overlay(shown)),
    ]


def sheet(panels: list[tuple[str, Image.Image]]) -> Image.Image:
    """The panels in rows of `COLUMNS`, titled."""
    width, height = panels[0][1].width + 8, panels[0][1].height + TITLE + 8
    rows = -(-len(panels) // COLUMNS)
    canvas = Image.new("RGB", (COLUMNS * width, rows * height), "white")
    draw = ImageDraw.Draw(canvas)
    for number, (title, picture) in enumerate(panels):
        left, top = number % COLUMNS * width + 4, number // COLUMNS * height + 4
        draw.text((left, top), title, fill="black", font=ImageFont.load_default(15))
        canvas.paste(picture, (left, top + TITLE))
    return canvas


def main(arguments: list[str] | None = None) -> int:
    """Command line of this file; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--image", default=str(HERE / "page.png"))
    parser.add_argument("--question", default=default_questions()[0])
    parser.add_argument("--budget", type=budget_of, default=16)
    parser.add_argument("--model", default=str(DEFAULT_CHECKPOINT))
    parser.add_argument("--out", type=Path, default=Path("docs/how_it_works.png"))
    options = parser.parse_args(arguments)
    try:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        sheet(panels_of(open_picture(options.image), options.question, options.budget, options.model)).save(options.out)
    except TOLD as error:
        print(f"demo.figures: {' '.join(str(error).split())}", file=sys.stderr)
        return 1
    print(options.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
