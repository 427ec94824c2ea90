"""The tools around training: what they refuse is refused in one message, and nothing that they did not write is lost."""

import copy
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import load_file, save_file

from arrcoc import ARRCOCQwen3VLForConditionalGeneration
from arrcoc.knowing import InformationScorer
from training import average, base_options, evaluate_base, parallel, train_allocator, train_base
from training.allocator import load_allocator, read_tensors, save_allocator, write_tensors
from training.allocator_trainer import AllocatorTrainer
from training.base_model import HEADS
from training.export import main as export
from training.world.__main__ import main as world

ROOT = Path(__file__).parents[1]


@pytest.fixture
def said(capsys):
    """`said(main, *arguments)`: the message with which a command line refuses its arguments."""

    def run(main, *arguments) -> str:
        with pytest.raises(SystemExit) as stopped:
            main([str(argument) for argument in arguments])
        assert stopped.value.code == 2
        return capsys.readouterr().err.splitlines()[-1]

    return run


@pytest.fixture
def base(tiny_folder, tmp_path):
    """A copy of a tiny model's folder with auxiliary heads."""
    folder = shutil.copytree(tiny_folder, tmp_path / "base")
    save_file({"heads": torch.ones(2)}, folder / HEADS)
    return folder


# The base ---------------------------------------------------------------------------------------------------------------


def test_a_base_that_was_trained_is_not_overwritten(said, tmp_path):
    (tmp_path / "state.pt").write_bytes(b"trained")
    assert "holds the state of an earlier run; pass --resume, or another --out" in said(
        train_base.main, "--smoke", "--out", tmp_path
    )
    assert [path.name for path in tmp_path.iterdir()] == ["state.pt"]
    assert train_base.parse(["--out", str(tmp_path), "--resume"]).resume


def test_one_tools_run_is_not_mixed_with_the_others(tmp_path, capsys):
    for name, main in (("options.json", train_base.main), ("state.pt", train_allocator.main)):
        out = tmp_path / name[:5]
        out.mkdir()
        (out / name).write_text("{}")
        (out / "metrics.jsonl").write_text('{"step": 1}\n')
        with pytest.raises(SystemExit) as stopped:
            main(["--out", str(out)])
        assert "holds a run of training.train_" in capsys.readouterr().err + str(stopped.value)
        assert (out / "metrics.jsonl").read_text() == '{"step": 1}\n'


