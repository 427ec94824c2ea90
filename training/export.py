"""Turns a trained stock base into the bundled checkpoint: our config, an allocator, no code files.

python -m training.export --base runs/base/export --allocator runs/allocator/allocator.safetensors
"""

import argparse
import shutil
import sys
import tempfile
from pathlib import Path

from arrcoc import ARRCOCQwen3VLForConditionalGeneration
from training.allocator import load_allocator
from training.base_model import HEADS
from upload import CODE_FILES, DEFAULT_CHECKPOINT, files_of, stage


def export(base: Path, out: Path, allocator: Path | None = None):
    """Writes to `out` what a staged folder of `base` has beside the code, which the repository holds already.

    Earlier files in `out` are replaced; the auxiliary heads of the base's training are kept beside the model. Without a
    trained `allocator` a neutral one comes from a fixed seed, so the same base gives the same files.
    """
    with tempfile.TemporaryDirectory() as scratch:
        staged = stage(base, Path(scratch) / "staged")
        if allocator is not None:
            model = ARRCOCQwen3VLForConditionalGeneration.from_pretrained(staged, dtype="auto")
            load_allocator(model, allocator)
            model.save_pretrained(staged)
        if out.exists():
            shutil.rmtree(out)
        out.mkdir(parents=True)
        for name in files_of(staged):
            if name not in CODE_FILES and name != "README.md":
                shutil.copyfile(staged / name, out / name)
        if (base / HEADS).exists():
            shutil.copyfile(base / HEADS, out / HEADS)


def main(arguments: list[str] | None = None):
    """Command line of this file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--base", type=Path, required=True, help="stock Qwen3-VL folder that train_base wrote")
    parser.add_argument("--allocator", type=Path, help="allocator.safetensors that train_allocator wrote on that base")
    parser.add_argument("--out", type=Path, default=DEFAULT_CHECKPOINT)
    options = parser.parse_args(arguments)
    export(options.base, options.out, options.allocator)
    print(options.out, f"{sum(f.stat().st_size for f in options.out.iterdir()) / 2**20:.1f} MiB")


if __name__ == "__main__":
    sys.exit(main())
