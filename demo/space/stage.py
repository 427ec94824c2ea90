"""Assembles the Space's folder: the app, what it imports, and a checkpoint unless the model comes from the Hub.

python -m demo.space.stage OUT [--model HUB-ID]
"""

import argparse
import shlex
import shutil
import sys
from pathlib import Path

from publishing.files import CODE_FILES
from upload import DEFAULT_CHECKPOINT, ROOT

HERE = Path(__file__).parent
PACKAGES = ("benchmarks", "demo", "evaluation", "publishing", "training")
PICTURES = ("demo/page.png", "demo/question.txt")
MODEL = "model.txt"  # names the model of a Space that brings none
ENTRY = ("README.md", "requirements.txt", "app.py")


def stage(out: str | Path, model: str | None = None) -> Path:
    """`out` as a Space's repository.

    Args:
        out: a folder that is not there yet, or empty.
        model: Hub id that the Space loads; without it the bundled checkpoint is copied.

    Raises:
        ValueError: `model` is no name.
        OSError: `out` holds files or is one, or can't be written.
    """
    out = Path(out)
    if model is not None and not model.strip():
        raise ValueError(f"--model {model!r} is no Hub id; pass owner/name, or leave it out for the bundled checkpoint")
    if out.exists() and any(out.iterdir()):
        raise FileExistsError(f"{out} holds files already; give a folder that is new or empty")
    (out / "arrcoc").mkdir(parents=True)
    for name in ("__init__.py", *CODE_FILES):
        shutil.copy2(ROOT / name, out / "arrcoc" / name)
    shutil.copy2(ROOT / "upload.py", out / "upload.py")
    for package in PACKAGES:
        for source in sorted((ROOT / package).rglob("*.py")):
            _copy(source.relative_to(ROOT), out)
    for name in PICTURES:
        _copy(Path(name), out)
    for name in ENTRY:
        shutil.copy2(HERE / name, out / name)
    if model is None:
        shutil.copytree(DEFAULT_CHECKPOINT, out / DEFAULT_CHECKPOINT.relative_to(ROOT))
    else:
        (out / MODEL).write_text(model, encoding="utf-8")
    return out


def _copy(name: Path, out: Path):
    (out / name).parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(ROOT / name, out / name)


def main(arguments: list[str] | None = None) -> int:
    """Command line of this file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--model", help="Hub id that the Space loads, in place of the bundled checkpoint")
    options = parser.parse_args(arguments)
    try:
        out = stage(options.out, options.model)
    except (OSError, ValueError) as error:
        print(f"demo.space.stage: {error}", file=sys.stderr)
        return 1
    print(f"staged the Space in {out}; next: hf upload you/your-space {shlex.quote(str(out))} . --repo-type space")
    return 0


if __name__ == "__main__":
    sys.exit(main())
