"""From a staged folder to the Hub and back: the contract, the card, pushing to a Hub on loopback, loading from it."""

import copy
import csv
import io
import json
import os
import re
import shutil
import subprocess
import sys

import pytest
import torch
from huggingface_hub import HfApi, ModelCard
from PIL import Image
from safetensors.torch import load_file, save_file
from transformers import AutoModelForImageTextToText
from transformers.dynamic_module_utils import get_imports, get_relative_imports

import upload
from arrcoc import ARRCOCProcessor
from arrcoc.checkpoint import COARSE_MARK, RESTORER, SCOPE
from evaluation.records import model_fingerprint
from publishing import card, contract, fresh, pushing, results, staging
from publishing.files import ALLOCATOR, ASSEMBLING, CARD, CODE_FILES, PICTURES, ROOT, files_of, human_size, sha256_of
from publishing.fresh import LoadFailed, load_in_fresh_process
from publishing.pushing import PushError, Target
from tests.fake_hub import READ, WRITE, serve
from training.allocator import load_allocator, read_tensors, save_allocator, write_tensors

REPO, TAG = "me/arrcoc", "v1"


@pytest.fixture(scope="module")
def staged(tiny_folder, tmp_path_factory):
    """A staged folder; not to be changed."""
    return staging.stage_release(staging.Source(str(tiny_folder)), tmp_path_factory.mktemp("staged") / "out")


@pytest.fixture
def folder(staged, tmp_path):
    """A staged folder that the test may change."""
    return shutil.copytree(staged, tmp_path / "folder")


