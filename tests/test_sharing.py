"""The vision tower's memory in an evaluation: it runs once for all that reads the same pictures, and nothing else changes."""

from dataclasses import asdict
from functools import partial

import pytest
import torch

from evaluation import run
from evaluation.baselines import find
from evaluation.facts import facts_of
from evaluation.records import Records
from evaluation.sharing import shared_vision_tower
from training.data import load_examples

RUNS = [("full", "full"), *((name, k) for k in (5, 0.5) for name in ("arrcoc", "resize", "visionzip", "two_stage_40"))]


@pytest.fixture(scope="module")
def asked(tiny_model, make_processor):
    """(model, processor, examples, facts) of four questions about pages of the small world."""
    model = tiny_model()
    processor, examples = make_processor(model), load_examples("world", "held_out", 3, 4)
    return model, processor, examples, facts_of(model, processor, examples)


@pytest.fixture
def passes(asked, monkeypatch):
    """Of each pass of the vision tower, how many patches it read."""
    tower, seen = asked[0].model.visual, []
    plain = type(tower).forward

    def counted(self, pixels, *args, **kwargs):
        seen.append(len(pixels))
        return plain(self, pixels, *args, **kwargs)

    monkeypatch.setattr(type(tower), "forward", counted)
    return seen


def said_of(asked, path, runs=RUNS):
    """What `run.evaluate` records, by method, budget and example."""
    found = run.evaluate(*asked, runs, Records(path, {}), batch_size=4, max_new_tokens=3)
    return {key: [asdict(one) for one in answers] for key, answers in found.items()}


def test_answers_are_those_of_a_tower_that_runs_each_time(asked, tmp_path):
    alone = {}
    for number, pair in enumerate(RUNS):
        alone |= said_of(asked, tmp_path / f"{number}", [pair])
    assert said_of(asked, tmp_path / "together") == alone


def test_methods_and_budgets_that_read_the_same_share_one_pass(asked, passes, tmp_path):
    model, *_, facts = asked
    whole = sum(fact.cells for fact in facts) * model.model.visual.spatial_merge_unit
    said_of(asked, tmp_path / "answers", [pair for pair in RUNS if pair[0] in ("full", "arrcoc")])
    assert passes == [whole]
    passes.clear()
    said_of(asked, tmp_path / "between", [(name, 0.5) for name in ("arrcoc", "resize", "two_stage_40", "random")])
    assert passes.count(whole) == 1, "what shows other pixels comes last"
    passes.clear()
    said_of(asked, tmp_path / "watched", [pair for pair in RUNS if pair[0] in ("full", "visionzip")])
    assert passes == [whole] * 3, "visionzip watches the tower's last block at either budget"
    passes.clear()
    said_of(asked, tmp_path / "smaller", [pair for pair in RUNS if pair[0] in ("arrcoc", "resize")])
    assert len(passes) == 3
    assert passes[0] == whole > max(passes[1:])


def test_other_pixels_are_encoded_and_what_a_caller_changes_stays_his(asked, passes):
    model, processor, examples, _ = asked
    take = partial(find("arrcoc"), model, processor)
    with shared_vision_tower(model):
        first = take(examples[:2], [5, 5]).inputs["mm_encoder_outputs"]["image"]
        tokens, levels = [part.clone() for part in first.pooler_output], len(first.deepstack_features)
        first.pooler_output, first.deepstack_features = (), []
        again = take(examples[:2], [5, 5]).inputs["mm_encoder_outputs"]["image"]
        assert len(passes) == 1
        assert all(map(torch.equal, again.pooler_output, tokens))
        assert len(again.deepstack_features) == levels
        take(examples[2:], [5, 5])
        assert len(passes) == 2
    take(examples[2:], [5, 5])
    assert len(passes) == 3, "outside nothing is remembered"


@pytest.mark.parametrize("wrapped", [False, True])
def test_the_towers_own_forward_comes_back(asked, wrapped):
    model = asked[0]
    tower = model.model.visual
    if wrapped:  # as accelerate does
        tower.forward = partial(type(tower).forward, tower)
    before = vars(tower).get("forward")

    def stopped():
        with shared_vision_tower(model):
            assert vars(tower)["forward"] is not before
            raise KeyboardInterrupt

    try:
        with pytest.raises(KeyboardInterrupt):
            stopped()
        assert vars(tower).get("forward") is before
    finally:
        vars(tower).pop("forward", None)


def test_another_model_stays_as_it_is(stock_twin, asked):
    stock = stock_twin(asked[0])
    with shared_vision_tower(stock):
        assert "forward" not in vars(stock.model.visual)
