"""Training from end to end: files, resuming, stopping on bad losses and full disks, and the allocator on its own."""

import copy
import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
import yaml
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from transformers import TrainingArguments
from transformers.trainer_utils import get_last_checkpoint

from arrcoc import ARRCOCProcessor, ARRCOCQwen3VLForConditionalGeneration
from arrcoc.checkpoint import RESTORER, STAGE_1
from publishing import staging
from training import allocator as files
from training import allocator_data, allocator_trainer, average, train_allocator
from training.adapt import adapt, merged
from training.allocator import load_allocator, read_tensors, save_allocator, write_tensors
from training.allocator_batches import PictureSource, repeated_pages
from training.allocator_learner import AllocatorLearner
from training.allocator_options import SCHEDULES
from training.data import DataError
from training.data.examples import Example
from training.fingerprint import base_fingerprint
from upload import ROOT


@pytest.fixture(scope="module")
def base(tmp_path_factory, tiny_model, make_processor):
    """Folder of a tiny random base with our processor."""
    folder = tmp_path_factory.mktemp("base")
    model = tiny_model(awake=False)
    model.save_pretrained(folder)
    make_processor(model).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def pages(tmp_path_factory, page):
    """Folder of three pages with boxes."""
    folder = tmp_path_factory.mktemp("pages")
    rows = []
    for number in range(3):
        page(96, 64, number).save(folder / f"{number}.png")
        row = {"file_name": f"{number}.png", "question": f"number {number}?", "answers": ["42"]}
        rows.append(json.dumps(row | {"evidence": [[16, 16, 60, 30]]}))
    (folder / "metadata.jsonl").write_text("\n".join(rows))
    return folder


@pytest.fixture(scope="module")
def train(base, pages):
    """`train(out, *options)`: a short training; returns the path of what it wrote."""

    def run(out, *options, steps=4):
        common = ["--model", base, "--data", pages, "--out", out, "--steps", steps, "--batch-size", 2, "--quiet"]
        every = ["--log-every", 1, "--save-every", 2, "--warmup", 1]
        return train_allocator.main([str(option) for option in (*common, *every, *options)])

    return run


def metrics(out):
    return [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]


def test_a_run_writes_its_files_and_the_allocator_alone_loads_onto_its_base(train, base, tmp_path, capsys):
    path = train(tmp_path, "--export")
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["steps"] == 4
    lines = metrics(tmp_path)
    assert [line["step"] for line in lines if "evidence" in line] == [1, 2, 3, 4]
    assert {"loss", "evidence", "mass"} <= lines[0].keys()
    assert max(line["learning_rate"] for line in lines if "evidence" in line) <= 2.5e-3  # not that of the gates
    assert {p.name for p in tmp_path.glob("checkpoint-*")} == {"checkpoint-2", "checkpoint-4"}
    assert not any(p.name.startswith("model") for p in (tmp_path / "checkpoint-4").iterdir())
    model = ARRCOCQwen3VLForConditionalGeneration.from_pretrained(base)
    base_before = {name: p.clone() for name, p in model.named_parameters() if ".arrcoc." not in name}
    untrained = {name: p.clone() for name, p in model.model.arrcoc.named_parameters()}
    assert load_allocator(model, path)["scorer"] == "arrcoc"
    exported = dict(ARRCOCQwen3VLForConditionalGeneration.from_pretrained(tmp_path / "model").named_parameters())
    for name, parameter in model.named_parameters():
        assert torch.equal(parameter, exported[name]), name
    assert all(torch.equal(exported[name], tensor) for name, tensor in base_before.items())
    changed = [name for name, p in model.model.arrcoc.named_parameters() if not torch.equal(p, untrained[name])]
    # they have signals of their own, and are rounded here
    untaught = {name for name in untrained if name.startswith(("restorer.", "coarse_mark.", "scope."))}
    assert set(changed) - untaught == set(untrained) - untaught
    assert not model.model.arrcoc.restorer.leave[0].weight.any()


def test_whitened_steps_move_what_reads_the_question_elsewhere_and_are_resumed(train, tmp_path):
    asked = ("--signals", "evidence,mass")
    plain, whitened, half = (tmp_path / name for name in ("plain", "whitened", "half"))
    files = [train(plain, *asked, steps=3), train(whitened, *asked, "--whiten", steps=3)]  # the second opens the gate
    first, second = map(load_file, files)
    moved = {name for name, tensor in first.items() if not torch.equal(tensor, second[name])}
    reads = ("query_projection", "matcher.words", "matcher.phrases.enter")
    assert moved == {f"participation.{name}.weight" for name in reads}
    whole = load_file(train(half, *asked, "--whiten"))
    (half / "allocator.safetensors").unlink()
    shutil.rmtree(half / "checkpoint-4")
    again = load_file(train_allocator.main(["--out", str(half), "--resume"]))
    assert all(torch.equal(whole[name], tensor) for name, tensor in again.items())


def test_signals_of_stage_one_alone_write_a_whole_allocator_whose_stage_two_is_as_it_was(train, base, tmp_path):
    first = train(tmp_path / "first")
    second = train(tmp_path / "second", "--allocator", first, "--signals", "early_evidence,early_features")
    before, after = load_file(first), load_file(second)
    assert before.keys() == after.keys()
    changed = {name.split(".")[0] for name in before if not torch.equal(before[name], after[name])}
    assert changed == {"reader", "early_participation"}
    load_allocator(ARRCOCQwen3VLForConditionalGeneration.from_pretrained(base), second)


def test_restored_alone_writes_a_whole_allocator_of_which_the_restorer_has_learned(train, base, tmp_path):
    first = train(tmp_path / "first")
    ahead = ["--ahead", 3, "--parts", 1, "--data", "world:form,table?grids=8x8"]
    second = train(tmp_path / "second", "--allocator", first, "--signals", "restored", *ahead)
    before, after = load_file(first), load_file(second)
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert changed == {name for name in before if name.startswith("restorer.")}
    lines = [line for line in metrics(tmp_path / "second") if "restored" in line]
    assert [line["step"] for line in lines] == [1, 2, 3, 4]
    old = {name: tensor for name, tensor in after.items() if not name.startswith("restorer.")}
    write_tensors(tmp_path / "old.safetensors", old, read_tensors(second)[1])
    model = ARRCOCQwen3VLForConditionalGeneration.from_pretrained(base)
    load_allocator(model, second)
    assert model.model.arrcoc.restorer.leave[0].weight.any()
    load_allocator(model, tmp_path / "old.safetensors")
    assert not model.model.arrcoc.restorer.leave[0].weight.any()


def test_coarse_alone_writes_a_whole_allocator_of_which_the_mark_has_learned(train, base, tmp_path):
    first = train(tmp_path / "first")
    asked = ["--signals", "coarse", "--data", "world?grids=8x8", "--shares", 0.5, 0.6]
    second = train(tmp_path / "second", "--allocator", first, *asked)
    before, after = load_file(first), load_file(second)
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert changed == {"coarse_mark.gain", "coarse_mark.offset"}
    assert [line["step"] for line in metrics(tmp_path / "second") if "coarse" in line] == [1, 2, 3, 4]
    old = {name: tensor for name, tensor in after.items() if not name.startswith("coarse_mark.")}
    write_tensors(tmp_path / "old.safetensors", old, read_tensors(second)[1])
    model = ARRCOCQwen3VLForConditionalGeneration.from_pretrained(base)
    load_allocator(model, second)
    assert model.model.arrcoc.coarse_mark.gain.any()
    load_allocator(model, tmp_path / "old.safetensors")
    assert not model.model.arrcoc.coarse_mark.gain.any()


