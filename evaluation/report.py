"""Rows, tables, CSV and curves of a run."""

import csv
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from evaluation import baselines
from evaluation.bootstrap import RESAMPLES, interval_columns, intervals, with_interval
from evaluation.budgets import FULL, heading, label
from evaluation.facts import Facts
from evaluation.metrics import WHOLE, anls, as_number, exact_match, relaxed_accuracy
from evaluation.records import Answer

METRICS = ("exact_match", "anls", "relaxed_accuracy", "evidence_recall", "kept_whole", "tokens", "token_share")
# Metrics that are not there for every question: their rows say over how many they are.
PARTIAL = ("relaxed_accuracy", "evidence_recall", "kept_whole")
LABELS = ("method", "budget", "family")  # the first columns of the table
COMPARED = ("exact_match", "anls", "evidence_recall")
REFERENCE = "arrcoc"  # what the other methods are compared with
ALL = "all"
UNNAMED = "no family"  # of questions whose family has the name of them all, where there are others
TICKS = (0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0)  # of the curves' shares of tokens


def scores(examples, facts: Sequence[Facts], answers: Sequence[Answer]) -> np.ndarray:
    """(questions, `METRICS`): what each answer scored, NaN where a metric does not apply."""
    rows = []
    # what merges cells keeps those of pictures that it leaves whole, of which alone nothing is to be told
    chooses = all(a.recall is not None for e, a in zip(examples, answers, strict=True) if len(e.evidence))
    for example, fact, answer in zip(examples, facts, answers, strict=True):
        numeric = any(as_number(text) is not None for text in example.answers)
        recall = answer.recall if chooses and answer.recall is not None else math.nan
        rows.append(
            (
                exact_match(answer.answer, example.answers),
                anls(answer.answer, example.answers),
                relaxed_accuracy(answer.answer, example.answers) if numeric else math.nan,
                recall,
                math.nan if math.isnan(recall) else float(recall >= WHOLE),
                answer.tokens,
                answer.tokens / fact.cells,
            )
        )
    return np.array(rows, dtype=float)


def summarise(
    examples,
    facts: Sequence[Facts],
    answers: Mapping[tuple[str, str], Sequence[Answer]],
    ratios: Mapping[tuple[str, str], Mapping[str, float]] | None = None,
    resamples: int = RESAMPLES,
) -> list[dict]:
    """One row per (method, budget) of `answers` and family, the last being all families together.

    Every metric stands with its 95% interval as `NAME`, `NAME_low`, `NAME_high`. The bootstrap draws whole sources
    (`Facts.group`: a picture, or a table that several pictures show), whose count is `sources`. `NAME_vs_arrcoc` is the
    difference of the row to arrcoc at the same budget, paired by question, `NAME_vs_full` that to all tokens. What
    can't be measured is None, such as an interval over one source. Prefill was timed on some questions of all families together,
    and stands with these; `prefill_note` says why a method's was not where others' was.
    """
    columns, names = _columns(examples, facts, answers)
    families = np.array([example.family for example in examples])
    families = np.where(families == ALL, UNNAMED, families) if set(families) != {ALL} else families
    pictures, sources = np.array([fact.picture for fact in facts]), np.array([fact.group for fact in facts])
    groups = {family: families == family for family in sorted(set(families)) if family != ALL}
    rows = []
    for family, chosen in {**groups, ALL: np.ones(len(families), dtype=bool)}.items():
        spread = intervals(columns[chosen], sources[chosen], resamples)
        counts = (~np.isnan(columns[chosen])).sum(0)
        for method, budget in answers:
            row = dict(zip(LABELS, (method, budget, family), strict=True)) | {
                "questions": int(chosen.sum()),
                "pictures": len(set(pictures[chosen])),
                "sources": len(set(sources[chosen])),
            }
            for number, (*run, name) in enumerate(names):
                if run == [method, budget]:
                    row |= interval_columns(name, spread[:, number])
                    if name in PARTIAL:
                        row[f"{name}_questions"] = int(counts[number])
            timed = (ratios or {}).get((method, budget), {}) if family == ALL else {}
            row |= {"prefill_ratio": timed.get("ratio"), "prefill_note": baselines.untimed(method) if ratios else None}
            row |= {
                f"prefill_ratio_{name}": timed.get(name)
                for name in ("low", "high", "lower_quartile", "upper_quartile", "questions")
            }
            rows.append(row)
    return rows


def _columns(examples, facts, answers) -> tuple[np.ndarray, list[tuple[str, str, str]]]:
    """(questions, columns) of scores and of differences to the reference and to all tokens; (method, budget, name) of each."""
    scored = {run: scores(examples, facts, said) for run, said in answers.items()}
    columns, names = [], []
    for (method, budget), values in scored.items():
        reference = scored.get((REFERENCE, budget)) if method != REFERENCE else None
        full = scored.get((FULL, FULL)) if method != FULL else None
        for number, name in enumerate(METRICS):
            columns.append(values[:, number])
            names.append((method, budget, name))
        for name in COMPARED:
            number = METRICS.index(name)
            for other, compared in ((REFERENCE, reference), (FULL, full)):
                missing = np.full(len(values), np.nan)
                columns.append(missing if compared is None else values[:, number] - compared[:, number])
                names.append((method, budget, f"{name}_vs_{other}"))
    return np.stack(columns, axis=1), names


