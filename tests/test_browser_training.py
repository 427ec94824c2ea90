"""Pages of training drawn by a browser: what is marked is ink, and all that is asked can be loaded."""

import sys
from random import Random

import numpy as np
import pytest

from demo.browser import open_browser
from dev import browser_training
from tests.small_archive import archive_files, comparing_files, tar_of
from training.data import by_picture, load_examples


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    """A folder with drawable tables; skips where there is no browser."""
    try:
        with open_browser():
            pass
    except RuntimeError as error:
        pytest.skip(str(error))
    return tar_of(tmp_path_factory.mktemp("tables"), archive_files(40))


def draw(tables, out):
    arguments = ["--tables", str(tables), "--out", str(out), "--pages", "10", "--size", "192", "256", "--seed", "4"]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(sys, "argv", ["browser_training", *arguments])
        browser_training.main()
    return load_examples(str(out), "train")


@pytest.fixture(scope="module")
def drawn(tables, tmp_path_factory):
    """The folder of ten pages, and what is asked of them."""
    out = tmp_path_factory.mktemp("drawn") / "pages"
    return out, draw(tables, out)


def test_what_is_marked_is_ink_and_a_seed_draws_the_same(tables, drawn, tmp_path, capsys):
    out, examples = drawn
    again = draw(tables, tmp_path / "again")
    pages = by_picture(examples)
    assert capsys.readouterr().out.startswith(f"{len(examples)} questions about 10 pages")
    assert len(pages) == 10
    families = {example.family.partition("_")[0] for example in examples}
    assert families == {"document", "table"}
    for example in examples:
        grey = np.asarray(example.image.convert("L"), dtype=int)
        assert example.evidence
        for left, top, right, bottom in (*example.evidence, *example.context):
            assert 0 <= left < right <= 256
            assert 0 <= top < bottom <= 192
            assert np.ptp(grey[int(top) : int(bottom), int(left) : int(right)]) > 40
    assert [(a.question, a.evidence) for a in again] == [(b.question, b.evidence) for b in examples]
    with pytest.raises(SystemExit):
        draw(tables, out)


def test_the_numbers_that_people_compare_are_marked(tables, tmp_path):
    asked = [
        example
        for example in draw(tar_of(tmp_path, comparing_files()), tmp_path / "pages")
        if example.question == "who has the most points?"
    ]
    assert asked
    for example in asked:
        name, *points = example.evidence
        assert len(points) > 2
        assert all(name[2] <= left for left, *_ in points)  # names stand left of points
        assert len({top for _, top, *_ in points}) == len(points)
        assert min(abs(name[1] - top) for _, top, *_ in points) < 4  # that of its own row among them


@pytest.mark.parametrize(("percent", "least", "most"), [(0, 0, 0), (50, 60, 110), (100, 150, 200)])
def test_a_share_of_the_questions_has_small_words(percent, least, most):
    random, line = Random(1), {"question": "What is the total?", "answers": ["5"]}
    lines = [browser_training.as_asked(line, "0.png", percent, random) for _ in range(200)]
    assert least <= sum(one["question"] != line["question"] for one in lines) <= most
    assert all(one == {**line, "file_name": "0.png", "question": one["question"]} for one in lines)


def test_look_ups_name_what_is_marked_as_context(drawn):
    looked_up = [one for one in drawn[1] if one.family == "table_lookup"]
    assert looked_up
    for one in looked_up:  # the value that names the row, and two headers
        assert len(one.context) >= 3
        assert not {*one.context} & {*one.evidence}
