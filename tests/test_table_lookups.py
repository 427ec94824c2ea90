"""Several questions about one drawing of a table: they share its picture, ask for whole cells, and each has its own boxes."""

import itertools
import os
from pathlib import Path
from random import Random

import numpy as np
import pytest

from training.allocator_batches import PictureSource
from training.data import DataError, load_examples
from training.data.table_lookups import LOOKUP_QUESTIONS, further_lookups
from training.data.table_page import Task, draw
from training.data.tables import FIND, HUMAN, LOOKUP, TableOptions, load_tables

ROOT = Path(__file__).resolve().parents[1]
TOGETHER = TableOptions(together=6)
NAMES = ("Ada", "Ben", "Cleo", "Dora", "Emil", "Fritz", "Greta", "Hugo")
# (name, question, answer) of load_tables(small, "train", seed=1, limit=6): examples of a seed stay the same
ALONE = [
    ("wikitables/nt-5#1", "how many points has Ben?", "517"),
    ("wikitables/csv/1-csv/0.csv#1.0", "Name is Dora: what is the Day?", "4. of May"),
    ("wikitables/csv/1-csv/0.csv#1.1", "what is the Day where Name is Hugo?", "8. of May"),
    ("wikitables/csv/1-csv/2.csv#1.1", "Name is Ada: what is the Points?", "207"),
    ("wikitables/csv/1-csv/3.csv#1.1", "Name is Emil: what is the Day?", "5. of May"),
    ("wikitables/csv/1-csv/6.csv#1.0", "which Points has Name Dora?", "637"),
]


def _points(number: int) -> list[list[str]]:
    body = [[name, f"{number}{place}7", f"{place + 1}. of May"] for place, name in enumerate(NAMES)]
    return [["Name", "Points", "Day"], *body]


