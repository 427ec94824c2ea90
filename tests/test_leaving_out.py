"""Pages with cells left out, as the base is trained on them."""

from dataclasses import replace
from random import Random

import numpy as np
import pytest
import torch
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from training.base_model import build_model
from training.batches import IGNORED, asked_names, conversation, image_start, make_batch, patches, pointer_targets
from training.curriculum import STAGES
from training.leaving_out import leave_out
from training.speed import speed_up
from training.steps import GlyphHead, _batch_positions, _views, answer_logits, losses
from training.stream import Batches
from training.world import KINDS, make_page

GRID = (8, 12)
SEEDS = range(4)


def pages(seed: int):
    return make_batch(STAGES[-1], "train", seed, 4, GRID)


@pytest.mark.parametrize("seed", SEEDS)
def test_answers_keep_their_labels_and_the_cells_they_are_read_from(seed):
    whole = pages(seed)
    some = leave_out(whole, Random(seed))
    assert some.kept.shape[1] in (36, 49, 64)
    assert (some.kept.diff(dim=1) > 0).all()
    assert some.kept.max() < GRID[0] * GRID[1]
    assert torch.equal(some.labels[some.labels != IGNORED], whole.labels[whole.labels != IGNORED])
    assert some.input_ids.shape == some.labels.shape
    assert some.input_ids.shape[1] % 16 == 0
    image = whole.input_ids[0, image_start(whole.input_ids)]
    assert ((some.input_ids == image).sum(1) == some.kept.shape[1]).all()
    rows = (whole.labels[:, 1:] != IGNORED).nonzero()[:, 0]
    back = torch.zeros_like(whole.pointers).scatter(1, some.kept[rows], some.pointers)
    assert torch.equal(back, whole.pointers)
    size = len(whole.images)
    assert torch.equal(some.glyphs.view(size, -1, 8), whole.glyphs.view(size, -1, 8).gather(1, _rows(some.kept, 8)))


def _rows(kept, width):
    return kept[..., None].expand(-1, -1, width)


def test_empty_cells_go_first_where_an_answer_is_read_from_no_place():
    whole = pages(0)
    whole = replace(whole, pointers=torch.zeros_like(whole.pointers), named=torch.zeros_like(whole.named))
    whole.images[:] = 255
    whole.images[:, :32, :, 0] = torch.arange(whole.images.shape[2]) % 2 * 255  # two inked rows of cells: 24
    kept = leave_out(whole, Random(0)).kept
    assert all(set(range(24)) <= set(row.tolist()) for row in kept)


def test_places_that_are_left_out_leave_the_others_where_they_were():
    model = build_model(0).eval()
    whole = pages(1)
    some = leave_out(whole, Random(1))
    start = image_start(whole.input_ids)
    positions, before = _batch_positions(model, some, start), _batch_positions(model, whole, start)
    count, cells = some.kept.shape[1], GRID[0] * GRID[1]
    for row, kept in enumerate(some.kept):
        assert torch.equal(positions[:, row, start : start + count], before[:, row, start + kept])
    behind = min(before.shape[2] - start - cells, positions.shape[2] - start - count)  # both are padded
    assert torch.equal(positions[..., start + count :][..., :behind], before[..., start + cells :][..., :behind])


def test_all_cells_kept_is_the_whole_page_and_fewer_are_not():
    model = build_model(0)
    whole = pages(2)
    same = replace(whole, kept=torch.arange(GRID[0] * GRID[1]).expand(4, -1))
    logits, labels, _ = answer_logits(model, whole)
    again, same_labels, _ = answer_logits(model, same)
    assert torch.equal(labels, same_labels)
    assert (logits - again).abs().max() < 1e-5
    some = leave_out(whole, Random(2))
    fewer, some_labels, tokens = answer_logits(model, some)
    assert torch.equal(labels, some_labels)
    assert len(tokens) == some.kept.numel()
    assert (logits - fewer).abs().max() > 1e-4


def test_the_stream_leaves_cells_out_of_the_share_of_batches_that_its_stage_says():
    few = replace(STAGES[-1], grids=((GRID, None),), left_out=0.0, pruned=0.0, foveated=0.0)

    def left_out(**shares):
        batches = iter(Batches(replace(few, **shares), 0, 0, 1))
        drawn = [next(batches) for _ in range(6)]
        return {(batch.kept is not None, batch.encoded_whole, batch.coarse > 0) for batch in drawn}

    assert left_out() == {(False, False, False)}
    assert left_out(left_out=1.0) == {(True, False, False)}
    assert left_out(pruned=1.0) == {(True, True, False)}
    assert left_out(foveated=1.0) == {(True, True, True)}
    assert len(left_out(left_out=0.3, pruned=0.3)) == 3


def test_a_process_too_many_is_refused():
    with pytest.raises(ValueError, match="process 9 would draw pages of other steps; train with at most 8"):
        Batches(STAGES[-1], 0, 0, 1, rank=8)