def test_the_training_of_a_base_says_what_it_can_not_begin_with(said, tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    assert "is a file; pass a folder" in said(train_base.main, "--out", tmp_path / "file")
    new = ["--out", tmp_path / "new"]
    for name in (
        "processes",
        "steps",
        "save-every",
        "evaluate-every",
        "evaluate-pages",
        "batch-size",
        "warmup",
        "cooldown",
    ):
        assert f"--{name} 0: pass a whole number from 1 on" in said(train_base.main, *new, f"--{name}", 0)
    for rate in ("nan", "inf", "0"):
        assert "pass a finite number above 0" in said(train_base.main, *new, "--learning-rate", rate)
    assert "would show some pages twice; pass at most 8" in said(train_base.main, *new, "--processes", 9)
    assert "less than a page each" in said(train_base.main, *new, "--batch-size", 1, "--processes", 2)
    assert "is no multiple of --processes 2" in said(train_base.main, *new, "--batch-size", 65, "--processes", 2)
    assert "pass at most 1009 for each" in said(train_base.main, *new, "--batch-size", 4096, "--processes", 2)
    assert base_options.parse([*map(str, new), "--smoke", "--processes", "8"]).batch_size == 8
    assert "pass one of them" in said(train_base.main, *new, "--begin", tmp_path, "--resume")
    for name, content in (("empty", b""), ("other", b"no torch file")):
        (tmp_path / name).mkdir()
        for file in ("state.pt", "model.safetensors"):
            (tmp_path / name / file).write_bytes(content)
    (tmp_path / "foreign").mkdir()
    torch.save({"model": {}}, tmp_path / "foreign" / "state.pt")
    for out, options, told in (
        ("new", ["--resume"], "error: .* does not exist, nothing to resume"),
        ("empty", ["--resume"], "error: .*state.pt can't be read .*cut off or no state of a run"),
        ("other", ["--resume"], "error: .*state.pt can't be read .*cut off or no state of a run"),
        ("foreign", ["--resume"], "error: .*state.pt can't be read .*cut off or no state of a run"),
        ("new", ["--begin", str(tmp_path)], "error: .* has no model.safetensors"),
        ("new", ["--begin", str(tmp_path / "empty")], "error: .*model.safetensors can't be read .*cut off or damaged"),
    ):
        monkeypatch.setattr(sys, "argv", ["train_base", "--smoke", "--out", str(tmp_path / out), *options])
        with pytest.raises(SystemExit, match=told):
            train_base.command_line()


def test_a_gradient_that_is_not_finite_stops_the_run_and_leaves_its_state(tmp_path, monkeypatch):
    smoke = ["--smoke", "--float32", "--out", str(tmp_path), "--save-every", "1", "--evaluate-every", "99", "--steps"]
    train_base.main([*smoke, "1"])
    before = (tmp_path / "state.pt").read_bytes()
    honest = train_base.letter_loss
    monkeypatch.setattr(train_base, "letter_loss", lambda *arguments: honest(*arguments) * float("nan"))
    with pytest.raises(FloatingPointError, match=r"step 2: the gradient is nan; .*state.pt is as it was last saved"):
        train_base.main([*smoke, "2", "--resume"])
    assert (tmp_path / "state.pt").read_bytes() == before


def test_evaluating_a_base_says_what_it_can_not_read(said, base):
    main = evaluate_base.main
    assert "has no config.json; pass a model's folder" in said(main, "--model", "nofolder")
    assert "--pages 0: pass a whole number from 1 on" in said(main, "--model", base, "--pages", 0)
    for name, content in (
        ("model.safetensors", b"cut"),
        ("config.json", b'{"model_type": "qwen3_vl", "text_config": 3}'),
    ):
        whole = (base / name).read_bytes()
        (base / name).write_bytes(content)
        assert said(main, "--model", base)
        (base / name).write_bytes(whole)
    assert "File exists" in said(main, "--model", base, "--records", base / "config.json" / "answers.jsonl")
    assert "holds something already" in said(main, "--model", base, "--records", base / "model.safetensors")
    (base / "processor_config.json").unlink()
    assert "has no processor_config.json" in said(main, "--model", base)


# The drawn world --------------------------------------------------------------------------------------------------------


def test_pages_are_written_into_a_new_folder_alone(said, tmp_path):
    (tmp_path / "file").touch()
    assert "is not empty; name a new folder" in said(world, "--out", tmp_path, "--pages", 1)
    assert "is a file; name a new folder" in said(world, "--out", tmp_path / "file", "--pages", 1)
    for pages in (0, -3):
        assert f"--pages {pages}: pass a whole number" in said(world, "--out", tmp_path / "new", "--pages", pages)
    assert not (tmp_path / "new").exists()


# The files of allocators ------------------------------------------------------------------------------------------------


def test_a_folder_is_not_taken_for_a_file(said, tmp_path):
    one = tmp_path / "one"
    write_tensors(one, {"weight": torch.ones(2)}, {"kind": "arrcoc allocator"})
    told = said(average.main, one, "--out", tmp_path)
    assert f"{tmp_path} is a folder; pass a file to write, such as {tmp_path}/allocator.safetensors" in told
    assert "free some space" not in told
    with pytest.raises(ValueError, match=r"is a folder; pass the file in it, such as .*/allocator\.safetensors"):
        read_tensors(tmp_path)


# Several processes ------------------------------------------------------------------------------------------------------


def test_a_gradient_that_one_process_has_is_averaged_with_zero_and_one_that_none_has_stays_away(monkeypatch):
    ours, others, nobodys = (torch.nn.Parameter(torch.zeros(2)) for _ in range(3))
    ours.grad = torch.tensor([2.0, 4.0])
    sent = [torch.tensor([0, 1, 0], dtype=torch.uint8), torch.tensor([0.0, 0.0, 6.0, 8.0])]  # by the other process

    def all_reduce(tensor, op=parallel.distributed.ReduceOp.SUM):
        other = sent.pop(0)
        assert tensor.shape == other.shape
        tensor.copy_(tensor + other if op == parallel.distributed.ReduceOp.SUM else torch.maximum(tensor, other))

    monkeypatch.setattr(parallel.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(parallel.distributed, "get_world_size", lambda: 2)
    monkeypatch.setattr(parallel.distributed, "all_reduce", all_reduce)
    parallel.average_gradients([ours, others, nobodys])
    assert (ours.grad.tolist(), others.grad.tolist(), nobodys.grad) == ([1.0, 2.0], [3.0, 4.0], None)


def test_a_score_of_several_processes_is_of_all_batches_alike(monkeypatch):
    """Three batches that score 1, 0 and 1, of which this process has the first and the last."""
    elsewhere = iter((0, 1))  # the sum and the number of the other's
    monkeypatch.setattr(parallel, "average", lambda number, device: (number + next(elsewhere)) / 2)
    monkeypatch.setattr(train_base, "make_batch", lambda stage, split, index, *others: index)
    monkeypatch.setattr(train_base, "exact_matches", lambda model, batch, dtype: torch.tensor([batch != 1]))
    stage = SimpleNamespace(letters_only=False, grids=[((8, 8), None)])
    trainer = SimpleNamespace(
        stages=[stage], stage=0, rank=0, processes=2, model=None, dtype=None, device=torch.device("cpu")
    )
    assert train_base.Trainer.evaluate(trainer, 48) == pytest.approx(2 / 3)


def test_processes_that_are_done_leave_the_next_run_alone(monkeypatch):
    for name in ("WORLD_SIZE", "RANK", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    started = []

    def start(command, env):
        started.append(env["RANK"])
        return SimpleNamespace(wait=lambda: 0)

    monkeypatch.setattr(parallel.subprocess, "Popen", start)
    monkeypatch.setattr(parallel.distributed, "destroy_process_group", lambda: None)
    for _ in range(2):
        parallel.finish(parallel.launch(3, []))
        assert parallel.start() == (0, 1)
    assert started == ["1", "2", "1", "2"]


# The export -------------------------------------------------------------------------------------------------------------


def test_an_export_replaces_a_model_also_its_own_base_and_keeps_the_heads(base, tmp_path):
    model = ARRCOCQwen3VLForConditionalGeneration.from_pretrained(base)
    name, parameter = next(iter(model.model.arrcoc.named_parameters()))
    torch.nn.init.constant_(parameter, 0.5)
    save_allocator(model, tmp_path / "allocator.safetensors")
    for _ in range(2):
        export(["--base", str(base), "--allocator", str(tmp_path / "allocator.safetensors"), "--out", str(base)])
        exported = ARRCOCQwen3VLForConditionalGeneration.from_pretrained(base).model.arrcoc.get_parameter(name)
        assert (exported == 0.5).all()
        assert load_file(base / HEADS)["heads"].tolist() == [1, 1]
        assert {path.suffix for path in base.iterdir()} == {".json", ".jinja", ".safetensors"}
    assert {path.name for path in tmp_path.iterdir()} == {"base", "allocator.safetensors"}


def test_a_checkpoint_goes_back_to_its_stock_base(said, checkpoint, tmp_path):
    out = tmp_path / "stock"
    export(["--base", str(checkpoint), "--stock", "--out", str(out)])
    held, ours = load_file(out / "model.safetensors"), load_file(checkpoint / "model.safetensors")
    assert held
    assert all(torch.equal(tensor, ours[name]) for name, tensor in held.items())
    assert not any("arrcoc" in name for name in held)
    assert json.loads((out / "config.json").read_text())["model_type"] == "qwen3_vl"
    assert "is not empty; pass a new folder" in said(export, "--base", checkpoint, "--stock", "--out", out)
    both = ["--base", checkpoint, "--stock", "--allocator", out / "model.safetensors", "--out", tmp_path / "other"]
    assert "pass one of them" in said(export, *both)


def test_an_export_that_can_not_be_put_in_place_leaves_the_old_one(said, base, monkeypatch):
    held, rename = sorted(base.iterdir()), Path.rename

    def fails(path, target):
        if path.name == "new":
            raise OSError("the disk is gone")
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", fails)
    assert "the disk is gone" in said(export, "--base", base, "--out", base)
    assert sorted(base.iterdir()) == held


def test_an_export_deletes_no_file_that_is_not_a_models(said, base, tmp_path):
    out = shutil.copytree(base, tmp_path / "out")
    (out / "thesis.odt").write_text("years")
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    assert "holds thesis.odt, which is no file of a model" in said(export, "--base", base, "--out", out)
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before


def test_an_export_says_what_it_can_not_read_or_write(said, base, tmp_path):
    (tmp_path / "file").touch()
    new = ["--out", tmp_path / "new"]
    assert "is a file; pass a folder" in said(export, "--base", base, "--out", tmp_path / "file")
    assert "has no config.json; pass a model's folder" in said(export, "--base", tmp_path / "none", *new)
    assert "does not exist" in said(export, "--base", base, "--allocator", tmp_path / "none", *new)
    assert "is no whole safetensors file" in said(export, "--base", base, "--allocator", tmp_path / "file", *new)
    (base / "config.json").write_text('{"model_type": "qwen3_vl", "text_config": 3}')
    assert said(export, "--base", base, *new)
    assert {path.name for path in tmp_path.iterdir()} == {"base", "file"}


# The Makefile -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def make(tmp_path):
    """`make(target, **variables)`: what a target's program is given, by a stub in its place."""
    if shutil.which("make") is None:
        pytest.skip("there is no make")
    python = tmp_path / "bin" / "python"
    python.parent.mkdir()
    python.write_text(f"#!/bin/sh\nprintf '%s\\0' \"$@\" > '{tmp_path}/given'\n")
    python.chmod(0o755)
    for made in (".installed", ".train"):
        (tmp_path / made).touch()

    def run(target: str, **variables: str) -> list[str]:
        settings = {"VENV": str(tmp_path), **variables}
        plain = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
        command = ["make", "--silent", target, *(f"{name}={value}" for name, value in settings.items())]
        subprocess.run(command, cwd=ROOT, env=plain, check=True)
        return (tmp_path / "given").read_text().split("\0")[:-1]

    return run


def test_make_hands_over_what_it_is_given_letter_by_letter(make):
    hard = """it's "$HOME" `id` $(id) & (#5), *?"""
    given = make("demo", QUESTION=hard, MODEL="my model")
    assert given[given.index("--question") + 1] == hard
    assert given[given.index("--model") + 1] == "my model"
    assert "--question" not in make("demo")
    given = make("allocator", DATA="wikitables:X?page=12x16&together=8 world", MODEL="a&b")
    start = given.index("--data")
    assert given[start + 1 : start + 4] == ["wikitables:X?page=12x16&together=8", "world", "--ahead"]
    assert given[given.index("--model") + 1] == "a&b"


class _Weighed(InformationScorer):
    """A scorer of one's own, with a tensor that is no parameter."""

    def __init__(self):
        super().__init__()
        self.register_buffer("channels", torch.tensor([0.6, 0.2, 0.2]))


def test_a_scorer_of_ones_own_is_saved_and_stays(tiny_model, tmp_path):
    model = copy.deepcopy(tiny_model())
    model.model.arrcoc.information = _Weighed()
    model.model.arrcoc.information.channels += 1
    trainer = SimpleNamespace(learner=SimpleNamespace(scorer=model.model.arrcoc))
    own = AllocatorTrainer.scorer_tensors(trainer)
    save_allocator(model, tmp_path / "own.safetensors", tensors=own)
    model.model.arrcoc.information = _Weighed()
    load_allocator(model, tmp_path / "own.safetensors")
    assert isinstance(model.model.arrcoc.information, _Weighed)
    assert torch.allclose(model.model.arrcoc.information.channels, torch.tensor([1.6, 1.2, 1.2]))
