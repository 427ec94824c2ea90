"""Labels beside, above and below their values, in the question's case or another: one page drawn in several ways, as a folder
for the evaluation, whose `family` is the way.

    python -m dev.label_places --out runs/labels
    python -m evaluation.run --model checkpoints/arrcoc-small --data runs/labels --methods arrcoc,query_blind ...

Values and layouts are of its own, the fonts those that training never draws; of the labels, training has most elsewhere.
"""

import argparse
import json
from dataclasses import dataclass
from pathlib import Path
from random import Random

from PIL import Image, ImageDraw

from training.world.fonts import HELD_OUT_FONTS, load_font

SIZE = 192  # pixels a side
LABELS = (
    "Humidity", "Altitude", "Battery", "Gate", "Platform", "Seat", "Heart rate", "Visitors", "Downloads", "Mileage", "Pressure",
    "Balance", "Uptime", "Score", "Speed", "Weight", "Signal", "Queue", "Storage", "Calories", "Deposit", "Voltage", "Floor",
)  # fmt: skip


@dataclass(frozen=True)
class Way:
    """How a page is drawn and asked.

    Attributes:
        place: of the label, "beside", "above" or "below" its value.
        columns: of fields.
        taller: pixels that a value's font is larger than its label's.
        drawn, asked: what is done to a label where it is drawn and where it is asked for.
    """

    place: str
    columns: int = 1
    taller: int = 0
    drawn: str = "capitalize"
    asked: str = "lower"


WAYS = {
    "beside": Way("beside"),
    "above": Way("above", 2),
    "above, larger value": Way("above", 2, 6),
    "below": Way("below", 2),
    "below, larger value": Way("below", 2, 6),
    "page in capitals": Way("beside", drawn="upper"),
    "page in capitals, above": Way("above", 2, drawn="upper"),
    "question in capitals": Way("beside", asked="upper"),
    "both in capitals": Way("beside", drawn="upper", asked="upper"),
}


def draw(way: Way, seed: int) -> tuple[Image.Image, list[dict]]:
    """A page, and its questions as lines of metadata without a file's name."""
    random = Random(f"labels {seed}")  # the same fields, whichever way they stand
    name, size = random.choice(HELD_OUT_FONTS), random.randint(10, 13)
    small, large = load_font(name, size), load_font(name, size + way.taller)
    image = Image.new("RGB", (SIZE, SIZE), random.choice(("white", "#f4f1e8", "#eef3f8")))
    pen, rows = ImageDraw.Draw(image), 6 // way.columns
    wide, high, lines = SIZE // way.columns, SIZE // rows, []
    for number, label in enumerate(random.sample(LABELS, 6)):
        value = f"{random.randint(10, 9999)}{random.choice(('', '%', ' km', ' h'))}"
        left, top = number % way.columns * wide + 8, number // way.columns * high + 4
        shown, under = getattr(label, way.drawn)(), top + size + 4 + way.taller * (way.place == "below")
        across = left + max(pen.textlength(shown, small) + 8, wide // 2) if way.place == "beside" else left
        label_top, value_top = {"beside": (top, top), "above": (top, under), "below": (under, top)}[way.place]
        pen.text((left, label_top), shown, "#222", small)
        pen.text((across, value_top), value, "#222", large)
        lines.append(
            {
                "question": f"what is the {getattr(label, way.asked)()}?",
                "answers": [value],
                "evidence": [list(pen.textbbox((across, value_top), value, large))],
                "context": [list(pen.textbbox((left, label_top), shown, small))],
            }
        )
    return image, lines


def main(arguments: list[str] | None = None):
    """Command line of this file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="folder to write the pages and metadata.jsonl to")
    parser.add_argument("--pages", type=int, default=20, help="of each way, with six questions each")
    options = parser.parse_args(arguments)
    if options.out.exists() and any(options.out.iterdir()):
        parser.error(f"{options.out} holds files already; name a new folder, so that nothing in it is overwritten")
    options.out.mkdir(parents=True, exist_ok=True)
    with (options.out / "metadata.jsonl").open("w", encoding="utf-8") as metadata:
        for family, way in WAYS.items():
            for seed in range(options.pages):
                image, lines = draw(way, seed)
                name = f"{family.replace(', ', '-').replace(' ', '_')}_{seed:03}.png"
                image.save(options.out / name)
                metadata.writelines(json.dumps({"file_name": name, "family": family} | line) + "\n" for line in lines)


if __name__ == "__main__":
    main()
