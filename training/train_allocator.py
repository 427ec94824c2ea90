"""Trains the allocator, or a learned baseline, on a frozen base: ``python -m training.train_allocator --out runs/allocator``.

Writes under --out: options.json, checkpoint-N (what is trained and all that a resumed run needs), metrics.jsonl, TensorBoard's
files where it is installed, and at the end allocator.safetensors, or SCORER.safetensors for another --scorer.
"""

import argparse
import hashlib
import importlib.util
import json
import os
import sys
from pathlib import Path

import torch
from accelerate.utils import gather_object
from huggingface_hub.errors import StrictDataclassError
from safetensors import SafetensorError
from transformers import TrainingArguments, set_seed
from transformers.trainer_utils import get_last_checkpoint

from arrcoc import ARRCOCProcessor, ARRCOCQwen3VLConfig, ARRCOCQwen3VLForConditionalGeneration
from evaluation.dials import parse_dials
from evaluation.loading import first_line
from evaluation.records import add_tensors
from training.adapt import adapt, merged, tuned_tensors
from training.allocator import load_allocator, load_baseline, save_allocator, save_baseline, write_tensors
from training.allocator_batches import AllocatorCollator
from training.allocator_data import check_data, encoded, fingerprints, make_source
from training.allocator_learner import AllocatorLearner
from training.allocator_options import DEFAULT_SIGNALS, WARMUP, parse, save_options
from training.allocator_trainer import AllocatorTrainer, check_resumable, read_checkpoint, restore
from training.readable import Reader
from training.run_folder import STATE
from training.scorers import LAYER_SCORERS
from training.signals import parse_signals

__all__ = ["DEFAULT_SIGNALS", "finish", "main", "make_learner", "make_source", "parse", "training_arguments"]


def _start_fingerprint(scorer: torch.nn.Module) -> str:
    digest = hashlib.sha256()
    add_tensors(digest, scorer.state_dict())
    return digest.hexdigest()[:16]


def _check_start(options: argparse.Namespace, start: str) -> None:
    if options.start_fingerprint != start:
        raise ValueError(
            f"{options.allocator or options.model} has another {options.scorer} than the run in {options.out} began with; put it "
            "back, or pass another --out"
        )


