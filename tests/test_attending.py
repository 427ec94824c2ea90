"""The plan: which cells, where and how deep, worked out by hand; and what holds for every grid, budget and share."""

import copy
import dataclasses
import math
import pickle
import time

import pytest
import torch

from arrcoc.allocation import Allocation, apply_to_deepstack, apply_to_tokens, mean_of_cells
from arrcoc.attending import (
    attend,
    cover,
    depths,
    rank,
    straight_through_gates,
    suppress_similar,
)
from arrcoc.balancing import Balance
from arrcoc.layer import QualityAdapter

GRIDS = [(1, 1, 1), (1, 1, 113), (1, 113, 1), (1, 7, 9), (2, 3, 5), (1, 16, 16)]


def plan(scores, grid, budget, coverage_floor=0.0, coarse_share=0.0, min_deepstack_levels=None, num_levels=3):
    return attend(
        torch.as_tensor(scores, dtype=torch.float32).flatten(),
        grid,
        budget,
        coverage_floor=coverage_floor,
        coarse_share=coarse_share,
        min_deepstack_levels=min_deepstack_levels,
        num_levels=num_levels,
    )


def allocation(plan, grid) -> Allocation:
    flat = torch.zeros(grid)
    tensions = {"compress_particularize": 0.0, "exploit_explore": 0.5, "focus_diversify": -0.5}
    return Allocation(grid=grid, relevance=flat, scores={"information": flat}, tensions=tensions, **plan)


def test_highest_scores_in_raster_order():
    """Scores 0.1 0.9 0.2 / 0.8 0.3 0.7: the best three are cells 1, 3 and 5."""
    made = plan([[0.1, 0.9, 0.2], [0.8, 0.3, 0.7]], (1, 2, 3), 3)
    assert made["positions"].tolist() == [[0, 0, 1], [0, 1, 0], [0, 1, 2]]
    assert made["cell_token"].tolist() == [-1, 0, -1, 1, -1, 2]
    assert made["level"].tolist() == [0, 0, 0]
    assert made["depth"].tolist() == [3, 3, 3]
    assert made["positions"].dtype == torch.long


def test_frames_come_one_after_the_other():
    """Two frames of 1 x 2 cells: cell 2 is the first of frame 1."""
    made = plan([0.1, 0.5, 0.9, 0.2], (2, 1, 2), 2)
    assert made["positions"].tolist() == [[0, 0, 1], [1, 0, 0]]


def test_equal_scores_are_taken_in_raster_order():
    assert plan(torch.zeros(6), (1, 2, 3), 2)["positions"].tolist() == [[0, 0, 0], [0, 0, 1]]
    # Differences below the step of comparison count as equal: the last bits differ from device to device.
    assert rank(torch.tensor([0.50001, 0.50003, 0.5, 0.6])).tolist() == [3, 0, 1, 2]
    assert rank(torch.tensor([0.5, 0.5002])).tolist() == [1, 0]


def test_coverage_floor_takes_the_best_cell_of_each_quadrant():
    """All four high scores lie in the upper left quadrant; a floor of 1 still gives each quadrant its best cell."""
    scores = torch.tensor(
        [
            [0.90, 0.80, 0.00, 0.10],
            [0.70, 0.60, 0.00, 0.00],
            [0.00, 0.00, 0.20, 0.00],
            [0.00, 0.30, 0.00, 0.00],
        ]
    )
    grid = (1, 4, 4)
    assert plan(scores, grid, 4)["positions"][:, 1:].tolist() == [[0, 0], [0, 1], [1, 0], [1, 1]]
    assert plan(scores, grid, 4, coverage_floor=1.0)["positions"][:, 1:].tolist() == [[0, 0], [0, 3], [2, 2], [3, 1]]
    # Half of the budget: the best of the left and of the right half, then the two best of the rest.
    assert plan(scores, grid, 4, coverage_floor=0.5)["positions"][:, 1:].tolist() == [[0, 0], [0, 1], [1, 0], [2, 2]]


