"""The field's benchmarks at several token budgets, against stock Qwen3-VL and the smaller image, by lmms-eval.

    python -m evaluation.lmms.run --model Qwen/Qwen3-VL-2B-Instruct --allocator runs/mine/allocator.safetensors --out results/lmms

One lmms-eval run per task and condition, each in a folder of its own below OUT. What is finished is not run again, so that the
same command goes on after a kill, and one that names more tasks or budgets adds them. Ends with the table of OUT.
"""

import argparse
import functools
import importlib.metadata
import importlib.util
import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

from tqdm import tqdm

from evaluation.budgets import parse_budgets
from evaluation.lmms import table
from evaluation.lmms.condition import METHODS, Condition, conditions
from evaluation.loading import count
from evaluation.records import code_fingerprint, tensors_fingerprint
from publishing.files import sha256_of

DEFAULT_METHODS = ["stock", "arrcoc", "resize"]
BUDGETS = "0.33,0.25,0.22,0.11,0.1"
PACKAGES = ("lmms-eval", "transformers", "torch")  # whose releases stand at the head of a run's log
FILES = "made_with.json"  # in a run's folder: hashes of its `contents`
MODEL_FILES = ("*.safetensors", "*.json", "*.jinja")  # of a local model
TAIL = 15  # lines of a failed run's log that are shown


def names(text: str) -> list[str]:
    """The entries of a comma-separated list, as argparse's `type`."""
    entries = [entry.strip() for entry in text.split(",")]
    if "" in entries or len(set(entries)) < len(entries):
        raise argparse.ArgumentTypeError(
            f"{text!r} has an empty or a repeated name; separate names by commas, each once"
        )
    return entries


def parse(arguments: list[str] | None) -> tuple[argparse.ArgumentParser, argparse.Namespace]:
    """The parser, and the checked options; `options.conditions` is what to run."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--model", required=True, help="folder or Hub id of a Qwen3-VL, stock or ours")
    add("--allocator", type=Path, metavar="FILE", help="a trained allocator for the model")
    add("--revision", help="of the Hub id")
    add("--tasks", type=names, default=list(table.METRICS), help=f"of lmms-eval (default: {','.join(table.METRICS)})")
    add(
        "--methods",
        type=names,
        default=DEFAULT_METHODS,
        help=f"of {', '.join(METHODS)} (default: {','.join(DEFAULT_METHODS)})",
    )
    add("--budgets", default=BUDGETS, help="shares such as 0.25 or token counts such as 64 (default: %(default)s)")
    add("--allocation-mode", default="select", help="of arrcoc: select or foveated")
    add("--encode-ratio", default="1.0", help="of arrcoc: a share in (0, 1], or auto")
    add("--out", type=Path, default=Path("results/lmms"), help="folder of the results (default: %(default)s)")
    add("--batch-size", type=count, default=1, help="questions at once (default: %(default)s)")
    add("--dtype", help="of the weights (default: the checkpoint's)")
    add("--device", help="(default: the first GPU, or cpu)")
    add("--min-pixels", type=count, help="of a picture's area (default: the processor's)")
    add("--max-pixels", type=count, help="of a picture's area (default: the processor's)")
    add("--limit", type=count, help="only the first questions of each task: for trying things out")
    add("--include-path", type=Path, help="folder of more tasks, as lmms-eval's --include_path")
    add("--restart", action="store_true", help="run again what is finished, or was run with other arguments")
    options = parser.parse_args(arguments)
    for name in ("allocator", "include_path"):
        path = getattr(options, name)
        if path is not None and not path.exists():
            parser.error(f"--{name.replace('_', '-')} {path} is not there")
    if any(mark in f"{options.model}{options.allocator}{options.revision}" for mark in ",='\"[]{}"):
        parser.error(
            "--model, --allocator and --revision can't have any of ,='\"[]{} in them: lmms-eval splits its arguments there"
        )
    for name in ("model", "allocator", "revision"):
        named = getattr(options, name)
        if named is not None and str(table.value_of(str(named))) != str(named):
            parser.error(
                f"--{name} {named}: lmms-eval makes the number {table.value_of(str(named))} of it; give it another name"
            )
    try:
        ratio = table.value_of(options.encode_ratio)
        options.conditions = conditions(options.methods, parse_budgets(options.budgets), options.allocation_mode, ratio)
    except ValueError as error:
        parser.error(str(error))
    return parser, options


def model_args(options: argparse.Namespace, condition: Condition) -> str:
    """`--model_args` of one run."""
    chosen = {name: getattr(options, name) for name in ("allocator", "revision", "dtype", "min_pixels", "max_pixels")}
    if condition.method == "stock":
        chosen.pop("allocator")
    chosen = {name: value for name, value in chosen.items() if value is not None}
    return ",".join(
        f"{name}={value}" for name, value in ({"pretrained": options.model} | condition.arguments | chosen).items()
    )


def command(options: argparse.Namespace, task: str, condition: Condition, folder: Path) -> list[str]:
    """The lmms-eval call of one run."""
    call = [sys.executable, "-m", "lmms_eval", "--model", "arrcoc", "--model_args", model_args(options, condition)]
    call += ["--tasks", task, "--batch_size", str(options.batch_size), "--output_path", str(folder)]
    more = {"--limit": options.limit, "--device": options.device, "--include_path": options.include_path}
    return call + [text for name, value in more.items() if value is not None for text in (name, str(value))]


def contents(options: argparse.Namespace, condition: Condition) -> dict[str, str]:
    """Hashes of what a run hangs on: our code, the allocator's file, and those of a local model."""
    model = Path(options.model)
    files = [file for ending in MODEL_FILES for file in sorted(model.glob(ending))] if model.is_dir() else []
    if options.allocator is not None and condition.method != "stock":
        files.append(options.allocator)
    hashes = {str(file): _sha256(file.resolve(), file.stat().st_mtime_ns) for file in files}
    return hashes | {"code": code_fingerprint("evaluation")}