def training_arguments(options: argparse.Namespace) -> TrainingArguments:
    """Trainer's own options from ours, for a source whose entries are questions."""
    arguments = TrainingArguments(
        output_dir=str(options.out),
        max_steps=options.steps,
        per_device_train_batch_size=options.batch_size,
        gradient_accumulation_steps=options.accumulate,
        learning_rate=options.learning_rate,
        weight_decay=options.weight_decay,
        warmup_steps=min(WARMUP, options.steps // 2) if options.warmup is None else options.warmup,
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


def make_reader(options: argparse.Namespace) -> tuple[ARRCOCProcessor, Reader]:
    """The base's processor, and what the base can read."""
    try:
        config = ARRCOCQwen3VLConfig.from_pretrained(options.model)
        processor = ARRCOCProcessor.from_pretrained(options.model)
    except (OSError, ValueError) as error:
        wrong = "can't be read" if isinstance(error, OSError) else "is no Qwen3-VL that can be trained on"
        raise ValueError(
            f"--model {options.model} {wrong}; pass the folder or Hub id of one ({first_line(error)})"
        ) from error
    return processor, Reader(processor.tokenizer, getattr(config.text_config, "max_position_embeddings", None))


def make_learner(options: argparse.Namespace) -> AllocatorLearner:
    """The base with its scorer and signals, in the phase that is asked for."""
    dtype = getattr(torch, options.base_dtype)
    set_seed(options.seed)  # new parameters come from it
    dials = parse_dials(options.set, shapes=options.reset)
    begin = {} if options.reset else dials  # the folder's own allocator would not fit another shape
    model = ARRCOCQwen3VLForConditionalGeneration.from_pretrained(options.model, dtype=dtype, **begin)
    if options.reset:
        for name, value in dials.items():
            setattr(model.config, name, value)
        model.config.validate_scorer()
        model.model.arrcoc = type(model.model.arrcoc)(model.config)
    elif options.scorer == "query_blind" and not options.allocator and model.model.arrcoc.participation.gate.any():
        raise ValueError(
            f"--scorer query_blind would go on from the allocator of {options.model}, which was trained with the question; pass "
            "--reset to begin anew, or as --allocator a file that was trained without"
        )
    if options.allocator and options.scorer in LAYER_SCORERS:
        load_allocator(model, options.allocator, dials, options.scorer)
    learner = AllocatorLearner(model, parse_signals(options.signals), options.scorer)
    if options.allocator and learner.baseline is not None:
        load_baseline(learner.baseline, model, options.allocator, options.scorer)
    if options.phase == 2:
        adapt(learner, options.adapt, options.layers, options.rank)
    return learner


def finish(trainer: AllocatorTrainer, processor, options: argparse.Namespace) -> Path:
    """Writes what was trained, and with --export the whole model; returns the path of the former."""
    learner, tensors, own = trainer.learner, trainer.trained_tensors(), trainer.scorer_tensors()
    baseline = learner.baseline is not None
    path = options.out / f"{'allocator' if options.scorer == 'arrcoc' else options.scorer}.safetensors"
    if not trainer.args.should_save:
        return path
    if baseline:
        save_baseline(own, path, options.scorer, learner.base)
    else:
        save_allocator(learner.model, path, options.scorer, learner.base, own)
    if options.phase == 2:
        language = tuned_tensors(tensors)
        adapted = options.out / "language_model.safetensors"
        write_tensors(adapted, language, learner.base)
        if not options.export:
            print(
                f"{adapted} holds the adapted layers, which only a whole model can use; write it with: "
                f"python -m training.train_allocator --out {options.out} --resume --export",
                file=sys.stderr,
            )
    if options.export:
        model = merged(learner)
        load_allocator(model, path)  # rounded as the file is, so that both are one model
        _in_own_dtype(model, options.model)
        model.save_pretrained(options.out / "model")
        processor.tokenizer.padding_side = "left"  # generate() answers batches padded at the right wrongly
        processor.save_pretrained(options.out / "model")
    return path


def _in_own_dtype(model, folder: str) -> None:
    """Gives the base of `model` the dtype that the config in `folder` names; training may have another. The allocator stays."""
    dtype = ARRCOCQwen3VLConfig.from_pretrained(folder).dtype
    for name, parameter in model.named_parameters():
        if dtype is not None and parameter.is_floating_point() and ".arrcoc." not in name:
            parameter.data = parameter.data.to(dtype)


def _checkpoint(options: argparse.Namespace) -> str | None:
    last = get_last_checkpoint(str(options.out)) if options.out.is_dir() else None
    if options.resume and last is None:
        raise SystemExit(f"{options.out} has no checkpoint, nothing to resume; start without --resume")
    if options.resume and (done := int(last.rpartition("-")[2])) > options.steps:
        print(f"note: {options.out} has done {done} steps; --steps {options.steps} trains no further", file=sys.stderr)
    if not options.resume and last is not None:
        raise SystemExit(f"{options.out} holds checkpoints of an earlier run; pass --resume, or another --out")
    if (options.out / STATE).exists():
        raise SystemExit(f"{options.out} holds a run of training.train_base; pass another --out")
    return last


def _tell_idle(options: argparse.Namespace, taught: set[str]) -> None:
    """Says on stderr which signals found nothing to learn from in the whole run."""
    idle = [name for name in parse_signals(options.signals) if name not in taught]
    default = options.signals == DEFAULT_SIGNALS[options.scorer]
    if taught and default:  # which is for questions with boxes and without
        if "evidence" in idle:
            print(
                f"note: no question of {', '.join(options.data)} has evidence boxes; the run learned from the rest of the default "
                "--signals alone",
                file=sys.stderr,
            )
        return
    if not idle:
        return
    named, rest = (", ".join(idle), "the others did") if taught else (options.signals, "so nothing has changed")
    print(
        f"warning: --signals {named} found nothing to learn from in {', '.join(options.data)}, {rest}; give the data what they "
        "read (docs/training.md, Signals), such as evidence boxes, or pass other signals",
        file=sys.stderr,
    )


def main(arguments: list[str] | None = None) -> Path:
    """Command line of this file; returns the path of what was trained."""
    options = parse(arguments)
    torch.set_flush_denormal(True)  # a CPU takes five times as long over gradients too small to matter: dev/LOG.md
    checkpoint = _checkpoint(options)
    try:
        if options.out.exists() and not options.out.is_dir():
            raise ValueError(f"--out {options.out} is a file; pass a folder")
        options.out.mkdir(parents=True, exist_ok=True)
        processor, reader = make_reader(options)
        source = make_source(options.data, options.seed, options.limit, options.skip_bad, options.questions, reader)
        learner = make_learner(options)
        step, found = read_checkpoint(learner, checkpoint)[1] if checkpoint else 0, fingerprints(source)
        start = _start_fingerprint(learner.scorer)
        if checkpoint:
            _check_start(options, start)  # what is not trained is written as the run began with it
        if checkpoint and step < options.steps:
            check_resumable(checkpoint, int(os.environ.get("WORLD_SIZE", 1)))
            check_data(options, found)
        options.data_fingerprints, options.start_fingerprint = found, start
        settings, done = training_arguments(options), step >= options.steps
        if settings.should_save and not done:
            save_options(options)
    except (ValueError, OSError, ImportError, StrictDataclassError) as error:
        raise SystemExit(f"error: {error}") from error
    collator = AllocatorCollator(
        processor, learner.needs_language, learner.needs_prompt, tuple(options.shares), options.seed
    )
    seconds = 0.0
    if options.ahead and not done:
        source, collator = encoded(learner, collator, source, options, settings)
    trainer = AllocatorTrainer(
        learner, settings, source, collator, options.gate_factor, bool(options.ahead), options.whiten
    )
    if done:  # the checkpoint is the result
        restore(learner, checkpoint)
    else:
        try:
            seconds = trainer.train(resume_from_checkpoint=checkpoint).metrics["train_runtime"]
        except (FloatingPointError, OSError) as error:  # they say what is whole
            raise SystemExit(f"error: {error}") from error
        except KeyboardInterrupt:
            last = get_last_checkpoint(str(options.out))
            if trainer.args.should_save:
                told = f"--resume goes on from {last}" if last else "no checkpoint was written yet"
                print(f"stopped; {told}", file=sys.stderr)
            raise SystemExit(130) from None
        step = trainer.state.global_step
        taught = set().union(*gather_object([sorted(learner.taught)]))
        if trainer.args.should_save and checkpoint is None:  # what was taught before a resumed run is not known
            _tell_idle(options, taught)
    try:
        path = finish(trainer, processor, options)
    except (OSError, SafetensorError) as error:  # the last checkpoint holds all that was trained
        raise SystemExit(
            f"error: {error}; then run the same command with --resume, which only writes the result"
        ) from error
    if trainer.args.should_save:
        print(json.dumps({"out": str(path), "steps": step, "seconds": round(seconds, 1)}))
    return path


if __name__ == "__main__":
    main(sys.argv[1:])
