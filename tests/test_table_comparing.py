"""What people's questions compare is evidence beside the cell that answers: from the table to the boxes of a page."""

import numpy as np
import pytest

from tests.small_archive import comparing_files, tar_of
from training.data import load_examples
from training.data.table_comparing import evidence_of
from training.data.table_page import Task
from training.data.tables import context_of

HEADER = ("Player", "Height (cm)", "Points scored", "Time", "Born", "Country")
ROWS = (
    ("Ada Mills", "170", "1,250", "4:35", "3 May 1990", "Norway"),
    ("Ben Stone", "181", "310", "3:59", "1 June 1987", "Spain"),
    ("Cora Lind", "-", "97.5", "12:01", "9 May 1999", "Norway"),
    ("Dan Frost", "166", "412", "5:20", "2 May 1985", "Italy"),
)
TOTAL = ("Total", "517", "2,069.5", "", "", "")


def _evidence(question, answer, rows=ROWS, left_out=()):
    task = Task(HEADER, rows, answer)
    drawn = {(row, column) for row in range(-1, len(rows)) for column in range(len(HEADER))} - {*left_out}
    return evidence_of(task, question, range(len(rows)), drawn, context_of(task, question, drawn))


@pytest.mark.parametrize(
    ("question", "answer", "column"),
    [
        ("which player has the most points?", (0, 0), 2),
        ("who scored the fewest points of all?", (2, 0), 2),
        ("what is the lowest number of points scored?", (2, 2), 2),
        ("who is the tallest?", (1, 0), 1),  # by a header that it does not name
        ("who had the fastest time?", (1, 0), 3),  # minutes and seconds: 12:01 is not less than 3:59
        ("Which country has the player with the MOST points?", (0, 5), 2),
    ],
)
def test_an_extreme_has_all_numbers_of_its_column_but_those_of_a_total(question, answer, column):
    for rows in (ROWS, (*ROWS, TOTAL)):
        found = _evidence(question, answer, rows)
        numbers = {(row, column) for row in range(4) if ROWS[row][column] != "-"}
        assert found[0] == answer
        assert len(found) == len({*found})
        assert {*found} == {answer} | numbers


def test_one_of_two_has_the_numbers_of_both():
    assert _evidence("who has more points, ada mills or dan frost?", (0, 0)) == ((0, 0), (0, 2), (3, 2))
    assert _evidence("did Ben Stone or Dan Frost score less points?", (1, 0)) == ((1, 0), (1, 2), (3, 2))


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("how many points has ada mills?", (0, 2)),  # compares nothing
        ("who has at least 1,000 points?", (0, 0)),
        ("who has the most points of those from spain?", (1, 0)),  # not the most of the column
        ("who was the best?", (0, 0)),  # names no column
        ("who is the youngest born?", (2, 0)),  # dates, which do not begin with what orders them
        ("which country has the most players?", (0, 5)),  # words
        ("who has more points, ada mills or the others?", (0, 0)),
        ("who is the best of the players for Norway?", (0, 0)),
    ],
)
def test_else_the_answer_stands_alone(question, answer):
    assert _evidence(question, answer) == (answer,)


def test_small_words_name_no_header():
    """Of "the most number of points" the column of points is compared, not those of "The Open" and of numbers."""
    header = ("Player", "The Open", "Number", "Points scored")
    task = Task(header, tuple((name, *str(place) * 3) for place, name in enumerate("abcd", 1)), (3, 0))
    drawn = {(row, column) for row in range(-1, 4) for column in range(4)}
    found = evidence_of(task, "who has the most number of points?", range(4), drawn, ())
    assert found == ((3, 0), *((row, 3) for row in range(4)))


def test_a_column_that_a_page_cuts_is_left_out():
    question = "which player has the most points?"
    assert _evidence(question, (0, 0), left_out=[(2, 2)]) == ((0, 0),)
    assert _evidence("who had the fastest time?", (1, 0), left_out=[(2, 2)])[1:] == tuple((row, 3) for row in range(4))


def test_a_page_has_boxes_of_all_that_is_compared(tmp_path):
    spec = f"wikitables:{tar_of(tmp_path, comparing_files())}?questions=human"
    alone = {example.name: example for example in load_examples(spec, "train")}
    for example in load_examples(f"{spec}&compared=1", "train"):
        assert example.evidence[:1] == alone[example.name].evidence
        _, shown, _ = example.picture.fitted()
        assert example.answers == ("Hugo",)
        assert len(example.evidence) == 1 + len(shown.rows)
        grey = np.asarray(example.image.convert("L"), dtype=int)
        name, *points = example.evidence
        assert all(name[2] < left for left, *_ in points)  # names stand left of points
        assert len({top for _, top, *_ in points}) == len(points)
        for left, top, right, bottom in example.evidence:
            assert np.ptp(grey[top:bottom, left:right]) > 60
