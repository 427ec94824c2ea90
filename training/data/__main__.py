"""Checks data and counts what is in them: ``python -m training.data SPEC``."""

import argparse
from collections import Counter

from training.data.examples import Examples
from training.data.load import ALLOWED, load_examples, parts_of
from training.world import SPLITS

_REFUSALS = (ValueError, OSError, ImportError)


def main() -> None:
    """Prints the number of examples by split and family, and what was left out; reports and exit status 1 where data are bad."""
    parser = argparse.ArgumentParser(
        description="Checks data and counts them.",
        epilog=f"SPEC is one of:\n{ALLOWED}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("spec", metavar="SPEC")
    parser.add_argument("--split", choices=SPLITS, help="only this one; without it every split that is there")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--limit", type=int, help="at most so many examples of a split")
    parser.add_argument("--skip-bad", action="store_true", help="leave bad records out, and count them")
    chosen = parser.parse_args()
    try:
        parts = {chosen.split: chosen.split} if chosen.split else parts_of(chosen.spec)
    except _REFUSALS as error:
        raise SystemExit(str(error)) from error
    reports = []
    for part, split in parts.items():
        try:
            _count(part, load_examples(chosen.spec, split, chosen.seed, chosen.limit, chosen.skip_bad))
        except _REFUSALS as error:
            reports.append(str(error))
    if reports:
        raise SystemExit("\n".join(dict.fromkeys(reports)))  # what is wrong with all splits once


def _count(part: str, examples: Examples) -> None:
    for family, count in sorted(Counter(example.family for example in examples).items()):
        print(f"{count:8} {part}: {family}")
    for reason, count in sorted(examples.left_out.items()):
        print(f"{count:8} {part}: left out: {reason}")


if __name__ == "__main__":
    main()
