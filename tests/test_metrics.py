"""Scores against values worked out by hand, as `evaluate` loads them without a network, and intervals that hold what they say."""

from pathlib import Path

import evaluate
import numpy as np
import pytest

from evaluation.bootstrap import intervals, resampled_means
from evaluation.metrics import anls, as_number, evidence_recall, exact_match, normalise, relaxed_accuracy
from evaluation.metrics.anls.anls import edit_distance

METRICS = Path(__file__).parents[1] / "evaluation" / "metrics"


@pytest.fixture
def load(monkeypatch, tmp_path):
    """`load(name)`: the metric as a user gets it, with the network refused."""

    def refuse(*args, **kwargs):
        raise AssertionError("the network was asked")

    monkeypatch.setattr("socket.socket.connect", refuse)
    return lambda name: evaluate.load(str(METRICS / name), cache_dir=str(tmp_path))


def test_exact_match_ignores_case_and_white_space():
    assert normalise("  Gate  F4\n") == "gate f4"
    assert exact_match("gate f4", ["B1", "Gate  F4"]) == 1
    assert exact_match("gate f", ["Gate F4"]) == 0
    assert exact_match("", ["Gate F4"]) == 0


@pytest.mark.parametrize("metric", [exact_match, anls, relaxed_accuracy])
def test_an_accent_counts_the_same_apart_from_its_letter(metric):
    assert metric("café", ["cafe\u0301"]) == metric("cafe\u0301", ["café"]) == 1.0
    assert metric("cafe", ["café"]) < 1


def test_edit_distance():
    assert edit_distance("kitten", "sitting") == edit_distance("sitting", "kitten") == 3
    assert edit_distance("", "abc") == 3
    assert edit_distance("abc", "abc") == 0


@pytest.mark.parametrize(
    ("prediction", "references", "wanted"),
    [
        ("Hello", ["hello"], 1.0),
        ("hallo", ["hello"], 0.8),  # 1 of 5
        ("abcd", ["abxy"], 0.0),  # 2 of 4 is not below the threshold of a half
        ("abcde", ["abcxy"], 0.6),  # 2 of 5 is
        ("hallo", ["nothing", "hello", "hallo!"], 1 - 1 / 6),  # the best reference counts
        ("", ["hello"], 0.0),
    ],
)
def test_anls(prediction, references, wanted):
    assert anls(prediction, references) == pytest.approx(wanted)


@pytest.mark.parametrize(
    ("prediction", "references", "wanted"),
    [
        ("95", ["100"], 1.0),
        ("105", ["100"], 1.0),
        ("94.9", ["100"], 0.0),
        ("1,050", ["$1000"], 1.0),
        ("-95", ["-100"], 1.0),
        ("95", ["-100"], 0.0),
        ("12%", ["0.12"], 1.0),
        ("0.001", ["0"], 0.0),
        ("0", ["0"], 1.0),
        ("Blue", ["blue"], 1.0),
        ("blu", ["blue"], 0.0),
        ("41", ["forty", "42"], 1.0),
        ("nan", ["100"], 0.0),
    ],
)
def test_relaxed_accuracy(prediction, references, wanted):
    assert relaxed_accuracy(prediction, references) == wanted


def test_as_number():
    assert as_number(" 3.5% ") == pytest.approx(0.035)
    assert as_number("1,234") == 1234
    assert [as_number(text) for text in ("-$5", "$-5", "- €5", "+$ 5", "-$1,000%")] == [-5, -5, -5, 5, -10]
    assert [as_number(text) for text in ("5 €", "12.50€", "-1,234,567.5 $")] == [5, 12.5, -1234567.5]
    assert [as_number(text) for text in ("1,2", "12,50", "1,2345", "1234,567", "1,234,56", "1.5,000")] == [None] * 6
    assert [as_number(text) for text in ("0,123", "0,050", "000,123", "1,234.5,6", "1,234e5")] == [None] * 5
    assert [as_number(text) for text in ("1,234.", "+12,345.6 %")] == [1234, pytest.approx(123.456)]
    assert [as_number(text) for text in ("A4", "inf", "nan", "", "12 km", "1_000", "-$-5")] == [None] * 7


def test_evidence_recall():
    weight = [[0.5, 0.25], [0.0, 0.25]]
    assert evidence_recall([[True, False], [True, True]], weight) == 0.75
    assert evidence_recall([[False, False], [True, False]], weight) == 0
    with pytest.raises(ValueError, match="same grid"):
        evidence_recall([[True]], weight)
    with pytest.raises(ValueError, match=r"sum to 0\.5"):
        evidence_recall([[True, True]], [[0.5, 0.0]])
    for wrong in ([[1.5, -0.5]], [[float("nan"), 1.0]]):
        with pytest.raises(ValueError, match="below 0 or NaN"):
            evidence_recall([[True, True]], wrong)


