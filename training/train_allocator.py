"""Trains the allocator, or a learned baseline, on a frozen base: ``python -m training.train_allocator --out runs/allocator``.

Writes under --out: checkpoint-N (what is trained and all that a resumed run needs), metrics.jsonl, TensorBoard's files where it
is installed, and at the end allocator.safetensors, or SCORER.safetensors for another --scorer.
"""

import argparse
import importlib.util
import json
import math
import sys
from pathlib import Path
from urllib.parse import parse_qsl

import torch
from huggingface_hub.errors import StrictDataclassError
from transformers import SchedulerType, TrainingArguments, set_seed
from transformers.trainer_utils import get_last_checkpoint

from arrcoc import ARRCOCProcessor, ARRCOCQwen3VLForConditionalGeneration
from evaluation.loading import parse_dials
from training.adapt import ADAPTS, adapt, merged, tuned_tensors
from training.ahead import PageCollator, encode_ahead
from training.allocator import load_allocator, save_allocator, save_baseline, write_tensors
from training.allocator_batches import SHARES, AllocatorCollator, ListSource, MixedSource, PictureSource
from training.allocator_learner import AllocatorLearner
from training.allocator_trainer import AllocatorTrainer
from training.data import WorldSource, load_examples
from training.data.world import GRIDS
from training.scorers import SCORERS
from training.signals import SIGNALS, parse_signals

_OWN = "evidence=1,mass=0.5,distill_unmarked=0.3,early_evidence=1,early_distill=0.3,early_features=1"
DEFAULT_SIGNALS = {
    "arrcoc": f"{_OWN},named=0.5,context=0.3",
    "query_blind": _OWN,
    "vision_selector": "lm_soft_topk=1,binarize=0.5",
    "glimpse_prune": "evidence=1",
}


AHEAD = """--ahead PAGES: the frozen base encodes so many pages before training, and every pass goes over them again, all questions
of a page at once. Several times faster; for signals that need no pass of the language model, or the frozen one's alone
(distill_attention and distill_unmarked, whose pass is made once)."""


def make_source(specs: list[str], seed: int, limit: int | None, skip_bad: bool, questions: int = 1):
    """The endless training examples that the specs name, in turn; the world is drawn, everything else is read and checked.

    `questions` examples in a row are of one source. Of each picture so many are asked in a row, where it has as many.

    Raises:
        DataError: see `load_examples`.
        ValueError: a spec of the world sets `questions`.
    """
    sources = []
    for number, spec in enumerate(specs):
        kind, _, rest = spec.partition("?")[0].partition(":")
        if kind == "world" and not Path(spec).is_dir():
            load_examples(spec, "train", seed, limit=1)  # refuses what it does not know
            options = dict(parse_qsl(spec.partition("?")[2]))
            if "questions" in options:
                raise ValueError(
                    f"--data {spec!r} sets questions={options['questions']}, which is for evaluation; pass --questions "
                    f"{options['questions']} to ask as many of each page in training"
                )
            pairs = [tuple(map(int, text.split("x"))) for text in options.get("grids", "").split(",") if text]
            kinds = tuple(name.strip() for name in rest.split(",") if name.strip())
            sources.append(WorldSource(seed + number, "train", kinds, tuple(pairs) or GRIDS, questions))
        else:
            sources.append(PictureSource(load_examples(spec, "train", seed, limit, skip_bad), seed, questions))
    return sources[0] if len(sources) == 1 else MixedSource(sources, questions)


