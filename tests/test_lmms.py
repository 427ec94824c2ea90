"""ARR-COC in lmms-eval: conditions, chats, command lines and tables without it, and where it is installed the whole way through.

`make lmms-test` puts lmms-eval into the folder that ARRCOC_LMMS names, apart from the project's own packages.
"""

import copy
import csv
import importlib.util
import io
import json
import os
import re
import shutil
import subprocess
import sys
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path

import pytest
import torch
from PIL import Image

from arrcoc import ARRCOCProcessor
from arrcoc.picture import open_picture
from evaluation import baselines
from evaluation.lmms import asking, run, table
from evaluation.lmms.asking import ask, cut, generation_settings, load
from evaluation.lmms.condition import METHODS, Condition, conditions
from training.data import load_examples

ROOT = Path(__file__).resolve().parents[1]
ENTRY = 'arrcoc = "arrcoc.lmms_entry:models"'
SETTINGS = {"max_new_tokens": 3, "do_sample": False, "num_beams": 1}


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"method": "resized", "token_budget": 0.1}, "did you mean 'resize'"),
        ({}, "token_budget=None is no budget"),
        ({"token_budget": 1.0}, "a share between 0 and 1"),
        ({"token_budget": 0}, "a count of tokens"),
        ({"token_budget": float("nan")}, "is no budget"),
        ({"token_budget": True}, "is no budget"),
        ({"token_budget": "10%"}, "is no budget"),
        ({"token_budget": "auto", "method": "resize"}, "is no budget of method=resize"),
        ({"token_budget": 64, "method": "stock"}, "leave out token_budget=64"),
        ({"token_budget": 64, "allocation_mode": "fovea"}, "pass one of .*foveated"),
        ({"token_budget": 64, "encode_ratio": 0}, "encode_ratio=0 is not allowed"),
        ({"token_budget": 64, "encode_ratio": "all"}, "or 'auto'"),
        ({"token_budget": 64, "encode_ratio": 0.3, "method": "resize"}, "leave out encode_ratio"),
    ],
)
def test_a_condition_refuses(arguments, says):
    with pytest.raises(ValueError, match=says):
        Condition(**arguments)


def test_budgets_of_pictures():
    assert Condition(token_budget=0.1).budgets([4, 64, 100]) == [1, 6, 10]
    assert Condition(token_budget=64).budgets([4, 64, 100]) == [4, 64, 64]
    assert Condition(token_budget="tiny").budgets([100]) == [64]
    assert Condition(token_budget="auto").budgets([100, 7]) == ["auto", "auto"]
    assert Condition("stock").budgets([100, 7]) == [100, 7]


def test_conditions_have_stock_once_and_arrcocs_arguments_at_arrcoc_alone():
    chosen = conditions(["stock", "arrcoc", "resize"], [0.25, 64], "foveated", 0.5)
    assert [(c.method, c.token_budget, c.allocation_mode, c.encode_ratio) for c in chosen] == [
        ("stock", "full", "select", 1.0),
        ("arrcoc", 0.25, "foveated", 0.5),
        ("resize", 0.25, "select", 1.0),
        ("arrcoc", 64, "foveated", 0.5),
        ("resize", 64, "select", 1.0),
    ]
    assert len({c.folder for c in chosen}) == len(chosen)
    assert chosen[1].title == "arrcoc, allocation_mode=foveated, encode_ratio=0.5"
    with pytest.raises(ValueError, match="not among the methods"):
        conditions(["resize"], [0.25], encode_ratio=0.5)


@pytest.fixture(scope="module")
def folder(tiny_model, make_processor, tmp_path_factory):
    """A tiny random model, whose allocator minds the question, and its processor, saved."""
    folder = tmp_path_factory.mktemp("model")
    tiny_model().save_pretrained(folder)
    make_processor(tiny_model()).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def loaded(folder):
    """`loaded(condition)`: (model, processor) as `load` gives them."""
    return lambda condition: load(str(folder), condition, dtype="float32")


