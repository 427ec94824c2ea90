"""Questions about tables that take more than a look-up: the answer follows from what the page shows."""

import re
from random import Random

import pytest

import training.data.table_reasoning as made
from tests.small_archive import archive_files, as_csv, tar_of
from training.allocator_batches import MixedSource
from training.allocator_data import make_source
from training.data import DataError, load_examples
from training.data.table_numbers import WORDS, counted, running
from training.data.table_numbers import number_in as number_and_unit
from training.data.table_page import Task
from training.data.table_reasoning import reasoned
from training.data.tables import REASON

HEADER = ("Pos", "Name", "Team", "Points")
BODY = (
    ("1", "Ada Ley", "Reds", "1,204"),
    ("2", "Ben Ohm", "Blues", "377"),
    ("3", "Cleo Pit", "Reds", "2,910"),
    ("4", "Dora Rue", "Greens", "88"),
    ("5", "Emil Sax", "Whites", "950"),
)
TASK = Task(HEADER, BODY, (0, 0))
ROWS = (0, 1, 3, 4)  # Cleo's row is not on the page
SHOWN = {(row, column) for row in (-1, *ROWS) for column in range(4)}


def asked(drawn=frozenset(SHOWN), rows=ROWS, count=150, seed=3, task=TASK):
    return reasoned(task, rows, range(len(task.header)), drawn, count, Random(seed))


def words_in(question: str, wordings) -> list[dict[str, str]]:
    """What stands in the gaps of every wording that a question fits with headers and cells of the table."""
    headers, cells = ({text.lower() for text in texts} for texts in (HEADER, sum(BODY, ())))
    allowed = {"t": headers, "k": headers, "x": cells, "y": cells}
    allowed["most"] = [word for kind in WORDS.values() for words in kind for word in words]
    allowed |= {"more": made.MORE + made.LESS, "than": made.OVER + made.UNDER}
    found = []
    for wording in wordings:
        pattern = re.sub(r"\\\{(\w+)\\\}", r"(?P<\1>.+)", re.escape(wording))
        match = re.fullmatch(pattern, question.lower())
        if match and all(text in allowed.get(name, {text}) for name, text in match.groupdict().items()):
            found.append(match.groupdict())
    return found


def cell_of(text: str) -> tuple[int, int]:
    (cell,) = [(r, c) for r in ROWS for c in range(4) if BODY[r][c].lower() == text.lower()]
    return cell


def column_of(text: str) -> int:
    return [title.lower() for title in HEADER].index(text.lower())


def number_in(text: str) -> float:
    return number_and_unit(text)[0]


def of_kind(wordings) -> list:
    """(question, what it names, answer) of those that fit the wordings."""
    found = [(q, words, q.answer) for q in asked() for words in words_in(q.question, wordings)[:1]]
    assert len(found) > 3, wordings
    return found


@pytest.mark.parametrize(("wordings", "step"), [(made.AFTER, 1), (made.BEFORE, -1)])
def test_neighbours_are_those_that_the_page_shows(wordings, step):
    for question, words, (row, column) in of_kind(wordings):
        given = cell_of(words["x"])
        assert ROWS.index(row) == ROWS.index(given[0]) + step
        assert column == (column_of(words["t"]) if "t" in words else 1)
        assert given in question.context


@pytest.mark.parametrize(("wordings", "row"), [(made.FIRST, 0), (made.LAST, 4)])
def test_ends(wordings, row):
    for _, words, answer in of_kind(wordings):
        assert answer == (row, column_of(words["t"]) if "t" in words else 1)


def test_extremes_are_of_what_is_shown():
    for question, words, (row, _) in of_kind(made.EXTREME):
        key = column_of(words["k"])
        large, small = WORDS["rank" if key == 0 else "amount"]
        values = {r: number_in(BODY[r][key]) for r in ROWS}
        best = {True: max, False: min}[words["most"] in large]
        assert words["most"] in large + small
        assert values[row] == best(values.values()), question  # the best position is the first
        assert (-1, key) in question.context or question.answer == (row, key)
        assert question.evidence[0] == question.answer
        assert {*question.evidence} == {question.answer, *((r, key) for r in ROWS)}  # nobody could tell without


def test_the_other_of_two():
    for question, words, (row, column) in of_kind(made.EITHER):
        rows = [cell_of(words[name])[0] for name in "xy"]
        assert words["k"] == "points"  # more of a position is nothing
        values = {r: number_in(BODY[r][3]) for r in rows}
        best = max if words["more"] in made.MORE else min
        assert values[row] == best(values.values())
        assert question.evidence == ((row, column), *sorted((r, 3) for r in rows))
        assert {BODY[r][column].lower() for r in rows} == {words["x"].lower(), words["y"].lower()}


def test_one_row_alone_is_beyond_the_limit():
    for question, words, (row, _) in of_kind(made.LIMIT):
        limit, above = number_in(words["n"]), words["than"] in made.OVER
        values = {r: number_in(BODY[r][3]) for r in ROWS}
        assert [row] == [r for r in ROWS if (values[r] > limit if above else values[r] < limit)]
        assert {(r, 3) for r in ROWS} <= {*question.evidence}