@pytest.mark.parametrize(("name", "wanted"), [("exact_match", 0.5), ("anls", 0.9), ("relaxed_accuracy", 0.5)])
def test_text_metrics_load_without_a_network(load, name, wanted):
    result = load(name).compute(predictions=["Hello", "hallo"], references=[["x", "hello"], ["hello"]])
    assert result[name] == pytest.approx(wanted)
    assert result["scores"][0] == 1
    with pytest.raises(ValueError, match="no predictions came"):
        load(name).compute(predictions=[], references=[])


def test_evidence_metric_loads_without_a_network(load):
    kept = [[[True, False]], [[True], [True]]]
    result = load("evidence_recall").compute(predictions=kept, references=[[[0.5, 0.5]], [[1.0], [0.0]]])
    assert result == {"evidence_recall": 0.75, "kept_whole": 0.5, "scores": [0.5, 1.0]}
    nearly = load("evidence_recall").compute(predictions=[[[True, False]]], references=[[[0.98, 0.02]]])
    assert nearly["kept_whole"] == 0  # a letter may be missing
    with pytest.raises(ValueError, match="no predictions came"):
        load("evidence_recall").compute(predictions=[], references=[])


def test_certain_values_have_no_width_and_the_mean_is_inside():
    spread = intervals(np.stack([np.ones(100), np.array([0.0, 1.0] * 50)], axis=1), range(100))
    assert spread[:, 0].tolist() == [1, 1, 1]
    mean, low, high = spread[:, 1]
    assert mean == 0.5
    assert 0.35 < low < 0.45 < 0.55 < high < 0.65  # the standard error is 0.05


def test_the_same_seed_gives_the_same_interval():
    values = np.random.default_rng(0).random((30, 2))
    assert np.array_equal(intervals(values, range(30), seed=3), intervals(values, range(30), seed=3))
    assert not np.array_equal(intervals(values, range(30), seed=3), intervals(values, range(30), seed=4))


def test_differences_are_paired():
    """Two methods that differ on one question of 50: the paired interval is far narrower than either one's own."""
    one = np.random.default_rng(0).integers(0, 2, 50).astype(float)
    other = one.copy()
    other[0] = 1 - other[0]
    means = resampled_means(np.stack([one, other, one - other], axis=1), range(50))
    assert np.allclose(means[:, 0] - means[:, 1], means[:, 2])
    assert means[:, 2].std() < 0.4 * means[:, 0].std()


def test_questions_of_one_picture_are_drawn_together():
    """Copies of a question on the same picture tell nothing new."""
    values = np.random.default_rng(0).integers(0, 2, (40, 1)).astype(float)
    alone = intervals(values, range(40))
    copied = intervals(values.repeat(5, axis=0), np.arange(40).repeat(5))
    assert np.allclose(alone, copied)


def test_missing_values_are_left_out():
    spread = intervals(np.array([[1.0, np.nan], [np.nan, np.nan], [0.0, np.nan]]), ["a", "b", "c"], resamples=50)
    assert spread[0, 0] == 0.5
    assert np.isnan(spread[:, 1]).all()
    few = intervals(np.array([[1.0, 1.0], [np.nan, 0.0], [0.0, 0.0]]), ["a", "b", "a"], resamples=50)
    assert few[0].tolist() == pytest.approx([0.5, 1 / 3])
    assert np.isnan(few[1:, 0]).all()  # all of one cluster: how clusters differ is not known
    assert not np.isnan(few[1:, 1]).any()


def test_bootstrap_refuses_what_does_not_fit():
    for values, clusters in ((np.ones(3), "abc"), (np.ones((0, 1)), ""), (np.ones((3, 1)), "ab")):
        with pytest.raises(ValueError, match="one row per question"):
            intervals(values, list(clusters))


def test_intervals_hold_the_truth_nineteen_times_in_twenty():
    """400 data sets of 60 pictures with 3 correlated questions each; the true mean is known."""
    random = np.random.default_rng(0)
    clusters = np.arange(60).repeat(3)
    # One column per data set: a picture's ease, shared by its questions, and chance.
    ease = random.normal(size=(60, 400)).repeat(3, axis=0)
    values = 0.3 + ease + random.normal(size=(180, 400))
    _, low, high = intervals(values, clusters, resamples=1000)
    assert 0.91 < ((low < 0.3) & (high > 0.3)).mean() < 0.98
    _, low, high = intervals(values, range(180), resamples=1000)
    assert ((low < 0.3) & (high > 0.3)).mean() < 0.88  # without clusters they are too narrow
