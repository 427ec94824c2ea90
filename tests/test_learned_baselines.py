"""VisionSelector-style and GlimpsePrune-style selection: what they see, what they keep, and where their weights come from."""

from dataclasses import replace

import pytest
import torch

from evaluation.baselines import find, glimpse_prune, interface, query_blind, selection, supports, vision_selector
from evaluation.baselines.glimpse_prune import GlimpsePredictor, rotate_2d
from evaluation.baselines.vision_selector import ImportanceScorer
from training.allocator import load_allocator, save_allocator, save_baseline
from training.allocator_batches import AllocatorCollator
from training.allocator_learner import AllocatorLearner
from training.data import Example
from training.fingerprint import base_metadata
from training.scorers import scores_of

NAMES = {"vision_selector": (vision_selector, ImportanceScorer), "glimpse_prune": (glimpse_prune, GlimpsePredictor)}


@pytest.fixture(scope="module")
def ready(tiny_config, new_model, make_processor, tmp_path_factory):
    """A tiny model with random weights of both baselines, and its processor."""
    model = new_model(tiny_config())
    folder = tmp_path_factory.mktemp("weights")
    for name, (module, scorer) in NAMES.items():
        torch.manual_seed(1)
        made = scorer.for_model(model)
        with torch.no_grad():
            for parameter in made.parameters():
                parameter.add_(torch.randn_like(parameter), alpha=0.5)
        save_baseline(made.state_dict(), folder / f"{name}.safetensors", name, base_metadata(model, name))
        module.load_weights(model, folder / f"{name}.safetensors")
    return model, make_processor(model), folder


@pytest.fixture(scope="module")
def examples(page):
    return [Example(page(96, 64, 1), "what is the total?", ("1",)), Example(page(64, 80, 2), "why?", ("2",))]


@pytest.mark.parametrize("name", NAMES)
def test_k_cells_are_kept_and_a_batch_gives_what_each_gives_alone(name, ready, examples):
    model, processor, _ = ready
    together = find(name)(model, processor, examples, [5, 20])
    assert [int(kept.sum()) for kept in together.kept] == together.tokens == [5, 20]
    assert [kept.shape for kept in together.kept] == [(4, 6), (5, 4)]
    logits = model(**together.inputs).logits[:, -1]
    for row, (example, budget) in enumerate(zip(examples, (5, 20), strict=True)):
        alone = find(name)(model, processor, [example], [budget])
        assert torch.equal(alone.kept[0], together.kept[row])
        assert torch.allclose(model(**alone.inputs).logits[0, -1], logits[row], atol=1e-4)


@pytest.mark.parametrize(("name", "asks"), [("vision_selector", False), ("glimpse_prune", True)])
def test_only_the_glimpse_sees_the_question(name, asks, ready, page):
    model, processor, _ = ready
    pictures = [Example(page(96, 64, 1), question, ("1",)) for question in ("what is the total?", "is it blue or red?")]
    first, second = find(name)(model, processor, pictures, [6, 6]).kept
    if asks:
        questions = [f"number {n} or {n * 7}?" for n in range(12)]
        many = [Example(page(96, 64, 1), question, ("1",)) for question in questions]
        kept = find(name)(model, processor, many, [6] * 12).kept
        assert any(not torch.equal(kept[0], other) for other in kept[1:])
    else:
        assert torch.equal(first, second)


@pytest.mark.parametrize("name", NAMES)
def test_weights_are_asked_for_and_another_bases_refused(name, ready, examples, tiny_config, new_model):
    _, processor, folder = ready
    other = new_model(tiny_config(), seed=1)
    module, _ = NAMES[name]
    with pytest.raises(ValueError, match="has no weights yet"):
        find(name)(other, processor, examples, [4, 4])
    with pytest.raises(ValueError, match="was trained on base"):
        module.load_weights(other, folder / f"{name}.safetensors")
    wrong = next(entry for entry in NAMES if entry != name)
    with pytest.raises(ValueError, match=f"holds {wrong}, wanted {name}"):
        module.load_weights(other, folder / f"{wrong}.safetensors")
    with pytest.raises(ValueError, match="does not exist"):
        module.load_weights(other, folder / "none.safetensors")


def test_importance_is_the_attention_that_a_token_receives():
    torch.manual_seed(0)
    scorer, tokens = ImportanceScorer(8), torch.randn(5, 8)
    assert float(scorer(tokens).exp().sum().detach()) == pytest.approx(5, abs=1e-4)
    order = torch.tensor([3, 0, 4, 1, 2])
    assert torch.allclose(scorer(tokens[order]), scorer(tokens)[order], atol=1e-5)


def test_products_of_rotated_states_depend_on_the_distance_alone():
    torch.manual_seed(0)
    query, key = torch.randn(2, 1, 8).expand(2, 12, 8)
    products = rotate_2d(query, (3, 4)) @ rotate_2d(key, (3, 4)).T
    assert torch.allclose(products[0, 5], products[6, 11], atol=1e-5)  # (0, 0) to (1, 1) as (1, 2) to (2, 3)
    assert torch.allclose(rotate_2d(query, (3, 4)).norm(dim=-1), query.norm(dim=-1), atol=1e-5)
    assert not torch.allclose(products[0, 1], products[0, 4], atol=1e-3)


