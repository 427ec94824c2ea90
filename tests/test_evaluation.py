"""The measurements on a tiny random model: what counts, what is written, what a killed run does, what is refused."""

import argparse
import copy
import csv
import json
import math
import re
import shutil
import time
from collections import Counter
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace
from unittest import mock

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file
from transformers import (
    CLIPImageProcessor,
    CLIPVisionConfig,
    LlamaConfig,
    LlavaConfig,
    LlavaForConditionalGeneration,
    LlavaProcessor,
)

from evaluation import answering, baselines, loading, report, run, swap, timing
from evaluation.baselines import fastv, interface, resize, vision_selector
from evaluation.baselines.interface import BudgetTooSmall
from evaluation.budgets import heading, label, parse_budgets, tokens_for
from evaluation.facts import facts_of, measurable, readable
from evaluation.records import (
    Answer,
    Records,
    RecordsMismatch,
    code_fingerprint,
    data_fingerprint,
    model_fingerprint,
    processor_fingerprint,
)
from training import train_allocator
from training.allocator import load_allocator, save_allocator
from training.data import Example, load_examples

SIZES = ((64, 48), (64, 48), (80, 64))  # 12, 12 and 20 cells


@pytest.fixture(scope="module")
def model_folder(tiny_model, make_processor, tmp_path_factory):
    """A tiny random model and its processor, saved."""
    folder = tmp_path_factory.mktemp("model")
    tiny_model().save_pretrained(folder)
    processor = make_processor(tiny_model())
    # Pictures keep the sizes that they are drawn in.
    processor.image_processor.size = dict(processor.image_processor.size) | {"shortest_edge": 256}
    processor.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def data(page, tmp_path_factory):
    """An imagefolder: three pictures, two questions each, and one question without evidence."""
    folder = tmp_path_factory.mktemp("data")
    lines = []
    for number, (width, height) in enumerate(SIZES):
        page(width, height, seed=number).save(folder / f"{number}.png")
        for family, box in (("left", [2, 2, 14, 14]), ("right", [width - 16, 0, width, 32])):
            question = f"what is on the {family}?"
            row = {"question": question, "answers": ["42", "x"], "evidence": [box], "family": family}
            lines.append({"file_name": f"{number}.png", **row})
    lines.append({"file_name": "0.png", "question": "is it a page?", "answers": ["yes"], "family": "gist"})
    (folder / "metadata.jsonl").write_text("\n".join(json.dumps(line) for line in lines) + "\n")
    return folder


@pytest.fixture(scope="module")
def loaded(model_folder, tiny_model, data):
    """(model, processor, examples, facts)."""
    processor = loading.ARRCOCProcessor.from_pretrained(model_folder)
    examples = load_examples(str(data))
    model = tiny_model()
    return model, processor, examples, facts_of(model, processor, examples)


@pytest.fixture
def command(model_folder, data, tmp_path):
    """`command(*more)`: runs the command line with a few tokens on the tiny model."""

    def call(*more, out=tmp_path / "deep" / "result", main=run.main):
        common = ["--model", str(model_folder), "--data", str(data), "--resamples", "50", "--device", "cpu"]
        main([*common, "--out", str(out), *more])
        return out

    return call


SMALL = ("--budgets", "0.25,4,full", "--methods", "arrcoc,resize,oracle", "--max-new-tokens", "2", "--timing", "0")


def last_json(capsys) -> dict:
    return json.loads(capsys.readouterr().out.splitlines()[-1])


def test_budgets_are_shares_counts_and_full():
    budgets = parse_budgets("0.05, 64,full,0.5")
    assert budgets == (0.05, 64, "full", 0.5)
    assert [label(budget) for budget in budgets] == ["0.05", "64", "full", "0.5"]
    assert [heading(budget) for budget in budgets] == ["5%", "64 tokens", "full", "50%"]
    assert heading(1) == "1 token"
    assert [tokens_for(budget, 100) for budget in budgets] == [5, 64, 100, 50]
    assert tokens_for(0.01, 12) == 1
    assert tokens_for(64, 12) == 12


@pytest.mark.parametrize(
    "text", ["", "0", "1.5", "1.0", "-3", "-0.5", "half", "nan", "0.1,,0.2", "0.1,0.10", "0.1,0.1000001", "full,full"]
)
def test_bad_budgets_are_refused(text):
    with pytest.raises(ValueError, match=r"is no budget; pass a share|more than once"):
        parse_budgets(text)


def test_facts_count_cells_and_know_pictures(loaded):
    *_, facts = loaded
    assert [fact.cells for fact in facts] == [12, 12, 12, 12, 20, 20, 12]
    assert len({fact.picture for fact in facts}) == 3
    batches = answering.batches_of(facts, 3)
    assert sorted(number for batch in batches for number in batch) == list(range(7))
    assert all(len({facts[n].size for n in batch}) == 1 for batch in batches)


@pytest.fixture
def tables(tmp_path):
    """An unpacked WikiTableQuestions of ten tables with two questions each, the last table a copy of the first."""
    (tmp_path / "csv" / "1-csv").mkdir(parents=True)
    lines = ["id\tutterance\tcontext\ttargetValue"]
    for number in range(10):
        values = [f"{number % 9}{row}7" for row in range(4)]
        body = "".join(f'"{name}","{value}"\n' for name, value in zip("abcd", values, strict=True))
        (tmp_path / "csv" / "1-csv" / f"{number}.csv").write_text('"Name","Points"\n' + body)
        for row in (1, 3):
            question = f"how many points has {'abcd'[row]}?"
            lines.append(f"nt-{number}-{row}\t{question}\tcsv/1-csv/{number}.csv\t{values[row]}")
    (tmp_path / "training.tsv").write_text("\n".join(lines) + "\n")
    return tmp_path


def test_pictures_of_one_table_are_one_group_and_other_pictures_their_own(loaded, tables):
    model, processor, _, facts = loaded
    assert [fact.group for fact in facts] == [fact.picture for fact in facts]
    spec = f"wikitables:{tables}?page=12x12"
    drawn = [example for split in ("train", "held_out") for example in load_examples(spec, split)]
    facts = facts_of(model, processor, drawn)
    asked = [example for example in drawn if example.name.startswith("wikitables/nt-")]
    assert len(asked) == 20
    assert len(drawn) > 20  # look-ups too
    assert len({fact.group for fact in facts}) == 9
    assert len({fact.picture for fact in facts}) > 20
    group = {example.name.partition("#")[0]: fact.group for example, fact in zip(drawn, facts, strict=True)}
    assert group["wikitables/nt-0-1"] == group["wikitables/nt-0-3"] == group["wikitables/nt-9-1"]
    assert group["wikitables/nt-0-1"] == group["wikitables/csv/1-csv/0.csv"] != group["wikitables/nt-1-1"]


