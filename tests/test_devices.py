"""The model, its training and every way to evaluate it on another device than the CPU (see `far_device`): nothing mixes both."""

import copy

import pytest
import torch
from transformers import StaticCache

from evaluation.baselines import METHODS, find
from tests.far_device import FAR, FarTensor, far_device, to_far, waits
from training.ahead import PageCollator, encode_ahead
from training.allocator_batches import AllocatorCollator
from training.allocator_learner import AllocatorLearner
from training.data import WorldSource, load_examples
from training.signals import parse_signals

LEARNED = ("vision_selector", "glimpse_prune", "query_blind")  # load weights of their own
MODES = {
    "full": ("full", {}),
    "select": (12, {}),
    "two stages": (12, {"encode_ratio": 0.4}),
    "empty paper left out": (12, {"encode_ratio": "auto"}),
    "foveated": (40, {"allocation_mode": "foveated"}),  # room for a coarse view of 12 tokens
    "foveated in two stages": (40, {"allocation_mode": "foveated", "encode_ratio": 0.6}),
}
STOCK = ("mm_token_type_ids", "pixel_values", "image_grid_thw")
ALLOCATES = ("pixel_values", "image_grid_thw", "texture_images", "query_input_ids", "query_attention_mask")


@pytest.fixture(autouse=True)
def _without_gradients():
    with torch.no_grad():
        yield


@pytest.fixture(scope="module")
def far(model):
    """A copy of the bundled model on the far device. Its embeddings fetch what they look up, as accelerate's hooks do."""
    moved = to_far(copy.deepcopy(model))
    moved.get_input_embeddings().register_forward_pre_hook(lambda _, given: (given[0].to(FAR),))
    return moved


@pytest.fixture
def asked(make_inputs, page):
    """`asked(budget)`: a batch of two questions about two pictures."""
    pictures = [page(), page(96, 128, seed=1)]
    return lambda budget: make_inputs(pictures, ["What is the total?", "Which one?"], token_budget=budget)


def near(result):
    return result.near if isinstance(result, FarTensor) else result


def test_mixing_devices_is_seen():
    here, there = torch.ones(3), FarTensor(torch.arange(3.0))
    with far_device() as mixed:
        assert there.device == FAR
        assert (there + 1).sum().item() == 6
        assert there[[0, 2]].tolist() == [0, 2]
        assert there[torch.tensor([True, False, True])].tolist() == [0, 2]
        assert torch.zeros(2, device=there.device).device == FAR
        assert here.to(FAR).device == FAR
        assert there.cpu().numpy().tolist() == [0, 1, 2]
        assert mixed == []
        there + here
        here[there.long()]
        with pytest.raises(TypeError, match=r"call \.cpu\(\) first"):
            there.numpy()
    assert [line.split()[0] for line in mixed] == ["aten.add.Tensor", "aten.index.Tensor"]
    assert all("test_devices.py" in line for line in mixed)


def test_waits_are_seen():
    there = FarTensor(torch.arange(3.0))
    with far_device():
        ((there + 1).sum() * torch.zeros(2, device=FAR)).max()
        assert not waits
        asking = (
            lambda: there.sum().item(), lambda: there.tolist(), lambda: there[there > 1], lambda: there.cpu(),
            lambda: torch.ones(2).to(FAR), lambda: torch.tensor([1.0], device=FAR), lambda: there.new_tensor([1.0]),
            lambda: there.nonzero(), lambda: there[torch.tensor([0, 2])], lambda: int(there[0]),
        )  # fmt: skip
        for count, ask in enumerate(asking, 1):
            ask()
            assert len(waits) == count, count


@pytest.mark.parametrize("mode", list(MODES)[1:])
def test_no_picture_of_a_prompt_waits_for_the_one_before_it(mode, far, make_inputs, page):
    """From pixels to kept tokens nothing is copied or read per picture: a GPU is never idle between two."""
    (budget, spending), lines = MODES[mode], []
    for count in (1, 3):
        inputs = make_inputs([[page(seed=seed) for seed in range(count)]], "What is the total?", token_budget=budget)
        with far_device():
            moved = inputs.to(FAR)
            waits.clear()
            own = {name: moved[name] for name in (*ALLOCATES, "image_token_counts")}
            far.model.get_image_features(**own, **spending, return_dict=True)
            # the hook of `far`'s embeddings fetches each question, which the model copies at once where it sees the device
            lines.append(sorted(line for line in waits if __file__ not in line))
    assert lines[0] == lines[1]


