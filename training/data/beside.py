"""Questions as they come from people: with small words in them, two at once, and among other sentences."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random

from training.data.examples import Example, Examples, by_picture
from training.world.beside import with_sentences
from training.world.joining import joined as in_one
from training.world.layout import stable_hash
from training.world.phrasing import phrased as in_phrases


def put_more_words(
    examples: Sequence[Example], split: str, phrased: int = 0, joined: int = 0, beside: int = 0
) -> Examples:
    """The examples, `phrased` percent of the questions with what `training.world.phrasing` puts into them, then `joined` percent of
    those with evidence with another of the same picture behind them, then `beside` percent with other sentences beside them; which,
    and what they say, depends on the names."""
    put = [_put(one, phrased, split, "phrased", in_phrases) for one in examples]
    put = _joined(put, joined, split) if joined else put
    put = [_put(one, beside, split, "beside", with_sentences) for one in put]
    return Examples(put, getattr(examples, "left_out", None))


def _joined(examples: list[Example], percent: int, split: str) -> list[Example]:
    # of questions whose answers stand somewhere: what both are read from is evidence, the answers are one text
    others = {}
    for page in by_picture([one for one in examples if one.evidence]):
        others |= {one.name: [other for other in page if other.answers != one.answers] for one in page}
    put = []
    for one in examples:
        random = Random(stable_hash(f"joined {split} {one.name} {one.question}"))
        if random.uniform(0, 100) < percent and others.get(one.name):
            other = random.choice(others[one.name])
            one = replace(
                one,
                question=in_one(one.question, other.question, split, random),
                answers=(f"{one.answers[0]}, {other.answers[0]}",),
                evidence=one.evidence + other.evidence,
                context=one.context + other.context,
                family="joined",
            )
        put.append(one)
    return put


def _put(one: Example, percent: int, split: str, kind: str, put: Callable[[str, str, Random], str]) -> Example:
    random = Random(stable_hash(f"{kind} {split} {one.name} {one.question}"))
    chosen = random.uniform(0, 100) < percent
    return replace(one, question=put(one.question, split, random)) if chosen else one