@pytest.mark.parametrize("grid", GRIDS)
@pytest.mark.parametrize("count", [1, 3, 10, 100])
def test_coverage_leaves_no_large_hole(grid, count):
    """The blocks partition the grid evenly: at most `count`, one cell each, and no side above twice the ideal."""
    scores = torch.rand(math.prod(grid), generator=torch.Generator().manual_seed(count))
    cells = cover(scores, grid, count, rank(scores)).nonzero().flatten()
    assert 1 <= len(cells) <= min(count, len(scores))
    height, width = grid[0] * grid[1], grid[2]
    row, column = cells // width, cells % width
    side = 2 * max(math.sqrt(height * width / count), height / count, width / count) + 1
    all_row, all_column = torch.arange(height)[:, None, None], torch.arange(width)[None, :, None]
    distance = torch.maximum((all_row - row).abs(), (all_column - column).abs()).amin(-1)
    assert distance.max() <= side


def test_coverage_of_no_cells():
    scores = torch.rand(12)
    assert not cover(scores, (1, 3, 4), 0, rank(scores)).any()
    assert len(plan(torch.rand(12), (1, 3, 4), 1, coverage_floor=0.5)["positions"]) == 1


def test_pooled_cells_by_hand():
    """Budget 3, two of them pooled: cell 0 stays fine; the lower right 2 x 2 block (mean 0.5) gets one token, whose cells
    are all as near to its middle: the first, cell 10; the other 11 cells get one 4 x 4 token, whose middle
    (14 / 11, 14 / 11) is nearest to cell 5."""
    scores = torch.zeros(4, 4)
    scores[0, 0] = 1
    scores[2:, 2:] = torch.tensor([[0.6, 0.4], [0.2, 0.8]])
    made = plan(scores, (1, 4, 4), 3, coarse_share=0.67, min_deepstack_levels=1)
    assert made["positions"][:, 1:].tolist() == [[0, 0], [1, 1], [2, 2]]
    assert made["level"].tolist() == [0, 2, 1]
    assert made["cell_token"].view(4, 4).tolist() == [[0, 1, 1, 1], [1, 1, 1, 1], [1, 1, 2, 2], [1, 1, 2, 2]]
    tokens = torch.arange(16.0)[:, None].repeat(1, 2)
    pooled = apply_to_tokens(allocation(made, (1, 4, 4)), tokens)
    expected = [0, (sum(range(1, 10)) + 12 + 13) / 11, (10 + 11 + 14 + 15) / 4]
    torch.testing.assert_close(pooled, torch.tensor(expected)[:, None].repeat(1, 2))


def test_the_mean_of_a_pooled_cell_is_finite_where_its_sum_is_not_in_float16():
    pooled = mean_of_cells(torch.full((16, 2), 5000.0, dtype=torch.float16), torch.zeros(16, dtype=torch.long), 1)
    assert pooled.dtype == torch.float16
    assert pooled.tolist() == [[5000, 5000]]


def test_pooling_gives_what_finds_no_block_back_to_fine_cells():
    """15 tokens for 16 cells can't have 13 pooled ones: a 4 x 4 grid has four 2 x 2 blocks and one of 4 x 4."""
    for share in (0.0, 0.5, 0.9):
        assert len(plan([0.3, 0.4], (1, 1, 2), 2, coarse_share=share)["positions"]) == 2
    made = plan(torch.rand(16), (1, 4, 4), 15, coarse_share=0.9)
    assert len(made["positions"]) == 15


def test_depth_by_hand():
    """Four tokens, levels 3 to 1: thirds of the ranking, 0 1 | 2 | 3 -> 3 3 2 1; down to 0 each rank has its own."""
    scores = torch.tensor([0.1, 0.4, 0.3, 0.2])
    assert depths(scores, 1, 3).tolist() == [1, 3, 3, 2]
    assert depths(scores, 0, 3).tolist() == [0, 3, 2, 1]
    assert depths(scores, None, 3).tolist() == [3, 3, 3, 3]
    assert depths(scores, 3, 3).tolist() == [3, 3, 3, 3]
    assert depths(scores, 0, 0).tolist() == [0, 0, 0, 0]
    assert depths(scores[:1], 1, 3).tolist() == [3]


