"""Real tables drawn as pictures: reading the archive, splits, what fits on a page, and that the answer's ink is in its box."""

import os
import tarfile
from dataclasses import replace
from pathlib import Path
from random import Random
from types import SimpleNamespace

import numpy as np
import pytest

from tests.small_archive import archive_files, tar_of
from training.data import DataError, load_examples
from training.data.table_archive import Table, read_archive
from training.data.table_lookups import lookup_task
from training.data.table_page import Task, draw, plan
from training.data.table_style import LOOKS, covers, pick_style, wrap
from training.data.tables import (
    HUMAN,
    LOOKUP,
    TableOptions,
    answer_cell,
    human_task,
    load_tables,
)
from training.world.fonts import load_font

ROOT = Path(__file__).resolve().parents[1]


def _real() -> Path:
    place = Path(os.environ.get("ARRCOC_WIKITABLES") or ROOT.parent / "shared" / "data" / "wikitablequestions")
    if not place.exists():
        pytest.skip(f"no WikiTableQuestions at {place}; set ARRCOC_WIKITABLES to the folder with tables.tgz")
    return place


@pytest.fixture
def small(tmp_path) -> Path:
    return tar_of(tmp_path, archive_files())


def _ink(example) -> float:
    """Least contrast range of grey values in the example's boxes."""
    grey = np.asarray(example.image.convert("L"), dtype=int)
    return min(int(np.ptp(grey[t:b, left:r])) for left, t, r, b in example.evidence)


def test_archive_is_read_alike_packed_and_unpacked(tmp_path):
    packed = tar_of(tmp_path, archive_files())
    for name, content in archive_files().items():
        file = tmp_path / "open" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
    first, second, third = (read_archive(p) for p in (packed, packed / "tables.tgz", tmp_path / "open"))
    assert first.tables == second.tables == third.tables
    assert len(first.questions) == 60
    assert first.tables["csv/1-csv/3.csv"].rows[2] == ("Cleo", "327", '3. of "May"')


def test_nothing_is_unpacked_and_odd_members_are_passed_over(tmp_path):
    link = tarfile.TarInfo("csv/1-csv/999.csv")
    link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
    inside = tmp_path / "a" / "b"
    inside.mkdir(parents=True)
    files = {**archive_files(), "../../outside.csv": b"x", "csv/../../../outside.csv": b"x", "/tmp/outside.csv": b"x"}
    archive = read_archive(tar_of(inside, files, link))
    assert set(archive.tables) == {f"csv/1-csv/{number}.csv" for number in range(30)}
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["tables.tgz"]


def test_splits_share_no_table_and_copies_stay_together(small):
    examples = {split: load_tables(small, split, questions="human") for split in ("train", "held_out")}
    tables = {split: {e.name.split("-")[1] for e in found} for split, found in examples.items()}
    assert tables["train"]
    assert tables["held_out"]
    assert tables["train"].isdisjoint(tables["held_out"])
    assert sum(map(len, examples.values())) == 60
    one = Table(("A", "B"), (("1", "2"),))
    assert one.split == Table(("A", "B"), (("1", "2"),)).split
    # the split does not depend on the seed
    other = load_tables(small, "held_out", seed=5, questions="human")
    assert {e.question for e in other} == {e.question for e in examples["held_out"]}


def test_same_seed_draws_the_same_and_another_does_not(small):
    first, again, other = (load_tables(small, "train", seed, limit=4) for seed in (1, 1, 2))
    assert [e.name for e in first] == [e.name for e in again]
    assert [e.evidence for e in first] == [e.evidence for e in again]
    assert [e.image.tobytes() for e in first] == [e.image.tobytes() for e in again]
    assert [e.image.tobytes() for e in first] != [e.image.tobytes() for e in other]


def test_every_answer_is_drawn_within_its_box(small):
    examples = load_tables(small, "train", seed=3)
    assert {e.family for e in examples} == {HUMAN, LOOKUP}
    assert len({e.name for e in examples}) == len(examples)
    for example in examples:
        image = example.image
        assert image.width % 16 == image.height % 16 == 0
        assert image.width <= 24 * 16
        assert image.height <= 20 * 16
        for left, top, right, bottom in example.evidence:
            assert 0 <= left < right <= image.width
            assert 0 <= top < bottom <= image.height
        assert _ink(example) > 60


@pytest.mark.parametrize("cell", [(1, 1), (0, 0), (2, 1), (-1, 0)])
def test_the_box_holds_all_of_a_cells_ink(cell):
    """Two pages that differ in one cell alone differ inside of its box alone, whether or not it is the answer."""
    task = Task(("Name", "Points"), (("Ada", "11"), ("Ben", "22"), ("Cleo", "33")), (1, 1))
    for seed in range(8):
        style = pick_style(Random(seed), ("dejavu", "roboto", "lato", "caladea"), (11, 13), "11x")
        fitted = plan(task, style, (160, 192), Random(0))
        lines = [list(row) for row in fitted.lines]
        lines[1 + cell[0]][cell[1]] = ()
        bare, none = draw(style, replace(fitted, lines=tuple(map(tuple, lines))), Random(1), {cell})
        full, boxes = draw(style, fitted, Random(1), {cell})
        assert none == {cell: ()}
        assert boxes == draw(style, fitted, Random(1), {cell}, ink=False)[1]
        ((left, top, right, bottom),) = boxes.pop(cell)
        assert not boxes
        difference = np.abs(np.asarray(full, dtype=int) - np.asarray(bare, dtype=int)).sum(axis=-1)
        assert difference[top:bottom, left:right].any()
        difference[top:bottom, left:right] = 0
        assert not difference.any()


