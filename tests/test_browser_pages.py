"""Everyday pages drawn by a browser: what is marked as the answer is its ink, on pages that the evaluation reads."""

import sys

import numpy as np
import pytest

from demo.browser import open_browser
from dev import browser_pages
from training.data import load_examples


@pytest.fixture(scope="module", autouse=True)
def browser():
    """Skips where there is none."""
    try:
        with open_browser():
            pass
    except RuntimeError as error:
        pytest.skip(str(error))


def draw(monkeypatch, out, *options: str) -> None:
    monkeypatch.setattr(sys, "argv", ["browser_pages", "--out", str(out), *options])
    browser_pages.main()


def test_answers_stand_in_their_boxes(tmp_path, monkeypatch, capsys):
    out, kinds = tmp_path / "pages", [kind.name for kind in browser_pages.kinds()]
    draw(monkeypatch, out, "--pages", str(len(kinds)), "--size", "208", "272")
    examples = load_examples(str(out))
    assert capsys.readouterr().out == f"{len(examples)} questions about {len(kinds)} pages in {out}\n"
    assert list(dict.fromkeys(example.family for example in examples)) == kinds
    for example in examples:
        assert example.image.size == (272, 208)
        assert "{" not in example.question + example.answers[0]
        grey = np.asarray(example.image.convert("L"), dtype=int)
        for left, top, right, bottom in example.evidence:
            assert np.ptp(grey[top:bottom, left:right]) > 50
            assert (right - left) * (bottom - top) < 272 * 208 / 4  # one text, not all of them


def test_the_seed_draws_the_pages(tmp_path, monkeypatch):
    for name, seed in (("one", "3"), ("again", "3"), ("other", "4")):
        draw(monkeypatch, tmp_path / name, "--pages", "2", "--seed", seed)
    one, again, other = ((tmp_path / name / "metadata.jsonl").read_text() for name in ("one", "again", "other"))
    assert one == again != other


def test_what_can_not_be_drawn_is_refused(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(browser_pages, "_PAGES_TRIED", 10)
    with pytest.raises(SystemExit, match="pass a larger --size"):
        draw(monkeypatch, tmp_path / "pages", "--pages", "1", "--size", "32", "48")
    (tmp_path / "kept.txt").write_text("mine")
    with pytest.raises(SystemExit):
        draw(monkeypatch, tmp_path)
    assert "holds files already" in capsys.readouterr().err
