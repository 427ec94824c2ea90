"""The Hub contract: what must be true of a folder before anybody is asked to run its code."""

import ast
import re
from pathlib import Path

import torch
import yaml
from huggingface_hub import ModelCard
from safetensors import SafetensorError, safe_open
from transformers.dynamic_module_utils import get_relative_imports

from publishing.card import REPOSITORY
from publishing.files import (
    ALLOCATOR,
    ASSEMBLING,
    CARD,
    CHAT_TEMPLATES,
    CODE_FILES,
    DATASET_TYPE,
    EXTRAS,
    MODEL_LOADERS,
    PICKLES,
    check_license,
    files_of,
    read_json,
    sha256_of,
)

INDEX = "model.safetensors.index.json"
NEEDED = ("config.json", "processor_config.json", CARD)
WHOLE = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja")
LOADERS = ("AutoConfig", *MODEL_LOADERS)
TAGS = {"custom_code", "conversational"}
# The first bytes of pickles of protocols 2 to 5, and of zip archives, in which torch.save wraps them.
_UNSAFE_STARTS = (b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05", b"PK\x03\x04")
_SECRETS = {
    "a Hugging Face token": r"\bhf_[A-Za-z0-9]{30,}",
    "a GitHub token": r"\b(gh[pousr]_[A-Za-z0-9]{30,}|github_pat_[A-Za-z0-9_]{40,})",
    "an AWS key": r"\b(AKIA|ASIA)[A-Z0-9]{16}\b",
    "a Google key": r"\bAIza[A-Za-z0-9_-]{35}",
    "a Slack token": r"\bxox[abprs]-[A-Za-z0-9-]{10,}",
    "an API key": r"\bsk-[A-Za-z0-9_-]{32,}",
    "a private key": r"-----BEGIN [A-Z ]*PRIVATE KEY-----",
    "a password in an address": r"\bhttps?://[^\s/:@\"']+:[^\s/@\"']+@",
}
_LOCAL_PATH = re.compile(r"(?<![\w./])(/home/|/root/|/Users/|/tmp/|[A-Z]:\\\\?Users\\)[\w.\\-]")


def problems_of(folder: Path) -> list[str]:
    """What is wrong with a staged folder, one line each; empty if it may be sent. Reads every tensor, runs no code."""
    folder = Path(folder)
    if not folder.is_dir():
        return [f"{folder} is no folder; write it with: python upload.py stage {folder}"]
    found = [*_missing(folder), *_unsafe(folder), *_leaks(folder), *_code(folder), *_tensors(folder)]
    for check in (_maps, _base, _card):
        try:
            found += check(folder)
        except ValueError as error:
            found.append(str(error))
    return list(dict.fromkeys(found))


def is_allocator_only(folder: Path) -> bool:
    """Whether the folder leaves its weights to a base."""
    return (folder / ALLOCATOR).exists()


def _missing(folder: Path):
    needed = {*NEEDED, *CODE_FILES} | ({ASSEMBLING} if is_allocator_only(folder) else set(WHOLE))
    for name in sorted(needed):
        if not (folder / name).is_file():
            yield f"{name} is missing; stage the folder again"
        elif not (folder / name).stat().st_size:
            yield f"{name} is empty; stage the folder again"
    if not is_allocator_only(folder) and not list(folder.glob("model*.safetensors")):
        yield "no weights: neither model.safetensors nor shards are there; stage the folder again"


def _unsafe(folder: Path):
    """Pickles anywhere in the folder, also those that would not be sent, and links, which may lead out of it."""
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder)
        if path.is_symlink():
            yield f"{name} is a link; put the file itself there"
        elif path.is_file() and path.suffix.lower() in PICKLES:
            yield f"{name} may run code when it is loaded; delete it, weights belong in safetensors"
        elif path.is_file():
            with open(path, "rb") as file:
                if file.read(4).startswith(_UNSAFE_STARTS):
                    yield f"{name} starts like a pickle or an archive; delete it"


