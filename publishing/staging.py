"""A complete Hub folder from a checkpoint: whole, or the allocator alone."""

import json
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from transformers.utils.hub import cached_file, extract_commit_hash

from publishing import card
from publishing.files import (
    ALLOCATOR,
    ASSEMBLING,
    CARD,
    CODE_FILES,
    EXTRAS,
    MODEL_LOADERS,
    ROOT,
    check_license,
    check_source,
    is_hub_id,
)
from publishing.results import find_results


@dataclass(frozen=True)
class Source:
    """What a folder is staged from.

    Attributes:
        checkpoint: folder or Hub id of an ARR-COC or of a stock Qwen3-VL checkpoint; in the dtype that its config names.
        revision: branch, tag or commit of a Hub id.
        allocator: file that `training.train_allocator` wrote on this checkpoint.
        base_model: Hub id that the card, and an allocator alone, names as base; the checkpoint itself if that is a Hub id.
        license: the Hub's name of the license of the weights; the code's is Apache 2.0.

    Raises:
        OSError: `checkpoint` is no folder, and has not the form of a Hub id.
        ValueError: `license` or `base_model` has not the form of the Hub's names, or `revision` came with a folder.
    """

    checkpoint: str
    revision: str | None = None
    allocator: Path | None = None
    base_model: str | None = None
    license: str = "apache-2.0"

    def __post_init__(self):
        check_license(self.license)
        check_source(self.checkpoint)
        if self.base_model is not None and not is_hub_id(self.base_model):
            raise ValueError(f"base_model={self.base_model!r} is no Hub id; name the base as owner/name")
        if self.revision is not None and self.hub_id is None:
            raise ValueError(
                f"revision={self.revision!r} has no effect on {self.checkpoint}, which is a folder here; leave it out"
            )

    @property
    def hub_id(self) -> str | None:
        """The checkpoint's name on the Hub, or None where it is a folder."""
        return None if Path(self.checkpoint).exists() else self.checkpoint

    def load(self, dtype="auto"):
        """The model, with the allocator if there is one.

        Raises:
            OSError, ValueError: the checkpoint or the allocator is missing or damaged, or the allocator is of another base or
                was trained without the question.
        """
        from arrcoc import ARRCOCQwen3VLForConditionalGeneration

        torch.manual_seed(0)  # a stock checkpoint's allocator is new; the same folder comes out each time
        model = ARRCOCQwen3VLForConditionalGeneration.from_pretrained(
            self.checkpoint, dtype=dtype, revision=self.revision or "main"
        )
        if getattr(model, "_hf_peft_config_loaded", False):
            raise ValueError(
                f"{self.checkpoint} is an adapter; merge it into its base (merge_and_unload()), save that, and stage the result"
            )
        if self.allocator is not None:
            from training.allocator import load_allocator

            load_allocator(model, self.allocator)
        return model

    def load_processor(self):
        """The processor, which pads at the left: generate() answers batches padded at the right wrongly."""
        from arrcoc import ARRCOCProcessor

        return ARRCOCProcessor.from_pretrained(self.checkpoint, padding_side="left", revision=self.revision or "main")


def stage(checkpoint: str | Path, out: str | Path) -> Path:
    """A folder that the Hub loader reads: weights, configs with `auto_map`, tokenizer, code files and README.md.

    Args:
        checkpoint: folder or Hub id of an ARR-COC or of a stock Qwen3-VL checkpoint; in the dtype that its config names.
        out: folder to write, new or empty. On an error nothing is left in it.

    Raises:
        FileExistsError: `out` has files in it.
        RuntimeError: the code files written are not those of `CODE_FILES`.
    """
    source = Source(str(checkpoint))
    return _write(out, lambda folder: _describe(folder, source, _write_whole(folder, source), []))


def stage_release(
    source: Source, out: str | Path, *, allocator_only: bool = False, results: list[Path] | None = None
) -> Path:
    """As `stage`, with pictures, the code's license, and results in the card.

    Args:
        allocator_only: leave weights and tokenizer to the base, which must be on the Hub.
        results: CSV files of `evaluation.run` on this model; None for those in results/ that are of this model.

    Raises:
        FileExistsError: `out` has files in it.
        ValueError: an allocator-only folder has no base on the Hub, or a file of results is of another model.
    """

    def write(folder: Path):
        model = (_write_allocator if allocator_only else _write_whole)(folder, source)
        for name, origin in EXTRAS.items():
            shutil.copyfile(origin, folder / name)
        _describe(folder, source, model, find_results(source, results, model.num_parameters()))

    return _write(out, write)


