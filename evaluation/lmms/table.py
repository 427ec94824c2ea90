"""The table of a folder of lmms-eval results: a row per method and budget, a column per task.

    python -m evaluation.lmms.table results/lmms

Writes FOLDER/table.csv and FOLDER/table.md, and prints the latter. Reads every `*_results.json` that `--model arrcoc` wrote.
"""

import argparse
import csv
import json
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path

from evaluation.budgets import FULL
from evaluation.lmms.condition import Condition

# The metric that the field reports, of each task of `evaluation.lmms.run`; of any other task its first.
METRICS = {
    "docvqa_val": "anls",
    "chartqa": "relaxed_overall",
    "textvqa_val": "exact_match",
    "ocrbench": "ocrbench_accuracy",
    "infovqa_val": "anls",
    "ai2d": "exact_match",
    "mmstar": "average",
    "pope": "pope_f1_score",
    "gqa": "exact_match",
    # Not refcoco_bbox_rec: it asks for coordinates from 0 to 1, and Qwen3-VL says them from 0 to 1000.
    "refcoco_grounding_testA": "refcoco_grounding_ACC@0.5",
}
# What lmms-eval writes beside a metric's value.
BESIDE = ("_stderr", "_stderr_clt", "_stderr_clustered", "_expected_accuracy", "_consensus_accuracy", "_internal_variance",
          "_consistency_rate")  # fmt: skip
Z95 = 1.96


class TableError(ValueError):
    """The results can't stand in one table; says why and what to do."""


def read(folder: Path) -> list[dict]:
    """One row per task and condition of the results in `folder`, the newest where there are several.

    A row has task, metric, method, budget, score and stderr (as lmms-eval gives them, mostly 0 to 1), of_stock (score relative
    to stock's), visual_tokens and visual_token_share (means per question), seconds_per_question, questions, and the model.

    Raises:
        TableError: there are no results, a file has not their form, or they are of several models, allocators, sizes of
            pictures, dtypes or limits.
    """
    rows = {}
    for path in sorted(folder.glob("**/*_results.json"), key=lambda path: path.name):  # names begin with the date
        if (results := _results(path)) is not None:
            rows |= {(row["task"], row["title"], row["budget"]): row for row in _rows(results, path)}
    if not rows:
        raise TableError(
            f"{folder} holds no results of --model arrcoc; run python -m evaluation.lmms.run --out {folder}"
        )
    for name in ("model", "allocator", "pixels", "dtype", "limit"):
        read = [row for row in rows.values() if name != "allocator" or row["method"] != "stock"]  # which has none
        found = sorted({str(row[name]) for row in read})
        if len(found) > 1:
            raise TableError(
                f"the results in {folder} differ in {name} ({', '.join(found)}); put each into its own folder"
            )
    stock = {row["task"]: row["score"] for row in rows.values() if row["method"] == "stock"}
    for row in rows.values():
        row["of_stock"] = row["score"] / stock[row["task"]] if stock.get(row["task"]) else None
    return list(rows.values())


def parse_model_args(text: str) -> dict[str, str]:
    """The arguments of `--model_args` as texts; values with commas in them can't be told apart and are not used here."""
    return dict(pair.split("=", 1) for pair in text.split(",") if "=" in pair)