def test_intervals_draw_whole_groups(loaded, tmp_path):
    """Seven questions of one source tell as little as one: there is no interval, and table, CSV and curves say so."""
    *_, examples, facts = loaded
    answers = [Answer("arrcoc", "0.5", e.name, "42" if n % 2 else "no", 6.0, None) for n, e in enumerate(examples)]
    alone = report.summarise(examples, facts, {("arrcoc", "0.5"): answers}, resamples=50)[-1]
    shared = [replace(fact, group="one") for fact in facts]
    together = report.summarise(examples, shared, {("arrcoc", "0.5"): answers}, resamples=50)
    assert alone["sources"] == alone["pictures"] == together[-1]["pictures"] == 3
    assert together[-1]["sources"] == 1
    assert alone["exact_match_low"] < alone["exact_match_high"]
    assert (together[-1]["exact_match_low"], together[-1]["exact_match_high"]) == (None, None)
    shown = report.table(together, "all", [0.5])
    assert "(7 questions, 3 pictures of 1 sources)" in shown
    assert f"{alone['exact_match']:.1%} (no interval over one source)" in shown
    report.write_csv(together, tmp_path / "one.csv")
    assert "nan" not in (tmp_path / "one.csv").read_text()
    report.write_curves(together, tmp_path / "one.png")


def test_a_run_writes_everything(command, capsys):
    out = command(*SMALL[:-1], "1")
    with open(f"{out}.csv", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    written = last_json(capsys)
    assert len(rows) == len(written["rows"]) == (1 + 2 * 3) * 4  # full, methods x budgets; three families and all
    assert (out.parent / "result.png").read_bytes().startswith(b"\x89PNG")
    every = {(row["method"], row["budget"]): row for row in written["rows"] if row["family"] == "all"}
    full, ours, oracle = every["full", "full"], every["arrcoc", "0.25"], every["oracle", "4"]
    assert full["questions"] == 7
    assert full["pictures"] == full["sources"] == 3
    assert full["tokens"] == pytest.approx((5 * 12 + 2 * 20) / 7)
    assert full["evidence_recall"] == full["kept_whole"] == full["token_share"] == 1
    assert full["evidence_recall_questions"] == full["relaxed_accuracy_questions"] == 6
    assert full["prefill_ratio"] == 1
    assert ours["prefill_ratio"] > 0
    assert ours["prefill_ratio_questions"] == 1
    assert {row["prefill_ratio"] for row in written["rows"] if row["family"] != "all"} == {None}
    assert ours["tokens"] == pytest.approx((5 * 3 + 2 * 5) / 7)
    assert ours["exact_match_vs_arrcoc"] is None
    assert written["arguments"]["device"] == "cpu"
    assert ours["exact_match_vs_full"] == pytest.approx(ours["exact_match"] - full["exact_match"])
    assert full["exact_match_vs_full"] is None
    assert oracle["exact_match_vs_arrcoc"] == pytest.approx(oracle["exact_match"] - every["arrcoc", "4"]["exact_match"])
    assert oracle["evidence_recall"] > every["arrcoc", "4"]["evidence_recall"]
    assert every["resize", "0.25"]["evidence_recall"] is None


def test_a_family_of_any_name_is_one_cell_of_the_table():
    row = dict.fromkeys(("exact_match", "exact_match_low", "exact_match_high"), 0.5)
    row |= {"method": "arrcoc", "budget": "0.1", "family": "a|b\nc", "questions": 2, "pictures": 2, "sources": 2}
    heading, _, line = report.table([row], "a|b\nc", [0.1]).splitlines()
    assert heading.startswith("| exact match, a\\|b c (2 questions")
    assert line.startswith("| arrcoc | ")


def test_the_table_has_a_row_per_method_and_a_column_per_budget(command, capsys):
    command(*SMALL)
    lines = capsys.readouterr().out.splitlines()
    assert "| exact match, all (7 questions, 3 pictures) | 25% | 4 tokens | full |" in lines
    assert any(line.startswith("| oracle | ") and "whole" in line for line in lines)
    gist = [line for line in lines if line.startswith("| evidence recall, gist")]
    assert not gist  # no evidence, no table


def test_results_do_not_depend_on_batching(loaded, tmp_path):
    model, processor, examples, facts = loaded
    runs = [("arrcoc", 0.25), ("random", 4)]
    found = [
        run.evaluate(model, processor, examples, facts, runs, Records(tmp_path / f"{size}", {}), size, 3)
        for size in (1, 4)
    ]
    assert found[0].keys() == found[1].keys()
    for key, answers in found[0].items():
        for one, other in zip(answers, found[1][key], strict=True):
            assert (one.example, one.answer, one.tokens, one.recall) == (
                other.example, other.answer, other.tokens, other.recall
            )  # fmt: skip


def test_a_picture_is_opened_once_for_all_methods_and_budgets(command, tmp_path, monkeypatch):
    opened, plain = Counter(), Example.image.fget

    def image(example):
        opened[example.name] += not isinstance(example.picture, Image.Image)
        return plain(example)

    monkeypatch.setattr(Example, "image", property(image))
    command(*SMALL, "--methods", "random,resize,pooling,oracle", out=tmp_path / "out")
    assert max(opened.values()) <= 4  # the others to know its size, its grid, and whether each method can have it


def test_a_killed_run_goes_on_to_the_same_result(command, tmp_path, monkeypatch, capsys):
    whole = command(*SMALL, "--batch-size", "2", out=tmp_path / "whole")
    expected = last_json(capsys)
    plain, calls = run.answer, []

    def killed(*args):
        calls.append(args)
        if len(calls) == 6:
            raise KeyboardInterrupt
        return plain(*args)

    monkeypatch.setattr(run, "answer", killed)
    with pytest.raises(SystemExit, match="130"):
        command(*SMALL, "--batch-size", "2", out=tmp_path / "cut")
    assert f"stopped; the answers so far are in {tmp_path / 'cut.jsonl'}" in capsys.readouterr().err
    with open(tmp_path / "cut.jsonl", "a", encoding="utf-8") as file:
        file.write('{"method": "arrcoc", "bud')
    monkeypatch.setattr(run, "answer", plain)
    asked = []
    monkeypatch.setattr(run, "_answers", lambda *args, plain=run._answers: asked.append(args) or plain(*args))
    command(*SMALL, "--batch-size", "2", out=tmp_path / "cut")
    assert last_json(capsys) == expected
    assert len(asked) == 7 * 4 - 5  # 7 runs of 4 batches, of which 5 were answered before
    for ending in ("csv", "jsonl"):
        assert (tmp_path / f"cut.{ending}").read_text() == whole.with_name(f"whole.{ending}").read_text()


def test_stock_qwen3_vl_is_loaded_as_ours(command, stock_twin, tiny_model, model_folder, tmp_path, capsys):
    stock_twin(tiny_model()).save_pretrained(tmp_path / "stock")
    loading.ARRCOCProcessor.from_pretrained(model_folder).save_pretrained(tmp_path / "stock")
    command(
        "--model", str(tmp_path / "stock"), "--budgets", "4", "--methods", "arrcoc", "--timing", "0", "--limit", "2"
    )
    rows = last_json(capsys)["rows"]
    assert {(row["method"], row["tokens"]) for row in rows} == {("arrcoc", 4)}


def test_another_model_runs_what_it_can(command, processor, tmp_path, monkeypatch, capsys):
    """A tiny LLaVA: 24 x 24 px, 9 tokens a picture whatever its size."""
    tokenizer = processor.tokenizer
    vision = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
    text = {**vision, "vocab_size": -(-len(tokenizer) // 64) * 64, "num_key_value_heads": 2}
    config = LlavaConfig(
        vision_config=CLIPVisionConfig(**vision, image_size=24, patch_size=8),
        text_config=LlamaConfig(**text, pad_token_id=tokenizer.pad_token_id),
        image_token_id=tokenizer.convert_tokens_to_ids("<|image_pad|>"),
    )
    template = (
        "{% for m in messages %}{% for c in m.content %}{% if c.type == 'image' %}<|image_pad|>{% else %}{{ c.text }}"
        "{% endif %}{% endfor %}{% endfor %}"
    )
    images = CLIPImageProcessor(size={"shortest_edge": 24}, crop_size={"height": 24, "width": 24})
    kinds = {"patch_size": 8, "vision_feature_select_strategy": "default", "num_additional_image_tokens": 1}
    llava = LlavaProcessor(images, tokenizer, chat_template=template, image_token="<|image_pad|>", **kinds)
    llava.save_pretrained(tmp_path / "llava")
    LlavaForConditionalGeneration(config).save_pretrained(tmp_path / "llava")
    common = ("--model", str(tmp_path / "llava"), "--budgets", "full", "--max-new-tokens", "2", "--timing", "1")
    command(*common, "--methods", "full")
    assert {row["tokens"] for row in last_json(capsys)["rows"]} == {9}
    with pytest.raises(SystemExit):
        command(*common, "--methods", "full,arrcoc", "--restart")
    assert "--methods arrcoc: arrcoc acts on Qwen3-VL's vision features" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        command(*common, "--methods", "full", "--set", "coverage_floor=0.1")
    assert "which a llava model has not" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        command(*common, "--budgets", "0.25", "--methods", "resize", "--out", str(tmp_path / "small"))
    assert "LlavaProcessor spends more than 2 tokens" in capsys.readouterr().err
    assert not list(tmp_path.glob("small*")), "it is told before anything is answered"
    with pytest.raises(SystemExit, match=r"error: .*llava"):
        train_allocator.main(["--model", str(tmp_path / "llava"), "--steps", "1", "--out", str(tmp_path / "trained")])
    (tmp_path / "llava" / "chat_template.jinja").unlink()
    with pytest.raises(SystemExit):
        command(*common, "--methods", "full", "--restart")
    assert "llava has no chat template" in capsys.readouterr().err
    config = tmp_path / "llava" / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"is_encoder_decoder": True}))
    with pytest.raises(SystemExit):
        command(*common, "--methods", "full", "--restart")
    assert "llava has an encoder before its decoder" in capsys.readouterr().err

    def lacks(*arguments, **options):
        raise ImportError("the processor needs another package")

    monkeypatch.setattr(loading.AutoProcessor, "from_pretrained", lacks)
    with pytest.raises(SystemExit):
        command(*common, "--methods", "full", "--restart")
    assert "llava can't be loaded: the processor needs another package" in capsys.readouterr().err