@functools.cache
def _sha256(file: Path, changed: int) -> str:
    # `changed` is part of what the cache knows a file by
    return tensors_fingerprint(file) if file.suffix == ".safetensors" else sha256_of(file)


def remove_leftovers(folder: Path) -> None:
    """Removes the results that a killed run left half written in `folder`, and says so."""
    for path in folder.glob("**/*_results.json"):
        try:
            json.loads(path.read_text(encoding="utf-8"))
        except ValueError:
            print(f"{path} is cut off, as a killed run leaves it: removed", file=sys.stderr)
            path.unlink()


def finished(folder: Path, wanted: dict, files: dict[str, str]) -> bool:
    """Whether `folder` has the results of a run with these `config` entries and `contents`.

    Raises:
        ValueError: there are results of other arguments, of files that have changed since, or that can't be read.
    """
    done = False
    for path in sorted(folder.glob("**/*_results.json")):
        try:
            config = dict(json.loads(path.read_text(encoding="utf-8"))["config"])
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(
                f"{path} can't be read ({error!r}), or is not of lmms-eval; delete it, or pass another --out"
            ) from error
        if {name: config.get(name) for name in wanted} != wanted:
            raise ValueError(
                f"{path} is of other arguments ({config.get('model_args')}); pass --restart, or another --out"
            )
        done = True
    made_with = folder / FILES
    if done and made_with.exists() and (told := json.loads(made_with.read_text(encoding="utf-8"))) != files:
        changed = sorted(name for name in told.keys() | files.keys() if told.get(name) != files.get(name))
        raise ValueError(f"{folder} has results of another {changed[0]}; pass --restart, or another --out")
    return done


def run(options: argparse.Namespace, task: str, condition: Condition) -> str | None:
    """Runs one condition on one task unless it is finished; why it failed, or None. `ValueError` as `finished`."""
    folder = options.out / task / condition.folder
    wanted, files = {"model_args": model_args(options, condition), "limit": options.limit}, contents(options, condition)
    if options.restart:
        for path in folder.glob("**/*_results.json"):
            path.unlink()
    remove_leftovers(folder)
    if finished(folder, wanted, files):
        return None
    folder.mkdir(parents=True, exist_ok=True)
    (folder / FILES).write_text(json.dumps(files, indent=2) + "\n", encoding="utf-8")
    log = folder / "log.txt"
    call = command(options, task, condition, folder)
    with open(log, "w", encoding="utf-8") as file:
        versions = [f"{name} {importlib.metadata.version(name)}" for name in PACKAGES]
        print(", ".join(versions), shlex.join(call), sep="\n", file=file, flush=True)
        code = subprocess.run(call, stdout=file, stderr=file, env=os.environ | {"PYTHONUNBUFFERED": "1"}).returncode
    remove_leftovers(folder)
    if finished(folder, wanted, files):  # lmms-eval ends with 0 after an error too
        return None
    tail = "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-TAIL:])
    return f"{task}, {condition.title} at {condition.budget}: no results, exit code {code}. The end of {log}:\n{tail}"


def check_installed() -> str | None:
    """Why lmms-eval can't load the model, or None."""
    if importlib.util.find_spec("lmms_eval") is None:
        return "lmms-eval is not installed; run: pip install -e '.[lmms]'"
    entry = importlib.metadata.entry_points(group="lmms_eval.models")
    if "arrcoc" not in entry.names:
        return "the package's entry point is not installed; run in the repository: pip install -e '.[lmms]'"
    try:
        entry["arrcoc"].load()
    except (ImportError, AttributeError) as error:
        return f"the package's entry point can't be loaded ({error}); run in the repository again: pip install -e '.[lmms]'"
    return None


def main(arguments: list[str] | None = None):
    """Command line of this file."""
    parser, options = parse(arguments)
    if reason := check_installed():
        parser.error(reason)
    failures = []
    runs = [(task, condition) for task in options.tasks for condition in options.conditions]
    progress = tqdm(runs, unit="run", disable=None)
    for task, condition in progress:
        progress.set_postfix_str(f"{task}: {condition.title} at {condition.budget}")
        try:
            if failure := run(options, task, condition):
                failures.append(failure)
                progress.write(failure, file=sys.stderr)
        except (ValueError, OSError) as error:
            parser.error(str(error))
    if len(failures) < len(runs):
        try:
            print(table.write(options.out))
        except table.TableError as error:
            parser.error(str(error))
    if failures:
        parser.exit(1, f"{len(failures)} of {len(runs)} runs failed; the same command runs them again\n")


if __name__ == "__main__":
    main()
