"""What each training signal, and each part of the allocator, is worth: trains many short runs and measures each.

    python -m dev.study signals --model checkpoints/arrcoc-small --out runs/signals.csv
    python -m dev.study parts --model checkpoints/arrcoc-small --out runs/parts.csv

A signal that runs the language model in every step takes `--language-steps` of them, the others `--steps` on pages that are
encoded once for all runs (by the first, whose seconds count it). All are measured on the same held-out pages, of the drawn
world none that stands in the reported results (real tables are too few for that): evidence recall and exact match at 10% and
25% of the tokens. A run that stands in the file already is left out, so a stopped study goes on; a file with rows of another
model or other options is refused.
"""

import argparse
import contextlib
import csv
import fcntl
import hashlib
import json
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from unittest import mock

from arrcoc import ARRCOCQwen3VLForConditionalGeneration, balancing, matching, participating, relating
from arrcoc.participating import ParticipatoryScorer
from evaluation import run
from evaluation.records import model_fingerprint
from training import allocator_data, train_allocator
from training.ahead import encode_ahead
from training.signals import needs, parse_signals

SIGNALS = (
    "evidence", "mass", "evidence=1,mass=0.5", "distill_attention", "evidence=1,mass=0.5,distill_attention=0.2",
    "evidence=1,mass=0.5,distill_unmarked=0.3",
    "evidence=1,mass=0.5,entropy=0.1", "evidence=1,mass=0.5,tension=0.1", "distill_answer", "lm_straight_through", "lm_gates",
    "lm_gumbel", "lm_soft_topk", "evidence=1,mass=0.5,lm_straight_through=0.3",
)  # fmt: skip


def _without_input(name: str):
    """Participation with one of its inputs zeroed: "texture", "visual_tokens" or "deepstack"; stage 1, which has a single level
    of its own, as it is."""
    plain = ParticipatoryScorer.forward

    def forward(self, texture, levels, *rest):
        if len(levels) == 1:
            return plain(self, texture, levels, *rest)
        levels = [level * (name != ("deepstack" if number else "visual_tokens")) for number, level in enumerate(levels)]
        return plain(self, texture * (name != "texture"), levels, *rest)

    return mock.patch.object(ParticipatoryScorer, "forward", forward)


def _without_axes():
    return mock.patch.object(
        participating, "_along_axes", lambda found: found.new_zeros(*found.shape[:-1], 2 * found.shape[-1])
    )


def _finding_nothing(matcher):
    """A `WordMatcher` or `PhraseMatcher` whose findings are zeroed."""
    plain = matcher.forward
    return mock.patch.object(matcher, "forward", lambda self, *given: 0 * plain(self, *given))


def _without_steps():
    return mock.patch.object(relating.RelatingStep, "forward", lambda self, cells: cells)


def _without_tensions():
    plain = balancing.AdaptiveTensionBalancer.forward

    def forward(self, scores, query, budget):
        self.tension.requires_grad_(False)
        return plain(self, scores, query, budget)

    stack = contextlib.ExitStack()
    stack.enter_context(mock.patch.object(balancing, "scene_prior", lambda scene: scene.new_zeros(3)))
    stack.enter_context(mock.patch.object(balancing.AdaptiveTensionBalancer, "forward", forward))
    return stack


_PAGES: dict = {}

# name: (what is patched while training and measuring, dials of both)
PARTS = {
    "all": (contextlib.nullcontext, ()),
    "without the question": (contextlib.nullcontext, ("query_blind",)),
    "without textures in participation": (lambda: _without_input("texture"), ()),
    "without visual tokens": (lambda: _without_input("visual_tokens"), ()),
    "without DeepStack levels": (lambda: _without_input("deepstack"), ()),
    "without the largest of row and column": (_without_axes, ()),
    "without relating steps": (_without_steps, ()),
    "without words looked for": (lambda: _finding_nothing(matching.WordMatcher), ()),
    "without phrases looked for": (lambda: _finding_nothing(matching.PhraseMatcher), ()),
    "with whitened steps": (contextlib.nullcontext, ("whiten",)),
    "without information": (contextlib.nullcontext, ("information_weight=0",)),
    "without perspective": (contextlib.nullcontext, ("perspective_weight=0",)),
    "without participation": (contextlib.nullcontext, ("participation_weight=0",)),
    "without tensions": (_without_tensions, ()),
    "with diversity=0.25": (contextlib.nullcontext, ("diversity=0.25",)),
    "without coverage floor": (contextlib.nullcontext, ("coverage_floor=0",)),
    "depth: min_deepstack_levels=1": (contextlib.nullcontext, ("min_deepstack_levels=1",)),
    "pooled cells and adapter: coarse_share=0.25": (contextlib.nullcontext, ("coarse_share=0.25",)),
}


