"""What `varied` everyday pages have beside the plain ones: values above, below or before their labels and larger than these, texts
in capitals, and questions in further wordings."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from random import Random

from PIL import ImageFont

from training.data.document_content import Asking, Block, Content, Text
from training.data.table_style import TableStyle, width_of
from training.world.wordings import AROUND, put_around

# ways to ask for what stands at a label; where a page's own wordings say it in a sentence
_OF_LABELS = (
    "{l}", "{l}", "the {l}", "{l} please", "{l}, please", "what is the {l}?", "what's the {l}?", "show me the {l}",
    "I need the {l}", "find the {l}", "read the {l}", "which {l}?", "{l} =", "{l}:", "value of {l}", "what does it say for {l}?",
    "what is given as {l}?", "I would like to know the {l}", "could you give me the {l}?", "do you see the {l}?",
    "what is the value of {l}?", "tell me {l}", "what is {l}?", "what stands at {l}?", "I am looking for the {l}",
    "what is shown for {l}?",
)  # fmt: skip
_QUOTES = ('"{}"', "'{}'", "“{}”", "\u2018{}\u2019")
Standing = tuple[Text, ImageFont.FreeTypeFont, int, int]  # a text, its font, and its x and y
_ENOUGH = 40  # phrases for the labels of a page
_ORDERS = (*["above"] * 4, *["below"] * 4, "before")  # where a tile's label stands, or that its value stands before it


def varied(content: Content, phrases: Sequence[str], random: Random, split: str) -> Content:
    """The content with `phrases` as labels, with texts in capitals, and asked as other people would, each of it on some pages; what
    stands around a question is of the split."""
    if len(phrases) > _ENOUGH and random.random() < 0.6:
        content = _relabelled(content, phrases, random)
    content = _recased(content, random)
    labels = _labels(content)
    return replace(content, questions=[_reworded(one, labels, random, split) for one in content.questions])


def _labels(content: Content) -> list[Text]:
    return [line[0] for block in content.blocks if block.shape == "pairs" for line in block.lines]


def _relabelled(content: Content, phrases: Sequence[str], random: Random) -> Content:
    labels = _labels(content)
    names = dict(zip(labels, random.sample(phrases, len(labels)), strict=True))
    asked = [
        replace(one, question=random.choice(_OF_LABELS).format(l=names[one.named[0]]))
        if one.named and one.named[0] in names
        else one
        for one in content.questions
    ]
    new = {text: replace(text, text=name + ":" * text.text.endswith(":")) for text, name in names.items()}
    return _exchanged(replace(content, questions=asked), new)


def _recased(content: Content, random: Random) -> Content:
    draw, upper = random.random(), []
    texts = [content.title] if content.title else []
    texts += [text for line in content.lines for text in line]
    if draw < 0.25:
        upper = _labels(content) + [text for text in texts if text.strong]
    elif draw < 0.35:
        upper = [line[0] for block in content.blocks if block.shape in ("rows", "records") for line in block.lines]
    elif draw < 0.4:
        upper = texts
    return _exchanged(content, {text: replace(text, text=text.text.upper()) for text in upper})


def _exchanged(content: Content, new: dict[Text, Text]) -> Content:
    def of(texts: Iterable[Text]) -> tuple[Text, ...]:
        return tuple(new.get(text, text) for text in texts)

    blocks = [Block(block.shape, [of(line) for line in block.lines]) for block in content.blocks]
    asked = [replace(one, answer=new.get(one.answer, one.answer), named=of(one.named)) for one in content.questions]
    return Content(content.family, new.get(content.title, content.title), blocks, asked)


def _reworded(one: Asking, labels: Sequence[Text], random: Random, split: str) -> Asking:
    question, name = one.question, one.named[0].text.rstrip(":") if one.named else ""
    draw = random.random()
    if draw < 0.4 and len(one.named) == 1 and one.named[0] in labels:
        name = random.choice((name, name.lower(), name.lower(), name.capitalize(), name.title()))
        question = random.choice(_OF_LABELS).format(l=name)
    elif draw < 0.6:
        question = put_around(question, random.choice(AROUND[split]), random)
    start = question.lower().find(name.lower()) if name else -1
    if start >= 0 and random.random() < 0.2:
        said = question[start : start + len(name)]
        said = random.choice((said.upper(), said.title(), *(quotes.format(said) for quotes in _QUOTES)))
        question = question[:start] + said + question[start + len(name) :]
    if random.random() < 0.04:
        question = question.upper()
    elif random.random() < 0.3:
        question = question[0].upper() + question[1:]
    return replace(one, question=question)


@dataclass(frozen=True)
class Tiles:
    """How tiles stand: their number beside each other, where a tile's label is, the pixels between its texts and below it, the
    font of its value, whether they stand in its middle, and whether it has a frame."""

    across: int
    order: str  # one of _ORDERS
    gap: int
    below: int
    value: ImageFont.FreeTypeFont
    middle: bool
    framed: bool

    @classmethod
    def pick(cls, style: TableStyle, random: Random) -> "Tiles":
        """Tiles of any kind, for the texts of a style."""
        order, gap = random.choice(_ORDERS), random.choice((0, 1, 2, 3, 5, 8, 12))
        grown = style.size * (random.uniform(1, 2) if random.random() < 0.75 else 1)
        font = (style.head() if random.random() < 0.4 else style.body()).font_variant(size=round(grown))
        framed = random.random() < 0.3
        # nearer to its own than to the next
        below = random.randint(3, 24) + (0 if framed or order == "before" else gap)
        return cls(random.choice((1, 2, 2, 3)), order, gap, below, font, random.random() < 0.3, framed)

    def place(self, texts: Sequence[Text], label: ImageFont.FreeTypeFont) -> tuple[list[Standing], int, int]:
        """Where the texts of a tile stand from its corner on, and its width and height; its value is the last text."""
        pairs = [*zip(texts, [label] * (len(texts) - 1) + [self.value], strict=True)]
        if self.order != "above":
            pairs.reverse()
        sizes = [(width_of(text.text, font), sum(font.getmetrics())) for text, font in pairs]
        widths, heights = zip(*sizes, strict=True)
        if self.order == "before":  # on one base line
            across = [sum(widths[:n]) + n * (self.gap + 3) for n in range(len(pairs) + 1)]
            base = self.value.getmetrics()[0]
            found = [(*pair, x, base - pair[1].getmetrics()[0]) for pair, x in zip(pairs, across, strict=False)]
            return found, across[-1], max(heights)
        down = [sum(heights[:n]) + n * self.gap for n in range(len(pairs))]
        wide = max(widths)
        lefts = [(wide - width) // 2 if self.middle else 0 for width in widths]
        found = [(*pair, x, y) for pair, x, y in zip(pairs, lefts, down, strict=True)]
        return found, wide, down[-1] + heights[-1]