def training_arguments(options: argparse.Namespace, asked: float = 1.0) -> TrainingArguments:
    """Trainer's own options from ours; `asked` is how many questions one entry of the source holds in the mean."""
    arguments = TrainingArguments(
        output_dir=str(options.out),
        max_steps=options.steps,
        per_device_train_batch_size=max(1, round(options.batch_size / asked)),
        gradient_accumulation_steps=options.accumulate,
        learning_rate=options.learning_rate,
        weight_decay=options.weight_decay,
        warmup_steps=min(options.warmup, options.steps // 2),
        lr_scheduler_type=options.schedule,
        logging_steps=options.log_every,
        save_steps=options.save_every,
        save_total_limit=options.keep,
        seed=options.seed,
        bf16=options.bf16,
        use_cpu=not torch.cuda.is_available(),
        dataloader_num_workers=options.workers,
        report_to=["tensorboard"] if importlib.util.find_spec("tensorboard") else [],
        remove_unused_columns=False,
        ignore_data_skip=True,  # our batches begin at the right one themselves
        ddp_find_unused_parameters=True,
        logging_nan_inf_filter=False,
        save_only_model=False,
        disable_tqdm=options.quiet,
    )
    arguments._n_gpu = min(arguments.n_gpu, 1)  # several GPUs are used by `accelerate launch`, one process each
    return arguments


def make_learner(options: argparse.Namespace) -> tuple[AllocatorLearner, ARRCOCProcessor]:
    """The base with its scorer and signals, in the phase that is asked for, and its processor."""
    try:
        processor = ARRCOCProcessor.from_pretrained(options.model)
    except (OSError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise ValueError(
            f"--model {options.model} can't be read; pass a model's folder or Hub id ({reason})"
        ) from error
    dtype = getattr(torch, options.base_dtype)
    set_seed(options.seed)  # new parameters come from it
    model = ARRCOCQwen3VLForConditionalGeneration.from_pretrained(
        options.model, dtype=dtype, **parse_dials(options.set)
    )
    if options.reset:
        model.model.arrcoc = type(model.model.arrcoc)(model.config)
    if options.allocator:
        load_allocator(model, options.allocator)
    learner = AllocatorLearner(model, parse_signals(options.signals), options.scorer)
    if options.phase == 2:
        adapt(learner, options.adapt, options.layers, options.rank)
    return learner, processor


def finish(trainer: AllocatorTrainer, processor, options: argparse.Namespace) -> Path:
    """Writes what was trained, and with --export the whole model; returns the path of the former."""
    learner, tensors, own = trainer.learner, trainer.trained_tensors(), trainer.scorer_tensors()
    baseline = learner.baseline is not None
    path = options.out / f"{'allocator' if options.scorer == 'arrcoc' else options.scorer}.safetensors"
    if not trainer.args.should_save:
        return path
    if baseline:
        save_baseline(own, path, options.scorer, learner.fingerprint)
    else:
        save_allocator(learner.model, path, options.scorer, learner.fingerprint, own)
    if options.phase == 2:
        language = tuned_tensors(learner, tensors)
        write_tensors(options.out / "language_model.safetensors", language, {"base": learner.fingerprint})
    if options.export:
        if trainer.is_fsdp_enabled:
            raise ValueError("--export can't gather a sharded model; load allocator.safetensors onto its base instead")
        model = merged(learner)
        model.save_pretrained(options.out / "model")
        processor.save_pretrained(options.out / "model")
    return path


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
    add("--allocator", type=Path, help="begin from this allocator.safetensors")
    add("--reset", action="store_true", help="begin from a new allocator, whatever the model folder holds")
    add("--set", nargs="*", default=[], metavar="DIAL=VALUE", help="dials of the config, such as diversity=0")
    add("--signals", help="names and weights, such as evidence=1,distill_attention=0.1; see below")
    add("--phase", type=int, choices=(1, 2), default=1, help="1: the scorer alone; 2: the language model too")
    add("--adapt", choices=ADAPTS, default="lora", help="phase 2: LoRA on the top layers, or these layers themselves")
    add("--layers", type=int, default=2, help="phase 2: how many of the top layers")
    add("--rank", type=int, default=16, help="phase 2: of LoRA")


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
    add("--warmup", type=int, default=20, help="steps")
    add(
        "--schedule",
        default="cosine",
        choices=[kind.value for kind in SchedulerType],
        help="of the learning rate",
    )
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


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    signals = "\n".join(f"  {name:20} {what}" for name, (_, what) in SIGNALS.items())
    parser = argparse.ArgumentParser(
        description=__doc__.split("\n")[0], epilog=f"signals:\n{signals}\n\n{AHEAD}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    for add_group in (_add_data, _add_model, _add_steps, _add_files):
        add_group(parser)
    options = parser.parse_args(arguments)
    options.signals = options.signals or DEFAULT_SIGNALS[options.scorer]
    try:
        parse_signals(options.signals)
        parse_dials(options.set)
        _check_numbers(options)
        _check_ahead(options)
    except ValueError as error:
        parser.error(str(error))
    if options.scorer in ("vision_selector", "glimpse_prune") and (options.export or options.allocator):
        parser.error(f"--export and --allocator are of the allocator; {options.scorer} writes its own file")
    return options


def _check_numbers(options: argparse.Namespace) -> None:
    least = dict.fromkeys(
        ("steps", "questions", "batch_size", "accumulate", "layers", "rank", "log_every", "save_every", "keep"), 1
    )
    for name, low in (least | {"limit": 1, "warmup": 0, "seed": 0, "workers": 0, "ahead": 0}).items():
        value = getattr(options, name)
        if value is not None and value < low:
            raise ValueError(f"--{name.replace('_', '-')} {value}: pass a whole number from {low} on")
    for name in ("learning_rate", "gate_factor", "weight_decay"):
        value = getattr(options, name)
        if not (0 < value < math.inf or (name == "weight_decay" and value == 0)):
            raise ValueError(f"--{name.replace('_', '-')} {value}: pass a finite number above 0")
    low, high = options.shares
    if not 0 < low <= high < 1:
        raise ValueError(f"--shares {low} {high}: pass 0 < LOW <= HIGH < 1, such as 0.04 0.6")


def _check_ahead(options: argparse.Namespace) -> None:
    if not options.ahead:
        return
    passes = [name for name in parse_signals(options.signals) if set(SIGNALS[name][0]) - {"teacher"}]
    if passes or options.scorer not in ("arrcoc", "query_blind") or options.phase == 2:
        came = ", ".join(passes) or (f"--scorer {options.scorer}" if options.phase == 1 else "--phase 2")
        raise ValueError(
            f"--ahead {options.ahead} can't go with {came}, which needs the whole base in every step; pass signals on the scores "
            "alone, such as evidence=1,mass=0.5,distill_attention=0.1, or leave --ahead out"
        )


def main(arguments: list[str] | None = None) -> Path:
    """Command line of this file; returns the path of what was trained."""
    options = parse(arguments)
    checkpoint = get_last_checkpoint(str(options.out)) if options.resume and options.out.is_dir() else None
    if options.resume and checkpoint is None:
        raise SystemExit(f"{options.out} has no checkpoint, nothing to resume; start without --resume")
    if not options.resume and options.out.is_dir() and get_last_checkpoint(str(options.out)):
        raise SystemExit(f"{options.out} holds checkpoints of an earlier run; pass --resume, or another --out")
    try:
        options.out.mkdir(parents=True, exist_ok=True)
        source = make_source(options.data, options.seed, options.limit, options.skip_bad, options.questions)
        learner, processor = make_learner(options)
    except (ValueError, OSError, ImportError, StrictDataclassError) as error:
        raise SystemExit(f"error: {error}") from error
    collator = AllocatorCollator(
        processor, learner.needs_language, learner.needs_prompt, tuple(options.shares), options.seed
    )
    asked = 1.0
    if options.ahead:
        unmarked_alone = "distill_attention" not in learner.weights
        count = min(options.ahead, len(source)) if isinstance(source, PictureSource) else options.ahead
        pages = encode_ahead(learner.model, collator, source, count, options.quiet, unmarked_alone)
        asked = sum(len(page.evidence) for page in pages) / len(pages)
        source, collator = ListSource(pages, options.seed), PageCollator(collator)
    trainer = AllocatorTrainer(learner, training_arguments(options, asked), source, collator, options.gate_factor)
    result = trainer.train(resume_from_checkpoint=checkpoint)
    path = finish(trainer, processor, options)
    if trainer.args.should_save:
        seconds = result.metrics["train_runtime"]
        print(json.dumps({"out": str(path), "steps": trainer.state.global_step, "seconds": round(seconds, 1)}))
    return path


if __name__ == "__main__":
    main(sys.argv[1:])
