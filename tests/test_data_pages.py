"""Pages of `--data` in the base's language stage: what is asked of them, where it is read, and what is refused."""

import json
from pathlib import Path
from random import Random

import pytest
import torch
from PIL import Image

from tests.small_archive import archive_files, tar_of
from training import train_base
from training.base_model import CELL, build_model
from training.batches import IGNORED, _tokenizer, image_start, make_batch, opens_answer
from training.curriculum import STAGES
from training.data import DataError
from training.data_pages import MOST_LETTERS, load_pages
from training.leaving_out import leave_out
from training.speed import speed_up
from training.steps import GlyphHead, losses
from training.stream import MOST_PROCESSES, Batches

LANGUAGE = STAGES[-1]
QUESTION, ANSWER = "What does it say for locker?", "Ox 7"
BOX = [16, 32, 80, 44]  # cells 1 to 4 of the third row
SMOKE = ["--smoke", "--float32", "--stage", "language"]


def row(name: str, **fields) -> dict:
    return {"file_name": name, "question": QUESTION, "answers": [ANSWER], "evidence": [BOX], **fields}


@pytest.fixture
def folder(tmp_path):
    """Makes a folder of 128 x 96 pictures from rows of metadata."""

    def make(*rows: dict, size: tuple[int, int] = (128, 96), name: str = "pages") -> str:
        place = tmp_path / name / "train"
        place.mkdir(parents=True)
        for one in rows:
            Image.new("RGB", size, "white").save(place / one["file_name"])
        (place / "metadata.jsonl").write_text("".join(json.dumps(one) + "\n" for one in rows))
        return str(place.parent)

    return make


def one_batch(*specs: str, size: int = 2, seed: int = 0, instructed: float = 0.0):
    return load_pages(specs, 0).batch(Random(seed), Random(seed), size, instructed)


def conversations(batch) -> list[str]:
    texts = _tokenizer().batch_decode(batch.input_ids)
    return [text.replace("<|image_pad|>", "").replace("<|endoftext|>", "") for text in texts]


def answers(batch) -> list[str]:
    """What is labelled on each page."""
    return [_tokenizer().decode([token for token in row if token != IGNORED]) for row in batch.labels.tolist()]


def test_an_answer_is_labelled_and_read_letter_by_letter_from_its_box(folder):
    batch = one_batch(folder(row("a.png", context=[[0, 0, 48, 16]])))
    assert batch.cells == (6, 8)
    assert batch.images.shape == (2, 96, 128, 3)
    assert answers(batch) == [f"{ANSWER}<|im_end|>"] * 2
    assert all(f"{QUESTION}<|im_end|>" in text for text in conversations(batch))
    rows = (batch.labels[:, 1:] != IGNORED).nonzero()[:, 0]
    read = [sorted(cells.nonzero().flatten().tolist()) for cells in batch.pointers[rows == 0]]
    assert {cell for cells in read for cell in cells} <= {17, 18, 19, 20}
    assert read[0] == [17]
    assert read[-1] == [20]
    assert [row.nonzero().flatten().tolist() for row in batch.named] == [[0, 1, 2]] * 2
    assert batch.glyphs is batch.keys is batch.asked is None


def test_an_answer_of_two_lines_is_read_from_both(folder):
    lines = [[0, 0, 32, 14], [64, 64, 96, 78]]
    batch = one_batch(folder(row("a.png", evidence=lines, answers=["ABCDEFGH"])), size=1)
    read = [set(cells.nonzero().flatten().tolist()) for cells in batch.pointers]
    assert read[0] == {0}
    assert read[-1] == {37}
    assert set.union(*read) == {0, 1, 36, 37}


def test_a_picture_of_other_sides_is_shown_on_whole_cells(folder):
    batch = one_batch(folder(row("a.png", evidence=[[100, 80, 120, 90]]), size=(120, 90)), size=1)
    assert batch.cells == (6, 8)
    assert batch.pointers.any(0).nonzero().flatten().tolist() == [46, 47]


def test_of_larger_pages_a_batch_has_fewer(folder):
    large = folder(row("a.png"), size=(32 * 16, 18 * 16), name="large")
    assert len(one_batch(large, size=8).input_ids) == 2  # of 576 cells
    huge = folder(row("a.png"), size=(33 * 16, 32 * 16), name="huge")
    with pytest.raises(DataError, match="a picture of at most 1024 cells"):
        load_pages([huge], 0)
    assert load_pages([large, huge], 0).left_out == 1


def test_more_processes_than_gpus_are_refused(monkeypatch, capsys):
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 1)
    with pytest.raises(SystemExit):
        train_base.parse([*SMOKE, "--processes", "2"])
    assert "--processes 2: each takes a GPU, and there are 1" in capsys.readouterr().err


def test_what_can_not_be_read_is_left_out(folder):
    rows = [
        row("a.png"),
        row("b.png", evidence=[]),
        row("c.png", answers=["Ž"]),
        row("d.png", answers=["x" * (MOST_LETTERS + 1)]),
    ]
    pages = load_pages([folder(*rows)], 0)
    (page,) = (page for same in pages.grids.values() for page in same)
    assert [Path(example.picture).name for example in page.asked] == ["a.png"]
    assert pages.left_out == 3
    with pytest.raises(DataError, match=f"1 to {MOST_LETTERS} ASCII"):
        load_pages([folder(row("b.png", evidence=[]), name="none")], 0)
    damaged = folder(row("a.png"), row("e.png"), name="damaged")
    (Path(damaged) / "train" / "e.png").unlink()
    with pytest.raises(DataError, match="--skip-bad"):
        load_pages([damaged], 0)
    assert train_base.parse([*SMOKE, "--begin", "x", "--data", damaged, "--skip-bad", "--out", "y"]).skip_bad
    assert sum(len(same) for same in load_pages([damaged], 0, skip_bad=True).grids.values()) == 1


