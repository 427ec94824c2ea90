"""A question on a page, its answer, and where on the page the answer is read."""

from dataclasses import dataclass

from training.world.canvas import Box, Point, Written, centre


@dataclass(frozen=True)
class Question:
    """A question on a page; all places are in pixels.

    `evidence` holds the boxes (left, top, right, bottom) of the answer's own place, then that of the value it is found by,
    where it is found by one; none where the answer has no place. `reads` has one entry per character of the answer, the
    points at which it is read: the character's centre, or the centres of the shapes that say it, and those of the
    characters it is found by; it is empty where the answer has no place.
    """

    text: str
    answer: str
    evidence: tuple[Box, ...]
    family: str
    reads: tuple[tuple[Point, ...], ...]


def written(text: str, answer: str, place: Written, family: str) -> Question:
    """A question whose answer is written on the page, character by character."""
    return Question(text, answer, (place.box,), family, tuple((point,) for point in place.centres))


def found(text: str, answer: str, place: Written, by: Written, family: str) -> Question:
    """A question whose answer is written at `place` and found by the value at `by`: which name has it, or the highest."""
    reads = tuple((point, *by.centres) for point in place.centres)
    return Question(text, answer, (place.box, by.box), family, reads)


def seen(text: str, answer: str, boxes: list[Box], family: str) -> Question:
    """A question whose answer is seen in shapes; without shapes it has no place."""
    points = tuple(centre(box) for box in boxes)
    return Question(text, answer, tuple(boxes), family, (points,) * len(answer) if points else ())


def placeless(text: str, answer: str, family: str) -> Question:
    """A question whose answer has no place of its own on the page."""
    return Question(text, answer, (), family, ())
