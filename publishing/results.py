"""Results files of `evaluation.run` as tables and metadata of the model card: every number is read, none is typed."""

import csv
import functools
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from huggingface_hub import EvalResult

from evaluation.baselines import title
from evaluation.bootstrap import with_interval
from evaluation.budgets import FULL, heading, label, parse_budgets
from evaluation.records import model_fingerprint, processor_fingerprint
from publishing.files import DATASET_TYPE, ROOT, sha256_of

OURS, ALL = "arrcoc", "all"  # as evaluation.report has them, which needs an extra
_TEXT = ("method", "budget", "family", "prefill_note")
_NEEDED = ("method", "budget", "family", "questions", "pictures", "exact_match", "exact_match_low", "tokens")
# of an absolute path, or of one from where its author stood
_FOLDERS = re.compile(r"(?<![\w.~/\\])(~?/|[A-Za-z]:[\\/]|(\.{1,2}[\\/])+)([^?&,\\/]+[\\/])*(?=[^?&,\\/])")
# Columns of the tables: what the card calls them.
TABLES = {"exact_match": "exact match", "evidence_recall": "evidence recall"}


@dataclass(frozen=True)
class Result:
    """One run of `evaluation.run`: the rows of its CSV file, and the arguments that it was made with."""

    path: Path
    rows: list[dict]
    arguments: dict

    @property
    def data(self) -> str:
        """What the run was asked about, of a folder its name alone: a card tells nobody where its author keeps data."""
        named = self.arguments.get("data", self.path.stem)
        return _FOLDERS.sub("", named if isinstance(named, str) else ",".join(map(str, named)))

    @property
    def budgets(self) -> tuple[float | int | str, ...]:
        """The budgets of the run, all tokens last."""
        names = dict.fromkeys(row["budget"] for row in self.rows)
        return tuple(sorted(parse_budgets(",".join(names)), key=lambda budget: budget == FULL))

    def of(self, method: str, budget, family: str = ALL) -> dict | None:
        """The row of a method at a budget, or None; all tokens are one method."""
        method = FULL if budget == FULL else method
        found = [r for r in self.rows if (r["method"], r["budget"], r["family"]) == (method, label(budget), family)]
        return found[0] if found else None


def read_result(path: Path) -> Result:
    """The results in NAME.csv and the arguments in NAME.jsonl beside it.

    Raises:
        ValueError: a file is missing or is not of `evaluation.run`; says which.
    """
    try:
        with open(path, newline="", encoding="utf-8") as file:
            rows = [{name: _value(name, text) for name, text in row.items()} for row in csv.DictReader(file)]
        with open(path.with_suffix(".jsonl"), encoding="utf-8") as file:
            arguments = json.loads(file.readline())["header"]
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"{path} and {path.with_suffix('.jsonl').name} are no results of a run ({error}); pass the CSV file that "
            "`python -m evaluation.run --out` wrote, with its .jsonl file beside it"
        ) from error
    missing = [name for name in _NEEDED if not rows or name not in rows[0]]
    if missing:
        raise ValueError(f"{path} has no column {missing[0]}; pass the CSV file that `python -m evaluation.run` wrote")
    return Result(path, rows, arguments)


def _value(name: str, text: str) -> str | float | None:
    if name in _TEXT:
        return text
    return None if text == "" else float(text)


def find_results(
    source, paths: Sequence[Path] | None, parameters: int, folder: Path = ROOT / "results"
) -> list[Result]:
    """The runs in `paths`; for None those in `folder` that were made with the model of `source`, which may be none.

    Args:
        source: a `staging.Source`.
        parameters: of its model; runs in `folder` with another number of them are of another one. The model is loaded
            again, in the dtype that it was measured in, only for the others.

    Raises:
        ValueError: one of `paths` is no results file, or its run was made with another model.
    """
    loaded = _Fingerprints(source.load)
    own = functools.cache(lambda: processor_fingerprint(source.load_processor()))
    if paths is not None:
        results = [read_result(path) for path in paths]
        for result in results:
            if loaded(result.arguments.get("dtype")) != result.arguments.get("model"):
                raise ValueError(
                    f"{result.path} was measured on another model than {source.checkpoint} with this allocator; measure "
                    f"this one with `python -m evaluation.run --model {source.checkpoint}`, or leave out --results"
                )
            if result.arguments.get("processor") not in (None, own()):
                raise ValueError(
                    f"{result.path} was measured with another processor than that of {source.checkpoint} (such as other sizes of "
                    "pictures); measure this one, or leave out --results"
                )
        return results
    results = []
    for path in sorted(folder.glob("*.csv")):
        try:
            result = read_result(path)
        except ValueError:
            continue
        run = result.arguments
        of_model = run.get("parameters", parameters) == parameters and loaded(run.get("dtype")) == run.get("model")
        if of_model and run.get("processor") in (None, own()):
            results.append(result)
    # what the model answers first: of pages that its base can't read there is the evidence alone
    return sorted(results, key=lambda result: -((result.of(FULL, FULL) or {}).get("exact_match") or 0.0))


