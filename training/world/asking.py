"""Questions about fields, signs, shapes and whole pages, each with one answer only."""

from random import Random

from training.world import words
from training.world.fields import Field
from training.world.objects import Shape, Sign
from training.world.question import Question, placeless, seen, written


def ask_fields(random: Random, fields: list[Field], family: str) -> list[Question]:
    """What each field's value is."""
    return [
        written(random.choice(words.FIELD_QUESTIONS).format(label=x.label.lower()), x.value, x.place, family)
        for x in fields
    ]


def ask_absent(random: Random, present: list[str]) -> list[Question]:
    """A question for a label that is not on the page, nor like one that is; none where every label is."""
    others = [label for label in words.LABELS if not any(words.alike(label, other) for other in present)]
    return [
        placeless(random.choice(words.FIELD_QUESTIONS).format(label=label.lower()), words.ABSENT, "absent")
        for label in random.sample(others, min(1, len(others)))
    ]


def ask_gist(random: Random, kind: str) -> Question:
    """What kind of page it is, one of `words.PAGE_KINDS`."""
    return placeless(random.choice(words.GIST_QUESTIONS), kind, "gist")


def ask_signs(random: Random, signs: list[Sign]) -> list[Question]:
    """What each sign says."""
    return [
        written(random.choice(words.SIGN_QUESTIONS).format(colour=x.colour), x.text, x.place, "sign") for x in signs
    ]


def ask_shapes(random: Random, shapes: list[Shape], signs: list[Sign]) -> list[Question]:
    """The colour of each shape that is the only one of its kind, and the shape of each colour that nothing else has."""
    asked = []
    kinds, colours = [x.kind for x in shapes], [x.colour for x in shapes] + [x.colour for x in signs]
    for shape in shapes:
        if kinds.count(shape.kind) == 1:
            text = random.choice(words.SHAPE_COLOUR_QUESTIONS).format(shape=shape.kind)
            asked.append(seen(text, shape.colour, [shape.box], "shape_colour"))
        if colours.count(shape.colour) == 1:
            text = random.choice(words.COLOUR_SHAPE_QUESTIONS).format(colour=shape.colour)
            asked.append(seen(text, shape.kind, [shape.box], "colour_shape"))
    return asked


def ask_counts(random: Random, shapes: list[Shape]) -> list[Question]:
    """How many shapes there are of each kind on the page, and of one that is not."""
    kinds = sorted({x.kind for x in shapes})
    missing = [kind for kind in words.SHAPES if kind not in kinds]
    asked = []
    for kind in [*kinds, *random.sample(missing, min(1, len(missing)))]:
        boxes = [x.box for x in shapes if x.kind == kind]
        text = random.choice(words.COUNT_QUESTIONS).format(shapes=words.PLURALS[kind])
        asked.append(seen(text, str(len(boxes)), boxes, "counting"))
    return asked