@contextlib.contextmanager
def _encoded_once():
    # the same pages for every run: a seed is of the new parameters, the order and the budgets
    def encoded(model, collator, source, pages, quiet, unmarked_alone, parts, for_restorer, blind):
        key = (collator.language, unmarked_alone, pages, parts, for_restorer, blind and parts > 0)
        if key not in _PAGES:
            _PAGES[key] = encode_ahead(
                model, collator, source, pages, quiet, unmarked_alone, parts, for_restorer=for_restorer, blind=blind
            )
        return _PAGES[key]

    with mock.patch.object(allocator_data, "encode_ahead", encoded):
        yield


def train_and_measure(options, name: str, seed: int) -> dict:
    """One run: its seconds of training, and evidence recall and exact match at each budget."""
    patch, dials = PARTS[name] if options.study == "parts" else (contextlib.nullcontext, ())
    signals = name if options.study == "signals" else options.signals
    language = needs(parse_signals(signals)) - {"teacher"}
    pace = ["--steps", str(options.language_steps)] if language else [
        "--steps", str(options.steps), "--ahead", str(options.ahead)
    ]  # fmt: skip
    dials = list(dials)
    scorer = "query_blind" if "query_blind" in dials else "arrcoc"
    if scorer == "query_blind":  # no cell could say what a question names
        signals = ",".join(signal for signal in signals.split(",") if signal.partition("=")[0] != "named")
    if "whiten" in dials:
        pace.append("--whiten")
    dials = [dial for dial in dials if dial not in ("query_blind", "whiten")]
    with tempfile.TemporaryDirectory() as scratch, _encoded_once(), patch():
        out = Path(scratch)
        started = time.perf_counter()
        trained = train_allocator.main(
            ["--model", options.model, "--data", *options.train_data, "--out", str(out / "train"), "--signals", signals,
             "--scorer", scorer, *pace, "--batch-size", str(options.batch_size), "--questions", "8", "--seed", str(seed),
             "--learning-rate", "2.5e-3", "--reset", "--quiet", *([] if options.float32 else ["--bf16"]), "--set", *dials]
        )  # fmt: skip
        seconds = time.perf_counter() - started
        blind = ["--baseline-weights", str(trained.parent), "--methods", "query_blind"]
        asked = blind if scorer == "query_blind" else ["--allocator", str(trained), "--methods", "arrcoc"]
        found = {"name": name, "seed": seed, "steps": int(pace[1]), "seconds": round(seconds, 1)}
        for number, data in enumerate(options.data):
            found |= _measured(options, data, [*asked, "--set", *dials], out / f"measured_{number}")
    return found


def kind_of(data: str) -> str:
    """What data are called in the columns: "world" or "wikitables" of such a spec."""
    return data.partition("?")[0].partition(":")[0]


def _measured(options, data: str, asked: list[str], out: Path) -> dict[str, float]:
    run.main(
        ["--model", options.model, "--data", data, "--limit", str(options.limit), "--seed", "3000000", "--budgets", "0.1,0.25",
         "--timing", "0", "--out", str(out), *asked]
    )  # fmt: skip
    with out.with_suffix(".csv").open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["family"] == "all"]
    which = "" if len(options.data) == 1 else f"{kind_of(data)}: "
    return {
        f"{which}{metric} at {row['budget']}": round(float(row[metric]), 4)
        for row in rows
        for metric in ("evidence_recall", "exact_match")
        if row[metric]  # there is no recall without boxes
    }