class _Fingerprints:
    """The fingerprint of a model at a dtype, as `evaluation.run` writes it; loads the model once per dtype."""

    def __init__(self, load: Callable):
        self._load = load
        self._known: dict[str, str | None] = {}

    def __call__(self, dtype: str | None) -> str | None:
        if dtype not in self._known:
            kind = getattr(torch, dtype or "", None)
            self._known[dtype] = model_fingerprint(self._load(kind)) if isinstance(kind, torch.dtype) else None
        return self._known[dtype]


def conditions(result: Result) -> str:
    """One sentence: on what, how many questions, which numbers, and the command's arguments."""
    row, run = result.rows[-1], result.arguments | ({"data": result.data} if "data" in result.arguments else {})
    asked = {name: run[name] for name in ("data", "split", "seed", "limit", "dtype", "max_new_tokens") if name in run}
    told = ", ".join(f"{name} `{value}`" for name, value in asked.items() if value is not None)
    pictures, sources = f"{row['pictures']:.0f} pictures", row.get("sources") or row["pictures"]
    if sources != row["pictures"]:
        pictures += f" of {sources:.0f} sources"
    return (
        f"{row['questions']:.0f} questions on {pictures}; {told}. In brackets the 95% interval, resampled by source (a picture, "
        f"or a table that several pictures show). `{result.path.name}`, SHA-256 `{sha256_of(result.path)[:16]}`"
    )


def comparison(result: Result, metric: str) -> str | None:
    """A Markdown table of one of `TABLES`: a line per method, a column per budget; None where nothing was measured."""
    budgets = result.budgets
    cells = {(row["method"], row["budget"]): row for row in result.rows if row["family"] == ALL}
    lines = []
    for method in dict.fromkeys(method for method, _ in cells):
        shown = [_percent(cells.get((method, label(budget))), metric) for budget in budgets]
        if any(shown):
            lines.append(f"| {'all tokens' if method == FULL else title(method)} | {' | '.join(shown)} |")
    if not lines:
        return None
    head = f"| {TABLES[metric]} | {' | '.join(heading(budget) for budget in budgets)} |"
    return "\n".join([head, "|---|" + "---|" * len(budgets), *lines])


def costs(result: Result) -> str | None:
    """A Markdown table of what each budget costs and keeps: a line per budget of our method."""
    rows = [(budget, row) for budget in result.budgets if (row := result.of(OURS, budget))]
    if not rows:
        return None
    ratios = [row.get("prefill_ratio") for _, row in rows]
    timed = any(ratio is not None for ratio in ratios)
    head = ["budget", "visual tokens per picture", *["prefill time, all tokens = 1"] * timed, *TABLES.values()]
    lines = [head, ["---"] * len(head)]
    for (budget, row), ratio in zip(rows, ratios, strict=True):
        time = ["" if ratio is None else f"{ratio:.2f}"] * timed
        lines.append([heading(budget), f"{row['tokens']:.0f}", *time, *(_percent(row, metric) for metric in TABLES)])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def lost(result: Result) -> str | None:
    """One sentence: what the run's smallest budget loses against all tokens; None without both, or where it loses nothing."""
    ours = [row for row in result.rows if (row["method"], row["family"]) == (OURS, ALL)]
    smallest, whole = min(ours, key=lambda row: row["tokens"], default=None), result.of(FULL, FULL)
    if smallest is None or whole is None or smallest["exact_match"] >= whole["exact_match"]:
        return None
    return (
        f"On {result.data}, {smallest['tokens']:.0f} tokens a picture answer "
        f"{smallest['exact_match']:.1%} of the questions correctly, all {whole['tokens']:.0f} answer {whole['exact_match']:.1%}."
    )


def _percent(row: dict | None, metric: str) -> str:
    if row is None or row.get(metric) is None:
        return ""
    return with_interval(row, metric)


def _spent(budget: float | int | str) -> str:
    if budget == FULL:
        return "all visual tokens"
    if isinstance(budget, float):
        return f"{heading(budget)} of the visual tokens"
    return f"{budget} visual token{'s' * (budget != 1)}"


def _hub_name(data: str) -> str:
    """What the Hub takes as the type of a dataset: an id on it, or a name without other marks."""
    on_hub = DATASET_TYPE.match(data.removeprefix("hub:")) if data.startswith("hub:") else None
    return on_hub[0] if on_hub else re.sub(r"[^\w.-]+", "-", data, flags=re.ASCII).strip("-") or "data"


def eval_results(result: Result) -> list[EvalResult]:
    """Our method's scores over all families, one entry per budget, for the card's metadata."""
    found = []
    for budget in result.budgets:
        row = result.of(OURS, budget)
        if row is None:
            continue
        for metric, name in TABLES.items():
            if row.get(metric) is not None:
                found.append(
                    EvalResult(
                        task_type="image-text-to-text",
                        dataset_type=_hub_name(result.data),
                        dataset_name=result.data,
                        dataset_split=result.arguments.get("split"),
                        metric_type=metric,
                        metric_name=f"{name}, {_spent(budget)}",
                        metric_value=round(row[metric], 4),
                    )
                )
    return found
