"""Whether a question is about the whole image: how it is read, what follows from it, how it is learned."""

import copy
import math

import pytest
import torch
from PIL import Image

from arrcoc.attending import attend, choose_cells, cover, rank
from arrcoc.scoping import QuestionScope
from training import scope, signals
from training.allocator_batches import AllocatorCollator
from training.allocator_learner import AllocatorLearner
from training.data import load_examples
from training.scorers import encode_once, layer_scores

SIZE = 12
WHOLE = (
    "What kind of page is this?",
    "Which kind of page is this?",
    "what type of page is this?",
    "What is on this page?",
)
PLACED = (
    "What is the total?",
    "How many circles are there?",
    "What's the Document?",
    "Which bar is the highest?",
    "photo",
    "",
)


@pytest.fixture
def awake():
    torch.manual_seed(0)
    read = QuestionScope(SIZE)
    with torch.no_grad():
        read.score.weight.normal_()
        read.score.bias.fill_(0.3)
    return read


def test_untrained_no_question_is_about_the_whole_image():
    query, mask = torch.randn(3, 7, SIZE), torch.ones(3, 7, dtype=torch.bool)
    assert torch.equal(QuestionScope(SIZE)(query, mask), torch.zeros(3))


def test_where_nothing_is_asked_it_is_not(awake):
    query, mask = torch.randn(2, 5, SIZE), torch.zeros(2, 5, dtype=torch.bool)
    assert torch.equal(awake(query, mask), torch.zeros(2))
    assert torch.equal(awake(query[:, :0], mask[:, :0]), torch.zeros(2))
    assert awake(query[0, :0], mask[0, :0]).shape == ()


def test_padding_and_other_questions_change_nothing(awake):
    query, mask = torch.randn(3, 9, SIZE), torch.ones(3, 9, dtype=torch.bool)
    mask[0, 4:], mask[1, 1:] = False, False
    query[~mask] = math.nan
    together = awake(query, mask)
    for row, said, alone in zip(query, mask, together, strict=True):
        torch.testing.assert_close(awake(row[said], said[said]), alone)
    assert len(set(together.tolist())) == 3


def test_it_reads_the_order_of_words(awake):
    query, mask = torch.randn(8, SIZE), torch.ones(8, dtype=torch.bool)
    assert abs(awake(query, mask) - awake(query.flip(0), mask)) > 1e-4


def test_the_question_gets_no_gradient(awake):
    query = torch.randn(4, SIZE, requires_grad=True)
    awake(query, torch.ones(4, dtype=torch.bool)).backward()
    assert query.grad is None
    assert all(parameter.grad.any() for parameter in awake.parameters())


@pytest.mark.parametrize("count", [1, 7, 36])
def test_everywhere_is_a_floor_of_one_and_not_everywhere_is_the_floor(count):
    scores, grid = torch.randn(144), (1, 12, 12)
    dials = {"coarse_share": 0.0, "min_deepstack_levels": None, "num_levels": 3}
    for floor in (0.0, 0.1):
        for everywhere, same in ((None, floor), (torch.tensor(False), floor), (torch.tensor(True), 1.0)):
            expected = choose_cells(scores, grid, count, same)
            assert torch.equal(choose_cells(scores, grid, count, floor, everywhere), expected)
            plan = attend(scores, grid, count, coverage_floor=floor, everywhere=everywhere, **dials)
            assert torch.equal(plan["positions"][:, 1] * 12 + plan["positions"][:, 2], expected)
    covered = cover(scores, grid, count, rank(scores)).nonzero().flatten().tolist()
    assert set(covered) <= set(choose_cells(scores, grid, count, 0.1, torch.tensor(True)).tolist())


def forced(model, everywhere: bool):
    model = copy.deepcopy(model)
    with torch.no_grad():
        model.model.arrcoc.scope.score.weight.zero_()
        model.model.arrcoc.scope.score.bias.fill_(1.0 if everywhere else -1.0)
    return model


@pytest.mark.parametrize(
    "spend", [{}, {"encode_ratio": 0.5}, {"encode_ratio": "auto"}, {"allocation_mode": "foveated"}]
)
def test_a_question_about_the_whole_image_spends_as_a_floor_of_one(spend, tiny_model, make_inputs, page):
    inputs = make_inputs([page(192, 192), page(128, 192, 3)], token_budget=30)
    model, chosen = tiny_model(), []
    for everywhere in (False, True):
        spent = forced(model, everywhere).allocate(**inputs, **spend)
        assert [bool(plan.everywhere) for plan in spent] == [everywhere, everywhere]
        alike, otherwise = forced(model, False), spend
        if everywhere:
            alike.config.coverage_floor = 1.0
            otherwise = {} if "allocation_mode" in spend else spend  # no coarse view, see below
        same = alike.allocate(**inputs, **otherwise)
        assert all(torch.equal(one.positions, other.positions) for one, other in zip(spent, same, strict=True))
        chosen.append(torch.cat([plan.positions for plan in spent]))
    assert not torch.equal(*chosen)


