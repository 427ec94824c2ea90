"""Pages that are encoded before training: the same scores, the same losses, and the questions of a page at once."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from arrcoc.layer import ARRCOCLayer
from training import ahead, scorers
from training.ahead import PageCollator, encode_ahead, own_pages, page_scores
from training.allocator_batches import AllocatorBatches, AllocatorCollator, ListSource, MixedSource, PictureSource
from training.allocator_learner import AllocatorLearner
from training.data import Example, WorldSource, by_picture
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


class OwnWays(ARRCOCLayer):
    """Knows and rates otherwise, one question at a time."""

    def knows(self, glance, levels, query, mask=None):
        information, perspective, needed = super().knows(glance, levels, query, mask)
        assert needed.shape == information.shape
        return information, perspective, 1 - needed

    def rate(self, glance, query, mask=None):
        rated = super().rate(glance, query, mask)
        assert rated.early.ndim == 1
        return replace(rated, early=-rated.early)


@pytest.mark.parametrize("joined", [0, 100], ids=["one question", "two in one"])
@pytest.mark.parametrize("kind", [ARRCOCLayer, OwnWays])
@pytest.mark.parametrize("blind", [False, True], ids=["asked", "blind"])
def test_scores_of_encoded_pages_are_the_layers_own(blind, kind, joined, learner, source, make_processor):
    """Features are kept in half precision: 11 bits of them."""
    source = replace(source, joined=joined)
    learner.model.model.arrcoc.__class__ = kind
    collator = AllocatorCollator(make_processor(learner.model), language=False)
    pages = encode_ahead(learner.model, collator, source, 3, quiet=True)
    with torch.no_grad():
        learner.model.model.arrcoc.perspective.gate += 1  # training goes on after they are encoded
    assert [len(page.evidence) for page in pages] == [QUESTIONS] * 3
    assert max(int(page.query_attention_mask.max()) for page in pages) == (2 if joined else 1)
    for number, page in enumerate(pages):
        batch = collator([source.example(QUESTIONS * number + place) for place in range(QUESTIONS)], number)
        vision = scorers.encode_once(learner.model, batch)
        expected = scorers.layer_scores(learner.model, batch, vision, blind)
        for ours, theirs in zip(
            page_scores(learner.model, page, batch["image_token_counts"], blind), expected, strict=True
        ):
            for found, own in ((ours.value, theirs.output.balance.relevance.flatten()), (ours.early, theirs.early)):
                assert (found - own).norm() < 0.03 * (own - own.mean()).norm()
            torch.testing.assert_close(ours.temperature, theirs.temperature, rtol=1e-3, atol=0)
            assert (ours.grid, ours.budget) == (theirs.grid, theirs.budget)
        if not blind:
            values = [score.value for score in expected]
            assert not torch.allclose(values[0], values[1])


def test_pages_in_part_may_be_what_auto_encodes(learner, source, make_processor):
    model = learner.model
    collator = AllocatorCollator(make_processor(model), language=False)
    _, part, _ = encode_ahead(model, collator, source, 1, quiet=True, parts=2, auto=1.0)
    batch = collator(source.page(0), 0)
    grid = batch["image_grid_thw"][:1]
    patches = batch["pixel_values"][: int(grid.prod())]
    seen = model.encode_images(patches, grid, batch["texture_images"][:1], encode_ratio="auto")
    assert torch.equal(part.cells, seen.glances[0].encoded)
    assert len(part.evidence) == QUESTIONS  # print is never left out


def test_a_page_in_part_is_scored_as_the_model_scores_it_in_two_stages(learner, source, make_processor, monkeypatch):
    monkeypatch.setattr(ahead, "PARTS", (0.4, 0.4))
    model = learner.model
    collator = AllocatorCollator(make_processor(model), language=True)
    whole, *parts = encode_ahead(model, collator, source, 1, quiet=True, parts=QUESTIONS, auto=0.0)
    assert whole.cells is None
    assert len(parts) == QUESTIONS
    batch = collator(source.page(0), 0)
    seen = ("pixel_values", "image_grid_thw", "texture_images", "query_input_ids", "query_attention_mask")
    plans = model.allocate(
        **{name: batch[name] for name in seen}, image_token_counts=batch["image_token_counts"], encode_ratio=0.4
    )
    relevance = torch.stack([plan.relevance.flatten() for plan in plans])
    rated = model.model.rated_glances(*(batch[name] for name in seen[1:]), same=[False] + [True] * (QUESTIONS - 1))
    chosen = [ahead.choose_to_encode(glance, whole.grid, 0.4, 1, model.config.coverage_floor) for glance in rated]
    for part in parts:
        owners = [row for row, cells in enumerate(chosen) if torch.equal(cells, part.cells)]
        assert owners
        assert (
            part.evidence.shape
            == part.context.shape
            == part.attention.shape
            == (len(part.query_input_ids), len(part.cells))
        )
        asked = batch["query_input_ids"]
        rows = [row for ids in part.query_input_ids for row in range(QUESTIONS) if torch.equal(asked[row], ids)]
        scores = page_scores(model, part, batch["image_token_counts"][rows], False)
        for row, score, evidence in zip(rows, scores, part.evidence, strict=True):
            torch.testing.assert_close(evidence, whole.evidence[row, part.cells])
            assert row in owners or evidence.sum() == whole.evidence[row].sum()
            if row in owners:
                own = relevance[row, part.cells]
                assert (score.value - own).norm() < 0.03 * (own - own.mean()).norm()
            assert score.early is None
    losses = learner(**PageCollator(collator)(parts, 3))
    assert losses["loss"].isfinite()


def test_the_twin_without_the_question_has_parts_that_no_question_chose(learner, source, make_processor):
    collator = AllocatorCollator(make_processor(learner.model), language=False)
    chosen = {}
    for blind in (False, True):
        pages = encode_ahead(learner.model, collator, source, 4, True, parts=QUESTIONS, auto=0.0, blind=blind)
        chosen[blind] = [page.cells.tolist() for page in pages if page.cells is not None]
    assert chosen[False] != chosen[True]


def test_several_processes_encode_and_train_on_pages_of_their_own(learner, source, make_processor):
    shares = [own_pages(7, rank, 3) for rank in range(3)]
    assert sorted(page for share in shares for page in share) == list(range(7))
    assert max(map(len, shares)) - min(map(len, shares)) <= 1
    with pytest.raises(SystemExit, match="2 pages for 3 processes"):
        own_pages(2, 0, 3)
    collator = AllocatorCollator(make_processor(learner.model), language=False)
    every = encode_ahead(learner.model, collator, source, 3, quiet=True)
    (second,) = encode_ahead(learner.model, collator, source, range(1, 2), quiet=True)
    assert torch.equal(second.evidence, every[1].evidence)
    assert all(map(torch.equal, second.levels, every[1].levels))
    batches = AllocatorBatches(ListSource("abcd"), lambda entries, _: entries, 2, rank=1, processes=2, own_source=True)
    assert sorted(entry for _, entries in zip(range(2), batches, strict=False) for entry in entries) == list("abcd")


def test_what_many_pages_take_is_told(learner, source, make_processor, monkeypatch, capsys):
    collator = AllocatorCollator(make_processor(learner.model), language=False)
    encode_ahead(learner.model, collator, source, 2, quiet=True)
    assert "memory" not in capsys.readouterr().err
    monkeypatch.setattr(ahead, "_TOLD", 0)
    encode_ahead(learner.model, collator, source, 2, quiet=True)
    assert "--ahead: 2 pages take about 0 GB of this process's memory" in capsys.readouterr().err


def test_restoring_learns_from_pages_in_part_alone(new_model, tiny_config, source, make_processor):
    learner = AllocatorLearner(new_model(tiny_config(), awake=False), parse_signals("restored"))
    collator = AllocatorCollator(make_processor(learner.model), language=False)
    (page,) = encode_ahead(learner.model, collator, source, 1, quiet=True)
    parts = encode_ahead(learner.model, collator, source, 1, quiet=True, parts=2, auto=0.0, for_restorer=True)
    for part in parts:
        for level, same in zip(page.levels, part.whole, strict=True):
            assert torch.equal(level[part.cells], same)
    batch = PageCollator(collator)(parts, 0)
    with pytest.raises(ValueError, match="pass pages of encode_ahead"):
        learner(**PageCollator(collator)([page], 0))
    with pytest.raises(ValueError, match="learns from pages in part"):
        learner(**collator(source.page(0), 0))
    untrained = [
        torch.stack(
            [F.mse_loss(seen.float(), true.float()) / true.float().var(-1).mean() for seen, true in both]
        ).mean()
        for both in (list(zip(part.levels, part.whole, strict=True)) for part in parts)
    ]
    optimizer = torch.optim.Adam([p for p in learner.parameters() if p.requires_grad], lr=3e-3)
    losses = []
    for _ in range(30):
        losses.append(learner(**batch)["loss"])
        optimizer.zero_grad()
        losses[-1].backward()
        optimizer.step()
    torch.testing.assert_close(losses[0], torch.stack(untrained).mean())
    assert losses[-1] < 0.8 * losses[0]
    trained = {name for name, p in learner.named_parameters() if p.requires_grad}
    assert trained == {f"model.model.arrcoc.restorer.{name}" for name in learner.scorer.restorer.state_dict()}


def test_stage_2_learns_from_what_is_restored(learner, source, make_processor, monkeypatch):
    collator = AllocatorCollator(make_processor(learner.model), language=False)
    monkeypatch.setattr(learner.scorer, "restore", lambda glance, levels: [torch.zeros_like(level) for level in levels])
    whole, part = encode_ahead(learner.model, collator, source, 1, quiet=True, parts=1, auto=0.0)
    assert part.whole is None
    assert all(level.any() for level in whole.levels)
    assert not any(level.any() for level in part.levels)


def test_a_page_goes_to_a_device_with_all_that_it_holds(learner, source, make_processor):
    collator = AllocatorCollator(make_processor(learner.model), language=True)
    for page in encode_ahead(learner.model, collator, source, 1, quiet=True, parts=1):
        held = [*vars(page).values(), *page.levels, *vars(page.glance).values()]
        moved = page.to("meta")
        there = [*vars(moved).values(), *moved.levels, *vars(moved.glance).values()]
        for one, other in zip(held, there, strict=True):
            if isinstance(one, torch.Tensor):
                assert (one.device.type, other.device.type, other.shape) == ("cpu", "meta", one.shape)
        assert moved.grid == page.grid


def test_pages_are_encoded_and_scored_where_the_model_is(learner, source, make_processor, monkeypatch):
    seen = []
    plain = ahead.EncodedPage.to
    monkeypatch.setattr(
        ahead.EncodedPage, "to", lambda page, device: seen.append(torch.device(device)) or plain(page, device)
    )
    monkeypatch.setattr(ahead, "_on", lambda device, batch: seen.append(device) or batch)
    collator = AllocatorCollator(make_processor(learner.model), language=False)
    pages = encode_ahead(learner.model, collator, source, 1, quiet=True)
    own = learner.model.get_input_embeddings().weight.device
    assert seen == [own, torch.device("cpu")]
    plain_learner = AllocatorLearner(learner.model, parse_signals("evidence"))
    plain_learner(**PageCollator(collator)(pages, 0))
    assert seen[2:] == [own]


def test_a_part_has_no_question_whose_evidence_it_lacks(learner, source, make_processor):
    collator = AllocatorCollator(make_processor(learner.model), language=False)
    (page,) = encode_ahead(learner.model, collator, source, 1, quiet=True)
    cells = page.evidence[0].nonzero().flatten()
    context = torch.zeros_like(page.context)
    page = replace(page, context=context)
    assert 0 in ahead._answerable(page, cells, 1)
    assert 1 not in ahead._answerable(page, cells, 1)
    context[0, (page.evidence[0] == 0).nonzero().flatten()[0]] = 1
    assert 0 not in ahead._answerable(page, cells, 1)
    assert 0 in ahead._answerable(page, cells, 0)


def test_stage_1_is_scored_where_a_signal_asks(learner, source, make_processor, monkeypatch):
    collator = AllocatorCollator(make_processor(learner.model), language=False)
    batches = [PageCollator(collator)(encode_ahead(learner.model, collator, source, 1, quiet=True), 0)]
    batches.append(collator(source.page(0), 0))
    plain = AllocatorLearner(learner.model, parse_signals("evidence,mass"))
    monkeypatch.setattr(learner.model.model.arrcoc.reader, "forward", lambda *_: pytest.fail("read for nothing"))
    for batch in batches:
        assert plain(**batch).keys() == {"loss", "evidence", "mass"}


def test_losses_of_encoded_pages_are_those_of_their_examples(learner, source, make_processor):
    collator = AllocatorCollator(make_processor(learner.model), language=True)
    pages = encode_ahead(learner.model, collator, source, 2, quiet=True)
    examples = [source.example(index) for index in range(2 * QUESTIONS)]
    expected, found = learner(**collator(examples, 7)), learner(**PageCollator(collator)(pages, 7))
    assert expected.keys() == found.keys()
    for name, loss in expected.items():
        torch.testing.assert_close(found[name], loss, rtol=2e-2, atol=2e-3, msg=name)
    found["loss"].backward()
    own = learner.model.model.arrcoc.named_parameters()
    gradients = {name: p.grad for name, p in own if not name.startswith(("restorer.", "coarse_mark.", "scope."))}
    assert all(gradient is not None and gradient.isfinite().all() for gradient in gradients.values())


def test_what_is_learned_is_not_moved_by_a_guess_that_has_learned_nothing(learner, source, make_processor):
    """A run that goes on has new guesses; drawn ones had an error ten times all others."""
    guessing = AllocatorLearner(learner.model, parse_signals("named,early_features"))
    collator = AllocatorCollator(make_processor(learner.model), language=False)
    pages = encode_ahead(learner.model, collator, source, 1, quiet=True)
    guessing.zero_grad()
    guessing(**PageCollator(collator)(pages, 0))["loss"].backward()
    assert guessing.names.weight.grad.any()
    assert guessing.guess.weight.grad.any()
    moved = [p.grad for p in guessing.scorer.parameters() if p.grad is not None]
    assert moved
    assert not any(gradient.any() for gradient in moved)


def test_the_full_model_is_read_for_questions_without_boxes_alone(learner, source, make_processor):
    collator = AllocatorCollator(make_processor(learner.model), language=True)
    picture = source.example(0).image
    marked, *rest = (replace(example, picture=picture) for example in source.page(0))
    asked = PictureSource([*rest, replace(marked, evidence=())], questions=QUESTIONS)
    (every,) = encode_ahead(learner.model, collator, asked, 1, quiet=True)
    (page,) = encode_ahead(learner.model, collator, asked, 1, quiet=True, unmarked_alone=True)
    unmarked = ~page.evidence.any(-1)
    assert unmarked.sum() == 1
    assert not page.attention[~unmarked].any()
    torch.testing.assert_close(page.attention[unmarked], every.attention[unmarked], rtol=1e-4, atol=1e-6)
    assert torch.allclose(every.attention.sum(-1), torch.ones(QUESTIONS), atol=1e-5)


def test_a_list_gives_a_page_for_each_of_its_pictures(learner, source, make_processor):
    collator = AllocatorCollator(make_processor(learner.model), language=False)
    asked = [*source.page(0), source.example(QUESTIONS), *source.page(2)]
    drawn = {number: source.example(number).image for number in (0, QUESTIONS, 2 * QUESTIONS)}
    pictures = [drawn[0]] * 3 + [drawn[QUESTIONS]] + [drawn[2 * QUESTIONS]] * 3
    listed = [replace(example, picture=picture) for example, picture in zip(asked, pictures, strict=True)]
    pages = encode_ahead(learner.model, collator, PictureSource(listed, questions=QUESTIONS), 3, quiet=True)
    assert sorted(len(page.evidence) for page in pages) == [1, 3, 3]
    pages = encode_ahead(learner.model, collator, PictureSource(listed, questions=2), 5, quiet=True)
    assert sorted(len(page.evidence) for page in pages) == [1, 1, 1, 2, 2]


def test_the_questions_of_a_page_share_its_picture_and_open_it_once(learner, source, make_processor):
    page = source.page(0)
    assert [len(asked) for asked in by_picture([*page, *source.page(1), *source.page(0)])] == [2 * QUESTIONS, QUESTIONS]
    opened = []

    def draw():
        opened.append(1)
        return page[0].image

    collator = AllocatorCollator(make_processor(learner.model), language=False)
    batches = [collator(asked, 0) for asked in ([replace(one, picture=draw) for one in page], page)]
    assert len(opened) == 1
    assert all(torch.equal(batches[0][name], tensor) for name, tensor in batches[1].items())


def test_a_list_is_gone_through_picture_by_picture_in_another_order_each_time():
    pictures = [Path(f"{name}.png") for name in "abcde"]
    listed = [Example(picture, f"{n}?", ("a",)) for n in range(3) for picture in pictures]
    source = PictureSource(listed, seed=3, questions=3)
    passes = [[source.example(15 * turn + place) for place in range(15)] for turn in range(2)]
    for asked in passes:
        assert sorted(map(str, asked)) == sorted(map(str, listed))
        assert all(len({example.picture for example in asked[first : first + 3]}) == 1 for first in range(0, 15, 3))
    assert passes[0] != passes[1]
    assert passes[0][0] == PictureSource(listed, seed=3, questions=3).example(0)
    mixed = MixedSource([PictureSource(listed[:1]), source], run=3)
    assert [len(mixed.page(number)) for number in range(4)] == [1, 3, 1, 3]


def test_a_page_with_fewer_questions_is_asked_each_once():
    source = WorldSource(seed=3, kinds=("scene",), grids=((8, 8),), questions=50)
    asked = source.page(0)
    assert 0 < len(asked) == len({example.name for example in asked}) < 50
    assert source.example(len(asked)).name == asked[0].name
