"""Questions as they come among other sentences."""

from collections.abc import Sequence
from dataclasses import replace
from random import Random

from training.data.examples import Example, Examples
from training.world.beside import with_sentences
from training.world.layout import stable_hash


def put_beside(examples: Sequence[Example], percent: int, split: str) -> Examples:
    """The examples with other sentences beside `percent` of the questions; which, and what they say, hangs on the names."""
    return Examples([_put(one, percent, split) for one in examples], getattr(examples, "left_out", None))


def _put(one: Example, percent: int, split: str) -> Example:
    random = Random(stable_hash(f"beside {split} {one.name} {one.question}"))
    chosen = random.uniform(0, 100) < percent
    return replace(one, question=with_sentences(one.question, split, random)) if chosen else one
