"""The pages that are asked: the drawn world's held-out split, or a folder in imagefolder form."""

import json
from dataclasses import dataclass
from pathlib import Path

from PIL import Image

from training.world import Style, make_page


@dataclass(frozen=True)
class Example:
    """One question about one picture; any of `answers` counts."""

    image: Image.Image
    question: str
    answers: tuple[str, ...]
    family: str


# Grids of the world's evaluation, (rows, columns) of merged tokens.
WORLD_GRIDS = ((8, 8), (8, 12), (10, 10), (12, 12))
WORLD_STYLES = {"one_field": Style(), "several_fields": Style(fields=(2, 4), font_sizes=(12, 18))}


def world_examples(pages: int, seed: int, split: str = "held_out") -> list[Example]:
    """`pages` pages of a split, one question each, spread evenly over `WORLD_GRIDS` and `WORLD_STYLES`."""
    examples = []
    kinds = [(grid, style) for grid in WORLD_GRIDS for style in WORLD_STYLES.values()]
    for number in range(pages):
        grid, style = kinds[number % len(kinds)]
        page = make_page(seed + number, split, cells=grid, style=style)
        question = page.questions[0]
        examples.append(Example(page.image, question.text, (question.answer,), question.family))
    return examples


def folder_examples(folder: Path) -> list[Example]:
    """The examples of `folder`/metadata.jsonl: `file_name`, `question`, `answers`, optional `family`.

    Raises:
        ValueError: the file is missing, or a line lacks a field, with its number.
    """
    metadata = folder / "metadata.jsonl"
    if not metadata.exists():
        raise ValueError(f"{metadata} is missing; pass a folder in imagefolder form, or 'world'")
    examples = []
    for number, line in enumerate(metadata.read_text(encoding="utf-8").splitlines(), start=1):
        row = json.loads(line)
        lacking = [name for name in ("file_name", "question", "answers") if name not in row]
        if lacking:
            raise ValueError(f"{metadata}:{number} lacks {', '.join(lacking)}")
        image = Image.open(folder / row["file_name"]).convert("RGB")
        examples.append(Example(image, row["question"], tuple(row["answers"]), row.get("family", "all")))
    return examples