def _write(folder: Path, tables: list[list[list[str]]], human: str = "how many points has {}?") -> Path:
    """An unpacked archive; each table is asked for the second cell of its second row."""
    (folder / "csv" / "1-csv").mkdir(parents=True)
    lines = ["id\tutterance\tcontext\ttargetValue"]
    for number, rows in enumerate(tables):
        text = "".join(",".join(f'"{cell}"' for cell in row) + "\n" for row in rows)
        (folder / "csv" / "1-csv" / f"{number}.csv").write_text(text, encoding="utf-8")
        lines.append(f"nt-{number}\t{human.format(rows[2][0])}\tcsv/1-csv/{number}.csv\t{rows[2][1]}")
    (folder / "training.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


@pytest.fixture
def small(tmp_path) -> Path:
    return _write(tmp_path, [_points(number) for number in range(12)])


def _pages(examples) -> list[list]:
    asked: dict = {}
    for example in examples:
        asked.setdefault(id(example.picture), []).append(example)
    return list(asked.values())


def _cells(example) -> tuple[tuple[int, int], tuple[int, int]]:
    """The cells of the key and of the answer that a look-up's question itself leads to."""
    task, found = example.picture.task, []
    for row, cells in enumerate(task.rows):
        for key, target in itertools.permutations(range(len(cells)), 2):
            words = {"target": task.header[target], "key": task.header[key], "value": cells[key]}
            if example.question in [text.format(**words) for text in LOOKUP_QUESTIONS]:
                found.append(((row, key), (row, target)))
    assert len(found) == 1
    return found[0]


def _facts(examples) -> list[tuple]:
    return [(e.name, e.question, e.answers, e.family, e.evidence) for e in examples]


def _boxes(drawing) -> dict:
    """The boxes of every cell that is drawn."""
    _, shown, _ = drawing.fitted()
    return draw(*drawing.fitted(), [(row, column) for row in (-1, *shown.rows) for column in shown.columns])[1]


def test_a_drawing_is_asked_once_unless_told_otherwise(small):
    alone = load_tables(small, "train", seed=1, limit=6)
    assert [(e.name, e.question, *e.answers) for e in alone] == ALONE
    assert len({id(e.picture) for e in alone}) == 6
    assert [e.evidence for e in alone] == [_boxes(e.picture)[e.picture.task.answer] for e in alone]
    assert _facts(load_tables(small, "train", 1, limit=6, options=TableOptions(together=1))) == _facts(alone)


def test_the_first_question_and_the_picture_are_those_of_a_drawing_asked_once(small):
    alone, pages = load_tables(small, "train", seed=2), _pages(load_tables(small, "train", seed=2, options=TOGETHER))
    assert _facts(alone) == _facts([page[0] for page in pages])
    for example, page in zip(alone[::7], pages[::7], strict=True):
        assert example.image.tobytes() == page[-1].image.tobytes()


def test_questions_of_a_drawing_share_its_picture_and_ask_for_different_cells(small):
    examples = load_tables(small, "train", seed=3, options=TOGETHER)
    pages = _pages(examples)
    assert [e for page in pages for e in page] == list(examples)  # a page's questions stand in a row
    assert {len(page) for page in pages} == {6}
    assert len({e.name for e in examples}) == len(examples)
    assert {page[0].family for page in pages} == {HUMAN, LOOKUP}
    for page in pages:
        assert {e.family for e in page[1:]} == {LOOKUP}
        assert len({e.evidence for e in page}) == len({e.question for e in page}) == len(page)
    source = PictureSource(examples, questions=6)
    assert len(source) == len(pages)
    assert {len(source.page(number)) for number in range(len(source))} == {6}


def test_every_question_leads_to_the_cell_in_its_boxes(small):
    for page in _pages(load_tables(small, "train", seed=3, options=TOGETHER)):
        boxes, grey = _boxes(page[0].picture), np.asarray(page[0].image.convert("L"), dtype=int)
        for example in page:
            if example.family == LOOKUP:
                key, (row, column) = _cells(example)
                assert set(example.context) == {*boxes[key], *boxes[-1, key[1]], *boxes[-1, column]}
                assert example.answers == (example.picture.task.rows[row][column],)
                assert example.evidence == boxes[row, column]
            assert all(np.ptp(grey[t:b, left:r]) > 60 for left, t, r, b in example.evidence)


def test_context_of_a_written_question_is_what_it_names(small):
    for example in load_tables(small, "train", questions="human"):  # "how many points has Ben?"
        task, boxes = example.picture.task, _boxes(example.picture)
        row, column = task.answer
        assert set(example.context) == {*boxes[row, 0], *boxes[-1, column]}
        assert not set(example.context) & set(example.evidence)


def test_a_text_is_found_in_every_cell_that_has_it(tmp_path):
    """Where a text stands in several cells all are its evidence; one that another cell has among others is not asked for."""
    body = [[name, "even" if place % 2 else "odd", f"{place}.{place}"] for place, name in enumerate(NAMES)]
    body[0][2] = "Ada and Ben"
    folder = _write(tmp_path, [[["Name", "Kind", "Size"], *body] for _ in range(12)])
    asked, known = set(), load_tables(folder, "train", seed=1)
    for page in _pages(load_tables(folder, "train", seed=1, options=TableOptions(find=30))):
        boxes, task = _boxes(page[0].picture), page[0].picture.task
        assert _facts(page[:1])[0] in _facts(known)
        assert len(page) > 8
        for example in page[1:]:
            (text,) = example.answers
            cells = [cell for cell in boxes if task.text(*cell) == text]
            assert (example.family, text in example.question) == (FIND, True)
            assert example.context == example.evidence == tuple(box for cell in sorted(cells) for box in boxes[cell])
            asked.add((text, len(cells)))
    assert any(count > 2 for _, count in asked)
    assert {text for text, _ in asked} >= {"Name", "Hugo", "Ada and Ben", "1.1"}
    assert not asked & {
        ("Ada", 1),
        ("Ben", 1),
    }
    few = _pages(load_tables(folder, "train", seed=1, options=TableOptions(find=3)))
    assert {len(page) for page in few} == {4}


def test_nothing_is_asked_about_cut_broken_or_missing_cells(tmp_path):
    """On narrow pages, of long texts and of words too wide for a column."""
    header = ["Name", "A text of several words", "Word", "Note"]
    text, word = "{} and some more of it to be cut here", "{}overlonglyjoinedwordlist"
    body = [
        [name, text.format(name), word.format(name), f"n {name}"] for name in (*NAMES, *map(str.upper, "abcdefghij"))
    ]
    folder = _write(tmp_path, [[header, *body[number:]] for number in range(9)])
    options = TableOptions(page_cells=(8, 14), together=8, lookups=3)
    examples = load_tables(folder, "train", options=options)
    cut, missing = 0, 0
    for example in examples:
        task, (_, shown, _) = example.picture.task, example.picture.fitted()
        lines = {
            (row, column): " ".join(cell)
            for row, cells in zip((-1, *shown.rows), shown.lines, strict=True)
            for column, cell in zip(shown.columns, cells, strict=True)
        }
        cut += any(line != task.text(*cell) for cell, line in lines.items())
        missing += len(shown.rows) < len(task.rows)
        if example.family == LOOKUP:
            for row, column in _cells(example):
                assert lines[row, column] == task.text(row, column)
                assert lines[-1, column] == task.header[column]
    assert min(cut, missing) > len(examples) / 3
    assert len(examples) > 3 * len(_pages(examples))


def test_nothing_is_asked_about_letters_that_the_font_lacks(tmp_path):
    rows = [[name, f"{place}7", "漢字" if place % 2 else f"day {place}"] for place, name in enumerate(NAMES)]
    folder = _write(tmp_path, [[["Name", "Points", "Day"], *rows[:8]], [["Name", "Points", "Tag 漢"], *rows[:7]]] * 2)
    examples = [e for split in ("train", "held_out") for e in load_tables(folder, split, 0, "human", TOGETHER)]
    assert any("漢字" in cells for e in examples for cells in e.picture.task.rows)
    assert {len(page) for page in _pages(examples)} == {6}
    assert not any("漢" in e.question + e.answers[0] for e in examples)


def test_a_key_names_one_row_of_the_whole_table():
    """A value may be alone among the rows drawn and still stand in others; case and marks make no other value."""
    rows = (("Ada", "x-1", "u"), ("Ben", "X 1", "v"), ("Cleo", "x2", "w"), ("Dora", "x2", "Ada"), ("Emil", "x3", "..."))
    task = Task(("Name", "Code", "Letter"), rows, (0, 2))
    drawn = {(row, column) for row in (-1, 0, 2, 4) for column in range(3)}
    for seed in range(20):
        found = further_lookups(task, drawn, 99, Random(seed))
        assert sorted(lookup.answer for lookup in found) == [(0, 0), (0, 1), (2, 0), (2, 1), (2, 2), (4, 0), (4, 1)]
        assert not any(value in lookup.question for lookup in found for value in ("x-1", "x2", "..."))


def test_all_that_a_question_is_about_has_to_be_drawn():
    task = Task(("A", "B", "B"), (("a", "b", "c"),), (0, 0))
    whole = {(row, column) for row in (-1, 0) for column in range(3)}
    assert further_lookups(task, whole, 9, Random(0)) == []  # two columns of one name
    task = Task(("A", "B", "C"), (("a", "b", "c"),), (0, 0))
    assert {lookup.answer for lookup in further_lookups(task, whole, 9, Random(0))} == {(0, 1), (0, 2)}
    for missing in ((-1, 2), (0, 2)):
        (lookup,) = further_lookups(task, whole - {missing}, 9, Random(0))
        assert (lookup.answer, lookup.key) == ((0, 1), (0, 0))
        assert "A" in lookup.question
        assert lookup.context == {(0, 0), (-1, 0), (-1, 1)}
    assert further_lookups(task, whole - {(-1, 0), (-1, 2)}, 9, Random(0)) == []
    assert further_lookups(task, whole, 0, Random(0)) == []
    long = Task(("A", "B"), (("a" * 41, "b"),), (0, 0))
    assert further_lookups(long, whole, 9, Random(0)) == []


def test_rows_keys_and_columns_take_turns():
    rows = tuple((f"a{n}", f"b{n}", f"c{n}", f"d{n}") for n in range(6))
    task = Task(("A", "B", "C", "D"), rows, (0, 0), needed=((0, 1),))
    drawn = {(row, column) for row in range(-1, 6) for column in range(4)}
    for seed in range(10):
        found = further_lookups(task, drawn, 7, Random(seed))
        assert len({lookup.answer for lookup in found}) == 7
        assert {lookup.answer[0] for lookup in found} >= {1, 2, 3, 4, 5}
        assert {lookup.answer[1] for lookup in found} >= {1, 2, 3}
        assert all(task.text(*lookup.key) in lookup.question for lookup in found)
        assert len({lookup.key[1] for lookup in found}) >= 3
        assert (0, 0) not in {lookup.answer for lookup in found}
    assert len(further_lookups(task, drawn, 99, Random(0))) == 23  # each cell once, but for the answer


def test_same_seed_asks_the_same_and_another_does_not(small):
    first, again, other = (load_tables(small, "train", seed, limit=20, options=TOGETHER) for seed in (1, 1, 2))
    assert _facts(first) == _facts(again)
    assert [e.image.tobytes() for e in first[::6]] == [e.image.tobytes() for e in again[::6]]
    assert {e.question for e in first} != {e.question for e in other}


def test_limit_counts_questions_and_takes_whole_pages_but_the_last(small):
    every = {e.name: len(page) for page in _pages(load_tables(small, "train", options=TOGETHER)) for e in page}
    for limit in (1, 6, 20):
        examples = load_tables(small, "train", limit=limit, options=TOGETHER)
        assert len(examples) == limit
        torn = [page for page in _pages(examples) if len(page) < every[page[0].name]]
        assert len(torn) == (limit % 6 > 0)
        assert all(page[0].name.count("/") in (1, 3) for page in torn)  # its first question is there
    fewer = {e.name for e in load_tables(small, "train", limit=6, options=TOGETHER)}
    assert fewer < {e.name for e in load_tables(small, "train", limit=20, options=TOGETHER)}
    assert len(load_tables(small, "train", limit=9999, options=TOGETHER)) == len(every)


def test_the_door_takes_together(small):
    found = load_examples(f"wikitables:{small}?questions=lookup&lookups=1&together=3", "train")
    pages = _pages(found)
    assert {len(page) for page in pages} == {3}
    assert len({page[0].picture.task.rows for page in pages}) == len(pages)  # one drawing of a table
    for bad in ("0", "-1", "many", "1.5", ""):
        with pytest.raises(DataError, match=f"together='{bad}' is no count"):
            load_examples(f"wikitables:{small}?together={bad}", "train")
    with pytest.raises(ValueError, match="together=0 asks nothing"):
        TableOptions(together=0)


def test_real_tables_are_asked_several_times():
    place = Path(os.environ.get("ARRCOC_WIKITABLES") or ROOT.parent / "shared" / "data" / "wikitablequestions")
    if not place.exists():
        pytest.skip(f"no WikiTableQuestions at {place}; set ARRCOC_WIKITABLES to the folder with tables.tgz")
    options = TableOptions(page_cells=(12, 16), together=8)
    pages = _pages(load_tables(place, "train", limit=160, options=options))
    assert sum(map(len, pages)) / len(pages) > 5
    for page in pages:
        grey = np.asarray(page[0].image.convert("L"), dtype=int)
        assert len({e.evidence for e in page}) == len(page)
        for left, top, right, bottom in (box for e in page for box in e.evidence):
            assert np.ptp(grey[top:bottom, left:right]) > 50