def test_stock_is_transformers_own_class_and_equals_arrcoc_with_every_token(loaded, page, chat):
    chats = [chat(page(128, 96)), chat([page(96, 96, 1), page(64, 64, 2)]), chat([])]
    replies = {}
    for condition in (Condition("stock"), Condition(token_budget="full")):
        model, processor = loaded(condition)
        assert type(model).__module__.startswith("transformers.") == (condition.method == "stock")
        # whose seconds are stock's: it makes nothing that the allocator reads
        assert isinstance(processor, ARRCOCProcessor) == (condition.method != "stock")
        replies[condition.method] = ask(model, processor, condition, chats, SETTINGS)
    assert replies["stock"] == replies["arrcoc"]
    assert (
        [reply.visual_tokens for reply in replies["stock"]]
        == [reply.cells for reply in replies["stock"]]
        == [48, 52, 0]
    )


@pytest.mark.parametrize("method", [name for name in METHODS if name != "stock"])
def test_every_method_answers_from_at_most_its_budget(method, loaded, page, chat):
    condition = Condition(method, 0.25)
    chats = [chat(page(128, 96)), chat(page(96, 96, 1))]
    replies = ask(*loaded(condition), condition, chats, SETTINGS)
    assert [reply.cells for reply in replies] == [48, 36]
    for reply, budget in zip(replies, (12, 9), strict=True):
        # Two of the four layers of fastv read every token.
        most = (reply.cells + budget) / 2 if method == "fastv" else budget
        assert 0 < reply.visual_tokens <= most
        assert reply.prompt_tokens > 9


def test_arrcoc_here_and_among_the_baselines_is_one(loaded, page, chat):
    """The evaluation on own data and this one ask the same question of the same model."""
    condition = Condition(token_budget=0.25)
    model, processor = loaded(condition)
    question = asking.Shown(page(128, 96), "what is the total?")
    prepared = baselines.find("arrcoc")(model, processor, [question], [12])
    want = model.generate(**prepared.inputs, **SETTINGS)[:, prepared.inputs["input_ids"].shape[1] :]
    reply = ask(model, processor, condition, [chat(question.image, question.question)], SETTINGS)[0]
    assert reply.text == processor.batch_decode(want, skip_special_tokens=True)[0].strip()


DEFAULT = {"allocation_mode": "select", "encode_ratio": 1.0}


@pytest.mark.parametrize(
    "spending", [{}, {"allocation_mode": "foveated"}, {"encode_ratio": 0.5}, {"encode_ratio": "auto"}]
)
def test_mode_and_encode_ratio_reach_the_model(spending, loaded, page, chat, monkeypatch):
    condition = Condition(token_budget=0.25, **spending)
    model, processor = loaded(condition)
    given, generate = {}, model.generate
    monkeypatch.setattr(model, "generate", lambda **inputs: given.update(inputs) or generate(**inputs))
    assert ask(model, processor, condition, [chat(page())], SETTINGS)[0].visual_tokens == 12
    assert {name: given[name] for name in DEFAULT} == DEFAULT | spending  # also where they are the defaults


def test_a_baseline_refuses_a_chat_of_another_form(loaded, page, chat):
    condition = Condition("resize", 0.25)
    with pytest.raises(ValueError, match=r"one text of one picture.*\['image', 'image', 'text'\]"):
        ask(*loaded(condition), condition, [chat([page(), page()])], SETTINGS)


def test_bounds_of_the_picture_and_what_load_refuses(folder):
    condition = Condition(token_budget=0.25)
    _, processor = load(str(folder), condition, max_pixels=64 * 64)
    assert processor.image_processor.size["longest_edge"] == 64 * 64
    assert asking._cells(processor, Image.new("RGB", (512, 512))) == 16
    with pytest.raises(ValueError, match="leave no size"):
        load(str(folder), condition, min_pixels=4096, max_pixels=1024)
    with pytest.raises(ValueError, match="stock has no allocator"):
        load(str(folder), Condition("stock"), allocator="allocator.safetensors")


