"""Answers and kept evidence at several token budgets, for several ways to spend them; same weights, same pages, one run.

    python -m evaluation.run --model checkpoints/arrcoc-small --data world --limit 800 --out results/evaluation

Prints tables and ends with one JSON line. Writes OUT.csv, OUT.png and, batch by batch, OUT.jsonl: a killed run started again
with the same arguments goes on where it was.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch
import transformers
from tqdm import tqdm

from evaluation import baselines, loading, report
from evaluation.answering import answer, batches_of, recalls
from evaluation.baselines.interface import BudgetTooSmall
from evaluation.budgets import FULL, heading, label, tokens_for
from evaluation.facts import Facts, measurable
from evaluation.records import (
    Answer,
    Records,
    RecordsMismatch,
    code_fingerprint,
    data_fingerprint,
    model_fingerprint,
    processor_fingerprint,
)
from evaluation.sharing import shared_vision_tower
from evaluation.timing import prefill_ratios

METHODS = "arrcoc,resize,random"
BUDGETS = "0.05,0.1,0.25,0.5,full"
# Arguments that change what is answered: a run goes on only where all of them are the same.
ANSWERING = ("methods", "budgets", "data", "split", "seed", "limit", "dials", "dtype", "max_new_tokens")


def runs_of(methods: Sequence[str], budgets: Sequence) -> list[tuple[str, float | int | str]]:
    """The (method, budget) pairs: every method at every budget but "full", where all methods are one, `"full"`."""
    pairs = [(method, budget) for budget in budgets if budget != FULL for method in methods if method != FULL]
    return [*([(FULL, FULL)] if FULL in budgets else []), *pairs]


def evaluate(
    model,
    processor,
    examples,
    facts: Sequence[Facts],
    runs: Sequence[tuple[str, float | int | str]],
    records: Records,
    batch_size: int = 16,
    max_new_tokens: int = 24,
) -> dict[tuple[str, str], list[Answer]]:
    """(method, budget) -> the answers to `examples`, in their order; those in `records` are not asked again."""
    batches, methods = batches_of(facts, batch_size), [method for method, _ in runs]
    # each method at all its budgets, those last that show the tower other pixels than the others share
    ordered = sorted(runs, key=lambda pair: (baselines.own_pixels(pair[0]), methods.index(pair[0])))
    progress = tqdm(total=len(runs) * len(batches), unit="batch", disable=None)
    with shared_vision_tower(model):  # so all of a batch is asked before the next
        for numbers in batches:
            asked, known, opened = [examples[n] for n in numbers], [facts[n] for n in numbers], []
            for method, budget in ordered:
                progress.set_postfix_str(f"{method} at {label(budget)}")
                if not all(records.get(method, label(budget), example.name) for example in asked):
                    # once for all methods: drawing or decoding a picture takes longer than some of them
                    opened = opened or [replace(example, picture=example.image) for example in asked]
                    records.append(_answers(model, processor, opened, known, method, budget, max_new_tokens))
                progress.update()
    progress.close()
    return {
        (method, label(budget)): [records.get(method, label(budget), example.name) for example in examples]
        for method, budget in runs
    }


def _answers(model, processor, examples, facts, method, budget, max_new_tokens) -> list[Answer]:
    counts = [tokens_for(budget, fact.cells) for fact in facts]
    with torch.no_grad():
        prepared = baselines.find(method)(model, processor, examples, counts)
    texts = answer(model, processor, prepared, max_new_tokens)
    recalled = recalls(prepared, examples, facts)
    return [
        Answer(method, label(budget), example.name, text, float(tokens), recall)
        for example, text, tokens, recall in zip(examples, texts, prepared.tokens, recalled, strict=True)
    ]


def parse(arguments: list[str] | None) -> tuple[argparse.ArgumentParser, argparse.Namespace]:
    """The parser, and the checked options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    loading.add_options(parser, METHODS, BUDGETS)
    parser.add_argument("--max-new-tokens", type=loading.count, default=24, help="of an answer (default: %(default)s)")
    parser.add_argument(
        "--timing", type=int, default=4, metavar="N", help="questions that the prefill is timed on; 0: off"
    )
    parser.add_argument("--out", type=Path, default=Path("results/evaluation"), help="OUT.csv, OUT.png, OUT.jsonl")
    parser.add_argument("--restart", action="store_true", help="begin anew where another run's files are")
    options = parser.parse_args(arguments)
    if options.timing < 0:
        parser.error(f"--timing {options.timing} is below 0; pass a count of questions, or 0 for no timing")
    loading.check_out(parser, options.out, report.LABELS)
    table, records = (options.out.with_name(options.out.name + ending) for ending in (".csv", ".jsonl"))
    if table.exists() and not records.exists() and not options.restart:
        parser.error(f"{table} has no {records.name} beside it and would be lost; pass --restart, or another --out")
    loading.check_options(parser, options)
    if options.methods == (FULL,) and options.budgets != (FULL,):
        parser.error(
            "--methods full reads all tokens at any budget; pass --budgets full, or a method that chooses tokens"
        )
    if FULL in options.methods and FULL not in options.budgets:
        options.budgets = (*options.budgets, FULL)
    return parser, options


