"""How each cost grows with the pixels of the picture: exponents fitted on a log-log scale."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.timeline import PARTS

COSTS = ("processor", *PARTS, "prefill")


def exponent(pixels: Sequence[float], costs: Sequence[float]) -> float | None:
    """Slope of log(cost) over log(pixels) by least squares; `None` where a cost is zero or there are fewer than two sizes.

    1 means that the cost grows as the number of pixels does.
    """
    if len(set(pixels)) < 2 or min(costs) <= 0:
        return None
    return float(np.polyfit(np.log(pixels), np.log(costs), 1)[0])


def fit(summaries: dict[int, dict[str, dict]]) -> dict[str, dict[str, float | None]]:
    """Method -> cost -> its exponent, and that of the counted FLOPs, in the pixels of the whole picture.

    Args:
        summaries: side in pixels -> the summary of that size.
    """
    methods = next(iter(summaries.values()))
    return {
        method: {
            name: exponent(
                [side**2 for side in summaries], [_cost(figures[method], name) for figures in summaries.values()]
            )
            for name in (*COSTS, "flops")
        }
        for method in methods
    }


def _cost(figures: dict, name: str) -> float:
    return figures["flops"]["value"] if name == "flops" else figures[f"{name}_s"]["median"]


def plot(summaries: dict[int, dict[str, dict]], exponents: dict, title: str, path: Path):
    """Saves the log-log plot as a PNG, one panel for each method, with the fitted exponents in its legend."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, panels = pyplot.subplots(
        1, len(exponents), figsize=(4.2 * len(exponents), 4.4), sharey=True, squeeze=False, layout="constrained"
    )
    pixels = np.array([side**2 for side in summaries])
    for panel, (method, slopes) in zip(panels[0], exponents.items(), strict=True):
        for name in COSTS:
            if slopes[name] is None:
                continue
            costs = np.array([_cost(figures[method], name) for figures in summaries.values()])
            (line,) = panel.loglog(pixels, 1000 * costs, "o", label=f"{name}: pixels^{slopes[name]:.2f}")
            fitted = np.exp(np.log(costs).mean() + slopes[name] * (np.log(pixels) - np.log(pixels).mean()))
            panel.loglog(pixels, 1000 * fitted, "-", color=line.get_color(), linewidth=1)
        panel.set(title=method, xlabel="pixels of the picture")
        panel.legend(fontsize=7)
    panels[0, 0].set_ylabel("median, ms")
    figure.suptitle(title)
    figure.savefig(path, dpi=150)
    pyplot.close(figure)
