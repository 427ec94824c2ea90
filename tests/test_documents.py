"""Everyday pages: what stands on them, what is asked, and where the answer's ink is."""

from itertools import pairwise
from pathlib import Path
from random import Random

import numpy as np
import pytest

from tests.small_archive import archive_files, tar_of
from training.data import DataError, load_examples
from training.data.document_content import LIST, MIXED, PAIRS, RECORDS, TEXT, Block, Content, Text
from training.data.document_page import LAYOUTS, VARIED_LAYOUTS, Page
from training.data.document_records import KINDS, make_records
from training.data.document_sentences import SENTENCES
from training.data.document_values import Values
from training.data.document_words import ASKING, LABELS, NOUNS, OTHER_VALUES, PLAIN_LABELS, asking
from training.data.document_writing import LEAST, MOST, _Writer, make_content, phrases_of
from training.data.documents import _Drawing, _examples, load_documents
from training.data.table_archive import Table
from training.data.table_lookups import words_of
from training.data.table_numbers import number_in, numbers_in
from training.data.table_style import pick_style, width_of
from training.world.fonts import HELD_OUT_FONTS

PHRASES = ("Oak gate", "Lilac", "Red sea")
TABLE = Table(("Name", "Points"), (("Ada", "117"), ("Ben", "27"), ("Cleo", "327"), ("Dora", "44")))
EVERY_LAYOUT = sorted({one for group in (LAYOUTS, VARIED_LAYOUTS) for layouts in group.values() for one in layouts})
LINES = [(Text("Ada Ba"), Text("11")), (Text("Ben", True), Text("22", True)), (Text("Cleo"), Text("33"))]


@pytest.fixture
def small(tmp_path) -> Path:
    return tar_of(tmp_path, archive_files())


def contents(count: int = 150) -> list[Content]:
    return [make_content(Random(seed), [TABLE], PHRASES, 12) for seed in range(count)]


def page_of(layout: str, lines=LINES, seed: int = 0, room=(192, 256)) -> Page:
    """The lines in one layout."""
    varied = layout == "tiles"
    (shape,) = [shape for shape, layouts in (VARIED_LAYOUTS if varied else LAYOUTS).items() if layout in layouts][:1]
    for number in range(seed, 400):
        random = Random(number)
        style = pick_style(random, ("dejavu", "roboto", "lato"), (10, 12), "a1")
        content = Content("", Text("A title", True), [Block(shape, list(lines))])
        page = Page(content, style, room, random, varied)
        if page.layouts == [layout]:
            return page
    raise AssertionError(f"no page was drawn {layout}")


def test_every_kind_of_page_is_made_and_can_be_asked():
    made = contents()
    assert {content.family for content in made} == {PAIRS, LIST, RECORDS, MIXED, TEXT}
    assert all(content.questions and content.lines for content in made)
    shown = [{content.title, *(text for line in content.lines for text in line)} for content in made]
    for content, texts in zip(made, shown, strict=True):
        for one in content.questions:
            assert {one.answer, *one.named} <= texts, "asked is what stands on the page"
            assert "{" not in one.question
    typed = [one.question for content in made for one in content.questions]
    assert {text[0].isupper() for text in typed} == {text.endswith("?") for text in typed} == {True, False}


def test_a_question_of_a_list_names_one_side_of_a_line_and_is_answered_by_the_other():
    both = set()
    for content in contents():
        for one in content.questions if content.family == LIST else ():
            if one.answer is content.title:
                continue
            name, *header = one.named
            assert all(text.strong for text in header)
            (line,) = [line for line in content.lines if one.answer in line]
            assert name in line
            both.add((line.index(name) < line.index(one.answer), name.text.lower() in one.question.lower()))
    assert both == {(True, True), (False, True), (True, False), (False, False)}