def test_what_a_task_asks_of_generation():
    greedy = {"max_new_tokens": 16, "temperature": 0, "top_p": 1.0, "until": ["x"], "image_aspect_ratio": "pad"}
    assert generation_settings(greedy) == {"max_new_tokens": 16, "num_beams": 1, "do_sample": False}
    assert generation_settings({})["max_new_tokens"] == asking.MAX_NEW_TOKENS
    assert generation_settings({"temperature": 0.7, "top_p": None}) == {
        "max_new_tokens": 128, "num_beams": 1, "do_sample": True, "temperature": 0.7,
    }  # fmt: skip
    assert cut("12 ASSISTANT: 13", ["ASSISTANT:"]) == "12"
    assert cut("one\n\ntwo", "\n\n") == "one\n\ntwo"
    assert cut(" one ", None) == "one"


@pytest.fixture
def options(folder, tmp_path):
    """`options(*more)`: the checked options of the command line."""
    return lambda *more: run.parse(["--model", str(folder), "--out", str(tmp_path / "out"), *more])[1]


def test_the_default_command_is_what_the_field_reports(options):
    chosen = options()
    assert len(chosen.tasks) == 10
    assert len(chosen.conditions) == 1 + 2 * 5
    assert [c.budget for c in chosen.conditions if c.method == "arrcoc"] == ["33%", "25%", "22%", "11%", "10%"]


def test_the_call_of_one_run(options, folder, tmp_path):
    allocator = tmp_path / "allocator.safetensors"
    allocator.touch()
    more = (
        "--encode-ratio",
        "0.3",
        "--limit",
        "8",
        "--max-pixels",
        "100000",
        "--allocator",
        str(allocator),
        "--budgets",
        "0.1",
    )
    chosen = options(*more)
    stock, ours, smaller = chosen.conditions
    call = run.command(chosen, "docvqa_val", ours, tmp_path)
    given = dict(zip(call[3::2], call[4::2], strict=True))
    assert given["--model_args"] == (
        f"pretrained={folder},method=arrcoc,token_budget=0.1,encode_ratio=0.3,allocator={allocator},max_pixels=100000"
    )
    assert (given["--tasks"], given["--limit"], given["--batch_size"]) == ("docvqa_val", "8", "1")
    assert run.model_args(chosen, stock) == f"pretrained={folder},method=stock,token_budget=full,max_pixels=100000"
    assert "encode_ratio" not in run.model_args(chosen, smaller)


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (("--budgets", "0.1,2.5"), "'2.5' is no budget"),
        (("--methods", "stock,arrcocs"), "did you mean 'arrcoc'"),
        (("--methods", "arrcoc,arrcoc"), "a repeated name"),
        (("--encode-ratio", "2"), "encode_ratio=2 is not allowed"),
        (("--methods", "stock", "--encode-ratio", "0.5"), "not among the methods"),
        (("--tasks", "gqa,,pope"), "an empty or a repeated name"),
        (("--allocator", "nowhere"), "nowhere is not there"),
        (("--limit", "0"), "pass a whole number from 1 on"),
        (("--model", "a,b"), "lmms-eval splits its arguments"),
        (("--revision", "1.10"), "lmms-eval makes the number 1.1 of it"),
    ],
)
def test_the_command_refuses(more, says, options, capsys):
    with pytest.raises(SystemExit, match="2"):
        options(*more)
    assert says in capsys.readouterr().err


# As lmms-eval 0.7.3 writes it, without the entries that no one reads.
RESULT = {
    "results": {
        "docvqa_val": {
            "alias": "docvqa_val",
            "anls,none": 0.5,
            "anls_stderr,none": 0.05,
            "anls_stderr_clt,none": 0.05,
            "anls_stderr_clustered,none": "N/A",
        }
    },
    "config": {"model": "arrcoc", "model_args": "pretrained=m,method=stock,token_budget=full", "limit": None},
    "n-samples": {"docvqa_val": {"original": 5349, "effective": 5349}},
    "throughput": {"avg_latency": 0.5, "avg_visual_tokens": 1200.0, "avg_visual_token_share": 1.0},
}