def test_scope_alone_writes_a_whole_allocator_of_which_the_scope_has_learned(train, base, tmp_path):
    first = train(tmp_path / "first")
    second = train(
        tmp_path / "second", "--allocator", first, "--signals", "scope", "--data", "world:gist,form?grids=8x8"
    )
    before, after = load_file(first), load_file(second)
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert changed == {name for name in before if name.startswith("scope.")}
    assert [line["step"] for line in metrics(tmp_path / "second") if "scope" in line] == [1, 2, 3, 4]
    old = {name: tensor for name, tensor in after.items() if not name.startswith("scope.")}
    write_tensors(tmp_path / "old.safetensors", old, read_tensors(second)[1])
    model = ARRCOCQwen3VLForConditionalGeneration.from_pretrained(base)
    load_allocator(model, second)
    assert model.model.arrcoc.scope.score.weight.any()
    load_allocator(model, tmp_path / "old.safetensors")
    assert not model.model.arrcoc.scope.score.weight.any()
    # a file of older code has none to take the mean of
    for number, both in enumerate((["old", "second/allocator"], ["second/allocator", "old"])):
        paths = [tmp_path / f"{name}.safetensors" for name in both]
        mean = load_file(average.average(paths, tmp_path / f"mean_{number}.safetensors"))
        assert all(torch.equal(mean[name], after[name]) for name in after)


def test_a_file_without_stage_one_brings_a_neutral_one_and_half_of_one_is_refused(train, base, tmp_path):
    model = ARRCOCQwen3VLForConditionalGeneration.from_pretrained(base)
    load_allocator(model, train(tmp_path))
    assert model.model.arrcoc.early_participation.gate.any()
    tensors, metadata = read_tensors(tmp_path / "allocator.safetensors")
    rest = {name: tensor for name, tensor in tensors.items() if not name.startswith(STAGE_1)}
    write_tensors(tmp_path / "rest.safetensors", rest, metadata)
    load_allocator(model, tmp_path / "rest.safetensors")
    assert not model.model.arrcoc.early_participation.gate.any()
    assert torch.equal(model.model.arrcoc.participation.gate, tensors["participation.gate"])
    half = {name: tensor for name, tensor in tensors.items() if not name.startswith("reader.")}
    write_tensors(tmp_path / "half.safetensors", half, metadata)
    with pytest.raises(ValueError, match=r"it lacks \['reader"):
        load_allocator(model, tmp_path / "half.safetensors")


def test_a_mark_and_the_neutral_one_of_an_older_file_have_a_mean(base, tmp_path):
    model = ARRCOCQwen3VLForConditionalGeneration.from_pretrained(base)
    with torch.no_grad():
        model.model.arrcoc.coarse_mark.gain.fill_(0.5)
    save_allocator(model, tmp_path / "new.safetensors")
    tensors, metadata = read_tensors(tmp_path / "new.safetensors")
    old = {name: tensor for name, tensor in tensors.items() if not name.startswith("coarse_mark.")}
    write_tensors(tmp_path / "old.safetensors", old, metadata)
    for both in (("new", "old"), ("old", "new")):
        paths = [tmp_path / f"{name}.safetensors" for name in both]
        mean = load_file(average.average(paths, tmp_path / f"mean_{both[0]}.safetensors"))
        assert mean.keys() == tensors.keys()
        assert (mean["coarse_mark.gain"] == 0.25).all()


def test_the_mean_of_allocators_and_the_stage_1_of_another(train, base, tmp_path):
    parts = [train(tmp_path / str(seed), "--seed", seed, steps=2) for seed in range(3)]
    mean = load_file(average.main([*map(str, parts[:2]), "--early", str(parts[2]), "--out", str(tmp_path / "mean")]))
    one, other, third = map(load_file, parts)
    stage_1 = {name for name in mean if name.startswith((*STAGE_1, *RESTORER))}
    assert 0 < len(stage_1) < len(mean)
    for name, tensor in mean.items():
        assert torch.allclose(tensor, third[name] if name in stage_1 else (one[name] + other[name]) / 2), name
    load_allocator(ARRCOCQwen3VLForConditionalGeneration.from_pretrained(base), tmp_path / "mean")
    trained = tmp_path / "0" / "checkpoint-2" / "trained.safetensors"
    with pytest.raises(ValueError, match="is no allocator; pass allocator"):
        average.average([trained, trained], tmp_path / "none")
    blind = train(tmp_path / "blind", "--set", "diversity=0.1", steps=2)
    with pytest.raises(SystemExit):
        average.main([str(parts[0]), str(blind), "--out", str(tmp_path / "none")])
    assert not (tmp_path / "none").exists()


def test_encoding_ahead_takes_each_picture_once_and_steps_of_so_many_questions(train, pages, tmp_path, monkeypatch):
    asked = tmp_path / "asked"
    shutil.copytree(pages, asked)
    rows = [json.loads(line) for line in (asked / "metadata.jsonl").read_text().splitlines()]
    rows += [row | {"question": f"again, {row['question']}", "evidence": []} for row in rows]
    (asked / "metadata.jsonl").write_text("\n".join(map(json.dumps, rows)))
    seen = {}

    def spied(name, where=train_allocator):
        plain = getattr(where, name)
        monkeypatch.setattr(where, name, lambda *args, **more: seen.setdefault(name, plain(*args, **more)))

    spied("encode_ahead", allocator_data)
    spied("training_arguments")
    options = ["--ahead", 50, "--questions", 2, "--batch-size", 4, "--signals", "evidence,distill_unmarked"]
    train(tmp_path / "out", "--data", asked, *options)
    assert [len(page.evidence) for page in seen["encode_ahead"]] == [2, 2, 2]
    for page in seen["encode_ahead"]:
        assert (page.attention.any(-1) != page.evidence.any(-1)).all()
    assert seen["training_arguments"].per_device_train_batch_size == 2


@pytest.mark.parametrize(
    "options", [["--signals", "evidence,lm_gumbel"], ["--scorer", "vision_selector"], ["--ahead", 2]]
)
def test_a_killed_run_resumes_to_the_same_result_bit_for_bit(options, train, tmp_path, monkeypatch):
    whole = load_file(train(tmp_path / "whole", *options, "--keep", 4, steps=6))

    class KilledError(Exception):
        pass

    def kill(self, *args, **kwargs):
        if self.state.global_step == 3:
            raise KilledError
        return compute(self, *args, **kwargs)

    compute = train_allocator.AllocatorTrainer.compute_loss
    with monkeypatch.context() as patched:
        patched.setattr(train_allocator.AllocatorTrainer, "compute_loss", kill)
        with pytest.raises(KilledError):
            train(tmp_path / "cut", *options, "--keep", 4, steps=6)
    assert get_last_checkpoint(str(tmp_path / "cut")).endswith("checkpoint-2")
    assert [line["step"] for line in metrics(tmp_path / "cut")] == [1, 2, 3]
    with pytest.raises(SystemExit, match="pass --resume"):
        train(tmp_path / "cut", *options, steps=6)
    with (tmp_path / "cut" / "metrics.jsonl").open("a") as file:
        file.write('{"step": 3, "lo')  # a full disk cut this line short
    # the options that the run began with are in its folder
    cut = load_file(train_allocator.main(["--out", str(tmp_path / "cut"), "--resume"]))
    for name, tensor in whole.items():
        assert torch.equal(tensor, cut[name]), name
    logged = [[line for line in metrics(tmp_path / out) if "loss" in line] for out in ("whole", "cut")]
    assert logged[0] == logged[1]


