"""Tables drawn in more ways than those of the reported results: `varied`."""

from dataclasses import replace
from pathlib import Path
from random import Random

import numpy as np
import pytest

from tests.small_archive import archive_files, tar_of
from training.data import load_examples
from training.data.table_page import Task, draw, plan
from training.data.table_style import VARIED_LOOKS, pick_style, vary
from training.data.tables import TableOptions, load_tables
from training.world.fonts import FURTHER_FONTS, HELD_OUT_FONTS, TRAIN_FONTS

TASK = Task(("Name", "Points"), (("Ada Ba", "11"), ("Ben", "22"), ("Cleo", "33")), (1, 1))
PAGE = (160, 192)
_BLEED = 3  # pixels by which resampling may carry ink beyond its box


@pytest.fixture
def small(tmp_path) -> Path:
    return tar_of(tmp_path, archive_files())


def style_of(seed: int, **changes):
    """A varied style, with fields set."""
    random = Random(seed)
    style = pick_style(random, ("dejavu", "roboto", "lato", "stix"), (11, 13), "11x")
    return replace(vary(style, random, TASK.header), **changes)


@pytest.mark.parametrize("cell", [(1, 1), (0, 0), (-1, 0)])
def test_the_box_holds_a_cells_ink_however_the_page_is_drawn(cell):
    """Two pages that differ in one cell alone differ near its box alone, stretched or not."""
    for seed in range(40):
        style = style_of(seed)
        fitted = plan(TASK, style, PAGE, Random(0))
        lines = [list(row) for row in fitted.lines]
        lines[1 + cell[0]][cell[1]] = ()
        bare, _ = draw(style, replace(fitted, lines=tuple(map(tuple, lines))), Random(1), {cell})
        full, boxes = draw(style, fitted, Random(1), {cell})
        assert boxes == draw(style, fitted, Random(1), {cell}, ink=False)[1]
        difference = np.abs(np.asarray(full, dtype=int) - np.asarray(bare, dtype=int)).sum(axis=-1)
        for left, top, right, bottom in boxes[cell]:
            assert difference[top:bottom, left:right].max() > 60
            difference[max(0, top - _BLEED) : bottom + _BLEED, max(0, left - _BLEED) : right + _BLEED] = 0
        assert not difference.any()


def test_pages_stay_within_the_largest_size_and_on_the_grid():
    sizes = set()
    for seed in range(40):
        style = style_of(seed)
        image, _ = draw(style, plan(TASK, style, PAGE, Random(0)), Random(1))
        assert image.width % 16 == image.height % 16 == 0
        assert image.height <= PAGE[0]
        assert image.width <= PAGE[1]
        sizes.add(image.size)
    assert len(sizes) > 5


def box_of(cell, **changes):
    """Where a cell's ink is on a page as large as `PAGE`, of a plain style with fields set."""
    plain = {
        "look": "plain", "font": "dejavu", "size": 12, "align": "left", "middle": False, "wide": False, "title": "", "pad_x": 4,
        "capitals": False, "whole_page": True, "stretch": (1.0, 1.0), "pad_y": 2, "bold_header": False,
    }  # fmt: skip
    style = style_of(0, **(plain | changes))
    image, boxes = draw(style, plan(TASK, style, PAGE, Random(0)), Random(1), {cell})
    return image, boxes[cell][0]


def test_each_way_of_drawing_shows():
    image, left = box_of((1, 1))
    assert image.size == PAGE[::-1]
    assert box_of((1, 1), align="right")[1][0] > box_of((1, 1), align="centre")[1][0] > left[0]
    # figures stand right, words left
    assert box_of((1, 1), align="figures")[1] == box_of((1, 1), align="right")[1]
    assert box_of((1, 0), align="figures")[1] == box_of((1, 0))[1]
    assert box_of((1, 1), wide=True)[1][0] > left[0]
    assert box_of((1, 1), title="Results")[1][1] > left[1]
    for taller, wider, changes in (
        (0, 1, {"capitals": True}),
        (0, -1, {"stretch": (1.0, 0.8)}),
        (1, 0, {"stretch": (1.5, 1.0)}),
    ):
        (_, now), (_, before) = box_of((-1, 1), **changes), box_of((-1, 1))
        assert np.sign(now[3] - now[1] - (before[3] - before[1])) == taller
        assert np.sign(now[2] - now[0] - (before[2] - before[0])) == wider
    coloured = box_of((-1, 0), header_colours=((10, 20, 120), (250, 250, 250)))[0]
    assert (10, 20, 120) in [colour for _, colour in coloured.getcolors(100_000)]


def test_lines_stand_in_the_middle_of_a_higher_row():
    task = Task(("Name", "Points"), (("one two three four five six", "11"),), (0, 1))
    tops = []
    for middle in (False, True):
        style = style_of(0, align="left", middle=middle, stretch=(1.0, 1.0), wide=False, title="", size=12)
        fitted = plan(task, style, (160, 112), Random(0))
        assert len(fitted.lines[1][0]) > 1
        tops.append(draw(style, fitted, Random(1), {(0, 1)})[1][0, 1][0][1])
    assert tops[1] > tops[0]


def test_styles_differ_in_every_way():
    styles = [style_of(seed) for seed in range(200)]
    assert {style.look for style in styles} == set(VARIED_LOOKS)
    assert {style.align for style in styles} == {"left", "centre", "right", "figures"}
    for name in ("middle", "wide", "whole_page", "capitals"):
        assert {getattr(style, name) for style in styles} == {True, False}
    assert any(sum(style.paper) < 200 for style in styles)
    for style in styles:
        assert abs(sum(style.paper) - sum(style.ink)) > 250
        assert all(0 <= value <= 255 for value in style.shade)


def test_spec_draws_other_pages_of_the_same_questions(small):
    plain, varied = (
        load_examples(f"wikitables:{small}?questions=human{more}", "train", 1) for more in ("", "&varied=1")
    )
    assert [example.question for example in plain] == [example.question for example in varied]
    assert sum(a.image.tobytes() == b.image.tobytes() for a, b in zip(plain, varied, strict=True)) == 0
    again = load_tables(small, "train", 1, "human", TableOptions(varied=True))
    assert [example.image.tobytes() for example in again] == [example.image.tobytes() for example in varied]


def test_held_out_tables_keep_their_fonts():
    train, held_out = (TableOptions(varied=True).fonts_of(split) for split in ("train", "held_out"))
    assert set(FURTHER_FONTS) <= set(train)
    assert set(held_out) <= set(HELD_OUT_FONTS)
    assert not set(FURTHER_FONTS) & {*TRAIN_FONTS, *TableOptions().fonts_of("train"), *held_out}
