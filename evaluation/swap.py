"""The query swap: one page, two questions. Is each one's evidence kept, and do the kept cells differ?

    python -m evaluation.swap --model checkpoints/arrcoc-small --data "world?questions=4" --methods arrcoc,random --out results/swap

Prints a table and ends with one JSON line; writes OUT.csv.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from tqdm import tqdm

from evaluation import baselines, loading
from evaluation.answering import batches_of, recalls
from evaluation.bootstrap import RESAMPLES, interval_columns, intervals, with_interval
from evaluation.budgets import FULL, heading, label, tokens_for
from evaluation.facts import Facts, measurable
from evaluation.metrics import WHOLE
from evaluation.report import write_csv
from evaluation.run import header_of, warn_of_whole_pictures
from evaluation.sharing import shared_vision_tower

LABELS = ("method", "budget", "pairs")  # the first columns of the table
# Of the two questions of a pair, first and second in the data's order; `recall_worse` is the lower of the two.
MEASURES = ("recall_first", "recall_second", "recall_worse", "both_whole", "difference", "tokens")


def pairs_of(examples, facts: Sequence[Facts]) -> list[tuple[int, int]]:
    """Per picture, the numbers of its first question with evidence and of the next whose boxes are not the same; of several boxes
    some may be."""
    pairs, first = {}, {}
    for number, (example, fact) in enumerate(zip(examples, facts, strict=True)):
        if not example.evidence or fact.picture in pairs:
            continue
        earlier = first.setdefault(fact.picture, number)
        if set(examples[earlier].evidence) != set(example.evidence):
            pairs[fact.picture] = (earlier, number)
    return list(pairs.values())


@torch.no_grad()
def swapped(model, processor, examples, facts, pairs, method: str, budget, batch_size: int = 16) -> np.ndarray:
    """(pairs, `MEASURES`) for one method and budget: recall of both, whether both are whole, and how far the sets differ.

    `difference` is 1 minus the kept sets' intersection over union (Jaccard distance): 0 for the same cells, 1 for no
    cell in common. NaN where the method's tokens are not cells.
    """
    find, rows = baselines.find(method), np.full((len(pairs), len(MEASURES)), np.nan)
    for batch in batches_of([facts[first] for first, _ in pairs], batch_size):
        sides = []
        with shared_vision_tower(model):
            for side in (0, 1):
                numbers = [pairs[place][side] for place in batch]
                asked, known = [examples[n] for n in numbers], [facts[n] for n in numbers]
                prepared = find(model, processor, asked, [tokens_for(budget, fact.cells) for fact in known])
                sides.append((prepared.kept, recalls(prepared, asked, known), prepared.tokens))
        for place, *both in zip(batch, *(zip(*side, strict=True) for side in sides), strict=True):
            (kept, recall, tokens), (other_kept, other_recall, other_tokens) = both
            rows[place, -1] = (tokens + other_tokens) / 2
            if kept is not None and other_kept is not None:
                common, union = (kept & other_kept).sum().item(), (kept | other_kept).sum().item()
                worse = min(recall, other_recall)
                rows[place, :-1] = recall, other_recall, worse, worse >= WHOLE, 1 - common / max(union, 1)
    return rows


@torch.no_grad()
def without_cells(model, processor, example, fact: Facts, methods: Sequence[str]) -> list[str]:
    """Those of `methods` whose tokens are not cells of the picture, so that no set of kept cells can be compared."""
    half = [tokens_for(0.5, fact.cells)]  # with all its tokens even merging keeps cells
    return [name for name in methods if baselines.find(name)(model, processor, [example], half).kept[0] is None]


def summarise(values: np.ndarray, groups: Sequence[str], method: str, budget, resamples: int = RESAMPLES) -> dict:
    """One row: every measure's mean over pairs with its 95% interval; None where it can't be measured.

    Args:
        values: (pairs, `MEASURES`).
        groups: (pairs,) `Facts.group` of each pair, drawn together by the bootstrap.
    """
    row = dict(zip(LABELS, (method, label(budget), len(values)), strict=True)) | {"sources": len(set(groups))}
    spread = intervals(values, groups, resamples)
    for number, name in enumerate(MEASURES):
        row |= interval_columns(name, spread[:, number])
    return row


def table(rows: Sequence[dict], budgets) -> str:
    """The rows as Markdown: a line per method and budget."""
    titles = {
        "recall_first": "recall, first question",
        "recall_second": "recall, second question",
        "both_whole": "both kept whole",
        "difference": "kept sets differ (1 - Jaccard)",
    }
    lines = [f"| {rows[0]['pairs']} pages | budget | {' | '.join(titles.values())} |", "|---" * 6 + "|"]
    headings = {label(budget): heading(budget) for budget in budgets}
    for row in rows:
        cells = ["" if row[name] is None else with_interval(row, name) for name in titles]
        lines.append(f"| {baselines.title(row['method'])} | {headings[row['budget']]} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main(arguments: list[str] | None = None):
    """Command line of this file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    loading.add_options(parser, "arrcoc,random", "0.1")
    parser.set_defaults(data="world?questions=4")
    parser.add_argument("--out", type=Path, default=Path("runs/swap"), help="writes OUT.csv")
    options = parser.parse_args(arguments)
    loading.check_out(parser, options.out, LABELS)
    if (answers := options.out.with_name(options.out.name + ".jsonl")).exists():
        parser.error(f"{answers} is of an evaluation.run, whose OUT.csv would be overwritten; pass another --out")
    loading.check_options(parser, options)
    if FULL in options.budgets or FULL in options.methods:
        parser.error("with all tokens no choice is made that a question could swap; leave out 'full'")
    examples = loading.load_data(parser, options)
    model, processor = loading.load_model(parser, options)
    examples, facts = measurable(parser, options, model, processor, examples, answer_tokens=0)
    pairs = pairs_of(examples, facts)
    if not pairs:
        parser.error(
            f"--data {options.data}: no picture has two questions with evidence in two places; "
            f"pass data that has, such as 'world?questions=4'"
        )
    pictures = len({fact.picture for fact in facts})
    if len(pairs) < pictures:
        print(f"{len(pairs)} of {pictures} pictures have two questions with evidence in two places", file=sys.stderr)
    warn_of_whole_pictures([facts[first] for first, _ in pairs], options.budgets)
    tried = pairs[0][0]
    if names := without_cells(model, processor, examples[tried], facts[tried], options.methods):
        parser.error(
            f"--methods {','.join(names)}: the tokens are no cells of the picture, so kept cells can't be compared; leave "
            f"{'them' if len(names) > 1 else 'it'} out"
        )
    groups = [facts[first].group for first, _ in pairs]
    header = header_of(options, model, processor, examples, facts)
    runs = [(method, budget) for budget in options.budgets for method in options.methods]
    rows = []
    for method, budget in tqdm(runs, unit="run", disable=None):
        values = swapped(model, processor, examples, facts, pairs, method, budget, options.batch_size)
        rows.append(summarise(values, groups, method, budget, options.resamples))
    print(table(rows, options.budgets), end="\n\n")
    try:
        write_csv(rows, options.out.with_name(options.out.name + ".csv"))
    except OSError as error:  # of a full disk
        parser.error(f"--out {options.out}: {error}; the table stands above")
    print(json.dumps({"arguments": header, "left_out": examples.left_out, "rows": rows}))


if __name__ == "__main__":
    main()