def test_the_log_of_a_resumed_run_is_that_of_the_whole(train, tmp_path):
    """A checkpoint between two lines begins a new mean."""
    options = ("--signals", "evidence", "--log-every", 4, "--save-every", 3, "--keep", 9)
    train(tmp_path / "whole", *options, steps=8)
    shutil.copytree(tmp_path / "whole", tmp_path / "cut", ignore=shutil.ignore_patterns("checkpoint-[4-9]"))
    train_allocator.main(["--out", str(tmp_path / "cut"), "--resume"])
    logged = [[line for line in metrics(tmp_path / out) if "loss" in line] for out in ("whole", "cut")]
    assert [line["step"] for line in logged[0]] == [3, 4, 6, 8]
    assert logged[0] == logged[1]
    last = [metrics(tmp_path / out)[-1] for out in ("whole", "cut")]  # which says how long it took
    assert last[0].keys() == last[1].keys()
    assert not any("loss" in name for name in last[0])


def test_a_learned_baseline_goes_on_from_its_file_and_from_no_other(train, tmp_path):
    still = ["--learning-rate", 1e-12, "--weight-decay", 0, "--seed", 8]
    baseline = train(tmp_path / "new", "--scorer", "vision_selector", steps=1)
    further = train(tmp_path / "on", "--scorer", "vision_selector", "--allocator", baseline, *still, steps=1)
    other = load_file(train(tmp_path / "other", "--scorer", "vision_selector", *still, steps=1))
    before, after = load_file(baseline), load_file(further)
    assert all(torch.allclose(tensor, after[name], atol=1e-6) for name, tensor in before.items())
    assert any(not torch.allclose(tensor, other[name], atol=1e-6) for name, tensor in before.items())
    with pytest.raises(SystemExit, match="vision_selector"):
        train(tmp_path / "wrong", "--scorer", "glimpse_prune", "--allocator", baseline, steps=1)


def test_there_is_nothing_to_resume_in_an_empty_folder(train, tmp_path):
    with pytest.raises(SystemExit, match="nothing to resume"):
        train(tmp_path, "--resume")


def test_a_finished_run_is_not_trained_further(train, tmp_path, monkeypatch, capsys):
    path = train(tmp_path, "--signals", "evidence", steps=2)
    result, logged = load_file(path), metrics(tmp_path)
    path.unlink()
    with monkeypatch.context() as patched:
        patched.setattr(train_allocator.AllocatorTrainer, "train", lambda *args: pytest.fail("it was trained"))
        train_allocator.main(["--out", str(tmp_path), "--resume", "--export"])
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["steps"] == 2
    assert all(torch.equal(tensor, result[name]) for name, tensor in load_file(path).items())
    assert (tmp_path / "model").is_dir()
    assert metrics(tmp_path) == logged
    train_allocator.main(["--out", str(tmp_path), "--resume", "--steps", "3"])  # more steps are another matter
    assert metrics(tmp_path)[-1]["step"] == 3
    assert "note:" not in capsys.readouterr().err
    train_allocator.main(["--out", str(tmp_path), "--resume", "--steps", "1"])
    assert f"note: {tmp_path} has done 3 steps; --steps 1 trains no further" in capsys.readouterr().err


def test_a_run_is_not_resumed_as_another(train, base, new_model, tmp_path, capsys, monkeypatch):
    folder, out = shutil.copytree(base, tmp_path / "base"), tmp_path / "out"
    train(out, "--model", folder, "--signals", "evidence", steps=2)
    for options, told in (
        (["--seed", "1", "--data", "world", "X"], r"--data was ['{pages}'] and is now ['world', 'X']; --seed was 0 and is now 1"),
        (["--scorer", "vision_selector"], "--scorer was arrcoc and is now vision_selector"),
        (["--signals", "mass"], "--signals was evidence and is now mass"),
    ):  # fmt: skip
        with pytest.raises(SystemExit):
            train_allocator.main(["--out", str(out), "--resume", *options])
        began = json.loads((out / "options.json").read_text())
        assert told.replace("{pages}", began["data"][0]) in capsys.readouterr().err
    resume = ["--out", str(out), "--resume", "--steps", "4"]
    with monkeypatch.context() as two:
        two.setenv("WORLD_SIZE", "2")
        with pytest.raises(SystemExit, match="of a run of 1 processes, and this one has 2, which would draw pages"):
            train_allocator.main(resume)
    new_model(ARRCOCQwen3VLForConditionalGeneration.from_pretrained(base).config, seed=1).save_pretrained(folder)
    with pytest.raises(SystemExit, match="is of base"):
        train_allocator.main(resume)
    for damaged in ("{", "[]", "{}", '{"data": [], "signals": "mass"}'):
        (out / "options.json").write_text(damaged)
        with pytest.raises(SystemExit):
            train_allocator.main(resume)
        assert "options.json can't be read" in capsys.readouterr().err
    (out / "options.json").unlink()
    with pytest.raises(SystemExit):
        train_allocator.main(resume)
    assert "options.json can't be read" in capsys.readouterr().err
    for changed, told in (  # what is trained is checked, whatever the options say
        ({"signals": "early_features"}, "does not hold what is trained here"),
        ({"scorer": "query_blind"}, "is of scorer arrcoc, and this run has scorer query_blind"),
    ):
        (out / "options.json").write_text(json.dumps(began | changed | {"model": str(base)}))
        with pytest.raises(SystemExit, match=told):
            train_allocator.main(resume)


def test_a_run_is_not_resumed_on_other_data(train, pages, tmp_path):
    data, out = shutil.copytree(pages, tmp_path / "data"), tmp_path / "out"
    train(out, "--data", "world?grids=8x8", data, "--signals", "evidence", steps=2)
    rows = (data / "metadata.jsonl").read_text()
    resume = ["--out", str(out), "--resume", "--steps", "3", "--quiet"]
    for changed in (rows.splitlines()[0], rows.replace("number 1?", "what?"), rows.replace("16, 16", "15, 16")):
        (data / "metadata.jsonl").write_text(changed)
        with pytest.raises(SystemExit, match=rf"--data {data} is not what the run in {out} began with"):
            train_allocator.main(resume)
    assert metrics(out)[-1]["step"] == 2
    train_allocator.main(["--out", str(out), "--resume"])  # it is finished: no step would see the data
    (data / "metadata.jsonl").write_text(rows)
    train_allocator.main(resume)
    assert metrics(out)[-1]["step"] == 3
    began = json.loads((out / "options.json").read_text())
    assert began["data_fingerprints"][0] is None


