"""Pages as cameras and screens show them: what stands where, and which pages."""

from random import Random

import numpy as np
import pytest
from PIL import Image, ImageDraw

from evaluation.facts import group_of
from tests.small_archive import archive_files, tar_of
from training.data import DataError, Example, load_examples
from training.data.examples import by_picture
from training.data.world import WorldSource
from training.data.worn import WAYS, Worn, wear

BOX = (20.0, 30.0, 44.0, 40.0)


def page() -> Image.Image:
    image = Image.new("RGB", (96, 64), "white")
    ImageDraw.Draw(image).rectangle((20, 30, 43, 39), fill="black")
    return image


def asked(number=0) -> list[Example]:
    picture = page()
    return [Example(picture, f"which {word}?", ("a",), "form", (BOX,), f"{number} {word}", (BOX,)) for word in "ab"]


@pytest.mark.parametrize("way", WAYS)
def test_the_box_is_where_the_ink_is(way):
    """In whichever way a page is worn, the evidence is darker than what is around it."""
    for number in range(400):
        first, second = wear(asked(number), "train", 100)
        if first.picture.way == way:
            break
    assert first.picture.way == way
    assert first.picture == second.picture
    assert first.evidence == second.evidence == first.context
    image = first.image
    assert np.array_equal(image, second.image)  # the same each time
    assert not np.array_equal(image, page())
    left, top, right, bottom = first.evidence[0]
    grey = np.asarray(image.convert("L"), float)
    inside = grey[round(top) + 1 : round(bottom) - 1, round(left) + 1 : round(right) - 1].mean()
    beside = grey[round(top) + 1 : round(bottom) - 1, round(right) + 3 : round(right) + 12].mean()
    below = grey[round(bottom) + 3 : round(bottom) + 9, round(left) : round(right)].mean()
    assert inside + 12 < min(beside, below)


def test_a_percentage_of_the_pages_is_worn_in_every_way():
    pages = [one for number in range(600) for one in asked(number)]
    found = by_picture(wear(pages, "train", 30))
    worn = [each[0].picture for each in found if isinstance(each[0].picture, Worn)]
    assert len(found) == 600
    assert 150 < len(worn) < 210
    assert {picture.way for picture in worn} == set(WAYS)
    assert [one.question for one in wear(pages, "train", 30)] == [one.question for one in pages]
    held_out = by_picture(wear(pages, "held_out", 30))
    assert [isinstance(each[0].picture, Worn) for each in held_out] != [
        isinstance(each[0].picture, Worn) for each in found
    ]


def test_ways_leave_the_picture_that_they_are_given_as_it_is():
    image = page()
    before = np.array(image)
    for way in WAYS.values():
        made = way(image, Random(1))
        assert made.mode == "RGB"
        assert np.array_equal(image, before)


def test_drawn_pages_of_every_kind_take_it(tmp_path):
    path = tar_of(tmp_path, archive_files())
    for spec in ("world:form?grids=8x8", f"documents:{path}?pages=12", f"wikitables:{path}?page=12x16"):
        plain, worn = (load_examples(spec + more, "held_out", 3, 12) for more in ("", "&worn=100"))
        assert [one.question for one in worn] == [one.question for one in plain]
        assert all(isinstance(one.picture, Worn) for one in worn)
        if spec.startswith("wikitables"):  # two questions to a table are no two sources
            sources = [[group_of(one, one.name) for one in read] for read in (plain, worn)]
            assert sources[0] == sources[1]
            assert len(set(sources[0])) < len(plain)
    with pytest.raises(DataError, match="worn=101 is no percentage"):
        load_examples("world?worn=101")


def test_training_draws_worn_pages():
    source = WorldSource(3, "train", ("form",), ((8, 8),), 4, worn=100)
    found = source.page(5)
    assert len({one.picture for one in found}) == 1
    assert isinstance(found[0].picture, Worn)
    assert source.example(20).picture == found[0].picture
