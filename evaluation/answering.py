"""Answers and evidence recall of one batch, by one method at one budget."""

from collections.abc import Sequence

import torch

from evaluation.baselines import Prepared
from evaluation.facts import Facts
from evaluation.metrics import evidence_recall
from training.data import evidence_weight


def batches_of(facts: Sequence[Facts], batch_size: int) -> list[list[int]]:
    """Numbers of the examples of each batch: pictures of one size share batches, so that nothing is padded in vain."""
    order = sorted(range(len(facts)), key=lambda number: (facts[number].cells, facts[number].size))
    batches: list[list[int]] = []
    for number in order:
        if batches and len(batches[-1]) < batch_size and facts[batches[-1][0]].size == facts[number].size:
            batches[-1].append(number)
        else:
            batches.append([number])
    return batches


@torch.no_grad()
def answer(model, processor, prepared: Prepared, max_new_tokens: int) -> list[str]:
    """The greedy answers of one batch, without special tokens and outer white space."""
    inputs = prepared.inputs
    with prepared.during:
        generated = model.generate(**inputs, max_new_tokens=max_new_tokens, do_sample=False, num_beams=1)
    said = generated[:, inputs["input_ids"].shape[1] :]
    return [text.strip() for text in processor.batch_decode(said, skip_special_tokens=True)]


def recalls(prepared: Prepared, examples, facts: Sequence[Facts]) -> list[float | None]:
    """The evidence recall of each example; None without evidence, or where the method's tokens are not cells."""
    return [
        evidence_recall(kept.cpu(), evidence_weight(example.evidence, fact.size, tuple(kept.shape)))
        if kept is not None and len(example.evidence)
        else None
        for kept, example, fact in zip(prepared.kept, examples, facts, strict=True)
    ]