@pytest.mark.parametrize(("wordings", "best", "name"), [(MOST, "327", "Cleo"), (LEAST, "27", "Ben")])
def test_the_ends_of_a_tables_column_are_those_of_its_numbers(wordings, best, name):
    asked = [
        one
        for content in contents(600)
        if {("Ada", "117"), ("Cleo", "327")} <= {tuple(text.text for text in line) for line in content.lines}
        for one in content.questions
        if one.question.lower().rstrip("?") in [text.rstrip("?") for text in wordings]
    ]
    assert asked
    # lists of more than these lines have "Ben" and the least, or only what is shown of it
    whole = asked if wordings is MOST else [one for one in asked if one.named[0].text == best]
    assert {(one.answer.text, one.named[0].text) for one in whole} == {(name, best)}
    assert all(best in [text.text for text in one.compared] and len(one.compared) > 2 for one in whole)


def test_every_label_has_other_words_and_a_value_of_its_kind():
    for kind, labels in LABELS.items():
        assert all("{l}" in wording for wording in ASKING[kind])
        for label, others in labels:
            assert all(text.strip() == text for text in others.split("|"))
            if kind != "state":
                assert Values(Random(label)).make(OTHER_VALUES.get(label, kind))
    for template, *places in SENTENCES:
        for number, (kind, asked) in enumerate(places):
            assert f"{{{number}}}" in template
            assert Values(Random(0)).make(kind)
            assert all(asked.split("|"))
    with pytest.raises(KeyError):
        Values(Random(0)).make("colourless")


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: "-".join(head for _, head in kind.fields))
def test_records_show_what_can_be_asked_of_them(kind):
    assert len({head for _, head in kind.fields}) == len(kind.fields)
    for answer, key, wordings in kind.asked:
        assert answer != key
        assert {answer, key} <= {*range(len(kind.fields))}
        assert all("{k}" in wording for wording in wordings.split("|"))
    hidden = 0
    for seed in range(40):
        records, fields = make_records(Values(Random(seed), PHRASES), kind, 9)
        hidden += len(fields) < len(kind.fields)
        assert len({record[0].lower() for record in records}) == len(records) > 0
        assert any({answer, key} <= {*fields} for answer, key, _ in kind.asked)
    assert (hidden > 0) == (len(kind.fields) > 2)


def test_a_record_is_asked_for_what_stands_in_its_line():
    seen = 0
    for content in contents():
        for one in content.questions if content.family == RECORDS else ():
            if one.answer is not content.title:
                (line,) = [line for line in content.lines if one.answer in line]
                assert one.named[0] in line
                assert all(text in content.blocks[-1].lines[0] for text in one.named[1:])
                assert one.named[0].text.lower() in one.question.lower()
                seen += 1
    assert seen > 100


def test_a_page_has_one_currency_and_one_way_to_write_dates():
    signs = set()
    for seed in range(60):
        values = Values(Random(seed))
        made = {tuple(character for character in values.make("amount") if character in "$€£EURkr") for _ in range(9)}
        dates = {sum(map(str.isalpha, values.make("date"))) > 2 for _ in range(9)}
        assert len(made) == len(dates) == 1
        signs |= made
    assert len(signs) > 4


def test_a_total_is_the_sum_of_its_list():
    assert {Values(Random(seed)).amount(1003.75) for seed in range(99)} >= {"$1,003.75", "£1,004"}
    found = [
        (content, one) for content in contents(700) for one in content.questions if one.named and one.answer.strong
    ]
    assert {"Total", "TOTAL", "Sum", "Amount due"} <= {one.named[0].text for _, one in found}
    sums = 0
    for content, one in found:
        if content.family == LIST and one.named[0].text in ("Total", "TOTAL", "Sum", "Amount due"):
            *lines, last = content.lines
            assert last == (one.named[0], one.answer)
            columns = [numbers_in(line[at].text for line in lines) for at in (0, -1)]
            assert number_in(one.answer.text)[0] in [
                pytest.approx(sum(column), abs=0.01) for column in columns if column
            ]
            sums += 1
            # the total would be the highest
            assert not {asked.question.lower().rstrip("?") for asked in content.questions} & {
                wording.rstrip("?") for wording in (*MOST, *LEAST)
            }
    assert sums > 3