def test_deepstack_rows_below_a_tokens_depth_are_zero():
    grid = (1, 1, 4)
    made = allocation(plan([0.1, 0.4, 0.3, 0.2], grid, 4, min_deepstack_levels=1), grid)
    levels = [torch.full((4, 2), 1.0 + number) for number in range(3)]
    kept = apply_to_deepstack(made, levels)
    assert [level[:, 0].tolist() for level in kept] == [[1, 1, 1, 1], [0, 2, 2, 2], [0, 3, 3, 0]]
    untouched = apply_to_deepstack(allocation(plan(torch.rand(4), grid, 4), grid), levels)
    for before, after in zip(levels, untouched, strict=True):
        assert torch.equal(before, after)
    levels[1][0] = torch.inf
    assert apply_to_deepstack(made, levels)[1][0].tolist() == [0, 0], "dropped, and not multiplied by zero"


def test_gates_read_1_and_carry_the_gradient_of_a_sigmoid():
    """Kept 0.9 and 0.7, highest dropped 0.5: the threshold is (0.7 + 0.5) / 2 = 0.6. With temperature 0.1 the arguments are
    3 and 1, the gradients s (1 - s) / 0.1, and a dropped cell gets none."""
    scores = torch.tensor([0.9, 0.2, 0.5, 0.7], requires_grad=True)
    temperature = torch.tensor(0.1, requires_grad=True)
    made = allocation(plan(scores, (1, 2, 2), 2), (1, 2, 2))
    gates = straight_through_gates(scores, made, temperature)
    assert gates.tolist() == [1.0, 1.0]
    gates.sum().backward()
    steep = [torch.sigmoid(torch.tensor(x)) for x in (3.0, 1.0)]
    expected = torch.tensor([float(s * (1 - s)) / 0.1 for s in steep])
    torch.testing.assert_close(scores.grad[[0, 3]], expected)
    assert scores.grad[[1, 2]].tolist() == [0, 0]
    assert temperature.grad < 0  # a wider gate is less sure of cells above the threshold


def test_gradient_raises_the_scores_of_tokens_that_help():
    """A loss that falls as the first kept token grows: the gradient step raises its score."""
    scores = torch.tensor([0.9, 0.2, 0.5, 0.7], requires_grad=True)
    made = allocation(plan(scores, (1, 2, 2), 2), (1, 2, 2))
    tokens = straight_through_gates(scores, made, torch.tensor(0.1))[:, None] * torch.tensor([[2.0], [3.0]])
    (-tokens[0].sum()).backward()
    assert scores.grad[0] < 0  # descent adds to the score
    assert scores.grad[3] == 0


def test_suppress_similar_by_hand():
    """Cells 0 and 1 have the same features, cell 2 the opposite ones: cell 1 loses half of what it has more than the lowest,
    0.2, cell 2 nothing. What all cells have alike changes nothing."""
    relevance = torch.tensor([0.8, 0.6, 0.4])
    features = torch.tensor([[1.0, 0.0], [1.0, 0.0], [-2.0, 0.0]])
    after = suppress_similar(relevance, features, torch.tensor(0.5), 3)
    torch.testing.assert_close(after, torch.tensor([0.8, 0.5, 0.4]))
    for shared in (100.0, -100.0):
        shifted = suppress_similar(relevance + shared, features, torch.tensor(0.5), 3)
        torch.testing.assert_close(shifted, after + shared)
    assert torch.equal(suppress_similar(relevance, features, torch.tensor(0.0), 3), relevance)