def _write(out: str | Path, write: Callable[[Path], None]) -> Path:
    """Runs `write` on a folder beside `out` that becomes `out` once it is whole."""
    out = Path(out).resolve()  # "." and links can't be replaced
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise FileExistsError(f"{out} is not empty; pass a new folder, or delete it first")
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=f".{out.name}-") as scratch:
        folder = Path(scratch) / "folder"
        folder.mkdir()
        write(folder)
        for file in folder.rglob("*"):  # safetensors writes for its owner alone
            file.chmod(0o755 if file.is_dir() else 0o644)
        if out.exists():
            out.rmdir()
        folder.rename(out)
    return out


def _write_whole(folder: Path, source: Source):
    model = source.load()
    model.save_pretrained(folder)
    source.load_processor().save_pretrained(folder)
    _forget_loading(folder / "tokenizer_config.json")
    written = {path.name for path in folder.glob("*.py")}
    if written != set(CODE_FILES):
        raise RuntimeError(f"code files that should ship and those written differ: {sorted(written ^ set(CODE_FILES))}")
    return model


def _forget_loading(path: Path) -> None:
    """Takes out what transformers notes of how a tokenizer was loaded, so that one checkpoint is staged alike everywhere."""
    settings = json.loads(path.read_text(encoding="utf-8"))
    write_json(path, {name: value for name, value in settings.items() if name not in ("is_local", "local_files_only")})


def _write_allocator(folder: Path, source: Source):
    """Writes config, processor config, allocator and code, with the base's name and commit in both configs."""
    from arrcoc.configuration_arrcoc import PROCESSOR_DIALS
    from training.allocator import save_allocator

    base = source.hub_id or source.base_model
    if base is None or "/" not in base:
        raise ValueError(
            f"--checkpoint {source.checkpoint} is no repository on the Hub, so nobody could load the base of this allocator; "
            "pass the base's Hub id, or with --base-model that of which the folder is a copy, or leave out --allocator-only"
        )
    if source.base_model not in (None, base):
        raise ValueError(
            f"--checkpoint {base} is the base of this allocator, and --base-model names {source.base_model}; leave it out"
        )
    pinned = {"base_model": base, "base_revision": commit_of(base, source.revision)}
    model, processor = source.load(), source.load_processor()
    entry = ASSEMBLING.removesuffix(".py")
    config = json.loads(model.config.to_json_string()) | pinned
    config["architectures"] = ["ARRCOCQwen3VLForConditionalGeneration"]
    config["auto_map"] = {
        "AutoConfig": "configuration_arrcoc.ARRCOCQwen3VLConfig",
        **dict.fromkeys(MODEL_LOADERS, f"{entry}.ARRCOCQwen3VLForConditionalGeneration"),
    }
    write_json(folder / "config.json", {n: value for n, value in config.items() if n != "_name_or_path"})
    settings = {
        "auto_map": {"AutoProcessor": f"{entry}.ARRCOCProcessorFromBase"},
        "padding_side": "left",
        "processor_class": "ARRCOCProcessorFromBase",
        **{name: getattr(processor, name) for name in PROCESSOR_DIALS},
    }
    write_json(folder / "processor_config.json", settings | pinned)
    if source.allocator is None:
        save_allocator(model, folder / ALLOCATOR)
    else:
        shutil.copyfile(source.allocator, folder / ALLOCATOR)  # also loads through training.allocator.load_allocator
    for name in CODE_FILES:
        shutil.copyfile(ROOT / name, folder / name)
    shutil.copyfile(Path(__file__).with_name(ASSEMBLING), folder / ASSEMBLING)
    return model


def commit_of(base: str, revision: str | None) -> str:
    """The commit that a branch or tag of a Hub repository stands at now.

    Raises:
        OSError: the repository or the revision is not there, or the Hub can't be reached and the cache has neither.
        ValueError: the commit can't be told.
    """
    found = extract_commit_hash(cached_file(base, "config.json", revision=revision or "main"), None)
    if found is None:
        raise ValueError(f"the commit of {base} can't be told; pass --revision with the commit's 40 digits")
    return found


def write_json(path: Path, value: dict):
    """Writes a JSON file as transformers does: sorted, indented by two."""
    path.write_text(json.dumps(value, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def _describe(folder: Path, source: Source, model, results: list):
    (folder / CARD).write_text(card.render(folder, source, model, results), encoding="utf-8")