def test_pictures_that_resize_can_not_show_are_left_out_if_so_wished(loaded, monkeypatch, capsys):
    model, processor, examples, _ = loaded
    (width, height), small_prompt = examples[0].image.size, resize.small_prompt

    def fixed(model, processor, shown, budgets):
        if shown[0].image.size == (width, height):
            raise BudgetTooSmall(f"more than {budgets[0]} tokens; pass more")
        return small_prompt(model, processor, shown, budgets)

    monkeypatch.setattr(resize, "small_prompt", fixed)
    options = SimpleNamespace(methods=["resize"], budgets=[8, 4, "full"], data="pages", skip_bad=False, model="one")
    with pytest.raises(SystemExit):
        measurable(argparse.ArgumentParser(), options, model, processor, examples, 1)
    assert "more than 4 tokens; pass more, or --skip-bad" in capsys.readouterr().err
    options.skip_bad = True
    read, facts = measurable(argparse.ArgumentParser(), options, model, processor, examples, 1)
    assert 0 < len(read) == len(facts) < len(examples)
    assert read.left_out == {"not to be shown in so few tokens": len(examples) - len(read)}
    assert all(fact.size != (width, height) for fact in facts)


@pytest.mark.parametrize(("found", "told"), [(0, "has no placeholder of id"), (1, "one placeholder for a picture")])
def test_models_whose_visual_tokens_can_not_be_counted_are_refused(found, told, loaded, stock_twin, monkeypatch):
    model, processor, examples, _ = loaded
    monkeypatch.setattr(interface, "count_image_tokens", lambda model, inputs: [found] * len(inputs["input_ids"]))
    with pytest.raises(ValueError, match=told):
        facts_of(stock_twin(model), processor, examples)


def test_learned_baselines_need_their_weights(loaded, tmp_path, monkeypatch):
    model = loaded[0]
    read = []
    monkeypatch.setattr(vision_selector, "vision_selector", lambda *args: None, raising=False)
    monkeypatch.setattr(vision_selector, "load_weights", lambda *args: read.append(args), raising=False)
    assert "pass --baseline-weights DIR" in loading._unready("vision_selector", model, None)
    assert loading._unready("vision_selector", model, tmp_path) is None
    assert read == [(model, tmp_path / "vision_selector.safetensors")]
    assert loading._unready("arrcoc", model, None) is None


