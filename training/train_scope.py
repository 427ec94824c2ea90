"""Teaches an allocator from questions alone, without their pictures, which of them are about the whole image.

python -m training.train_scope --model checkpoints/arrcoc-small --out runs/scope.safetensors --limit 20000 \\
    --data "world:gist?grids=12x12&reworded=1" "world?grids=12x12&reworded=1"

`--signals scope` of `training.train_allocator` measures for each question what either choice loses; here `--spread` and `--missed`
stand for that, which needs no picture to be encoded. All else of the allocator stays as it is.
"""

import argparse
import math
import os
import re
from pathlib import Path
from random import Random

import torch
from tqdm import tqdm

from arrcoc import ARRCOCProcessor, ARRCOCQwen3VLForConditionalGeneration
from arrcoc.questions import questions_of
from arrcoc.scoping import QuestionScope
from training.allocator import save_allocator
from training.data import load_examples
from training.signals import scope_loss
from training.world import words

_WHOLE_SHARE = 0.25  # of a batch
_ALIKE_SHARE = 0.1
_LEFT_OUT = 0.1  # of a question's words
_IMAGE = "<|image_pad|>"
_PICTURE = re.compile(r"\b(?:page|image|picture|document|scene)\b", re.IGNORECASE)


def read_questions(
    specs: list[str], families: set[str], seed: int, limit: int | None, skip_bad: bool = False
) -> tuple[list[str], list[str]]:
    """The questions of the training split that are about the whole image, of these families, and all others; each as the processor
    reads it off a prompt.

    Raises:
        ValueError: one of the two is empty, or see `load_examples`.
    """
    whole, others = [], []
    for spec in specs:
        for example in load_examples(spec, "train", seed, limit, skip_bad):
            asked = questions_of(f"{_IMAGE}{example.question}", _IMAGE, "last_user")
            (whole if example.family in families else others).extend(asked)
    if not whole or not others:
        raise ValueError(
            f"--data has {len(whole)} questions of {', '.join(sorted(families))} and {len(others)} others, and both are needed; "
            "pass data with both, and in --whole the families that are about the whole image"
        )
    return whole, others


def about_something(question: str, random: Random) -> str | None:
    """A question about the whole image turned into one that only looks like it ("Describe the room."); None if it can't be."""
    named, count = _PICTURE.subn(random.choice(words.LABELS).lower(), question, count=1)
    return named if count else None


def draw_batch(whole: list[str], others: list[str], size: int, random: Random) -> tuple[list[str], torch.Tensor]:
    """Questions, some words of them left out, and (size,) bool, whether each is about the whole image."""
    questions, labels = [], []
    for _ in range(size):
        drawn = random.random()
        is_whole = drawn < _WHOLE_SHARE
        question = random.choice(whole if is_whole else others)
        if not is_whole and drawn > 1 - _ALIKE_SHARE:
            question = about_something(random.choice(whole), random) or question
        elif random.random() < 0.5:
            said = question.split()
            question = " ".join([word for word in said if random.random() >= _LEFT_OUT] or said)
        questions.append(question)
        labels.append(is_whole)
    return questions, torch.tensor(labels)


def train_scope(
    model, tokenizer, whole: list[str], others: list[str], steps: int, batch_size: int, learning_rate: float, missed: float,
    spread: float, seed: int,
) -> float:  # fmt: skip
    """Trains a new `QuestionScope` of the model in place; the learning rate falls linearly to nothing.

    Args:
        missed: what a question about the whole image loses where cells are chosen for it.
        spread: what any other loses where its budget is spread evenly.

    Returns:
        The mean loss of the last hundred steps.

    Raises:
        FloatingPointError: the loss is NaN or infinite.
    """
    torch.manual_seed(seed)
    layer, embed, random = model.model.arrcoc, model.get_input_embeddings(), Random(seed)
    old = layer.scope
    layer.scope = scope = QuestionScope(old.query_size, old.word.out_features).to(embed.weight.device)
    optimizer = torch.optim.AdamW(scope.parameters(), lr=learning_rate)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 - step / steps)
    losses = []
    for _ in (bar := tqdm(range(steps), desc="scope")):
        questions, is_whole = draw_batch(whole, others, batch_size, random)
        asked = tokenizer(questions, add_special_tokens=False, padding=True, return_tensors="pt").to(
            embed.weight.device
        )
        with torch.no_grad():
            query = embed(asked["input_ids"])
        logit = scope(query, asked["attention_mask"].bool())
        is_whole = is_whole.to(logit.device)
        loss = scope_loss(logit, torch.where(is_whole, 0.0, spread), torch.where(is_whole, missed, 0.0))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
        if not math.isfinite(losses[-1]):
            raise FloatingPointError(f"the loss is {losses[-1]} at step {len(losses)}; lower --learning-rate")
        bar.set_postfix(loss=f"{losses[-1]:.5f}")
    return sum(losses[-100:]) / len(losses[-100:])


def _check_out(out: Path) -> None:
    """Makes the folder of `out`, before anything is trained for it.

    Raises:
        OSError: nothing can be written there.
    """
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        writable = not out.is_dir() and os.access(out if out.exists() else out.parent, os.W_OK)
    except OSError:
        writable = False
    if not writable:
        raise OSError(f"--out {out} can't be written; pass a file in a folder of yours, such as runs/scope.safetensors")


def main(arguments: list[str] | None = None) -> Path:
    """Command line of this file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", type=Path, required=True, help="folder of the model whose allocator learns")
    parser.add_argument("--data", nargs="+", required=True, help="what training.data.load_examples takes")
    parser.add_argument(
        "--whole", nargs="+", default=["gist"], help="families whose questions are about the whole image"
    )
    parser.add_argument("--limit", type=int, help="of the questions of each of --data")
    parser.add_argument("--skip-bad", action="store_true", help="leave bad records out; how many is printed")
    parser.add_argument("--steps", type=int, default=4500)
    parser.add_argument("--batch-size", type=int, default=192)
    parser.add_argument("--learning-rate", type=float, default=3e-3)
    parser.add_argument(
        "--missed", type=float, default=0.1, help="lost by a question about the whole image whose cells are chosen"
    )
    parser.add_argument("--spread", type=float, default=0.5, help="lost by any other whose budget is spread evenly")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, required=True, help="allocator.safetensors to write")
    options = parser.parse_args(arguments)
    for name in ("steps", "batch_size", "learning_rate", "missed", "spread"):
        if not 0 < getattr(options, name) < float("inf"):
            parser.error(f"--{name.replace('_', '-')} {getattr(options, name)}: pass a finite number above 0")
    if not (options.model / "config.json").is_file():
        parser.error(f"--model {options.model} has no config.json; pass the folder of an ARR-COC model")
    try:
        _check_out(options.out)
        whole, others = read_questions(options.data, set(options.whole), options.seed, options.limit, options.skip_bad)
        model = ARRCOCQwen3VLForConditionalGeneration.from_pretrained(options.model, dtype=torch.float32).eval()
        tokenizer = ARRCOCProcessor.from_pretrained(options.model).tokenizer
        loss = train_scope(
            model, tokenizer, whole, others, options.steps, options.batch_size, options.learning_rate, options.missed,
            options.spread, options.seed,
        )  # fmt: skip
        save_allocator(model, options.out)
    except (OSError, ValueError, ImportError, FloatingPointError) as error:
        parser.error(str(error))
    print(
        f"{options.out}: loss {loss:.5f} of {len(whole)} questions about the whole image and {len(others)} about something"
    )
    return options.out


if __name__ == "__main__":
    main()
