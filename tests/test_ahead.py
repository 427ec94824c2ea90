"""Pages that are encoded before training: the same scores, the same losses, and the questions of a page at once."""

import pytest
import torch

from training import scorers
from training.ahead import PageCollator, encode_ahead, page_scores
from training.allocator_batches import AllocatorCollator, ListSource
from training.allocator_learner import AllocatorLearner
from training.data import WorldSource
from training.signals import parse_signals

QUESTIONS = 3


@pytest.fixture
def source():
    return WorldSource(seed=4, kinds=("form", "table"), grids=((8, 8), (8, 12)), questions=QUESTIONS)


@pytest.fixture
def learner(new_model, tiny_config):
    """A learner whose gates are open, so that the question counts."""
    model = new_model(tiny_config(diversity=0.0))
    return AllocatorLearner(
        model,
        parse_signals("evidence,mass,early_evidence,early_distill,early_features,distill_attention,distill_unmarked"),
    )


@pytest.mark.parametrize("blind", [False, True], ids=["asked", "blind"])
def test_scores_of_encoded_pages_are_the_layers_own(blind, learner, source, make_processor):
    """Features are kept in half precision: 11 bits of them."""
    collator = AllocatorCollator(make_processor(learner.model), language=False)
    pages = encode_ahead(learner.model, collator, source, 3, QUESTIONS, quiet=True)
    assert [len(page.evidence) for page in pages] == [QUESTIONS] * 3
    for number, page in enumerate(pages):
        batch = collator([source.example(QUESTIONS * number + place) for place in range(QUESTIONS)], number)
        vision = scorers.encode_once(learner.model, batch)
        expected = scorers.layer_scores(learner.model, batch, vision, blind)
        for ours, theirs in zip(
            page_scores(learner.model, page, batch["image_token_counts"], blind), expected, strict=True
        ):
            for found, own in ((ours.value, theirs.output.relevance.flatten()), (ours.early, theirs.early)):
                assert (found - own).norm() < 0.03 * (own - own.mean()).norm()
            torch.testing.assert_close(ours.temperature, theirs.temperature, rtol=1e-3, atol=0)
            assert (ours.grid, ours.budget) == (theirs.grid, theirs.budget)
        if not blind:
            values = [score.value for score in expected]
            assert not torch.allclose(values[0], values[1])


def test_losses_of_encoded_pages_are_those_of_their_examples(learner, source, make_processor):
    collator = AllocatorCollator(make_processor(learner.model), language=True)
    pages = encode_ahead(learner.model, collator, source, 2, QUESTIONS, quiet=True)
    examples = [source.example(index) for index in range(2 * QUESTIONS)]
    expected, found = learner(**collator(examples, 7)), learner(**PageCollator(collator)(pages, 7))
    assert expected.keys() == found.keys()
    for name, loss in expected.items():
        torch.testing.assert_close(found[name], loss, rtol=2e-2, atol=2e-3, msg=name)
    found["loss"].backward()
    gradients = {name: p.grad for name, p in learner.model.model.arrcoc.named_parameters()}
    assert all(gradient is not None and gradient.isfinite().all() for gradient in gradients.values())


def test_a_list_gives_a_page_for_each_of_its_pictures(learner, source, make_processor):
    collator = AllocatorCollator(make_processor(learner.model), language=False)
    listed = ListSource([source.example(QUESTIONS * number) for number in range(3)])
    pages = encode_ahead(learner.model, collator, listed, 1, 3, quiet=True)
    assert len(pages) == 3
    assert all(len(page.query_input_ids) == 1 for page in pages)
