"""How long the prefill takes, as a share of the prefill with all tokens."""

import time
from collections.abc import Sequence
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import torch
from tqdm import tqdm

from evaluation import baselines
from evaluation.bootstrap import RESAMPLES, intervals
from evaluation.budgets import FULL, label, tokens_for
from evaluation.loading import Facts

REPEATS = 5


class Stopwatch:
    """Adds up the time that a processor takes, so that it can be left out: reading text and pixels is not prefill."""

    def __init__(self):
        self.seconds = 0.0

    @contextmanager
    def on(self, processor):
        """While entered, `processor.apply_chat_template` is timed."""
        plain = processor.apply_chat_template

        def timed(*args, **kwargs):
            start = time.perf_counter()
            try:
                return plain(*args, **kwargs)
            finally:
                self.seconds += time.perf_counter() - start

        processor.apply_chat_template = timed
        try:
            yield self
        finally:
            del processor.apply_chat_template


@torch.no_grad()
def prefill_seconds(model, processor, method: str, example, budget: int) -> float:
    """Seconds from pixels and text to the first logits of one example: vision, choice and language model.

    The processor's own time is left out.
    """
    prefill = baselines.prefill_of(method)
    with Stopwatch().on(processor) as preparing:
        _wait(model.device)
        start = time.perf_counter()
        prefill(model, processor, [example], [budget])
        _wait(model.device)
        return time.perf_counter() - start - preparing.seconds


def prefill_ratios(
    model, processor, examples, facts: Sequence[Facts], methods, budgets, repeats: int = REPEATS, seed: int = 0
) -> dict[tuple[str, str], dict[str, float]]:
    """(method, budget) -> the prefill time over the full prefill's; methods that are `untimed` are left out.

    All methods take turns on one example, batch 1, `repeats` times after a round to warm up, and each time is divided by that
    of all tokens in the same round. The `ratio` is the mean over examples of their medians, `low` and `high` its 95%
    interval, drawn by `Facts.group` (None over a single one); `lower_quartile`, `median` and `upper_quartile` are of all
    single ratios.
    """
    timed = [method for method in methods if method != FULL and baselines.untimed(method) is None]
    runs = [(FULL, FULL), *((method, budget) for budget in budgets if budget != FULL for method in timed)]
    seconds = np.zeros((len(examples), repeats + 1, len(runs)))
    progress = tqdm(total=seconds.size, unit="prefill", desc="timing", disable=None)
    for number, (example, fact) in enumerate(zip(examples, facts, strict=True)):
        # Opened once: some methods look at the picture more often, and drawing or decoding it anew is not prefill.
        example = replace(example, picture=example.image)
        for repeat in range(repeats + 1):
            for column, (method, budget) in enumerate(runs):
                count = tokens_for(budget, fact.cells)
                seconds[number, repeat, column] = prefill_seconds(model, processor, method, example, count)
                progress.update()
    progress.close()
    ratios = seconds[:, 1:] / seconds[:, 1:, :1]
    spread = intervals(np.median(ratios, axis=1), [fact.group for fact in facts], RESAMPLES, seed)
    spread = np.where(np.isnan(spread), None, spread)
    quartiles = np.percentile(ratios, [25, 50, 75], axis=(0, 1))
    return {
        (method, label(budget)): {
            **dict(zip(("ratio", "low", "high"), spread[:, column].tolist(), strict=True)),
            **dict(zip(("lower_quartile", "median", "upper_quartile"), quartiles[:, column].tolist(), strict=True)),
        }
        for column, (method, budget) in enumerate(runs)
    }


def _wait(device: torch.device):
    if device.type == "cuda":
        torch.cuda.synchronize(device)
