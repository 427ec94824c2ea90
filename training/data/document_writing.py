"""What stands on an everyday page and what can be asked of it: labels and values, lists, records, sentences, and several of
these below each other."""

import re
from collections.abc import Iterable, Sequence
from random import Random

from training.data import document_words as words
from training.data.document_content import LIST, MIXED, PAIRS, RECORDS, TEXT, Asking, Content, Text
from training.data.document_records import KINDS, make_records
from training.data.document_sentences import SENTENCES
from training.data.document_values import Values
from training.data.table_archive import Table
from training.data.table_lookups import speaks, titled, words_of
from training.data.table_numbers import counted, numbers_in, sums_up

_LONGEST = 26  # characters of a table's text on such a page
_PHRASE = (4, 18)  # characters of a table's text that stands for a name of anything
_WORDS = re.compile(r"[A-Za-z]{3}[A-Za-z .'&/-]*")
_SLOT = re.compile(r"(\{\d\})")
# what lists of made-up texts hold: names, the kind of value beside each, and how both are asked for
_LISTS = (
    (words.THINGS, "amount", "amount"), (words.THINGS, "amount", "amount"), (words.THINGS, "number", "number"),
    (words.EVENTS, "time", "time"), (words.PLACES, "time", "value"), (words.PLACES, "number", "number"),
    (words.PLACES, "measure", "value"), (words.DAYS, "measure", "value"), (words.DAYS, "time", "value"),
    (words.MONTHS, "number", "value"), (words.LAST_NAMES, "number", "value"), (words.LAST_NAMES, "phone", "phone"),
    (words.LAST_NAMES, "date", "date"), (words.EVENTS, "day", "date"), (words.FIRST_NAMES, "percent", "value"),
)  # fmt: skip
# (wordings that ask for the value {v} of a name {k}, those that ask for the name)
_OF_LISTS = {
    "amount": (
        ("how much is the {k}?", "what does {k} cost?", "price of {k}", "{k}?", "how much do I pay for {k}?",
         "what is the price of the {k}?"),
        ("what costs {v}?", "which one is {v}?", "what can I get for {v}?", "{v} is the price of what?"),
    ),
    "time": (
        ("when is {k}?", "what time does {k} start?", "{k}?", "at what time is the {k}?", "{k} time"),
        ("what is at {v}?", "what happens at {v}?", "what starts at {v}?", "{v}?"),
    ),
    "date": (
        ("when is {k}?", "on which day is {k}?", "{k}?", "what date is given for {k}?", "{k} when?"),
        ("what is on {v}?", "{v}?", "which one is on {v}?", "for what is {v} given?"),
    ),
    "phone": (
        ("what is the number of {k}?", "how can I call {k}?", "{k}?", "phone of {k}", "which number has {k}?"),
        ("whose number is {v}?", "{v}?", "who has {v}?", "who answers at {v}?"),
    ),
    "number": (
        ("how many {k}?", "{k}?", "number of {k}?", "how many are there for {k}?", "count of {k}"),
        ("of which are there {v}?", "which one has {v}?", "{v}?", "what is counted {v} times?"),
    ),
    "value": (
        ("what is the value for {k}?", "{k}?", "what does it say for {k}?", "how much has {k}?", "what is given for {k}?"),
        ("which one has {v}?", "what has {v}?", "{v}?", "which one is {v}?", "where does it say {v}?"),
    ),
}  # fmt: skip
# the same of a table's columns; {h} is the header of what is asked for
_OF_COLUMNS = (
    ("what is the {h} of {k}?", "{h} of {k}?", "what {h} has {k}?", "what is the {h} for {k}?", "{k} {h}",
     "which {h} belongs to {k}?", "{k}?"),
    ("which one has the {h} {v}?", "who has {v}?", "which has {v}?", "what has the {h} {v}?", "{v} is the {h} of what?"),
)  # fmt: skip
_BY_HEAD = _OF_COLUMNS[0][:-1]  # without the name alone, which says not what is wanted
MOST = (
    "which has the highest value?",
    "what is the most?",
    "which one is the largest?",
    "who has the most?",
    "which is at the maximum?",
)
LEAST = (
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


def phrases_of(tables: Iterable[Table]) -> tuple[str, ...]:
    """The short texts of tables that can be names of anything, each once, in their order: words without figures."""
    texts = (text for table in tables for row in table.rows for text in row)
    fits = (text for text in texts if _PHRASE[0] <= len(text) <= _PHRASE[1] and _WORDS.fullmatch(text))
    return tuple(dict.fromkeys(fits))


def make_content(random: Random, tables: Sequence[Table], phrases: Sequence[str], lines: int) -> Content:
    """A page of about so many lines at most, some with texts of the tables or with phrases, of `phrases_of`."""
    family = random.choices((PAIRS, LIST, RECORDS, MIXED, TEXT), (22, 20, 24, 22, 12))[0]
    writer = _Writer(Content(family), Values(random, phrases), tables)
    if random.random() < 0.75:
        writer.title()
    {
        PAIRS: writer.pairs,
        LIST: writer.entries,
        RECORDS: writer.records,
        MIXED: writer.mixed,
        TEXT: writer.sentences,
    }[family](lines)
    return writer.content


class _Writer:
    """Adds blocks, and what can be asked of them, to a page."""

    def __init__(self, content: Content, values: Values, tables: Sequence[Table]):
        self.content, self.values, self.random, self.tables = content, values, values.random, tables

    def ask(
        self,
        wordings: Sequence[str],
        answer: Text,
        named: Iterable[Text],
        compared: Iterable[Text] = (),
        **words_in: str,
    ) -> None:
        """Adds a question in one of the wordings, in one of the ways that people type."""
        question = self.random.choice(wordings).format(**words_in)
        style = self.random.random()
        if style < 0.35:
            question = question[0].upper() + question[1:]
        elif style < 0.7:
            question = question.lower()
        if self.random.random() < 0.2:
            question = question.rstrip("?")
        self.content.questions.append(Asking(question, answer, tuple(named), tuple(compared)))

    def title(self) -> None:
        firm = " & ".join(self.random.sample(words.LAST_NAMES, 2))
        text, kind = self.random.choice(
            (
                (self.random.choice(words.TITLES), "page"),
                (firm, "firm"),
                (self.random.choice(words.PLACES), "place"),
                (self.random.choice(self.values.phrases or words.TITLES), "page"),
            )
        )
        self.content.title = Text(text, True)
        self.ask(words.ASKING_TITLES[kind], self.content.title, [])

    def mixed(self, lines: int) -> None:
        """Some labels and a list or records, with what else such pages have: a bar of words, headings, a closing line."""
        if self.random.random() < 0.2:
            self.content.block("bar").append(tuple(map(Text, self.random.sample(words.TITLES, 3))))
        things = self.random.choice((self.entries, self.records))
        parts = [(self.pairs, self.random.randint(1, max(1, lines // 2))), (things, max(3, lines * 2 // 3))]
        if self.random.random() < 0.3:
            parts.reverse()
        for write, most in parts:
            if self.random.random() < 0.3:
                heading = self.random.choice((self.random.choice(words.TITLES), self.values.make("free")))
                self.content.block("bar").append((Text(heading, True),))
            write(most)
        if self.random.random() < 0.3:
            self.content.block("text").append(_filler(self.random))

    def pairs(self, lines: int) -> None:
        added = self.content.block("pairs")
        kinds = [*words.LABELS]
        if self.random.random() < 0.4:  # a page of one kind, such as settings or a bill
            kinds = self.random.sample(kinds, self.random.randint(1, 2))
        labels = [(kind, label, other) for kind in kinds for label, other in words.LABELS[kind]]
        states = self.random.choice(words.STATES)
        colon = self.random.choice(("", ":"))
        for kind, label, other in self.random.sample(labels, min(lines, len(labels))):
            own = words.OTHER_VALUES.get(label, kind)
            value = self.random.choice(states) if kind == "state" else self.values.make(own)
            strong = self.random.random() < 0.1
            name, shown = Text(label + colon, strong), Text(value, strong)
            added.append((name, shown))
            others = [text for text in other.split("|") if text]
            if others and self.random.random() < 0.5:
                chosen = self.random.choice(others)
                self.ask((chosen,) if chosen.endswith("?") else words.asking(kind, chosen), shown, [name], l=chosen)
            else:
                self.ask(words.asking(kind, label), shown, [name], l=self.random.choice((label, label.lower())))

    def records(self, lines: int) -> None:
        kind = self.random.choice(KINDS)
        headed = kind.alike or self.random.random() < 0.4
        records, fields = make_records(self.values, kind, min(lines, self.random.randint(2, 14)))
        added = self.content.block("headed" if headed else "records")
        heads = [Text(head, True) for _, head in kind.fields]
        if headed:
            added.append(tuple(heads[field] for field in fields))
        for record in records:
            texts = [Text(value) for value in record]
            added.append(tuple(texts[field] for field in fields))
            for answer, key, wordings in kind.asked:
                if {answer, key} <= {*fields}:
                    head, name = heads[answer], texts[key].text
                    by_head = head.text in words.NOUNS and self.random.random() < (0.4 if headed else 0.15)
                    named = [texts[key], head] if headed else [texts[key]]
                    said = _BY_HEAD if by_head else wordings.split("|")
                    self.ask(said, texts[answer], named, k=name, h=head.text.lower())

    def entries(self, lines: int) -> None:
        if self.random.random() < 0.45 and self._table_list(self.random.choice(self.tables), lines):
            return
        of, kind, way = self.random.choice(_LISTS)
        if self.values.phrases and of in (words.THINGS, words.EVENTS) and self.random.random() < 0.5:
            of = self.random.sample(self.values.phrases, min(20, len(self.values.phrases)))
        names = self.random.sample(of, min(lines, len(of), self.random.randint(3, 14)))
        if of in (words.DAYS, words.MONTHS):
            names.sort(key=of.index)
        shown = [self.values.make(kind) for _ in names]
        further = None
        if kind in ("amount", "time") and self.random.random() < 0.5:
            further = [self.values.make(self.random.choice(("small", "word", "code"))) for _ in names]
        pairs = self._rows(names, shown, _OF_LISTS[way], further)
        amounts = numbers_in(shown)
        summed = kind == "amount" and amounts and self.content.family == LIST and self.random.random() < 0.5
        if further is None and kind in ("amount", "number", "percent") and not summed:
            self._ask_ends(pairs)
        if summed:
            label = Text(self.random.choice(("Total", "TOTAL", "Sum", "Amount due")), True)
            total = Text(self.values.amount(sum(amounts)), True)
            self.content.blocks[-1].lines.append((label, total))
            self.ask(_TOTAL, total, [label])

    def _table_list(self, table: Table, lines: int) -> bool:
        """Adds two columns of a table, and says whether it has such."""
        columns = titled(table.header)
        if len(columns) < 2:
            return False
        name, value = self.random.sample(columns, 2)
        rows = [
            row for row in table.rows
            if all(speaks(row[column]) and len(row[column]) <= _LONGEST for column in (name, value))
        ]  # fmt: skip
        rows = self.random.sample(rows, min(len(rows), lines))
        if len(rows) < 3 or len({words_of(row[name]) for row in rows}) < len(rows):
            return False
        header = Text(table.header[name], True), Text(table.header[value], True)
        headed = self.random.random() < 0.4 and sum(len(text.text) for text in header) < _LONGEST
        names, shown = ([row[column] for row in rows] for column in (name, value))
        pairs = self._rows(names, shown, _OF_COLUMNS, header=header if headed else None, h=table.header[value])
        if counted(table.header[value]) == "amount" and not any(map(sums_up, names)):
            self._ask_ends(pairs)
        return True

    def _rows(self, names, shown, wordings, further=None, header=None, **words_in: str) -> list[tuple[Text, Text]]:
        """Adds a line for each name, what is shown of it, and a further text where there is one; and what can be asked. The names
        and what is shown of them."""
        added = self.content.block("headed" if header else "rows")
        turned = header is None and self.random.random() < 0.25  # names last
        if header:
            added.append(header)
        pairs = [(Text(name), Text(value)) for name, value in zip(names, shown, strict=True)]
        for number, (name, value) in enumerate(pairs):
            first, last = (value, name) if turned else (name, value)
            added.append((first, last) if further is None else (first, Text(further[number]), last))
            said = {"k": name.text, "v": value.text, **words_in}
            self.ask(wordings[0], value, [name, *(header or ())], **said)
            self.ask(wordings[1], name, [value, *(header or ())], **said)
        return pairs

    def _ask_ends(self, pairs: Sequence[tuple[Text, Text]]) -> None:
        """Asks which name has most and which has least, where nothing else on the page can be meant."""
        amounts = numbers_in(value.text for _, value in pairs)
        if self.content.family != LIST or len(pairs) < 3 or amounts is None:
            return
        for best, asked in ((max(amounts), MOST), (min(amounts), LEAST)):
            if amounts.count(best) == 1:
                name, value = pairs[amounts.index(best)]
                self.ask(asked, name, [value], [other for _, other in pairs])

    def sentences(self, lines: int) -> None:
        added, used = self.content.block("text"), set()
        for template, *places in self.random.sample(SENTENCES, min(lines, self.random.randint(1, 5))):
            if self.random.random() < 0.3:
                added.append(_filler(self.random))
            line: list[Text] = []
            for part in _SLOT.split(template):
                if not _SLOT.fullmatch(part):
                    line += map(Text, part.split())
                    continue
                kind, asked = places[int(part[1:-1])]
                value = Text(self.values.make(kind))
                line.append(value)
                if value.text.lower() not in used:
                    self.ask(asked.split("|"), value, [])
                used.add(value.text.lower())
            added.append(tuple(line))


def _filler(random: Random) -> tuple[Text, ...]:
    return tuple(map(Text, random.choice(words.FILLERS).split()))