def write_result(folder: Path, name: str, task: str = "docvqa_val", score: float = 0.5, **config) -> Path:
    result = copy.deepcopy(RESULT)
    values = result["results"].pop("docvqa_val")
    metric = table.METRICS.get(task, "anls")
    result["results"][task] = {key.replace("anls", metric): value for key, value in values.items()} | {
        f"{metric},none": score
    }
    result["config"] |= config
    path = folder / name / "20261121_100000_results.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(result))
    return path


def test_the_table_of_results(tmp_path):
    write_result(tmp_path, "a")
    write_result(tmp_path, "b", "pope", 0.8)
    ours = "pretrained=m,allocator=x,method=arrcoc,token_budget=0.1"
    write_result(tmp_path, "c", score=0.45, model_args=ours)
    write_result(tmp_path, "d", "pope", 0.72, model_args=ours)
    write_result(tmp_path, "e", score=0.3, model_args="pretrained=m,allocator=x,method=resize,token_budget=0.1")
    write_result(tmp_path, "f", score=0.4, model_args=ours + ",encode_ratio=0.3")
    write_result(tmp_path, "g", score=0.47, model_args="pretrained=m,allocator=x,method=resize,token_budget=0.25")
    write_result(tmp_path, "h", score=0.99, model="qwen3_vl")
    lines = table.write(tmp_path).splitlines()
    assert lines == (tmp_path / "table.md").read_text().splitlines()
    assert lines[0] == "| method | tokens | docvqa_val<br>anls | pope<br>pope_f1_score | of stock | token share |"
    assert lines[2:7] == [
        "| stock | full | 50.0 ± 9.8 | 80.0 ± 9.8 | 100.0% | 100.0% |",
        "| resize | 25% | 47.0 ± 9.8 |  |  |  |",
        "| arrcoc | 10% | 45.0 ± 9.8 | 72.0 ± 9.8 | 90.0% | 100.0% |",
        "| arrcoc, encode_ratio=0.3 | 10% | 40.0 ± 9.8 |  |  |  |",
        "| resize | 10% | 30.0 ± 9.8 |  |  |  |",
    ]
    assert lines[-1] == "Model: m, allocator x."
    rows = list(csv.DictReader(io.StringIO((tmp_path / "table.csv").read_text())))
    assert len(rows) == 7
    assert {row["of_stock"] for row in rows if row["method"] == "stock"} == {"1.0"}
    assert {row["questions"] for row in rows if row["task"] == "docvqa_val"} == {"5349"}


def test_scores_in_points_stay_as_they_are(tmp_path, capsys):
    path = write_result(tmp_path, "a", "mme", 300.0)
    result = json.loads(path.read_text())
    result["results"]["mme"] = {"mme_cognition_score,none": 300.0, "mme_perception_score,none": 1200.0}
    path.write_text(json.dumps(result))
    write_result(tmp_path, "b", score=0.5)
    lines = table.write(tmp_path).splitlines()
    assert lines[0] == "| method | tokens | docvqa_val<br>anls | mme<br>mme_cognition_score | of stock | token share |"
    assert lines[2] == "| stock | full | 50.0 ± 9.8 | 300.0 | 100.0% | 100.0% |"
    assert "mme: mme_cognition_score is shown, of mme_cognition_score, mme_perception_score" in capsys.readouterr().err


