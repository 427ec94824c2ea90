"""Turns a trained stock base into the bundled checkpoint: our config, an allocator, no code files; and back.

python -m training.export --base runs/base/export --allocator runs/allocator/allocator.safetensors --out checkpoints/arrcoc-small
python -m training.export --base checkpoints/arrcoc-small --stock --out runs/base/export
"""

import argparse
import shutil
import sys
import tempfile
from pathlib import Path

import torch
from huggingface_hub.errors import StrictDataclassError
from safetensors import SafetensorError
from transformers import Qwen3VLForConditionalGeneration

from arrcoc import ARRCOCQwen3VLForConditionalGeneration
from evaluation.loading import first_line
from training import base_model
from training.allocator import load_allocator
from training.base_model import HEADS
from upload import CODE_FILES, DEFAULT_CHECKPOINT, files_of, stage


def export(base: Path, out: Path, allocator: Path | None = None):
    """Writes to `out` what a staged folder of `base` has beside the code, which the repository holds already.

    An earlier model in `out`, which may be `base` itself, is replaced once the new one is whole; the auxiliary heads of the
    base's training are kept beside the model. Without a trained `allocator` a neutral one comes from a fixed seed, so the
    same base gives the same files.

    Raises:
        ValueError: `base` is no model's folder, `allocator` does not fit it, or `out` is a file or holds more than a model.
        OSError: a file can't be read or written. `out` is then as it was.
    """
    if not (base / "config.json").is_file():
        raise ValueError(f"{base} has no config.json; pass a model's folder, such as runs/base/export")
    if out.exists() and not out.is_dir():
        raise ValueError(f"{out} is a file; pass a folder")
    out = out.resolve()
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=f".{out.name}-") as scratch:
        staged, new, old = (Path(scratch) / name for name in ("staged", "new", "old"))
        stage(base, staged)
        if allocator is not None:
            model = ARRCOCQwen3VLForConditionalGeneration.from_pretrained(staged, dtype="auto")
            load_allocator(model, allocator)
            model.save_pretrained(staged)
        new.mkdir()
        for name in files_of(staged):
            if name not in CODE_FILES and name != "README.md":
                (new / name).parent.mkdir(exist_ok=True)
                shutil.copyfile(staged / name, new / name)
        if (base / HEADS).exists():
            shutil.copyfile(base / HEADS, new / HEADS)
        if out.exists():
            _check_replaced(out, new)
            out.rename(old)
        try:
            new.rename(out)
        except BaseException:
            if old.exists():
                old.rename(out)
            raise


def export_stock(checkpoint: Path, out: Path) -> None:
    """Writes the stock Qwen3-VL folder of a checkpoint of this geometry: what it is without its allocator.

    Raises:
        ValueError: it is no folder of a model, or one of another geometry, or `out` holds files already.
        OSError: a file can't be read or written.
    """
    if not (checkpoint / "config.json").is_file():
        raise ValueError(f"{checkpoint} has no config.json; pass a model's folder, such as {DEFAULT_CHECKPOINT}")
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ValueError(f"{out} is not empty; pass a new folder")
    model = Qwen3VLForConditionalGeneration.from_pretrained(checkpoint, dtype=torch.bfloat16)
    try:
        base_model.export(model, out)
    except RuntimeError as error:  # torch's, where shapes differ
        raise ValueError(
            f"{checkpoint} is not of the geometry of training/base_model.py ({first_line(error)})"
        ) from error
    if (checkpoint / HEADS).exists():
        shutil.copyfile(checkpoint / HEADS, out / HEADS)


def _check_replaced(out: Path, new: Path) -> None:
    # what a model's folder does not hold is not ours to delete; save_pretrained writes copies of the code, too
    models = {*CODE_FILES, HEADS, *(path.name for path in new.iterdir())}
    foreign = sorted({path.name for path in out.iterdir()} - models)
    if foreign:
        raise ValueError(
            f"{out} holds {foreign[0]}, which is no file of a model and would be lost; move it away, or pass another --out"
        )


def main(arguments: list[str] | None = None):
    """Command line of this file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--base", type=Path, required=True, help="model's folder, such as the stock one that train_base wrote"
    )
    parser.add_argument("--allocator", type=Path, help="allocator.safetensors that train_allocator wrote on that base")
    parser.add_argument(
        "--stock", action="store_true", help="write stock Qwen3-VL instead, without the allocator of --base"
    )
    parser.add_argument(
        "--out",
        type=Path,
        required=True,
        help="folder; a model in it is replaced, but by --stock, which takes a new one",
    )
    options = parser.parse_args(arguments)
    if options.stock and options.allocator:
        parser.error("--stock leaves the allocator out, and --allocator puts one in; pass one of them")
    try:
        if options.stock:
            export_stock(options.base, options.out)
        else:
            export(options.base, options.out, options.allocator)
    except (OSError, ValueError, SafetensorError, StrictDataclassError) as error:
        parser.error(str(error))
    print(options.out, f"{sum(f.stat().st_size for f in options.out.iterdir()) / 2**20:.1f} MiB")


if __name__ == "__main__":
    sys.exit(main())