@pytest.fixture
def hub(monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_DISABLE_XET", True)
    with serve() as running:
        yield running


@pytest.fixture
def api(hub):
    return HfApi(endpoint=hub.endpoint, token=WRITE)


def push(folder, api, **options):
    made = pushing.plan(folder, Target(REPO, **{"tag": TAG, **options}), api)
    return made if made.is_done else pushing.execute(made, api)


def environment(hub, tmp_path, token=WRITE):
    return {"HF_ENDPOINT": hub.endpoint, "HF_HOME": str(tmp_path / "home"), "HF_TOKEN": token, "HF_HUB_OFFLINE": "0"}


# The contract


def test_a_staged_folder_can_be_read_by_others(staged):
    files = [path for path in staged.rglob("*") if path.is_file()]
    assert {path.stat().st_mode & 0o777 for path in files} == {0o644}


def test_a_staged_folder_keeps_the_contract(staged):
    assert contract.problems_of(staged) == []
    assert set(files_of(staged)) == {path.name for path in staged.iterdir()}
    assert {path.name for path in staged.glob("*.py")} == {*CODE_FILES, "handler.py"}
    assert {*PICTURES, "LICENSE"} <= set(files_of(staged))


def edit(name, change):
    def breaks(folder):
        value = json.loads((folder / name).read_text())
        change(value)
        (folder / name).write_text(json.dumps(value))

    return breaks


def write(name, content):
    def breaks(folder):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(content)

    return breaks


def put_nan(folder):
    tensors = load_file(folder / "model.safetensors")
    next(iter(tensors.values())).view(-1)[0] = torch.nan
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def truncate(folder):
    content = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(content[: len(content) // 2])


def link(folder):
    (folder / "notes.txt").symlink_to(ROOT / "LICENSE")


BROKEN = {
    "no weights": (lambda f: (f / "model.safetensors").unlink(), "no weights"),
    "no tokenizer": (lambda f: (f / "tokenizer.json").unlink(), "tokenizer.json is missing"),
    "an empty file": (write("config.json", b""), "config.json is empty"),
    "a lost code file": (lambda f: (f / "texture.py").unlink(), "texture.py is missing"),
    "a code file too many": (write("extra.py", b"x = 1\n"), "extra.py is not in the list"),
    "code that is none": (write("texture.py", b"def"), "texture.py is no Python"),
    "an import of what does not ship": (write("layer.py", b"from .absent import x\n"), "layer.py imports .absent"),
    "an import that the loader can't follow": (
        write("layer.py", b"from . import texture\n"),
        "layer.py:1 has a relative",
    ),
    "no map": (edit("config.json", lambda c: c.pop("auto_map")), "auto_map has no AutoConfig"),
    "code of another repository": (
        edit("config.json", lambda c: c["auto_map"].update(AutoModel="you/theirs--modeling.X")),
        "takes its code from another place",
    ),
    "a map of nothing": (edit("config.json", lambda c: c.update(auto_map=None)), "auto_map has no AutoConfig"),
    "a map that is none": (
        edit("config.json", lambda c: c.update(auto_map=["x"])),
        "auto_map is ['x'], wanted a loader",
    ),
    "a class that is not there": (
        edit("processor_config.json", lambda c: c["auto_map"].update(AutoProcessor="processing_arrcoc.Absent")),
        "does not define",
    ),
    "a pickle by name": (write("training_args.bin", b"x"), "may run code"),
    "a pickle by content": (write("sub/weights", b"\x80\x04x"), "starts like a pickle"),
    "a link": (link, "is a link"),
    "a token": (write("merges.txt", b"\nhf_" + b"a" * 34), "merges.txt:2 holds a Hugging Face token"),
    "a password": (write("merges.txt", b"https://me:secret@example.com"), "holds a password"),
    "a path": (edit("config.json", lambda c: c.update(path="/home/me/x")), "path of this computer"),
    "NaN": (put_nan, "holds NaN"),
    "a truncated file": (truncate, "no whole safetensors"),
    "a changed file": (write("chat_template.jinja", b"x"), "chat_template.jinja is not the file whose SHA-256"),
    "a license that is none": (
        lambda f: (f / CARD).write_text((f / CARD).read_text().replace("license: apache-2.0", "license: foo bar")),
        f"{CARD}: license='foo bar' is no license id of the Hub; name one",
    ),
    "a card that is no YAML": (write(CARD, b"---\nlicense: [mit\n---\n"), f"{CARD}: its metadata can't be read"),
    "a card without its tags": (write(CARD, b"---\nlicense: mit\n---\n"), "tag conversational is missing"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_folder_is_told(name, folder, api, hub):
    breaks, words = BROKEN[name]
    breaks(folder)
    with pytest.raises(PushError, match="not fit to be sent") as told:
        push(folder, api)
    assert words in str(told.value)
    assert not hub.calls


def test_an_index_that_names_a_lost_shard_is_told(folder):
    tensors = load_file(folder / "model.safetensors")
    index = {"weight_map": {name: "model-2.safetensors" for name in tensors}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    assert any("names lm_head" in p or "where it is not" in p for p in contract.problems_of(folder))
    for damaged in (None, ["x"]):
        (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": damaged}))
        assert any("weight_map that is no object" in p for p in contract.problems_of(folder))


def test_weights_of_a_byte_each_are_read(folder):
    tensors = load_file(folder / "model.safetensors")
    name = next(name for name in tensors if "layers.0.mlp.up_proj" in name)
    for value, told in ((1.0, False), (torch.nan, True)):
        tensors[name] = torch.full((2, 2), value).to(torch.float8_e4m3fn)
        save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
        assert any(f"{name} holds NaN" in problem for problem in contract.problems_of(folder)) == told


def test_check_prints_problems_and_fails(folder, capsys):
    assert upload.main(["check", str(folder), "--contract-only"]) == 0
    (folder / "bad.pkl").write_text("x")
    assert upload.main(["check", str(folder), "--contract-only"]) == 1
    assert "problem: bad.pkl" in capsys.readouterr().err
    assert upload.main(["check", str(folder / "absent")]) == 1


def test_staging_leaves_nothing_after_an_error(tiny_folder, tmp_path, capsys):
    out = tmp_path / "new" / "out"
    wanted = ["stage", str(out), "--checkpoint", str(tiny_folder), "--allocator-only"]
    assert upload.main(wanted) == 1
    assert "is no repository on the Hub" in capsys.readouterr().err
    assert not any(out.parent.iterdir())


def test_a_folders_allocator_alone_names_the_base_that_it_is_a_copy_of(tiny_folder, tmp_path, monkeypatch):
    monkeypatch.setattr(staging, "commit_of", lambda base, revision: {("you/base", None): "a" * 40}[base, revision])
    out = tmp_path / "out"
    wanted = ["stage", str(out), "--checkpoint", str(tiny_folder), "--allocator-only", "--base-model", "you/base"]
    assert upload.main(wanted) == 0
    for name in ("config.json", "processor_config.json"):
        settings = json.loads((out / name).read_text())
        assert (settings["base_model"], settings["base_revision"]) == ("you/base", "a" * 40)
    assert f"[you/base](https://huggingface.co/you/base) at `{'a' * 40}`" in (out / CARD).read_text()
    assert contract.problems_of(out) == []


def test_an_allocator_alone_names_one_base(tmp_path, capsys):
    wanted = ["stage", str(tmp_path / "out"), "--checkpoint", "me/base", "--allocator-only", "--base-model", "you/base"]
    assert upload.main(wanted) == 1
    assert "--checkpoint me/base is the base of this allocator" in capsys.readouterr().err


@pytest.mark.parametrize("license", ["foo bar", "Apache-2.0", "", "mit\n", "-mit", "a_b"])
def test_a_license_that_is_none_is_refused_before_anything_is_written(license, tiny_folder, tmp_path, capsys):
    wanted = ["stage", str(tmp_path / "out"), "--checkpoint", str(tiny_folder), f"--license={license}"]
    assert upload.main(wanted) == 1
    assert f"license={license!r} is no license id of the Hub" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (["--base-model", "bad id"], "base_model='bad id' is no Hub id"),
        (["--revision", "main"], "revision='main' has no effect on"),
    ],
)
def test_what_a_folder_can_not_have_is_refused_before_anything_is_written(wrong, told, tiny_folder, tmp_path, capsys):
    assert upload.main(["stage", str(tmp_path / "out"), "--checkpoint", str(tiny_folder), *wrong]) == 1
    assert told in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_licenses_of_the_hub_are_taken():
    for license in ("other", "apache-2.0", "cc-by-nc-sa-4.0", "llama3.1", "bigscience-openrail-m", "mit"):
        assert staging.Source("x", license=license).license == license


def test_an_allocator_without_the_question_is_not_staged(tiny_folder, tiny_model, tmp_path, capsys):
    save_allocator(tiny_model(), tmp_path / "blind.safetensors", scorer="query_blind")
    wanted = ["stage", str(tmp_path / "out"), "--checkpoint", str(tiny_folder)]
    assert upload.main([*wanted, "--allocator", str(tmp_path / "blind.safetensors")]) == 1
    assert "trained without the question" in capsys.readouterr().err


# The card


def test_the_card_says_what_the_files_are(staged):
    text = (staged / CARD).read_text()
    data = ModelCard(text).data.to_dict()
    assert data["pipeline_tag"] == "image-text-to-text"
    assert {"custom_code", "conversational"} <= set(data["tags"])
    assert "base_model" not in data
    assert "model-index" not in data
    assert "## Measured" not in text
    for name in set(files_of(staged)) - {CARD}:
        assert f"| `{name}` | {human_size((staged / name).stat().st_size)} | `{sha256_of(staged / name)}` |" in text
    assert "{{" not in text
    assert "{%" not in text
    pinned = card.pin(text, REPO, TAG)
    assert f'model="{REPO}", revision="{TAG}"' in pinned
    assert "OWNER" not in pinned
    assert card.pin("OWNER/NAME at REVISION", "you/REVISION-x", "v1") == "you/REVISION-x at v1"


def run_of(tmp_path, model, **header):
    """Files as `evaluation.run` writes them, with figures that are easy to find again."""
    rows = []
    for method, budget, value, tokens in (
        ("full", "full", 0.75, 48),
        ("arrcoc", "0.25", 0.5, 12),
        ("resize", "0.25", 0.125, 12),
        ("tome", "0.25", 0.25, 12),
    ):
        for family in ("form", "all"):
            row = {"method": method, "budget": budget, "family": family, "questions": 8, "pictures": 4, "sources": 3}
            row |= {
                "exact_match": value,
                "exact_match_low": value - 0.1,
                "exact_match_high": value + 0.1,
                "tokens": tokens,
            }
            rows.append(row | {"evidence_recall": "", "prefill_ratio": 0.375, "prefill_note": "all tokens are read"})
    path = tmp_path / "mine.csv"
    lines = [",".join(rows[0]), *(",".join(str(value) for value in row.values()) for row in rows)]
    path.write_text("\n".join(lines) + "\n")
    arguments = {"data": "world", "dtype": "float32", "model": model_fingerprint(model), "limit": 8, **header}
    arguments["parameters"] = model.num_parameters()
    path.with_suffix(".jsonl").write_text(json.dumps({"header": arguments}) + "\n")
    return path


def test_a_card_leads_with_what_the_model_answers(tiny_folder, tmp_path):
    source = staging.Source(str(tiny_folder), base_model="you/base")
    unread, read = tmp_path / "a", tmp_path / "b"
    model = source.load(torch.float32)
    for folder in (unread, read):
        folder.mkdir()
        path = run_of(folder, model)
        for ending in (".csv", ".jsonl"):
            path.with_suffix(ending).rename(tmp_path / f"{folder.name}{ending}")
    none = (tmp_path / "a.csv").read_text().replace("0.75", "0.0")
    (tmp_path / "a.csv").write_text(none)
    found = results.find_results(source, None, model.num_parameters(), tmp_path)
    assert [result.path.stem for result in found] == ["b", "a"]


def test_the_card_says_that_tokens_are_spread_only_of_what_does_so(staged, tiny_folder):
    source = staging.Source(str(tiny_folder), base_model="you/base")
    model = source.load(torch.float32)
    for trained in (0.0, 1.0):
        torch.nn.init.constant_(model.model.arrcoc.scope.score.weight, trained)
        said = "a question about the whole image gets them spread evenly" in card.render(staged, source, model, [])
        assert said == bool(trained)


def test_measured_numbers_come_from_the_results_files(tiny_folder, tmp_path):
    source = staging.Source(str(tiny_folder), base_model="you/base")
    path = run_of(tmp_path, source.load(torch.float32))
    out = staging.stage_release(source, tmp_path / "out", results=[path])
    text = (out / CARD).read_text()
    data = ModelCard(text).data
    assert data.base_model == "you/base"
    assert data.to_dict()["base_model_relation"] == "finetune"
    found = [(e.metric_value, e.metric_type, e.metric_name, e.dataset_name) for e in data.eval_results]
    assert found == [
        (0.5, "exact_match", "exact match, 25% of the visual tokens", "world"),
        (0.75, "exact_match", "exact match, all visual tokens", "world"),
    ]
    assert "| 25% | 12 | 0.38 | 50.0% (40.0% to 60.0%) |  |" in text
    assert "| resize | 12.5% (2.5% to 22.5%) |  |" in text
    assert "| all tokens |  | 75.0% (65.0% to 85.0%) |" in text
    assert "| in the style of ToMe | 25.0% (15.0% to 35.0%) |  |" in text
    assert "8 questions on 4 pictures of 3 sources; data `world`" in text
    assert "resampled by source (a picture, or a table that several pictures show)" in text
    assert "12 tokens a picture answer 50.0% of the questions correctly, all 48 answer 75.0%" in text
    assert contract.problems_of(out) == []


@pytest.mark.parametrize(
    ("data", "shown"),
    [
        ("/home/me/of a client/pages", "pages"),
        ("wikitables:../../of a client/tables?page=12x16", "wikitables:tables?page=12x16"),
        ("./pages", "pages"),
        ("wikitables:/srv/tables?page=12x16", "wikitables:tables?page=12x16"),
        (r"C:\Users\me\pages", "pages"),
        ("~/pages", "pages"),
        ("runs/pages", "runs/pages"),
        ("world:form,scene?grids=12x12", "world:form,scene?grids=12x12"),
        ("hub:you/pages?split=test", "hub:you/pages?split=test"),
        ("runs/übersicht", "runs/übersicht"),
    ],
)
def test_the_card_names_no_folder_of_its_author(data, shown, tiny_folder, tiny_model, staged, tmp_path):
    source, out = staging.Source(str(tiny_folder), base_model="you/base"), tmp_path / "out"
    shutil.copytree(staged, out)
    text = card.render(out, source, tiny_model(), [results.read_result(run_of(tmp_path, tiny_model(), data=data))])
    (out / CARD).write_text(text)
    assert f"data `{shown}`" in text
    assert f"On {shown}, 12 tokens" in text
    measured = ModelCard(text).data.eval_results
    assert {entry.dataset_name for entry in measured} == {shown}
    # as the Hub's own check of a card has it
    assert all(re.fullmatch("([A-Za-z0-9_-]+/)?[A-Za-z0-9_.-]+", entry.dataset_type) for entry in measured)
    assert contract.problems_of(out) == []


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        (lambda text: text.replace("type: world\n", "type: world?grids=12x12\n"), "the type of a dataset"),
        (lambda text: text + "\nmeasured on /home/me/pages\n", "path of this computer"),
    ],
)
def test_a_card_that_the_hub_or_its_author_would_regret_is_told(changed, told, tiny_folder, tmp_path):
    source = staging.Source(str(tiny_folder), base_model="you/base")
    out = staging.stage_release(source, tmp_path / "out", results=[run_of(tmp_path, source.load(torch.float32))])
    assert contract.problems_of(out) == []
    (out / CARD).write_text(changed((out / CARD).read_text()))
    assert any(told in problem for problem in contract.problems_of(out))


def test_a_run_of_one_source_without_timing_has_no_intervals_and_no_times(tiny_folder, tmp_path):
    model = staging.Source(str(tiny_folder)).load(torch.float32)
    path = run_of(tmp_path, model)
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        row.update(exact_match_low="", exact_match_high="", prefill_ratio="")
        row["tokens"] = 3 if (row["method"], row["family"]) == ("arrcoc", "form") else row["tokens"]
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    (found,) = results.find_results(staging.Source(str(tiny_folder)), [path], model.num_parameters())
    assert "50.0% (no interval over one source)" in results.comparison(found, "exact_match")
    head, _, line, *_ = results.costs(found).splitlines()
    assert head == "| budget | visual tokens per picture | exact match | evidence recall |"
    assert line == "| 25% | 12 | 50.0% (no interval over one source) |  |"
    assert "12 tokens a picture answer 50.0%" in results.lost(found), "of all families, not of the smallest"
    for row in found.rows:
        row["exact_match"] = 0.5
    assert results.lost(found) is None, "a budget that answers as much loses nothing"


def test_results_of_another_model_are_not_shown(tiny_folder, tiny_model, tmp_path):
    source = staging.Source(str(tiny_folder))
    model = source.load(torch.float32)
    other = tiny_model("pooled")
    path = run_of(tmp_path, other)
    with pytest.raises(ValueError, match="measured on another model"):
        results.find_results(source, [path], model.num_parameters())
    assert results.find_results(source, None, other.num_parameters(), tmp_path) == []
    path = run_of(tmp_path, model)
    assert [run.path for run in results.find_results(source, None, model.num_parameters(), tmp_path)] == [path]
    header = json.loads(path.with_suffix(".jsonl").read_text())["header"]
    del header["parameters"]  # as runs of before have it
    path.with_suffix(".jsonl").write_text(json.dumps({"header": header}) + "\n")
    assert [run.path for run in results.find_results(source, None, 1, tmp_path)] == [path]
    path = run_of(tmp_path, model, processor="of larger pictures")
    assert results.find_results(source, None, model.num_parameters(), tmp_path) == []
    with pytest.raises(ValueError, match="measured with another processor"):
        results.find_results(source, [path], model.num_parameters())
    (tmp_path / "old.csv").write_text("method,share\nfull,1\n")
    with pytest.raises(ValueError, match="no results of a run"):
        results.find_results(source, [tmp_path / "old.csv"], 0)


def test_a_model_of_another_size_is_not_loaded_again_for_results_in_the_folder(tmp_path, tiny_model):
    class Source:
        def load(self, dtype):
            pytest.fail("loaded again")

    model = tiny_model()
    run_of(tmp_path, model)
    assert results.find_results(Source(), None, model.num_parameters() + 1, tmp_path) == []


def test_budgets_are_named_in_words():
    told = [results._spent(budget) for budget in (0.25, 64, 1, "full")]
    assert told == ["25% of the visual tokens", "64 visual tokens", "1 visual token", "all visual tokens"]


def test_the_citation_is_that_of_the_citation_file(tmp_path, monkeypatch):
    path = tmp_path / "CITATION.cff"
    path.write_text(
        "title: A title\nversion: 1.2.0\ndate-released: 2026-01-02\nauthors:\n"
        "  - {family-names: Doe, given-names: Ada}\n  - {name: A group}\n"
    )
    monkeypatch.setattr(card, "CITATION", path)
    text = card.citation()
    for field in ("title = {A title}", "author = {Doe, Ada and A group}", "version = {1.2.0}", "year = {2026}"):
        assert field in text


def test_sizes_are_those_that_the_hub_shows():
    assert [human_size(size) for size in (0, 999, 1000, 13_220_760, 4_300_000_000)] == [
        "0 B", "999 B", "1.0 kB", "13.2 MB", "4.3 GB",
    ]  # fmt: skip


# Pushing


def test_push_makes_one_commit_and_a_tag_and_again_nothing(folder, api, hub):
    (folder / "private notes.md").write_text("not in the list")
    (folder / "sub").mkdir()
    (folder / "sub" / "config.json").write_text("{}")
    push(folder, api, private=True)
    repository = hub.repositories[REPO]
    assert repository.private
    assert hub.count("/commit/") == 1
    files = repository.commits[repository.tags[TAG]]
    assert repository.branches["main"] == repository.tags[TAG]
    assert set(files) - {".gitattributes"} == set(files_of(folder))
    for name in set(files_of(folder)) - {CARD}:
        assert files[name] == (folder / name).read_bytes()
    assert f'revision="{TAG}"' in files[CARD].decode()

    again = push(folder, api)
    assert again.is_done
    assert again.head == repository.tags[TAG]
    assert hub.count("/commit/") == 1


def test_further_chat_templates_are_sent_too(tiny_folder, processor, api, hub, tmp_path):
    """transformers keeps them in a folder of their own, and lists that of a repository."""
    both = copy.deepcopy(processor)
    both.chat_template = {"default": processor.chat_template, "short": "{{ messages[0]['content'][0]['text'] }}"}
    shutil.copytree(tiny_folder, tmp_path / "both")
    both.save_pretrained(tmp_path / "both")
    name = "additional_chat_templates/short.jinja"
    staged = staging.stage_release(staging.Source(str(tmp_path / "both"), base_model="you/base"), tmp_path / "release")
    assert contract.problems_of(staged) == contract.notes_of(staged)[1:] == []
    assert name in (staged / CARD).read_text()
    push(staged, api)
    repository = hub.repositories[REPO]
    assert repository.commits[repository.tags[TAG]][name] == (staged / name).read_bytes()
    (staged / "additional_chat_templates" / "notes.md").write_text("not in the list")
    assert any("notes.md is not in the list and stays here" in note for note in contract.notes_of(staged))
    other = staging.stage_release(staging.Source(str(tiny_folder), base_model="you/base"), tmp_path / "one")
    with pytest.raises(PushError, match=r"holds model files .* additional_chat_templates/short\.jinja"):
        pushing.plan(other, Target(REPO, tag="v2"), api)


def test_a_second_push_sends_what_changed_under_a_new_tag(folder, api, hub, tiny_folder, tmp_path):
    push(folder, api)
    newer = staging.stage_release(staging.Source(str(tiny_folder), base_model="you/base"), tmp_path / "newer")
    with pytest.raises(PushError, match="pass a new --tag"):
        push(newer, api)
    made = pushing.plan(newer, Target(REPO, tag="v2"), api)
    assert [(item.name, item.state) for item in made.sent] == [(CARD, "changed")]
    pushing.execute(made, api)
    repository = hub.repositories[REPO]
    assert set(repository.tags) == {"v1", "v2"}
    assert repository.commits[repository.tags["v1"]] != repository.commits[repository.tags["v2"]]
    assert hub.count("/blobs/") == len(list(folder.glob("*.safetensors"))) + len(PICTURES)
    assert pushing.plan(newer, Target(REPO, tag="v2"), api).is_done


@pytest.mark.parametrize(("endpoint", "told"), [("commit", "no file is in it yet"), ("tag", "the commit .* was made")])
def test_an_interrupted_push_goes_on(endpoint, told, folder, api, hub):
    hub.broken[endpoint] = 500
    with pytest.raises(PushError, match=f"answered 500.*{told}"):
        push(folder, api)
    blobs, commits = hub.count("/blobs/"), len(hub.repositories[REPO].commits)
    push(folder, api)
    repository = hub.repositories[REPO]
    assert hub.count("/blobs/") == blobs  # what was sent is not sent again
    assert len(repository.commits) == (commits if endpoint == "tag" else commits + 1) == 2
    assert repository.tags[TAG] == repository.branches["main"]


def test_a_branch_that_moved_is_not_written_over(folder, api, hub):
    push(folder, api)
    made = pushing.plan(folder, Target(REPO, tag="v2", revision="next"), api)
    pushing.execute(made, api)
    made = pushing.plan(folder, Target(REPO, tag="v3"), api)
    assert made.sent  # the card names its tag
    repository = hub.repositories[REPO]
    theirs = repository.commit({**repository.commits[repository.branches["main"]], "theirs.md": b"x"}, "main")
    with pytest.raises(PushError, match="changed since it was compared; nothing was sent"):
        pushing.execute(made, api)
    assert repository.branches["main"] == theirs
    assert set(repository.branches) == {"main", "next"}


def test_a_repository_of_something_else_is_left_alone(folder, api, hub):
    api.create_repo(REPO)
    repository = hub.repositories[REPO]
    repository.commit({"pytorch_model.bin": b"x", "docs/a.json": b"x"}, "main")
    with pytest.raises(PushError, match=r"model files that .* has not: pytorch_model.bin; .*--replace"):
        push(folder, api)
    with pytest.raises(PushError, match="already and is public; leave out --private"):
        push(folder, api, private=True)
    push(folder, api, replace=True)
    assert "pytorch_model.bin" not in repository.commits[repository.tags[TAG]]
    assert "docs/a.json" in repository.commits[repository.tags[TAG]]


def test_a_pull_request_leaves_branch_and_tags(folder, api, hub):
    api.create_repo(REPO)
    before = dict(hub.repositories[REPO].branches)
    assert push(folder, api, create_pr=True).endswith("/discussions/1")
    assert hub.repositories[REPO].branches == before
    assert not hub.repositories[REPO].tags
    (card,) = (
        item for item in pushing.items_of(folder, Target(REPO, "main", TAG, create_pr=True)) if item.name == CARD
    )
    assert TAG.encode() not in card.source
    (card,) = (item for item in pushing.items_of(folder, Target(REPO, "main", TAG)) if item.name == CARD)
    assert f'revision="{TAG}"'.encode() in card.source


def test_refusals_say_what_to_do(folder, hub, monkeypatch, tmp_path):
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("huggingface_hub.constants.HF_TOKEN_PATH", str(tmp_path / "none"))
    cases = [
        (None, hub.endpoint, "no token: run `hf auth login`.*nothing was sent"),
        ("hf_unknown", hub.endpoint, "does not know this token"),
        (READ, hub.endpoint, "may not write to me/arrcoc.*nothing was sent"),
        (WRITE, "http://127.0.0.1:9", "did not answer.*nothing was sent"),
    ]
    for token, endpoint, words in cases:
        with pytest.raises(PushError, match=words):
            push(folder, HfApi(endpoint=endpoint, token=token))
    for name in ("arrcoc", "me/arr coc", "me/arrcoc/x"):
        with pytest.raises(PushError, match=r"names no repository|must use|Repo id"):
            pushing.plan(folder, Target(name), HfApi(endpoint=hub.endpoint, token=WRITE))
    assert not hub.repositories


def test_the_command_line_shows_the_plan_and_asks(folder, api, hub, monkeypatch, capsys):
    monkeypatch.setattr("huggingface_hub.HfApi", lambda: api)
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    wanted = ["push", str(folder), "--repo-id", REPO, "--tag", TAG]
    assert upload.main(wanted) == 1
    out = capsys.readouterr()
    assert f"to {REPO} (new public model repository), branch main" in out.out
    assert sha256_of(folder / "model.safetensors") in out.out
    assert "pass --yes" in out.err
    assert not hub.repositories
    assert upload.main([*wanted, "--yes"]) == 0
    assert upload.main([*wanted, "--yes"]) == 0
    assert "nothing changed" in capsys.readouterr().out
    assert upload.main([*wanted, "--create-pr", "--revision", "next"]) == 2


# Loading from the Hub, in fresh processes


def answer_of(model, processor, chat):
    """What `model` says in this process to what the fresh process asks, at a budget of 9."""
    with Image.open(PICTURES["page.png"]) as picture:
        inputs = processor.apply_chat_template(
            [chat(picture, card.QUESTION)], tokenize=True, add_generation_prompt=True, return_dict=True,
            return_tensors="pt", processor_kwargs={"token_budget": 9},
        )  # fmt: skip
    output = model.generate(**inputs, max_new_tokens=8, do_sample=False)
    return processor.batch_decode(output[:, inputs["input_ids"].shape[1] :], skip_special_tokens=True)[0]


def test_a_pushed_model_loads_by_revision_and_answers(folder, api, hub, tmp_path, tiny_model, processor, chat):
    push(folder, api)
    hub.repositories[REPO].commit({"README.md": b"main has moved on"}, "main")
    result = load_in_fresh_process(
        REPO, PICTURES["page.png"], revision=TAG, offline=False, **environment(hub, tmp_path, READ)
    )
    assert result["class"] == "ARRCOCQwen3VLForConditionalGeneration"
    assert result["tokens"]["9"] == 9
    assert result["answers"]["9"] == answer_of(tiny_model(), processor, chat) != ""


def test_a_folder_that_does_not_load_is_told(folder):
    (folder / "layer.py").write_text("raise RuntimeError('broken on purpose')\n")
    with pytest.raises(LoadFailed, match="broken on purpose"):
        load_in_fresh_process(folder, PICTURES["page.png"])


def test_an_allocator_alone_is_put_together_with_its_base(
    tiny_model, stock_twin, processor, chat, api, hub, tmp_path, monkeypatch
):
    model = copy.deepcopy(tiny_model())  # whose restorer and mark are lost here
    base = tmp_path / "base"
    stock_twin(model).save_pretrained(base)
    processor.save_pretrained(base)
    for name in base.glob("*.py"):
        name.unlink()
    api.create_repo("me/base")
    commit = hub.repositories["me/base"].commit({path.name: path.read_bytes() for path in base.iterdir()}, "main")
    hub.repositories["me/base"].tags["v1"] = commit
    hub.repositories["me/base"].commit({"README.md": b"the base has moved on"}, "main")
    save_allocator(model, tmp_path / "trained.safetensors")
    tensors, metadata = read_tensors(tmp_path / "trained.safetensors")
    later = (*RESTORER, *COARSE_MARK, *SCOPE)  # older code has none of these
    tensors = {name: tensor for name, tensor in tensors.items() if not name.startswith(later)}
    write_tensors(tmp_path / "trained.safetensors", tensors, metadata)
    load_allocator(model, tmp_path / "trained.safetensors")  # as rounded as everybody's

    out = tmp_path / "out"
    command = ["stage", out, "--checkpoint", "me/base", "--revision", "v1", "--allocator-only"]
    done = subprocess.run(
        [sys.executable, ROOT / "upload.py", *command, "--allocator", tmp_path / "trained.safetensors"],
        env={**os.environ, **environment(hub, tmp_path)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    config = json.loads((out / "config.json").read_text())
    assert (config["base_model"], config["base_revision"]) == ("me/base", commit)
    assert f"[me/base](https://huggingface.co/me/base) at `{commit}`" in (out / CARD).read_text()
    assert not list(out.glob("model*.safetensors")) + list(out.glob("tokenizer*"))
    assert contract.problems_of(out) == []
    data = ModelCard((out / CARD).read_text()).data.to_dict()
    assert (data["base_model"], data["base_model_relation"]) == ("me/base", "adapter")
    assert (out / ALLOCATOR).read_bytes() == (tmp_path / "trained.safetensors").read_bytes()

    for load in (type(model), AutoModelForImageTextToText, ARRCOCProcessor):  # of this process, which imports arrcoc
        with pytest.raises(ValueError, match=r"holds an allocator without its base, .* load me/base"):
            load.from_pretrained(out)
    push(out, api)
    whole = tmp_path / "whole"
    save = "".join(f"{name}.save_pretrained({str(whole)!r})\n" for name in ("model", "processor"))
    save += "pooling = AutoModelForImageTextToText.from_pretrained(where, coarse_share=0.2, **pinned)\n"
    save += "assert pooling.model.arrcoc.adapter is not None\n"  # which no allocator without pooled cells brings
    save += "from peft import LoraConfig, get_peft_model\n"
    save += "tuned = get_peft_model(pooling, LoraConfig(r=2, target_modules=['q_proj'], init_lora_weights=False))\n"
    save += f"tuned.save_pretrained({str(tmp_path / 'tuned')!r})\n"
    save += (
        f"again = AutoModelForImageTextToText.from_pretrained({str(tmp_path / 'tuned')!r}, trust_remote_code=True)\n"
    )
    save += "made, read = ({n.replace('base_model.model.', ''): p for n, p in m.named_parameters()} for m in (tuned, again))\n"
    save += "lora = [n for n in made if '.lora_' in n]\n"
    save += "assert lora and all(made[n].equal(read[n]) for n in lora) and type(again) is type(model)\n"
    monkeypatch.setattr("publishing.fresh._SCRIPT", fresh._SCRIPT.replace("print(", save + "print("))
    result = load_in_fresh_process(
        REPO, PICTURES["page.png"], revision=TAG, offline=False, **environment(hub, tmp_path, READ)
    )
    assert result["class"] == "ARRCOCQwen3VLForConditionalGeneration"
    assert result["answers"]["9"] == answer_of(model, processor, chat) != ""

    # These would look to a user like a failure.
    alarms = "not supported", "LOAD REPORT", "not sharded"
    assert not [line for line in result["warnings"] if any(alarm in line for alarm in alarms)]

    # What was put together is saved whole: an ordinary folder, with nothing of the base's name left.
    assert {path.name for path in whole.glob("*.py")} == set(CODE_FILES)
    saved = json.loads((whole / "config.json").read_text())
    assert "base_model" not in saved
    assert saved["auto_map"]["AutoModel"] == "modeling_arrcoc_qwen.ARRCOCQwen3VLForConditionalGeneration"
    state = load_file(whole / "model.safetensors")
    new = {name for name in state if any(f"arrcoc.{part}" in name for part in (*RESTORER, *COARSE_MARK, *SCOPE))}
    assert all(torch.equal(state[name], model.state_dict()[name]) for name in state.keys() - new)
    neutral = (".leave.", ".coarse_mark.", ".scope.score.")
    assert not any(state[name].any() for name in new if any(part in name for part in neutral))


def test_the_assembling_file_keeps_the_loaders_rules():
    path = ROOT / "publishing" / ASSEMBLING
    assert {f"{module}.py" for module in get_relative_imports(path)} <= set(CODE_FILES)
    third_party = {"torch", "transformers", "safetensors", "huggingface_hub"}
    assert {name.split(".")[0] for name in get_imports(path)} <= third_party | sys.stdlib_module_names
