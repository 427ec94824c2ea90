"""Turns a trained stock base into the bundled checkpoint: our config, a neutral allocator, no code files.

python -m training.export --base runs/base/export --out checkpoints/arrcoc-small
"""

import argparse
import shutil
import sys
import tempfile
from pathlib import Path

from upload import CODE_FILES, DEFAULT_CHECKPOINT, files_of, stage


def export(base: Path, out: Path):
    """Writes to `out` what a staged folder of `base` has beside the code, which the repository holds already.

    Earlier files in `out` are replaced. The allocator comes from a fixed seed, so the same base gives the same files.
    """
    with tempfile.TemporaryDirectory() as scratch:
        staged = stage(base, Path(scratch) / "staged")
        if out.exists():
            shutil.rmtree(out)
        out.mkdir(parents=True)
        for name in files_of(staged):
            if name not in CODE_FILES and name != "README.md":
                shutil.copyfile(staged / name, out / name)


def main(arguments: list[str] | None = None):
    """Command line of this file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--base", type=Path, required=True, help="stock Qwen3-VL folder that train_base wrote")
    parser.add_argument("--out", type=Path, default=DEFAULT_CHECKPOINT)
    options = parser.parse_args(arguments)
    export(options.base, options.out)
    print(options.out, f"{sum(f.stat().st_size for f in options.out.iterdir()) / 2**20:.1f} MiB")


if __name__ == "__main__":
    sys.exit(main())
