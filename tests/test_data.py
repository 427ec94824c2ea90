"""Evidence on the grid, examples of the drawn world, streams of examples, and the one door to all data."""

import pickle

import numpy as np
import pytest
import torch
from PIL import Image

from training.data import (
    WorldSource,
    evidence_share,
    evidence_weight,
    load_examples,
    world_examples,
)
from training.world import KINDS, Page
from training.world.__main__ import write

# --- evidence on the grid


def test_evidence_share_by_hand():
    # 2 x 2 cells of 10 x 10 pixels; the two boxes overlap in one quarter of the first cell
    boxes = ((0, 0, 5, 10), (0, 0, 10, 5), (10, 10, 15, 20))
    assert evidence_share(boxes, (20, 20), (2, 2)).tolist() == [[0.75, 0], [0, 0.5]]
    assert evidence_weight(boxes, (20, 20), (2, 2)).flatten().tolist() == pytest.approx([0.6, 0, 0, 0.4])
    assert evidence_share((), (20, 20), (2, 3)).tolist() == [[0, 0, 0], [0, 0, 0]]
    assert evidence_weight((), (20, 20), (2, 3)).sum() == 0


def test_evidence_share_equal_counted_pixels():
    random = np.random.default_rng(0)
    for _ in range(20):
        left, top = random.integers(0, 90, (2, 5))
        boxes = [(x, y, x + w, y + h) for x, y, w, h in zip(left, top, *random.integers(1, 60, (2, 5)), strict=True)]
        pixels = np.zeros((96, 144))
        for x0, y0, x1, y1 in boxes:
            pixels[y0:y1, x0:x1] = 1
        wanted = pixels.reshape(6, 16, 9, 16).mean(axis=(1, 3))
        cells = evidence_share(boxes, (144, 96), (6, 9))
        assert torch.allclose(cells, torch.tensor(wanted, dtype=torch.float32), atol=1e-6)
        weight = evidence_weight(boxes, (144, 96), (6, 9))
        assert weight.sum().item() == pytest.approx(1, abs=1e-5)
        assert torch.allclose(weight * pixels.sum() / 256, cells, atol=1e-5)


def test_evidence_follows_a_resized_picture_and_odd_grids():
    boxes, twice = [(3, 4, 21, 17)], [(6, 8, 42, 34)]
    assert torch.equal(evidence_share(boxes, (50, 40), (3, 7)), evidence_share(twice, (100, 80), (3, 7)))
    assert evidence_share([(0, 0, 50, 40)], (50, 40), (3, 7)).min() == 1
    assert evidence_weight([(0.25, 0.5, 0.75, 0.9)], (50, 40), (3, 7))[0, 0] == 1
    with pytest.raises(ValueError, match="at least 1 on each side"):
        evidence_share(boxes, (0, 40), (3, 7))


# --- the world


def test_world_examples_are_what_their_pages_say():
    examples = world_examples("held_out", 3, ("one_field", "several_fields"), ((8, 8), (8, 12)), pages=4, questions=2)
    assert [e.image.size for e in examples[:1]] == [(128, 128)]
    assert {"one_field", "several_fields"} <= {e.family for e in examples}
    assert len({e.name for e in examples}) == len(examples)
    again = world_examples("held_out", 3, ("one_field", "several_fields"), ((8, 8), (8, 12)), pages=4, questions=2)
    assert [e.image.tobytes() for e in again] == [e.image.tobytes() for e in examples]
    assert pickle.loads(pickle.dumps(examples[0])).image.tobytes() == examples[0].image.tobytes()
    assert isinstance(examples[0].picture(), Image.Image)
    with pytest.raises(ValueError, match="did you mean 'one_field'"):
        world_examples(kinds=("one_feild",))
    with pytest.raises(ValueError, match="at least one of each"):
        world_examples(pages=0)