def test_the_newest_result_of_a_condition_counts(tmp_path):
    old = write_result(tmp_path, "a", score=0.1)
    old.rename(old.with_name("20261120_100000_results.json"))
    write_result(tmp_path, "0", score=0.6)
    assert [row["score"] for row in table.read(tmp_path)] == [0.6]


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ({"model_args": "pretrained=other,method=resize,token_budget=64"}, "differ in model"),
        ({"model_args": "pretrained=m,method=resize,token_budget=64", "limit": 8.0}, "differ in limit"),
        ({"model_args": "pretrained=m,method=resize,token_budget=64,max_pixels=9"}, "differ in pixels"),
    ],
)
def test_results_that_cant_be_compared_are_refused(config, says, tmp_path):
    write_result(tmp_path, "a")
    write_result(tmp_path, "b", **config)
    with pytest.raises(table.TableError, match=says):
        table.read(tmp_path)


def test_results_that_cant_be_read_are_refused(tmp_path, capsys):
    with pytest.raises(SystemExit, match="2"):
        table.main([str(tmp_path)])
    assert "holds no results of --model arrcoc" in capsys.readouterr().err
    path = write_result(tmp_path, "a")
    path.write_text(path.read_text().replace("anls", "accuracy"))
    with pytest.raises(table.TableError, match="has no anls of docvqa_val, but accuracy"):
        table.read(tmp_path)
    path.write_text(path.read_text()[:100])
    with pytest.raises(table.TableError, match="is no whole JSON"):
        table.read(tmp_path)


@pytest.mark.parametrize(
    "change",
    [
        {"config": 1},
        {"config": {"model": "arrcoc"}},
        {"config": {"model": "arrcoc", "model_args": {"method": "stock"}}},
        {"results": None},
        {"results": {"docvqa_val": 0.5}},
        {"throughput": [1]},
        {"n-samples": {"docvqa_val": 8}},
        {"config": {"model": "arrcoc", "model_args": "pretrained=m,method=resize"}},
        None,
    ],
)
def test_results_of_another_form_are_refused_by_name(change, tmp_path, capsys):
    path = tmp_path / "20261121_100000_results.json"
    path.write_text(json.dumps([1] if change is None else RESULT | change))
    with pytest.raises(SystemExit, match="2"):
        table.main([str(tmp_path)])
    error = capsys.readouterr().err
    assert str(path) in error
    assert "has not the form of lmms-eval's results" in error or "is no budget" in error


def test_a_run_is_finished_by_its_results_alone(tmp_path, capsys):
    wanted = {"model_args": RESULT["config"]["model_args"], "limit": None}
    assert not run.finished(tmp_path, wanted, {})
    path = write_result(tmp_path, "a")
    assert run.finished(tmp_path, wanted, {})
    with pytest.raises(ValueError, match="is of other arguments"):
        run.finished(tmp_path, wanted | {"limit": 8}, {})
    run.remove_leftovers(tmp_path)
    whole = path.read_text()
    for damaged in (whole[:100], "[]", '{"config": null}'):
        path.write_text(damaged)
        with pytest.raises(ValueError, match=r"_results\.json can't be read .*; delete it, or pass another --out"):
            run.finished(tmp_path, wanted, {})
    run.remove_leftovers(tmp_path)
    assert path.exists()  # whole, but not of lmms-eval
    path.write_text(whole[:100])
    run.remove_leftovers(tmp_path)
    assert f"{path} is cut off" in capsys.readouterr().err
    assert not run.finished(tmp_path, wanted, {})


def test_results_of_another_task_and_model_end_in_one_message(tmp_path, monkeypatch, capsys):
    write_result(tmp_path, "a")
    write_result(tmp_path, "b", "pope", model_args="pretrained=other,method=resize,token_budget=64")
    monkeypatch.setattr(run, "check_installed", lambda: None)
    monkeypatch.setattr(run, "run", lambda *arguments: None)
    with pytest.raises(SystemExit) as ended:
        run.main(["--model", "m", "--tasks", "docvqa_val", "--out", str(tmp_path)])
    assert ended.value.code == 2
    assert "differ in model (m, other); put each into its own folder" in capsys.readouterr().err