def test_rows_that_share_a_value():
    rows = (0, 1, 2, 3)
    every = asked({(r, c) for r in (-1, *rows) for c in range(4)}, rows, 400)
    found = [q for q in every if words_in(q.question, made.SAME + made.OTHER)]
    assert len(found) > 3
    for question in found:
        given = {row for row, _ in question.context if row >= 0}
        assert question.answer[0] in (0, 2)  # both in the Reds
        assert given <= {0, 2}
        assert {(0, 2), (2, 2)} <= {*question.evidence}
        assert given - {question.answer[0]}


def test_what_is_counted_is_all_that_is_counted():
    rows = (0, 1, 2, 3)
    every = asked({(r, c) for r in (-1, *rows) for c in range(4)}, rows, 400)
    found = [q for q in every if q.number is not None]
    assert len(found) > 3
    for question in found:
        assert words_in(question.question, made.COUNT)[0].get("k", "team") == "team"
        assert words_in(question.question, made.COUNT)[0]["y"] == "reds"
        assert (question.number, question.evidence) == (2, ((0, 2), (2, 2)))
        assert question.context == {(-1, 2), (0, 2), (2, 2)}
    assert not [q for q in asked() if q.number is not None]  # Cleo's row is not on the page


def test_a_value_that_another_text_holds_is_not_counted():
    body = (*BODY[:3], ("4", "Reds Fan", "Greens", "88"))
    rows = (0, 1, 2, 3)
    every = asked({(r, c) for r in (-1, *rows) for c in range(4)}, rows, 400, task=Task(HEADER, body, (0, 0)))
    assert not [q for q in every if q.number is not None]


def test_nothing_asks_for_or_names_what_is_cut():
    drawn = SHOWN - {(1, 1), (-1, 2), (3, 3)}
    questions = asked(drawn)
    assert len(questions) > 20
    assert all({q.answer, *q.context} <= drawn and q.answer not in q.context for q in questions)
    deciding = [words["k"] for q in questions for words in words_in(q.question, made.EXTREME)]
    assert "pos" in deciding
    assert "points" not in deciding  # one of its numbers is cut


def test_the_same_seed_asks_the_same_each_once_and_no_more_than_wanted():
    assert asked(seed=5) == asked(seed=5) != asked(seed=6)
    assert len({q.question for q in asked()}) == len(asked())
    assert len(asked(count=4)) == 4
    assert asked({(0, 0)}, (0,), task=Task(("A",), (("x",),), (0, 0))) == []
    assert asked(set()) == []


def test_nobody_asks_who_comes_after_a_number_nor_by_a_text_that_stands_twice():
    body = (("2014", "Ada", "Ben"), ("2013", "Ben", "Cleo"), ("2012", "Dora", "Ada"))
    task = Task(("Year", "Winner", "Second"), body, (0, 0))
    drawn = {(r, c) for r in (-1, 0, 1, 2) for c in range(3)}
    questions = [q.question.lower() for q in asked(drawn, (0, 1, 2), 300, task=task)]
    neighbours = [
        q for q in questions if re.search(r"(after|below|under|follow|before|above|prior|precede|previous)", q)
    ]
    assert len(neighbours) > 10
    assert not any(re.search(r"\b(ada|ben)\b", q) for q in neighbours)  # both stand in two columns
    years = [q for q in neighbours if re.search(r"\b201\d\b|\byear\b", q)]
    assert years
    assert all(
        re.search(r"listed|below|under|above|stands", q) for q in years
    )  # 2013 comes before 2014, and stands below it
    assert not any("first year" in q or "last year" in q for q in questions if "list" not in q and "chart" not in q)


def test_sums_are_no_entries():
    body = (("Ada", "3", "-1"), ("Ben", "5", "\u22122"), ("Cleo", "4", "6"), ("Total", "12", "3"))
    task = Task(("Name", "Goals", "Balance"), body, (0, 0))
    questions = asked({(r, c) for r in (-1, 0, 1, 2, 3) for c in range(3)}, (0, 1, 2, 3), 200, task=task)
    most = [
        q
        for q in questions
        if " or " not in q.question and re.search(r"(most|highest|largest|greatest|top) goals", q.question.lower())
    ]
    assert most
    assert {q.answer[0] for q in most} == {1}
    assert not any(re.search(r"(est|most|least|top|more|less|than) .*balance", q.question.lower()) for q in questions)
    assert not any(re.search(r"\b(last|bottom|final)\b", q.question.lower()) for q in questions)


@pytest.mark.parametrize(
    ("text", "number"),
    [("1,204", (1204, "")), ("88", (88, "")), ("$3.50", (3.5, "$")), ("7 km", (7, "km")), ("12%", (12, "%")), ("2nd", (2, "")),
     ("1998/99", None), ("Reds", None), ("", None), ("1,20", None), ("-3", None), ("3-1", None), ("\u22127", None)],
)  # fmt: skip
def test_numbers(text, number):
    assert number_and_unit(text) == number


