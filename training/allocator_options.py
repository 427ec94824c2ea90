"""The command line of `training.train_allocator`, checked before anything is loaded, and kept for a resumed run."""

import argparse
import json
import math
import os
from pathlib import Path

from accelerate.utils import parse_flag_from_env
from transformers.trainer_utils import get_last_checkpoint

from evaluation.dials import parse_dials
from training.adapt import ADAPTS
from training.allocator_batches import SHARES
from training.run_folder import OPTIONS
from training.scorers import LAYER_SCORERS, SCORERS
from training.signals import ALONE, LAYER_SIGNALS, SIGNALS, needs, parse_signals

# Of transformers' schedules those that need no arguments of their own and no evaluation.
SCHEDULES = (
    "linear", "cosine", "cosine_with_restarts", "polynomial", "constant", "constant_with_warmup", "inverse_sqrt",
)  # fmt: skip
WARMUP = 20  # steps
# Options that may change on --resume: where and how often it writes, and how far it goes.
_FREE = ("out", "resume", "steps", "workers", "log_every", "save_every", "keep", "export", "quiet")

_HELD = ("data", "signals", "data_fingerprints", "start_fingerprint")  # by which a run is told from another
_PHASE_2 = {"adapt": "lora", "layers": 2, "rank": 16}  # options of it alone, with their defaults

_OWN = "evidence=1,mass=0.5,distill_unmarked=0.3,early_evidence=1,early_distill=0.3,early_features=1"
DEFAULT_SIGNALS = {
    "arrcoc": f"{_OWN},named=0.5,context=0.3",
    "query_blind": _OWN,
    "vision_selector": "lm_soft_topk=1,binarize=0.5",
    "glimpse_prune": "evidence=1",
}