def test_columns_that_look_alike_stand_below_their_headers():
    alike = [{head for _, head in kind.fields} for kind in KINDS if kind.alike]
    assert len(alike) > 3
    seen = 0
    for content in contents(400):
        for block in content.blocks if content.family == RECORDS else ():
            headed = block.shape == "headed"
            heads = {text.text for text in block.lines[0]} if headed else set()
            seen += any(heads <= one and heads for one in alike)
            asked = [one for one in content.questions if one.answer is not content.title]
            assert all((len(one.named) == 2) == headed for one in asked), "a header is needed where there is one"
    assert seen > 5
    for kind in KINDS:
        if kind.alike:
            for seed in range(12):
                writer = _Writer(Content(RECORDS), Values(Random(seed), PHRASES), [TABLE])
                with pytest.MonkeyPatch.context() as patched:
                    patched.setattr("training.data.document_writing.KINDS", (kind,))
                    writer.records(5)
                assert writer.content.blocks[0].shape == "headed"


def test_most_and_least_are_asked_where_more_means_more():
    ranks = Table(("Name", "Rank"), TABLE.rows)
    sums = Table(("Name", "Points"), (*TABLE.rows, ("Total", "515")))
    for table, asks in ((TABLE, True), (ranks, False), (sums, False)):
        asked = set()
        for seed in range(30):
            writer = _Writer(Content(LIST), Values(Random(seed)), [table])
            writer._table_list(table, 9)
            asked |= {one.question.lower().rstrip("?") for one in writer.content.questions}
        assert bool(asked & {text.rstrip("?") for text in (*MOST, *LEAST)}) == asks


def test_lists_of_words_name_what_is_there():
    labels = {label for found in LABELS.values() for label, _ in found}
    assert {*OTHER_VALUES} <= labels
    assert labels >= PLAIN_LABELS
    assert {head for kind in KINDS for _, head in kind.fields} >= NOUNS
    for kind in LABELS:
        assert all("{l}" in wording for wording in asking(kind, "Opens"))
    assert asking("time", "Opens") != asking("time", "Departure") == ASKING["time"]


def test_phrases_are_short_texts_of_letters():
    rows = (("Mill Lane", "1999"), ("A text that is far too long for this", "Ada"), ("Mill Lane", "Oak-tree"))
    assert phrases_of([Table(("a", "b"), rows)]) == ("Mill Lane", "Oak-tree")
    shown = {text.text for content in contents() for line in content.lines for text in line}
    assert {*PHRASES} <= shown


def test_a_record_stands_whole_or_not_at_all():
    """What is left of one would be taken for a part of the one above it."""
    wide = Text("a name that is wider than the page is")
    for layout in ("folded", "stacked", "cards"):
        lines = [
            (Text("Ada"), Text("sent"), Text("11")),
            (Text("Ben"), wide, Text("22")),
            (wide, Text("left"), Text("33")),
        ]
        page = page_of(layout, lines, room=(192, 160))
        assert {one.text for one in page.placed[1:]} == {*lines[0]}, layout


def test_a_mark_stands_right_behind_its_word():
    """Without the space of a word, and never first in a line."""
    line = tuple(map(Text, ["We", "met", "Anna", ",", "then", "Ben", ".", "All", "were", "there", "!", "Good", "."]))
    for layout in ("prose", "bubbles", "bullets"):
        placed = [one for one in page_of(layout, [line], room=(192, 160)).placed if one.text in line]
        assert [one.text for one in placed] == [*line]
        for before, one in pairwise(placed):
            if one.text.text in ".,!":
                assert (one.x, one.y) == (before.x + width_of(before.text.text, before.font), before.y)


def test_bars_are_as_long_as_their_values():
    lines = [(Text("Ada"), Text("10")), (Text("Ben"), Text("40")), (Text("Cleo"), Text("20"))]
    lengths = [right - left for kind, (left, _, right, _) in page_of("bars", lines).shapes if kind == "bar"]
    assert lengths[1] == pytest.approx(4 * lengths[0], abs=4)
    assert lengths[1] == pytest.approx(2 * lengths[2], abs=4)


def test_a_name_within_another_is_not_asked_by(small):
    """`When did Anna write?` says not which, where Anna Keller wrote too."""
    found = 0
    for one in load_documents(str(small), "train", 2, pages=80, questions=20):
        content, page = one.picture.made()
        shown = [words_of(placed.text.text) for placed in page.placed]
        (asked,) = [q for q in content.questions if (q.question, q.answer.text) == (one.question, one.answers[0])][:1]
        for text in asked.named:
            assert sum(words_of(text.text) in other for other in shown) == 1
            found += 1
    assert found > 50


