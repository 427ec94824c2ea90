"""Teaching the scope of questions from their text alone: `training.train_scope`."""

from random import Random
from types import SimpleNamespace

import pytest
import torch

from arrcoc import ARRCOCProcessor, ARRCOCQwen3VLForConditionalGeneration
from training import train_scope
from training.allocator import load_allocator, read_tensors

MODEL = "checkpoints/arrcoc-small"
DATA = ("world:gist?grids=8x8&reworded=1", "world:form,one_field?grids=8x8&reworded=1")


def arguments(out, *more):
    return [
        "--model",
        MODEL,
        "--data",
        *DATA,
        "--limit",
        "60",
        "--steps",
        "40",
        "--batch-size",
        "32",
        "--out",
        str(out),
        *more,
    ]


def told(model, questions) -> list[bool]:
    tokenizer = ARRCOCProcessor.from_pretrained(MODEL).tokenizer
    asked = tokenizer(questions, add_special_tokens=False, padding=True, return_tensors="pt")
    with torch.no_grad():
        query = model.get_input_embeddings()(asked["input_ids"])
        return (model.model.arrcoc.scope(query, asked["attention_mask"].bool()) > 0).tolist()


def test_it_learns_from_text_alone_and_changes_nothing_else(tmp_path):
    out = train_scope.main(arguments(tmp_path / "new" / "allocator.safetensors", "--steps", "120", "--missed", "0.5"))
    before, after = (
        ARRCOCQwen3VLForConditionalGeneration.from_pretrained(MODEL, dtype=torch.float32) for _ in range(2)
    )
    load_allocator(after, out)
    assert told(after, ["What kind of page is this?", "What is the total?", "Which seat is shown?"]) == [
        True,
        False,
        False,
    ]
    old, new = before.model.arrcoc.state_dict(), after.model.arrcoc.state_dict()
    changed = {name for name in old if not torch.equal(old[name], new[name])}
    assert changed
    assert all(name.startswith("scope.") for name in changed)


def test_the_same_seed_gives_the_same(tmp_path):
    first, second = (train_scope.main(arguments(tmp_path / name, "--steps", "3")) for name in ("a", "b"))
    held, same = read_tensors(first)[0], read_tensors(second)[0]
    assert held.keys() == same.keys()
    assert all(torch.equal(held[name], same[name]) for name in held)


def test_questions_are_read_as_the_processor_reads_them(monkeypatch):
    said = [("What does it show? Answer with one word.", "gist"), ("photo", "form"), ("TAX OF BUTTER", "table")]
    examples = [SimpleNamespace(question=question, family=family) for question, family in said]
    monkeypatch.setattr(train_scope, "load_examples", lambda *_: examples)
    whole, others = train_scope.read_questions(["any"], {"gist"}, 0, None)
    assert whole == ["What does it show?"]
    assert others == ["What's the photo?", "Tax of butter TAX OF BUTTER"]


def test_a_quarter_of_a_batch_is_about_the_whole_image():
    questions, labels = train_scope.draw_batch(["What kind of page is this?"], ["What is the total?"], 4000, Random(0))
    assert 0.22 < labels.float().mean() < 0.28
    alike = [one for one, whole in zip(questions, labels, strict=True) if not whole and one.startswith("What kind of")]
    assert 300 < len(alike) < 500
    assert not any("page" in one for one in alike)


def test_what_names_no_picture_is_not_turned_into_another_question():
    assert train_scope.about_something("What is this?", Random(0)) is None
    assert train_scope.about_something("Describe the Page.", Random(0)).startswith("Describe the ")


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--whole", "nothing"), "0 questions of nothing and 120 others"),
        (("--steps", "0"), "--steps 0"),
        (("--spread", "nan"), "--spread nan"),
        (("--data", "no/such/folder"), "no/such/folder"),
        (("--model", "no/such/model"), "--model no/such/model has no config.json; pass the folder"),
        (("--learning-rate", "1e30"), "; lower --learning-rate"),
    ],
)
def test_what_can_not_be_trained_is_refused(more, said, tmp_path, capsys):
    with pytest.raises(SystemExit):
        train_scope.main(arguments(tmp_path / "out.safetensors", *more))
    assert said in capsys.readouterr().err
    assert not (tmp_path / "out.safetensors").exists()


def test_an_out_that_can_not_be_written_is_refused_before_anything_is_trained(tmp_path, monkeypatch, capsys):
    (tmp_path / "file").touch()
    monkeypatch.setattr(train_scope, "train_scope", lambda *_: pytest.fail("trained"))
    for out in (tmp_path, tmp_path / "file" / "a.safetensors"):
        with pytest.raises(SystemExit):
            train_scope.main(arguments(out))
        assert f"--out {out} can't be written; pass a file" in capsys.readouterr().err


def test_bad_records_are_left_out_where_that_is_asked_for(tmp_path, page, capsys):
    page(64, 48).save(tmp_path / "0.png")
    lines = ['{"file_name": "0.png", "question": "", "answers": ["x"]}']
    lines += ['{"file_name": "0.png", "question": "What is this page?", "answers": ["x"], "family": "gist"}']
    lines += ['{"file_name": "0.png", "question": "What is the total?", "answers": ["x"], "family": "form"}']
    (tmp_path / "metadata.jsonl").write_text("\n".join(lines))
    out = tmp_path / "out" / "allocator.safetensors"
    with pytest.raises(SystemExit):
        train_scope.main(arguments(out, "--data", str(tmp_path)))
    assert "--skip-bad" in capsys.readouterr().err
    train_scope.main(arguments(out, "--data", str(tmp_path), "--steps", "2", "--skip-bad"))
    assert "1 questions about the whole image and 1 about something" in capsys.readouterr().out
