"""How people put what they ask: other wordings of drawn questions, and what stands around them.

Those of the held-out split are other ones than those of training.
"""

import re
from collections.abc import Sequence
from random import Random

from training.world import words

# what people put around a question
AROUND = {
    "train": (
        "please tell me: {q}", "can you tell me, {q}", "I would like to know: {q}", "hello, {q}", "{q} please",
        "{q} thanks", "look at the picture: {q}", "in this image, {q}", "according to the page, {q}",
        "on this page, {q}", "please, {q}", "{q} thank you!", "I can't read it: {q}", "quick question: {q}",
        "based on the document, {q}", "could you look up {q}", "Question: {q}",
    ),
    "held_out": (
        "one more thing: {q}", "from what you see here, {q}", "help me with this - {q}", "{q} cheers", "Q: {q}",
        "{q} (asap)", "going by this picture, {q}", "good morning! {q}",
    ),
}  # fmt: skip
# what benchmarks and people put behind a question, to say how to answer it
INSTRUCTIONS = {
    "train": (
        "Answer with a single word.", "Answer in one word.", "Answer briefly.", "Please answer with a word or number only.",
        "Reply with the value only.", "Answer the question using a single word or phrase.", "Only the answer, please.",
        "Give a short answer.",
    ),
    "held_out": ("Respond with one word or phrase.", "Keep it short.", "Please reply in as few words as you can."),
}  # fmt: skip

_WORLD: tuple[tuple[Sequence[str], dict[str, Sequence[str]]], ...] = (
    (words.EITHER_QUESTIONS, {
        "train": (
            "{first}? if it isn't there, {second}", "give the {first}, else the {second}",
            "the {first}, or the {second} if there is no {first}", "is there a {first}? if not, what is the {second}?",
            "what's the {first} or else the {second}?",
        ),
        "held_out": ("I need the {first}; failing that, the {second}", "{first} or {second}, whichever is there"),
    }),
    (words.TABLE_REVERSE_QUESTIONS, {
        "train": (
            "{kind} with {column} {value}?", "whose {column} is {value}?", "{column} is {value}: which {kind}?",
            "name the {kind} that has {value} as {column}", "the {kind} whose {column} is {value}",
            "for which {kind} is the {column} {value}?",
        ),
        "held_out": ("a {column} of {value} belongs to which {kind}?", "find the {kind} with a {column} of {value}"),
    }),
    (words.TABLE_QUESTIONS, {
        "train": (
            "{row} {column}", "{column} {row}?", "what {column} does {row} have?", "what is the {column} for {row}?",
            "{row}: what is the {column}?", "tell me the {column} of {row}", "the {column} in the row {row}",
            "how much {column} has {row}?", "which {column} stands at {row}?",
        ),
        "held_out": ("what's {row}'s {column}?", "in the line of {row}, what is its {column}?", "{row} has which {column}?"),
    }),
    (words.CHART_EXTREME_QUESTIONS, {
        "train": (
            "the {extreme} bar", "which bar is {extreme}?", "name the {extreme} bar", "what has the {extreme} bar?",
            "what is {extreme} in the chart?", "which one has the {extreme} value?",
        ),
        "held_out": ("whose bar is the {extreme}?", "in this chart, what's {extreme}?"),
    }),
    (words.CHART_QUESTIONS, {
        "train": (
            "{label}?", "how high is {label}?", "what does the chart say for {label}?", "the bar of {label}",
            "value for {label}", "how much is {label}?", "what number has {label}?", "{label} in the chart",
        ),
        "held_out": ("what does {label} come to?", "which number belongs to {label}?"),
    }),
    (words.SIGN_QUESTIONS, {
        "train": (
            "what is written on the {colour} sign?", "the text of the {colour} sign", "{colour} sign?",
            "what's on the {colour} sign?", "which word is on the {colour} sign?",
            "what can you read on the {colour} board?",
        ),
        "held_out": ("the {colour} sign reads what?", "what word does the {colour} one show?"),
    }),
    (words.SHAPE_COLOUR_QUESTIONS, {
        "train": (
            "the colour of the {shape}", "what color is the {shape}?", "{shape} colour?",
            "in which colour is the {shape} drawn?", "tell me the color of the {shape}",
        ),
        "held_out": ("how is the {shape} coloured?", "the {shape} is what color?"),
    }),
    (words.COLOUR_SHAPE_QUESTIONS, {
        "train": (
            "what is the {colour} shape?", "name the {colour} thing", "the shape that is {colour}",
            "what has the colour {colour}?", "which figure is {colour}?",
        ),
        "held_out": ("the {colour} one is which shape?", "what's drawn in {colour}?"),
    }),
    (words.COUNT_QUESTIONS, {
        "train": (
            "number of {shapes}", "how many {shapes} can you see?", "how many {shapes}?", "the count of {shapes}",
            "tell me how many {shapes} there are",
        ),
        "held_out": ("how many {shapes} does it show?", "{shapes}: how many of them?"),
    }),
    (words.GIST_QUESTIONS, {
        "train": (
            "what is this?", "what type of page is this?", "is this a form, a table, a list, a chart or a scene?",
            "what do you see?", "describe the kind of page",
            "Describe this image.", "Describe the picture.", "describe the page in detail", "Describe what you see.",
            "Give a description of the image.", "What is shown in this image?", "What does this picture show?",
            "what's in this image?", "What's in the picture?", "What is this page about?", "what is the document about?",
            "Summarize this document.", "Give a summary of the page.", "summarise the page for me",
            "Write a caption for this image.", "Caption this picture.", "What kind of document is it?",
            "what type of image is this?", "Which type of document do we have here?", "What sort of picture is this?",
            "Explain this image.", "explain what is shown", "Tell me about this image.", "tell me what you see",
            "What can you see?", "What can be seen in the picture?", "what am I supposed to see here?",
            "Give me an overview of this page.", "What does the page look like?", "how would you describe this?",
            "In a few words, what is this?", "What are we looking at?", "classify this page", "Classify the document.",
            "What is going on in this image?", "what is happening here?",
            "What is the main content of this page?", "what's this all about?",
            "Please describe the scene.", "can you describe this picture for me?", "Name the type of this document.",
            "identify the kind of document", "What would you call a page like this?", "the kind of page", "type of document?",
            "What does this document contain?", "What is on this page?", "What is depicted here?", "kind of page",
            "Provide a brief description of the given image.", "What are the main contents of the picture?",
        ),
        "held_out": ("what sort of document is it?", "what am I looking at?"),
    }),
    (words.FIELD_QUESTIONS, {
        "train": (
            "{label}", "{label}?", "the {label}", "what's the {label}?", "show me the {label}", "find the {label}",
            "value of {label}", "tell me the {label}", "what is given as {label}?", "I need the {label}", "{label} =",
            "which value has {label}?", "what stands at {label}?", "could you give me the {label}?",
            "what kind of {label} is this?", "describe the {label}", "what {label} is shown in the image?",
            "what does the {label} say?", "which type of {label}?", "tell me about the {label}", "what {label} do you see?",
        ),
        "held_out": (
            "what did they put for {label}?", "let me have the {label}", "{label} - what is it?",
            "check the {label} for me",
        ),
    }),
)  # fmt: skip
_TABLE_KEYED = {
    "train": (
        "give me the {target} where {key} is {value}", "for {key} {value}, what is the {target}?",
        "the {target} in the row with {key} {value}", "if {key} is {value}, what is {target}?",
        "{key} {value} - {target}?", "tell me the {target} of {key} {value}",
    ),
    "held_out": ("{key}: {value}. {target}?", "which {target} goes with {key} {value}?"),
}  # fmt: skip
# for a value that stands once in the table, whatever the column
_TABLE_ALONE = {
    "train": (
        "{target} of {value}?", "{target} for {value}", "what {target} does {value} have?",
        "what was the {target} of {value}?", "{value}: {target}?", "which {target} belongs to {value}?",
        "what {target} is given for {value}?", "look up {value} and read its {target}",
    ),
    "held_out": ("what's {value}'s {target}?", "what is listed under {target} for {value}?"),
}  # fmt: skip
_FINDS = {
    "train": (
        "where on the page is {text}?", "show me {text}", "locate {text}", "is {text} there?", "point to {text}",
        "search for {text}", "where can I see {text}?",
    ),
    "held_out": ("in which place does {text} stand?", "I can't find {text}"),
}  # fmt: skip


