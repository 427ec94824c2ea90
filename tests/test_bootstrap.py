"""Resampled means of two clusters: all that can be drawn, worked out by hand."""

import numpy as np
import pytest

from evaluation.bootstrap import resampled_means


def test_two_clusters_of_which_one_lacks_values():
    """Drawn are a and a, a and b, or b and b. The first column holds 1 and nothing in a, 0 and 0 in b: 1 / 1, 1 / 3 and 0 / 2;
    the second nothing in a, 0 and 1 in b: nothing, 1 / 2 and 2 / 4."""
    nothing = float("nan")
    values = np.array([[1.0, nothing], [0.0, 0.0], [nothing, nothing], [0.0, 1.0]])
    means = resampled_means(values, ["a", "b", "a", "b"])
    first, times = np.unique(means[:, 0], return_counts=True)
    assert first.tolist() == pytest.approx([0, 1 / 3, 1])
    assert (times / len(means)).tolist() == pytest.approx([1 / 4, 1 / 2, 1 / 4], abs=0.05)
    assert np.array_equal(np.isnan(means[:, 1]), means[:, 0] == 1)
    assert set(means[means[:, 0] < 1, 1]) == {0.5}