@pytest.mark.parametrize("diversity", [0.0, 0.25])
def test_the_layer_suppresses_only_where_diversity_asks(diversity, new_model, tiny_config):
    layer = new_model(tiny_config(diversity=diversity)).model.arrcoc
    relevance, features = torch.tensor([[[0.9, 0.8], [0.2, 0.1]]]), torch.tensor([[1.0, 0], [1, 0], [0, 1], [0, 1]])
    strength = torch.tensor(2 * diversity)
    balance = Balance(relevance, torch.zeros(3), torch.tensor(0.1), strength, 0.0)
    value = layer.allocator(balance, {}, (1, 2, 2), 2, features).value
    assert torch.equal(value, suppress_similar(relevance.flatten(), features, strength, 2))
    assert torch.equal(value, relevance.flatten()) == (diversity == 0)


def test_suppress_similar_uses_the_cosine_to_the_most_similar_higher_cell():
    """Features around a mean of zero: (1, 0), (0.6, 0.8) and their counterweight. The cosine of the first two is 0.6."""
    features = torch.tensor([[1.0, 0.0], [0.6, 0.8], [-1.6, -0.8]])
    after = suppress_similar(torch.tensor([0.5, 0.4, 0.3]), features, torch.tensor(1.0), 3)
    torch.testing.assert_close(after, torch.tensor([0.5, 0.4 - 0.6 * 0.1, 0.3]))


def test_suppress_similar_takes_off_what_all_cells_share():
    """Shifted by (10, 10), raw cosines are all near 1; what tells the cells apart is the same as before."""
    relevance = torch.tensor([0.8, 0.6, 0.4])
    features = torch.tensor([[11.0, 10.0], [11.0, 10.0], [8.0, 10.0]])
    torch.testing.assert_close(
        suppress_similar(relevance, features, torch.tensor(0.5), 3), torch.tensor([0.8, 0.5, 0.4])
    )


def test_suppress_similar_compares_only_cells_that_can_be_reached():
    """A budget of 1 compares 4 candidates: the fifth of five like cells keeps its relevance."""
    features = torch.tensor([[1.0]] * 5 + [[-5.0]])
    relevance = torch.tensor([0.9, 0.8, 0.7, 0.6, 0.5, 0.4])
    after = suppress_similar(relevance, features, torch.tensor(0.5), 1)
    torch.testing.assert_close(after, torch.tensor([0.9, 0.6, 0.55, 0.5, 0.5, 0.4]))


def test_cells_that_were_not_compared_pass_none_that_was():
    """Of two hundred cells the first hundred are alike; a budget of 8 compares 32 of them."""
    relevance = 1 - torch.arange(200) / 1000
    features = torch.tensor([[1.0]] * 100 + [[-1.0]] * 100)
    after = suppress_similar(relevance, features, torch.tensor(0.3), 8)
    assert rank(after)[:8].tolist() == [*range(8)]
    assert rank(after)[32:].tolist() == [*range(32, 200)]
    torch.testing.assert_close(after[40:].diff(), relevance[40:].diff())


def test_suppression_is_differentiable_in_relevance_and_strength():
    relevance = torch.tensor([0.8, 0.6, 0.4], requires_grad=True)
    strength = torch.tensor(0.5, requires_grad=True)
    features = torch.tensor([[1.0, 0.0], [1.0, 0.0], [-2.0, 0.0]])
    suppress_similar(relevance, features, strength, 3).sum().backward()
    torch.testing.assert_close(relevance.grad, torch.tensor([1.0, 0.5, 1.0]))
    torch.testing.assert_close(strength.grad, torch.tensor(-0.2))