def _leaks(folder: Path):
    for name in files_of(folder):
        if name.endswith((".safetensors", ".png")):
            continue
        try:
            text = (folder / name).read_text(encoding="utf-8")
        except UnicodeDecodeError:
            yield f"{name} is no UTF-8 text; stage the folder again"
            continue
        for what, pattern in _SECRETS.items():
            if match := re.search(pattern, text):
                yield f"{name}:{_line(text, match)} holds {what}; take it out, and revoke it if anybody may have seen it"
        if name.endswith(("config.json", CARD)) and (match := _LOCAL_PATH.search(text)):
            yield f"{name}:{_line(text, match)} holds a path of this computer; take it out"


def _line(text: str, match: re.Match) -> int:
    return text.count("\n", 0, match.start()) + 1


def _code(folder: Path):
    """What the Hub loader would stumble over: unreadable code, relative imports of what does not ship."""
    ships = {name.removesuffix(".py") for name in files_of(folder) if name.endswith(".py")}
    for name in sorted(f"{module}.py" for module in ships):
        try:
            tree = ast.parse((folder / name).read_text(encoding="utf-8"))
        except (SyntaxError, ValueError) as error:
            yield f"{name} is no Python ({error}); stage the folder again"
            continue
        for module in get_relative_imports(folder / name):
            if module not in ships:
                yield f"{name} imports .{module}, which does not ship; name it in CODE_FILES"
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.level and (node.level > 1 or not node.module):
                yield f"{name}:{node.lineno} has a relative import that the loader can't follow; write from .file import name"
    for path in sorted(folder.glob("*.py")):
        if path.name not in (*CODE_FILES, ASSEMBLING, *EXTRAS):
            yield f"{path.name} is not in the list of files that ship; delete it, or name it in CODE_FILES"


def _maps(folder: Path):
    """The `auto_map`s: every loader has a class, of a file that is here and defines it."""
    config, processor = read_json(folder / "config.json"), read_json(folder / "processor_config.json")
    for file, settings, loaders in (
        ("config.json", config, LOADERS),
        ("processor_config.json", processor, ("AutoProcessor",)),
    ):
        named = settings.get("auto_map") or {}
        if not isinstance(named, dict):
            yield f"{file}: auto_map is {named!r}, wanted a loader and its class in each entry; stage the folder again"
            continue
        for loader in loaders:
            if loader not in named:
                yield f"{file}: auto_map has no {loader}; stage the folder again"
        for loader, reference in named.items():
            yield from (f"{file}: {loader} {words}" for words in _reference(folder, reference))


def _reference(folder: Path, reference: str):
    if not isinstance(reference, str) or "--" in reference:
        yield f"takes its code from another place, {reference!r}; it must stand in this folder"
        return
    module, _, name = reference.partition(".")
    path = folder / f"{module}.py"
    if path.name not in (*CODE_FILES, ASSEMBLING) or not path.is_file():
        yield f"names {reference}, but {path.name} does not ship"
        return
    try:
        defined = {
            node.name for node in ast.parse(path.read_text(encoding="utf-8")).body if isinstance(node, ast.ClassDef)
        }
    except SyntaxError:
        return  # told by _code
    if name not in defined:
        yield f"names {reference}, which {path.name} does not define"


def _base(folder: Path):
    """An allocator-only folder names its base and the base's commit, the same for model and processor."""
    if not is_allocator_only(folder):
        return
    pinned = []
    for file in ("config.json", "processor_config.json"):
        settings = read_json(folder / file)
        pinned.append((settings.get("base_model"), settings.get("base_revision")))
        if not settings.get("base_model"):
            yield f"{file}: base_model is missing; stage the folder again"
        if not re.fullmatch(r"[0-9a-f]{40}", str(settings.get("base_revision"))):
            yield f"{file}: base_revision={settings.get('base_revision')!r} is no commit of 40 digits; stage the folder again"
    if pinned[0] != pinned[1]:
        yield f"config.json and processor_config.json name two bases, {pinned[0]} and {pinned[1]}; stage the folder again"
    if list(folder.glob("model*.safetensors")):
        yield f"{ALLOCATOR} and whole weights stand side by side; stage one of them in a new folder"


