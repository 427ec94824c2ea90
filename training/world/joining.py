"""Two questions in one prompt, as people put them. How they are joined in the held-out split is other than in training."""

import re
from random import Random

# {a} and {b} are questions as they are, {c} is the second with a small first letter
_JOINED = {
    "train": (
        "{a} {b}", "{a} {b}", "{a}\n{b}", "{a} And {c}", "{a} and {c}", "{a} Also, {c}", "{a} also {c}", "{a} Then: {b}",
        "1. {a}\n2. {b}", "1) {a} 2) {b}", "first: {a} second: {b}", "I have two questions. {a} {b}", "{a} Besides, {c}",
        "{a} as well as: {b}", "{a}, {c}", "Question 1: {a}\nQuestion 2: {b}", "{a} / {b}", "{a} After that: {c}",
    ),
    "held_out": (
        "{a} And also: {b}", "(a) {a} (b) {b}", "Two things: {a} {b}", "{a} & {c}", "- {a}\n- {b}", "{a} In addition, {c}",
        "{a} Next, {c}", "Please answer both: {a} {b}",
    ),
}  # fmt: skip
# of two that ask what something is
_NAMED = {
    "train": (
        "What is {a} and {b}?", "What are {a} and {b}?", "Give me {a} and {b}.", "{a} and {b}?", "I need {a} and {b}",
        "What is {a}, and what is {b}?", "Read {a} and {b}", "Tell me both {a} and {b}.", "{a}, {b}", "list {a} and {b}",
    ),
    "held_out": (
        "What's {a} as well as {b}?", "I'd like to know {a} plus {b}.", "{a} along with {b}", "Can you read out {a}, and {b}?",
    ),
}  # fmt: skip
_ASKS_WHAT = re.compile(r"what(?:'s| is| are) (?P<it>the [^?.]+?)[?.]?", re.IGNORECASE)


def joined(first: str, second: str, split: str, random: Random) -> str:
    """Both questions in one text; of two that ask what something is half of the time in one sentence, which names both."""
    named = [_ASKS_WHAT.fullmatch(question.strip()) for question in (first, second)]
    if all(named) and random.random() < 0.5:
        things = [found["it"] for found in named if found]
        if random.random() < 0.3:
            things[1] = re.sub(r"^the ", "", things[1], flags=re.IGNORECASE)
        text = random.choice(_NAMED[split]).format(a=things[0], b=things[1])
        return text[0].upper() + text[1:] if random.random() < 0.5 else text
    ended = [question if question[-1] in ".?!" else question + random.choice("?.") for question in (first, second)]
    as_asked = first if random.random() < 0.2 else ended[0]  # some leave the mark out
    return random.choice(_JOINED[split]).format(a=as_asked, b=ended[1], c=ended[1][0].lower() + ended[1][1:])
