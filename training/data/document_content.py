"""What stands on an everyday page and what can be asked of it: labels and values, lists, and sentences."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from random import Random

from training.data import document_words as words
from training.data.document_values import make_value
from training.data.table_archive import Table
from training.data.table_lookups import speaks, titled, words_of
from training.data.table_reasoning import number_in

PAIRS, LIST, TEXT = "document_pairs", "document_list", "document_text"  # families
_LONGEST = 26  # characters of a table's text on such a page
_PLACE = re.compile(r"(\{\d\})")
# what lists of made-up texts hold: names, and the kind of value beside each
_LISTS = (
    (words.THINGS, "amount"), (words.THINGS, "amount"), (words.THINGS, "number"), (words.EVENTS, "time"), (words.PLACES, "time"),
    (words.PLACES, "number"), (words.PLACES, "measure"), (words.DAYS, "measure"), (words.DAYS, "time"),
    (words.MONTHS, "number"), (words.LAST_NAMES, "number"), (words.LAST_NAMES, "phone"), (words.LAST_NAMES, "date"),
    (words.EVENTS, "day"), (words.FIRST_NAMES, "percent"),
)  # fmt: skip
# (wordings that ask for the value {v} of a name {e}, those that ask for the name); {h} is a header
_OF_AMOUNTS = (
    ("how much is the {e}?", "what does {e} cost?", "price of {e}", "{e}?", "how much do I pay for {e}?",
     "what is the price of the {e}?"),
    ("what costs {v}?", "which one is {v}?", "what can I get for {v}?", "{v} is the price of what?"),
)  # fmt: skip
_OF_TIMES = (
    ("when is {e}?", "what time does {e} start?", "{e}?", "at what time is the {e}?", "{e} time"),
    ("what is at {v}?", "what happens at {v}?", "what starts at {v}?", "{v}?"),
)  # fmt: skip
_OF_OTHERS = (
    ("what is the value for {e}?", "{e}?", "what does it say for {e}?", "how much has {e}?", "what stands beside {e}?",
     "how many {e}?"),
    ("which one has {v}?", "what has {v}?", "{v}?", "which one is {v}?", "where does it say {v}?"),
)  # fmt: skip
_OF_COLUMNS = (
    ("what is the {h} of {e}?", "{h} of {e}?", "what {h} has {e}?", "what is the {h} for {e}?", "{e} {h}",
     "which {h} belongs to {e}?", "{e}?"),
    ("which one has the {h} {v}?", "who has {v}?", "which has {v}?", "what has the {h} {v}?", "{v} is the {h} of what?"),
)  # fmt: skip
_MOST = (
    "which has the highest value?",
    "what is the most?",
    "which one is the largest?",
    "who has the most?",
    "which is at the maximum?",
)
_LEAST = (
    "which has the lowest value?",
    "what is the least?",
    "which one is the smallest?",
    "who has the fewest?",
    "which is at the minimum?",
)
_TOTAL = (
    "what is the total?",
    "how much is it in all?",
    "what is the sum of all?",
    "total?",
    "what has to be paid?",
    "grand total",
)


@dataclass(frozen=True, eq=False)
class Text:
    """One text of a page; `strong` if it is drawn to stand out."""

    text: str
    strong: bool = False


@dataclass(frozen=True)
class Asking:
    """A question, the texts that answer it, and the further ones that it is found by."""

    question: str
    answer: Text
    named: tuple[Text, ...] = ()


@dataclass
class Content:
    """The lines of a page, each of some texts, and its questions. `shape` says how lines can stand: `pairs` of a label and its
    value, `rows` of one thing each, `text` of words that follow each other."""

    family: str
    shape: str
    title: str
    lines: list[tuple[Text, ...]] = field(default_factory=list)
    questions: list[Asking] = field(default_factory=list)

    def ask(self, random: Random, wordings: Sequence[str], answer: Text, named: Iterable[Text], **words_in) -> None:
        """Adds a question in one of the wordings, in one of the ways that people type."""
        question = random.choice(wordings).format(**words_in)
        style = random.random()
        if style < 0.35:
            question = question[0].upper() + question[1:]
        elif style < 0.7:
            question = question.lower()
        if random.random() < 0.2:
            question = question.rstrip("?")
        self.questions.append(Asking(question, answer, tuple(named)))


def make_content(random: Random, tables: Sequence[Table], lines: int) -> Content:
    """A page of at most so many lines, some with texts of the tables."""
    kind = random.random()
    if kind < 0.35:
        return _pairs(random, lines)
    if kind < 0.6:
        return _own_list(random, lines)
    if kind < 0.8:
        return _table_list(random, random.choice(tables), lines) or _own_list(random, lines)
    return _sentences(random, lines)


def _title(random: Random) -> str:
    title = random.choice(words.TITLES)
    firm = f"{random.choice(words.LAST_NAMES)} & {random.choice(words.LAST_NAMES)}"
    return random.choice((title, "", firm, random.choice(words.PLACES)))


def _pairs(random: Random, lines: int) -> Content:
    content = Content(PAIRS, "pairs", _title(random))
    kinds = [*words.LABELS]
    if random.random() < 0.4:  # a page of one kind, such as settings or a bill
        kinds = random.sample(kinds, random.randint(1, 2))
    labels = [(kind, label, other) for kind in kinds for label, other in words.LABELS[kind]]
    states = random.choice(words.STATES)
    used: set[str] = set()
    for kind, label, other in random.sample(labels, min(lines, len(labels))):
        value = random.choice(states) if kind == "state" else make_value(random, words.OTHER_VALUES.get(label, kind))
        if value.lower() in used and kind != "state":
            continue
        used.add(value.lower())
        strong = random.random() < 0.1
        name, shown = Text(label + random.choice(("", ":")), strong), Text(value, strong)
        content.lines.append((name, shown))
        others = [text for text in other.split("|") if text]
        if others and random.random() < 0.5:
            chosen = random.choice(others)
            wordings = (chosen,) if chosen.endswith("?") else words.ASKING[kind]
            content.ask(random, wordings, shown, [name], l=chosen)
        else:
            content.ask(random, words.ASKING[kind], shown, [name], l=random.choice((label, label.lower())))
    return content


def _own_list(random: Random, lines: int) -> Content:
    content = Content(LIST, "rows", _title(random))
    entries, kind = random.choice(_LISTS)
    names = random.sample(entries, min(lines, len(entries), random.randint(3, 14)))
    if entries in (words.DAYS, words.MONTHS):
        names.sort(key=entries.index)
    values = _different(random, kind, len(names))
    further = None
    if random.random() < 0.35:
        further = [make_value(random, random.choice(("small", "word", "code"))) for _ in names]
    wordings = {"amount": _OF_AMOUNTS, "time": _OF_TIMES}.get(kind, _OF_OTHERS)
    _rows(content, random, names, values, further, wordings, {})
    if kind == "amount" and random.random() < 0.5:
        total = Text(make_value(random, kind), True)
        label = Text(random.choice(("Total", "TOTAL", "Sum", "Amount due")), True)
        content.lines.append((label, total))
        content.ask(random, _TOTAL, total, [label])
    return content


def _table_list(random: Random, table: Table, lines: int) -> Content | None:
    columns = titled(table.header)
    if len(columns) < 2 or len(table.rows) < 3:
        return None
    name, value = random.sample(columns, 2)
    rows = [
        row for row in table.rows
        if all(speaks(row[column]) and len(row[column]) <= _LONGEST for column in (name, value))
    ]  # fmt: skip
    rows = random.sample(rows, min(len(rows), lines))
    if len(rows) < 3 or len({words_of(row[name]) for row in rows}) < len(rows):
        return None
    content = Content(LIST, "rows", random.choice(("", table.header[value])))
    headed = random.random() < 0.4 and len(table.header[name]) + len(table.header[value]) < _LONGEST
    header = {name: Text(table.header[name], True), value: Text(table.header[value], True)}
    if headed:
        content.lines.append((header[name], header[value]))
    head = {"h": table.header[value]}
    _rows(content, random, [row[name] for row in rows], [row[value] for row in rows], None, _OF_COLUMNS, head)
    return content


def _rows(content: Content, random: Random, names, values, further, wordings, head) -> None:
    """Adds a line for each name, its value, and a further text where there is one; and what can be asked of them."""
    turned = random.random() < 0.25  # values first
    shown = [(Text(name), Text(value)) for name, value in zip(names, values, strict=True)]
    for number, (name, value) in enumerate(shown):
        line = (value, name) if turned else (name, value)
        if further is not None:
            line = (line[0], Text(further[number]), line[1])
        content.lines.append(line)
    folded = [value.lower() for value in values]
    for name, value in shown:
        inserted = {"e": random.choice((name.text, name.text.lower())), "v": value.text, **head}
        content.ask(random, wordings[0], value, [name], **inserted)
        if folded.count(value.text.lower()) == 1:
            content.ask(random, wordings[1], name, [value], **inserted)
    numbers = [number_in(value) for value in values]
    if None not in numbers and len({unit for _, unit in numbers}) == 1 and len(numbers) > 2:
        amounts = [number for number, _ in numbers]
        for best, asked in ((max(amounts), _MOST), (min(amounts), _LEAST)):
            if amounts.count(best) == 1:
                name, value = shown[amounts.index(best)]
                content.ask(random, asked, name, [value])


def _different(random: Random, kind: str, count: int) -> list[str]:
    found: dict[str, None] = {}
    while len(found) < count and (kind != "day" or len(found) < len(words.DAYS)):
        found.setdefault(make_value(random, kind))
    return [*found] + [make_value(random, "small") for _ in range(count - len(found))]


def _sentences(random: Random, lines: int) -> Content:
    content = Content(TEXT, "text", _title(random))
    used: set[str] = set()
    for template, *places in random.sample(words.SENTENCES, min(lines, random.randint(1, 5))):
        if random.random() < 0.3:
            content.lines.append(tuple(map(Text, random.choice(words.FILLERS).split())))
        line: list[Text] = []
        for part in _PLACE.split(template):
            if not _PLACE.fullmatch(part):
                line += map(Text, part.split())
                continue
            kind, asked = places[int(part[1:-1])]
            value = Text(make_value(random, kind))
            line.append(value)
            if value.text.lower() not in used:
                content.ask(random, asked.split("|"), value, [])
            used.add(value.text.lower())
        content.lines.append(tuple(line))
    return content
