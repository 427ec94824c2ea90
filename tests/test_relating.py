"""RelatingStep: what a cell learns from the place of what others found."""

import pytest
import torch

from arrcoc.participating import ParticipatoryScorer
from arrcoc.relating import RelatingStep, _directions


def test_the_largest_in_each_direction_without_the_cell_itself():
    cells = torch.tensor([[1.0, 5.0, 2.0], [4.0, 3.0, 6.0]])[..., None]
    above, below, left, right = (found[..., 0].tolist() for found in _directions(cells))
    assert above == [[0, 0, 0], [1, 5, 2]]
    assert below == [[4, 3, 6], [0, 0, 0]]
    assert left == [[0, 1, 5], [0, 4, 4]]
    assert right == [[5, 2, 0], [6, 6, 0]]


@pytest.mark.parametrize("grid", [(1, 1), (1, 6), (6, 1), (5, 4)])
def test_questions_are_taken_one_by_one_on_any_grid(grid):
    torch.manual_seed(0)
    step, cells = RelatingStep(8), torch.randn(3, *grid, 8)
    together = step(cells)
    assert together.shape == cells.shape
    for number, alone in enumerate(cells):
        torch.testing.assert_close(step(alone), together[number])


def test_a_cell_is_told_of_what_stands_three_rows_off_and_along_the_row_of_that():
    torch.manual_seed(0)
    step, cells = RelatingStep(8), torch.zeros(9, 5, 8)
    found = cells.clone()
    found[4, 2] = 20.0
    told = (step(found) - step(cells)).abs().amax(-1) > 1e-4
    assert told[1:8].all()  # rows that see it, and the cells along these
    assert told[:, 2].all()  # its column
    assert not told[0, [0, 1, 3, 4]].any()
    assert not told[8, [0, 1, 3, 4]].any()


def test_the_score_hangs_on_the_steps_and_on_encoded_cells_alone():
    torch.manual_seed(0)
    scorer = ParticipatoryScorer(13, [16], 24, hidden_size=16, num_heads=4)
    torch.nn.init.ones_(scorer.gate)
    texture, features, query = torch.rand(13, 5, 6), torch.randn(30, 16), torch.randn(4, 24)
    mask, every = torch.ones(4, dtype=torch.bool), torch.arange(30)
    whole = scorer(texture, [features], query, mask)
    torch.testing.assert_close(scorer(texture, [features], query, mask, every), whole)
    part = every[::2]
    seen = scorer(texture, [features[part]], query, mask, part)
    texture.view(13, -1)[:, 1::2] = 9.0  # of cells that are not encoded
    torch.testing.assert_close(scorer(texture, [features[part]], query, mask, part), seen)
    texture = torch.rand(13, 5, 6)
    whole = scorer(texture, [features], query, mask)
    scorer.steps = torch.nn.ModuleList()
    assert (scorer(texture, [features], query, mask) - whole).abs().max() > 1e-3
    assert not ParticipatoryScorer(13, [16], 24, hidden_size=16, num_heads=4, compares_words=False).steps
