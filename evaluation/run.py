"""Exact match at several token budgets, for several ways to spend them; same weights, same pages, one run.

    python -m evaluation.run --model checkpoints/arrcoc-small --data world --pages 800 --out results/training_free

Prints a table, writes it as CSV, and ends with one JSON line.
"""

import argparse
import csv
import json
from pathlib import Path

import numpy as np
import torch
from tqdm import tqdm

from arrcoc import ARRCOCProcessor, ARRCOCQwen3VLForConditionalGeneration
from evaluation.methods import METHODS, prompt
from evaluation.pages import folder_examples, world_examples

RESAMPLES = 2000  # of the bootstrap


def normalise(text: str) -> str:
    """`text` without case, outer white space and repeated white space."""
    return " ".join(text.lower().split())


@torch.no_grad()
def answer(model, processor, inputs, max_new_tokens: int) -> tuple[list[str], list[int]]:
    """The greedy answers of one batch, and its visual tokens per sample."""
    tokens = (inputs["input_ids"] == model.config.image_token_id).sum(-1).tolist()
    generated = model.generate(**inputs, max_new_tokens=max_new_tokens, do_sample=False)
    return processor.batch_decode(generated[:, inputs["input_ids"].shape[1] :], skip_special_tokens=True), tokens


def interval(hits: np.ndarray, seed: int = 0) -> tuple[float, float]:
    """The 95% interval of the mean of `hits`, by bootstrap."""
    draws = np.random.default_rng(seed).choice(hits, (RESAMPLES, len(hits))).mean(-1)
    return tuple(float(x) for x in np.percentile(draws, [2.5, 97.5]))


def evaluate(model, processor, examples, methods, shares, batch_size=16, max_new_tokens=24) -> list[dict]:
    """One row per method, share and family (and "all"): exact match with its 95% interval, mean tokens, questions.

    Full tokens are the same for every method and are measured once, as method "full".
    """
    # Pictures of one size share a batch, so that little is padded.
    order = sorted(range(len(examples)), key=lambda number: examples[number].image.size)
    batches = [[examples[n] for n in order[start : start + batch_size]] for start in range(0, len(order), batch_size)]
    runs = [("full", 1.0)] + [(method, share) for share in shares if share < 1 for method in methods]
    rows = []
    progress = tqdm(total=len(runs) * len(batches), unit="batch")
    for method, share in runs:
        hits, tokens, families = [], [], []
        for batch in batches:
            if method == "full":
                inputs = prompt(processor, batch, token_budget="full")
            else:
                inputs = METHODS[method](model, processor, batch, share)
            texts, counts = answer(model, processor, inputs, max_new_tokens)
            hits += [normalise(text) in {normalise(a) for a in e.answers} for text, e in zip(texts, batch, strict=True)]
            tokens += counts
            families += [example.family for example in batch]
            progress.update()
        hits, families = np.array(hits, dtype=float), np.array(families)
        for family in [*sorted(set(families)), "all"]:
            chosen = hits if family == "all" else hits[families == family]
            low, high = interval(chosen)
            mean_tokens = float(np.mean([t for t, f in zip(tokens, families, strict=True) if family in ("all", f)]))
            rows.append(
                {
                    "method": method,
                    "share": share,
                    "family": family,
                    "exact_match": float(chosen.mean()),
                    "low": low,
                    "high": high,
                    "tokens": mean_tokens,
                    "questions": len(chosen),
                }
            )
    return rows


def table(rows: list[dict], family: str = "all") -> str:
    """The rows of one family as Markdown: a line per method, a column per share, in percent with the 95% interval."""
    rows = [row for row in rows if row["family"] == family]
    shares = sorted({row["share"] for row in rows if row["method"] != "full"}, reverse=True)
    full = next(row for row in rows if row["method"] == "full")
    lines = [
        f"| {family} ({full['questions']} questions) | 100% of tokens | "
        + " | ".join(f"{s:.0%}" for s in shares)
        + " |",
        "|---|" + "---|" * (len(shares) + 1),
    ]
    for method in dict.fromkeys(row["method"] for row in rows if row["method"] != "full"):
        cells = [_cell(full)]
        for share in shares:
            cells += [_cell(row) for row in rows if row["method"] == method and row["share"] == share]
        lines.append(f"| {method} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _cell(row: dict) -> str:
    return f"{row['exact_match']:.1%} ({row['low']:.1%}-{row['high']:.1%})"


def main(arguments: list[str] | None = None):
    """Command line of this file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="checkpoints/arrcoc-small", help="folder or Hub id")
    parser.add_argument("--data", default="world", help="'world', or a folder in imagefolder form")
    parser.add_argument("--pages", type=int, default=800, help="held-out pages of the world")
    parser.add_argument("--seed", type=int, default=1_000_000, help="first seed of the pages, and of the random cells")
    parser.add_argument("--budgets", default="0.5,0.25,0.1", help="shares of the full token count")
    parser.add_argument("--methods", default="arrcoc,resize,random", help=f"of {', '.join(METHODS)}")
    parser.add_argument("--set", nargs="*", default=[], metavar="DIAL=NUMBER", help="dials of the allocator's config")
    parser.add_argument("--split", default="held_out", choices=("held_out", "train"), help="of the world")
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--out", type=Path, default=Path("results/training_free"), help="writes OUT.csv")
    options = parser.parse_args(arguments)
    methods = options.methods.split(",")
    if unknown := set(methods) - set(METHODS):
        parser.error(f"unknown methods {sorted(unknown)}; choose from {', '.join(METHODS)}")
    shares = [float(share) for share in options.budgets.split(",")]
    if not all(0 < share < 1 for share in shares):
        parser.error(f"--budgets {options.budgets}: each must be a share between 0 and 1")

    dials = {name: json.loads(value) for name, value in (pair.split("=", 1) for pair in options.set)}

    torch.manual_seed(options.seed)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    processor = ARRCOCProcessor.from_pretrained(options.model)
    model = ARRCOCQwen3VLForConditionalGeneration.from_pretrained(options.model, dtype=torch.float32, **dials)
    model = model.to(device).eval()
    world = options.data == "world"
    examples = (
        world_examples(options.pages, options.seed, options.split) if world else folder_examples(Path(options.data))
    )
    rows = evaluate(model, processor, examples, methods, shares, options.batch_size)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    with open(f"{options.out}.csv", "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    for family in dict.fromkeys(row["family"] for row in rows):
        print(table(rows, family), end="\n\n")
    print(json.dumps({"model": str(options.model), "data": options.data, "dials": dials, "rows": rows}))


if __name__ == "__main__":
    main()