def test_where_texts_of_the_world_stand_is_asked_once_each():
    source = WorldSource(seed=2, kinds=("table", "near_identical"), grids=((12, 12),), questions=40, find=5)
    finds = 0
    for number in range(8):
        every = source.page(number)
        found = [example for example in every if example.family == "find"]
        finds += len(found)
        plain = WorldSource(2, "train", source.kinds, source.grids, 40)
        assert list(map(str, every[: len(every) - len(found)])) == list(map(str, plain.page(number)))
        assert len({example.answers for example in found}) == len(found) <= 5
        for example in found:
            (text,) = example.answers
            assert text in example.question
            assert example.evidence == example.context
            same = [answered for answered in every if answered.family != "find" and answered.answers == (text,)]
            assert all(set(answered.evidence[:1]) <= set(example.evidence) for answered in same)
            others = [other.answers[0] for other in found if other is not example]
            assert not any(f" {text} " in f" {other} " for other in others)
    assert finds > 30
    again = WorldSource(seed=2, kinds=source.kinds, grids=source.grids, questions=40, find=5)
    told = list(map(str, source.page(3)))
    assert [str(again.example(40 * 3 + place)) for place in range(len(told))] == told
    assert "find" in {example.family for example in load_examples("world:table?grids=12x12&find=3", limit=6)}
    some = load_examples("world?find=12", limit=60)
    assert len(some) == 60
    assert len({example.name.split("/")[2] for example in some}) > 8, "of all kinds of pages, not of the first ones"


def test_the_world_can_be_written_and_read(tmp_path):
    write(tmp_path / "pages", 3, "held_out", 0, KINDS["several_fields"])
    examples = load_examples(str(tmp_path / "pages"))
    assert "several_fields" in {e.family for e in examples}
    assert all(example.evidence for example in examples if example.family == "several_fields")


def test_stream_skips_pages_without_questions(monkeypatch):
    from training.data import world

    page = Page(Image.new("RGB", (128, 128)), (), (), (), (), None)
    monkeypatch.setattr(world, "_page", lambda *arguments: page)
    with pytest.raises(RuntimeError, match="held no question"):
        WorldSource().example(0)


# --- the door


def test_the_door_to_the_world(capsys):
    assert len(load_examples("world:one_field?grids=8x8,8x12", limit=3)) == 3
    found = load_examples("world?grids=12x12&questions=2", limit=5)
    assert len(found) == 5
    assert found[0].image.size == (192, 192)
    capsys.readouterr()
    few = len(load_examples("world:one_field?grids=8x8&questions=4", limit=40))
    assert f"{few} questions, since not every page has as many; ask for more than 40" in capsys.readouterr().err
    assert few < 40


@pytest.mark.parametrize(
    ("spec", "report"),
    [
        ("wrold", r"no folder 'wrold' \(did you mean 'world'\?\)"),
        ("no/such/folder", r"metadata\.jsonl or metadata\.csv"),
        ("world:one_feild", "did you mean 'one_field'"),
        ("world?grids=8x8&grids=12x12", "name one of them twice"),
        ("hub:you/pages?streaming=on", "streaming='on' is neither yes nor no; give 1 or 0"),
        ("world?grid=8x8", r"'grid' is no option here \(did you mean 'grids'\?\)"),
        ("world?grids=8", "give rows x columns, such as 12x12"),
        ("world?questions=no", "give a whole number"),
        ("world?grids", "name=value"),
        ("wikitables:", "names no path"),
        ("hub:", "names no dataset"),
        ("hub:x/y?colour=z", "'colour' is no option"),
    ],
)
def test_the_door_says_what_is_allowed(spec, report):
    with pytest.raises(ValueError, match=report):
        load_examples(spec)


def test_the_door_checks_its_own_arguments():
    with pytest.raises(ValueError, match="split='dev' is not one of train, held_out"):
        load_examples("world", "dev")
    with pytest.raises(ValueError, match="limit=0"):
        load_examples("world", limit=0)
