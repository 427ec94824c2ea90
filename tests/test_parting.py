"""Several questions in one prompt: told apart, scored by themselves, and united."""

import pytest
import torch

from arrcoc import deciding
from arrcoc.participating import united
from arrcoc.parting import parted
from arrcoc.questions import questions_of
from training.data import load_examples
from training.data.examples import evidence_weight

FIRST, SECOND = "What is the total?", "Which city has tax 7?"


@pytest.mark.parametrize(
    ("asked", "parts"),
    [
        ("What is the total? Who paid it in cash?", None),  # what "it" is, the first one says
        ("What is the total? Which city has tax 7?", ["What is the total?", "Which city has tax 7?"]),
        ("What is the total? And which city has tax 7?", ["What is the total?", "which city has tax 7?"]),
        ("What is the total? Also, who paid?", ["What is the total?", "who paid?"]),
        ("what is the total and who paid?", ["what is the total", "who paid?"]),
        ("What is the total, and how many rooms has Rome?", ["What is the total", "how many rooms has Rome?"]),
        (
            "What is the price of tea & what is the price of coffee?",
            ["What is the price of tea", "what is the price of coffee?"],
        ),
        ("What is the total? And the date?", ["What is the total?", "What's the date?"]),
        ("What are the date and the total?", ["What's the date?", "What's the total?"]),
        ("Give me the invoice number and the due date.", ["What's the invoice number?", "What's the due date?"]),
        ("What does it say for date? What is the total?", ["What does it say for date?", "What is the total?"]),
        (
            "Engine is V12: what is the Year? Year is 1969: what is the Engine?",
            ["Engine is V12: what is the Year?", "Year is 1969: what is the Engine?"],
        ),
        ("(a) Who paid? (b) Who signed?", ["Who paid?", "Who signed?"]),
        ("Who paid? When? Why?", None),
        ("Is the shop open? What is the phone number?", ["Is the shop open?", "What is the phone number?"]),
        (
            "Who is Anna? Who is Ben? Who is Carl? Who is Dora?",
            ["Who is Anna?", "Who is Ben?", "Who is Carl?", "Who is Dora?"],
        ),
        ("Who is Anna? Who is Ben? Who is Carl? Who is Dora? Who is Emil?", None),
        ("Is there a date? If not, what is the total?", None),
        ("What is the date or, if there is none, the total?", None),
        ("Could you help me? What is the total?", None),
        ("What is the total? Is it paid?", None),
        ("What is the total? What is the total?", None),
        ("Which is larger? The total or the deposit?", None),
        ("What is the difference between the total and the deposit?", None),
        ("What is the sum of the total and the deposit?", None),
        ("What is the price of tea and coffee?", None),
        ("which place is the largest in area and where afrikaans is spoken?", None),
        ("which building has 8 floors and is 240 ft tall?", None),
        ("which Pos. is below GK?", None),
        ("My glasses are broken. What is the total?", None),
        ("", None),
        ("?", None),
        ("\u4ec0\u4e48\uff1f", None),
    ],
)
def test_questions_that_stand_alone_are_told_apart(asked, parts):
    assert parted(asked) == ([asked] if parts is None else parts)


@pytest.mark.parametrize("more", ["reworded=1", "beside=100", "phrased=100&reworded=1", "questions=3"])
def test_no_drawn_question_is_taken_for_several(more, processor):
    for split in ("train", "held_out"):
        for one in load_examples(f"world?grids=12x12&{more}", split, 3, 200):
            turn = f"<|im_start|>user\n{processor.image_token}{one.question}<|im_end|>\n"
            assert "\n" not in questions_of(turn, processor.image_token, "last_user")[0], one.question


def test_the_mask_numbers_them_and_each_has_its_own_tokens(processor, make_inputs, page):
    both, *each = (make_inputs(page(), asked, 9) for asked in (f"{FIRST} {SECOND}", FIRST, SECOND))
    (ids,), (mask,) = both["query_input_ids"], both["query_attention_mask"]
    for number, one in enumerate(each, 1):
        alone = one["query_attention_mask"].bool()
        assert one["query_attention_mask"][alone].eq(1).all()
        assert torch.equal(ids[mask == number], one["query_input_ids"][alone])
    given = processor(text=processor.image_token, images=page(), question=f"{FIRST} {SECOND}", return_tensors="pt")
    assert torch.equal(given["query_attention_mask"][0], mask)