def test_an_allocator_that_was_trained_anew_under_its_name_is_another(tmp_path, monkeypatch):
    folder, allocator = tmp_path / "model", tmp_path / "allocator.safetensors"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    allocator.write_bytes(b"one")
    _, options = run.parse(["--model", str(folder), "--allocator", str(allocator), "--out", str(tmp_path / "out")])
    ours, stock = Condition("arrcoc", 0.25), Condition("stock")
    wanted = {"model_args": RESULT["config"]["model_args"], "limit": None}
    path = write_result(tmp_path, "a")
    (path.parent / run.FILES).write_text(json.dumps(run.contents(options, ours)))
    assert run.finished(path.parent, wanted, run.contents(options, ours))
    before = run.contents(options, stock)
    allocator.write_bytes(b"another")
    assert run.contents(options, stock) == before
    with pytest.raises(ValueError, match=r"results of another .*allocator\.safetensors; pass --restart"):
        run.finished(path.parent, wanted, run.contents(options, ours))
    (folder / "config.json").write_text('{"changed": 1}')
    assert run.contents(options, stock) != before


def test_results_of_other_code_are_refused(tmp_path, monkeypatch):
    _, options = run.parse(["--model", "you/model", "--out", str(tmp_path / "out")])
    wanted, ours = {"model_args": RESULT["config"]["model_args"], "limit": None}, Condition("arrcoc", 0.25)
    path = write_result(tmp_path, "a")
    (path.parent / run.FILES).write_text(json.dumps(run.contents(options, ours)))
    assert run.finished(path.parent, wanted, run.contents(options, ours))
    monkeypatch.setattr(run, "code_fingerprint", lambda *packages: "changed")
    with pytest.raises(ValueError, match="results of another code; pass --restart"):
        run.finished(path.parent, wanted, run.contents(options, ours))


def test_a_package_without_the_repository_has_no_model_for_lmms_eval(tmp_path):
    """lmms-eval loads the entry points of all installed packages, whatever it is asked for."""
    shutil.copy(ROOT / "lmms_entry.py", tmp_path)
    spec = importlib.util.spec_from_file_location("lmms_entry", tmp_path / "lmms_entry.py")
    alone = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(alone)
    assert alone.models() == ()


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ("arrcoc.lmms_entry:models", None),
        (
            "arrcoc.evaluation.lmms:manifest",
            "can't be loaded .*manifest.*; run in the repository again: pip install -e",
        ),
        (None, "is not installed; run in the repository: pip install -e"),
    ],
)
def test_an_entry_point_that_lmms_eval_could_not_load_is_told(value, says, monkeypatch):
    held = [] if value is None else [EntryPoint("arrcoc", value, "lmms_eval.models")]
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: EntryPoints(held))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name)
    told = run.check_installed()
    assert told is None if says is None else re.search(says, told)


def test_the_project_names_the_entry_point():
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert ENTRY in text.partition('[project.entry-points."lmms_eval.models"]')[2].partition("[tool")[0]


def test_the_docs_name_every_method_and_task():
    text = (ROOT / "docs" / "lmms_eval.md").read_text(encoding="utf-8")
    assert [name for name in (*METHODS, *table.METRICS) if f"`{name}`" not in text] == []
    call = text.partition("--model_args ")[2].split()[0]
    arguments = table.parse_model_args(call)
    assert Condition(token_budget=table.value_of(arguments["token_budget"])).budget == "10%"
    assert TASK.partition("test: ")[0] in text