def test_a_run_is_not_resumed_from_another_allocator(train, base, tmp_path):
    model = ARRCOCQwen3VLForConditionalGeneration.from_pretrained(base)
    began, out = tmp_path / "began.safetensors", tmp_path / "out"
    save_allocator(model, began)
    # trains stage 1 alone, beside the file's stage 2
    train(out, "--allocator", began, "--signals", "early_evidence", steps=2)
    held = began.read_bytes()
    torch.nn.init.ones_(model.model.arrcoc.participation.score.bias)
    save_allocator(model, began)
    resume = ["--out", str(out), "--resume", "--steps", "3", "--quiet"]
    with pytest.raises(SystemExit, match=f"{began} has another arrcoc than the run in {out} began with"):
        train_allocator.main(resume)
    began.write_bytes(held)
    written = train_allocator.main(resume)
    assert metrics(out)[-1]["step"] == 3
    # a run that is over writes what it trained and what the file held, so that this must be what it was, too
    held, done = began.read_bytes(), load_file(written)
    save_allocator(model, began)
    with pytest.raises(SystemExit, match="has another arrcoc than the run"):
        train_allocator.main(resume)
    assert all(torch.equal(tensor, done[name]) for name, tensor in load_file(written).items())
    began.write_bytes(held)
    assert all(torch.equal(tensor, done[name]) for name, tensor in load_file(train_allocator.main(resume)).items())


@pytest.mark.parametrize("scorer", ["arrcoc", "query_blind"])
def test_each_of_several_processes_encodes_its_own_pages(scorer, train, tmp_path, monkeypatch):
    """The second of two, with the other one left out: what it encodes, and that it goes over all of that."""
    asked, trainers, encode, trainer = [], [], allocator_data.encode_ahead, train_allocator.AllocatorTrainer

    def encoded(model, collator, source, pages, *arguments, **options):
        asked.append((pages, options["blind"]))
        return encode(model, collator, source, pages, *arguments, **options)

    class Kept(trainer):
        def __init__(self, *arguments):
            super().__init__(*arguments)
            trainers.append(self)

    monkeypatch.setattr(allocator_data, "encode_ahead", encoded)
    monkeypatch.setattr(train_allocator, "AllocatorTrainer", Kept)
    monkeypatch.setattr(TrainingArguments, "process_index", property(lambda arguments: 1))
    monkeypatch.setattr(TrainingArguments, "world_size", property(lambda arguments: 2))
    monkeypatch.setattr(Kept, "train", lambda *arguments, **options: SimpleNamespace(metrics={"train_runtime": 0.0}))
    train(tmp_path / "out", "--ahead", "4", "--scorer", scorer, "--signals", "evidence")
    ((pages, blind),) = asked
    assert blind == (scorer == "query_blind")
    assert pages == range(1, 3), "of three"
    assert trainers[0].get_train_dataloader().dataset.own_source


def test_the_fingerprint_of_data_is_of_their_pages_texts_and_boxes_in_order():
    first, second = (Example(f"{name}.png", "what?", ("42",), name=name) for name in "ab")

    def found(*examples):
        return allocator_data.fingerprints(PictureSource(examples))[0]

    others = {
        "picture": "c.png", "question": "who?", "answers": ("42", "43"), "evidence": ((0, 0, 1, 1),), "name": "c",
        "context": ((0, 0, 1, 1),),
    }  # fmt: skip
    seen = {found(first, replace(second, **{name: value})) for name, value in others.items()}
    seen |= {found(first), found(first, second), found(second, first)}
    assert len(seen) == len(others) + 3
    assert found(first, second) == found(replace(first), replace(second))
    drawn, other = (Example(lambda: None, "what?", ("42",), name=name) for name in "ab")  # no hash of an address
    assert found(drawn, other) == found(*(replace(each, picture=lambda: 0) for each in (drawn, other)))


@pytest.mark.parametrize("lost", ["optimizer.pt", "scheduler.pt", "rng_state.pth"])
def test_a_checkpoint_without_all_that_a_resumed_run_needs_is_refused(lost, train, tmp_path):
    train(tmp_path, "--signals", "evidence", steps=2)
    (tmp_path / "checkpoint-2" / lost).unlink()
    with pytest.raises(SystemExit, match=f"checkpoint-2 has no {lost}, without which"):
        train(tmp_path, "--signals", "evidence", "--resume", steps=4)
    train(tmp_path, "--signals", "evidence", "--resume", steps=2)  # the result needs none of it


def test_old_checkpoints_are_deleted_and_folders_of_other_names_are_not(train, tmp_path):
    (tmp_path / "checkpoint-backup").mkdir()
    (tmp_path / "checkpoint-1.txt").touch()
    train(tmp_path, "--signals", "evidence", "--save-every", 1, "--keep", 2, steps=3)
    names = {path.name for path in tmp_path.glob("checkpoint-*")}
    assert names == {"checkpoint-backup", "checkpoint-1.txt", "checkpoint-2", "checkpoint-3"}


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_every_schedule_that_is_offered_trains(schedule, train, tmp_path):
    train(tmp_path, "--signals", "evidence", "--schedule", schedule, steps=3)
    assert metrics(tmp_path)[-1]["step"] == 3


@pytest.mark.parametrize("where", ["loss", "gradient"])
def test_nan_stops_with_the_last_good_checkpoint_intact(where, train, tmp_path, monkeypatch):
    forward = train_allocator.AllocatorLearner.forward

    def spoilt(self, **batch):
        losses = forward(self, **batch)
        if self.progress >= 0.5:
            spoil = next(self.scorer.parameters()).sum() * 0
            losses["loss"] = losses["loss"] + (spoil * float("nan") if where == "loss" else spoil.sqrt())
        return losses

    monkeypatch.setattr(train_allocator.AllocatorLearner, "forward", spoilt)
    with pytest.raises(SystemExit, match=rf"(?s){where}.*step 3.*checkpoint-2"):
        train(tmp_path, "--signals", "evidence")
    saved = load_file(tmp_path / "checkpoint-2" / "trained.safetensors")
    assert all(torch.isfinite(tensor).all() for tensor in saved.values())
    assert not (tmp_path / "allocator.safetensors").exists()


@pytest.mark.parametrize("broken", ["weights", "optimizer"])
def test_a_full_disk_stops_with_the_last_good_checkpoint_intact(broken, train, tmp_path, monkeypatch):
    calls = []

    def full(save):
        def write(*args, **kwargs):
            calls.append(1)
            if len(calls) >= 2:
                raise OSError(28, "No space left on device")
            return save(*args, **kwargs)

        return write

    if broken == "weights":
        monkeypatch.setattr(files, "save_file", full(files.save_file))
    else:
        trainer = train_allocator.AllocatorTrainer
        monkeypatch.setattr(trainer, "_save_optimizer_and_scheduler", full(trainer._save_optimizer_and_scheduler))
    with pytest.raises(SystemExit, match=r"(?s)step 4 could not be written.*No space left.*checkpoint-2"):
        train(tmp_path, "--signals", "evidence")
    assert [p.name for p in tmp_path.glob("checkpoint-*")] == ["checkpoint-2"]
    assert not (tmp_path / "unfinished").exists()
    with pytest.raises(SystemExit, match="is none yet; free some space and begin again"):
        train(tmp_path / "first", "--signals", "evidence")
    monkeypatch.undo()
    train(tmp_path, "--signals", "evidence", "--resume")