AHEAD = """--ahead PAGES: the frozen base encodes so many pages before training, and every pass goes over them again, up to
--questions of a page at once. Several times faster; for signals that need no pass of the language model, or the frozen one's alone
(distill_attention and distill_unmarked, whose pass is made once)."""


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """The command line; with --resume, what it leaves out is as the run began."""
    signals = "\n".join(f"  {name:20} {what}" for name, (_, what) in SIGNALS.items())
    parser = argparse.ArgumentParser(
        description="Trains the allocator, or a learned baseline, on a frozen base.",
        epilog=f"signals:\n{signals}\n\n{AHEAD}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    for add_group in (_add_data, _add_model, _add_steps, _add_files):
        add_group(parser)
    # of --data and of what is trained, once they are read; kept for a resumed run
    parser.set_defaults(data_fingerprints=None, start_fingerprint=None)
    options = parser.parse_args(arguments)
    try:
        if options.resume and (began := _read_options(options.out)) is not None:
            parser.set_defaults(**began)
            options = parser.parse_args(arguments)
            _check_resumed(options, began)
        if options.signals is None:
            options.signals = DEFAULT_SIGNALS[options.scorer]
        parse_signals(options.signals)
        parse_dials(options.set, shapes=options.reset)
        _check_numbers(options)
        _check_scorer(options)
        _check_ahead(options)
        _check_phase_2(options)
        _check_dtype(options)
        _check_sharded(options)
    except ValueError as error:
        parser.error(str(error))
    return options


def save_options(options: argparse.Namespace) -> None:
    """Writes the options of a run that begins to OUT/options.json, whole or not at all, for `--resume`."""
    temporary = options.out / f"{OPTIONS}.new"
    temporary.write_text(json.dumps(_kept(options), indent=2) + "\n", encoding="utf-8")
    os.replace(temporary, options.out / OPTIONS)


def _kept(options: argparse.Namespace) -> dict:
    held = {name: value for name, value in vars(options).items() if name not in ("out", "resume")}
    return json.loads(json.dumps(held, default=str))  # paths as text, tuples as lists


def _read_options(out: Path) -> dict | None:
    # None where there is nothing to resume, which the caller says
    path = out / OPTIONS
    if not path.exists() and (not out.is_dir() or get_last_checkpoint(str(out)) is None):
        return None
    try:
        began = dict(json.loads(path.read_text(encoding="utf-8")))
        if lacking := [name for name in _HELD if name not in began]:
            raise ValueError(f"it lacks {lacking[0]}")
        return began
    except (OSError, TypeError, ValueError) as error:
        raise ValueError(
            f"{path} can't be read ({error}), which says what the run was; put it back, or begin another --out"
        ) from error


def _check_resumed(options: argparse.Namespace, began: dict) -> None:
    now = _kept(options)
    changed = [name for name in began if name in now and name not in _FREE and now[name] != began[name]]
    if changed:
        told = "; ".join(f"--{name.replace('_', '-')} was {began[name]} and is now {now[name]}" for name in changed)
        raise ValueError(
            f"--resume goes on with a run of other options: {told}. Leave them out to go on as it began, or pass another --out"
        )


def _check_scorer(options: argparse.Namespace) -> None:
    scorer, weights = options.scorer, parse_signals(options.signals)
    if options.reset and options.allocator:
        raise ValueError("--reset begins from a new allocator, --allocator from a trained one; pass one of them")
    if scorer != "arrcoc" and options.export:
        raise ValueError(
            f"--export writes a model that is asked questions, and {scorer} is measured as a baseline; leave it out"
        )
    if options.phase == 2 and scorer != "arrcoc":
        raise ValueError(
            f"--phase 2 adapts the language model to what it is given, and {scorer} is measured on the base as it is; leave out "
            "one of them"
        )
    if options.phase == 2 and not {"student", "soft"} & needs(weights):
        raise ValueError(
            f"--phase 2 trains the language model, which --signals {options.signals} does not reach; add one of its answers, "
            "such as lm=1 or distill_answer=1"
        )
    alone = [name for name in weights if name in ALONE]
    if options.whiten and (scorer != "arrcoc" or alone):
        trained = scorer if scorer != "arrcoc" else f"--signals {alone[0]}"
        raise ValueError(f"--whiten is for what reads the question, which {trained} trains nothing of; leave it out")
    chosen = [name for name in alone if name != "restored"]
    if chosen and (len(weights) > 1 or scorer != "arrcoc" or options.phase == 2):
        raise ValueError(
            f"--signals {chosen[0]} goes alone, with --scorer arrcoc and --phase 1: it learns from what is answered of a "
            "choice that is trained already"
        )
    if scorer in LAYER_SCORERS:
        return
    foreign = [name for name in weights if name in LAYER_SIGNALS]
    if foreign:
        raise ValueError(
            f"--signals {', '.join(foreign)}: {scorer} has nothing that could learn from it; pass others, such as "
            f"{DEFAULT_SIGNALS[scorer]}"
        )


def _check_phase_2(options: argparse.Namespace) -> None:
    given = [name for name, default in _PHASE_2.items() if getattr(options, name) != default]
    if options.phase == 1 and given:
        raise ValueError(f"--{given[0]} {getattr(options, given[0])} is for --phase 2; pass it, too, or leave this out")


def _check_dtype(options: argparse.Namespace) -> None:
    if (options.phase, options.adapt, options.base_dtype) == (2, "top", "bfloat16") and not options.bf16:
        raise ValueError(
            "--adapt top trains float32 layers of a bfloat16 base: pass --bf16 too, or --base-dtype float32"
        )


def _check_sharded(options: argparse.Namespace) -> None:
    if options.export and parse_flag_from_env("ACCELERATE_USE_FSDP"):
        raise ValueError(
            "--export can't gather a sharded model; leave it out, and load allocator.safetensors onto its base"
        )


def _check_numbers(options: argparse.Namespace) -> None:
    least = dict.fromkeys(
        ("steps", "questions", "batch_size", "accumulate", "layers", "rank", "log_every", "save_every", "keep"), 1
    )
    for name, low in (least | {"limit": 1, "warmup": 0, "seed": 0, "workers": 0, "ahead": 0, "parts": 0}).items():
        value = getattr(options, name)
        if value is not None and value < low:
            raise ValueError(f"--{name.replace('_', '-')} {value}: pass a whole number from {low} on")
    if options.warmup is not None and options.warmup > options.steps and not options.resume:
        raise ValueError(f"--warmup {options.warmup} is more than --steps {options.steps}; pass at most as many")
    if options.seed >= 2**32:
        raise ValueError(f"--seed {options.seed}: pass a whole number below 2**32")
    for name in ("learning_rate", "gate_factor", "weight_decay"):
        value = getattr(options, name)
        if not (0 < value < math.inf or (name == "weight_decay" and value == 0)):
            raise ValueError(f"--{name.replace('_', '-')} {value}: pass a finite number above 0")
    low, high = options.shares
    if not 0 < low <= high < 1:
        raise ValueError(f"--shares {low} {high}: pass 0 < LOW <= HIGH < 1, such as 0.04 0.6")


def _check_ahead(options: argparse.Namespace) -> None:
    if options.parts and not options.ahead:
        raise ValueError(f"--parts {options.parts} goes with --ahead PAGES, which encodes pages before training")
    weights = parse_signals(options.signals)
    if "restored" in weights and (len(weights) > 1 or not options.parts):
        raise ValueError(
            "--signals restored goes alone, with --ahead PAGES --parts QUESTIONS: it learns from pages in part, after stage 1, "
            "whose reading it builds on, and before stage 2, which scores what is restored"
        )
    if not options.ahead:
        return
    passes = [name for name in weights if set(SIGNALS[name][0]) - {"teacher"}]
    if passes or options.scorer not in LAYER_SCORERS or options.phase == 2:
        came = ", ".join(passes) or (f"--scorer {options.scorer}" if options.phase == 1 else "--phase 2")
        raise ValueError(
            f"--ahead {options.ahead} can't go with {came}, which needs the whole base in every step; pass signals on the scores "
            "alone, such as evidence=1,mass=0.5,distill_attention=0.1, or leave --ahead out"
        )


def _add_data(parser: argparse.ArgumentParser):
    add = parser.add_argument_group("data").add_argument
    add(
        "--data", nargs="+", default=["world"], help="what training.data.load_examples takes; several are taken in turn"
    )
    add("--limit", type=int, help="of the examples of each of --data but the world")
    add("--skip-bad", action="store_true", help="leave bad records out, and say how many")
    add(
        "--questions",
        type=int,
        default=4,
        help="asked of one picture in a row, at most, which is encoded once for all; files are told apart by path",
    )
    add(
        "--ahead",
        type=int,
        default=0,
        metavar="PAGES",
        help="encode so many pages once and train on them alone; see below",
    )
    add(
        "--parts",
        type=int,
        default=0,
        metavar="QUESTIONS",
        help="of a page ahead: encode the part that stage 1 chooses for each of them, too; for encode_ratio below 1",
    )
    add("--shares", type=float, nargs=2, default=SHARES, metavar=("LOW", "HIGH"), help="of tokens: the budgets drawn")
    add("--workers", type=int, default=0, help="processes that draw pages beside training")


def _add_model(parser: argparse.ArgumentParser):
    add = parser.add_argument_group("model and what of it is trained").add_argument
    add("--model", default="checkpoints/arrcoc-small", help="folder or Hub name of the base")
    add("--base-dtype", choices=("float32", "bfloat16"), default="float32", help="what the base is loaded in")
    add(
        "--scorer",
        choices=SCORERS,
        default="arrcoc",
        help="what is trained; query_blind is arrcoc without the question",
    )
    add("--allocator", type=Path, help="begin from this file of the same --scorer")
    add("--reset", action="store_true", help="begin from a new allocator, whatever the model folder holds")
    add("--set", nargs="*", default=[], metavar="DIAL=VALUE", help="dials of the config, such as coverage_floor=0")
    add("--signals", help="names and weights, such as evidence=1,distill_attention=0.1; see below")
    add("--phase", type=int, choices=(1, 2), default=1, help="1: the scorer alone; 2: the language model too")
    add(
        "--adapt",
        choices=ADAPTS,
        default=_PHASE_2["adapt"],
        help="phase 2: LoRA on the top layers, or these layers themselves",
    )
    add("--layers", type=int, default=_PHASE_2["layers"], help="phase 2: how many of the top layers")
    add("--rank", type=int, default=_PHASE_2["rank"], help="phase 2: of LoRA")


def _add_steps(parser: argparse.ArgumentParser):
    add = parser.add_argument_group("optimisation").add_argument
    add("--steps", type=int, default=2000)
    add("--batch-size", type=int, default=16, help="questions per step and process; with --ahead about so many")
    add("--accumulate", type=int, default=1, help="batches per step")
    add("--learning-rate", type=float, default=2e-3)
    add(
        "--gate-factor",
        type=float,
        default=10.0,
        help="learning rate of the gates, which start at zero, over the rest's",
    )
    add("--weight-decay", type=float, default=0.01)
    add("--warmup", type=int, help=f"steps (default: {WARMUP}, or half of --steps where that is less)")
    add(
        "--schedule",
        default="cosine",
        choices=SCHEDULES,
        help="of the learning rate",
    )
    add("--whiten", action="store_true", help="learn what reads the question behind a whitening of the embeddings")
    add("--seed", type=int, default=0)
    add("--bf16", action="store_true", help="autocast to bfloat16; the scorer stays in float32")


def _add_files(parser: argparse.ArgumentParser):
    add = parser.add_argument_group("files and progress").add_argument
    add("--out", type=Path, default=Path("runs/allocator"))
    add("--resume", action="store_true", help="go on from the last checkpoint under --out")
    add("--log-every", type=int, default=10, help="steps")
    add("--save-every", type=int, default=500, help="steps")
    add("--keep", type=int, default=2, help="checkpoints")
    add("--export", action="store_true", help="write OUT/model too: base and allocator, for from_pretrained")
    add("--quiet", action="store_true", help="no progress bar")
