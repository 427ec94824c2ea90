"""One file for each condition, named by it, so that a run that stopped goes on where it was."""

import json
import os
import platform
import re
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
import transformers

from evaluation.budgets import label
from evaluation.records import code_fingerprint

CPUINFO = Path("/proc/cpuinfo")  # of Linux


@dataclass(frozen=True)
class Condition:
    """What one file is about.

    Attributes:
        geometry: one of `benchmarks.geometry.GEOMETRIES`.
        pixels: side of the picture.
        batch: pictures per batch.
        budget: share of the cells, count, or "full".
        encode_ratio: share in (0, 1], or "auto".
        device, dtype: as on the command line.
    """

    geometry: str
    pixels: int
    batch: int
    budget: float | int | str
    encode_ratio: float | str
    device: str
    dtype: str

    @property
    def name(self) -> str:
        """Name of the file, without its ending."""
        spent = f"budget{label(self.budget)}_encode{label(self.encode_ratio)}"
        return f"{self.geometry}_{self.pixels}px_batch{self.batch}_{spent}_{self.device}_{self.dtype}"


class SettingsMismatch(ValueError):
    """A file of this condition was made with other settings."""


def settings_of(condition: Condition, methods, repeats: int, decode_tokens: int, seed: int, images: str) -> dict:
    """All that must be the same for a file to be used again: options, machine, versions and the model's code.

    Args:
        images: class of the image processor, which depends on whether torchvision is there.
    """
    cuda = condition.device == "cuda"
    return {
        **asdict(condition),
        "methods": list(methods),
        "repeats": repeats,
        "decode_tokens": decode_tokens,
        "seed": seed,
        "image_processor": images,
        "machine": torch.cuda.get_device_name() if cuda else _processor(),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "code": code_fingerprint("benchmarks", "evaluation"),
    }


def _processor() -> str:
    """The CPU by its maker's name, where the system tells it, with what of it torch uses."""
    named = re.search(r"^model name\s*: (.+)$", CPUINFO.read_text(), re.MULTILINE) if CPUINFO.exists() else None
    name = named[1].strip() if named else platform.processor() or platform.machine()
    return f"{name}, {platform.machine()} {torch.backends.cpu.get_cpu_capability()}"


def read(path: Path, settings: dict) -> dict | None:
    """The record in `path`, or `None` where there is none.

    Raises:
        SettingsMismatch: it was made with other settings, or is no record; the message says which and what to do.
    """
    if not path.exists():
        return None
    try:
        record = json.loads(path.read_text())
        made, *_ = {**record["settings"]}, record["summary"], record["cells"]
    except (ValueError, KeyError, TypeError) as error:
        raise SettingsMismatch(
            f"{path} is no record of a benchmark ({error!r}); delete it, or pass another --out"
        ) from None
    unlike = [
        f"{key} {made.get(key)!r} there, {settings[key]!r} here" for key in settings if made.get(key) != settings[key]
    ]
    if unlike:
        raise SettingsMismatch(
            f"{path} was measured otherwise ({'; '.join(unlike)}); delete it to measure again, or pass another --out"
        )
    return record


def write(path: Path, record: dict):
    """Writes the record whole or not at all."""
    part = path.with_suffix(".part")
    part.write_text(json.dumps(record, indent=1) + "\n")
    os.replace(part, path)