def test_what_is_compared_is_evidence():
    found = 0
    for seed in range(150):
        drawing = _Drawing((TABLE,), PHRASES, "train", seed, (12, 16), False)
        for one in _examples(drawing, 20, "page"):
            if one.question.lower().rstrip("?") in {text.rstrip("?") for text in (*MOST, *LEAST)}:
                (asked,) = [q for q in drawing.made()[0].questions if q.question == one.question and q.compared][:1]
                assert len(one.evidence) == 1 + len(asked.compared) > 3
                found += 1
    assert found > 3


def test_a_block_without_room_leaves_nothing_behind():
    """Headers that no record follows would be asked about nothing."""
    head, wide = (Text("Name"), Text("Price")), (Text("a name that is wider than the page is"), Text("1"))
    style = pick_style(Random(0), ("dejavu",), (12, 12), "a1")
    page = Page(Content("", None, [Block("headed", [head, wide]), Block("pairs", LINES)]), style, (192, 160), Random(1))
    assert {one.text for one in page.placed} == {text for line in LINES for text in line}
    assert len(page.layouts) == 1


@pytest.mark.parametrize("layout", EVERY_LAYOUT)
def test_the_box_holds_a_texts_ink_in_every_layout(layout):
    """Two pages that differ in one text alone differ inside of its box alone."""
    page = page_of(layout)
    text = LINES[1][1]
    left, top, right, bottom = page.box(text)
    full = np.asarray(page.draw(), dtype=int)
    page.placed = [one for one in page.placed if one.text is not text]
    difference = np.abs(full - np.asarray(page.draw(), dtype=int)).sum(axis=-1)
    assert difference[top:bottom, left:right].max() > 60
    difference[top:bottom, left:right] = 0
    assert not difference.any()
    assert page.box(text) is None


@pytest.mark.parametrize("layout", EVERY_LAYOUT)
def test_texts_never_cross_and_stay_on_the_page(layout):
    many = [(Text(f"Name {number}"), Text(f"{number}7.50")) for number in range(40)]
    lines = {text for line in many for text in line}
    shown = 0
    for seed in range(0, 300, 60):
        page = page_of(layout, many[:3] if layout == "prose" else many, seed, (96, 160))
        shown += sum(one.text in lines for one in page.placed)
        boxes = [page.box(one.text) for one in page.placed]
        assert 1 <= len(boxes) < 2 * len(many)
        for number, box in enumerate(boxes):
            assert 0 <= box[0] < box[2] <= 160
            assert 0 <= box[1] < box[3] <= 96
            for other in boxes[:number]:
                apart = box[2] <= other[0] or other[2] <= box[0] or box[3] <= other[1] or other[3] <= box[1]
                assert apart, (layout, box, other)
    assert shown > 5


def test_pages_are_the_same_each_time_and_of_their_own_split(small):
    spec = f"documents:{small}?page=8x12&pages=30&questions=3"
    found, again = load_examples(spec, "train", 4), load_examples(spec, "train", 4)
    assert [(one.name, one.question, one.evidence) for one in found] == [
        (one.name, one.question, one.evidence) for one in again
    ]
    assert found[0].image.tobytes() == again[0].image.tobytes()
    assert found[0].image.size == (192, 128)
    held = load_examples(spec, "held_out", 4)
    assert {one.question for one in held} != {one.question for one in found}
    assert {one.picture.made()[1].style.font for one in held} <= {*HELD_OUT_FONTS, "dejavu"}
    assert not {one.picture.made()[1].style.font for one in found} & {*HELD_OUT_FONTS}


def test_the_answer_and_what_is_named_stand_once_on_the_picture(small):
    for one in load_documents(str(small), "train", 1, pages=60, page_cells=(9, 12)):
        page = one.picture.made()[1]
        shown = [placed.text.text.lower() for placed in page.placed]
        if not one.context:
            assert shown.count(one.answers[0].lower()) == 1
        assert len(one.evidence) == 1
        for left, top, right, bottom in (*one.evidence, *one.context):
            assert 0 <= left < right <= 192
            assert 0 <= top < bottom <= 144
            inside = np.asarray(one.image, dtype=int)[top:bottom, left:right]
            assert np.ptp(inside.sum(-1)) > 60


