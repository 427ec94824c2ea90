"""Writes pages as an imagefolder: ``python -m training.world --out FOLDER --pages 100 --split held_out --seed 0``."""

import argparse
import json
from pathlib import Path

from training.world import KINDS, SPLITS, Page, Style, make_page, named_boxes

_GRIDS = ((8, 8), (8, 12), (10, 10), (12, 12), (9, 14))


def metadata(page: Page, name: str) -> list[dict]:
    """One record per question: file_name, question, answers, evidence and context (left, top, right, bottom; pixels), family."""
    return [
        {
            "file_name": name,
            "question": question.text,
            "answers": [question.answer],
            "evidence": [list(box) for box in question.evidence],
            "context": [list(box) for box in named_boxes(page, question)],
            "family": question.family,
        }
        for question in page.questions
    ]


def write(out: Path, pages: int, split: str, seed: int, style: Style) -> int:
    """Writes the pages and metadata.jsonl into the folder, which must be new or empty; returns the number of questions.

    Raises:
        FileExistsError: the folder has files in it, or is a file.
        ValueError: there is no page to write.
    """
    if pages < 1:
        raise ValueError(f"--pages {pages}: pass a whole number from 1 on")
    if out.exists() and not out.is_dir():
        raise FileExistsError(f"{out} is a file; name a new folder")
    out.mkdir(parents=True, exist_ok=True)
    if any(out.iterdir()):
        raise FileExistsError(f"{out} is not empty; name a new folder, so that old pages don't mix with new ones")
    count = 0
    with (out / "metadata.jsonl").open("w") as lines:
        for index in range(pages):
            page = make_page(seed + index, split, _GRIDS[index % len(_GRIDS)], style)
            name = f"{split}-{seed + index:06d}.png"
            page.image.save(out / name)
            for record in metadata(page, name):
                lines.write(json.dumps(record) + "\n")
                count += 1
    return count


def main(arguments: list[str] | None = None) -> None:
    """Runs the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split(":")[0])
    parser.add_argument("--out", type=Path, required=True, help="a new or empty folder")
    parser.add_argument("--pages", type=int, default=100)
    parser.add_argument("--split", choices=SPLITS, default="held_out")
    parser.add_argument("--seed", type=int, default=0, help="of the first page; the others follow")
    parser.add_argument("--kind", choices=sorted(KINDS), default="world")
    options = parser.parse_args(arguments)
    try:
        count = write(options.out, options.pages, options.split, options.seed, KINDS[options.kind])
    except (OSError, ValueError) as error:
        parser.error(str(error))
    print(f"{options.pages} pages, {count} questions in {options.out}")


if __name__ == "__main__":
    main()
