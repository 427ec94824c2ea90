"""The demo app: what it measures and draws, what it refuses, and the page itself in a browser."""

import os
import subprocess
import sys
import threading
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import demo.instrument
from demo import asking, views
from demo.asking import Asking, open_upload
from demo.instrument import METHODS, Instrument
from demo.samples import samples, title
from demo.space import stage as space
from demo.space.stage import stage
from training.data.examples import evidence_weight
from upload import ROOT

QUESTION = "What does it say for locker?"


@pytest.fixture(scope="module")
def instrument(model, processor):
    return Instrument(model, processor)


@pytest.fixture(scope="module")
def picture(page):
    return page(128, 96)


def last(comparisons):
    return list(comparisons)[-1]


# The instrument


def test_three_answers_come_as_they_grow_with_what_each_cost(instrument, picture):
    steps = list(instrument.compare(Asking(picture, QUESTION, budget=12, max_new_tokens=6)))
    end = steps[-1]
    assert (end.count, end.cells, list(end.readings)) == (12, 48, list(METHODS))
    assert [reading.tokens for reading in end.readings.values()] == [48, 12, 12]
    assert all(reading.done and reading.first_token > 0 for reading in end.readings.values())
    assert end.readings["full"].cache_bytes > end.readings["arrcoc"].cache_bytes > 0
    assert len(steps) > len(METHODS) + 1  # text came in pieces
    assert "arrcoc" not in steps[0].readings
    for before, after in pairwise(steps):
        for name, reading in before.readings.items():
            assert after.readings[name].text.startswith(reading.text)


def test_the_other_two_are_prepared_by_stocks_processor(instrument, picture, monkeypatch):
    """Whose time to a first token would have that of the raw image in it."""
    asked = []
    for name in ("full_prompt", "resize"):
        plain = getattr(demo.instrument, name)
        monkeypatch.setattr(demo.instrument, name, lambda *given, plain=plain: asked.append(given) or plain(*given))
    last(instrument.compare(Asking(picture, QUESTION, budget=12, max_new_tokens=1)))
    assert [any(hasattr(part, "token_budget") for part in given) for given in asked] == [False, False]


def test_answers_are_those_of_generate(instrument, picture, model, processor, make_inputs):
    end = last(instrument.compare(Asking(picture, QUESTION, budget=12, max_new_tokens=6)))
    for name, budget in (("full", "full"), ("arrcoc", 12)):
        inputs = make_inputs(picture, QUESTION, token_budget=budget)
        tokens = model.generate(**inputs, max_new_tokens=6, do_sample=False)[0, inputs["input_ids"].shape[1] :]
        assert end.readings[name].text == processor.tokenizer.decode(tokens, skip_special_tokens=True).strip()


def test_a_second_question_takes_the_encoded_picture_and_answers_the_same(instrument, picture, page):
    first = last(instrument.compare(Asking(picture, QUESTION, budget=12, max_new_tokens=4)))
    second = Asking(picture, "What is the date?", budget=8, max_new_tokens=4)
    again = last(instrument.compare(second, first.held))
    assert not first.readings["arrcoc"].reused
    assert again.readings["arrcoc"].reused
    assert again.held is first.held
    assert again.readings["arrcoc"].text == last(instrument.compare(second)).readings["arrcoc"].text
    other = last(instrument.compare(Asking(page(128, 96, seed=1), QUESTION, budget=12, max_new_tokens=2), first.held))
    assert not other.readings["arrcoc"].reused


@pytest.mark.parametrize(
    ("settings", "reused"),
    [
        ({"encode_ratio": 0.5}, False),
        ({"encode_ratio": "auto"}, True),
        ({"encode_ratio": "auto", "budget": "full"}, False),
        ({"allocation_mode": "foveated", "budget": 40}, True),
        ({"budget": "auto"}, True),
    ],
)
def test_modes_and_ratios_work_and_are_held_where_another_question_can_use_them(instrument, settings, reused):
    image = Image.new("RGB", (128, 96), "white")
    image.paste("black", (16, 16, 60, 60))
    asked = Asking(image, QUESTION, **{"budget": 6, "max_new_tokens": 2, **settings})
    first = last(instrument.compare(asked))
    assert last(instrument.compare(asked, first.held)).readings["arrcoc"].reused is reused
    assert len(first.seen.allocation) == first.count


def test_a_budget_above_the_picture_is_said_and_one_too_small_to_foveate_goes_to_cells(instrument, picture):
    assert "above the 48 tokens" in last(instrument.compare(Asking(picture, "?", "large", max_new_tokens=1))).note
    assert not last(instrument.compare(Asking(picture, "?", 48, max_new_tokens=1))).note
    assert last(instrument.compare(Asking(picture, "?", 1, "foveated", max_new_tokens=1))).count == 1


def test_an_asker_who_leaves_stops_the_generation(instrument, picture):
    running = threading.active_count()
    comparisons = instrument.compare(Asking(picture, QUESTION, budget=12, max_new_tokens=2000))
    next(comparisons)
    comparisons.close()
    assert threading.active_count() == running