def value_of(text: str) -> float | int | str:
    """A number where the text is one, as lmms-eval reads arguments; else the text."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _results(path: Path) -> dict | None:
    """What lmms-eval wrote into a file, or None where it is of another model than arrcoc."""
    try:
        results = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise TableError(f"{path} is no whole JSON ({error}); delete it, and run its condition again") from error
    config = results.get("config", {}) if isinstance(results, dict) else None
    if isinstance(config, dict) and config.get("model") != "arrcoc":
        return None
    if config is None or not _has_form(results):
        raise TableError(f"{path} has not the form of lmms-eval's results; delete it, and run its condition again")
    return results


def _has_form(results: dict) -> bool:
    """Whether all that `_rows` reads of a file is there as lmms-eval writes it."""
    config, tables = results["config"], [results.get("results"), results.get("n-samples", {})]
    if not isinstance(config, dict) or not isinstance(config.get("model_args"), str):
        return False
    if not isinstance(results.get("throughput", {}), dict) or not all(isinstance(part, dict) for part in tables):
        return False
    return all(isinstance(values, dict) for part in tables for values in part.values())


def _rows(results: dict, path: Path) -> list[dict]:
    config = results["config"]
    arguments = parse_model_args(config["model_args"])
    spending = ("method", "token_budget", "allocation_mode", "encode_ratio")
    try:
        condition = Condition(**{name: value_of(arguments[name]) for name in spending if name in arguments})
    except ValueError as error:
        raise TableError(f"{path}: {error}; delete it, and run its condition again") from error
    throughput = results.get("throughput", {}) if len(results["results"]) == 1 else {}  # it is of all tasks together
    rows = []
    for task, values in results["results"].items():
        metric, score, stderr = _score(task, values, path)
        rows.append(
            {
                "task": task,
                "metric": metric,
                "title": condition.title,
                "budget": condition.budget,
                **condition.arguments,
                "score": score,
                "stderr": stderr,
                "of_stock": None,
                "visual_tokens": throughput.get("avg_visual_tokens"),
                "visual_token_share": throughput.get("avg_visual_token_share"),
                "seconds_per_question": throughput.get("avg_latency"),
                "questions": results.get("n-samples", {}).get(task, {}).get("effective"),
                "limit": config.get("limit"),
                "model": "@".join(arguments[name] for name in ("pretrained", "revision") if name in arguments),
                "allocator": arguments.get("allocator"),
                "pixels": f"{arguments.get('min_pixels')} to {arguments.get('max_pixels')}",
                "dtype": arguments.get("dtype"),
                "file": str(path),
            }
        )
    return rows


def _score(task: str, values: dict, path: Path) -> tuple[str, float, float | None]:
    """(metric, value, standard error) of a task; keys are `METRIC,FILTER`."""
    found = {}
    for key, value in values.items():
        metric, comma, filtered = key.partition(",")
        numeric = isinstance(value, int | float) and not isinstance(value, bool)
        if comma and numeric and not metric.endswith(BESIDE):
            found.setdefault(metric, (float(value), values.get(f"{metric}_stderr,{filtered}")))
    metric = METRICS.get(task, next(iter(found), None))
    if task not in METRICS and len(found) > 1:
        print(f"{task}: {metric} is shown, of {', '.join(found)}", file=sys.stderr)
    if metric not in found:
        raise TableError(f"{path} has no {metric or 'score'} of {task}, but {', '.join(found) or 'none'}; run it again")
    score, stderr = found[metric]
    return metric, score, stderr if isinstance(stderr, int | float) else None


def markdown(rows: Sequence[dict]) -> str:
    """The rows as Markdown: scores in percent, of a task with scores above 1 as they are, with 95% intervals (1.96 standard
    errors) where lmms-eval gives one.

    The last columns are the mean over the tasks of the score relative to stock, where stock and the row have the same tasks, and
    of the share of visual tokens.
    """
    tasks = [task for task in METRICS if any(row["task"] == task for row in rows)]
    tasks += sorted({row["task"] for row in rows} - set(tasks))
    names = {row["task"]: f"{row['task']}<br>{row['metric']}" for row in rows}
    points = {row["task"] for row in rows if row["score"] > 1}
    lines = [
        f"| method | tokens | {' | '.join(names[task] for task in tasks)} | of stock | token share |",
        f"|---|---|{'---|' * (len(tasks) + 2)}",
    ]
    for title, budget in sorted({(row["title"], row["budget"]) for row in rows}, key=lambda pair: _place(rows, *pair)):
        cells = {row["task"]: row for row in rows if (row["title"], row["budget"]) == (title, budget)}
        shown = " | ".join(_cell(cells.get(task), 1 if task in points else 100) for task in tasks)
        means = [
            _mean([cells[task][name] if task in cells else None for task in tasks])
            for name in ("of_stock", "visual_token_share")
        ]
        lines.append(f"| {title} | {budget} | {shown} | {' | '.join(means)} |")
    first, allocators = rows[0], {row["allocator"] for row in rows} - {None}
    note = first["model"]
    note += "".join(f", allocator {allocator}" for allocator in allocators)
    note += "" if first["limit"] in (None, -1) else f", only the first {first['limit']:g} questions of each task"
    return "\n".join([*lines, "", f"Model: {note}."])


def _place(rows: Sequence[dict], title: str, budget: str) -> tuple:
    """Sorts stock first, then from large budgets to small, shares before counts before names."""
    value = next(row["token_budget"] for row in rows if (row["title"], row["budget"]) == (title, budget))
    kind = 0 if value == FULL else 1 + (float, int, str).index(type(value))
    return kind, -value if kind in (1, 2) else str(value), title != "stock", title != "arrcoc", title


def _cell(row: dict | None, scale: int) -> str:
    if row is None:
        return ""
    half = "" if row["stderr"] is None else f" ± {scale * Z95 * row['stderr']:.1f}"
    return f"{scale * row['score']:.1f}{half}"


def _mean(values: Sequence[float | None]) -> str:
    return "" if None in values else f"{100 * statistics.fmean(values):.1f}%"


def write(folder: Path) -> str:
    """Writes table.csv and table.md of the results in `folder`; returns the Markdown."""
    rows = read(folder)
    with open(folder / "table.csv", "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(dict.fromkeys(name for row in rows for name in row)), restval="")
        writer.writeheader()
        writer.writerows(rows)
    text = markdown(rows)
    (folder / "table.md").write_text(text + "\n", encoding="utf-8")
    return text


def main(arguments: list[str] | None = None):
    """Command line of this file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="where the results are, at any depth")
    options = parser.parse_args(arguments)
    try:
        print(write(options.folder))
    except (TableError, OSError) as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