def test_a_disk_that_is_full_at_the_end_loses_nothing(train, tmp_path, monkeypatch):
    plain = train_allocator.finish

    def full(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(train_allocator, "finish", full)
    with pytest.raises(
        SystemExit, match=r"No space left.*the same command with --resume, which only writes the result"
    ):
        train(tmp_path, "--signals", "evidence")
    monkeypatch.setattr(train_allocator, "finish", plain)
    train(tmp_path, "--signals", "evidence", "--resume")
    assert (tmp_path / "allocator.safetensors").exists()


def rates_of(learner) -> dict[str, tuple[float, float]]:
    """Learning rate and weight decay of each parameter that is trained, by name."""
    settings = SimpleNamespace(learning_rate=1e-3, weight_decay=0.1)
    trainer = SimpleNamespace(optimizer=None, model=learner, whitened=None, args=settings, gate_factor=7.0)
    groups = train_allocator.AllocatorTrainer.create_optimizer(trainer).param_groups
    found = {id(parameter): (group["lr"], group["weight_decay"]) for group in groups for parameter in group["params"]}
    named = {name: found[id(parameter)] for name, parameter in learner.named_parameters() if parameter.requires_grad}
    assert len(found) == len(named)
    return named


def test_the_mark_of_coarse_views_does_not_decay(base):
    """It would go back to nothing."""
    learner = AllocatorLearner(ARRCOCQwen3VLForConditionalGeneration.from_pretrained(base), {"coarse": 1.0})
    mark = "model.model.arrcoc.coarse_mark."
    assert rates_of(learner) == {f"{mark}{name}": (1e-3, 0.0) for name in ("gain", "offset")}


def test_gates_learn_faster_and_only_weights_decay(base):
    model = ARRCOCQwen3VLForConditionalGeneration.from_pretrained(base)
    learner = AllocatorLearner(model, {"evidence": 1.0})
    adapt(learner, "top", 1)
    for name, rates in rates_of(learner).items():
        last = name.rsplit(".", 1)[-1]
        decays = last == "weight" and "norm." not in name
        assert rates[0] == pytest.approx(7e-3 if last == "gate" else 1e-3), name
        assert last not in ("gate", "bias", "weight") or rates[1] == (0.1 if decays else 0.0), name


def test_phase_2_trains_lora_and_exports_it_merged(train, base, tmp_path):
    pytest.importorskip("peft")
    train(tmp_path, "--phase", 2, "--layers", 1, "--signals", "evidence,distill_answer", "--export")
    saved = load_file(tmp_path / "checkpoint-4" / "trained.safetensors")
    assert any("lora_A" in name for name in saved)
    assert all("lora" in name or ".arrcoc." in name for name in saved)
    assert not any(".restorer." in name for name in saved), "what was frozen before stays so"
    before = dict(ARRCOCQwen3VLForConditionalGeneration.from_pretrained(base).named_parameters())
    after = dict(ARRCOCQwen3VLForConditionalGeneration.from_pretrained(tmp_path / "model").named_parameters())
    differ = {name for name in after if not torch.equal(after[name], before[name]) and ".arrcoc." not in name}
    assert differ
    assert all(".language_model.layers.3." in name for name in differ)


def test_an_export_keeps_the_dtype_of_its_base_and_pads_at_the_left(train, base, tmp_path):
    half = ARRCOCQwen3VLForConditionalGeneration.from_pretrained(base, dtype=torch.bfloat16)
    half.save_pretrained(tmp_path / "base")
    ARRCOCProcessor.from_pretrained(base, padding_side="right").save_pretrained(tmp_path / "base")
    train(tmp_path / "out", "--model", tmp_path / "base", "--export", steps=1)
    tensors = load_file(tmp_path / "out" / "model" / "model.safetensors")
    dtypes = {own: {t.dtype for name, t in tensors.items() if (".arrcoc." in name) == own} for own in (False, True)}
    assert dtypes == {False: {torch.bfloat16}, True: {torch.float32}}
    exported = ARRCOCQwen3VLForConditionalGeneration.from_pretrained(tmp_path / "out" / "model")
    assert exported.dtype == torch.bfloat16
    for name, parameter in half.named_parameters():
        assert ".arrcoc." in name or torch.equal(parameter, tensors.get(name, parameter)), name
    assert ARRCOCProcessor.from_pretrained(tmp_path / "out" / "model").tokenizer.padding_side == "left"


def test_phase_2_trains_the_top_layers(train, tmp_path, capsys):
    train(tmp_path, "--phase", 2, "--adapt", "top", "--layers", 1, "--signals", "lm,distill_attention", steps=2)
    assert all(".layers.3." in name for name in load_file(tmp_path / "language_model.safetensors"))
    told = capsys.readouterr().err
    assert "which only a whole model can use" in told
    train_allocator.main(told.partition("training.train_allocator ")[2].split()[:4])  # what it says to run
    assert (tmp_path / "model" / "model.safetensors").is_file()


@torch.no_grad()
def test_the_teacher_of_top_layers_is_the_base(tiny_config, new_model):
    model = new_model(tiny_config()).to(torch.bfloat16)
    learner = AllocatorLearner(model, {"distill_answer": 1.0})
    before, ids = dict(learner.named_parameters()), torch.arange(4)[None]
    expected = model(ids).logits
    adapt(learner, "top", 1)
    assert dict(learner.named_parameters()).keys() == before.keys()  # the base's own layers are not among them
    top = model.model.language_model.layers[-1]
    assert {p.dtype for p in top.parameters() if p.requires_grad} == {torch.float32}
    for parameter in top.parameters():
        parameter.add_(1)
    with learner._base_alone():
        assert torch.equal(model(ids).logits, expected)
    assert model.model.language_model.layers[-1] is top
    merged(learner)
    assert {p.dtype for p in top.parameters()} == {torch.bfloat16}
    assert not torch.equal(model(ids).logits, expected)


def test_top_layers_of_a_bfloat16_base_need_autocast(capsys):
    with pytest.raises(SystemExit):
        train_allocator.parse(["--phase", "2", "--adapt", "top", "--base-dtype", "bfloat16", "--signals", "lm"])
    assert "pass --bf16 too" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("--phase 2 --signals lm --scorer vision_selector", "--phase 2 adapts the language model"),
        ("--phase 2 --signals lm --scorer query_blind", "--phase 2 adapts the language model"),
        ("--adapt top", "--adapt top is for --phase 2"),
        ("--layers 99", "--layers 99 is for --phase 2"),
        ("--rank 3", "--rank 3 is for --phase 2"),
    ],
)
def test_options_of_phase_2_are_refused_where_they_mean_nothing(given, told, capsys):
    with pytest.raises(SystemExit):
        train_allocator.parse(given.split())
    assert told in capsys.readouterr().err


