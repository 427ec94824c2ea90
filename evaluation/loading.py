"""The model, processor and data that a measurement runs on, and the command-line options that name them."""

import argparse
import difflib
import hashlib
import importlib
import os
from collections.abc import Sequence
from pathlib import Path

import torch
from huggingface_hub.errors import StrictDataclassError
from transformers import AutoConfig, AutoModelForImageTextToText, AutoProcessor

from arrcoc import ARRCOCProcessor, ARRCOCQwen3VLForConditionalGeneration
from evaluation import baselines
from evaluation.bootstrap import RESAMPLES
from evaluation.budgets import parse_budgets
from evaluation.dials import parse_dials
from evaluation.records import tensors_fingerprint
from training.data import load_examples, split_read

OURS = ("arrcoc_qwen3_vl", "qwen3_vl")  # model types that our class loads
_LONGEST_NAME = 200  # bytes of the files' common beginning; endings follow, and file systems take 255
DTYPES = ("float32", "bfloat16", "float16")


def add_options(parser: argparse.ArgumentParser, methods: str, budgets: str):
    """Adds the options that every measurement has; `methods` and `budgets` are their defaults."""
    add = parser.add_argument
    add("--model", default="checkpoints/arrcoc-small", help="folder or Hub id")
    add(
        "--data",
        default="world",
        help="'world', 'world:kinds', 'wikitables:PATH', 'documents:PATH', 'hub:NAME', or an imagefolder",
    )
    add("--methods", default=methods, help=f"of {', '.join(baselines.METHODS)} (default: %(default)s)")
    add(
        "--budgets", default=budgets, help="shares such as 0.25, token counts such as 64, 'full' (default: %(default)s)"
    )
    add(
        "--split",
        default="held_out",
        help="of the data: held_out, train, or what a folder or dataset calls a part of it",
    )
    add("--seed", type=int, default=1_000_000, help="of the data's choice (default: %(default)s)")
    add("--limit", type=count, help="at most so many questions (default: as many as the data's loader gives)")
    add("--skip-bad", action="store_true", help="leave out records that can't be used, and count them")
    add("--batch-size", type=count, default=16, help="questions at once (default: %(default)s)")
    add("--dtype", default="float32", choices=DTYPES, help="of the weights (default: %(default)s)")
    add("--device", default="cuda" if torch.cuda.is_available() else "cpu", help="(default: %(default)s)")
    add("--set", nargs="*", default=[], metavar="DIAL=VALUE", help="dials of the allocator's configuration")
    add("--allocator", type=Path, metavar="FILE", help="a trained allocator, put onto the model")
    add(
        "--baseline-weights",
        type=Path,
        metavar="DIR",
        help="weights of the learned baselines: DIR/NAME.safetensors or, as training.train_allocator --out DIR/NAME writes them, "
        "DIR/NAME/NAME.safetensors",
    )
    add("--resamples", type=count, default=RESAMPLES, help="of the bootstrap (default: %(default)s)")


def check_options(parser: argparse.ArgumentParser, options: argparse.Namespace):
    """Turns methods, budgets and dials into values in place; ends the program with what is allowed where one is wrong."""
    try:
        options.methods = _methods(options.methods)
        options.budgets = parse_budgets(options.budgets)
        options.dials = parse_dials(options.set)
    except ValueError as error:
        parser.error(str(error))
    options.device = usable_device(parser, options.device)
    for name, path in (("--allocator", options.allocator), ("--baseline-weights", options.baseline_weights)):
        if path is not None and not path.exists():
            parser.error(f"{name} {path} is not there")
    if options.baseline_weights is not None and not options.baseline_weights.is_dir():
        parser.error(
            f"--baseline-weights {options.baseline_weights} is no folder; pass the one that holds the methods' weights"
        )
    try:
        options.model_type = AutoConfig.from_pretrained(options.model, trust_remote_code=False).model_type
    except (OSError, ValueError, StrictDataclassError) as error:
        parser.error(f"--model {options.model} can't be read; pass a model's folder or Hub id ({first_line(error)})")
    if options.model_type not in OURS and (options.dials or options.allocator):
        parser.error(f"--set and --allocator change ARR-COC's allocator, which a {options.model_type} model has not")


def usable_device(parser: argparse.ArgumentParser, device: str) -> str:
    """The whole name of a device; ends the program where it is not there or computes nothing."""
    try:
        tried = torch.zeros(1, device=device)
        tried.item()  # what computes nothing, as "meta", is refused here
    except (RuntimeError, AssertionError, ValueError) as error:
        parser.error(f"--device {device} can't be used; pass 'cpu' or a device that is there ({error})")
    return str(tried.device)


def check_out(parser: argparse.ArgumentParser, out: Path, columns: Sequence[str]):
    """Makes the folder of the files that begin with `out`; ends the program where that is not possible, or OUT.csv would replace
    a table that does not begin with `columns`, which is another command's, or OUT.png a picture that no run stands beside."""
    if len(os.fsencode(out.name)) > _LONGEST_NAME:
        parser.error(
            f"--out {out.name[:20]}...: files can't have such long names; pass one of at most {_LONGEST_NAME} bytes"
        )
    if out.is_dir():
        parser.error(f"--out {out} is a folder; pass the files' common beginning, such as {out}/NAME")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        parser.error(f"--out {out} can't be written ({error}); pass a path in a folder of yours")
    for ending in (".csv", ".jsonl", ".png"):
        path = out.with_name(out.name + ending)
        if path.is_dir() or not os.access(path if path.exists() else out.parent, os.W_OK):
            parser.error(f"--out {out}: {path} can't be written; pass a path in a folder of yours")
    table = out.with_name(out.name + ".csv")
    if table.is_file():
        with open(table, encoding="utf-8", errors="replace") as file:
            began = file.readline()
        if began.strip() and not began.startswith(",".join(columns)):
            parser.error(f"{table} is another command's table and would be overwritten; pass another --out")
    picture, records = (out.with_name(out.name + ending) for ending in (".png", ".jsonl"))
    if picture.exists() and not table.is_file() and not records.is_file():
        parser.error(f"{picture} is no chart of an earlier run and would be overwritten; pass another --out")