def test_varied_pages_have_values_in_every_place_and_larger():
    """Above, below and before their labels, and always nearer to these than to others."""
    places, grown = set(), 0
    for seed in range(60):
        page = page_of("tiles", LINES, 5 * seed)
        placed = {one.text: one for one in page.placed}
        for label, value in LINES:
            if label in placed:
                one, other = placed[label], placed[value]
                places.add(
                    ("above", "below")[one.y < other.y] if abs(one.x - other.x) < abs(one.y - other.y) else "beside"
                )
                grown += other.font.size > one.font.size + 3
                top, bottom = sorted((one.y, other.y))
                others = [box.y for text, box in placed.items() if text not in (label, value) and box.y > bottom]
                assert not others or one.y == other.y or min(others) - bottom >= 0.6 * (bottom - top)
    assert places == {"above", "below", "beside"}
    assert grown > 20


def test_varied_pages_have_few_lines_on_much_paper_and_values_far_from_their_labels():
    content = Content("", None, [Block("pairs", LINES)])
    wide, far = {False: 0, True: 0}, {False: 0, True: 0}
    for seed in range(300):
        for varied in wide:
            random = Random(seed)
            style = pick_style(random, ("dejavu", "roboto"), (10, 12), "a1")
            page = Page(content, style, (192, 256), random, varied)
            wide[varied] += page.step > 2 * style.line()
            far[varied] += page.layouts == ["wide_columns"]
    assert wide[True] > 20
    assert far[True] > 40
    assert not wide[False]
    assert not far[False]


def test_varied_pages_are_asked_in_more_ways(small):
    plain, varied = (load_documents(str(small), "train", 3, pages=150, varied=varied) for varied in (False, True))
    assert {one.family for one in varied} == {one.family for one in plain}

    def share(found, holds) -> float:
        return sum(map(holds, found)) / len(found)

    for holds in (
        lambda one: one.answers[0].isupper() and one.answers[0].isalpha(),
        lambda one: one.question.isupper() and len(one.question) > 12,
        lambda one: "please" in one.question.lower() or "page," in one.question.lower(),
        lambda one: any(mark in one.question for mark in '"“\u2018'),
    ):
        assert share(varied, holds) > share(plain, holds) + 0.01
    for one in varied:
        content = one.picture.made()[0]
        shown = {text.text for line in content.lines for text in line} | {content.title and content.title.text}
        assert one.answers[0] in shown, "what is in capitals is answered so"


def test_counts_are_kept(small):
    assert len(load_examples(f"documents:{small}?pages=9", limit=5)) == 5
    pages = [one.picture for one in load_documents(str(small), pages=7, questions=2)]
    assert len({id(page) for page in pages}) <= 7
    assert max(pages.count(page) for page in pages) == 2


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ("?page=3x16", "at least 4 rows"),
        ("?page=12x7", "8 columns"),
        ("?pages=0", "no count"),
        ("?page=12", "rows x columns"),
        ("?together=3", "no option"),
        ("?varied=2", "neither yes nor no"),
    ],
)
def test_what_can_not_be_drawn_is_refused(small, options, problem):
    with pytest.raises((DataError, ValueError), match=problem):
        load_examples(f"documents:{small}{options}", "train")


def test_bad_tables_are_refused_or_counted(tmp_path):
    files = archive_files()
    files["csv/1-csv/3.csv"] = b""
    broken = tar_of(tmp_path, files)
    with pytest.raises(DataError, match=r"3\.csv"):
        load_examples(f"documents:{broken}?pages=3", "train")
    assert sum(load_examples(f"documents:{broken}?pages=3", "train", skip_bad=True).left_out.values()) > 0


def test_what_is_not_there_is_refused(small, tmp_path):
    with pytest.raises(ValueError, match="split='other'"):
        load_documents(str(small), "other")
    with pytest.raises(DataError, match="names no path"):
        load_examples("documents:")
    with pytest.raises(DataError, match="did you mean 'documents'"):
        load_examples(f"document:{small}")
    with pytest.raises(DataError):
        load_documents(str(tmp_path / "nothing"))
