"""Paired bootstrap over questions, clustered by what the questions share: a picture, or a table drawn as several."""

import numpy as np

RESAMPLES = 2000
LEVEL = 95  # percent that an interval holds
_CHUNK = 2**24  # counts drawn at once


def resampled_means(values: np.ndarray, clusters, resamples: int = RESAMPLES, seed: int = 0) -> np.ndarray:
    """(resamples, columns): the mean of every column over clusters drawn with replacement, all questions of one together.

    Every column sees the same draws, so that differences of columns are paired. NaN is left out of a mean; a mean of
    nothing is NaN.

    Args:
        values: (questions, columns).
        clusters: (questions,), the cluster of each question, as text or number: `evaluation.facts.Facts.group`.

    Raises:
        ValueError: there are no questions, or not one cluster per question.

    Source: Efron and Tibshirani 1993, "An Introduction to the Bootstrap", sections 6 and 8 (resampling of whole units).
    """
    values = np.asarray(values, dtype=float)
    if values.ndim != 2 or not len(values) or len(values) != len(clusters):
        raise ValueError(f"values of shape {values.shape} with {len(clusters)} clusters; pass one row per question")
    _, numbers = np.unique(np.asarray(clusters), return_inverse=True)
    count = int(numbers.max()) + 1
    present = ~np.isnan(values)
    sums, sizes = np.zeros((count, values.shape[1])), np.zeros((count, values.shape[1]))
    np.add.at(sums, numbers, np.where(present, values, 0.0))
    np.add.at(sizes, numbers, present)
    random = np.random.default_rng(seed)
    step = max(1, _CHUNK // count)
    means = []
    for start in range(0, resamples, step):
        draws = random.multinomial(count, np.full(count, 1 / count), size=min(step, resamples - start)).astype(float)
        with np.errstate(invalid="ignore"):
            means.append((draws @ sums) / (draws @ sizes))
    return np.concatenate(means)


def intervals(values: np.ndarray, clusters, resamples: int = RESAMPLES, seed: int = 0) -> np.ndarray:
    """(3, columns): mean, lower and upper end of the percentile interval at `LEVEL` percent; see `resampled_means`.

    A column without a value is NaN throughout, and so are the ends of one whose values are all of one cluster, which tells
    nothing of how clusters differ.
    """
    values = np.asarray(values, dtype=float)
    means = resampled_means(values, clusters, resamples, seed)
    result = np.full((3, values.shape[1]), np.nan)
    some = ~np.isnan(values).all(0)
    if some.any():
        result[0, some] = np.nanmean(values[:, some], axis=0)
        tails = [(100 - LEVEL) / 2, (100 + LEVEL) / 2]
        result[1:, some] = np.nanpercentile(means[:, some], tails, axis=0)
        result[1:, [len(set(np.asarray(clusters)[~np.isnan(column)])) < 2 for column in values.T]] = np.nan
    return result


def interval_columns(name: str, spread: np.ndarray) -> dict[str, float | None]:
    """Mean and ends (3,) of `intervals` as the columns NAME, NAME_low and NAME_high of a row; None for NaN."""
    values = [None if np.isnan(value) else float(value) for value in spread]
    return dict(zip((name, f"{name}_low", f"{name}_high"), values, strict=True))


def with_interval(row: dict, metric: str) -> str:
    """A metric of a row that has it, in percent with the 95% interval, as far as there is one."""
    low, high = row[f"{metric}_low"], row[f"{metric}_high"]
    ends = "no interval over one source" if low is None else f"{low:.1%} to {high:.1%}"
    return f"{row[metric]:.1%} ({ends})"