def test_what_fails_in_a_generation_reaches_the_asker(instrument, picture, monkeypatch):
    monkeypatch.setattr(instrument.model, "generate", lambda **inputs: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        last(instrument.compare(Asking(picture, QUESTION)))


# Pictures


@pytest.fixture(scope="module")
def seen(instrument, picture):
    return last(instrument.compare(Asking(picture, QUESTION, budget=12, max_new_tokens=1))).seen


def test_pictures_show_the_kept_cells(seen):
    shown, heat = views.heat_pair(seen)
    kept = views.kept_picture(seen)
    assert shown.size == heat.size == kept.size == (768, 576)
    assert int(seen.kept.sum()) == 12
    same = (np.asarray(kept) == np.asarray(shown)).all(-1).reshape(6, 96, 8, 96).all((1, 3))
    assert same[seen.kept.numpy()].all()
    drawn = [title for _, title in views.maps(seen)]
    assert drawn[:4] == ["relevance", "information score", "perspective score", "participation score"]
    assert len(drawn) == 4 + 13
    assert len(views.tensions(seen)) == 3


def test_what_was_missed_is_the_share_of_the_box_outside_the_kept_cells(seen, picture):
    row, column = seen.kept.nonzero()[0].tolist()
    inside = (column * 16 + 2, row * 16 + 2, column * 16 + 14, row * 16 + 14)
    row, column = (~seen.kept).nonzero()[0].tolist()
    outside = (column * 16 + 2, row * 16 + 2, column * 16 + 14, row * 16 + 14)
    assert views.missed(seen, [inside])[1] == pytest.approx(1)
    assert views.missed(seen, [outside])[1] == 0
    drawn, share = views.missed(seen, [inside, outside])
    assert share == pytest.approx(float((evidence_weight([inside, outside], picture.size, (6, 8)) * seen.kept).sum()))
    assert drawn.size == (768, 576)


def test_examples_open_and_their_titles_differ():
    found = samples()
    assert len({title(example) for example in found}) == len(found)
    assert all(example.image.mode == "RGB" and example.question for example in found)


# What is refused


def png(path: Path, size=(64, 64)) -> Path:
    Image.new("1", size).save(path, "PNG")
    return path


def truncated(path: Path) -> Path:
    Image.effect_noise((64, 64), 80).convert("RGB").save(path, "PNG")
    path.write_bytes(path.read_bytes()[:900])
    return path


HOSTILE = {
    "text": lambda path: path.write_text("<svg onload=alert(1)>"),
    "nothing": lambda path: path.write_bytes(b""),
    "truncated": truncated,
    "postscript": lambda path: path.write_text("%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n"),
    "too many pixels": lambda path: png(path, (5000, 4000)),
    "a bomb": lambda path: png(path, (20000, 20000)),
    "a strip": lambda path: png(path, (6000, 100)),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_uploads_are_refused_without_saying_where_they_lie(kind, tmp_path):
    path = tmp_path / "upload.png"
    HOSTILE[kind](path)
    with pytest.raises(ValueError, match=r"picture") as caught:
        open_upload(path)
    assert str(tmp_path) not in str(caught.value)


def test_too_many_bytes_are_refused_before_the_file_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr(asking, "MAX_BYTES", 10)
    with pytest.raises(ValueError, match="more than"):
        open_upload(png(tmp_path / "upload.png"))


@pytest.mark.parametrize("question", ["", "  ", "x" * 501, "<|im_end|> what?", "<|image_pad|>"])
def test_questions_that_are_none_are_refused(question, picture):
    with pytest.raises(ValueError, match="question"):
        Asking(picture, question)


# The Space


def test_the_space_is_complete_and_its_card_is_one_that_the_hub_takes(tmp_path):
    from huggingface_hub import SpaceCard

    out = stage(tmp_path / "space")
    card = SpaceCard.load(out / "README.md").data
    assert (card.sdk, card.app_file, card.license) == ("gradio", "app.py", "apache-2.0")
    assert len(card.short_description) <= 60
    assert (out / card.app_file).exists()
    assert "pillow>=10,<13" in (out / "requirements.txt").read_text()
    steps = (
        "import sys",
        "sys.meta_path = [each for each in sys.meta_path if 'editable' not in str(each)]",  # a Space has no checkout
        "import demo.instrument, demo.samples, evaluation.loading, arrcoc",  # what demo.app imports, less gradio
        "print(arrcoc.__file__)",
        "print(len(demo.samples.samples()))",
    )
    code = "; ".join(steps)
    options = {"cwd": out, "capture_output": True, "text": True, "env": os.environ | {"PYTHONPATH": str(out)}}
    ran = subprocess.run([sys.executable, "-c", code], check=False, **options)
    assert ran.returncode == 0, ran.stderr
    assert Path(ran.stdout.split()[0]) == out / "arrcoc" / "__init__.py"
    with pytest.raises(FileExistsError, match="new or empty"):
        stage(out)


def test_a_space_that_can_not_be_staged_is_told_in_one_line(tmp_path, capsys):
    (tmp_path / "file").touch()
    for arguments, told in (
        ([tmp_path / "file"], "Not a directory"),
        ([tmp_path / "new", "--model", ""], "is no Hub id"),
    ):
        assert space.main([str(argument) for argument in arguments]) == 1
        assert told in capsys.readouterr().err
    assert not (tmp_path / "new").exists()


def test_a_space_may_take_its_model_from_the_hub(tmp_path):
    out = stage(tmp_path / "space", "you/model")
    assert (out / "model.txt").read_text() == "you/model"
    assert not (out / "checkpoints").exists()
    assert (ROOT / "demo" / "space" / "app.py").read_text() == (out / "app.py").read_text()
