"""The command line of `training.train_base`, checked before anything is started, and the state that a resumed run reads."""

import argparse
import math
from pathlib import Path

import torch

from training.batches import MOST_PAGES
from training.curriculum import STAGES
from training.data import world_spec
from training.run_folder import OPTIONS, STATE
from training.stream import MOST_PROCESSES

DATA_SHARE = 0.5
# Options that a resumed run goes on with as it began, where its command line does not say.
KEPT = (
    "seed", "batch_size", "learning_rate", "warmup", "cooldown", "processes", "workers", "evaluate_every", "evaluate_pages",
    "save_every", "compile", "float32", "data", "data_share", "limit", "skip_bad",
)  # fmt: skip


def read_state(path: Path, device: torch.device | str = "cpu") -> dict:
    """What `Trainer.save` wrote. `FileNotFoundError` without a file, `ValueError` for one that can't be read."""
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist, nothing to resume; start without --resume")
    try:
        state = torch.load(path, map_location=device, weights_only=True)
        if "options" not in state:
            raise KeyError("options")
        return state
    except Exception as error:  # torch raises whatever unpickling meets: EOFError, IndexError, UnpicklingError
        raise ValueError(
            f"{path} can't be read ({type(error).__name__}); it is cut off or no state of a run"
        ) from error


def _began(out: Path) -> dict:
    # nothing where `Trainer.load` will say what is wrong
    try:
        return read_state(out / STATE)["options"]
    except (OSError, ValueError):
        return {}


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """The command line; with --resume, what it leaves out is as the run began."""
    parser = argparse.ArgumentParser(description="Trains the small base Qwen3-VL on the drawn world from scratch.")
    parser.add_argument("--out", type=Path, default=Path("runs/base"), help="folder for state, metrics and export")
    parser.add_argument("--resume", action="store_true", help="go on from state.pt under --out")
    parser.add_argument("--begin", type=Path, help="begin from this folder's weights, such as checkpoints/arrcoc-small")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--batch-size", type=int, default=64, help="pages per step, of all processes together")
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    parser.add_argument("--warmup", type=int, default=50, help="steps")
    parser.add_argument("--cooldown", type=int, default=400, help="steps of falling learning rate at the end")
    parser.add_argument("--minutes", type=float, help="begin the cool-down after that many minutes of this run")
    parser.add_argument(
        "--stage", choices=[stage.name for stage in STAGES], help="go to that stage, whatever the score"
    )
    parser.add_argument(
        "--data", nargs="+", help="besides the world, in the language stage; what training.data.load_examples takes"
    )
    parser.add_argument("--data-share", type=float, default=DATA_SHARE, help="of the batches show pages of --data")
    parser.add_argument("--limit", type=int, help="of the questions of each of --data")
    parser.add_argument("--skip-bad", action="store_true", help="leave bad records of --data out")
    parser.add_argument("--steps", type=int, help="stop after that many steps of this run, whatever the stage")
    parser.add_argument("--processes", type=int, default=1, help="that train together, one thread each is best")
    parser.add_argument("--workers", type=int, default=0, help="processes that draw pages beside training")
    parser.add_argument("--evaluate-every", type=int, default=50, help="steps")
    parser.add_argument("--evaluate-pages", type=int, default=128)
    parser.add_argument("--save-every", type=int, default=100, help="steps")
    parser.add_argument(
        "--compile", action="store_true", help="batched attention and compiled layers: twice as fast on a CPU"
    )
    parser.add_argument("--float32", action="store_true", help="not bfloat16, which some CPUs only imitate, slowly")
    parser.add_argument("--smoke", action="store_true", help="four small steps, to see that everything runs")
    options = parser.parse_args(arguments)
    if options.resume:
        parser.set_defaults(**_began(options.out))
        options = parser.parse_args(arguments)
    if options.smoke:
        processes = max(1, options.processes)
        options.batch_size, options.steps, options.workers = -(-4 // processes) * processes, options.steps or 4, 0
        options.evaluate_every, options.evaluate_pages, options.warmup = 2, 4, 2
    if (reason := _refused(options)) is not None:
        parser.error(reason)
    return options


def _refused(options: argparse.Namespace) -> str | None:
    # asked before a process is started or a file is written
    least = dict.fromkeys(
        ("processes", "steps", "evaluate_every", "evaluate_pages", "save_every", "batch_size", "limit"), 1
    )
    for name, low in (least | {"warmup": 1, "cooldown": 1, "workers": 0, "seed": 0}).items():
        value = getattr(options, name)
        if value is not None and value < low:
            return f"--{name.replace('_', '-')} {value}: pass a whole number from {low} on"
    if not 0 < options.learning_rate < math.inf:
        return f"--learning-rate {options.learning_rate}: pass a finite number above 0"
    if options.limit and not options.data:
        return f"--limit {options.limit} is of the questions of --data; pass --data with it"
    if not options.limit and any(world_spec(spec) for spec in options.data or ()):
        return (
            "--data with the world, which has no end: pass --limit with it, the questions to draw ahead, such as 5000"
        )
    if options.data_share != DATA_SHARE and not options.data:
        return f"--data-share {options.data_share} is of the batches that show --data; pass --data with it"
    if not 0 < options.data_share < 1:
        return f"--data-share {options.data_share}: pass a number between 0 and 1"
    if torch.cuda.is_available() and options.processes > torch.cuda.device_count():
        return f"--processes {options.processes}: each takes a GPU, and there are {torch.cuda.device_count()}; pass at most as many"
    if options.processes > MOST_PROCESSES:
        return f"--processes {options.processes} would show some pages twice; pass at most {MOST_PROCESSES}"
    if options.batch_size < options.processes:
        return f"--batch-size {options.batch_size} gives {options.processes} processes less than a page each; pass a larger one"
    if options.batch_size % options.processes:
        return f"--batch-size {options.batch_size} is no multiple of --processes {options.processes}; pass one that is"
    if options.batch_size // options.processes > MOST_PAGES:
        return (
            f"--batch-size {options.batch_size} would show {options.processes} processes some pages twice; pass at most "
            f"{MOST_PAGES} for each"
        )
    if options.begin and options.resume:
        return "--begin starts from a model's weights, --resume goes on from a run's own; pass one of them"
    if options.out.exists() and not options.out.is_dir():
        return f"--out {options.out} is a file; pass a folder"
    if (options.out / STATE).exists() and not options.resume:
        return f"{options.out} holds the state of an earlier run; pass --resume, or another --out"
    if (options.out / OPTIONS).exists():
        return f"{options.out} holds a run of training.train_allocator; pass another --out"
    return None