# of the second each character is six tokens, as the tokenizer takes it apart
@pytest.mark.parametrize(("word", "share"), [("word ", 1), ("\u0958", 0.2)])
def test_questions_that_the_base_can_not_read_are_bad(word, share, train, base, pages, tmp_path, capsys):
    most = json.loads((base / "config.json").read_text())["text_config"]["max_position_embeddings"]
    data = shutil.copytree(pages, tmp_path / "long")
    rows = [json.loads(line) for line in (data / "metadata.jsonl").read_text().splitlines()]
    rows[1]["question"] = word * int(share * most)
    (data / "metadata.jsonl").write_text("\n".join(map(json.dumps, rows)))
    asked = ("--data", data, "--signals", "evidence")
    with pytest.raises(
        SystemExit, match=f"metadata.jsonl:2: question and answer have .* than the {most} that the model reads"
    ):
        train(tmp_path / "out", *asked, steps=1)
    train(tmp_path / "out", *asked, "--skip-bad", steps=1)
    assert "(left out, 1 in all; 2 used)" in capsys.readouterr().err


def test_phase_2_needs_a_signal_that_reaches_the_language_model(capsys):
    for signals in ([], ["--signals", "evidence,distill_attention"]):
        with pytest.raises(SystemExit):
            train_allocator.parse(["--phase", "2", *signals])
        assert "does not reach; add one of its answers, such as lm=1" in capsys.readouterr().err
    assert train_allocator.parse(["--phase", "2", "--signals", "evidence,lm"]).phase == 2


@pytest.mark.parametrize(
    "spec", ["world?grids=6x8", "world:one_field,table?grids=8x8,4x8", "world:one_field?grids=12x12,2x2"]
)
def test_grids_that_a_kind_is_too_large_for_are_refused_before_training(spec):
    with pytest.raises(ValueError, match="too small to write on"):
        # before the other data are read, which may take long
        allocator_data.make_source(["no/such/folder", spec], seed=0, limit=None, skip_bad=False)


def test_a_run_that_found_nothing_to_learn_from_says_so(train, pages, tmp_path, capsys):
    shutil.copytree(pages, tmp_path / "unmarked")
    metadata = next((tmp_path / "unmarked").glob("metadata.*"))
    rows = [json.loads(line) for line in metadata.read_text().splitlines()]
    metadata.write_text("".join(json.dumps(row | {"evidence": []}) + "\n" for row in rows))
    options = ("--signals", "evidence", "--data", tmp_path / "unmarked")
    train(tmp_path / "out", *options, steps=2)
    assert "--signals evidence found nothing to learn from" in capsys.readouterr().err
    train(tmp_path / "out", *options, "--resume", steps=3)
    assert "nothing to learn from" not in capsys.readouterr().err  # what the steps before found is not known
    train(tmp_path / "marked", "--signals", "evidence", steps=2)
    assert "nothing to learn from" not in capsys.readouterr().err
    train(tmp_path / "half", "--signals", "evidence,context,named", steps=2)  # no boxes of context
    assert "--signals context, named found nothing to learn from" in capsys.readouterr().err
    train(tmp_path / "default", steps=2)
    told = capsys.readouterr().err
    assert "nothing to learn from" not in told
    assert "evidence boxes" not in told
    train(tmp_path / "default_unmarked", *options[2:], steps=2)
    told = capsys.readouterr().err
    assert "unmarked has evidence boxes; the run learned from the rest" in told
    assert "nothing to learn from" not in told


def test_a_resumed_run_writes_as_often_as_it_is_asked_to(train, tmp_path):
    train(tmp_path, steps=2)
    train(tmp_path, "--resume", "--save-every", 1, "--log-every", 2, steps=4)
    assert {p.name for p in tmp_path.glob("checkpoint-*")} == {"checkpoint-3", "checkpoint-4"}