def test_an_allocator_from_a_file_is_put_onto_the_model(command, model_folder, wake, tmp_path, capsys):
    trained = loading.ARRCOCQwen3VLForConditionalGeneration.from_pretrained(model_folder, dtype=torch.float32)
    torch.manual_seed(1)
    wake(trained)
    save_allocator(trained, tmp_path / "allocator.safetensors")
    load_allocator(trained, tmp_path / "allocator.safetensors")  # as rounded as the file
    common = ("--budgets", "4", "--methods", "arrcoc", "--timing", "0", "--max-new-tokens", "1")
    command(*common)
    plain = last_json(capsys)["arguments"]
    command(*common, "--allocator", str(tmp_path / "allocator.safetensors"), "--restart")
    with_file = last_json(capsys)["arguments"]
    assert {name for name in plain if plain[name] != with_file[name]} == {"model"}
    assert with_file["model"] == model_fingerprint(trained)


@pytest.fixture
def load(model_folder, data):
    """`load(*more)`: the model that a command line loads."""

    def call(*more):
        parser, options = run.parse(["--model", str(model_folder), "--data", str(data), "--device", "cpu", *more])
        return loading.load_model(parser, options)[0]

    return call


def test_dials_of_the_command_line_win_over_those_of_an_allocator(load, model_folder, tmp_path, capsys):
    path = str(tmp_path / "allocator.safetensors")
    trained = loading.ARRCOCQwen3VLForConditionalGeneration.from_pretrained(model_folder, diversity=0.2)
    save_allocator(trained, path)
    model = load("--allocator", path, "--set", "coverage_floor=0.4", "information_weight=0")
    layer = model.model.arrcoc
    assert model.config.coverage_floor == layer.allocator.coverage_floor == 0.4
    assert model.config.information_weight == layer.balancer.weights["information"] == 0
    assert model.config.diversity == layer.balancer.diversity == 0.2
    with pytest.raises(SystemExit):
        load("--allocator", path, "--set", "coarse_share=0.3")
    assert "has no adapter for pooled cells" in capsys.readouterr().err
    pooled = loading.ARRCOCQwen3VLForConditionalGeneration.from_pretrained(model_folder, coarse_share=0.3)
    save_allocator(pooled, path)
    assert load("--allocator", path).model.arrcoc.adapter is not None
    assert load("--allocator", path, "--set", "coarse_share=0").model.arrcoc.adapter is None
    pooled.config.coarse_share = 0.0
    save_allocator(pooled, path)
    assert load("--allocator", path).model.arrcoc.adapter is None


def test_an_allocator_without_the_question_is_no_ordinary_one(load, tiny_model, tmp_path, capsys):
    save_allocator(tiny_model(), tmp_path / "blind.safetensors", scorer="query_blind")
    with pytest.raises(SystemExit):
        load("--allocator", str(tmp_path / "blind.safetensors"))
    assert "trained without the question" in capsys.readouterr().err


def test_what_a_folder_lacks_is_the_same_in_every_run(load):
    """A stock checkpoint has no allocator, and this one no adapter: a killed run goes on with the model that it began with."""
    models = [load("--set", "coarse_share=0.3") for _ in range(2)]
    assert model_fingerprint(models[0]) == model_fingerprint(models[1])


@pytest.mark.parametrize(
    ("method", "dials"),
    [("two_stage", []), ("arrcoc", ["encode_ratio=0.5"]), ("foveated", []), ("arrcoc", ["allocation_mode=foveated"])],
)
def test_what_a_dial_excludes_is_told_before_anything_runs(method, dials, load, capsys):
    load("--methods", method, *(["--set", *dials] if dials else []))
    with pytest.raises(SystemExit):
        load("--methods", method, "--set", "coarse_share=0.3", *dials)
    assert f"--methods {method}: coarse_share=0.3 pools cells" in capsys.readouterr().err


def test_another_processor_is_another_run(command, model_folder, tmp_path, capsys):
    folder = shutil.copytree(model_folder, tmp_path / "model")
    common = ("--model", str(folder), "--budgets", "4", "--methods", "arrcoc", "--timing", "0", "--max-new-tokens", "1")
    out = command(*common)
    processor = loading.ARRCOCProcessor.from_pretrained(folder)
    processor.image_processor.size = dict(processor.image_processor.size) | {"shortest_edge": 512}
    processor.save_pretrained(folder)
    with pytest.raises(SystemExit):
        command(*common)
    assert "processor was '" in capsys.readouterr().err
    path = out.with_name("result.jsonl")
    header, *answers = path.read_text().splitlines()
    older = json.loads(header)
    del older["header"]["processor"]  # as a run of before it was written down
    path.write_text("\n".join([json.dumps(older), *answers]) + "\n")
    command(*common)


def test_a_full_disk_is_told_and_the_run_goes_on_after_it(command, capsys, monkeypatch):
    append, calls = Records.append, []

    def full(self, answers):
        calls.append(1)
        if len(calls) == 2:
            raise OSError(28, "No space left on device")
        append(self, answers)

    monkeypatch.setattr(Records, "append", full)
    with pytest.raises(SystemExit):
        command(*SMALL)
    error = capsys.readouterr().err
    assert "No space left on device" in error
    assert "result.jsonl: run the same command again to go on" in error
    assert command(*SMALL).with_name("result.csv").is_file()
    assert len(calls) > 2


def test_answers_that_are_longer_than_what_is_generated_are_told(command, capsys):
    """Nothing that was generated can be one of them, and the score had said so of the method."""
    command("--methods", "arrcoc", "--budgets", "4", "--max-new-tokens", "1", "--timing", "0")
    error = capsys.readouterr().err
    assert re.search(r"\d+ of \d+ questions, first .*, have no answer of up to --max-new-tokens 1 tokens", error)
    command("--methods", "arrcoc", "--budgets", "4", "--max-new-tokens", "64", "--timing", "0", "--restart")
    assert "have no answer of up to" not in capsys.readouterr().err


def test_a_budget_that_pays_for_whole_pictures_is_told(command, tmp_path, capsys):
    assert command("--methods", "arrcoc", "--budgets", "12,0.5", "--timing", "0")
    assert "5 of 7 questions are about pictures of at most 12 tokens" in capsys.readouterr().err
    command("--methods", "arrcoc", "--budgets", "11", "--timing", "0", "--restart")
    assert "of at most" not in capsys.readouterr().err
    command("--methods", "strided", "--budgets", "64", out=tmp_path / "swap", main=swap.main)
    assert "3 of 3 questions are about pictures of at most 64 tokens" in capsys.readouterr().err


