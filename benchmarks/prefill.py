"""Time to first token, its parts, memory and FLOPs of each method against stock Qwen3-VL, in one process.

    python -m benchmarks.prefill --geometry 2b --pixels 512,1024,2048 --device cuda --dtype bf16 --out results/prefill_2b

Models have the published geometry and random weights. Each condition is kept in a file named by it; files that are there
already are not measured again. The last line of the output is one JSON object with everything in it.
"""

import argparse
import json
import os
from collections.abc import Sequence
from itertools import product
from pathlib import Path

import torch

from arrcoc.configuration_arrcoc import check_encode_ratio
from benchmarks import growth
from benchmarks.geometry import DTYPES, GEOMETRIES
from benchmarks.measure import measure
from benchmarks.methods import METHODS, STOCK, Bench, Case, build_bench
from benchmarks.pictures import QUESTION, draw
from benchmarks.records import Condition, SettingsMismatch, read, settings_of, write
from benchmarks.summary import summarise, table
from evaluation.baselines.interface import Shown
from evaluation.budgets import label, parse_budgets, tokens_for
from evaluation.loading import count

SMALLEST = 32  # pixels, the side of one cell of the published geometries


def counts(text: str) -> tuple[int, ...]:
    """The whole numbers above 0 of a comma-separated list, each once."""
    entries = [entry.strip() for entry in text.split(",")]
    if not all(entry.isdecimal() and int(entry) > 0 for entry in entries) or len(set(entries)) < len(entries):
        raise argparse.ArgumentTypeError(f"{text!r} is no list of different whole numbers above 0, such as 1,2,4")
    return tuple(map(int, entries))