@pytest.fixture(scope="module")
def stock_waits(model, stock_twin, make_inputs, page):
    """How often stock waits with one picture in its prompt, and with three."""
    stock, counts = to_far(stock_twin(model)), []
    for count in (1, 3):
        whole = make_inputs([[page(seed=seed) for seed in range(count)]], "What is the total?", token_budget="full")
        with torch.no_grad(), far_device():
            whole = whole.to(FAR)
            waits.clear()
            stock(**{name: whole[name] for name in ("input_ids", "attention_mask", *STOCK)})
            counts.append(len(waits))
    return counts


@pytest.mark.parametrize("mode", MODES)
def test_a_prompt_of_more_pictures_waits_no_oftener(mode, far, stock_waits, make_inputs, page, report):
    """From the processor's output to logits, the positions of Qwen3-VL and its language model included. Of one picture up to eight
    waits more than stock, which has four more for each further one; the coarse view is a second call of the tower."""
    (budget, spending), counts = MODES[mode], []
    for count, of_stock in zip((1, 3), stock_waits, strict=True):
        inputs = make_inputs([[page(seed=seed) for seed in range(count)]], "What is the total?", token_budget=budget)
        with far_device():
            moved = inputs.to(FAR)
            waits.clear()
            far(**moved, **spending)
            # the hook of `far`'s embeddings is not the model's
            counts.append(sum(__file__ not in line for line in waits))
        report(f"waits for a GPU, {count} pictures: {mode}", counts[-1])
        report(f"waits for a GPU, {count} pictures: stock", of_stock)
    (ours, ours_of_three), (theirs, theirs_of_three) = counts, stock_waits
    assert ours == ours_of_three
    assert theirs < theirs_of_three
    assert ours <= theirs + 8 or "foveated" in mode


@pytest.mark.parametrize("mode", MODES)
def test_answers_are_those_of_the_cpu(mode, model, far, asked):
    budget, spending = MODES[mode]
    inputs, short = asked(budget), {"max_new_tokens": 3, "do_sample": False}
    logits, tokens = model(**inputs, **spending).logits, model.generate(**inputs, **spending, **short)
    with far_device() as mixed:
        moved = inputs.to(FAR)
        found, answers = far(**moved, **spending).logits, far.generate(**moved, **spending, **short)
    assert mixed == []
    assert found.device == answers.device == FAR
    torch.testing.assert_close(near(found), logits, rtol=0, atol=1e-4)
    assert torch.equal(near(answers), tokens)


@pytest.mark.parametrize("mode", ["foveated", "foveated in two stages"])
@pytest.mark.parametrize("few", [0.0, 1.0])
def test_coarse_views_are_the_same_in_a_call_of_their_own_and_with_their_images(
    few, mode, model, far, asked, monkeypatch
):
    """As on a GPU, where few patches go with the others."""
    budget, spending = MODES[mode]
    inputs, calls = asked(budget), []
    logits = model(**inputs, **spending).logits
    monkeypatch.setattr("arrcoc.seeing._FEW", few)
    counted = far.model.visual.register_forward_hook(lambda *_: calls.append(1))
    with far_device() as mixed:
        found = far(**inputs.to(FAR), **spending).logits
    counted.remove()
    assert mixed == []
    assert len(calls) == (1 if few else 2)
    torch.testing.assert_close(near(found), logits, rtol=0, atol=1e-4)