def test_questions_of_a_page_are_one_conversation_and_some_have_how_to_answer_behind_them(folder):
    rows = [row("a.png", question=f"What is {number}?", answers=[str(number)]) for number in range(1, 5)]
    place = folder(*rows)
    turns = set()
    for seed in range(12):
        batch = one_batch(place, size=1, seed=seed)
        places = (batch.labels[:, 1:] != IGNORED).nonzero().T
        turns.add(int(opens_answer(*places).sum()))
    assert {1, 2, 4} <= turns
    (plain,), (more,) = (conversations(one_batch(place, size=1, instructed=share)) for share in (0.0, 1.0))
    assert all(part.endswith("?") for part in plain.split("<|im_end|>\n<|im_start|>assistant")[:-1])
    assert not any(part.endswith("?") for part in more.split("<|im_end|>\n<|im_start|>assistant")[:-1])


@pytest.mark.parametrize(
    "options", [{}, {"encoded_whole": True}, {"foveated": True}], ids=["before", "after", "foveated"]
)
def test_cells_that_are_left_out_are_none_that_are_read(folder, options):
    batch = one_batch(folder(row("a.png", context=[[0, 0, 48, 16]]), size=(192, 192)), size=3)
    some = leave_out(batch, Random(1), **options)
    assert some.shown < 144
    assert torch.equal(some.pointers[:, some.coarse :].sum(-1), batch.pointers.sum(-1))
    model = build_model(0)
    speed_up(model, compiled=False)
    model.model.visual.requires_grad_(False)
    found = losses(model, GlyphHead(256), some, torch.float32)
    assert found.keys() >= {"loss", "pointers"}
    assert "asked" not in found
    assert all(loss.isfinite() for loss in found.values())


def test_a_share_of_the_batches_shows_them_and_processes_share_grid_and_count(tmp_path):
    tables = f"wikitables:{tar_of(tmp_path, archive_files())}?together=4"
    pages = load_pages([tables], 0)
    streams = [iter(Batches(LANGUAGE, 5, 0, 1, rank, pages, 0.5)) for rank in (0, 1, 0)]
    drawn = [[next(stream) for _ in range(12)] for stream in streams]
    of_data = [batch.asked is None for batch in drawn[0]]
    assert 2 < sum(of_data) < 10
    for first, second, again in zip(*drawn, strict=True):
        assert first.cells == second.cells
        assert (first.asked is None) == (second.asked is None)
        assert torch.equal(first.images, again.images)
        assert torch.equal(first.input_ids, again.input_ids)


def test_without_data_batches_are_those_of_before():
    first, second = (next(iter(Batches(LANGUAGE, 5, 0, 1, 0, *data))) for data in ((), (None, 0.9)))
    assert torch.equal(first.images, second.images)
    assert first.asked is not None
    number = 5 * 1_000_003
    drawn = make_batch(LANGUAGE, "train", number * MOST_PROCESSES, 1, *Random(number).choice(LANGUAGE.grids))
    assert torch.equal(first.images, drawn.images)


def test_the_language_stage_takes_them_and_goes_on_with_them(folder, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(train_base, "export", lambda model, place: place.mkdir(parents=True, exist_ok=True))
    shown = ["--data", folder(row("a.png"), row("b.png", evidence=[])), "--data-share", "0.9", "--save-every", "1"]
    history = train_base.main([*SMOKE, *shown, "--steps", "2", "--out", str(tmp_path / "out")])
    assert any("asked" not in metrics for metrics in history)
    assert "1 questions are left out" in capsys.readouterr().err
    trainer, _ = train_base.prepare(["--resume", "--out", str(tmp_path / "out")])
    assert trainer.options.data_share == 0.9
    assert list(trainer.data.grids) == [(6, 8)]
    rows = (tmp_path / "pages" / "train" / "metadata.jsonl").read_text()
    (tmp_path / "pages" / "train" / "metadata.jsonl").write_text(rows.replace(ANSWER, "Ox 8"))
    with pytest.raises(ValueError, match="is not what the run in"):
        train_base.prepare(["--resume", "--out", str(tmp_path / "out")])


def test_other_stages_refuse_them(folder, tmp_path):
    asked = ["--smoke", "--stage", "world", "--data", folder(row("a.png")), "--out", str(tmp_path / "out")]
    with pytest.raises(ValueError, match="--stage language"):
        train_base.prepare(asked)


@pytest.mark.parametrize(
    "bad",
    [
        "--limit 9",
        "--data-share 0.4",
        "--data world --limit 0",
        "--data world --limit 9 --data-share 1",
    ],
)
def test_options_of_data_are_checked_before_anything_is_loaded(bad, capsys):
    with pytest.raises(SystemExit):
        train_base.parse([*SMOKE, *bad.split()])
    assert bad.split()[-2] in capsys.readouterr().err


def test_the_world_beside_the_world_needs_a_limit(capsys):
    with pytest.raises(SystemExit):
        train_base.parse([*SMOKE, "--data", "world?grids=8x8"])
    assert "the world, which has no end: pass --limit" in capsys.readouterr().err
    assert train_base.parse([*SMOKE, "--data", "world?grids=8x8", "--limit", "9"]).limit == 9


def test_an_image_stands_first(folder):
    batch = one_batch(folder(row("a.png")), size=1)
    assert image_start(batch.input_ids) == len(_tokenizer()("<|im_start|>user\n<|vision_start|>")["input_ids"])
    assert batch.images.shape[1:3] == (6 * CELL, 8 * CELL)
