"""Real tables drawn by a browser: what is marked as the answer is its ink, on pages that the evaluation reads."""

import shutil
import subprocess
import sys

import numpy as np
import pytest

from demo.browser import open_browser
from dev import browser_tables
from tests.small_archive import archive_files, tar_of
from training.data import load_examples


def test_answers_stand_in_their_boxes(tmp_path, monkeypatch, capsys):
    try:
        with open_browser():
            pass
    except RuntimeError as error:
        pytest.skip(str(error))
    out = tmp_path / "pages"
    tables = tar_of(tmp_path, archive_files(40))
    monkeypatch.setattr(
        sys,
        "argv",
        ["browser_tables", "--tables", str(tables), "--out", str(out), "--pages", "8", "--size", "160", "240"],
    )
    browser_tables.main()
    assert capsys.readouterr().out == f"8 pages in {out}\n"
    examples = load_examples(str(out))
    assert [example.family for example in examples] == ["table_human"] * 4 + ["table_lookup"] * 4
    for example in examples:
        assert example.image.size == (240, 160)
        grey = np.asarray(example.image.convert("L"), dtype=int)
        for left, top, right, bottom in example.evidence:
            assert np.ptp(grey[top:bottom, left:right]) > 50
            assert (right - left) * (bottom - top) < 240 * 160 / 4  # one cell of the table, not all of it
    assert len({example.image.tobytes() for example in examples}) == 8


def test_fonts_that_the_machine_lacks_are_named(monkeypatch, capsys):
    if shutil.which("fc-list") is None:
        pytest.skip("there is no fc-list to name a font that is installed")
    installed = subprocess.run(["fc-list", ":", "family"], check=True, capture_output=True, text=True).stdout
    monkeypatch.setattr(browser_tables, "FONTS", ("No Such Font", installed.splitlines()[0].split(",")[0]))
    try:
        with open_browser() as browser:
            browser_tables.tell_missing_fonts(browser.new_page())
    except RuntimeError as error:
        pytest.skip(str(error))
    assert "lacks No Such Font, which are" in capsys.readouterr().err


def test_a_folder_of_files_is_left_alone(tmp_path, monkeypatch, capsys):
    (tmp_path / "kept.txt").write_text("mine")
    monkeypatch.setattr(sys, "argv", ["browser_tables", "--tables", str(tmp_path), "--out", str(tmp_path)])
    with pytest.raises(SystemExit):
        browser_tables.main()
    assert "holds files already" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["kept.txt"]
