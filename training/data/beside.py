"""Questions as they come from people: with small words in them, and among other sentences."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random

from training.data.examples import Example, Examples
from training.world.beside import with_sentences
from training.world.layout import stable_hash
from training.world.phrasing import phrased as in_phrases


def put_more_words(examples: Sequence[Example], split: str, phrased: int = 0, beside: int = 0) -> Examples:
    """The examples, `phrased` percent of the questions with what `training.world.phrasing` puts into them, then `beside` percent
    with other sentences beside them; which, and what they say, depends on the names."""
    put = [_put(one, phrased, split, "phrased", in_phrases) for one in examples]
    put = [_put(one, beside, split, "beside", with_sentences) for one in put]
    return Examples(put, getattr(examples, "left_out", None))


def _put(one: Example, percent: int, split: str, kind: str, put: Callable[[str, str, Random], str]) -> Example:
    random = Random(stable_hash(f"{kind} {split} {one.name} {one.question}"))
    chosen = random.uniform(0, 100) < percent
    return replace(one, question=put(one.question, split, random)) if chosen else one
