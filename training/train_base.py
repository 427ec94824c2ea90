"""Trains the small base Qwen3-VL on the drawn world from scratch: ``python -m training.train_base --out runs/base``.

Writes under --out: state.pt (everything to resume from), metrics.jsonl, and export/ (a stock Qwen3-VL folder).
"""

import argparse
import json
import math
import os
import subprocess
import sys
import time
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch.utils.data import DataLoader
from tqdm import tqdm

from training import parallel
from training.base_model import HEADS, build_model, export
from training.base_options import KEPT, parse, read_state
from training.batches import make_batch
from training.curriculum import STAGES, Stage
from training.data_pages import LARGEST, MOST_LETTERS, load_pages
from training.run_folder import STATE, cut_after
from training.speed import speed_up
from training.steps import WEIGHTS, GlyphHead, exact_matches, letter_loss, letters_read, losses
from training.stream import Batches

EMBEDDINGS = "model.language_model.embed_tokens.weight"


class Trainer:
    """Model, optimiser and place in the curriculum; `state` and `load` carry all of it through a file."""

    def __init__(self, options: argparse.Namespace, stages: tuple[Stage, ...] = STAGES):
        self.options, self.stages = options, stages
        self.rank, self.processes = parallel.start()
        self.device = torch.device("cuda", self.rank) if torch.cuda.is_available() else torch.device("cpu")
        self.dtype = torch.float32 if options.float32 else torch.bfloat16
        self.model = build_model(options.seed).to(self.device).train()
        self.glyph_head = GlyphHead(self.model.config.text_config.hidden_size).to(self.device)
        self.step, self.stage, self.cooling_since = 0, self.first_stage(), None
        self.data, self.data_began = None, None  # pages beside the world's, and their fingerprint when the run began
        speed_up(self.model, options.compile, vision=not self.freeze())
        self.parameters = [*self.model.parameters(), *self.glyph_head.parameters()]
        decayed = [p for p in self.parameters if p.ndim > 1]
        plain = [p for p in self.parameters if p.ndim <= 1]
        self.optimizer = torch.optim.AdamW(
            [{"params": decayed, "weight_decay": 0.05}, {"params": plain, "weight_decay": 0.0}],
            lr=options.learning_rate, betas=(0.9, 0.98), fused=True,
        )  # fmt: skip

    def first_stage(self) -> int:
        """The number of the stage that the options name, of the first if they name none."""
        names = [stage.name for stage in self.stages]
        return names.index(self.options.stage) if self.options.stage else 0

    def freeze(self) -> bool:
        """Lets learn what the stage says; whether that is the language model alone, from the layers above its embeddings on."""
        alone = self.stages[self.stage].language_only
        for part in (self.model.model.visual, self.model.get_input_embeddings()):
            part.requires_grad_(not alone)
        return alone

    def state(self) -> dict:
        """What a resumed run needs to go on as if it had not stopped."""
        return {
            "model": self.model.state_dict(), "glyph_head": self.glyph_head.state_dict(),
            "optimizer": self.optimizer.state_dict(), "step": self.step, "stage": self.stage,
            "cooling_since": self.cooling_since, "options": {name: getattr(self.options, name) for name in KEPT},
            "data": self.data and self.data.fingerprint,
        }  # fmt: skip

    def load(self, path: Path) -> None:
        """Continues from a state file. `FileNotFoundError` says how to begin where there is none."""
        saved = read_state(path, self.device)
        self.model.load_state_dict(saved["model"])
        self.glyph_head.load_state_dict(saved["glyph_head"])
        self.optimizer.load_state_dict(saved["optimizer"])
        self.step, self.stage, self.cooling_since = saved["step"], saved["stage"], saved["cooling_since"]
        self.data_began = saved["data"]
        self.freeze()

    def begin(self, folder: Path) -> None:
        """Takes the weights of a stock or ARR-COC folder of this geometry, and those of the auxiliary heads from `HEADS` in it
        as far as they are there. The optimiser starts anew.

        `FileNotFoundError` without weights, `ValueError` if some are missing or cut off, torch's `RuntimeError` if shapes differ.
        """
        if not (folder / "model.safetensors").is_file():
            raise FileNotFoundError(f"{folder} has no model.safetensors; pass a model's folder, such as OUT/export")
        try:
            weights = load_file(folder / "model.safetensors")
        except SafetensorError as error:
            raise ValueError(
                f"{folder / 'model.safetensors'} can't be read ({error}); it is cut off or damaged"
            ) from error
        if EMBEDDINGS in weights:
            weights.setdefault("lm_head.weight", weights[EMBEDDINGS])  # of a folder whose head is tied to them
        missing = self.model.load_state_dict(weights, strict=False).missing_keys
        if missing:
            raise ValueError(
                f"{folder} lacks {missing[0]} and {len(missing) - 1} more tensors; pass a folder of this geometry"
            )
        if (folder / HEADS).exists():
            self.glyph_head.load_state_dict(load_file(folder / HEADS), strict=False)

    def load_data(self) -> None:
        """Loads the pages of `--data`. `ValueError` in a stage that learns from letters, which are not known of these."""
        stage = self.stages[self.stage]
        if not stage.language_only:
            named = " or ".join(one.name for one in self.stages if one.language_only)
            raise ValueError(f"--data has no letters for the stage {stage.name!r} to learn; pass --stage {named}")
        self.data = load_pages(self.options.data, self.options.seed, self.options.limit, self.options.skip_bad)
        if self.data_began not in (None, self.data.fingerprint):
            raise ValueError(
                f"--data {' '.join(self.options.data)} is not what the run in {self.options.out} began with: its names, questions, "
                "answers or boxes have changed; put them back, or pass another --out"
            )
        if self.data.left_out and not self.rank:
            print(
                f"--data: {self.data.left_out} questions are left out, which have no evidence, an answer that is not of 1 to "
                f"{MOST_LETTERS} ASCII letters, or a picture of more than {LARGEST} cells",
                file=sys.stderr,
            )

    def save(self) -> None:
        """Writes the state file, whole or not at all, the export, and the auxiliary heads; the first process only."""
        if self.rank:
            return
        path = self.options.out / STATE
        torch.save(self.state(), path.with_suffix(".new"))
        path.with_suffix(".new").replace(path)
        export(self.model, self.options.out / "export")
        heads = {name: tensor.to("cpu", torch.bfloat16) for name, tensor in self.glyph_head.state_dict().items()}
        save_file(heads, self.options.out / "export" / HEADS)

    def learning_rate(self) -> float:
        """Linear warm-up, then constant, then a cosine to a twentieth from the step on that the cool-down began."""
        peak = self.options.learning_rate * self.stages[self.stage].learning_rate
        peak *= min(1.0, (self.step + 1) / self.options.warmup)
        if self.cooling_since is None:
            return peak
        done = min(1.0, (self.step - self.cooling_since) / self.options.cooldown)
        return peak * (0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * done)))

    def train_step(self, batch) -> dict:
        """One optimiser step; returns its metrics."""
        for group in self.optimizer.param_groups:
            group["lr"] = self.learning_rate()
        if self.stages[self.stage].letters_only:
            parts = {"glyphs": letter_loss(self.model, self.glyph_head, batch, self.dtype)}
        else:
            parts = losses(self.model, self.glyph_head, batch, self.dtype)
        sum(WEIGHTS[name] * part for name, part in parts.items()).backward()
        parallel.average_gradients(self.parameters)
        norm = torch.nn.utils.clip_grad_norm_(self.parameters, 1.0)
        if not norm.isfinite():  # of all processes, so that all stop
            raise FloatingPointError(
                f"step {self.step + 1}: the gradient is {norm.item()}; {self.options.out / STATE} is as it was last saved, go on "
                "from it with --resume and a smaller --learning-rate"
            )
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.step += 1
        return {
            "step": self.step, "stage": self.stages[self.stage].name, "gradient_norm": norm.item(),
            **{name: part.item() for name, part in parts.items()}, "cells": list(batch.cells),
        }  # fmt: skip

    def evaluate(self, pages: int) -> float:
        """Share of about that many held-out questions of this stage answered exactly (or letters read), its grids in turn."""
        # neither eval() nor no_grad(): nothing here differs in training, and compiled layers would be compiled again
        size, scores, stage = 16, [], self.stages[self.stage]
        for index in range(self.rank, max(self.processes, pages // size), self.processes):
            batch = make_batch(stage, "held_out", index, size, *stage.grids[index % len(stage.grids)])
            if stage.letters_only:
                scores.append(letters_read(self.model, self.glyph_head, batch, self.dtype))
            else:
                scores.append(exact_matches(self.model, batch, self.dtype).float().mean().item())
        # each process has as many batches as its number leaves it
        return parallel.average(sum(scores), self.device) / parallel.average(len(scores), self.device)

    def finished(self) -> bool:
        """Whether the cool-down is over."""
        return self.cooling_since is not None and self.step >= self.cooling_since + self.options.cooldown


def run(trainer: Trainer) -> list[dict]:
    """Trains until the cool-down or `--steps` ends; returns the metrics of every step of this run."""
    options = trainer.options
    history, began = [], time.monotonic()
    file = options.out / "metrics.jsonl" if trainer.rank == 0 else Path(os.devnull)
    cut_after(file, trainer.step)
    log = file.open("a")
    name = trainer.stages[trainer.stage].name
    bar = tqdm(desc=name, unit="page", smoothing=0.05, mininterval=1, disable=trainer.rank > 0)
    batches = _batches(trainer)
    last = trainer.step + options.steps if options.steps else math.inf
    while trainer.step < last and not trainer.finished():
        metrics = trainer.train_step(next(batches))
        history.append(metrics)
        bar.update(options.batch_size)
        bar.set_postfix({name: f"{metrics[name]:.3f}" for name in WEIGHTS if name in metrics})
        metrics["minutes"] = round((time.monotonic() - began) / 60, 2)
        if trainer.step % options.evaluate_every == 0:
            metrics["minutes"] = round(parallel.average(metrics["minutes"], trainer.device), 2)
            metrics["score"] = trainer.evaluate(options.evaluate_pages)
            if _advance(trainer, metrics["score"], metrics["minutes"]):
                bar.set_description(trainer.stages[trainer.stage].name)
                batches = _batches(trainer)
        log.write(json.dumps(metrics) + "\n")
        log.flush()
        if trainer.step % options.save_every == 0:
            trainer.save()
    trainer.save()
    bar.close()
    log.close()
    return history


def _advance(trainer: Trainer, score: float, minutes: float) -> bool:
    # moves on by accuracy; the last stage begins to cool when its mark or the time is reached
    is_last = trainer.stage == len(trainer.stages) - 1
    out_of_time = trainer.options.minutes is not None and minutes >= trainer.options.minutes
    if trainer.cooling_since is None and (out_of_time or (is_last and score >= trainer.stages[-1].pass_mark)):
        trainer.cooling_since = trainer.step
    if is_last or trainer.cooling_since is not None or score < trainer.stages[trainer.stage].pass_mark:
        return False
    trainer.stage += 1
    trainer.freeze()
    return True


def _batches(trainer: Trainer):
    options = trainer.options
    own = options.batch_size // trainer.processes
    shown = (trainer.data, options.data_share)
    source = Batches(trainer.stages[trainer.stage], options.seed, trainer.step, own, trainer.rank, *shown)
    return iter(DataLoader(source, batch_size=None, num_workers=options.workers))


def prepare(arguments: list[str] | None = None) -> tuple[Trainer, list[subprocess.Popen]]:
    """The trainer of a command line, where it begins or goes on, and the other processes of its run.

    Raises:
        OSError, ValueError: see `Trainer.load` and `Trainer.begin`, or --out can't be made.
    """
    options = parse(arguments)
    others = parallel.launch(options.processes, sys.argv[1:] if arguments is None else arguments)
    options.out.mkdir(parents=True, exist_ok=True)
    trainer = Trainer(options)
    if options.begin:
        trainer.begin(options.begin)
    if options.resume:
        trainer.load(options.out / STATE)
    if options.stage:
        trainer.stage, trainer.cooling_since = trainer.first_stage(), None  # a stage that is named has yet to cool
        trainer.freeze()
    if options.data:
        trainer.load_data()
    return trainer, others


def train(trainer: Trainer, others: list[subprocess.Popen]) -> list[dict]:
    """As `run`; then waits for the other processes."""
    history = run(trainer)
    parallel.finish(others)
    return history


def main(arguments: list[str] | None = None) -> list[dict]:
    """Runs the command line; returns the metrics of every step. Raises as `prepare`."""
    return train(*prepare(arguments))


def command_line() -> None:
    """`main` from a shell: what can't begin ends in one message. An error of the training itself keeps its traceback."""
    try:
        prepared = prepare()
    except (OSError, ValueError, ImportError, RuntimeError) as error:  # the last from torch, where shapes differ
        raise SystemExit(f"error: {error}") from error
    train(*prepared)


if __name__ == "__main__":
    command_line()
