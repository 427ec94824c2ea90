"""Stage 1: what each cell is worth before the vision tower, which cells are encoded, and its gates, worked out by hand."""

import pytest
import torch

from arrcoc.layer import ARRCOCLayer, _early_gates
from arrcoc.looking import Glance, choose_to_encode

GRID = (1, 4, 4)


def glance(**maps) -> Glance:
    """A glance of `GRID` with nothing in the maps that are not given."""
    nothing = {name: torch.zeros(GRID[1:]) for name in ("information", "contrast")}
    return Glance(**{"texture": torch.zeros(13, *GRID[1:]), "canvas": None} | nothing | maps)


@pytest.mark.parametrize(
    ("coverage_floor", "wanted"),
    [(0.0, [0, 1, 4, 5]), (0.5, [0, 1, 4, 10]), (1.0, [0, 3, 10, 13])],
)
def test_a_share_is_taken_by_early_relevance_after_the_coverage_floor(coverage_floor, wanted):
    """All four high scores lie in the upper left quadrant; a floor of 1 still gives each quadrant its best cell."""
    early = [0.9, 0.8, 0.0, 0.1, 0.7, 0.6, 0.0, 0.0, 0.0, 0.0, 0.2, 0.0, 0.0, 0.3, 0.0, 0.0]
    seen = glance(early=torch.tensor(early))
    assert choose_to_encode(seen, GRID, 0.25, 1, coverage_floor).tolist() == wanted


@pytest.mark.parametrize(
    ("cells", "ratio", "budget", "wanted"),
    [
        (16, 0.3, 1, 5),  # 4.8 cells
        (16, 0.25, 1, 4),
        (16, 0.25, 7, 7),
        (100, 0.07, 1, 7),  # in floating point 7.000000000000001
        (16, 0.95, 1, None),  # 15.2 cells, so all
        (16, 0.3, 16, None),
    ],
)
def test_a_share_is_rounded_up_and_never_below_the_budget(cells, ratio, budget, wanted):
    kept = choose_to_encode(glance(early=torch.rand(cells)), (1, 1, cells), ratio, budget, 0.1)
    assert (kept if kept is None else len(kept)) == wanted


def test_auto_fills_the_budget_by_information():
    """Cells 3 and 9 are not empty; of the rest, 6 and 12 tell most. What is asked and the floor do not count."""
    contrast, information = torch.zeros(16), torch.zeros(16)
    contrast[[3, 9]], information[[6, 12]] = 0.5, torch.tensor([0.2, 0.1])
    seen = glance(contrast=contrast.view(4, 4), information=information.view(4, 4), early=torch.linspace(1, 0, 16))
    chosen = [choose_to_encode(seen, GRID, "auto", budget, 1.0).tolist() for budget in (1, 3, 4)]
    assert chosen == [[3, 9], [3, 6, 9], [3, 6, 9, 12]]


def test_early_relevance_is_the_weighted_mean_of_the_three_scores(tiny_config, monkeypatch):
    """Weights 1, 2 and 5 of maps that are 1 in one cell each: 1 / 8, 2 / 8 and 5 / 8."""
    weights = {"information_weight": 1.0, "perspective_weight": 2.0, "participation_weight": 5.0}
    layer = ARRCOCLayer(tiny_config(**weights))
    one, two, three = torch.eye(16)[:3].view(3, 4, 4)
    monkeypatch.setattr(layer.early_participation, "forward", lambda *args: three)
    monkeypatch.setattr(layer.perspective, "forward", lambda texture: two)
    seen = glance(information=one, canvas=torch.zeros(3, 64, 64))
    rated = layer.rate(seen, torch.zeros(2, 48))
    assert rated.early.tolist() == [1 / 8, 2 / 8, 5 / 8] + 13 * [0]
    assert rated.read.shape[0] == 16


def test_early_gates_read_1_and_carry_the_gradient_of_a_sigmoid():
    """Encoded 0.9, 0.7 and 0.5, highest left out 0.3: the threshold is (0.5 + 0.3) / 2 = 0.4. Kept are 0.9 and 0.7, so that with
    temperature 0.1 the arguments are 5 and 3, the gradients s (1 - s) / 0.1, and no other cell gets any."""
    early = torch.tensor([0.9, 0.1, 0.5, 0.3, 0.7], requires_grad=True)
    gates = _early_gates(early, torch.tensor([0, 2, 4]), torch.tensor([0, 4]), torch.tensor(0.1))
    assert gates.tolist() == [1.0, 1.0]
    gates.sum().backward()
    soft = torch.sigmoid(torch.tensor([5.0, 3.0]))
    torch.testing.assert_close(early.grad, torch.zeros(5).index_add(0, torch.tensor([0, 4]), soft * (1 - soft) / 0.1))