@pytest.mark.parametrize("mode", ["select", "empty paper left out", "foveated in two stages"])
def test_images_of_one_grid_are_taken_together(mode, model, far, make_inputs, page, monkeypatch):
    """So that a GPU is launched on once for all of them; those of other grids, and what is more than memory should hold, apart."""
    pictures = [page(seed=0), page(96, 128, seed=1), page(seed=2), page(seed=3)]
    questions = ["Which one?", "What is it?", "What is the total of all that is listed on this page?", "Where?"]
    budget, spending = MODES[mode]
    inputs = make_inputs(pictures, questions, token_budget=budget)
    layer, counts = type(far.model.arrcoc), {"look": [], "knows": []}
    logits = model(**inputs, **spending).logits

    def counted(name):
        plain = getattr(layer, name)

        def method(self, first, *others):
            taken = first if name == "look" else first.texture
            counts[name].append(len(taken) if taken.ndim == 4 else 1)
            return plain(self, first, *others)

        return method

    for name in counts:
        monkeypatch.setattr(layer, name, counted(name))
    with far_device() as mixed:
        moved = inputs.to(FAR)
        found = far(**moved, **spending).logits
        monkeypatch.setattr("arrcoc.deciding._CELLS_TOGETHER", 2 * 48)
        apart = far(**moved, **spending).logits
    assert mixed == []
    assert counts["look"] == [3, 1, 2, 1, 1]
    auto = spending.get("encode_ratio") == "auto"  # which encodes unlike numbers of cells
    assert sorted(counts["knows"]) == ([1] * 8 if auto else [1, 1, 1, 2, 3])
    for logits_there in (found, apart):
        torch.testing.assert_close(near(logits_there), logits, rtol=0, atol=1e-4)


@pytest.mark.parametrize(
    ("part", "mode"),
    [
        ("information", "two stages"), ("perspective", "select"), ("participation", "select"),
        ("early_participation", "two stages"), ("reader", "two stages"),
    ],
)  # fmt: skip
def test_what_replaces_a_scorer_is_given_one_image_at_a_time(part, mode, model, far, make_inputs, page, monkeypatch):
    """As docs/extending.md promises it."""
    budget, spending = MODES[mode]
    inputs, shapes = make_inputs([page(seed=0), page(seed=2)], "Which one?", token_budget=budget), []
    logits = model(**inputs, **spending).logits
    own = getattr(far.model.arrcoc, part)

    class Replaced(type(own)):
        def forward(self, first, *others):
            shapes.append(first.ndim)
            return super().forward(first, *others)

    monkeypatch.setattr(own, "__class__", Replaced)
    with far_device() as mixed:
        found = far(**inputs.to(FAR), **spending).logits
    assert mixed == []
    assert set(shapes) == {3}
    torch.testing.assert_close(near(found), logits, rtol=0, atol=1e-4)


def test_a_device_map_keeps_the_allocator_in_one_place(model):
    for whole in (model, model.model):
        assert "ARRCOCLayer" in whole._no_split_modules


@pytest.mark.parametrize("mode", MODES)
def test_the_allocator_may_stand_on_a_device_of_its_own(mode, model, far, asked):
    """As a `device_map` over several GPUs puts it."""
    budget, spending = MODES[mode]
    inputs = asked(budget)
    logits = model(**inputs, **spending).logits
    apart = copy.copy(far)
    apart._modules = dict(far._modules)
    apart.model = copy.copy(far.model)
    apart.model._modules = dict(far.model._modules) | {"arrcoc": model.model.arrcoc}
    with far_device() as mixed:
        moved = inputs.to(FAR)
        found = apart(**moved, **spending).logits
        plan = apart.allocate(**{name: moved[name] for name in (*ALLOCATES, "image_token_counts")}, **spending)[0]
    assert mixed == []
    assert found.device == FAR
    assert plan.relevance.device == (FAR if "foveated" in mode else torch.device("cpu"))
    torch.testing.assert_close(near(found), logits, rtol=0, atol=1e-4)


def test_plans_and_encoded_images_stay_on_the_device(model, far, asked):
    inputs = asked(12)
    own = {name: inputs[name] for name in (*ALLOCATES, "image_token_counts")}
    expected = model.allocate(**own)
    with far_device() as mixed:
        moved = inputs.to(FAR)
        plans = far.allocate(**{name: moved[name] for name in own})
        encoded = far.encode_images(*(moved[name] for name in ALLOCATES[:3]))
        rest = {name: value for name, value in moved.items() if name != "pixel_values"}
        again = far.generate(**rest, encoded_images=encoded, num_beams=2, max_new_tokens=3)
        assert again.device == plans[0].positions.device == encoded.vision.pooler_output[0].device == FAR
        for plan, own_plan in zip(plans, expected, strict=True):
            assert torch.equal(near(plan.positions), own_plan.positions)
            assert torch.equal(plan.kept, own_plan.kept)
    assert mixed == []