def table(rows: list[dict]) -> str:
    """Mean and range over the seeds, as Markdown, best recall at the smallest budget first."""
    groups = defaultdict(list)
    for row in rows:
        groups[row["name"]].append(row)
    columns = [name for name in rows[0] if " at " in name]
    lines = ["| | seeds | seconds | " + " | ".join(columns) + " |", "|---" * (len(columns) + 3) + "|"]

    def cell(group, column):
        values = [100 * float(row[column]) for row in group]
        return f"{statistics.mean(values):.1f} ({min(values):.1f}-{max(values):.1f})"

    ordered = sorted(groups.items(), key=lambda item: -statistics.mean(float(r[columns[0]]) for r in item[1]))
    for name, group in ordered:
        seconds = statistics.mean(float(row["seconds"]) for row in group)
        cells = " | ".join(cell(group, column) for column in columns)
        lines.append(f"| {name} | {len(group)} | {seconds:.0f} | {cells} |")
    return "\n".join(lines)


def fingerprint_of_run(options: argparse.Namespace) -> str:
    """A hash of the model's weights and of every option that a row hangs on: rows of one file can be compared."""
    model = ARRCOCQwen3VLForConditionalGeneration.from_pretrained(options.model, dtype="auto")
    asked = {
        name: value for name, value in vars(options).items() if name not in ("model", "names", "seeds", "shard", "out")
    }
    return hashlib.sha256(f"{model_fingerprint(model)} {sorted(asked.items())}".encode()).hexdigest()[:16]


def read(path: Path) -> list[dict]:
    """The rows that are there."""
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def check_name(study: str, name: str) -> None:
    """Raises ValueError where `name` is none of the parts, or no combination of signals."""
    if study == "signals":
        parse_signals(name)
    elif name not in PARTS:
        raise ValueError(f"the parts are {', '.join(PARTS)}")


def shard(text: str) -> tuple[int, int]:
    """Which part of how many, as argparse's `type`: "0/2" and "1/2" are the halves."""
    which, _, of = text.partition("/")
    if not (which.isdecimal() and of.isdecimal() and int(which) < int(of)):
        raise argparse.ArgumentTypeError(f"{text!r} is no part of several; pass 0/2 and 1/2, say")
    return int(which), int(of)


def main(arguments: list[str] | None = None):
    """Command line of this file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("study", choices=("signals", "parts"))
    parser.add_argument("--model", default="checkpoints/arrcoc-small")
    parser.add_argument(
        "--data", nargs="+", default=["world?grids=12x12"], help="what is measured, each of another kind"
    )
    parser.add_argument("--signals", default=train_allocator.DEFAULT_SIGNALS["arrcoc"], help="of the study of parts")
    parser.add_argument("--names", nargs="+", help="only these runs")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--train-data", nargs="+", default=["world", "world?grids=12x12"])
    parser.add_argument("--ahead", type=int, default=400, help="pages that are encoded once for all runs")
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--language-steps", type=int, default=40, help="of a signal that runs the language model")
    parser.add_argument("--batch-size", type=int, default=64, help="questions")
    parser.add_argument("--limit", type=int, default=240, help="held-out questions")
    parser.add_argument("--float32", action="store_true", help="train without bf16, which many CPUs imitate slowly")
    parser.add_argument(
        "--shard",
        type=shard,
        default=(0, 1),
        metavar="N/OF",
        help="which part of the runs, for several processes at once",
    )
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args(arguments)
    if len({*map(kind_of, options.data)}) < len(options.data):
        parser.error(f"--data {options.data} has two of a kind, whose columns would have one name; give one of each")
    names = options.names or list(SIGNALS if options.study == "signals" else PARTS)
    try:
        for name in names:
            check_name(options.study, name)
    except ValueError as error:
        parser.error(f"--names {name!r}: {error}")
    run_of = fingerprint_of_run(options)
    if any(row.get("run") != run_of for row in read(options.out)):
        parser.error(f"{options.out} has rows of another model, other data or other steps; pass another --out")
    which, shards = options.shard
    todo = [(name, seed) for seed in range(options.seeds) for name in names][which::shards]
    options.out.parent.mkdir(parents=True, exist_ok=True)
    for name, seed in todo:
        if any(row["name"] == name and int(row["seed"]) == seed for row in read(options.out)):
            continue
        row = train_and_measure(options, name, seed) | {"run": run_of}
        with options.out.open("a", newline="") as file:
            fcntl.flock(file, fcntl.LOCK_EX)  # of several shards one writes the header
            writer = csv.DictWriter(file, row)
            if not options.out.stat().st_size:
                writer.writeheader()
            writer.writerow(row)
        print(json.dumps(row), file=sys.stderr, flush=True)
    print(table(read(options.out)))


if __name__ == "__main__":
    main()
