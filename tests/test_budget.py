"""How many tokens an image gets: every form of `token_budget`, what is refused, and `"auto"` worked out by hand."""

import logging

import numpy as np
import pytest
import torch
from PIL import Image
from transformers.utils.logging import warning_once

from arrcoc.budget import MODES, TIERS, auto_token_budget, check_token_budget, effective_cells

NARROW, BROAD = "what is the date?", "list all the names"


def counts(inputs) -> list[int]:
    return inputs["image_token_counts"].tolist()


@pytest.mark.parametrize(
    ("budget", "expected"),
    [
        (1, [1, 1]),
        (np.int64(7), [7, 7]),
        (torch.tensor(9), [9, 9]),
        (10**6, [10**6, 10**6]),
        ("tiny", [64, 64]),
        ("small", [100, 100]),
        ("base", [256, 256]),
        ("large", [400, 400]),
        ("auto", ["auto", "auto"]),
        ("full", ["full", "full"]),
        (None, [200, 200]),
        ([5, "tiny"], [5, 64]),
        ((None, "auto"), [200, "auto"]),
        ([np.int32(3), "full"], [3, "full"]),
    ],
)
def test_every_form(budget, expected):
    assert check_token_budget(budget, 2, default=200) == expected


def test_default_may_be_any_single_form():
    assert check_token_budget(None, 1, default="small") == [100]
    assert check_token_budget([None, 3], 2, default="auto") == ["auto", 3]


@pytest.mark.parametrize(
    "bad",
    [
        0,
        -1,
        float("nan"),
        float("inf"),
        1.5,
        2.0,
        True,
        False,
        np.True_,
        torch.tensor(True),
        np.float32(3),
        "huge",
        "",
        "64",
        b"tiny",
        {},
        object,
    ],
    ids=repr,
)
def test_refused_alone_and_in_a_list(bad):
    """The message names the value and what is allowed; the same call with the value repaired passes."""
    for budget in (bad, [64, bad]):
        with pytest.raises(ValueError, match="is not a budget") as error:
            check_token_budget(budget, 2)
        assert repr(bad) in str(error.value)
        assert "'tiny'" in str(error.value)
        assert "'auto'" in str(error.value)
        assert ">= 1" in str(error.value)
    assert check_token_budget([64, 1], 2) == [64, 1]


def test_list_needs_one_entry_per_image():
    for wrong in ([64], [64, 64, 64], []):
        with pytest.raises(ValueError, match=rf"{len(wrong)} entries for 2 images") as error:
            check_token_budget(wrong, 2)
        assert str(wrong) in str(error.value)
    assert check_token_budget([64, 64], 2) == [64, 64]


def test_nested_list_and_array_are_refused():
    with pytest.raises(ValueError, match=r"\[64\] is not a budget"):
        check_token_budget([[64], [64]], 2)
    with pytest.raises(ValueError, match="is not a budget"):
        check_token_budget(np.array([64.5, 100]), 2)


@pytest.mark.parametrize(
    ("information", "expected"),
    [
        ([[3.0, 0.0], [0.0, 0.0]], 1),
        ([[0.2, 0.2], [0.2, 0.2]], 4),
        ([[1.0, 1.0], [0.0, 0.0]], 2),
        # Shares 1/2, 1/4, 1/4: entropy 1/2 ln 2 + 2 * 1/4 ln 4 = 3/2 ln 2.
        ([[2.0, 1.0], [1.0, 0.0]], 2**1.5),
        ([[0.0, 0.0], [0.0, 0.0]], 0),
        ([[1e-8, 0.0], [0.0, 0.0]], 0),
        ([[1.0, -5.0], [1.0, 0.0]], 2),
        ([[0.4]], 1),
    ],
)
def test_effective_cells_by_hand(information, expected):
    assert effective_cells(torch.tensor(information)) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("cells", "question", "tier"),
    [
        # A narrow question needs half of the evenly informative cells, a broad one or none all of them.
        (100, NARROW, 64),
        (128, NARROW, 64),
        (130, NARROW, 100),
        (300, NARROW, 160),
        (500, NARROW, 256),
        (5000, NARROW, 400),
        (64, BROAD, 64),
        (65, BROAD, 100),
        (101, "", 160),
        (161, " \n", 256),
        (257, BROAD, 400),
        (5000, "", 400),
    ],
)
def test_auto_takes_the_smallest_tier_that_holds_what_is_needed(cells, question, tier):
    assert auto_token_budget(torch.full((1, cells), 0.5), question) == tier


def test_auto_of_one_peak_and_of_a_blank_page_is_the_lowest_tier():
    peak = torch.zeros(40, 40)
    peak[3, 4] = 1
    for question in (NARROW, BROAD, ""):
        assert auto_token_budget(peak, question) == TIERS[0]
        assert auto_token_budget(torch.zeros(40, 40), question) == TIERS[0]


@pytest.mark.parametrize("seed", range(10))
def test_auto_gives_a_broad_question_no_fewer_tokens(seed):
    generator = torch.Generator().manual_seed(seed)
    information = torch.rand(24, 24, generator=generator) ** (1 + 3 * seed)
    assert auto_token_budget(information, BROAD) >= auto_token_budget(information, NARROW)
    assert auto_token_budget(information, BROAD) == auto_token_budget(information, "")