@pytest.mark.parametrize(
    ("title", "texts", "kind"),
    [
        ("Goals", ("3", "17", "9"), "amount"), ("Goals", (), "amount"), ("Rank", ("1", "2", "3"), "rank"), ("Pos.", (), "rank"),
        ("District", ("1", "2", "3"), "label"), ("District", ("4", "3", "2"), "label"), ("District", ("4", "7", "2"), "amount"),
        ("First elected", ("1998", "1976", "2002"), "time"), ("Crowd", ("1,998", "1,976", "2,002"), "amount"),
        ("Finished", ("13th", "2nd", "4th"), "rank"), ("Time (s)", ("9.8", "10.1", "9.9"), "duration"), ("No.", (), "label"),
        ("No. of Athletes", ("243", "12", "80"), "amount"), ("# of Seats", (), "amount"), ("#", (), "label"), ("Year", (), "time"),
        ("Year", ("1990", "1991", "1992"), "time"), ("Built-up Area", ("4,867,388", "17,000", "52"), "amount"),
    ],
)  # fmt: skip
def test_what_a_column_counts_is_told_by_its_header_and_its_values(title, texts, kind):
    assert counted(title, texts) == kind


@pytest.mark.parametrize(
    ("texts", "runs"),
    [(("1", "2", "3"), True), (("9", "8", "7", "6"), True), (("1", "2", "3", "4", "5", "Total"), True), (("1", "2"), False),
     (("1", "2", "4", "5"), False), (("2", "2", "2"), False), (("A", "B", "C"), False), ((), False)],
)  # fmt: skip
def test_numbers_that_run_number_rows(texts, runs):
    assert running(texts) is runs


def test_what_is_compared_or_counted_is_evidence_of_a_page(tmp_path):
    table = as_csv([HEADER, *BODY])
    files = {name: table if name.endswith(".csv") else content for name, content in archive_files().items()}
    spec = f"wikitables:{tar_of(tmp_path, files)}?page=12x16&questions=lookup&reason=40"
    asked = [one for one in load_examples(spec, "train", 1) if one.family == REASON]
    for wordings, answers, cells in ((made.EXTREME, {"Cleo Pit"}, 6), (made.COUNT, {"2"}, 2)):
        found = [one for one in asked if words_in(one.question, wordings) and one.answers[0] in answers]
        assert found
        assert all(len(one.evidence) >= cells for one in found)  # a box for each line of a cell


def test_a_table_is_asked_beside_its_other_questions(tmp_path):
    spec = f"wikitables:{tar_of(tmp_path, archive_files())}?page=12x16&together=2&reason=6"
    examples = load_examples(spec, "train", 1, 60)
    extra = [example for example in examples if example.family == REASON]
    assert len(extra) > 20
    assert all(example.evidence and example.answers[0] for example in extra)
    with pytest.raises(DataError, match="reason='no' is no count"):
        load_examples(spec.replace("reason=6", "reason=no"), "train", 1, 6)


def test_data_that_are_named_twice_give_other_pages_each_time(tmp_path):
    spec = f"wikitables:{tar_of(tmp_path, archive_files())}?page=12x16"
    source = make_source([spec, spec], seed=3, limit=None, skip_bad=False, questions=4)
    assert isinstance(source, MixedSource)
    first, second = ([source.page(number + which)[0].name for number in range(0, 12, 2)] for which in (0, 1))
    assert not {name.rsplit("#", 1)[1] for name in first} & {name.rsplit("#", 1)[1] for name in second}
    again = make_source([spec, spec], seed=3, limit=None, skip_bad=False, questions=4)
    assert [again.page(number)[0].name for number in range(0, 12, 2)] == first


def test_tables_of_which_nothing_can_be_asked_are_no_data(tmp_path):
    files = archive_files(12)
    files |= {name: as_csv([["Name"], ["Ada"], ["Ben"]]) for name in files if name.endswith(".csv")}
    with pytest.raises(DataError, match="has no question of split='train' that can be drawn"):
        load_examples(f"wikitables:{tar_of(tmp_path, files)}?page=12x16&questions=lookup", "train", 1)


def test_the_order_of_rows_is_asked_by_place_where_a_rank_says_otherwise():
    turned = Task(HEADER, tuple((place, *row[1:]) for place, row in zip("52341", BODY, strict=True)), (0, 0))
    of_order = {question for wordings in (made.AFTER, made.BEFORE, made.FIRST, made.LAST) for question in wordings}
    of_order -= {*made.BELOW, *made.ABOVE, *made.TOP, *made.BOTTOM}
    headers = "|".join(HEADER).lower()
    patterns = [re.escape(wording).replace(r"\{t\}", f"({headers})").replace(r"\{x\}", ".+") for wording in of_order]
    for task, some in ((TASK, True), (turned, False)):
        questions = [each.question for each in asked(task=task, count=300)]
        assert any(re.fullmatch(pattern, said.lower()) for said in questions for pattern in patterns) == some


def test_no_number_is_below_or_above_another_by_its_place():
    said = [each.question.lower() for each in asked(count=300)]
    assert any(re.search(r"is (below|above) [a-z]", one) for one in said)
    assert not any(re.search(r"is (below|above) [\d,]+\??$", one) for one in said)
