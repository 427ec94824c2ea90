"""What stands in a run's folder: the JSON-lines file of its metrics, whose lines have a `step`, and by what one tool knows
another's."""

import json
from pathlib import Path

STATE = "state.pt"  # of `train_base`
OPTIONS = "options.json"  # of `train_allocator`


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