TASK = """\
task: drawn_pages
dataset_path: parquet
dataset_kwargs:
  data_files:
    test: {data}
test_split: test
output_type: generate_until
doc_to_visual: image
doc_to_text: question
doc_to_target: answers
generation_kwargs:
  max_new_tokens: 24
metric_list:
  - metric: anls
    aggregation: mean
    higher_is_better: true
"""
PAGES = 6
HALF = 0.5 + 1e-9  # lmms-eval counts an answer of which exactly half is wrong, the paper of ANLS does not
# What the class does beyond a good run, printed as JSON: it is imported where lmms-eval changes nothing for other tests.
SCRIPT = """
import json, os, sys
from lmms_eval.models import get_model
model, folder = get_model("arrcoc"), sys.argv[1]
says = {}
def refused(name, **arguments):
    try:
        model.create_from_arg_string(f"pretrained={folder}", arguments)
    except (TypeError, ValueError) as error:
        says[name] = str(error)
refused("argument", token_budgets=64)
refused("budget", token_budget=1.5)
refused("batch", token_budget=64, batch_size="auto")
os.environ["WORLD_SIZE"] = "2"
refused("processes", token_budget=64)
del os.environ["WORLD_SIZE"]
ours = model.create_from_arg_string(f"pretrained={folder},token_budget=0.25", {"batch_size": "2", "device": "cpu"})
ours.task_dict = {"seen": {"test": [[{"role": "user", "content": [{"type": "video", "url": "a.mp4"}]}]]}}
try:
    ours._chat(lambda doc: doc, 0, "seen", "test")
except ValueError as error:
    says["video"] = str(error)
print("SAYS" + json.dumps(says))
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """The environment of a process that has lmms-eval and the plugin's entry point."""
    if not os.environ.get("ARRCOC_LMMS"):
        pytest.importorskip(
            "lmms_eval", reason="no lmms-eval: ARRCOC_LMMS names no folder with it; `make lmms-test` sets it up"
        )
    plugin = tmp_path_factory.mktemp("plugin")
    names = plugin / "arrcoc_plugin-0.dist-info"
    names.mkdir()
    (names / "METADATA").write_text("Metadata-Version: 2.1\nName: arrcoc-plugin\nVersion: 0\n")
    (names / "entry_points.txt").write_text("[lmms_eval.models]\n" + ENTRY.replace('"', "") + "\n")
    folders = (os.environ.get("ARRCOC_LMMS"), os.environ.get("PYTHONPATH"))
    paths = [str(plugin), *(str(Path(folder).resolve()) for folder in folders if folder)]
    offline = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "HF_HOME": str(plugin / "home"), "TQDM_DISABLE": "1"}
    return os.environ | offline | {"PYTHONPATH": os.pathsep.join(paths)}


@pytest.fixture(scope="module")
def tasks(tmp_path_factory):
    """A folder with one lmms-eval task: drawn pages in a parquet file."""
    datasets = pytest.importorskip("datasets")
    folder = tmp_path_factory.mktemp("tasks")
    examples = load_examples("world", limit=PAGES)
    rows = [{"image": e.image, "question": e.question, "answers": list(e.answers)} for e in examples]
    features = datasets.Features(
        image=datasets.Image(), question=datasets.Value("string"), answers=datasets.List(datasets.Value("string"))
    )
    datasets.Dataset.from_list(rows, features=features).to_parquet(folder / "pages.parquet")
    (folder / "drawn_pages.yaml").write_text(TASK.format(data=folder / "pages.parquet"))
    return folder


@pytest.mark.slow
def test_the_class_refuses_what_it_cant_do(installed, folder, tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(folder)], env=installed, cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-4000:]
    says = json.loads(done.stdout.rpartition("SAYS")[2])
    assert "did you mean token_budget?" in says["argument"]
    assert "token_budget=1.5 is no budget" in says["budget"]
    assert "batch_size='auto'" in says["batch"]
    assert "one process" in says["processes"]
    assert "seen has videos or sound" in says["video"]