def test_the_predictor_reads_places_and_the_glimpses_state(ready, examples):
    model, processor, _ = ready
    torch.manual_seed(0)
    predictor = GlimpsePredictor.for_model(model)
    states, seen = torch.randn(12, predictor.norm.normalized_shape[0]), torch.rand(predictor.attention.in_features, 12)
    glimpse = torch.randn_like(states[0])
    tall, wide = (predictor._predict(states, seen, glimpse, grid) for grid in ((6, 2), (2, 6)))
    assert not torch.allclose(tall, wide, atol=1e-5)
    for part in (predictor.attention, predictor.state):  # leaves what the glimpse found as all that scores hang on
        torch.nn.init.zeros_(part.weight)
    asked = [Example(examples[0].image, question, ("1",)) for question in ("what is it?", "where is it?")]
    whole = interface.prompt(processor, asked, token_budget="full", padding_side="right")
    encoded = selection.encode(model, processor, asked, [4, 4])
    first, second = predictor.scores(model, whole, encoded.inputs["image_grid_thw"], encoded.vision)
    assert torch.allclose(first, first[:1].expand_as(first), atol=1e-5)
    assert not torch.allclose(first, second, atol=1e-6)


def test_a_baselines_choice_hardens_while_it_learns(ready, examples, monkeypatch):
    model, processor, _ = ready
    learner = AllocatorLearner(model, {"evidence": 1.0, "binarize": 0.5}, "vision_selector")
    marked = [replace(example, evidence=((10, 10, 30, 20),)) for example in examples]
    batch = AllocatorCollator(processor, language=False)(marked, 0)
    given = []

    def noted(*arguments):
        given.append(arguments[5])
        return scores_of(*arguments)

    monkeypatch.setattr("training.allocator_learner.scores_of", noted)
    losses = []
    for learner.progress in (0.0, 0.5, 1.0):
        losses.append(learner(**batch))
    assert given == pytest.approx([1.0, 0.2**0.5, 0.2])
    for progress, loss in zip((0.0, 0.5, 1.0), losses, strict=True):
        assert torch.allclose(loss["loss"], loss["evidence"] + 0.5 * progress * loss["binarize"], atol=1e-5)


def test_the_blind_layer_is_trained_and_run_on_the_same_question(
    tiny_config, new_model, make_processor, page, tmp_path
):
    model = new_model(tiny_config())
    processor = make_processor(model)
    pictures = [Example(page(96, 64, 1), f"number {n} or {n * 7}?", ("1",)) for n in range(4)]
    save_allocator(model, tmp_path / "blind.safetensors", scorer="query_blind")
    save_allocator(model, tmp_path / "asked.safetensors")
    with pytest.raises(ValueError, match="trained with the question"):
        query_blind.load_weights(model, tmp_path / "asked.safetensors")
    with pytest.raises(ValueError, match="has no weights yet"):
        query_blind.query_blind(model, processor, pictures, [6] * 4)
    query_blind.load_weights(model, tmp_path / "blind.safetensors")
    with torch.no_grad():
        model.model.arrcoc.participation.gate.zero_()  # the model's own layer does not count
    prepared = query_blind.query_blind(model, processor, pictures, [6] * 4)
    assert all(torch.equal(prepared.kept[0], kept) for kept in prepared.kept)
    learner = AllocatorLearner(model, {"evidence": 1.0}, "query_blind")
    with pytest.raises(ValueError, match=r"trained without the question.*--methods query_blind"):
        load_allocator(model, tmp_path / "blind.safetensors")
    load_allocator(model, tmp_path / "blind.safetensors", scorer="query_blind")
    collator = AllocatorCollator(processor, language=False)
    batch = collator(pictures, 0) | {"image_token_counts": torch.tensor([6] * 4)}
    vision = model.model.encode(batch["pixel_values"], batch["image_grid_thw"])
    trained = scores_of("query_blind", learner.scorer, model, batch, vision)[0].output.allocation
    assert torch.equal(trained.cell_token.view(4, 6) >= 0, prepared.kept[0])


def test_the_blind_layer_follows_the_dials_of_its_model(tiny_config, new_model, make_processor, page, tmp_path):
    model = new_model(tiny_config(coverage_floor=0.0))
    model.model.arrcoc.scope.score.reset_parameters()  # or a drawn one may spread its tokens whatever the floor
    pictures = [Example(page(96, 64, 1), "why?", ("1",))]
    save_allocator(model, tmp_path / "blind.safetensors", scorer="query_blind")
    query_blind.load_weights(model, tmp_path / "blind.safetensors")
    kept = {}
    for dial, value in (("coverage_floor", 0.0), ("coverage_floor", 1.0), ("encode_ratio", 0.5)):
        setattr(model.config, dial, value)
        kept[dial, value] = query_blind.query_blind(model, make_processor(model), pictures, [6]).kept[0]
    assert all(int(cells.sum()) == 6 for cells in kept.values())
    assert not torch.equal(kept["coverage_floor", 0.0], kept["coverage_floor", 1.0])
    assert "coarse_share" in supports("query_blind", new_model(tiny_config(coarse_share=0.3, encode_ratio=0.5)))
    pooled = new_model(tiny_config(coarse_share=0.3))
    base = {name: tensor for name, tensor in model.state_dict().items() if ".arrcoc." not in name}
    pooled.load_state_dict(base, strict=False)
    with pytest.raises(ValueError, match="has no adapter for pooled cells"):
        query_blind.load_weights(pooled, tmp_path / "blind.safetensors")