def budgets(text: str) -> tuple[float | int | str, ...]:
    """Token budgets: shares in (0, 1), counts, or `full`."""
    try:
        return parse_budgets(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def encode_ratio(text: str) -> float | str:
    """A share in (0, 1], or `auto`."""
    try:
        return check_encode_ratio(text if text == "auto" else float(text))
    except ValueError:
        told = f"{text!r} is no share of the cells; pass one above 0 and up to 1, or 'auto'"
        raise argparse.ArgumentTypeError(told) from None


def methods(text: str) -> tuple[str, ...]:
    """Different names of `METHODS`, stock among them."""
    names = tuple(entry.strip() for entry in text.split(","))
    unknown = [name for name in names if name not in METHODS]
    if unknown or len(set(names)) < len(names):
        raise argparse.ArgumentTypeError(f"{text!r} is no list of different methods; choose from {', '.join(METHODS)}")
    if STOCK not in names:
        raise argparse.ArgumentTypeError(f"{text!r} leaves out {STOCK}, which all others are compared with; add it")
    return names


def parse(arguments: Sequence[str] | None) -> tuple[argparse.ArgumentParser, argparse.Namespace]:
    """The parser, and the checked options of the command line."""
    parser = argparse.ArgumentParser(prog="benchmarks.prefill", description=__doc__.splitlines()[0])
    parser.add_argument(
        "--geometry", choices=GEOMETRIES, required=True, help="of Qwen3-VL-Instruct, or of arrcoc-small"
    )
    parser.add_argument("--pixels", type=counts, default=(512, 1024, 2048), help="sides of the square pictures")
    parser.add_argument(
        "--budget", type=budgets, default=(0.1,), help="shares or counts of visual tokens (default: 0.1)"
    )
    parser.add_argument("--encode-ratio", type=encode_ratio, default=0.3, help="of two-stage (default: %(default)s)")
    parser.add_argument("--methods", type=methods, default=METHODS, help=f"default: {','.join(METHODS)}")
    parser.add_argument("--batch-sizes", type=counts, default=(1,), help="pictures per batch (default: 1)")
    found = "cuda" if torch.cuda.is_available() else "cpu"
    parser.add_argument("--device", choices=("cpu", "cuda"), default=found, help="(default: cuda, if there is a GPU)")
    parser.add_argument("--dtype", choices=tuple(DTYPES), default="bf16")
    parser.add_argument("--repeats", type=count, default=5, help="timed rounds (default: %(default)s)")
    parser.add_argument("--decode-tokens", type=count, default=8, help="after the first (default: %(default)s)")
    parser.add_argument("--growth", action="store_true", help="fit and plot how each cost grows with pixels")
    parser.add_argument("--seed", type=int, default=0, help="of weights and pictures (default: %(default)s)")
    parser.add_argument("--out", type=Path, default=Path("results/prefill"), help="folder of the results")
    options = parser.parse_args(arguments)
    if min(options.pixels) < SMALLEST:
        parser.error(
            f"--pixels {min(options.pixels)} is below {SMALLEST}, the side of a visual token of the published geometries; pass that"
        )
    if options.seed < 0:
        parser.error(f"--seed {options.seed}: pass a whole number from 0 on")
    if options.growth and len(options.pixels) < 2:
        parser.error(f"--growth needs at least two sizes, and --pixels names {len(options.pixels)}; add one")
    if options.device == "cuda" and not torch.cuda.is_available():
        parser.error(
            "--device cuda was asked for, but torch finds no CUDA device; pass --device cpu, or install torch with CUDA"
        )
    try:
        options.out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        parser.error(f"--out {options.out} can't be a folder ({error}); pass a folder of yours")
    if not os.access(options.out, os.W_OK):
        parser.error(f"--out {options.out}: nothing can be written there; pass a folder of yours")
    return parser, options


def run(bench: Bench, condition: Condition, options: argparse.Namespace, pictures: list[Shown]) -> dict:
    """The record of one condition, from its file or measured and kept there."""
    images = type(bench.processor.image_processor).__name__
    settings = settings_of(condition, options.methods, options.repeats, options.decode_tokens, options.seed, images)
    path = options.out / f"{condition.name}.json"
    record = read(path, settings)
    if record is None:
        budget = tokens_for(condition.budget, bench.cells(pictures[0]))
        cases = [Case(method, pictures, budget, condition.encode_ratio) for method in options.methods]
        results = measure(bench, cases, options.repeats, options.decode_tokens)
        record = {
            "settings": settings,
            "cells": bench.cells(pictures[0]),
            "parameters": sum(parameter.numel() for parameter in bench.model.parameters()),
            "summary": summarise(results, condition.batch),
            "rounds": {method: result["rounds"] for method, result in results.items()},
        }
        write(path, record)
    return record


def grown(options: argparse.Namespace, records: dict[Condition, dict]) -> dict:
    """Fits and plots the growth with pixels for every budget and batch size: name of the plot -> method -> exponents."""
    fits = {}
    for budget, batch in product(options.budget, options.batch_sizes):
        summaries = {
            condition.pixels: record["summary"]
            for condition, record in records.items()
            if (condition.budget, condition.batch) == (budget, batch)
        }
        spent = f"budget{label(budget)}_encode{label(options.encode_ratio)}"
        name = f"growth_{options.geometry}_batch{batch}_{spent}_{options.device}_{options.dtype}"
        fits[name] = growth.fit(summaries)
        growth.plot(summaries, fits[name], name.replace("_", " "), options.out / f"{name}.png")
    return fits


def main(arguments: Sequence[str] | None = None):
    """Command line of this file."""
    parser, options = parse(arguments)
    bench = build_bench(options.geometry, DTYPES[options.dtype], options.device, options.seed)
    records = {}
    for pixels, batch, budget in product(sorted(options.pixels), options.batch_sizes, options.budget):
        spent = budget, options.encode_ratio
        condition = Condition(options.geometry, pixels, batch, *spent, options.device, options.dtype)
        pictures = [Shown(draw(pixels, options.seed + number), QUESTION) for number in range(batch)]
        try:
            records[condition] = run(bench, condition, options, pictures)
        except SettingsMismatch as error:
            parser.error(str(error))
        except OSError as error:  # of a full disk
            parser.error(f"{error}; conditions that stand in {options.out} are not measured again")
        settings = records[condition]["settings"]
        print(table({"cells": records[condition]["cells"]} | settings, records[condition]["summary"]), end="\n\n")
    fits = grown(options, records) if options.growth else {}
    for name, slopes in fits.items():
        for method, exponents in slopes.items():
            shown = ", ".join(f"{cost} {slope:.2f}" for cost, slope in exponents.items() if slope is not None)
            print(f"{name}: {method}: {shown}")
    rows = [{key: record[key] for key in record if key != "rounds"} for record in records.values()]
    print(json.dumps({"conditions": rows, "growth": fits}))


if __name__ == "__main__":
    main()
