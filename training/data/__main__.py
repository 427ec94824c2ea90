"""Checks data and counts what is in them: ``python -m training.data SPEC --split held_out``."""

import argparse
from collections import Counter

from training.data.load import ALLOWED, load_examples
from training.world import SPLITS


def main() -> None:
    """Prints the number of examples by family, and what was left out; a report and exit status 1 where the data are bad."""
    parser = argparse.ArgumentParser(
        description="Checks data and counts them.",
        epilog=f"SPEC is one of:\n{ALLOWED}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("spec", metavar="SPEC")
    parser.add_argument("--split", choices=SPLITS, default="held_out")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--limit", type=int)
    parser.add_argument("--skip-bad", action="store_true", help="leave bad records out, and count them")
    chosen = parser.parse_args()
    try:
        examples = load_examples(chosen.spec, chosen.split, chosen.seed, chosen.limit, chosen.skip_bad)
    except (ValueError, OSError, ImportError) as error:
        raise SystemExit(str(error)) from error
    for family, count in sorted(Counter(example.family for example in examples).items()):
        print(f"{count:8} {family}")
    for reason, count in sorted(examples.left_out.items()):
        print(f"{count:8} left out: {reason}")


if __name__ == "__main__":
    main()