def _tensors(folder: Path):
    """Safetensors that can't be read, that hold NaN or infinity, or that are not those of the index."""
    held = {}
    for path in sorted(folder.glob("*.safetensors")):
        try:
            with safe_open(path, "pt") as file:
                held[path.name] = set(file.keys())
                for name in sorted(held[path.name]):
                    tensor = file.get_tensor(name)
                    tensor = tensor.float() if tensor.dtype.itemsize == 1 else tensor  # float8 can't be asked
                    if tensor.is_floating_point() and not torch.isfinite(tensor).all():
                        yield f"{path.name}: {name} holds NaN or infinity; the file is damaged"
        except (OSError, SafetensorError) as error:
            yield f"{path.name} is no whole safetensors file ({error}); stage the folder again"
    if (folder / INDEX).exists():
        try:
            named = read_json(folder / INDEX).get("weight_map", {})
        except ValueError as error:
            yield str(error)
            return
        if not isinstance(named, dict):
            yield f"{INDEX} has a weight_map that is no object; stage the folder again"
            return
        lost = sorted(name for name, shard in named.items() if name not in held.get(shard, ()))
        if lost:
            yield f"{INDEX} names {lost[0]} in {named[lost[0]]}, where it is not; stage the folder again"


def _card(folder: Path):
    """The card's metadata, and whether the hashes that it shows reviewers are those of the files."""
    text = (folder / CARD).read_text(encoding="utf-8") if (folder / CARD).exists() else ""
    try:
        data = ModelCard(text, ignore_metadata_errors=True).data.to_dict()
    except yaml.YAMLError as error:
        yield f"{CARD}: its metadata can't be read ({error}); correct what stands between the two lines of ---"
        return
    for name, wanted in (("pipeline_tag", "image-text-to-text"), ("library_name", "transformers")):
        if data.get(name) != wanted:
            yield f"{CARD}: {name} is {data.get(name)!r}, wanted {wanted!r}"
    if lacking := sorted(TAGS - set(data.get("tags") or ())):
        yield f"{CARD}: the tag {lacking[0]} is missing"
    if not data.get("license"):
        yield f"{CARD}: no license is named"
    else:
        try:
            check_license(data["license"])
        except ValueError as error:
            yield f"{CARD}: {error}"
    for model in data.get("model-index") or ():
        for kind in sorted({str(entry["dataset"]["type"]) for entry in model["results"]}):
            if not DATASET_TYPE.fullmatch(kind):
                yield f"{CARD}: the Hub refuses {kind!r} as the type of a dataset; pass an id on it or a plain name"
    shown = dict(re.findall(r"^\| `([^`]+)` \| [^|]+ \| `([0-9a-f]{64})` \|$", text, re.MULTILINE))
    sent = {name for name in files_of(folder) if name != CARD}
    for name in sorted(sent ^ set(shown)):
        where = "is not in the card's list of files" if name in sent else "is in the card's list but not there"
        yield f"{name} {where}; stage the folder again"
    for name in sorted(sent & set(shown)):
        if sha256_of(folder / name) != shown[name]:
            yield f"{name} is not the file whose SHA-256 the card shows; stage the folder again"


def notes_of(folder: Path) -> list[str]:
    """What a reader of the check may want to know and what is not wrong."""
    there = [*folder.iterdir(), *folder.glob(f"{CHAT_TEMPLATES}/*")]
    extra = sorted({path.relative_to(folder).as_posix() for path in there} - {*files_of(folder), CHAT_TEMPLATES})
    text = (folder / CARD).read_text(encoding="utf-8")
    notes = [f"{name} is not in the list and stays here" for name in extra]
    if REPOSITORY in text:
        notes.append(f"{CARD} says {REPOSITORY} where the repository's name goes; push fills it in")
    return notes
