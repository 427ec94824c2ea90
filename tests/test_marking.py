"""The mark of a coarse view: how it starts, what it touches, and that the bundled one helps to answer."""

import copy

import pytest
import torch

from arrcoc.marking import CoarseMark
from training.allocator_batches import AllocatorCollator
from training.allocator_learner import AllocatorLearner
from training.data import load_examples

LEVELS, SIZE = 3, 12


@pytest.fixture
def awake():
    torch.manual_seed(0)
    mark = CoarseMark(LEVELS, SIZE)
    with torch.no_grad():
        mark.gain.normal_(std=0.3)
        mark.offset.normal_(std=0.3)
    return mark


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_untrained_it_changes_nothing(dtype):
    levels = [torch.randn(5, SIZE, dtype=torch.float64).to(dtype) for _ in range(LEVELS)]
    for level, same in zip(levels, CoarseMark(LEVELS, SIZE)(levels), strict=True):
        assert same.dtype == dtype
        assert torch.equal(level, same)


def test_each_level_has_a_gain_and_an_offset_per_channel(awake):
    levels = [torch.full((2, SIZE), float(number)) for number in range(LEVELS)]
    for number, marked in enumerate(awake(levels)):
        torch.testing.assert_close(marked, (number * (1 + awake.gain[number]) + awake.offset[number]).expand(2, -1))


def images_of(inputs) -> dict[str, torch.Tensor]:
    text = ("input_ids", "attention_mask", "mm_token_type_ids")
    return {name: tensor for name, tensor in inputs.items() if name not in text}


def test_the_tokens_of_the_view_alone_are_marked(tiny_model, make_inputs, page):
    inputs, model = make_inputs(page(192, 192), token_budget=60), copy.deepcopy(tiny_model())
    seen = images_of(inputs)

    def features(mode: str):
        found = model.model.get_image_features(**seen, allocation_mode=mode)
        return [level[0] for level in (found.pooler_output, *found.deepstack_features)]

    with torch.no_grad():
        plain = {mode: features(mode) for mode in ("select", "foveated")}
        for parameter in model.model.arrcoc.coarse_mark.parameters():
            parameter.normal_(std=0.3)
        marked = {mode: features(mode) for mode in ("select", "foveated")}
    coarse = int(model.allocate(**seen, allocation_mode="foveated")[0].coarse)
    assert 0 < coarse < 60
    assert all(map(torch.equal, plain["select"], marked["select"]))
    *plain, stands = plain["foveated"]
    *marked, still = marked["foveated"]
    assert torch.equal(stands, still)
    for before, after in zip(plain, marked, strict=True):
        assert torch.equal(before[coarse:], after[coarse:])
        assert (before[:coarse] != after[:coarse]).any(-1).all()


def test_several_pictures_are_marked_as_each_alone(tiny_model, make_inputs, page):
    """One between them has no view, since it keeps all."""
    model, pictures = tiny_model(), [page(192, 192, 1), page(64, 64, 2), page(256, 192, 3)]

    def features(inputs):
        found = model.model.get_image_features(**images_of(inputs), allocation_mode="foveated")
        levels = len(model.model.visual.deepstack_visual_indexes)  # without where the tokens of pruned ones stand
        return list(zip(found.pooler_output, *found.deepstack_features[:levels], strict=True))

    with torch.no_grad():
        together = features(make_inputs(pictures, token_budget=60))
        apart = [features(make_inputs([picture], token_budget=60))[0] for picture in pictures]
    for ours, alone in zip(together, apart, strict=True):
        for level, same in zip(ours, alone, strict=True):
            torch.testing.assert_close(level, same, rtol=1e-4, atol=1e-4)


def test_the_bundled_one_answers_better_than_none(model, processor):
    """What a quarter of the tokens tells, a coarse view among them, of shapes on held-out pages."""
    learner = AllocatorLearner(copy.deepcopy(model), {"coarse": 1.0})
    batch = AllocatorCollator(processor, language=True, shares=(0.25, 0.26))(
        load_examples("world:scene?grids=12x12", "held_out", seed=51000000, limit=32), 0
    )
    with torch.no_grad():
        marked = float(learner(**batch)["loss"])
        learner.scorer.coarse_mark.reset_parameters()
        without = float(learner(**batch)["loss"])
    assert marked < 0.9 * without
