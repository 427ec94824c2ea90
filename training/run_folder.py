"""What stands in a run's folder: the JSON-lines file of its metrics, whose lines have a `step`, by what one tool knows
another's, and by what a resumed run knows its data."""

import json
from collections.abc import Iterable
from pathlib import Path

from evaluation.records import data_fingerprint
from training.data import Example

STATE = "state.pt"  # of `train_base`
OPTIONS = "options.json"  # of `train_allocator`


def fingerprint_of(examples: Iterable[Example]) -> str:
    """A hash of what a resumed run has to be given again: pages, names, questions, answers and boxes of the examples in order.
    No picture is opened."""
    examples = list(examples)
    pictures = [example.picture if isinstance(example.picture, (str, Path)) else "" for example in examples]
    contexts = [[[float(side) for side in box] for box in example.context] for example in examples]
    return data_fingerprint(examples, [f"{path} {context}" for path, context in zip(pictures, contexts, strict=True)])


def cut_after(path: Path, step: int) -> None:
    """Takes out the lines after `step`, and those cut short by a full disk or a kill: a run that goes on from there writes its
    own. Step 0 leaves an empty file."""
    lines = path.read_text().splitlines() if step and path.exists() else []
    kept = [line for line in lines if (own := _step_of(line)) is not None and own <= step]
    path.write_text("".join(f"{line}\n" for line in kept))


def _step_of(line: str) -> int | None:
    try:
        return json.loads(line)["step"]
    except (ValueError, TypeError, KeyError):
        return None
