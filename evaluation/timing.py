"""How long the prefill takes, as a share of the prefill with all tokens."""

import time
from collections.abc import Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace

import numpy as np
import torch
from tqdm import tqdm

from evaluation import baselines
from evaluation.bootstrap import RESAMPLES, intervals
from evaluation.budgets import FULL, label, tokens_for
from evaluation.facts import Facts

REPEATS = 5


class Stopwatch:
    """Adds up the time that preparing text and pixels takes, so that it can be left out: that is not prefill."""

    def __init__(self):
        self.seconds = 0.0
        self._running = False

    @contextmanager
    def on(self, owner, name: str):
        """While entered, calls of `owner.name` are timed, those within another timed call with that one."""
        plain, own = getattr(owner, name), name in vars(owner)

        def timed(*args, **kwargs):
            if self._running:
                return plain(*args, **kwargs)
            self._running, start = True, time.perf_counter()
            try:
                return plain(*args, **kwargs)
            finally:
                self.seconds += time.perf_counter() - start
                self._running = False

        setattr(owner, name, timed)
        try:
            yield
        finally:
            if own:
                setattr(owner, name, plain)
            else:
                delattr(owner, name)


@torch.no_grad()
def prefill_seconds(model, processor, method: str, example, budget: int) -> float:
    """Seconds from pixels and text to the first logits of one example: vision, choice and language model.

    The time of the processor, and of what a method does in its place, is left out.
    """
    prefill, preparing = baselines.prefill_of(method), Stopwatch()
    with ExitStack() as watched:
        for owner, name in ((processor, "apply_chat_template"), *baselines.preparing(method)):
            watched.enter_context(preparing.on(owner, name))
        wait_for(model.device)
        start = time.perf_counter()
        prefill(model, processor, [example], [budget])
        wait_for(model.device)
        return time.perf_counter() - start - preparing.seconds


def prefill_ratios(
    model,
    processor,
    examples,
    facts: Sequence[Facts],
    methods,
    budgets,
    repeats: int = REPEATS,
    seed: int = 0,
    resamples: int = RESAMPLES,
) -> dict[tuple[str, str], dict[str, float]]:
    """(method, budget) -> the prefill time over the full prefill's; methods that are `untimed` are left out, and nothing is timed
    where none is left.

    All methods take turns on one example, batch 1, `repeats` times after a round to warm up, and each time is divided by
    that of all tokens in the same round. The `ratio` is the mean over examples of their medians, `low` and `high` its 95%
    interval of `resamples` draws by `Facts.group` (None over a single one); `lower_quartile` and `upper_quartile` are of
    all single ratios, `questions` says of how many examples.
    """
    timed = [method for method in methods if method != FULL and baselines.untimed(method) is None]
    runs = [(FULL, FULL), *((method, budget) for budget in budgets if budget != FULL for method in timed)]
    if len(runs) == 1:  # there is nothing to compare
        return {}
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
    spread = intervals(np.median(ratios, axis=1), [fact.group for fact in facts], resamples, seed)
    spread = np.where(np.isnan(spread), None, spread)
    quartiles = np.percentile(ratios, [25, 75], axis=(0, 1))
    return {
        (method, label(budget)): {
            **dict(zip(("ratio", "low", "high"), spread[:, column].tolist(), strict=True)),
            **dict(zip(("lower_quartile", "upper_quartile"), quartiles[:, column].tolist(), strict=True)),
            "questions": len(examples),
        }
        for column, (method, budget) in enumerate(runs)
    }


def wait_for(device: torch.device):
    """Returns when `device` has done all that it was given."""
    if device.type != "cpu":
        torch.accelerator.synchronize(device)