@pytest.mark.parametrize("method", [name for name in METHODS if name not in LEARNED])
def test_methods_of_the_evaluation_mix_no_devices(method, model, far, processor):
    examples = list(load_examples("world:form,scene?grids=8x8", limit=2))
    budgets = [60, 60] if method == "foveated" else [16, 16]  # 60 have room for a coarse view
    expected = find(method)(model, processor, examples, budgets)
    with far_device() as mixed:
        prepared = find(method)(far, processor, examples, budgets)
        with prepared.during:
            logits = far(**prepared.inputs, logits_to_keep=1).logits
    assert mixed == []
    with expected.during:
        torch.testing.assert_close(near(logits), model(**expected.inputs, logits_to_keep=1).logits, rtol=0, atol=1e-4)


@pytest.mark.parametrize(
    ("scorer", "signals"),
    [("arrcoc", "evidence,mass,context,named,early_evidence,early_distill,early_features,distill_attention,lm,lm_soft_topk"),
     ("query_blind", "evidence,mass"), ("vision_selector", "evidence,binarize"), ("glimpse_prune", "evidence,mass")],
    ids=lambda value: value.split(",")[0],
)  # fmt: skip
def test_steps_of_training_mix_no_devices(scorer, signals, far, processor):
    collator = AllocatorCollator(processor, scorer == "arrcoc", scorer == "glimpse_prune")
    source = WorldSource(seed=3, kinds=("form",), grids=((8, 8),), questions=4)
    batch = collator([example for example in source.page(0) if example.evidence], 0)
    with far_device() as mixed:
        learner = AllocatorLearner(far, parse_signals(signals), scorer)
        for part in (learner.guess, learner.names, learner.baseline):
            to_far(part or torch.nn.Identity())
        losses = learner(**{name: tensor.to(FAR) for name, tensor in batch.items()})
        assert all(near(loss).isfinite() for loss in losses.values())
    assert mixed == []
    assert losses.keys() >= {"loss", "evidence"}


@pytest.mark.parametrize("scorer", ["arrcoc", "query_blind"])
def test_pages_ahead_are_encoded_on_the_device_and_come_to_it_again(scorer, far, processor):
    collator = AllocatorCollator(processor, language=True)
    source = WorldSource(seed=3, kinds=("form", "gist"), grids=((8, 8),), questions=3, find=1)
    learner = AllocatorLearner(far, parse_signals("evidence,mass,context,distill_unmarked,early_evidence"), scorer)
    with far_device() as mixed:
        pages = encode_ahead(far, collator, source, 3, quiet=True, unmarked_alone=True, parts=1)
        for page in pages:
            tensors = [*page.levels, page.glance.texture, page.evidence, page.context, page.attention]
            assert all(tensor.device.type == "cpu" for tensor in tensors)
        losses = learner(**PageCollator(collator)(pages, 0))
        assert all(near(loss).isfinite() for loss in losses.values())
    assert mixed == []
    assert any(page.cells is not None for page in pages)


def test_a_token_behind_a_static_cache_waits_for_nothing(far, asked):
    """How many tokens it holds is a tensor, which nothing may read."""
    inputs, lines = asked(6), []
    with far_device():
        moved = inputs.to(FAR)
        length = moved["input_ids"].shape[1]
        cache = StaticCache(config=far.config.get_text_config(), max_cache_len=length + 4)
        far(**moved, past_key_values=cache, use_cache=True)
        token = {"input_ids": moved["input_ids"][:, -1:], "past_key_values": cache, "use_cache": True}
        places = torch.zeros(4, len(moved["input_ids"]), 1, dtype=torch.long, device=FAR) + length
        waits.clear()
        far(**token, position_ids=places)
        lines += [line for line in waits if __file__ not in line]
    assert not lines
