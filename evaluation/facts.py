"""What is measured once of every example, and which examples can be measured."""

import hashlib
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from evaluation import baselines
from evaluation.baselines.interface import BudgetTooSmall
from evaluation.budgets import FULL, tokens_for
from evaluation.records import picture_fingerprint
from training.data import Examples


@dataclass(frozen=True)
class Facts:
    """What is measured once of every example.

    Attributes:
        picture: fingerprint of the picture.
        size: (width, height) of the picture, pixels.
        cells: visual tokens of the whole picture.
        group: what the example comes from, whose questions the bootstrap draws together; see `group_of`.
    """

    picture: str
    size: tuple[int, int]
    cells: int
    group: str


def facts_of(model, processor, examples) -> list[Facts]:
    """The `Facts` of each example; every picture is opened once more than the methods open it.

    Raises:
        ValueError: visual tokens of this model can't be counted; see `baselines.cells_of`.
    """
    cells, facts = {}, []
    for example in examples:
        image = example.image
        if image.size not in cells:
            cells[image.size] = baselines.cells_of(model, processor, example)
        picture = picture_fingerprint(image)
        facts.append(Facts(picture, image.size, cells[image.size], group_of(example, picture)))
    if facts and max(cells.values()) == 1 and not baselines.is_arrcoc(model):
        raise ValueError(
            "a prompt has one placeholder for a picture, whatever it shows, so that visual tokens can't be counted; take a model "
            "whose prompt has one placeholder per visual token"
        )
    return facts


def measurable(parser, options, model, processor, examples, answer_tokens: int):
    """(examples, facts) of those that all methods can show at all budgets; ends the program at the first that they can't, unless
    `--skip-bad`, which says how many were left out."""
    try:
        facts = facts_of(model, processor, examples)
    except ValueError as error:
        parser.error(f"--model {options.model}: {error}")
    examples, facts = readable(parser, options, model, processor, examples, facts, answer_tokens)
    return _showable(parser, options, model, processor, examples, facts)


def readable(parser, options, model, processor, examples, facts: Sequence[Facts], answer_tokens: int):
    """(examples, facts) without those whose question, picture's tokens and answer are more than the language model reads."""
    most = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    reads_all, reasons = any(map(baselines.reads_all, options.methods)), []
    for example, fact in zip(examples, facts, strict=True):
        asked = len(processor.tokenizer(example.question).input_ids) + answer_tokens
        shown = fact.cells if reads_all else max(tokens_for(budget, fact.cells) for budget in options.budgets)
        reasons.append(
            None
            if most is None or asked + shown <= most
            else f"question and answer have up to {asked} tokens and the picture {shown}, together more than the {most} that the "
            "model reads; shorten the question, or leave it out"
        )
    return _without(parser, options, examples, facts, reasons, "longer than the model reads")


def _showable(parser, options, model, processor, examples, facts: Sequence[Facts]):
    """(examples, facts) without those whose picture `resize` can't show in the fewest tokens that a budget gives it."""
    if "resize" not in options.methods:
        return examples, facts
    from evaluation.baselines.resize import small_prompt

    budgets = [budget for budget in options.budgets if budget != FULL]
    of_size: dict[tuple[int, int], str | None] = {}
    for example, fact in zip(examples, facts, strict=True):
        if budgets and fact.size not in of_size:
            try:
                small_prompt(model, processor, [example], [min(tokens_for(budget, fact.cells) for budget in budgets)])
                of_size[fact.size] = None
            except BudgetTooSmall as error:
                of_size[fact.size] = f"{error}, or --skip-bad to leave such pictures out"
    reasons = [of_size.get(fact.size) for fact in facts]
    return _without(parser, options, examples, facts, reasons, "not to be shown in so few tokens")


def _without(parser, options, examples, facts: Sequence[Facts], reasons: Sequence[str | None], label: str):
    """(examples, facts) without those that have a reason; `label` names them in what was left out."""
    read = [pair for *pair, reason in zip(examples, facts, reasons, strict=True) if reason is None]
    told = [
        f"--data {options.data}: {example.name}: {reason}"
        for example, reason in zip(examples, reasons, strict=True)
        if reason is not None
    ]
    if told and (not options.skip_bad or not read):
        parser.error(told[0])
    left_out = dict(getattr(examples, "left_out", {}))
    if told:
        print(f"{told[0]} (left out, {len(told)} in all; {len(read)} used)", file=sys.stderr)
        left_out[label] = len(told)
    kept, facts = zip(*read, strict=True)
    return Examples(kept, left_out), list(facts)


def group_of(example, picture: str) -> str:
    """The source that the example shares with others: its table where the picture is drawn from one, else the picture.

    A table gives many pictures, one per question, each in a style of its own; their answers are not independent. What the
    pictures of a folder or a Hub dataset share, such as a document's pages, is not known.

    Args:
        picture: fingerprint of the example's picture.
    """
    drawn = getattr(example.picture, "picture", example.picture)  # what a worn page is made of
    task = getattr(drawn, "task", None)  # of a page drawn from a table: its header and all its rows
    if task is None:
        return picture
    return hashlib.sha256(repr((task.header, task.rows)).encode()).hexdigest()[:16]
