"""What brings pages that were encoded in part back to whole ones: how it starts, what it reads, where it is asked."""

import pytest
import torch
from PIL import ImageOps

from arrcoc import ARRCOCQwen3VLForConditionalGeneration
from arrcoc.reading import READ_FEATURES
from arrcoc.restoring import ContextRestorer
from training.ahead import encode_ahead, restored_loss
from training.allocator_batches import AllocatorCollator
from training.data import WorldSource
from training.signals import restoring_loss

GRID = (5, 7)
SIZES = [12, 20]


@pytest.fixture
def restorer():
    torch.manual_seed(0)
    return ContextRestorer(SIZES, hidden_size=16)


@pytest.fixture
def awake(restorer):
    with torch.no_grad():
        for layer in restorer.leave:
            layer.weight.normal_(std=0.3)
    return restorer


def seen(encoded, dtype=torch.float32):
    generator = torch.Generator().manual_seed(1)
    levels = [torch.randn(GRID[0] * GRID[1], size, generator=generator)[encoded].to(dtype) for size in SIZES]
    return levels, torch.randn(GRID[0] * GRID[1], READ_FEATURES, generator=generator)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_untrained_it_changes_nothing(dtype, restorer):
    encoded = torch.tensor([0, 3, 9, 30])
    levels, read = seen(encoded, dtype)
    levels = [level / 3 for level in levels]  # which in float64 is no number of float32
    for level, same in zip(levels, restorer(levels, read, encoded, GRID), strict=True):
        assert torch.equal(level, same)


@pytest.mark.parametrize("encoded", [[17], [0, 34], list(range(35))])
def test_a_row_for_each_encoded_cell_in_the_dtype_that_came(encoded, awake):
    encoded = torch.tensor(encoded)
    levels, read = seen(encoded, torch.bfloat16)
    restored = awake(levels, read, encoded, GRID)
    assert [(each.shape, each.dtype) for each in restored] == [(level.shape, level.dtype) for level in levels]
    assert all(not torch.equal(each, level) for each, level in zip(restored, levels, strict=True))


def test_it_reads_the_cells_around_that_were_not_encoded(awake):
    encoded = torch.tensor([0, 17])
    levels, read = seen(encoded)
    plain = awake(levels, read, encoded, GRID)[0]
    read[18] += torch.randn(READ_FEATURES)
    beside = awake(levels, read, encoded, GRID)[0]
    assert not torch.allclose(plain[1], beside[1])


def test_what_it_adds_is_in_units_of_the_features(awake):
    encoded = torch.tensor([2, 8, 33])
    levels, read = seen(encoded)
    large = [1000 * level for level in levels]
    pairs = zip(awake(large, read, encoded, GRID), awake(levels, read, encoded, GRID), strict=True)
    for of_large, restored in pairs:
        torch.testing.assert_close(of_large / 1000, restored, rtol=1e-3, atol=1e-4)


def test_the_loss_reaches_the_features_as_if_it_were_not_there(awake):
    encoded = torch.tensor([2, 8, 33])
    levels, read = seen(encoded)
    levels = [level.requires_grad_() for level in levels]
    sum(each.sum() for each in awake(levels, read.requires_grad_(), encoded, GRID)).backward()
    assert all(torch.equal(level.grad, torch.ones_like(level)) for level in levels)
    assert read.grad is None
    assert all(parameter.grad is not None for parameter in awake.parameters())


def test_the_bundled_one_brings_features_nearer_to_those_of_the_whole_page(checkpoint, processor):
    model = ARRCOCQwen3VLForConditionalGeneration.from_pretrained(checkpoint, dtype=torch.float32).eval()
    collator = AllocatorCollator(processor, language=False)
    source = WorldSource(seed=77, split="held_out", grids=((12, 12),), questions=1)
    parts = encode_ahead(model, collator, source, 4, quiet=True, parts=1, auto=0.0, for_restorer=True)
    with torch.no_grad():
        restored = [float(restored_loss(model.model.arrcoc, part)) for part in parts]
        without = [float(restoring_loss(part.levels, part.whole)) for part in parts]
    assert all(near < 0.85 * far for near, far in zip(restored, without, strict=True))


@pytest.mark.parametrize(
    ("mode", "asked"), [({}, False), ({"encode_ratio": 0.4}, True), ({"encode_ratio": "auto"}, True)]
)
def test_pictures_encoded_in_part_alone_are_restored(mode, asked, tiny_model, make_inputs, page, monkeypatch):
    half_empty = ImageOps.expand(page(96, 96), (0, 0, 96, 0), fill="white")
    inputs, model, calls = make_inputs(half_empty, token_budget=8), tiny_model(), []
    with torch.no_grad():
        restored = model(**inputs, **mode).logits
        monkeypatch.setattr(model.model.arrcoc.restorer, "forward", lambda levels, *rest: calls.append(rest) or levels)
        left = model(**inputs, **mode).logits
    assert len(calls) == asked
    assert torch.equal(restored, left) != asked