@pytest.mark.parametrize("ratio", [1.0, 0.4, "auto"])
def test_a_question_about_the_whole_image_has_no_coarse_view(ratio, tiny_model, make_inputs, page):
    model = forced(tiny_model(), True).eval()
    inputs = make_inputs([page(192, 192), page(128, 192, 3)], token_budget=40)
    foveated = {"encode_ratio": ratio, "allocation_mode": "foveated"}
    with torch.no_grad():
        assert torch.equal(model(**inputs, **foveated).logits, model(**inputs, encode_ratio=ratio).logits)
        assert not torch.equal(tiny_model()(**inputs, **foveated).logits, model(**inputs, **foveated).logits)
        if ratio != 0.4:  # which is refused: it would have been chosen for one question
            encoded = model.encode_images(**inputs, **foveated)
            assert [len(view) for view in encoded.views] == [9, 6]  # other questions may need them
            assert torch.equal(model(**inputs, encoded_images=encoded).logits, model(**inputs, **foveated).logits)


def test_each_image_of_a_batch_has_a_coarse_view_or_none_by_its_own_question(model, make_inputs, page):
    asks = ["What kind of page is this?", "How many circles are there?"]
    inputs = make_inputs([page(192, 192)] * 2, asks, token_budget=40)
    with torch.no_grad():
        plans = model.allocate(**inputs, allocation_mode="foveated")
    assert [plan.coarse for plan in plans] == [0, 9]


def test_empty_paper_left_out_leaves_enough_for_a_question_about_the_whole_image(tiny_model, make_inputs):
    nearly_blank = Image.new("RGB", (384, 384), "white")
    nearly_blank.paste("black", (200, 200, 240, 212))
    model, inputs = forced(tiny_model(), True), make_inputs(nearly_blank, token_budget=31)
    encoded = model.encode_images(**inputs, encode_ratio="auto", allocation_mode="foveated")
    assert (len(encoded.views[0]), len(encoded.glances[0].encoded)) == (9, 31)
    plan = model.allocate(**inputs, encoded_images=encoded)[0]
    assert (plan.coarse, len(plan)) == (0, 31)


def test_without_a_question_the_image_alone_chooses(tiny_model, make_inputs, page):
    inputs = make_inputs(page(192, 192), token_budget=20, question="")
    plan = forced(tiny_model(), True).allocate(**inputs)[0]
    assert not plan.everywhere
    assert torch.equal(plan.positions, forced(tiny_model(), False).allocate(**inputs)[0].positions)


def test_which_loses_less_counts_by_how_much():
    logit = torch.tensor([0.0, math.log(3.0), 5.0], requires_grad=True)
    loss = signals.scope_loss(logit, torch.tensor([1.0, 0.2, 0.7]), torch.tensor([0.5, 1.0, 0.7]))
    assert loss.item() == pytest.approx((0.5 * math.log(2) + 0.8 * math.log(4 / 3)) / 3)
    loss.backward()
    assert logit.grad[0] > 0 > logit.grad[1]  # away from what loses more
    assert logit.grad[2] == 0


def test_it_learns_from_what_is_lost(tiny_model, make_processor):
    learner = AllocatorLearner(copy.deepcopy(tiny_model()), {"scope": 1.0})
    examples = load_examples("world:gist,one_field?grids=8x8", "train", 3, 12)
    batch = AllocatorCollator(make_processor(), language=True, shares=(0.1, 0.2))(examples, 0)
    losses = [learner(**batch)["loss"]]
    optimizer = torch.optim.Adam(learner.scorer.scope.parameters(), 0.02)
    for _ in range(20):
        optimizer.zero_grad()
        losses[-1].backward()
        optimizer.step()
        losses.append(learner(**batch)["loss"])
    assert losses[-1] < losses[0] - 0.01


@pytest.mark.parametrize("everywhere", [False, True])
def test_all_kinds_of_gates_train_on_what_is_chosen(everywhere, tiny_model, make_processor):
    model = forced(tiny_model(), everywhere)
    examples = load_examples("world:gist,one_field?grids=8x8", "train", 3, 3)
    batch = AllocatorCollator(make_processor(), language=False, shares=(0.2, 0.3))(examples, 0)
    for image in layer_scores(model, batch, encode_once(model, batch), blind=False):
        assert torch.equal(image.decide("gates").allocation.positions, image.output.allocation.positions)


def test_lost_is_evidence_or_the_answer(tiny_model, make_processor):
    model = tiny_model()
    examples = load_examples("world:gist,one_field?grids=8x8", "train", 3, 4)
    batch = AllocatorCollator(make_processor(), language=True, shares=(0.2, 0.3))(examples, 0)
    lost = {}

    def keep(logit, even, chosen):
        assert logit.dtype == torch.float32, "as the layer asks it, also under --bf16"
        lost.update(even=even, chosen=chosen)
        return logit.sum()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scope, "scope_loss", keep)
        with torch.autocast("cpu", torch.bfloat16):
            scope.scope_learned(model, batch)
        scope.scope_learned(model, batch)
    for number, example in enumerate(examples):
        for name in ("even", "chosen"):
            if example.evidence:
                assert 0 <= lost[name][number] <= 1
            else:
                assert lost[name][number] > 1  # nats of an untrained model
    placed = [number for number, example in enumerate(examples) if example.evidence]
    assert placed
    assert len(placed) < len(examples)


@pytest.mark.parametrize(("question", "whole"), [*((q, True) for q in WHOLE), *((q, False) for q in PLACED)])
def test_the_bundled_one_tells_questions_about_the_whole_page(question, whole, model, make_inputs, page):
    inputs = make_inputs(page(192, 192), token_budget=20, question=question)
    assert bool(model.allocate(**inputs)[0].everywhere) == whole