def table(rows: Sequence[dict], family: str, budgets, metric: str = "exact_match") -> str:
    """One family's rows as Markdown: a line per method, a column per budget, in percent with the 95% interval.

    A method that has no value at any budget has no line.
    """
    cells = {(row["method"], row["budget"]): row for row in rows if row["family"] == family}
    first = next(iter(cells.values()))
    counted = f"{first['questions']} questions, {first['pictures']} pictures"
    if metric in PARTIAL:
        asked = max(row[f"{metric}_questions"] for row in cells.values())
        counted = f"{asked} of {counted}" if asked < first["questions"] else counted
    if first["sources"] != first["pictures"]:
        counted += f" of {first['sources']} sources"
    named = " ".join(family.split()).replace("|", "\\|")  # in a cell of Markdown
    title = f"{metric.replace('_', ' ')}, {named} ({counted})"
    if metric == "prefill_ratio":
        asked = next(row["prefill_ratio_questions"] for row in cells.values() if row["prefill_ratio"] is not None)
        title = f"prefill time, of all tokens' ({asked} questions)"
    lines = [f"| {title} | {' | '.join(heading(b) for b in budgets)} |", "|---|" + "---|" * len(budgets)]
    for method in dict.fromkeys(method for method, _ in cells):
        shown = [_cell(cells.get((method, label(budget))), metric) for budget in budgets]
        if set(shown) != {""}:
            lines.append(f"| {baselines.title(method)} | {' | '.join(shown)} |")
    return "\n".join(lines)


def _cell(row: dict | None, metric: str) -> str:
    if row is None or row[metric] is None:
        return ""
    if metric == "tokens":
        return f"{row[metric]:.1f}"
    text = with_interval(row, metric)
    if metric != "evidence_recall":
        return text
    return f"{text}, whole {row['kept_whole']:.1%} of {row['evidence_recall_questions']}"


def tables(rows: Sequence[dict], budgets) -> str:
    """The tables of exact match and of evidence recall, for each family and for all of them, then of the other metrics, the
    tokens of a picture and the prefill's time, of all families together."""
    parts = []
    for family in dict.fromkeys(row["family"] for row in rows):
        parts.append(table(rows, family, budgets))
        if any(row["evidence_recall"] is not None for row in rows if row["family"] == family):
            parts.append(table(rows, family, budgets, "evidence_recall"))
    whole = [row for row in rows if row["family"] == ALL]
    parts += _without_recall(whole)
    for metric in ("anls", "relaxed_accuracy", "tokens"):
        if any(row[metric] is not None for row in whole):
            parts.append(table(rows, ALL, budgets, metric))
    if any(row["prefill_ratio"] is not None for row in rows):
        parts.append(table(rows, ALL, budgets, "prefill_ratio"))
        notes = {row["method"]: row["prefill_note"] for row in rows if row["prefill_note"]}
        parts += [f"{baselines.title(method)}: prefill not timed, since {note}" for method, note in notes.items()]
    return "\n\n".join(parts)


def _without_recall(rows: Sequence[dict]) -> list[str]:
    # why methods that stand in the tables of exact match have no line in those of evidence recall
    kept = {row["method"] for row in rows if row["evidence_recall"] is not None}
    lacking = [title for row in rows if row["method"] not in kept if (title := baselines.title(row["method"]))]
    if not kept or not lacking:
        return []
    return [f"{', '.join(dict.fromkeys(lacking))}: no evidence recall, since no cells are chosen"]


def write_csv(rows: Sequence[dict], path: Path):
    """Writes `rows`, which have the same keys, with a header, whole or not at all; what is None stays empty."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with open(part, "w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def write_curves(rows: Sequence[dict], path: Path):
    """Draws exact match and evidence recall against the share of tokens, a line with its 95% interval per method."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import NullLocator, PercentFormatter

    rows = [row for row in rows if row["family"] == ALL]
    methods = list(dict.fromkeys(row["method"] for row in rows if row["method"] != FULL))
    figure = Figure(figsize=(12, 5), layout="constrained")
    FigureCanvasAgg(figure)
    panels = {"exact_match": "exact match", "evidence_recall": "evidence recall"}
    for axes, (metric, title) in zip(figure.subplots(1, 2), panels.items(), strict=True):
        for number, method in enumerate(methods):
            _curve(axes, [row for row in rows if row["method"] == method], metric, number)
        full = [row["exact_match"] for row in rows if row["method"] == FULL]
        if metric == "exact_match" and full:
            axes.axhline(full[0], color="grey", linestyle="--", label="all tokens")
        axes.set(xscale="log", xlabel="share of visual tokens", ylabel=title, ylim=(-0.02, 1.02))
        axes.set_xticks(TICKS)
        axes.set_xlim(0.9 * min(row["token_share"] for row in rows), 1.05)
        axes.xaxis.set_minor_locator(NullLocator())
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_formatter(PercentFormatter(1, decimals=0))
        if axes.get_legend_handles_labels()[0]:
            axes.legend(fontsize="small")
        axes.grid(alpha=0.3)
    figure.suptitle(f"{ALL}: {rows[0]['questions']} questions")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)


def _curve(axes, rows: Sequence[dict], metric: str, number: int):
    points = sorted((row for row in rows if row[metric] is not None), key=lambda row: row["token_share"])
    if not points:
        return
    shares = [row["token_share"] for row in points]
    ours = points[0]["method"] == REFERENCE
    colour = "black" if ours else f"C{number % 10}"
    style = "-" if number < 10 or ours else ":"
    values = [row[metric] for row in points]
    axes.plot(
        shares,
        values,
        style,
        marker="o",
        color=colour,
        linewidth=2.5 if ours else 1.2,
        label=baselines.title(points[0]["method"]),
    )
    ends = np.array([[row[f"{metric}_{end}"] for row in points] for end in ("low", "high")], dtype=float)  # None as NaN
    axes.fill_between(shares, *ends, color=colour, alpha=0.08)