def test_united_each_keeps_its_best_cell_best():
    first, second = torch.tensor([[9.0, 1.0, 0.0]]), torch.tensor([[0.0, 0.0, 3.0]])
    assert united([first, second]).tolist() == [[6.0, 3.0, 6.0]]
    assert united([first]) is first


ASKED = (f"{FIRST} {SECOND}", FIRST, SECOND)


@pytest.mark.parametrize("dials", [{}, {"allocation_mode": "foveated"}], ids=str)
@torch.no_grad()
def test_the_needs_of_both_are_united(dials, tiny_model, make_inputs, page):
    found = [tiny_model().allocate(**make_inputs(page(128, 96), asked, 16), **dials)[0].scores for asked in ASKED]
    needed = [scores["participation"] for scores in found]
    assert torch.equal(needed[0], united(needed[1:]))
    assert not torch.equal(needed[0], needed[1])
    for name in ("information", "perspective"):
        assert torch.equal(found[0][name], found[1][name])


@torch.no_grad()
def test_stage_1_unites_them_too(tiny_model, make_inputs, page):
    names = ("image_grid_thw", "texture_images", "query_input_ids", "query_attention_mask")
    early = []
    for asked in ASKED:
        inputs = make_inputs(page(128, 96), asked, 16)
        (rated,) = tiny_model().model.rated_glances(*(inputs[name] for name in names), [False])
        early.append(rated.early)
    assert torch.equal(early[0], united(early[1:]))
    assert not torch.equal(early[0], early[1])


@torch.no_grad()
def test_a_mask_of_ones_reads_them_as_one(tiny_model, make_inputs, page):
    model, inputs = tiny_model(), make_inputs(page(128, 96), f"{FIRST} {SECOND}", 16)
    apart = model.allocate(**inputs)[0]
    inputs["query_attention_mask"] = inputs["query_attention_mask"].bool().long()
    together = model.allocate(**inputs)[0]
    assert not torch.equal(apart.scores["participation"], together.scores["participation"])


@pytest.mark.parametrize("dials", [{}, {"encode_ratio": 0.5}, {"allocation_mode": "foveated"}], ids=str)
@torch.no_grad()
def test_images_of_a_batch_are_scored_as_alone(dials, tiny_model, make_inputs, page, monkeypatch):
    """Those with several questions beside those with one, as a GPU takes them together."""
    plain = deciding._together
    monkeypatch.setattr(deciding, "_together", lambda kinds, _, several: plain(kinds, torch.device("cuda"), several))
    model, asked = tiny_model(), [FIRST, f"{FIRST} {SECOND}", SECOND, f"{SECOND} {FIRST}", f"{FIRST} {SECOND}"]
    pages = [page(128, 96, seed) for seed in range(len(asked))]
    together = model(**make_inputs(pages, asked, 16), **dials).logits[:, -1]
    for number, one in enumerate(asked):
        alone = model(**make_inputs(pages[number], one, 16), **dials).logits[0, -1]
        assert (together[number] - alone).abs().max() < 1e-5


@torch.no_grad()
def test_about_all_is_what_all_of_them_are_about(model, make_inputs, page):
    about = "What kind of page is this?"
    for asked, everywhere in ((about, True), (f"{about} {FIRST}", False), (f"{FIRST} {about}", False)):
        for dials in ({}, {"encode_ratio": 0.5}, {"allocation_mode": "foveated"}):
            assert bool(model.allocate(**make_inputs(page(128, 96), asked, 16), **dials)[0].everywhere) is everywhere


@torch.no_grad()
def test_what_both_are_read_from_is_kept(model, processor, make_inputs):
    """Of pages with several fields, two asked at once, at a tenth of the tokens."""
    kept = {True: [], False: []}
    joined = load_examples("world:several_fields,form?grids=12x12&questions=3&joined=100", "held_out", 8_000_000, 40)
    for one in joined:
        inputs = make_inputs(one.image, one.question, 14)
        if inputs["query_attention_mask"].max() < 2:
            continue
        for apart in kept:
            inputs["query_attention_mask"] = inputs["query_attention_mask"].clamp_max(9 if apart else 1)
            cells = (model.allocate(**inputs)[0].cell_token >= 0).view(12, 12)
            kept[apart].append(float((evidence_weight(one.evidence, one.image.size, (12, 12)) * cells).sum()))
    assert len(kept[True]) > 10
    means = {apart: sum(each) / len(each) for apart, each in kept.items()}
    assert means[True] > 0.9
    assert means[True] > means[False] + 0.1