@pytest.mark.parametrize(
    ("question", "broad"),
    [
        ("Read everything", True),
        ("OCR", True),
        ("Extract the text", True),
        ("Read this page.", True),
        ("Convert this page to markdown", True),
        ("Explain this chart", True),
        ("What do you see?", True),
        ("What's in this picture?", True),
        ("Extract the total", False),
        ("Read the date of the letter", False),
        ("What is on the page number 3 sign?", False),
    ],
)
def test_what_asks_for_the_whole_page_is_broad(question, broad):
    assert auto_token_budget(torch.full((1, 200), 0.5), question) == (256 if broad else 100)


def test_words_that_ask_for_much_are_whole_words():
    information = torch.full((1, 200), 0.5)
    assert auto_token_budget(information, "How Many lines?") == 256
    # "all" begins one word and "total" ends the other, neither stands alone.
    assert auto_token_budget(information, "what is the allowance?") == 100
    assert auto_token_budget(information, "what is the subtotal?") == 100
    assert auto_token_budget(information, "what is the number of the bus?") == 100


@pytest.mark.parametrize(
    "question",
    [
        "read all words",
        "is every line full?",
        "what stands in each line?",
        "list what is blue",
        "count the lines",
        "how many lines?",
        "describe it",
        "summarise it",
        "summarize it",
        "give an overview",
        "compare both lines",
        "what is the difference?",
        "transcribe it",
        "what is the average?",
        "is there any red sign?",
        "does it say anything in red?",
        "what is the number of lines?",
        "are there more lines than dots?",
        "what differs?",
        "what is different?",
    ],
)
def test_each_word_that_asks_for_much_does_so_alone(question):
    information = torch.full((1, 200), 0.5)
    assert auto_token_budget(information, question) == 256
    assert auto_token_budget(information, "what is the total?") == 100


def test_modes_are_tiers():
    assert set(MODES.values()) < set(TIERS)
    assert list(TIERS) == sorted(TIERS)


def test_auto_in_the_processor(page, make_inputs):
    """25 x 25 cells: a blank picture gets the lowest tier, a full page more than one line of it."""
    blank = Image.new("RGB", (400, 400), "white")
    full = page(400, 400)
    one_line = blank.copy()
    one_line.paste(full.crop((0, 0, 400, 16)), (0, 192))
    assert counts(make_inputs([[blank, one_line, full]], BROAD, "auto"))[0] == TIERS[0]
    _, few, many = counts(make_inputs([[blank, one_line, full]], BROAD, "auto"))
    assert few < many
    assert counts(make_inputs(full, NARROW, "auto"))[0] <= many
    assert {few, many} <= set(TIERS)
    small = blank.resize((64, 64))  # 16 cells: all of them
    assert counts(make_inputs(small, BROAD, "auto")) == [16]


def test_budget_above_the_grid_keeps_all_and_says_so_once(make_inputs, page, caplog):
    logger = logging.getLogger("transformers")
    logger.addHandler(caplog.handler)
    warning_once.cache_clear()  # another test may have been told
    try:
        assert counts(make_inputs([page(128, 96), page(96, 96)], token_budget=[None, "full"])) == [48, 36]
        assert not caplog.records  # the default was nobody's wish
        for size, budget in ((128, 4321), (128, 4321), (96, 99)):
            assert counts(make_inputs(page(size, 96), token_budget=budget)) == [size * 96 // 256]
    finally:
        logger.removeHandler(caplog.handler)
    said = [record.getMessage() for record in caplog.records if "token_budget is above" in record.getMessage()]
    assert len(said) == 1


def test_default_of_the_processor(make_processor, make_inputs, page):
    """200 tokens for a call that does not say; a picture of 48 cells keeps them all."""
    assert counts(make_inputs([page(), page(400, 400)])) == [48, 200]
    assert counts(make_inputs(page(400, 400), processor=make_processor(token_budget="tiny"))) == [64]


def test_each_image_gets_its_own_entry(make_inputs, page):
    pictures = [page(128, 96), page(64, 64), page(400, 400)]
    assert counts(make_inputs([pictures], token_budget=[3, "full", "tiny"])) == [3, 16, 64]
    assert counts(make_inputs(pictures, token_budget=[None, 2, "auto"]))[:2] == [48, 2]
    with pytest.raises(ValueError, match="2 entries for 3 images"):
        make_inputs(pictures, token_budget=[3, 4])


def test_a_budget_per_image_may_be_an_array(make_inputs, page):
    """Such as `image_token_counts` of an earlier call."""
    for given in (torch.tensor([64, 100]), np.array([64, 100]), range(64, 101, 36)):
        assert check_token_budget(given, 2) == [64, 100]
        with pytest.raises(ValueError, match="2 entries for 3 images"):
            check_token_budget(given, 3)
    first = make_inputs([[page(), page(96, 64)]], token_budget=[5, 7])
    again = make_inputs([[page(), page(96, 64)]], token_budget=first["image_token_counts"])
    assert torch.equal(again["input_ids"], first["input_ids"])
