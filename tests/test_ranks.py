"""dev.ranks: what an allocator's best scores cover."""

import sys

import pytest
import torch

from arrcoc import ARRCOCProcessor, ARRCOCQwen3VLForConditionalGeneration
from dev import ranks
from tests.small_archive import archive_files, tar_of
from training.allocator import load_allocator, save_allocator
from training.data import load_examples


def test_shares_are_those_of_the_best_scores():
    """By hand: of ten cells the best, the best and the next two hold of evidence 0, 1 and 3 of 4."""
    evidence = torch.tensor([0.0, 1, 0, 2, 0, 0, 1, 0, 0, 0])
    order = torch.tensor([2, 1, 3, 0, 4, 5, 6, 7, 8, 9])
    values = torch.empty(10).index_copy(0, order, torch.arange(10.0).flip(0))
    assert ranks.covered(values, evidence, (0.1, 0.2, 0.3), 10) == [0.0, 0.25, 0.75]
    assert ranks.covered(values[:3], evidence[:3], (0.1, 0.5), 10) == [0.0, 1.0]  # three of ten were encoded


def test_an_allocator_is_compared_with_the_models_own(checkpoint, tmp_path, monkeypatch, capsys):
    model = ARRCOCQwen3VLForConditionalGeneration.from_pretrained(checkpoint, dtype=torch.float32)
    folder, same, other = tmp_path / "model", tmp_path / "same.safetensors", tmp_path / "other.safetensors"
    save_allocator(model, same)
    load_allocator(model, same)  # rounded as the file is
    model.save_pretrained(folder)
    ARRCOCProcessor.from_pretrained(checkpoint).save_pretrained(folder)
    model.model.arrcoc.participation.gate.data.zero_()
    model.config.area_strength = 1.0  # the dials of a file are not those of the next one
    save_allocator(model, other)
    monkeypatch.setattr(
        sys,
        "argv",
        [
            "ranks",
            str(other),
            "bundled",
            str(same),
            "--model",
            str(folder),
            "--data",
            "world:one_field?grids=8x8=6",
        ],
    )
    ranks.main()
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == str(other)
    found = {line: lines[number + 1 : number + 3] for number, line in enumerate(lines) if not line.startswith(" ")}
    assert found["bundled"] == found[str(same)] != found[str(other)]
    assert all(line.startswith("  world:one_field?grids=8x8") for rows in found.values() for line in rows)


def test_parts_are_taken_out_one_after_another(checkpoint, monkeypatch, capsys):
    call = ["ranks", "bundled", "--model", str(checkpoint), "--data", "world:table?grids=8x8=12"]
    monkeypatch.setattr(sys, "argv", [*call, "--parts"])
    ranks.main()
    lines = capsys.readouterr().out.splitlines()
    titles = [line for line in lines if not line.startswith(" ")]
    assert titles == ["bundled", *(f"bundled, {part}" for part in ranks.taken_out())]
    assert "bundled, without words looked for" in titles
    assert not any("tensions" in title or "with " in title.replace("without ", "") for title in titles)
    monkeypatch.setattr(sys, "argv", [*call, "--parts", "--early"])
    with pytest.raises(SystemExit):
        ranks.main()


def test_what_is_taken_out_is_put_back(checkpoint):
    model = ARRCOCQwen3VLForConditionalGeneration.from_pretrained(checkpoint, dtype=torch.float32).eval()
    processor = ARRCOCProcessor.from_pretrained(checkpoint)
    examples = load_examples("world:table?grids=8x8&questions=6", "held_out", 3, 6)
    page = ranks.pages_of(model, processor, examples, 3, 0)[0]

    def scores(blind=False):
        with torch.no_grad():
            budgets = torch.full((len(page.evidence),), 6)
            return torch.stack([one.value for one in ranks.page_scores(model, page, budgets, blind=blind)])

    plain = scores()
    for part in ranks.taken_out():
        with ranks.without(model, part) as blind:
            assert blind == (part == "without the question")
            assert not torch.allclose(scores(blind), plain), part
        assert torch.equal(scores(), plain), part


@pytest.mark.parametrize("data", ["runs/pages", "runs/pages=few", "=3"])
def test_data_without_a_limit_is_refused(data, checkpoint, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["ranks", "bundled", "--model", str(checkpoint), "--data", data])
    with pytest.raises(SystemExit):
        ranks.main()
    assert f"--data {data}: wanted SPEC=LIMIT" in capsys.readouterr().err


def test_a_twin_without_the_question_is_asked_nothing(checkpoint, tmp_path, monkeypatch, capsys):
    model = ARRCOCQwen3VLForConditionalGeneration.from_pretrained(checkpoint, dtype=torch.float32)
    twin = tmp_path / "query_blind.safetensors"
    save_allocator(model, twin, "query_blind")
    call = ["ranks", str(twin), "--model", str(checkpoint), "--data", "world:one_field?grids=8x8=6"]
    asked = []
    scored = ranks.page_scores
    monkeypatch.setattr(
        ranks, "page_scores", lambda *args, **kwargs: asked.append(kwargs["blind"]) or scored(*args, **kwargs)
    )
    monkeypatch.setattr(sys, "argv", [*call, "--blind"])
    ranks.main()
    assert asked
    assert all(asked)
    assert capsys.readouterr().out.startswith(str(twin))
    monkeypatch.setattr(sys, "argv", call)
    with pytest.raises(ValueError, match="query_blind"):
        ranks.main()


def test_tables_that_choose_are_none_that_are_reported(tmp_path, monkeypatch):
    monkeypatch.setattr(ranks, "REPORTED", (ranks.REPORTED[0], ranks.REPORTED[1], 2))
    path = tar_of(tmp_path, archive_files())

    def table(example):
        return example.picture.task.header, example.picture.task.rows

    reported = {table(one) for one in load_examples(ranks.REPORTED[0].format(path), "held_out", ranks.REPORTED[1], 2)}
    spec, limit = ranks.TABLES["real tables, look-ups"]
    everything = {table(one) for one in load_examples(spec.format(path), "held_out", 3, ranks.ALL)}
    assert reported & everything
    chosen = ranks.unreported(spec, path, 3, limit)
    assert {table(one) for one in chosen} == everything - reported
    assert len(ranks.unreported(spec, path, 3, 1)) == 1