def test_questions_without_evidence_are_told(command, data, tmp_path, capsys):
    copy = shutil.copytree(data, tmp_path / "data")
    lines = (copy / "metadata.jsonl").read_text().splitlines()
    (copy / "metadata.jsonl").write_text("\n".join(lines[1:]))  # of the first picture one question with a box is left
    for place, told in ((copy, True), (data, False)):
        command("--data", str(place), "--methods", "strided", "--budgets", "4", out=tmp_path / "swap", main=swap.main)
        error = capsys.readouterr().err
        assert ("2 of 3 pictures have two questions with evidence in two places" in error) is told
    for methods, told in (("oracle,arrcoc", True), ("arrcoc", False)):
        command("--methods", methods, "--budgets", "4", "--timing", "0", "--restart")
        assert ("1 of 7 questions have no evidence boxes, where oracle keeps" in capsys.readouterr().err) is told


def test_methods_that_choose_no_cells_are_named_below_the_evidence(loaded):
    *_, examples, facts = loaded
    kept = [Answer("", "0.25", example.name, "42", 6.0, 0.5) for example in examples]
    none = [replace(one, recall=None) for one in kept]
    said = {("arrcoc", "0.25"): kept, ("resize", "0.25"): none}
    text = report.tables(report.summarise(examples, facts, said, resamples=20), [0.25])
    assert f"{baselines.title('resize')}: no evidence recall" in text
    alone = report.summarise(examples, facts, {("resize", "0.25"): none}, resamples=20)
    assert "evidence" not in report.tables(alone, [0.25])


def test_another_run_is_refused_and_restart_overwrites(command, capsys, monkeypatch):
    out = command(*SMALL)
    with pytest.raises(SystemExit):
        command(*SMALL, "--seed", "7", "--set", "coverage_floor=0.2")
    error = capsys.readouterr().err
    assert "seed was 1000000 and is now 7" in error
    assert "--restart" in error
    command(*SMALL, "--seed", "7", "--restart")
    monkeypatch.setattr(run, "code_fingerprint", lambda *packages: "edited")
    with pytest.raises(SystemExit):
        command(*SMALL, "--seed", "7")
    assert "is now 'edited'" in capsys.readouterr().err
    assert json.loads((out.parent / "result.jsonl").read_text().splitlines()[0])["header"]["seed"] == 7


def test_no_table_stays_beside_the_answers_of_another_run(command, monkeypatch, capsys):
    """A card would show it as the new run's, whose header says by which model it was made."""
    out = command(*SMALL)
    files = {ending: out.with_name(f"{out.name}.{ending}") for ending in ("csv", "png", "jsonl")}
    assert all(file.exists() for file in files.values())
    held = files["csv"].read_bytes()
    command(*SMALL)
    assert files["csv"].read_bytes() == held, "the same run"
    files["jsonl"].rename(out.with_name("aside"))
    with pytest.raises(SystemExit):
        command(*SMALL)
    assert "result.csv has no result.jsonl beside it and would be lost" in capsys.readouterr().err
    assert files["csv"].read_bytes() == held
    out.with_name("aside").rename(files["jsonl"])
    monkeypatch.setattr(run, "evaluate", mock.Mock(side_effect=KeyboardInterrupt))
    with pytest.raises(SystemExit):
        command(*SMALL, "--seed", "7", "--restart")
    assert not files["csv"].exists()
    assert not files["png"].exists()
    assert json.loads(files["jsonl"].read_text())["header"]["seed"] == 7


def test_a_table_is_written_whole_or_not_at_all(tmp_path):
    path = tmp_path / "table.csv"
    report.write_csv([{"a": 1}], path)
    held = path.read_bytes()
    mine = tmp_path / "table.part"
    mine.write_text("mine")
    with pytest.raises(ValueError, match="fieldnames"):
        report.write_csv([{"a": 2}, {"b": 3}], path)
    assert path.read_bytes() == held
    assert {*tmp_path.iterdir()} == {path, mine}


def test_records_refuse_a_damaged_line_and_drop_a_truncated_one(tmp_path):
    path, answer = tmp_path / "a.jsonl", Answer("full", "full", "a", "Ünïcode", 3.0, None)
    Records(path, {"x": 1}).append([answer])
    with open(path, "ab") as file:
        file.write('{"answer": "Ü'.encode()[:-1])
    again = Records(path, {"x": 1})
    lines = path.read_bytes().splitlines()
    again.append([answer])  # of the batch within which the run was stopped
    assert path.read_bytes().splitlines() == lines
    assert again.get("full", "full", "a") == answer
    assert again.get("full", "full", "b") is None
    with open(path, "a", encoding="utf-8") as file:
        file.write('{"method": 1}\n')
    with pytest.raises(RecordsMismatch, match=r"a.jsonl:3 is no answer"):
        Records(path, {"x": 1})