def check_plan(made: dict, grid, budget: int, num_levels: int = 3):
    """What every plan must hold: K tokens, raster order, each on a cell that it pools, each cell in one block's token."""
    cells = math.prod(grid)
    _, height, width = grid
    token_of, level, depth = made["cell_token"], made["level"], made["depth"]
    index = allocation(made, grid).raster
    assert len(index) == len(level) == len(depth) == budget
    assert (index.diff() > 0).all()  # raster order, and unique
    assert index.min() >= 0
    assert index.max() < cells
    assert token_of.shape == (cells,)
    assert token_of[index].tolist() == list(range(budget))
    assert token_of.max() == budget - 1
    assert depth.min() >= 0
    assert depth.max() <= num_levels
    every = torch.arange(cells)
    frame, row, column = every // (height * width), every // width % height, every % width
    size = 2 ** level[token_of.clamp_min(0)]
    fed = token_of >= 0
    # All cells of a token lie in one aligned block of its level, within one frame.
    block = torch.stack([frame, row // size, column // size], dim=-1)
    stands = torch.stack([frame[index], row[index] // 2**level, column[index] // 2**level], dim=-1)
    assert torch.equal(block[fed], stands[token_of[fed]])


@pytest.mark.parametrize("seed", range(60))
def test_any_plan_holds_its_rules(seed):
    generator = torch.Generator().manual_seed(seed)

    def number(high):
        return int(torch.randint(1, high + 1, (), generator=generator))

    grid = (number(2), number(12), number(12))
    cells = math.prod(grid)
    scores = torch.randn(cells, generator=generator)
    if seed % 3 == 0:
        scores = scores.round()  # many equal ones
    for share in (0.0, 0.3, 0.9):
        for floor in (0.0, 0.1, 1.0):
            budget = number(cells)
            made = plan(scores, grid, budget, floor, share, min_deepstack_levels=seed % 4)
            check_plan(made, grid, budget)
            if not share:
                assert (made["cell_token"] >= 0).sum() == budget
                assert made["level"].max() == 0


@pytest.mark.parametrize("grid", [(1, 1, 1), (1, 1, 113), (1, 113, 1), (1, 128, 128)])
def test_any_grid(grid):
    cells = math.prod(grid)
    scores = torch.rand(cells, generator=torch.Generator().manual_seed(0))
    for budget in {1, min(cells, 64), cells}:
        for share in (0.0, 0.5):
            began = time.process_time()
            made = plan(scores, grid, budget, coverage_floor=0.1, coarse_share=share, min_deepstack_levels=1)
            assert time.process_time() - began < 5  # seconds of CPU; a fraction of one is usual
            check_plan(made, grid, budget)


def test_no_coverage_gives_the_top_k():
    scores = torch.rand(200, generator=torch.Generator().manual_seed(1))
    made = plan(scores, (1, 10, 20), 37)
    top = (scores / 1e-4).round().topk(37).values.min()
    assert ((scores[made["cell_token"] >= 0] / 1e-4).round() >= top).all()


@pytest.mark.parametrize("budget", [0, -1, 13])
def test_budget_outside_of_the_grid_is_refused(budget):
    with pytest.raises(ValueError, match=rf"{budget} tokens does not fit .* pass 1 to 12 tokens"):
        plan(torch.rand(12), (1, 3, 4), budget)
    assert len(plan(torch.rand(12), (1, 3, 4), 12)["positions"]) == 12


@pytest.mark.parametrize("default", [torch.float64, torch.bfloat16])
def test_the_default_dtype_is_no_matter_to_pooled_cells(default):
    scores = torch.rand(30, generator=torch.Generator().manual_seed(0))
    wanted = plan(scores, (1, 5, 6), 8, coarse_share=0.5)
    torch.set_default_dtype(default)
    try:
        found = plan(scores, (1, 5, 6), 8, coarse_share=0.5)
    finally:
        torch.set_default_dtype(torch.float32)
    assert torch.equal(found["positions"], wanted["positions"])
    assert torch.equal(found["cell_token"], wanted["cell_token"])


def test_a_full_budget_gives_every_cell_its_own_token():
    grid = (1, 3, 4)
    chosen = plan(torch.rand(12), grid, 12, coverage_floor=0.1)
    full = {
        "positions": torch.tensor([[0, row, column] for row in range(3) for column in range(4)]),
        "level": torch.zeros(12, dtype=torch.long),
        "depth": torch.full((12,), 3),
        "cell_token": torch.arange(12),
    }
    assert chosen.keys() == {*full, "pooled", "shallow"}
    assert chosen["pooled"] is chosen["shallow"] is False
    for name in full:
        assert torch.equal(full[name], chosen[name]), name
    made = allocation(full, grid)
    assert len(made) == 12
    tokens = torch.randn(12, 5)
    assert torch.equal(apply_to_tokens(made, tokens), tokens)


def test_a_full_budget_gives_every_cell_its_own_token_where_others_pool(tiny_model, make_inputs, page):
    made = {n: tiny_model("pooled").allocate(**make_inputs(page(), token_budget=n))[0] for n in (20, "full")}
    assert made[20].level.any()
    assert made[20].depth.min() < 3
    assert made["full"].cell_token.tolist() == list(range(48))
    assert not made["full"].level.any()
    assert (made["full"].depth == 3).all()


@torch.no_grad()
def test_the_adapter_changes_pooled_rows_alone():
    """(3, 1) and (1, 3) are normalised to (1, -1) and (-1, 1); the bottleneck reads the first entry, and its GELU g times
    (2, 3), plus (0.5, 0), is added."""
    adapter = QualityAdapter(2, hidden_size=1)
    for parameter, value in (
        (adapter.down.weight, [[1.0, 0.0]]),
        (adapter.down.bias, [0.0]),
        (adapter.up.weight, [[2.0], [3.0]]),
        (adapter.up.bias, [0.5, 0.0]),
    ):
        parameter.copy_(torch.tensor(value))
    tokens = torch.tensor([[3.0, 1.0], [3.0, 1.0], [0.1, 0.7], [1.0, 3.0]])
    adapted = adapter(tokens, torch.tensor([0, 1, 0, 2]))
    assert torch.equal(adapted[[0, 2]], tokens[[0, 2]])
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(adapter(tokens, torch.tensor([0, 1, 0, 2])), adapted), "in float32 in any case"
    high, low = (torch.nn.functional.gelu(torch.tensor(x)).item() for x in (1.0, -1.0))
    expected = torch.tensor([[3.5 + 2 * high, 1 + 3 * high], [1.5 + 2 * low, 3 + 3 * low]])
    torch.testing.assert_close(adapted[[1, 3]], expected, atol=1e-4, rtol=0)


def test_allocation_is_frozen():
    made = allocation(plan(torch.rand(12), (1, 3, 4), 5), (1, 3, 4))
    assert len(made) == 5
    with pytest.raises(dataclasses.FrozenInstanceError):
        made.grid = (1, 1, 1)
    for mapping in (made.scores, made.tensions):
        with pytest.raises(TypeError):
            mapping["information"] = 0


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, lambda made: pickle.loads(pickle.dumps(made))])
def test_allocation_can_be_copied_and_pickled(duplicate):
    made = allocation(plan(torch.rand(12), (1, 3, 4), 5, coarse_share=0.5), (1, 3, 4))
    again = duplicate(made)
    assert again.grid == made.grid
    assert dict(again.tensions) == dict(made.tensions)
    for name in ("positions", "level", "depth", "cell_token", "relevance"):
        assert torch.equal(getattr(again, name), getattr(made, name)), name
    assert torch.equal(again.scores["information"], made.scores["information"])
    with pytest.raises(TypeError):
        again.tensions["new"] = 1


def test_plan_does_not_depend_on_where_the_scores_come_from():
    """Half precision scores, a view and scores with a gradient all give the same plan."""
    scores = (torch.rand(12, generator=torch.Generator().manual_seed(3)) * 16).round() / 16
    wanted = plan(scores, (1, 3, 4), 5)["positions"]
    twice = torch.stack([scores, scores], dim=1)[:, 0]
    for other in (scores.half(), twice, scores.clone().requires_grad_()):
        made = attend(
            other, (1, 3, 4), 5, coverage_floor=0.0, coarse_share=0.0, min_deepstack_levels=None, num_levels=3
        )
        assert torch.equal(made["positions"], wanted)