def test_answer_is_never_cut_and_other_cells_may_be():
    long = "a rather long text that goes on and on for many words indeed and does not end soon at all, no"
    rows = tuple(
        (f"row {n}", long if n != 4 else "the one answer of several words that must be whole", "x") for n in range(40)
    )
    task = Task(("Key", "Text", "Other"), rows, (4, 1), needed=((4, 0),))
    for seed in range(6):
        style = pick_style(Random(seed), ("dejavu", "roboto"), (11, 13), "abc")
        fitted = plan(task, style, (256, 160), Random(seed))
        place = 1 + fitted.rows.index(4)
        cells = dict(zip(fitted.columns, fitted.lines[place], strict=True))
        assert " ".join(cells[1]) == rows[4][1]
        assert " ".join(cells[0]) == "row 4"
        others = [line for row in fitted.lines for cell in row for line in cell]
        assert any(line.endswith("...") for line in others)
        assert sum(fitted.heights) <= 256 - 8
        assert list(fitted.rows) == sorted(fitted.rows)
    assert plan(task, style, (256, 160), Random(0), crop=False) is None
    assert plan(task, style, (48, 160), Random(0)) is None  # not even the answer fits


def test_mentioned_rows_and_columns_are_kept_before_others():
    header = tuple(f"Column {name}" for name in "ABCDEFGHIJ")
    rows = tuple(tuple(f"{name}{number:03d}" for name in "ABCDEFGHIJ") for number in range(60))
    table = Table(header, rows)

    class Asked:
        question, answer = "what is the column g of the one with column b b050?", "C003"

    task = human_task(table, Asked)
    assert (50, 1) in task.mentioned
    fitted = plan(task, pick_style(Random(0), ("dejavu",), (12, 12), "C003"), (160, 256), Random(0))
    assert {3, 50} <= set(fitted.rows)
    assert {1, 2, 6} <= set(fitted.columns)
    assert len(fitted.columns) < 10


@pytest.mark.parametrize(
    ("question", "answer", "by_chance"),
    [
        ("How many swimmers were faster than Ada?", "6", True),
        ("what is the difference in wins", "6", True),
        ("how many points has Cleo?", "31", False),
        ("what was the total of points?", "31", False),
        ("which rank has Cleo?", "6", False),
        ("how many have no time?", "DNF", False),
        ("how many are there below rank 6?", "7", True),  # that it is a rank says nothing of how many there are
        ("which rank has the longest streak of wins?", "7", True),
    ],
)
def test_a_number_that_is_counted_stands_in_no_cell(question, answer, by_chance):
    """It would be evidence that says nothing of the question."""
    table = Table(("Rank", "Name", "Points", "Time"), (("6", "Cleo", "31", "DNF"), ("7", "Ada", "30", "1:02")))
    task = human_task(table, SimpleNamespace(question=question, answer=answer))
    assert (task is None) is by_chance


@pytest.mark.parametrize(
    ("question", "by_chance"),
    [
        ("how many games were lost?", True),
        ("the longest streak of games won", True),
        ("which game had an average of 31?", False),
    ],
)
def test_the_number_of_a_row_is_no_count(question, by_chance):
    table = Table(("Game", "Score"), (("1", "40"), ("2", "31"), ("3", "12"), ("4", "20")))
    task = human_task(table, SimpleNamespace(question=question, answer="2"))
    assert (task is None) is by_chance


def test_lookups_have_one_answer():
    table = Table(("Title", "Series", "Series"), (("a x", "1", "2"), ("b y", "1", "3")))
    assert lookup_task(table, Random(0)) is None  # one header alone is unique
    table = Table(("Title", "Series", "Year"), (("Night", "1", "1999"), ("Day", "1", "2000"), ("Dusk", "2", "2000")))
    for seed in range(40):
        (question, *_), task = lookup_task(table, Random(seed))
        ((row, key),) = task.needed
        assert task.answer[0] == row
        assert [cells[key] for cells in table.rows].count(table.rows[row][key]) == 1
        assert table.rows[row][key] in question
        assert table.header[task.answer[1]] in question


def test_answer_cell_is_found_once_or_not_at_all():
    table = Table(("A", "B"), (("Paris", "x"), ("Rome", "x")))
    assert answer_cell(table, "paris") == (0, 0)
    assert answer_cell(table, "x") is None
    assert answer_cell(table, "A") is None