def header_of(options: argparse.Namespace, model, processor, examples, facts: Sequence[Facts]) -> dict:
    """What must be the same for a run to go on: arguments, model, processor, data, code and versions."""
    return {
        **{name: getattr(options, name) for name in ANSWERING if hasattr(options, name)},
        "device": model.device.type,
        "model": model_fingerprint(model),
        "parameters": model.num_parameters(),
        "processor": processor_fingerprint(processor),
        "baseline_weights": loading.weights_fingerprint(options.baseline_weights, options.methods),
        "data_content": data_fingerprint(examples, [fact.picture for fact in facts]),
        "code": code_fingerprint("evaluation", "training"),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
    }


def warn_of_long_answers(processor, examples, max_new_tokens: int) -> None:
    """Says how many questions no method can be right on, since each of their answers is longer than what is generated."""
    long = [
        example.name
        for example in examples
        if min(len(processor.tokenizer(text).input_ids) for text in example.answers) > max_new_tokens
    ]
    if long:
        print(
            f"{len(long)} of {len(examples)} questions, first {long[0]}, have no answer of up to --max-new-tokens {max_new_tokens} "
            f"tokens, so that none is right about them; pass more",
            file=sys.stderr,
        )


def warn_of_unmarked(examples, methods: Sequence[str]) -> None:
    """Says of how many questions the oracle knows no evidence, and keeps evenly spaced cells."""
    unmarked = sum(not example.evidence for example in examples)
    if "oracle" in methods and unmarked:
        print(
            f"{unmarked} of {len(examples)} questions have no evidence boxes, where oracle keeps evenly spaced cells",
            file=sys.stderr,
        )


def warn_of_whole_pictures(facts: Sequence[Facts], budgets: Sequence) -> None:
    """Says of how many questions a budget in tokens pays for the whole picture."""
    for budget in budgets:
        whole = sum(isinstance(budget, int) and fact.cells <= budget for fact in facts)
        if whole:
            print(
                f"{whole} of {len(facts)} questions are about pictures of at most {heading(budget)}, and keep them all there",
                file=sys.stderr,
            )


def main(arguments: list[str] | None = None):
    """Command line of this file."""
    parser, options = parse(arguments)
    examples = loading.load_data(parser, options)
    model, processor = loading.load_model(parser, options)
    examples, facts = measurable(parser, options, model, processor, examples, options.max_new_tokens)
    warn_of_long_answers(processor, examples, options.max_new_tokens)
    warn_of_whole_pictures(facts, options.budgets)
    warn_of_unmarked(examples, options.methods)
    try:
        header = header_of(options, model, processor, examples, facts)
        records = Records(options.out.with_name(options.out.name + ".jsonl"), header, options.restart)
    except RecordsMismatch as error:
        parser.error(str(error))
    except OSError as error:
        parser.error(f"--out {options.out} can't be written ({error}); pass a path in a folder of yours")
    try:
        rows = measure(options, model, processor, examples, facts, records)
    except BudgetTooSmall as error:
        parser.error(str(error))
    except OSError as error:  # of a full disk, or a picture that is gone
        parser.error(f"{error}; the answers so far are in {records.path}: run the same command again to go on")
    except KeyboardInterrupt:
        parser.exit(130, f"stopped; the answers so far are in {records.path}: run the same command again to go on\n")
    print(report.tables(rows, options.budgets), end="\n\n")
    print(json.dumps({"arguments": header, "left_out": examples.left_out, "rows": rows}))


def measure(
    options: argparse.Namespace, model, processor, examples, facts: Sequence[Facts], records: Records
) -> list[dict]:
    """Answers what `records` lacks, times, and writes OUT.csv and OUT.png; the rows of `report.summarise`."""
    runs = runs_of(options.methods, options.budgets)
    answers = evaluate(model, processor, examples, facts, runs, records, options.batch_size, options.max_new_tokens)
    ratios = {}
    if options.timing:
        # Spread over the data, so that pictures of several sizes are timed.
        chosen = range(0, len(examples), max(1, len(examples) // options.timing))[: options.timing]
        timed = [examples[n] for n in chosen], [facts[n] for n in chosen]
        ratios = prefill_ratios(model, processor, *timed, options.methods, options.budgets, resamples=options.resamples)
    rows = report.summarise(examples, facts, answers, ratios, options.resamples)
    report.write_csv(rows, options.out.with_name(options.out.name + ".csv"))
    report.write_curves(rows, options.out.with_name(options.out.name + ".png"))
    return rows


if __name__ == "__main__":
    main()