def test_a_batch_of_larger_pages_has_as_many_cells():
    stage = replace(STAGES[-1], left_out=0.0, pruned=0.0, foveated=0.0)
    for grid, pages in (((8, 8), 8), ((12, 12), 8), ((16, 16), 4), ((24, 24), 2)):
        batch = next(iter(Batches(replace(stage, grids=((grid, None),)), 0, 0, 8)))
        assert batch.cells == grid
        assert len(batch.images) == pages


def test_names_are_not_asked_of_cells_whose_labels_may_be_gone():
    from training.speed import speed_up

    model = build_model(0)
    speed_up(model, compiled=False)
    head = GlyphHead(model.config.text_config.hidden_size)
    assert losses(model, head, leave_out(pages(3), Random(3)), torch.float32)["keys"] == 0
    assert losses(model, head, pages(3), torch.float32)["keys"] > 0


def test_pages_in_part_attend_in_one_call_as_whole_ones_do(monkeypatch):
    whole = pages(3)
    model = build_model(0).eval()
    speed_up(model, compiled=False)
    stock, calls = ALL_ATTENTION_FUNCTIONS["batched_images"], []
    monkeypatch.setitem(
        ALL_ATTENTION_FUNCTIONS._global_mapping, "batched_images", lambda *a, **k: calls.append(1) or stock(*a, **k)
    )
    counted = []
    for batch in (whole, leave_out(whole, Random(3))):
        calls.clear()
        tokens = answer_logits(model, batch)[2]
        counted.append(len(calls))
    assert counted == [model.config.vision_config.depth] * 2
    plain = build_model(0).eval()
    assert torch.allclose(tokens, answer_logits(plain, batch)[2], atol=1e-5)


@pytest.mark.parametrize("foveated", [False, True])
def test_cells_left_out_after_the_tower_are_those_of_the_whole_page(foveated):
    model, whole = build_model(0).eval(), pages(1)
    some = leave_out(whole, Random(1), encoded_whole=True, foveated=foveated)
    assert some.kept is not None
    assert (some.coarse > 0) == foveated
    assert some.shown == some.coarse + some.kept.shape[1] == (some.input_ids[0] == _image_token(whole)).sum()
    _, labels, tokens = answer_logits(model, some)
    _, _, every = answer_logits(model, whole)
    assert torch.equal(labels, whole.labels[:, 1:][whole.labels[:, 1:] != IGNORED])
    tokens, every = tokens.unflatten(0, (4, -1)), every.unflatten(0, (4, -1))
    for row, kept in enumerate(some.kept):
        assert torch.allclose(tokens[row, some.coarse :], every[row, kept], atol=1e-5)
    assert not some.pointers[:, : some.coarse].any()


@pytest.mark.parametrize("grid", [(8, 8), (8, 12), (10, 10), (9, 14), (12, 12)])
def test_every_coarse_view_has_the_tokens_that_were_left_for_it(grid):
    whole, found = make_batch(STAGES[-1], "train", 3, 2, grid), set()
    pixels, model = patches(whole.images), build_model(0)
    for seed in range(30):
        some = leave_out(whole, Random(seed), foveated=True)
        if some.kept is not None:
            found.add(some.shown)
            assert [len(view) for view in _views(model, some, pixels)] == [some.coarse] * 2
    assert len(found) >= 2


def _image_token(batch):
    return batch.input_ids[0, image_start(batch.input_ids)]


def test_a_foveated_batch_is_what_the_model_sees_in_its_foveated_mode(model, stock, processor, monkeypatch):
    """But for the mark of coarse views, which learns when the base has."""
    monkeypatch.setattr(model.model.arrcoc.coarse_mark, "forward", lambda levels: levels)
    page = make_page(5, "train", (12, 12), KINDS["one_field"])
    batch = make_batch(STAGES[-1], "train", 0, 1, (12, 12))
    ids, labels, points = conversation((12, 12), [page.questions[0]])
    whole = replace(
        batch, images=torch.from_numpy(np.asarray(page.image))[None], input_ids=torch.tensor([ids]), labels=torch.tensor([labels]),
        pointers=torch.from_numpy(pointer_targets(points, (12, 12))),
        asked=torch.tensor([asked_names(page.questions[0].text)]),
    )  # fmt: skip
    some = leave_out(whole, Random(3), foveated=True)
    content = [{"type": "image", "image": page.image}, {"type": "text", "text": page.questions[0].text}]
    inputs = processor.apply_chat_template(
        [{"role": "user", "content": content}], tokenize=True, add_generation_prompt=True, return_dict=True,
        return_tensors="pt", processor_kwargs={"token_budget": some.shown},
    )  # fmt: skip
    plan = model.allocate(**inputs, allocation_mode="foveated")[0]
    fine = plan.positions[some.coarse :]
    some = replace(some, kept=(fine[:, 1] * 12 + fine[:, 2])[None])
    answered, _, _ = answer_logits(stock, some)
    wanted = model(**inputs, allocation_mode="foveated").logits[0, -1]
    assert (answered[0] - wanted).abs().max() < 2e-4 * wanted.abs().max()
