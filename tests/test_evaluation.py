"""The measurements: what counts as a hit, what each method gives the model, what is written."""

import csv
import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from evaluation import methods, run
from evaluation.pages import folder_examples, world_examples


@pytest.fixture(scope="module")
def examples():
    return world_examples(3, seed=77)  # grids 8 x 8, 8 x 8 and 8 x 12


def test_normalise_ignores_case_and_white_space():
    assert run.normalise("  Gate  F4\n") == "gate f4"


def test_interval_of_certain_hits_is_a_point_and_of_mixed_hits_holds_their_mean():
    assert run.interval(np.ones(20)) == (1.0, 1.0)
    low, high = run.interval(np.array([0.0, 1.0] * 50))
    assert 0.35 < low < 0.5 < high < 0.65  # the standard error is 0.05


def test_every_method_gives_the_model_the_same_number_of_tokens(model, processor, examples):
    wanted = [16, 16, 24]
    assert methods.budgets_of(processor, examples, 0.25) == wanted
    for name, method in methods.METHODS.items():
        inputs = method(model, processor, examples, 0.25)
        counts = (inputs["input_ids"] == model.config.image_token_id).sum(-1).tolist()
        # A smaller image has whole rows and columns: never more tokens, and at most one row or column fewer.
        slack = 4 if name == "resize" else 0
        assert all(want - slack <= count <= want for count, want in zip(counts, wanted, strict=True)), (name, counts)


def test_random_cells_differ_from_draw_to_draw_and_stand_in_raster_order(model, processor, examples):
    torch.manual_seed(0)
    first, second = (methods.random(model, processor, examples[:1], 0.25)["mm_encoder_outputs"]["image"] for _ in "ab")
    (one,), (two,) = first.deepstack_features[-1], second.deepstack_features[-1]
    assert one.shape == two.shape == (16, 3)
    assert not torch.equal(one, two)
    cells = one[:, 1] * 8 + one[:, 2]
    assert (cells.diff() > 0).all()


def test_table_and_rows_of_a_small_run(model, processor, examples):
    rows = run.evaluate(model, processor, examples, ["arrcoc", "resize"], [0.25], batch_size=2, max_new_tokens=2)
    assert {(row["method"], row["share"]) for row in rows} == {("full", 1.0), ("arrcoc", 0.25), ("resize", 0.25)}
    full = next(row for row in rows if row["method"] == "full" and row["family"] == "all")
    assert full["questions"] == 3
    assert full["tokens"] == pytest.approx((64 + 64 + 96) / 3)
    assert run.table(rows).splitlines()[0] == "| all (3 questions) | 100% of tokens | 25% |"


def test_a_right_answer_is_a_hit_and_a_wrong_one_is_not(model, processor, examples, monkeypatch):
    right = [replace(example, answers=("yes", "42")) for example in examples]
    monkeypatch.setattr(run, "answer", lambda m, p, inputs, n: ((["42"] * 3, [1] * 3)))
    assert run.evaluate(model, processor, right, [], [], batch_size=3)[-1]["exact_match"] == 1
    wrong = [replace(example, answers=("43",)) for example in examples]
    assert run.evaluate(model, processor, wrong, [], [], batch_size=3)[-1]["exact_match"] == 0


def test_command_line_writes_csv_and_ends_with_json(tmp_path, capsys):
    run.main(["--pages", "1", "--budgets", "0.5", "--methods", "resize", "--out", str(tmp_path / "deep" / "result")])
    with open(tmp_path / "deep" / "result.csv", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [(row["method"], row["family"]) for row in rows[:2]] == [("full", "one_field"), ("full", "all")]
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["data"] == "world"


@pytest.mark.parametrize("bad", [["--methods", "resize,magic"], ["--budgets", "1.5"]])
def test_command_line_refuses_what_it_does_not_know(bad):
    with pytest.raises(SystemExit):
        run.main(bad)


def test_folder_of_pictures(tmp_path):
    world_examples(1, seed=5)[0].image.save(tmp_path / "a.png")
    (tmp_path / "metadata.jsonl").write_text('{"file_name": "a.png", "question": "total?", "answers": ["1", "one"]}\n')
    (only,) = folder_examples(tmp_path)
    assert (only.question, only.answers, only.family) == ("total?", ("1", "one"), "all")
    (tmp_path / "metadata.jsonl").write_text('{"file_name": "a.png", "question": "total?"}\n')
    with pytest.raises(ValueError, match=r"metadata.jsonl:1 lacks answers"):
        folder_examples(tmp_path)
    with pytest.raises(ValueError, match="imagefolder"):
        folder_examples(tmp_path / "nowhere")
