"""Checks data and counts what is in them: ``python -m training.data SPEC``."""

import argparse
from collections import Counter
from collections.abc import Iterator, Mapping
from hashlib import blake2b
from itertools import combinations
from pathlib import Path

from training.data.examples import Examples
from training.data.load import ALLOWED, load_examples, parts_of, split_read

_REFUSALS = (ValueError, OSError, ImportError)


def main() -> None:
    """Prints the number of examples by split and family, how many have no evidence boxes, what was left out, and how many pictures
    two splits share; reports and exit status 1 where data are bad."""
    parser = argparse.ArgumentParser(
        description="Checks data and counts them.",
        epilog=f"SPEC is one of:\n{ALLOWED}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("spec", metavar="SPEC")
    parser.add_argument(
        "--split", help="only this one: train, held_out, or a part's own name; without it every part that is there"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--limit", type=int, help="at most so many examples of a split")
    parser.add_argument("--skip-bad", action="store_true", help="leave bad records out, and count them")
    chosen = parser.parse_args()
    try:
        own = chosen.split and split_read(chosen.spec, chosen.split)
        parts = {own: own} if own else parts_of(chosen.spec)
    except _REFUSALS as error:
        raise SystemExit(str(error)) from error
    reports, found = [], {}
    for part, split in parts.items():
        try:
            found[part] = load_examples(chosen.spec, split, chosen.seed, chosen.limit, chosen.skip_bad)
            _count(part, found[part])
        except _REFUSALS as error:
            reports.append(str(error))
    if chosen.spec.startswith("hub:") or Path(chosen.spec).is_dir():  # what is drawn has nothing alike in two splits
        for line in _shared(found):
            print(line)
    if reports:
        raise SystemExit("\n".join(dict.fromkeys(reports)))  # what is wrong with all splits once


def _count(part: str, examples: Examples) -> None:
    for family, count in sorted(Counter(example.family for example in examples).items()):
        print(f"{count:8} {part}: {family}")
    for reason, count in sorted(examples.left_out.items()):
        print(f"{count:8} {part}: left out: {reason}")
    if unmarked := sum(not example.evidence for example in examples):
        print(f"{unmarked:8} {part}: without evidence boxes")


def _shared(parts: Mapping[str, Examples]) -> Iterator[str]:
    """A line for every two parts that show pictures of the same pixels: what was learned on them tells little of others."""
    pictures: dict[str, dict[bytes, str]] = {}
    for part, examples in parts.items() if len(parts) > 1 else ():
        pictures[part], seen = {}, set()
        for example in examples:
            source = example.picture if isinstance(example.picture, Path) else id(example.picture)
            if source not in seen:  # the questions of a file share it
                seen.add(source)
                image = example.image
                pictures[part].setdefault(blake2b(repr(image.size).encode() + image.tobytes()).digest(), example.name)
    for (one, first), (other, second) in combinations(pictures.items(), 2):
        if common := [digest for digest in first if digest in second]:
            yield f"{len(common):8} pictures of {other} are in {one}, too: {second[common[0]]} shows that of {first[common[0]]}"


if __name__ == "__main__":
    main()