def load_data(parser: argparse.ArgumentParser, options: argparse.Namespace):
    """The examples of `--data`; ends the program with the loader's report where they are bad, doubly named or none."""
    try:
        options.split = split_read(options.data, options.split)
        examples = load_examples(options.data, options.split, options.seed, options.limit, options.skip_bad)
    except (ValueError, OSError, ImportError) as error:
        parser.error(f"--data {options.data}: {error}")
    names = [example.name for example in examples]
    twice = sorted({name for name in names if names.count(name) > 1}) if len(set(names)) < len(names) else []
    if not examples:
        parser.error(f"--data {options.data} holds no question; pass data with at least one")
    if twice:
        parser.error(
            f"--data {options.data}: several questions are named {twice[0]!r}; answers are kept by name, so name each"
        )
    return examples


def load_model(parser: argparse.ArgumentParser, options: argparse.Namespace):
    """(model, processor) of `--model` in eval mode, with dials, allocator and baselines' weights.

    Qwen3-VL, stock or ours, is loaded as our class; any other model through transformers' auto class. Ends the program with
    a reason where that, or one of the methods on that model, is not possible.
    """
    ours = options.model_type in OURS
    model_class = ARRCOCQwen3VLForConditionalGeneration if ours else AutoModelForImageTextToText
    processor_class = ARRCOCProcessor if ours else AutoProcessor
    try:
        processor = processor_class.from_pretrained(options.model)
        torch.manual_seed(0)  # what the folder lacks is drawn: a run goes on with the same model
        model = model_class.from_pretrained(options.model, dtype=getattr(torch, options.dtype), **options.dials)
        if options.allocator is not None:
            # Imported late: only a run with an allocator's file needs training's dependencies.
            from training.allocator import load_allocator

            load_allocator(model, options.allocator, options.dials)
        model = model.to(options.device).eval()
    except StrictDataclassError as error:
        parser.error(f"--set {' '.join(options.set)}: {' '.join(str(error).split())}")
    except (ImportError, OSError, ValueError, RuntimeError) as error:
        added = f" with --allocator {options.allocator}" if options.allocator else ""
        parser.error(f"--model {options.model}{added} can't be loaded: {first_line(error)}")
    if getattr(model.config, "is_encoder_decoder", False):
        parser.error(f"--model {options.model} has an encoder before its decoder; take a model that is a decoder alone")
    if getattr(processor, "chat_template", None) is None:
        parser.error(
            f"--model {options.model} has no chat template; save one with its processor, by which a picture is asked about"
        )
    for name in options.methods:
        if reason := baselines.supports(name, model) or _unready(name, model, options.baseline_weights):
            parser.error(f"--methods {name}: {reason}")
    return model, processor


def _unready(name: str, model, weights: Path | None) -> str | None:
    """Why the method can't start, or None; a learned one reads its weights, by its module's `load_weights(model, file)`."""
    module = importlib.import_module(baselines.METHODS[name][0])
    if not hasattr(module, "load_weights"):
        return None
    if weights is None:
        return f"it is learned; pass --baseline-weights DIR with {name}.safetensors"
    try:
        module.load_weights(model, weights_file(weights, name))
    except (OSError, ValueError) as error:
        return str(error)
    return None


def count(text: str) -> int:
    """A whole number from 1 on, as argparse's `type`."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no count; pass a whole number from 1 on")
    return int(text)


def weights_file(folder: Path, name: str) -> Path:
    """The file of a learned baseline: `NAME.safetensors` in the folder, or in its sub-folder NAME, where training wrote it.

    Raises:
        ValueError: both are there, and which is meant can't be told.
    """
    near, below = folder / f"{name}.safetensors", folder / name / f"{name}.safetensors"
    if near.is_file() and below.is_file():
        raise ValueError(f"there are {near} and {below}; keep the one that is meant")
    return below if below.is_file() else near


def weights_fingerprint(folder: Path | None, methods: Sequence[str]) -> str | None:
    """Hash of the weights' files of the methods that have one; None without a folder."""
    if folder is None:
        return None
    digest = hashlib.sha256()
    for name in sorted(methods):
        if (path := weights_file(folder, name)).is_file():
            digest.update(f"{name} {tensors_fingerprint(path)}".encode())
    return digest.hexdigest()[:16]


def _methods(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(","))
    for name in names:
        if name not in baselines.METHODS:
            near = difflib.get_close_matches(name, baselines.METHODS, n=1)
            hint = f" (did you mean {near[0]!r}?)" if near else ""
            raise ValueError(f"--methods has {name!r}{hint}; choose from {', '.join(baselines.METHODS)}")
        if names.count(name) > 1:
            raise ValueError(f"--methods names {name!r} more than once; name each once")
    return names


def first_line(error: Exception) -> str:
    """What an error says, in one line; its class where it says nothing."""
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
