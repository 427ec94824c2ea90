"""What stands on an everyday page, and what is asked of it."""

from dataclasses import dataclass, field

PAIRS, LIST, TEXT = "document_pairs", "document_list", "document_text"  # families
RECORDS, MIXED = "document_records", "document_mixed"


@dataclass(frozen=True, eq=False)
class Text:
    """One text of a page; `strong` if it is drawn to stand out."""

    text: str
    strong: bool = False


@dataclass(frozen=True)
class Asking:
    """A question, the text that answers it, the further ones that it is found by, and those that have to be compared for it."""

    question: str
    answer: Text
    named: tuple[Text, ...] = ()
    compared: tuple[Text, ...] = ()


@dataclass(frozen=True, eq=False)
class Block:
    """Lines of some texts each. `shape` says how they can stand: `pairs` of a label and its value, `rows` of one thing each,
    `records` of things with several values, `headed` ones below the names of these, `text` of words that follow each other, a `bar`
    of words beside each other."""

    shape: str
    lines: list[tuple[Text, ...]] = field(default_factory=list)


@dataclass
class Content:
    """What stands on a page from its top down, and its questions."""

    family: str
    title: Text | None = None
    blocks: list[Block] = field(default_factory=list)
    questions: list[Asking] = field(default_factory=list)

    @property
    def lines(self) -> list[tuple[Text, ...]]:
        """The lines of all blocks."""
        return [line for block in self.blocks for line in block.lines]

    def block(self, shape: str) -> list[tuple[Text, ...]]:
        """Begins a block, and returns its lines."""
        self.blocks.append(Block(shape))
        return self.blocks[-1].lines
