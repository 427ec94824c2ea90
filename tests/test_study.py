"""dev.study: short runs that differ in one part, each trained and measured."""

import argparse

import pytest
import torch

from arrcoc import matching
from arrcoc.participating import ParticipatoryScorer
from dev import study
from training.world import KINDS
from training.world.__main__ import write

WORLD = "world:one_field?grids=8x8"


def test_a_study_trains_and_measures_every_run_once(checkpoint, tmp_path, capsys):
    out, plain = tmp_path / "parts.csv", ParticipatoryScorer.forward
    call = [
        "parts",
        "--names",
        "all",
        "without visual tokens",
        "without words looked for",
        "--model",
        str(checkpoint),
        "--out",
        str(out),
    ]
    call += ["--seeds", "1", "--train-data", WORLD, "--data", WORLD, "--ahead", "2", "--steps", "2", "--limit", "2"]
    study.main([*call, "--batch-size", "4"])
    rows = study.read(out)
    assert [row["name"] for row in rows] == ["all", "without visual tokens", "without words looked for"]
    for row in rows:
        assert int(row["steps"]) == 2
        assert all(
            0 <= float(row[f"{metric} at {k}"]) <= 1
            for metric in ("evidence_recall", "exact_match")
            for k in (0.1, 0.25)
        )
    assert ParticipatoryScorer.forward is plain
    written = out.read_bytes()
    study.main([*call, "--batch-size", "4"])
    assert out.read_bytes() == written
    assert capsys.readouterr().out.count("| without visual tokens | 1 |") == 2
    with pytest.raises(SystemExit):
        study.main([*call, "--data", WORLD, WORLD])
    assert "two of a kind" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        study.main([*call, "--batch-size", "8"])
    assert "rows of another model" in capsys.readouterr().err
    assert out.read_bytes() == written


def test_several_data_are_measured_each_in_columns_of_its_own(checkpoint, tmp_path, monkeypatch):
    trained, plain = [], study.train_allocator.main
    monkeypatch.setattr(study.train_allocator, "main", lambda call: trained.append(call) or plain(call))
    folder, out = tmp_path / "pages", tmp_path / "parts.csv"
    write(folder, 2, "held_out", 0, KINDS["one_field"])
    call = [
        "parts",
        "--names",
        "all",
        "without the question",
        "--model",
        str(checkpoint),
        "--out",
        str(out),
        "--seeds",
        "1",
    ]
    call += ["--data", WORLD, str(folder), "--train-data", WORLD, "--ahead", "2", "--steps", "1", "--limit", "2"]
    study.main([*call, "--batch-size", "2"])
    for row in study.read(out):
        assert {name.rpartition(": ")[0] for name in row if " at " in name} == {"world", str(folder)}
        assert all(0 <= float(row[name]) <= 1 for name in row if " at " in name)
    asked, blind = [call[call.index("--signals") + 1] for call in trained]
    assert "named" in asked
    assert blind == ",".join(signal for signal in asked.split(",") if "named" not in signal)


def test_data_without_boxes_are_measured_by_their_answers(tmp_path, monkeypatch):
    def answered(call):
        out = tmp_path / "measured.csv"
        assert call[call.index("--out") + 1] == str(out.with_suffix(""))
        out.write_text("family,budget,evidence_recall,exact_match\nall,0.1,,0.5\nform,0.1,,1\n")

    monkeypatch.setattr(study.run, "main", answered)
    options = argparse.Namespace(model="m", limit=2, data=["folder"])
    assert study._measured(options, "folder", [], tmp_path / "measured") == {"exact_match at 0.1": 0.5}


@torch.no_grad()
@pytest.mark.parametrize(("part", "found"), [("without words looked for", 0), ("without phrases looked for", 8)])
def test_a_part_that_is_left_out_finds_nothing(part, found):
    """The first 8 features of a matcher are of words, those behind them of phrases."""
    matcher = matching.WordMatcher((6,), 5, 16, 4, 3)
    given = [torch.randn(4, 6)], torch.randn(2, 5), torch.ones(2, dtype=torch.bool), (2, 2)
    patch, _ = study.PARTS[part]
    assert matcher(*given)[:, 8:].any()
    with patch():
        left = matcher(*given)
    assert not left[:, found:].any()
    assert left[:, :found].any() == bool(found)


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        (["--shard", "2/1"], "no part of several"),
        (["--shard", "x"], "no part of several"),
        (["--names", "nonsense"], "--names 'nonsense': "),
    ],
)
@pytest.mark.parametrize("kind", ["signals", "parts"])
def test_bad_options_are_told_before_anything_is_trained(kind, bad, says, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(study, "train_and_measure", lambda *args: pytest.fail("it trained"))
    with pytest.raises(SystemExit):
        study.main([kind, "--out", str(tmp_path / "rows.csv"), *bad])
    assert says in capsys.readouterr().err
