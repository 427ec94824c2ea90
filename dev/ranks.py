"""How much of the evidence the best scores of an allocator cover, without the language model: quicker than answers, by which
runs of training are compared.

    python -m dev.ranks --tables PATH bundled runs/allocator/allocator.safetensors
    python -m dev.ranks --early ...           # stage 1, at 25, 30, 35 and 40% of the cells
    python -m dev.ranks --blind ...           # files of --scorer query_blind
    python -m dev.ranks --data SPEC=LIMIT ... # other data than these
    python -m dev.ranks --parts ...           # with each part of the allocator taken out, without training anew

Prints percent kept at 5, 10 and 25% of the cells, of real tables, of the world and of its tables and charts, then the same of pages
whose tower saw a quarter to a half of the cells, where only what was encoded counts. The pages are held out, drawn from another
seed than those of the reported results, and show none of the real tables that docs/results.md reports of, but for those drawn by a
browser: what chooses is not what is reported. They are encoded once for all allocators; what is encoded in part is the model's own
stage 1's choice.
"""

import argparse
import contextlib
import statistics
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random

import torch

from arrcoc import ARRCOCProcessor, ARRCOCQwen3VLForConditionalGeneration
from dev.study import PARTS
from evaluation.dials import parse_dials
from training.ahead import EncodedPage, encode_ahead, page_scores
from training.allocator import allocator_dials, load_allocator
from training.allocator_batches import AllocatorCollator, PictureSource
from training.data import Example, load_examples

SHARES = (0.05, 0.1, 0.25)
EARLY_SHARES = (0.25, 0.3, 0.35, 0.4)
WORLD = {"world": ("world?grids=12x12", 280), "world tables": ("world:table,chart?grids=12x12&questions=3", 240)}
REPORTED = ("wikitables:{}?page=12x16", 1_000_000, 300)  # the real tables of docs/results.md: spec, seed and limit
ALL = 100_000  # more than there are held-out questions
TABLES = {
    "real tables, written": ("wikitables:{}?page=12x16&questions=human", 200),
    "real tables, look-ups": ("wikitables:{}?page=12x16&questions=lookup", 120),
}

# tensions are weights, which would still act; the floor is of the choice, not of the scores
_STAY = ("without tensions", "without coverage floor")


def taken_out() -> list[str]:
    """The parts of `dev.study` that can be taken out of a trained allocator."""
    return [name for name in PARTS if name.startswith("without ") and name not in _STAY]


@contextlib.contextmanager
def without(model, part: str) -> Iterator[bool]:
    """The model's allocator with a part of `dev.study` taken out; gives whether that is the question."""
    patch, dials = PARTS[part]
    blind = "query_blind" in dials
    own = allocator_dials(model.config)
    model.config.update({} if blind else parse_dials(list(dials)))
    model.model.arrcoc.follow(model.config)
    try:
        with patch():
            yield blind
    finally:
        model.config.update(own)
        model.model.arrcoc.follow(model.config)