@pytest.mark.slow
def test_the_command_on_a_local_task(installed, checkpoint, model, processor, tasks, tmp_path, monkeypatch, capsys):
    """Stock and arrcoc on drawn pages: the scores are those of the answers that the model itself gives."""
    out = tmp_path / "out"
    call = ["--model", str(checkpoint), "--out", str(out), "--device", "cpu"]
    call += ["--tasks", "drawn_pages", "--include-path", str(tasks), "--budgets", "0.1", "--batch-size", "4"]
    call += ["--dtype", "float32", "--methods", "stock,arrcoc"]
    for folder in reversed(installed["PYTHONPATH"].split(os.pathsep)):
        monkeypatch.syspath_prepend(folder)
    for name, value in installed.items():
        monkeypatch.setenv(name, value)
    run.main(call)  # lmms-eval runs in processes of its own
    printed = capsys.readouterr().out
    rows = {row["method"]: row for row in table.read(out)}
    assert {name: row["questions"] for name, row in rows.items()} == dict.fromkeys(("stock", "arrcoc"), PAGES)
    assert rows["stock"]["visual_token_share"] == 1
    assert rows["arrcoc"]["visual_token_share"] < 0.11
    from evaluation.metrics import anls

    examples = load_examples("world", limit=PAGES)
    for method, row in rows.items():
        condition = Condition(method, None if method == "stock" else 0.1)
        chats = [[{"role": "user", "content": [{"type": "image", "image": e.image}, {"type": "text", "text": e.question}]}]
                 for e in examples]  # fmt: skip
        settings = {"max_new_tokens": 24, "do_sample": False, "num_beams": 1}
        replies = [ask(model, processor, condition, [asked], settings)[0] for asked in chats]
        scores = [anls(reply.text, e.answers, HALF) for reply, e in zip(replies, examples, strict=True)]
        assert row["score"] == pytest.approx(sum(scores) / PAGES, abs=1e-6), method
    results = {path: path.stat().st_mtime_ns for path in out.glob("**/*_results.json")}
    assert len(results) == 2
    run.main(call)
    assert capsys.readouterr().out == printed
    assert {path: path.stat().st_mtime_ns for path in out.glob("**/*_results.json")} == results


def test_a_condition_without_results_is_told_with_the_end_of_its_log(folder, tmp_path, monkeypatch, capsys):
    def ends(call, stdout, **_):
        print("the last line", file=stdout)
        return subprocess.CompletedProcess(call, 0)  # as lmms-eval does after an error, too

    monkeypatch.setattr(run, "check_installed", lambda: None)
    monkeypatch.setattr(run, "PACKAGES", ("transformers",))
    monkeypatch.setattr(run.subprocess, "run", ends)
    with pytest.raises(SystemExit) as wrong:
        run.main(
            ["--model", str(folder), "--out", str(tmp_path / "out"), "--tasks", "no_such_task", "--methods", "stock"]
        )
    assert wrong.value.code == 1
    said = capsys.readouterr().err
    assert "no_such_task, stock at full: no results, exit code 0" in said
    assert "the last line" in said


def test_a_transparent_file_is_the_picture_that_the_processor_sees(tmp_path):
    Image.new("RGBA", (8, 8), (0, 0, 0, 0)).save(tmp_path / "clear.png")
    (opened,) = asking._opened([{"role": "user", "content": [{"type": "image", "image": str(tmp_path / "clear.png")}]}])
    assert opened["content"][0]["image"].tobytes() == open_picture(tmp_path / "clear.png").tobytes()


def test_the_tokens_of_an_answer_are_counted_without_the_padding_of_its_batch(folder, monkeypatch):
    model, processor = load(str(folder), Condition("arrcoc", 0.1))
    pad = processor.tokenizer.pad_token_id

    def generate(input_ids, **_):
        return torch.cat([input_ids, torch.tensor([[5, 6, 7], [8, pad, pad]])], 1)

    monkeypatch.setattr(model, "generate", generate)
    parts = [{"type": "image", "image": Image.new("RGB", (96, 96))}, {"type": "text", "text": "x?"}]
    replies = ask(model, processor, Condition("arrcoc", 0.1), [[{"role": "user", "content": parts}]] * 2, SETTINGS)
    assert [reply.new_tokens for reply in replies] == [3, 1]


def test_stock_stands_before_every_row_of_all_tokens():
    rows = [{"title": title, "budget": "full", "token_budget": "full"} for title in ("arrcoc", "resize", "stock")]
    assert min((row["title"] for row in rows), key=lambda title: table._place(rows, title, "full")) == "stock"
