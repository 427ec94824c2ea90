"""Medians, spread and ratios to stock from the rounds, and the table that shows them."""

import numpy as np

from benchmarks.methods import STOCK
from benchmarks.timeline import ALLOCATION, PARTS, TEXTURE

TIMES = ("first_token", "processor", *PARTS, "prefill", "decode")
COUNTS = ("tokens", "coarse_tokens", "text_tokens", "kv_bytes", "peak_bytes", "working_bytes", "flops")
_LABELS = {
    "first_token": "time to first token, ms",
    "processor": "  processor, ms",
    "before_vit": "  before the ViT, unlabelled, ms",
    "texture_scoring": "  texture and scoring, ms",
    "vit": "  ViT, ms",
    "allocation": "  allocation, ms",
    "language_model": "  language model, ms",
    "other": "  other, ms",
    "prefill": "prefill (no processor), ms",
    "decode": "decode, ms per token",
    "tokens": "visual tokens per picture",
    "coarse_tokens": "  of a coarse view",
    "text_tokens": "text tokens per picture",
    "kv_bytes": "KV cache, MiB",
    "peak_bytes": "peak memory, MiB",
    "working_bytes": "  above what was held, MiB",
    "flops": "FLOPs of the prefill, G",
}
_SCALES = {"flops": 1e-9, "kv_bytes": 2**-20, "peak_bytes": 2**-20, "working_bytes": 2**-20}


def summarise(results: dict[str, dict], batch: int) -> dict[str, dict]:
    """Method -> its figures: every time and rate as quartiles, with the quartiles of its ratio to stock in the same round.

    Seconds are of a whole batch, but for `decode`, which is per token of each sequence. Ratios are the method's over stock's, and
    `None` where stock spends nothing; a `speed_up` is stock's over the method's.
    """
    return {method: _summarise(result, results[STOCK], batch) for method, result in results.items()}


def _summarise(result: dict, stock: dict, batch: int) -> dict:
    times, reference = ({name: _column(of, name) for name in TIMES} for of in (result, stock))
    figures = {f"{name}_s": _spread(times[name]) | _ratio(times[name], reference[name]) for name in TIMES}
    allocator = times[TEXTURE] + times[ALLOCATION]
    speed_up, allowed = reference["prefill"] / times["prefill"], stock["flops"] / result["flops"]
    counts = {
        name: {"value": result[name], "ratio": result[name] / stock[name] if result[name] and stock[name] else None}
        for name in COUNTS
    }
    return {
        **figures,
        "decode_tokens_per_s": _spread(batch / times["decode"]),
        "pictures_per_s": _spread(batch / times["prefill"]),
        "allocator_of_stock_prefill": _spread(allocator / reference["prefill"]),
        "first_token_speed_up": _spread(reference["first_token"] / times["first_token"]),
        "prefill_speed_up": _spread(speed_up),
        "speed_up_that_flops_allow": allowed,
        "share_of_allowed_speed_up": _spread(speed_up / allowed),
        **counts,
        "flops_of": result["flops_of"],
        "host_syncs": result["host_syncs"],
        "host_sync_places": result["host_sync_places"],
    }


def _column(result: dict, name: str) -> np.ndarray:
    return np.array([seconds[name] for seconds in result["rounds"]])


def _spread(values: np.ndarray) -> dict[str, float]:
    low, median, high = np.percentile(values, [25, 50, 75]).tolist()
    return {"median": median, "lower_quartile": low, "upper_quartile": high}


def _ratio(values: np.ndarray, reference: np.ndarray) -> dict[str, dict | None]:
    return {"ratio": _spread(values / reference) if (reference > 0).all() else None}


def table(condition: dict, summary: dict[str, dict]) -> str:
    """The figures of one condition, a column for each method: median, [quartiles], x ratio to stock."""
    rows = [[_LABELS[name], *(_time_cell(figures[f"{name}_s"]) for figures in summary.values())] for name in TIMES]
    rows.append(["decode, tokens/s", *(_cell(figures["decode_tokens_per_s"]) for figures in summary.values())])
    rows.append(["pictures/s (prefill)", *(_cell(figures["pictures_per_s"]) for figures in summary.values())])
    for name in COUNTS:
        rows.append(
            [_LABELS[name], *(_count_cell(figures[name], _SCALES.get(name, 1)) for figures in summary.values())]
        )
    for label, name, scale in (
        ("host synchronisations", "host_syncs", 1),
        ("allocator, % of stock prefill", "allocator_of_stock_prefill", 100),
        ("speed-up of the first token", "first_token_speed_up", 1),
        ("speed-up of the prefill", "prefill_speed_up", 1),
        ("  that the FLOPs allow", "speed_up_that_flops_allow", 1),
        ("  of that, %", "share_of_allowed_speed_up", 100),
    ):
        rows.append([label, *(_cell(figures[name], scale) for figures in summary.values())])
    title = " ".join(f"{name}={value}" for name, value in condition.items())
    return "\n".join([title, "", *_aligned([["", *summary], *rows])])


def _aligned(rows: list[list[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def _cell(figure, scale: float = 1) -> str:
    if figure is None:
        return "-"
    if not isinstance(figure, dict):
        return f"{scale * figure:.4g}"
    low, high = scale * figure["lower_quartile"], scale * figure["upper_quartile"]
    return f"{scale * figure['median']:.4g} [{low:.4g}, {high:.4g}]"


def _time_cell(figure: dict) -> str:
    ratio = figure["ratio"]
    return _cell(figure, 1000) + (f" x{ratio['median']:.3f}" if ratio else "")


def _count_cell(figure: dict, scale: float) -> str:
    ratio = figure["ratio"]
    return _cell(figure["value"], scale) + (f" x{ratio:.3f}" if ratio is not None else "")
