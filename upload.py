"""Stages a complete Hub folder and uploads it.

    python upload.py --stage-only --out staged
    python upload.py --checkpoint FOLDER-OR-HUB-ID --repo-id you/your-model

The demo, the tests of the Hub path and the upload all use the folder that `stage` writes.
"""

import argparse
import shutil
import sys
from pathlib import Path

import torch
from huggingface_hub import HfApi

ROOT = Path(__file__).resolve().parent
DEFAULT_CHECKPOINT = ROOT / "checkpoints" / "arrcoc-small"
# What ships beside weights, tokenizer and configs: flat, found by the loader through relative imports.
CODE_FILES = (
    "attending.py",
    "balancing.py",
    "budget.py",
    "checkpoint.py",
    "configuration_arrcoc.py",
    "encoding.py",
    "knowing.py",
    "layer.py",
    "looking.py",
    "modeling_arrcoc_qwen.py",
    "overlay.py",
    "picture.py",
    "placement.py",
    "processing_arrcoc.py",
    "seeing.py",
    "texture.py",
)
DATA_PATTERNS = ("*.json", "*.jinja", "*.safetensors", "*.txt", "README.md")


def stage(checkpoint: str | Path, out: str | Path) -> Path:
    """A folder that the Hub loader reads: weights, configs with `auto_map`, tokenizer, code files and README.md.

    Args:
        checkpoint: folder or Hub id of an ARR-COC or of a stock Qwen3-VL checkpoint; its dtypes are kept.
        out: folder to write, new or empty.

    Raises:
        FileExistsError: `out` has files in it.
        RuntimeError: the code files written are not those of `CODE_FILES`.
    """
    from arrcoc import ARRCOCProcessor, ARRCOCQwen3VLForConditionalGeneration

    out = Path(out)
    if out.exists() and any(out.iterdir()):
        raise FileExistsError(f"{out} is not empty; pass a new folder, or delete it first")
    torch.manual_seed(0)  # a stock checkpoint's allocator is new; the same folder comes out each time
    model = ARRCOCQwen3VLForConditionalGeneration.from_pretrained(checkpoint, dtype="auto")
    model.save_pretrained(out)
    # Batches padded at the right are answered wrongly by generate().
    ARRCOCProcessor.from_pretrained(checkpoint, padding_side="left").save_pretrained(out)
    shutil.copyfile(ROOT / "model_card.md", out / "README.md")  # the Hub renders README.md alone
    written = {path.name for path in out.glob("*.py")}
    if written != set(CODE_FILES):
        raise RuntimeError(f"code files that should ship and those written differ: {sorted(written ^ set(CODE_FILES))}")
    return out


def files_of(folder: Path) -> list[str]:
    """Names of the files of a staged folder that belong on the Hub, sorted."""
    data = {path.name for pattern in DATA_PATTERNS for path in folder.glob(pattern)}
    return sorted(data | {name for name in CODE_FILES if (folder / name).exists()})


def upload(
    folder: Path, repo_id: str, *, private: bool = False, tag: str | None = None, api: HfApi | None = None
) -> str:
    """Creates the model repository if needed, uploads a staged folder in one commit and returns the commit's URL.

    Args:
        folder: what `stage` wrote.
        repo_id: "owner/name".
        tag: also tag the commit, e.g. with the release.
        api: Hub client; the default uses the token of `hf auth login`.
    """
    api = api or HfApi()
    api.create_repo(repo_id, repo_type="model", private=private, exist_ok=True)
    commit = api.upload_folder(
        repo_id=repo_id,
        folder_path=folder,
        allow_patterns=files_of(folder),
        commit_message=f"ARR-COC {tag}" if tag else "ARR-COC",
    )
    if tag:
        api.create_tag(repo_id, tag=tag, revision=commit.oid)
    return commit.commit_url


def main(arguments: list[str] | None = None):
    """Command line of this file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--checkpoint", default=DEFAULT_CHECKPOINT, help="folder or Hub id, ARR-COC or stock Qwen3-VL")
    parser.add_argument("--out", type=Path, default=ROOT / "staged", help="folder to stage in")
    parser.add_argument("--repo-id", help="owner/name on the Hub")
    parser.add_argument("--private", action="store_true", help="create the repository as private")
    parser.add_argument("--tag", help="tag for the uploaded commit")
    parser.add_argument("--stage-only", action="store_true", help="write the folder and stop")
    options = parser.parse_args(arguments)
    if not options.stage_only and not options.repo_id:
        parser.error("pass --repo-id owner/name to upload, or --stage-only")
    folder = stage(options.checkpoint, options.out)
    print(f"staged {folder}:", *files_of(folder), sep="\n  ")
    if not options.stage_only:
        print(upload(folder, options.repo_id, private=options.private, tag=options.tag))


if __name__ == "__main__":
    sys.exit(main())
