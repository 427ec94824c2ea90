"""The demo: answers, figures and the overlay of a picture."""

import contextlib
import io
import struct
import subprocess
from types import SimpleNamespace

import pytest
from PIL import Image

from arrcoc.budget import MODES
from demo import answer, figures
from demo.asking import Asking
from upload import DEFAULT_CHECKPOINT, ROOT
from upload import main as upload


@pytest.fixture
def picture(tmp_path):
    path = tmp_path / "mine.png"
    Image.new("RGB", (128, 96), "white").save(path)
    return path


@pytest.fixture
def stages_here(monkeypatch):
    """Stages in this process what the demo stages in one of its own, whose imports take most of its time; `make demo` runs both."""

    def run(command, **_):
        told = io.StringIO()
        with contextlib.redirect_stderr(told), contextlib.redirect_stdout(io.StringIO()):
            code = upload([str(argument) for argument in command[2:]])
        return subprocess.CompletedProcess(command, code, stderr=told.getvalue())

    monkeypatch.setattr(answer.subprocess, "run", run)


def greedy(pipeline):
    """`pipeline`, whose checkpoint asks for samples, and none is drawn."""

    def made(*args, **kwargs):
        pipe = pipeline(*args, **kwargs)
        pipe.model.generation_config.do_sample = True
        generate = pipe.model.generate

        def checked(*given, **options):
            assert options["do_sample"] is False
            return generate(*given, **options)

        pipe.model.generate = checked
        return pipe

    return made


@pytest.mark.usefixtures("stages_here")
def test_demo_answers_at_both_budgets_and_writes_the_overlay(picture, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(answer, "PREFILLS", 1)
    monkeypatch.setattr(answer, "pipeline", greedy(answer.pipeline))
    out = tmp_path / "new" / "overlay.png"
    options = [
        "--image",
        str(picture),
        "--question",
        "what?",
        "--budget",
        "12",
        "--out",
        str(out),
        "--max-new-tokens",
        "2",
    ]
    answer.main(options)
    printed = capsys.readouterr().out
    tokens = next(line for line in printed.splitlines() if line.startswith("tokens"))
    assert tokens.split() == ["tokens", "48", "12", "0.25"]
    assert all(word in printed for word in ("staged", "answer", "prefill", "cache", str(out)))
    assert Image.open(out).size == (768, 576)


def test_budget_is_a_count_or_a_name():
    assert [answer.budget_of(text) for text in ("64", "auto")] == [64, "auto"]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--image", "nope.png"], "nope.png"),
        (["--model", str(ROOT / "demo")], "can't be staged as a Hub folder: Error no file"),
    ],
)
@pytest.mark.usefixtures("stages_here")
def test_what_can_not_be_answered_is_told_in_one_line(options, says, processor, capsys, monkeypatch):
    if "--model" not in options:
        monkeypatch.setattr(answer, "model_folder", lambda *args: "")
        monkeypatch.setattr(answer, "pipeline", lambda *args, **kwargs: SimpleNamespace(processor=processor))
        monkeypatch.setattr(answer, "measure", lambda pipe, *asked: answer.prepare(pipe.processor, *asked[:3]))
        monkeypatch.setattr(answer, "report", lambda *answers: None)
    assert answer.main(options) == 1
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith("demo.answer: ")
    assert says in error


def test_a_folder_is_no_file_for_the_overlay(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(answer, "pipeline", lambda *args, **kwargs: pytest.fail("the model was loaded"))
    for out in (tmp_path, tmp_path / "overlay", tmp_path / "overlay.txt", tmp_path / "overlay.psd"):
        with pytest.raises(SystemExit):
            answer.main(["--out", str(out)])
        assert f"--out {out}: pass the picture's file, such as overlay.png" in capsys.readouterr().err


def test_a_picture_too_large_to_open_is_told_in_one_line(picture, processor, capsys, monkeypatch):
    monkeypatch.setattr(answer, "model_folder", lambda *args: "")
    monkeypatch.setattr(answer, "pipeline", lambda *args, **kwargs: SimpleNamespace(processor=processor))
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1000)
    assert answer.main(["--image", str(picture)]) == 1
    assert capsys.readouterr().err.splitlines()[-1].startswith("demo.answer: Image size (12288 pixels) exceeds limit")


def test_half_of_a_character_is_no_question():
    with pytest.raises(ValueError, match=r"half of a character \(a lone surrogate\); type it again"):
        Asking(Image.new("RGB", (32, 32)), "what? \ud800")
    Asking(Image.new("RGB", (32, 32)), "what? \U0001f600")


def test_figure_has_a_panel_for_the_page_every_map_and_the_kept_cells():
    panels = figures.panels_of(Image.new("RGB", (128, 96), "white"), "what?", 12, DEFAULT_CHECKPOINT)
    titles = [title for title, _ in panels]
    assert len(titles) == 1 + 13 + 3 + 1 + 1
    assert titles[0] == "page"
    assert titles[-1] == "12 of 48 cells kept"
    assert figures.sheet(panels).size == (6 * 228, 4 * (165 + 30))


def test_what_has_no_figure_is_told_in_one_line(picture, tmp_path, capsys):
    text = tmp_path / "note.png"
    text.write_text("no picture")
    for given in (["--image", str(text)], ["--image", str(picture), "--out", str(tmp_path / "figure.none")]):
        assert figures.main(["--out", str(tmp_path / "figure.png"), *given]) == 1
        assert capsys.readouterr().err.splitlines()[-1].startswith("demo.figures: ")
    assert sorted(tmp_path.iterdir()) == [picture, text]


def test_a_picture_whose_tags_pil_can_not_write_is_shown(monkeypatch):
    """The overlay turns it."""
    monkeypatch.setattr(answer.ImageOps, "exif_transpose", lambda image: struct.unpack("<I", b""))
    image = Image.new("RGB", (20, 10))
    assert answer.upright(image) is image


@pytest.mark.parametrize(
    "given", [["--budget", "0"], ["--budget", "0.5"], ["--budget", "big"], ["--max-new-tokens", "0"]]
)
def test_what_the_demo_cannot_mean_is_told_at_once(given, capsys):
    with pytest.raises(SystemExit):
        answer.main(given)
    assert f"{given[1]}" in capsys.readouterr().err.splitlines()[-1]


def test_the_demo_tells_of_a_missing_model_or_picture(tmp_path, capsys):
    (tmp_path / "note.png").write_text("no picture")
    for given, told in (
        (["--model", "/no/such"], "/no/such is neither a folder here nor a Hub id"),
        (["--image", str(tmp_path / "note.png"), "--model", "/no/such"], "note.png"),
    ):
        assert answer.main(given) == 1
        assert told in capsys.readouterr().err


def test_names_of_budgets_are_those_of_the_processor():
    assert sorted(answer.BUDGET_NAMES) == sorted([*MODES, "auto", "full"])