def test_wrap_keeps_all_letters_and_the_width():
    font = load_font("dejavu", 12)
    text = "one two extraordinarilylongword three"
    lines = wrap(text, 60, font)
    assert "".join(lines).replace(" ", "") == text.replace(" ", "")
    assert all(font.getlength(line) <= 60 for line in lines)
    assert wrap("", 60, font) == []


def test_letters_that_a_font_lacks_choose_another_font_or_none():
    assert covers("dejavu", "Ωmega")
    assert not covers("dejavu", "漢")
    assert pick_style(Random(0), ("caladea",), (12, 12), "Ж").font in ("dejavu", "caladea")
    assert pick_style(Random(0), ("caladea",), (12, 12), "漢字") is None
    assert {pick_style(Random(seed), ("dejavu",), (12, 12), "a").look for seed in range(40)} == set(LOOKS)


def test_left_out_says_why(tmp_path):
    files = archive_files(30)
    files["training.tsv"] += b"nt-x\twho is best?\tcsv/1-csv/2.csv\tnobody at all\n"
    tar_of(tmp_path, files)
    counts = [load_tables(tmp_path, split, questions="human").left_out for split in ("train", "held_out")]
    assert {"answer is not exactly one cell": 1} in counts
    with pytest.raises(DataError, match="larger than max_rows x max_columns"):
        load_tables(tmp_path, "train", questions="human", options=TableOptions(max_rows=2))
    with pytest.raises(ValueError, match="page_cells"):
        TableOptions(page_cells=(1, 1))


@pytest.mark.parametrize(
    ("line", "report"),
    [
        (b"nt-9\tonly three\tcsv/1-csv/2.csv\n", "training.tsv:62: the line has 3 values"),
        (b"nt-9\t \tcsv/1-csv/2.csv\tx\n", "training.tsv:62: utterance has no text"),
        (b"nt-9\twho?\tcsv/1-csv/2.csv\t\n", "training.tsv:62: targetValue is empty"),
        (b"nt-9\twho?\t../../secret.csv\tx\n", "training.tsv:62: context '../../secret.csv'"),
        (b"nt-9\twho?\tcsv/1-csv/77.csv\tx\n", "csv/1-csv/77.csv: there is no such table"),
        (b"nt-9\twh\xff?\tcsv/1-csv/2.csv\tx\n", "training.tsv:62: the line is not UTF-8"),
    ],
)
def test_bad_lines_are_reported_with_their_number(tmp_path, capsys, line, report):
    files = archive_files()
    files["training.tsv"] += line
    tar_of(tmp_path, files)
    with pytest.raises(DataError) as error:
        load_tables(tmp_path, "train")
    assert report in str(error.value)
    examples = load_tables(tmp_path, "train", questions="human", skip_bad=True)
    assert len(examples) > 30
    assert "left out" in capsys.readouterr().err


def test_bad_archives_are_refused(tmp_path):
    with pytest.raises(DataError, match="does not exist"):
        read_archive(tmp_path / "nowhere")
    with pytest.raises(DataError, match=r"neither tables\.tgz nor"):
        read_archive(tmp_path)
    (tmp_path / "tables.tgz").write_bytes(b"no archive")
    with pytest.raises(DataError, match="can't be read as a tar archive"):
        read_archive(tmp_path)
    folder = tmp_path / "cut"
    folder.mkdir()
    whole = tar_of(folder, archive_files()) / "tables.tgz"
    whole.write_bytes(whole.read_bytes()[:-200])
    with pytest.raises(DataError):
        load_tables(folder)
    good = tar_of(folder, archive_files()) / "tables.tgz"
    content = bytearray(good.read_bytes())
    content[-8] ^= 1  # of gzip's checksum: a flipped bit in a table may still be a table
    good.write_bytes(content)
    with pytest.raises(DataError, match="can't be read as a tar archive"):
        load_tables(folder)
    ragged = tmp_path / "ragged"
    ragged.mkdir()
    tar_of(ragged, {**archive_files(), "csv/1-csv/1.csv": b'"A","B"\n"1"\n'})
    with pytest.raises(DataError, match=r"csv/1-csv/1\.csv: a header and rows of its length"):
        load_tables(ragged)


def test_the_door_takes_tables(small):
    found = load_examples(f"wikitables:{small}?page=12x16&questions=lookup&lookups=1", "train", limit=3)
    assert [e.family for e in found] == [LOOKUP] * 3
    assert all(e.image.width <= 256 and e.image.height <= 192 for e in found)
    with pytest.raises(ValueError, match="'pages' is no option"):
        load_examples(f"wikitables:{small}?pages=12x16")


def test_real_tables_are_drawn_with_their_answers():
    path = _real()
    archive = read_archive(path)
    assert not archive.problems.found
    one_cell = sum(answer_cell(archive.tables[a.context], a.answer) is not None for a in archive.questions)
    assert (len(archive.questions), one_cell) == (14152, 6334)
    assert {t.split for t in archive.tables.values()} == {"train", "held_out"}
    examples = load_tables(path, "held_out", seed=0, limit=8)
    for example in examples:
        assert example.image.width % 16 == example.image.height % 16 == 0
        assert _ink(example) > 50