def test_what_can_not_be_written_is_told_before_pages_are_encoded(train, tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    def too_late(*_):
        raise AssertionError("pages were encoded before")

    monkeypatch.setattr(train_allocator, "save_options", full)
    monkeypatch.setattr(train_allocator, "encoded", too_late)
    with pytest.raises(SystemExit, match=r"error: .*No space left on device"):
        train(tmp_path, "--ahead", 2)


def test_a_disk_that_is_full_for_the_whole_model_is_told(train, tmp_path, monkeypatch):
    def full(*_, **__):
        raise SafetensorError("I/O error: No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(train_allocator.ARRCOCQwen3VLForConditionalGeneration, "save_pretrained", full)
        with pytest.raises(SystemExit, match="No space left on device; then run the same command with --resume"):
            train(tmp_path, "--export", steps=2)
    train(tmp_path, "--export", "--resume", steps=2)
    assert (tmp_path / "model" / "config.json").exists()


def test_as_many_steps_of_warmup_as_are_asked_for(tmp_path, capsys):
    asked = ["--out", str(tmp_path), "--steps", "30"]
    for warmup, steps in ((None, 15), ("25", 25), ("0", 0)):
        options = train_allocator.parse([*asked, *(["--warmup", warmup] if warmup else [])])
        assert train_allocator.training_arguments(options).warmup_steps == steps
    with pytest.raises(SystemExit):
        train_allocator.parse([*asked, "--warmup", "31"])
    assert "--warmup 31 is more than --steps 30; pass at most as many" in capsys.readouterr().err


def test_a_folder_that_is_a_file_is_refused(train, pages):
    file = next(pages.glob("*.png"))
    with pytest.raises(SystemExit, match=f"--out {file} is a file; pass a folder"):
        train(file)


def test_a_run_that_is_stopped_by_hand_says_how_to_go_on(train, tmp_path, capsys, monkeypatch):
    plain = train_allocator.AllocatorTrainer.log

    def log(self, logs, *rest):
        if self.state.global_step == 3:
            raise KeyboardInterrupt
        plain(self, logs, *rest)

    monkeypatch.setattr(train_allocator.AllocatorTrainer, "log", log)
    with pytest.raises(SystemExit) as stopped:
        train(tmp_path / "out", "--signals", "evidence")
    assert stopped.value.code == 130
    assert f"stopped; --resume goes on from {tmp_path / 'out' / 'checkpoint-2'}" in capsys.readouterr().err


def test_what_another_process_found_counts_too(train, pages, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(allocator_trainer, "gather_object", lambda own: [*own, {"elsewhere": [3.0, 5.0, 7.0]}])
    monkeypatch.setattr(train_allocator, "gather_object", lambda own: [[], *own])
    train(tmp_path / "out", "--signals", "evidence", "--log-every", "1", steps=1)
    line = json.loads((tmp_path / "out" / "metrics.jsonl").read_text().splitlines()[0])
    assert line["elsewhere"] == 5
    assert line["evidence"] > 0
    assert "nothing to learn from" not in capsys.readouterr().err
    monkeypatch.setattr(train_allocator, "gather_object", lambda own: [[] for _ in own])
    train(tmp_path / "untaught", "--signals", "evidence", steps=1)
    assert "nothing to learn from" in capsys.readouterr().err


def test_a_damaged_checkpoint_is_refused_by_its_name(train, tmp_path):
    train(tmp_path, steps=2)
    for name in ("optimizer.pt", "scheduler.pt", "rng_state.pth", "trainer_state.json"):
        path = tmp_path / "checkpoint-2" / name
        whole = path.read_bytes()
        path.write_bytes(b"")
        with pytest.raises(SystemExit, match=rf"checkpoint-2/{name} is damaged.*delete this checkpoint"):
            train(tmp_path, "--resume")
        path.write_bytes(whole)
    for damage in (lambda path: path.write_bytes(b"cut"), lambda path: path.unlink()):
        damage(tmp_path / "checkpoint-2" / "trained.safetensors")
        with pytest.raises(SystemExit, match=r"checkpoint-2/trained.safetensors .* delete this checkpoint"):
            train(tmp_path, "--resume")


def test_the_allocator_file_is_refused_where_it_does_not_belong(tiny_config, new_model, tmp_path):
    path = tmp_path / "a.safetensors"
    model = new_model(tiny_config(coarse_share=0.5, diversity=0.125))
    save_allocator(model, path)
    twin = new_model(tiny_config(), awake=False)
    base = {name: tensor for name, tensor in model.state_dict().items() if ".arrcoc." not in name}
    twin.load_state_dict(base, strict=False)
    load_allocator(twin, path)  # other dials: they come with the file
    assert (twin.config.coarse_share, twin.model.arrcoc.balancer.diversity) == (0.5, 0.125)
    for name, tensor in model.model.arrcoc.state_dict().items():
        written = tensor.bfloat16().float() if tensor.ndim > 1 else tensor
        assert torch.equal(written, twin.model.arrcoc.state_dict()[name])
    load_allocator(copy.deepcopy(twin).to(torch.bfloat16), path)  # a copy of the base in another dtype
    with torch.no_grad():
        twin.model.language_model.norm.weight += 1
    load_allocator(twin, path)  # a base whose language model was tuned
    assert base_fingerprint(twin, "glimpse_prune") != base_fingerprint(model, "glimpse_prune")  # which reads its states
    other = new_model(tiny_config(), seed=1)
    before = {name: tensor.clone() for name, tensor in other.state_dict().items()}
    with pytest.raises(ValueError, match="was trained on base"):
        load_allocator(other, path)
    tensors, metadata = files.read_tensors(path)
    first = next(iter(tensors))
    cases = {
        "wanted": (tensors | {first: torch.zeros(7)}, metadata),
        "NaN": (tensors | {first: torch.full_like(tensors[first], float("nan"))}, metadata),
        "lacks": ({name: tensor for name, tensor in tensors.items() if name != first}, metadata),
        "newer|version": (tensors, metadata | {"version": "99"}),
        "something else": (tensors, {}),
    }
    for message, (held, meta) in cases.items():
        save_file(held, path, metadata=meta or None)
        with pytest.raises(ValueError, match=message):
            load_allocator(twin, path)
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(ValueError, match="no whole safetensors file"):
        load_allocator(twin, path)
    with pytest.raises(ValueError, match="does not exist"):
        load_allocator(twin, tmp_path / "none.safetensors")
    assert all(torch.equal(tensor, other.state_dict()[name]) for name, tensor in before.items())


def test_a_file_may_be_read_by_whom_its_neighbours_may(tiny_model, tmp_path):
    save_allocator(tiny_model(), tmp_path / "a.safetensors")
    (tmp_path / "b").touch()
    assert (tmp_path / "a.safetensors").stat().st_mode == (tmp_path / "b").stat().st_mode


def test_a_file_that_can_not_be_written_leaves_the_old_one(tiny_model, tmp_path, monkeypatch):
    path = tmp_path / "a.safetensors"
    save_allocator(tiny_model(), path)
    old = path.read_bytes()

    def full(tensors, file, metadata):
        file.write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files, "save_file", full)
    with pytest.raises(OSError, match="No space left"):
        save_allocator(tiny_model(), path)
    assert path.read_bytes() == old
    assert [p.name for p in tmp_path.iterdir()] == ["a.safetensors"]


@pytest.mark.parametrize(
    ("bad", "told"),
    [("--signals evidense", "is unknown"), ("--scorer magic", "invalid choice"),
     ("--scorer vision_selector --export", "measured as a baseline"), ("--scorer query_blind --export", "measured as a baseline"),
     ("--reset --allocator a", "pass one of them"),
     ("--scorer vision_selector --signals named=1,early_evidence=1", "--signals named, early_evidence: vision_selector has"),
     ("--scorer glimpse_prune --signals evidence,tension", "--signals tension: glimpse_prune has"),
     ("--ahead 5 --signals evidence,lm_gumbel", "can't go with lm_gumbel"), ("--ahead 5 --scorer glimpse_prune", "can't go with"),
     ("--parts 2", "--parts 2 goes with --ahead PAGES"), ("--signals restored --ahead 5", "--signals restored goes alone"),
     ("--signals restored,evidence --ahead 5 --parts 1", "--signals restored goes alone"),
     ("--signals coarse,evidence", "--signals coarse goes alone"), ("--signals coarse --ahead 5", "can't go with coarse"),
     ("--signals scope,evidence", "--signals scope goes alone"), ("--signals scope --ahead 5", "can't go with scope"),
     ("--signals coarse --scorer query_blind", "with --scorer arrcoc"), ("--signals coarse --phase 2", "and --phase 1"),
     ("--ahead 5 --parts -1", "--parts -1: pass a whole number from 0 on")],
)  # fmt: skip
def test_the_command_line_refuses_what_it_does_not_know(bad, told, capsys):
    with pytest.raises(SystemExit):
        train_allocator.parse(bad.split())
    assert told in capsys.readouterr().err


def test_signals_without_a_name_are_refused_and_not_the_default(capsys):
    with pytest.raises(SystemExit):
        train_allocator.parse(["--signals", ""])
    assert "signal '' is unknown; choose from evidence" in capsys.readouterr().err


@pytest.mark.parametrize("dials", ["{", "[1]", '{"diversity": "much"}', '{"coverage_floor": 7}', None])
def test_a_file_with_dials_that_no_config_takes_is_named(dials, base, tmp_path):
    model = ARRCOCQwen3VLForConditionalGeneration.from_pretrained(base)
    save_allocator(model, tmp_path / "a.safetensors")
    tensors, metadata = read_tensors(tmp_path / "a.safetensors")
    metadata = {name: value for name, value in metadata.items() if name != "dials"}
    write_tensors(tmp_path / "a.safetensors", tensors, metadata | ({"dials": dials} if dials else {}))
    before = model.config.to_dict()
    with pytest.raises(ValueError, match=r"a\.safetensors has dials .* save the allocator anew"):
        load_allocator(model, tmp_path / "a.safetensors")
    assert model.config.to_dict() == before


def test_a_file_that_lacks_a_dial_has_its_default_and_not_that_of_the_model(base, tmp_path):
    model = ARRCOCQwen3VLForConditionalGeneration.from_pretrained(base, dilation_strength=0.7, coverage_floor=0.2)
    save_allocator(model, tmp_path / "a.safetensors")
    tensors, metadata = read_tensors(tmp_path / "a.safetensors")
    dials = {name: value for name, value in json.loads(metadata["dials"]).items() if name != "dilation_strength"}
    write_tensors(tmp_path / "a.safetensors", tensors, metadata | {"dials": json.dumps(dials)})
    load_allocator(model, tmp_path / "a.safetensors")
    assert (model.config.dilation_strength, model.config.coverage_floor) == (0.0, 0.2)


def test_dials_of_the_command_line_win_and_a_shape_needs_a_new_allocator(base, tmp_path):
    def learner_of(*options):
        return train_allocator.make_learner(train_allocator.parse(["--model", str(base), *map(str, options)]))

    first = learner_of("--set", "diversity=0.2", "coverage_floor=0.3")
    save_allocator(first.model, tmp_path / "first.safetensors")
    layer = learner_of("--allocator", tmp_path / "first.safetensors", "--set", "diversity=0.4").model.model.arrcoc
    assert (layer.balancer.diversity, layer.allocator.coverage_floor) == (0.4, 0.3)
    new = learner_of("--reset", "--set", "scorer_hidden_size=24", "scorer_heads=3", "coarse_share=0.2").model
    assert new.config.scorer_heads == 3
    save_allocator(new, tmp_path / "new.safetensors")
    load_allocator(ARRCOCQwen3VLForConditionalGeneration.from_pretrained(base), tmp_path / "new.safetensors")
    with pytest.raises(ValueError, match="does not divide"):
        learner_of("--reset", "--set", "scorer_heads=3")
    with pytest.raises(ValueError, match="built with scorer_heads=3, which can't become 2"):
        load_allocator(first.model, tmp_path / "new.safetensors", {"scorer_heads": 2})
    save_allocator(first.model, tmp_path / "blind.safetensors", "query_blind")
    with pytest.raises(ValueError, match="trained without the question"):
        learner_of("--allocator", tmp_path / "blind.safetensors")
    learner_of("--allocator", tmp_path / "blind.safetensors", "--scorer", "query_blind")
    learner_of("--scorer", "query_blind")  # the folder's was never trained
    torch.nn.init.ones_(first.model.model.arrcoc.participation.gate)
    first.model.save_pretrained(tmp_path / "trained")
    learner_of("--model", tmp_path / "trained", "--scorer", "query_blind", "--reset")
    with pytest.raises(ValueError, match="which was trained with the question; pass --reset"):
        learner_of("--model", tmp_path / "trained", "--scorer", "query_blind")


@pytest.mark.parametrize(
    "bad",
    ["--steps 0", "--batch-size 0", "--limit 0", "--learning-rate nan", "--shares 0.9 0.1", "--set nope=1", "--set diversity",
     "--set scorer_heads=2",
     "--seed -1", "--seed 4294967296", "--schedule zig", "--schedule cosine_with_min_lr", "--schedule greedy", "--gate-factor nan",
     "--whiten --scorer query_blind", "--whiten --scorer vision_selector", "--whiten --signals coarse"],
)  # fmt: skip
def test_numbers_and_dials_are_checked_before_anything_is_loaded(bad, capsys):
    with pytest.raises(SystemExit):
        train_allocator.parse(bad.split())
    assert bad.split()[0] in capsys.readouterr().err


@pytest.mark.parametrize(
    ("bad", "message"),
    [("--data world:nope", "has no kind"), ("--model /nowhere", "--model /nowhere can't be read"),
     ("--allocator none.safetensors", "does not exist"), ("--set diversity=x", "diversity")],
)  # fmt: skip
def test_bad_data_and_files_end_in_one_message(train, tmp_path, bad, message):
    with pytest.raises(SystemExit, match=message):
        train(tmp_path, *bad.split())


def test_a_folder_whose_shapes_are_not_its_configs_ends_in_one_message(train, base, tmp_path):
    folder = shutil.copytree(base, tmp_path / "other")
    config = json.loads((folder / "config.json").read_text())
    config["text_config"]["intermediate_size"] += 32
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(SystemExit, match=r"error: .*mismatched"):
        train(tmp_path / "run", "--model", str(folder))
    with pytest.raises(ValueError, match="other has weights of other shapes than its config"):
        staging.Source(str(folder)).load(torch.float32)


def test_an_offloaded_allocator_takes_no_file(train, base, tmp_path):
    path = train(tmp_path / "run")
    model = ARRCOCQwen3VLForConditionalGeneration.from_pretrained(base)
    model.model.arrcoc.to("meta")  # as accelerate leaves what it offloads
    with pytest.raises(ValueError, match="allocator is offloaded and can't take"):
        load_allocator(model, path)


def test_a_sharded_run_goes_on_to_the_same_result(base, pages, tmp_path):
    """No gradient reaches what only labels teach: the pages have none."""
    settings = yaml.safe_load((ROOT / "training" / "accelerate" / "fsdp2.yaml").read_text())["fsdp_config"]
    sharded = {name.upper(): str(value) for name, value in settings.items()}
    sharded["FSDP_TRANSFORMER_CLS_TO_WRAP"] = sharded.pop("FSDP_TRANSFORMER_LAYER_CLS_TO_WRAP")
    env = (
        os.environ
        | sharded
        | {"ACCELERATE_USE_FSDP": "true", "ACCELERATE_USE_CPU": "true", "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    )
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command += [ROOT / "tests" / "sharded.py", tmp_path, "--model", base, "--data", pages, "--log-every", "1"]
    done = subprocess.run(list(map(str, command)), cwd=ROOT, env=env, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    assert [line["step"] for line in metrics(tmp_path / "cut") if "evidence" in line] == [1, 2, 3, 4]


def test_a_sharded_model_is_refused_before_training(monkeypatch, capsys):
    monkeypatch.setenv("ACCELERATE_USE_FSDP", "true")
    with pytest.raises(SystemExit):
        train_allocator.parse(["--export"])
    assert "--export can't gather a sharded model" in capsys.readouterr().err


def test_the_world_is_a_source_and_mixes_with_others(pages):
    source = allocator_data.make_source(["world:one_field?grids=8x8", str(pages)], seed=0, limit=None, skip_bad=False)
    drawn, read = source.example(0), source.example(1)
    assert drawn.image.size == (128, 128)
    assert read.question.startswith("number")
    seen = {source.example(index).question for index in range(1, 7, 2)}
    assert len(seen) == 3  # each pass shows every page once


def test_folders_are_read_before_what_takes_minutes(pages, tmp_path, monkeypatch):
    read, load = [], allocator_data.load_examples

    def told(spec, *rest, **limits):
        read.append(spec)
        return load(str(pages) if spec == "documents:slow" else spec, *rest, **limits)

    monkeypatch.setattr(allocator_data, "load_examples", told)
    source = allocator_data.make_source(["documents:slow", "world", str(pages)], seed=0, limit=None, skip_bad=False)
    assert read == ["world", str(pages), "documents:slow"]
    kinds = [type(each).__name__ for each in source.sources]
    assert kinds == ["PictureSource", "WorldSource", "PictureSource"]
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="empty"):
        allocator_data.make_source(["documents:no such", str(tmp_path / "empty")], seed=0, limit=None, skip_bad=False)


def test_pages_that_come_again_ahead_are_told(pages, capsys):
    options = train_allocator.parse(["--data", "world?grids=8x8", str(pages), "--ahead", "9"])
    source = allocator_data.make_source(options.data, seed=0, limit=None, skip_bad=False)
    assert repeated_pages(source, 7) == []
    assert repeated_pages(source, 9) == [(1, 4, 3)]
    assert allocator_data._pages_ahead(source, options) == 9
    told = f"--ahead 9: 4 pages are of --data {pages}, which has 3; they come again, up to 2 times each\n"
    assert capsys.readouterr().err == told
    assert allocator_data._pages_ahead(source.sources[1], options) == 3
    assert "has 3 pages with up to --questions 4 each, which are encoded once" in capsys.readouterr().err