def kept(model, page: EncodedPage, early: bool, blind: bool) -> list[list[float]]:
    """Of each question of a page that has evidence: the share of it that the best scores cover, at each of the shares."""
    cells = page.grid[1] * page.grid[2]
    with torch.no_grad():
        budgets = torch.full((len(page.evidence),), max(1, page.evidence.shape[1] // 10))
        scored = page_scores(model, page, budgets, blind=blind, early=early)
    found = []
    for score, evidence in zip(scored, page.evidence, strict=True):
        if evidence.any():
            shares = EARLY_SHARES if early else SHARES
            found.append(covered(score.early if early else score.value, evidence, shares, cells))
    return found


def covered(scores: torch.Tensor, evidence: torch.Tensor, shares: tuple[float, ...], cells: int) -> list[float]:
    """Share of the evidence (encoded cells,) that the best scores (encoded cells,) hold, at each share of the page's `cells`."""
    ranked = evidence[scores.argsort(descending=True)].cumsum(0)
    counts = (max(1, round(share * cells)) for share in shares)
    return [float(ranked[min(count, len(ranked)) - 1] / ranked[-1]) for count in counts]


def unreported(spec: str, tables: Path, seed: int, limit: int) -> list[Example]:
    """Held-out questions of `spec`, those to a table that is `REPORTED` left out."""
    reported_spec, reported_seed, reported = REPORTED
    shown = load_examples(reported_spec.format(tables), "held_out", reported_seed, reported)
    seen = {(example.picture.task.header, example.picture.task.rows) for example in shown}
    drawn = load_examples(spec.format(tables), "held_out", seed, ALL)
    others = [one for one in drawn if (one.picture.task.header, one.picture.task.rows) not in seen]
    return Random(seed).sample(others, min(limit, len(others)))


def pages_of(model, processor, examples: Sequence[Example], seed: int, parts: int) -> list[EncodedPage]:
    """The pages of the questions, whole and in part."""
    source = PictureSource(examples, seed, questions=32)
    collator = AllocatorCollator(processor, language=False, seed=seed)
    return encode_ahead(model, collator, source, len(source), parts=parts, auto=0.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("allocators", nargs="+", help="files, or `bundled` for the model's own")
    parser.add_argument("--model", default="checkpoints/arrcoc-small")
    parser.add_argument("--tables", type=Path, help="folder of WikiTableQuestions; without, the world alone")
    parser.add_argument("--data", action="append", metavar="SPEC=LIMIT", help="instead of the world and tables")
    parser.add_argument("--seed", type=int, default=3_000_000)
    parser.add_argument("--early", action="store_true", help="rank by the scores of stage 1")
    parser.add_argument(
        "--blind", action="store_true", help="the files are those of query_blind, which is asked nothing"
    )
    parser.add_argument("--parts", action="store_true", help="take each part out, and none of them")
    options = parser.parse_args()
    if options.parts and (options.early or options.blind):
        parser.error("--parts is of stage 2 with the question; leave --early and --blind out")
    scorer = "query_blind" if options.blind else "arrcoc"
    processor = ARRCOCProcessor.from_pretrained(options.model)
    model = ARRCOCQwen3VLForConditionalGeneration.from_pretrained(options.model, dtype=torch.float32).eval()
    named = WORLD
    if options.data:
        parted = [text.rpartition("=") for text in options.data]
        if wrong := [spec + mark + limit for spec, mark, limit in parted if not (spec and limit.isdecimal())]:
            parser.error(f"--data {wrong[0]}: wanted SPEC=LIMIT, such as runs/pages=600")
        named = {spec: (spec, int(limit)) for spec, _, limit in parted}
    examples = {name: load_examples(spec, "held_out", options.seed, limit) for name, (spec, limit) in named.items()}
    if options.tables and not options.data:
        for name, (spec, limit) in TABLES.items():
            examples[name] = unreported(spec, options.tables, options.seed, limit)
    parts = 0 if options.early else 1
    pages = {name: pages_of(model, processor, some, options.seed, parts) for name, some in examples.items()}
    own, dials = model.model.arrcoc, allocator_dials(model.config)
    for allocator in options.allocators:
        model.model.arrcoc = own
        model.config.update(dials)  # a file brings its own
        if allocator != "bundled":
            load_allocator(model, allocator, scorer=scorer)
        for part in ("all", *(taken_out() if options.parts else ())):
            with without(model, part) as blind:
                print(allocator if part == "all" else f"{allocator}, {part}")
                _print(model, pages, options.early, options.blind or blind)


def _print(model, pages: dict[str, list[EncodedPage]], early: bool, blind: bool) -> None:
    found = defaultdict(list)
    for name, encoded in pages.items():
        for page in encoded:
            found[name + (", in part" if page.cells is not None else "")] += kept(model, page, early, blind)
    for name, rows in sorted(found.items()):
        means = [100 * statistics.fmean(column) for column in zip(*rows, strict=True)]
        print(f"  {name:32} {' / '.join(f'{mean:.1f}' for mean in means)}   ({len(rows)} questions)", flush=True)


if __name__ == "__main__":
    main()