def put_around(question: str, around: str, random: Random) -> str:
    """The question inside of `around`, one of `AROUND`'s; its first letter small and its question mark left out where fit."""
    inside = question.rstrip("?") if around.startswith("{q}") else question[0].lower() + question[1:]
    return around.format(q=inside.rstrip("?") if around.endswith("}") and random.random() < 0.5 else inside)


def spoken(question: str, split: str, random: Random) -> str:
    """The question as someone types it: with something around it, in small letters, in capitals, or as it is."""
    if random.random() < 0.4:
        question = put_around(question, random.choice(AROUND[split]), random)
    draw = random.random()
    if draw < 0.06:
        return question.upper()
    if draw < 0.3:
        return question.lower()
    return question[0].upper() + question[1:] if draw < 0.5 else question


def world_question(question: str, split: str, random: Random) -> str:
    """A question of the drawn world in other words, half of the time, and `spoken`."""
    if random.random() < 0.5:
        for drawn, further in _WORLD:
            names = _names(question, drawn)
            if names is not None:
                question = random.choice(further[split]).format(**names)
                break
    return spoken(question, split, random)


def instructed(question: str, split: str, random: Random) -> str:
    """The question with how to answer it behind it, in the same line or the next."""
    between = random.choice((" ", "\n"))
    ended = question if question[-1] in ".?!" else question + "."
    return ended + between + random.choice(INSTRUCTIONS[split])


def lookup_question(named: dict[str, str], alone: bool, split: str, random: Random) -> str:
    """What stands in a table's column `target`, in the row that `value` of the column `key` names.

    Args:
        named: these three by name.
        alone: whether no other cell has the value, so that its column need not be named.
    """
    frames = _TABLE_KEYED[split] + (_TABLE_ALONE[split] if alone else ())
    return random.choice(frames).format(**named)


def find_question(question: str, text: str, split: str, random: Random) -> str:
    """A question for where a text stands in other words, half of the time, and `spoken`."""
    if random.random() < 0.5:
        question = random.choice(_FINDS[split]).format(text=text)
    return spoken(question, split, random)


_LISTS = {
    "column": words.COLUMNS, "row": words.ROW_NAMES, "kind": words.ROWS, "extreme": words.EXTREMES, "colour": words.COLOURS,
    "shape": words.SHAPES, "shapes": words.PLURALS.values(),
}  # fmt: skip


def _names(question: str, drawn: Sequence[str]) -> dict[str, str] | None:
    # what a question names, where it was drawn from one of these
    for frame in drawn:
        found = re.fullmatch(re.sub(r"\\{(\w+)\\}", r"(?P<\1>.+)", re.escape(frame)), question)
        if found and all(_known(name, text) for name, text in found.groupdict().items()):
            return found.groupdict()
    return None


def _known(name: str, text: str) -> bool:
    return name not in _LISTS or text.lower() in {one.lower() for one in _LISTS[name]}
