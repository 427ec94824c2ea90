"""Pages with cells left out, as the base is trained on them."""

from dataclasses import replace
from random import Random

import pytest
import torch

from training.base_model import build_model
from training.batches import IGNORED, image_start, make_batch
from training.curriculum import STAGES
from training.leaving_out import leave_out
from training.steps import GlyphHead, _batch_positions, answer_logits, losses
from training.stream import Batches

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
    whole = replace(whole, pointers=torch.zeros_like(whole.pointers), asked=torch.zeros_like(whole.asked))
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
    few = replace(STAGES[-1], grids=((GRID, None),))

    def left_out(stage):
        batches = iter(Batches(stage, 0, 0, 1))
        return [next(batches).kept is not None for _ in range(6)]

    assert left_out(replace(few, left_out=1.0)) == [True] * 6
    assert left_out(replace(few, left_out=0.0)) == [False] * 6
    assert set(left_out(replace(few, left_out=0.5))) == {True, False}


def test_names_are_not_asked_of_cells_whose_labels_may_be_gone():
    from training.speed import speed_up

    model = build_model(0)
    speed_up(model, compiled=False)
    head = GlyphHead(model.config.text_config.hidden_size)
    assert losses(model, head, leave_out(pages(3), Random(3)), torch.float32)["keys"] == 0
    assert losses(model, head, pages(3), torch.float32)["keys"] > 0