@pytest.mark.parametrize(
    "content",
    [
        b'{"file_name": "0.png"}\n{"file_name": "1.png"}',
        b"something else\n",
        b"hello",
        b"\xff\xfe",
        b"\xff\xfe\n",
        b'{"header": []}\n',
        b'{"header": {"x": 2}}\n{"met',
        b'{"header": {"x": 1}}\n\xff\n{"met',
    ],
)
def test_records_leave_a_file_that_is_not_theirs_as_it_is(content, tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(content)
    with pytest.raises(RecordsMismatch, match=r"no header of a run; pass another --out|of another run|:2 is no answer"):
        Records(path, {"x": 1})
    assert path.read_bytes() == content
    Records(path, {"x": 1}, restart=True)
    assert path.read_bytes() == b'{"header": {"x": 1}}\n'


def test_a_header_that_a_kill_cut_short_is_written_again(tmp_path):
    path = tmp_path / "a.jsonl"
    Records(path, {"x": 1})
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        Records(path, {"x": 1})
        assert path.read_bytes() == whole


def test_fingerprints_see_weights_and_data(loaded, new_model, tiny_config):
    _, _, examples, facts = loaded
    one, same = new_model(tiny_config()), new_model(tiny_config())
    assert model_fingerprint(one) == model_fingerprint(same)
    before = model_fingerprint(one)
    with mock.patch("transformers.configuration_utils.__version__", "0.0.0"):
        assert one.config.to_dict()["transformers_version"] == "0.0.0"
        assert model_fingerprint(one) == before
    with torch.no_grad():
        next(same.parameters()).view(-1)[0] += 1
    assert model_fingerprint(one) != model_fingerprint(same)
    pictures = [fact.picture for fact in facts]
    assert data_fingerprint(examples, pictures) != data_fingerprint(examples[::-1], pictures[::-1])


def test_fingerprints_see_all_that_a_question_passes_through(loaded):
    processor = copy.deepcopy(loaded[1])
    before = processor_fingerprint(processor)
    processor.tokenizer(["a", "a longer one"], padding=True)  # which stays set, and changes nothing that is asked
    assert before == processor_fingerprint(copy.deepcopy(processor))
    processor.chat_template += " "
    edited = processor_fingerprint(processor)
    processor.tokenizer.add_tokens(["zyx"])
    assert len({before, edited, processor_fingerprint(processor)}) == 3
    assert len({code_fingerprint(*packages) for packages in ((), ("evaluation",), ("evaluation", "training"))}) == 3


def test_what_merges_cells_has_no_recall_of_the_pictures_alone_that_it_leaves_whole(loaded):
    *_, examples, facts = loaded
    kept = [Answer("arrcoc", "64", e.name, "42", 6.0, 1.0 if e.evidence else None) for e in examples]
    merged = [replace(one, recall=None if number == 1 else one.recall) for number, one in enumerate(kept)]
    rows = report.summarise(examples, facts, {("arrcoc", "64"): kept, ("tome", "64"): merged}, resamples=20)
    ours, theirs = rows[-2:]
    assert (ours["evidence_recall"], ours["evidence_recall_questions"]) == (1, 6)
    assert (theirs["evidence_recall"], theirs["kept_whole"], theirs["evidence_recall_vs_arrcoc"]) == (None,) * 3
    assert theirs["exact_match"] == ours["exact_match"]


def test_questions_of_no_family_have_a_row_beside_those_of_one(loaded):
    *_, examples, facts = loaded
    families = ["all", "all", *(["other"] * (len(examples) - 2))]
    examples = [replace(example, family=family) for example, family in zip(examples, families, strict=True)]
    said = {("arrcoc", "0.5"): [Answer("arrcoc", "0.5", e.name, "42", 6.0, None) for e in examples]}
    rows = report.summarise(examples, facts, said, resamples=20)
    assert {row["family"]: row["questions"] for row in rows} == {"no family": 2, "other": 5, "all": 7}
    alone = [replace(example, family="all") for example in examples]
    assert [row["family"] for row in report.summarise(alone, facts, said, resamples=20)] == ["all"]


def test_scores_and_differences_by_hand(loaded):
    *_, examples, facts = loaded
    right = [Answer("arrcoc", "0.5", e.name, e.answers[0], 6.0, 1.0 if e.evidence else None) for e in examples]
    wrong = [Answer("random", "0.5", e.name, "43", 6.0, 0.5 if e.evidence else None) for e in examples]
    scores = report.scores(examples, facts, wrong)
    assert scores[0].tolist() == [0, 0, 1, 0.5, 0, 6, 0.5]  # 43 is within 5% of 42; half of "42" is no misspelling
    assert [math.isnan(value) for value in scores[6]] == [False, False, True, True, True, False, False]
    rows = report.summarise(examples, facts, {("arrcoc", "0.5"): right, ("random", "0.5"): wrong}, resamples=20)
    last = rows[-1]
    assert (last["method"], last["family"], last["exact_match_vs_arrcoc"]) == ("random", "all", -1)
    assert (last["exact_match_vs_arrcoc_low"], last["exact_match_vs_arrcoc_high"]) == (-1, -1)
    assert (last["evidence_recall"], last["kept_whole"], last["evidence_recall_questions"]) == (0.5, 0, 6)


def test_timing_compares_with_all_tokens_and_leaves_the_processor_out(loaded):
    model, processor, examples, facts = loaded
    other = next(number for number, fact in enumerate(facts) if fact.group != facts[0].group)
    two = [examples[0], examples[other]], [facts[0], facts[other]]
    ratios = timing.prefill_ratios(model, processor, *two, ["arrcoc"], [0.25, "full"], repeats=2)
    assert set(ratios) == {("full", "full"), ("arrcoc", "0.25")}
    assert ratios["full", "full"]["ratio"] == ratios["full", "full"]["upper_quartile"] == 1
    ours = ratios["arrcoc", "0.25"]
    assert 0 < ours["low"] <= ours["ratio"] <= ours["high"]
    one = timing.prefill_ratios(model, processor, examples[:1], facts[:1], ["arrcoc"], [0.25], repeats=1)
    assert one["arrcoc", "0.25"]["low"] is one["arrcoc", "0.25"]["high"] is None  # one picture has no interval
    assert "apply_chat_template" not in vars(processor)
    stopwatch = timing.Stopwatch()
    with stopwatch.on(processor, "apply_chat_template"):
        processor.apply_chat_template([{"role": "user", "content": "hello"}], tokenize=False)
    assert stopwatch.seconds > 0


def test_timing_leaves_out_how_a_smaller_image_is_made(loaded, monkeypatch):
    model, processor, examples, _ = loaded
    shrink, before = resize.small_prompt, vars(resize).copy()

    def slow(*arguments):
        time.sleep(2)
        return shrink(*arguments)

    monkeypatch.setattr(resize, "small_prompt", slow)
    assert timing.prefill_seconds(model, processor, "resize", examples[0], 4) < 1.5
    monkeypatch.undo()
    assert vars(resize) == before
    watch = timing.Stopwatch()
    with watch.on(resize, "small_prompt"), watch.on(processor, "apply_chat_template"):
        start = time.perf_counter()
        resize.small_prompt(model, processor, examples[:1], [4])
        assert watch.seconds <= time.perf_counter() - start, "what is within another call is counted once"


def test_a_ratio_is_the_median_over_rounds_of_the_same_round(loaded, monkeypatch):
    model, processor, examples, facts = loaded
    rounds = iter([9, 9, 1.0, 0.5, 10.0, 1.0, 2.0, 0.8])  # all tokens and ours in turn; the first round warms up
    monkeypatch.setattr(timing, "prefill_seconds", lambda *arguments: next(rounds))
    ratios = timing.prefill_ratios(model, processor, examples[:1], facts[:1], ["arrcoc"], [0.25], repeats=3)
    assert ratios["arrcoc", "0.25"]["ratio"] == pytest.approx(0.4)
    assert next(rounds, None) is None


def test_methods_whose_time_says_nothing_are_not_timed_and_the_table_says_why(loaded):
    model, processor, examples, facts = loaded
    methods = ["arrcoc", "glimpse_prune", "vision_selector"]
    ratios = timing.prefill_ratios(model, processor, examples[:1], facts[:1], methods[:2], [0.25], repeats=1)
    assert set(ratios) == {("full", "full"), ("arrcoc", "0.25")}
    said = [Answer("", "0.25", example.name, "42", 6.0, None) for example in examples]
    rows = report.summarise(examples, facts, {(method, "0.25"): said for method in methods}, ratios, resamples=20)
    notes = {row["method"]: row["prefill_note"] for row in rows if row["family"] == "all"}
    assert notes["arrcoc"] is notes["vision_selector"] is None
    assert "second pass" in notes["glimpse_prune"]
    text = report.tables(rows, [0.25])
    others = [
        f"| {metric}, all ({asked} questions, 3 pictures) | 25% |"
        for metric, asked in (("anls", "7"), ("relaxed accuracy", "6 of 7"), ("tokens", "7"))
    ]
    assert all(other in text for other in others)
    assert text[text.index(others[-1]) :].splitlines()[2] == "| arrcoc | 6.0 |"
    timed = text[text.index("| prefill time, of all tokens' (1 questions) | 25% |") :]
    assert "| arrcoc | " in timed
    assert "| in the style of GlimpsePrune" not in timed  # no empty row: the sentence below stands for it
    assert (
        "in the style of GlimpsePrune (first layers read all tokens): prefill not timed, since it answers in a second pass"
        in timed
    )
    assert "| in the style of VisionSelector | " in text
    untimed = report.summarise(examples, facts, {("glimpse_prune", "0.25"): said}, {}, resamples=20)
    assert untimed[0]["prefill_note"] is None  # nothing was timed, so nothing is missing
    assert "prefill" not in report.tables(untimed, [0.25])


def test_fastv_is_timed_by_what_it_costs(loaded, monkeypatch):
    model, processor, examples, facts = loaded
    timed = []
    plain = fastv.prefill
    monkeypatch.setattr(fastv, "prefill", lambda *args: timed.append(args[-1]) or plain(*args))
    monkeypatch.setattr(fastv, "fastv", lambda *args: pytest.fail("the masked run was timed"))
    ratios = timing.prefill_ratios(model, processor, examples[:1], facts[:1], ["fastv"], [0.25], repeats=1)
    assert timed == [[3], [3]]
    assert ratios["fastv", "0.25"]["ratio"] > 0


def test_timing_opens_each_picture_once(loaded):
    model, processor, examples, facts = loaded
    opened = []

    def draw():
        opened.append(1)
        return examples[0].image

    timed = [replace(examples[0], picture=draw)]
    timing.prefill_ratios(model, processor, timed, facts[:1], ["resize", "random"], [0.25, "full"], repeats=1)
    assert len(opened) == 1


def test_weights_lie_in_the_folder_or_where_training_wrote_them(tmp_path):
    assert loading.weights_fingerprint(None, ["query_blind"]) is None
    empty = loading.weights_fingerprint(tmp_path, ["query_blind"])
    (tmp_path / "query_blind").mkdir()
    below = tmp_path / "query_blind" / "query_blind.safetensors"
    below.write_bytes(b"1")
    assert loading.weights_file(tmp_path, "query_blind") == below
    assert loading.weights_fingerprint(tmp_path, ["query_blind"]) != empty
    fingerprints = set()
    for order in (1, -1):  # which differs from one process to the next
        tensors = dict([("a", torch.ones(2)), ("b", torch.zeros(3))][::order])
        below.unlink()  # it is read where it lies
        save_file(tensors, below, dict([("x", "1"), ("y", "2")][::order]))
        fingerprints.add(loading.weights_fingerprint(tmp_path, ["query_blind"]))
    below.unlink()
    save_file(tensors, below, {"x": "1", "y": "3"})
    assert len(fingerprints) == 1
    assert loading.weights_fingerprint(tmp_path, ["query_blind"]) not in fingerprints
    (tmp_path / "query_blind.safetensors").write_bytes(b"2")
    with pytest.raises(ValueError, match="keep the one"):
        loading.weights_file(tmp_path, "query_blind")


def test_a_question_longer_than_the_model_reads_is_told_before_anything_runs(command, data, tmp_path, capsys):
    folder = shutil.copytree(data, tmp_path / "long")
    row = {"file_name": "0.png", "question": "word " * 20_000, "answers": ["x"]}
    (folder / "metadata.jsonl").write_text(json.dumps(row) + "\n")
    with pytest.raises(SystemExit):
        command("--data", str(folder), "--budgets", "4", "--methods", "arrcoc", "--timing", "0")
    assert "metadata.jsonl:1: question and answer have up to" in (said := capsys.readouterr().err)
    assert "that the model reads; shorten the question" in said
    assert not list(tmp_path.glob("deep/*.jsonl"))


def test_a_question_longer_than_the_model_reads_is_left_out_where_asked_for(command, data, tmp_path, capsys):
    folder = shutil.copytree(data, tmp_path / "long")
    rows = (folder / "metadata.jsonl").read_text()
    row = {"file_name": "0.png", "question": "word " * 20_000, "answers": ["x"]}
    (folder / "metadata.jsonl").write_text(rows + json.dumps(row) + "\n")
    asked = ["--budgets", "4", "--methods", "arrcoc", "--timing", "0", "--skip-bad"]
    with pytest.raises(SystemExit):
        command("--data", str(folder), "--budgets", "0.5", "--methods", "arrcoc", main=swap.main)
    assert "shorten the question" in capsys.readouterr().err
    command("--data", str(folder), *asked)
    said, used = capsys.readouterr(), len(rows.splitlines())
    assert f"(left out, 1 in all; {used} used)" in said.err
    assert json.loads(said.out.splitlines()[-1])["left_out"] == {"longer than the model reads": 1}


@pytest.mark.parametrize(("method", "reads"), [("arrcoc", False), ("fastv", True), ("glimpse_prune", True)])
def test_methods_that_read_every_token_first_need_room_for_all(method, reads, loaded, capsys):
    model, processor, *_ = loaded
    example = SimpleNamespace(question="what?", name="one")
    fact = SimpleNamespace(cells=model.config.text_config.max_position_embeddings)
    options = SimpleNamespace(methods=[method], budgets=[0.1], data="pages", skip_bad=False)
    with pytest.raises(SystemExit) if reads else nullcontext():
        readable(argparse.ArgumentParser(), options, model, processor, [example], [fact], 1)
    assert ("that the model reads" in capsys.readouterr().err) is reads


def test_swap_measures_both_questions(command, model_folder, loaded, capsys):
    *_, examples, facts = loaded
    assert swap.pairs_of(examples, facts) == [(0, 1), (2, 3), (4, 5)]
    out = command("--methods", "oracle,strided", "--budgets", "4", main=swap.main)
    last = last_json(capsys)
    model = loading.ARRCOCQwen3VLForConditionalGeneration.from_pretrained(model_folder, dtype=torch.float32)
    assert last["arguments"]["model"] == model_fingerprint(model)
    assert last["arguments"]["methods"] == ["oracle", "strided"]
    oracle, strided = last["rows"]
    assert oracle["pairs"] == oracle["sources"] == 3
    assert oracle["recall_worse"] > 0.9
    assert oracle["recall_second"] == oracle["recall_first"] == oracle["recall_worse"] == 1
    assert oracle["difference"] == 1  # the boxes are apart
    assert strided["difference"] == 0  # the question changes nothing
    assert len(out.with_name("result.csv").read_text().splitlines()) == 3


def test_swap_refuses_methods_whose_tokens_are_no_cells(command, monkeypatch, capsys):
    monkeypatch.setattr(swap, "swapped", lambda *args: pytest.fail("it measured"))
    with pytest.raises(SystemExit):
        command("--methods", "arrcoc,resize,pooling", "--budgets", "64", main=swap.main)
    assert "--methods resize,pooling: the tokens are no cells" in capsys.readouterr().err


def test_swap_does_not_overwrite_the_table_of_a_run(command, tmp_path, capsys):
    (tmp_path / "mine.jsonl").write_text("")
    (tmp_path / "mine.csv").write_text("a run's")
    with pytest.raises(SystemExit):
        command("--methods", "random", "--budgets", "4", main=swap.main, out=tmp_path / "mine")
    assert "pass another --out" in capsys.readouterr().err
    assert (tmp_path / "mine.csv").read_text() == "a run's"


@pytest.mark.parametrize(("main", "other"), [(run.main, swap), (swap.main, report)], ids=["run", "swap"])
def test_a_command_does_not_overwrite_the_table_of_another(main, other, command, tmp_path, capsys):
    theirs = ",".join(other.LABELS) + ",and more\n"
    (tmp_path / "mine.csv").write_text(theirs)
    with pytest.raises(SystemExit):
        command("--methods", "random", "--budgets", "4", main=main, out=tmp_path / "mine")
    assert "mine.csv is another command's table and would be overwritten; pass another --out" in capsys.readouterr().err
    assert (tmp_path / "mine.csv").read_text() == theirs


def test_a_picture_of_the_user_is_not_overwritten(command, tmp_path, capsys):
    (tmp_path / "mine.png").write_bytes(b"a page")
    with pytest.raises(SystemExit):
        command("--methods", "random", "--budgets", "4", out=tmp_path / "mine")
    assert (
        "mine.png is no chart of an earlier run and would be overwritten; pass another --out" in capsys.readouterr().err
    )
    assert (tmp_path / "mine.png").read_bytes() == b"a page"


def test_swap_prints_its_table_where_the_disk_is_full(command, monkeypatch, capsys):
    def full(rows, path):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(swap, "write_csv", full)
    with pytest.raises(SystemExit):
        command("--methods", "random", "--budgets", "4", main=swap.main)
    said = capsys.readouterr()
    assert "No space left on device; the table stands above" in said.err
    assert "recall, first question" in said.out


def test_swap_says_that_it_can_not_write_before_it_measures(command, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(loading, "load_model", lambda *args: pytest.fail("the model was loaded"))
    (tmp_path / "file").write_text("")
    (tmp_path / "taken.csv").mkdir()
    for out, says in (
        (tmp_path, "is a folder"),
        (tmp_path / "file" / "swap", "can't be written"),
        (tmp_path / "taken", "taken.csv can't be written"),
        (tmp_path / ("n" * 260), "at most 200 bytes"),
    ):
        with pytest.raises(SystemExit):
            command(out=out, main=swap.main)
        assert says in capsys.readouterr().err


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        (["--methods", "arrcoc,magic"], "choose from full, arrcoc"),
        (["--methods", "arrcoc,arrcoc"], "more than once"),
        (["--budgets", "1.5"], "pass a share between 0 and 1"),
        (["--budgets", "0.1,0.1"], "more than once"),
        (["--limit", "0"], "no count"),
        (["--batch-size", "x"], "no count"),
        (["--timing", "-1"], "below 0"),
        (["--set", "magic=1"], "no dial"),
        (["--set", "magic=1"], "of the configuration; they are allocation_mode,"),
        (["--set", "coverage_floor"], "DIAL=VALUE"),
        (["--set", "scorer_hidden_size=128"], "is fixed when it is made"),
        (["--allocator", "/nowhere/a.safetensors"], "is not there"),
        (["--baseline-weights", "/nowhere"], "is not there"),
        (["--device", "gpu9"], "gpu9"),
        (["--device", "meta"], "--device meta can't be used"),
        (["--methods", "full"], "pass --budgets full"),
        (["--model", "/nowhere/model"], "can't be read"),
        (["--data", "/nowhere/data"], "/nowhere/data"),
    ],
)
def test_the_command_line_says_what_is_wrong_before_anything_is_loaded(command, monkeypatch, capsys, bad, says):
    monkeypatch.setattr(loading, "load_model", lambda *args: pytest.fail("the model was loaded"))
    with pytest.raises(SystemExit) as stop:
        command(*SMALL, *bad)
    assert stop.value.code == 2
    assert says in capsys.readouterr().err


def test_a_folder_without_questions_is_refused(command, tmp_path, capsys):
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "metadata.jsonl").write_text("")
    with pytest.raises(SystemExit):
        command("--data", str(tmp_path / "empty"))
    assert "empty" in capsys.readouterr().err


def test_curves_of_methods_without_recall(tmp_path):
    rows = [
        {"family": "all", "method": "resize", "questions": 2, "token_share": share, "evidence_recall": None}
        | {"exact_match": share, "exact_match_low": 0.0, "exact_match_high": 1.0}
        for share in np.linspace(0.1, 0.9, 3)
    ]
    report.write_curves(rows, tmp_path / "a" / "curves.png")
    assert (tmp_path / "a" / "curves.png").read_bytes().startswith(b"\x89PNG")
