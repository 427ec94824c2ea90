"""Which files belong on the Hub, by name, and their hashes."""

import hashlib
import json
import re
from pathlib import Path

from huggingface_hub.errors import HFValidationError
from huggingface_hub.utils import validate_repo_id

ROOT = Path(__file__).resolve().parents[1]
# What the Hub takes as the type of a dataset among a card's results.
DATASET_TYPE = re.compile(r"(?:[\w-]+/)?[\w.-]+", re.ASCII)
DEFAULT_CHECKPOINT = ROOT / "checkpoints" / "arrcoc-small"
# What ships beside weights, tokenizer and configs: flat, found by the loader through relative imports.
CODE_FILES = (
    "allocating.py",
    "allocation.py",
    "arguments.py",
    "asking.py",
    "attending.py",
    "balancing.py",
    "budget.py",
    "caching.py",
    "checkpoint.py",
    "compiling.py",
    "configuration_arrcoc.py",
    "deciding.py",
    "encoded.py",
    "encoding.py",
    "generating.py",
    "knowing.py",
    "layer.py",
    "looking.py",
    "marking.py",
    "matching.py",
    "modeling_arrcoc_qwen.py",
    "overlay.py",
    "participating.py",
    "parting.py",
    "picture.py",
    "placement.py",
    "placing.py",
    "processing_arrcoc.py",
    "question_words.py",
    "questions.py",
    "reading.py",
    "relating.py",
    "restoring.py",
    "rows.py",
    "scoping.py",
    "seeing.py",
    "texture.py",
)
# transformers' auto classes that load the model, in the order of their names.
MODEL_LOADERS = ("AutoModel", "AutoModelForImageTextToText", "AutoModelForMultimodalLM")
# An allocator-only repository has this entry beside `CODE_FILES`, and these tensors in place of weights and tokenizer.
ASSEMBLING = "assembling_arrcoc.py"
ALLOCATOR = "allocator.safetensors"
CARD = "README.md"  # the Hub renders no other file
# name in the folder -> where it comes from
PICTURES = {"how_it_works.png": ROOT / "docs" / "how_it_works.png", "page.png": ROOT / "demo" / "page.png"}
# handler.py is for Inference Endpoints alone: no loader imports it.
EXTRAS = {**PICTURES, "LICENSE": ROOT / "LICENSE", "handler.py": ROOT / "handler.py"}
CHAT_TEMPLATES = "additional_chat_templates"  # where transformers keeps all but the first
VOCABULARIES = (
    "merges.txt",
    "vocab.txt",
)  # of tokenizers; other texts, such as an endpoint's requirements.txt, are the owner's
DATA_PATTERNS = ("*.json", "*.jinja", f"{CHAT_TEMPLATES}/*.jinja", "*.safetensors", *VOCABULARIES, CARD)
# Files that run code when they are loaded, or hold such files.
PICKLES = (
    ".bin",
    ".ckpt",
    ".dill",
    ".h5",
    ".joblib",
    ".keras",
    ".npy",
    ".npz",
    ".pickle",
    ".pkl",
    ".pt",
    ".pth",
    ".zip",
)


# How the Hub writes its license ids: apache-2.0, llama3.1, other.
_LICENSE = re.compile(r"[a-z0-9]+([.-][a-z0-9]+)*")


def check_license(license):
    """Raises ValueError where `license` has not the form of the Hub's license ids."""
    if not isinstance(license, str) or not _LICENSE.fullmatch(license):
        raise ValueError(
            f"license={license!r} is no license id of the Hub; name one in lower-case letters, digits, dots and dashes, such as "
            "apache-2.0, or other"
        )


def files_of(folder: Path) -> list[str]:
    """Names of the files of a staged folder that belong on the Hub, sorted. In sub-folders, further chat templates alone do."""
    data = {path.relative_to(folder).as_posix() for pattern in DATA_PATTERNS for path in folder.glob(pattern)}
    return sorted(data | {name for name in (*CODE_FILES, ASSEMBLING, *EXTRAS) if (folder / name).exists()})


def read_json(path: Path) -> dict:
    """The object in a JSON file.

    Raises:
        ValueError: the file is missing, or holds no JSON object.
    """
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ValueError(f"{path.name} can't be read ({error}); stage the folder again") from error
    if not isinstance(value, dict):
        raise ValueError(f"{path.name} holds {type(value).__name__}, wanted an object; stage the folder again")
    return value


def sha256_of(source: Path | bytes) -> str:
    """SHA-256 of a file or of bytes, as hexadecimal text."""
    if isinstance(source, bytes):
        return hashlib.sha256(source).hexdigest()
    with open(source, "rb") as file:
        digest = hashlib.sha256()
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def human_size(count: int) -> str:
    """A count of bytes as text: `"512 B"`, `"3.4 MB"`; units of 1000, as the Hub shows them."""
    size, unit = float(count), "B"
    for larger in ("kB", "MB", "GB"):
        if size < 1000:
            break
        size, unit = size / 1000, larger
    return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"


def is_hub_id(name: str) -> bool:
    """Whether `name` has the form of a repository's name on the Hub."""
    try:
        validate_repo_id(name)
    except HFValidationError:
        return False
    return True


def check_source(name: str) -> None:
    """Raises OSError where `name` is neither here nor written as a Hub id, whatever the Hub would say of it."""
    if not Path(name).exists() and not is_hub_id(name):
        raise OSError(f"{name} is neither a folder here nor a Hub id (owner/name); check how it is written")
