"""The three tensions: what each does to the relevance, the budget and the gates, worked out by hand at its poles."""

import math

import pytest
import torch

from arrcoc.balancing import SCORES, TENSIONS, AdaptiveTensionBalancer, scene_features, scene_prior, spread

COMPRESS, EXPLORE, DIVERSIFY = range(3)
WEIGHTS = {"information": 1.0, "perspective": 0.5, "participation": 1.0}


def balancer(**dials) -> AdaptiveTensionBalancer:
    torch.manual_seed(0)
    settings = {"area_strength": 0.5, "diversity": 0.25, "coarse_share": 0.2, "gate_temperature": 0.1} | dials
    return AdaptiveTensionBalancer(8, weights=settings.pop("weights", WEIGHTS), **settings)


def maps(information, perspective=None, participation=None) -> dict[str, torch.Tensor]:
    information = torch.tensor([information], dtype=torch.float32)
    zero = torch.zeros_like(information)
    perspective = zero if perspective is None else torch.tensor([perspective], dtype=torch.float32)
    participation = zero if participation is None else torch.tensor([participation], dtype=torch.float32)
    return dict(zip(SCORES, (information, perspective, participation), strict=True))


def pull(module: AdaptiveTensionBalancer, tension: int, pole: float) -> AdaptiveTensionBalancer:
    """Takes one tension to a pole (-1 or +1), whatever scene and question say."""
    with torch.no_grad():
        module.tension.bias[tension] = 30 * pole
    return module


NO_QUESTION = torch.zeros(0, 8)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([[0.5, 0.5], [0.5, 0.5]], 1),
        ([[0.0, 0.0], [0.0, 0.0]], 1),
        ([[1.0, 1.0], [0.0, 0.0]], 0.5),
        ([[1.0, 0.0], [0.0, 0.0]], 0.25),
    ],
)
def test_spread_by_hand(values, expected):
    """exp(entropy) / cells: all alike 1, two of four 1/2, one peak 1/4."""
    assert spread(torch.tensor(values).flatten()) == pytest.approx(expected, abs=1e-4)


def test_scene_features_by_hand():
    """Information 1 0 / 0 0: mean 1/4, deviation sqrt(3)/4, maximum 1, spread 1/4. Two of four cells are paid: ln 1/2."""
    features = scene_features(maps([[1.0, 0.0], [0.0, 0.0]]), 2)
    assert features.shape == (13,)
    torch.testing.assert_close(features[:4], torch.tensor([0.25, math.sqrt(3) / 4, 1, 0.25]), atol=1e-4, rtol=0)
    torch.testing.assert_close(features[4:12], torch.tensor([0.0, 0, 0, 1] * 2))
    assert features[12] == pytest.approx(math.log(0.5))


def prior(scores, budget):
    return scene_prior(scene_features(scores, budget))


def test_scene_prior_by_hand():
    """Flat information over 4 cells: even = 1. Budget 4 pays for all: ln 1 = 0; budget 1: ln 1/4. No participation: 1.
    Information everywhere: 2 * 1 - 1 = 1; in one cell of four: 2 * 1/4 - 1 = -1/2, and budget 4 is four times enough."""
    flat, peak = maps([[0.5, 0.5], [0.5, 0.5]]), maps([[1.0, 0.0], [0.0, 0.0]])
    torch.testing.assert_close(prior(flat, 4), torch.tensor([0.0, 1, 1]))
    torch.testing.assert_close(prior(flat, 1), torch.tensor([-math.log(4), 1, 1]))
    torch.testing.assert_close(prior(peak, 4), torch.tensor([math.log(4), 1, -0.5]), atol=1e-4, rtol=0)
    # Participation +1 and -1 in halves: standard deviation 1, so there is something to exploit.
    torch.testing.assert_close(prior(maps([[0.5, 0.5]], None, [[1.0, -1.0]]), 2)[1], torch.tensor(-1.0))


def test_at_start_the_scene_alone_decides():
    scores = maps([[0.5, 0.2], [0.1, 0.0]], [[0.3, 0.1], [0.0, 1.0]])
    expected = torch.tanh(prior(scores, 2))
    for query in (NO_QUESTION, torch.randn(5, 8), 100 * torch.randn(1, 8)):
        torch.testing.assert_close(balancer()(scores, query, 2).tensions, expected)


def test_relevance_at_neutral_tension_is_the_weighted_mean():
    """Weights 1, 0.5, 1 and explore = 0: (1 * 0.4 + 0.5 * 0.8 + 1 * 0.2) / 2.5 = 0.4."""
    module = balancer(area_strength=0.0)
    scores = maps([[0.4, 0.0]], [[0.8, 0.0]], [[0.2, 0.0]])
    with torch.no_grad():
        module.tension.bias[EXPLORE] = -prior(scores, 1)[EXPLORE]
    balance = module(scores, NO_QUESTION, 1)
    assert balance.tensions[EXPLORE].item() == pytest.approx(0, abs=1e-6)
    torch.testing.assert_close(balance.relevance, torch.tensor([[[0.4, 0.0]]]), atol=1e-6, rtol=0)
    torch.testing.assert_close(balance.temperature, torch.tensor(0.1))


def test_weights_choose_the_scores():
    scores = maps([[0.4, 0.0]], [[0.8, 0.1]], [[0.2, 0.3]])
    for name in SCORES:
        only = balancer(area_strength=0.0, weights={other: float(other == name) for other in SCORES})
        relevance = only(scores, NO_QUESTION, 1).relevance
        assert (relevance / scores[name]).nan_to_num().unique().numel() <= 2  # that score, scaled
        assert relevance.argmax() == scores[name].argmax()
    nothing = balancer(weights=dict.fromkeys(SCORES, 0.0))(scores, NO_QUESTION, 1)
    assert nothing.relevance.abs().max() == 0


def test_compress_takes_the_mean_of_the_area_and_particularize_doubles_the_difference():
    """0 0.6 0 in a row, weight 1 on information, no exploration: means of the area 0.3 0.2 0.3. Compress takes them
    (area_strength 1); particularize takes 2 x - mean: -0.3 1 -0.3."""
    scores = maps([[0.0, 0.6, 0.0]])
    only = {"information": 1.0, "perspective": 0.0, "participation": 0.0}

    def relevance(pole, strength=1.0):
        module = pull(balancer(area_strength=strength, weights=only), COMPRESS, pole)
        with torch.no_grad():
            module.tension.bias[EXPLORE] = -prior(scores, 1)[EXPLORE]
        return module(scores, NO_QUESTION, 1).relevance[0, 0]

    torch.testing.assert_close(relevance(-1), torch.tensor([0.3, 0.2, 0.3]))
    torch.testing.assert_close(relevance(+1), torch.tensor([-0.3, 1.0, -0.3]))
    torch.testing.assert_close(relevance(+1, strength=0.5), torch.tensor([-0.15, 0.8, -0.15]))
    torch.testing.assert_close(relevance(-1, strength=0.0), torch.tensor([0.0, 0.6, 0.0]))


def test_dilation_raises_what_carries_information_to_the_best_beside_it():
    """Half of the way to 1.0, beside and below it; not the blank cell above it, nor what stands across a corner."""
    information = [[0.1, 0.1, 0.5], [0.5, 1.0, 0.5], [0.3, 0.6, 0.5]]
    only = {"information": 1.0, "perspective": 0.0, "participation": 0.0}

    def relevance(strength):
        module = pull(balancer(area_strength=0.0, dilation_strength=strength, weights=only), COMPRESS, 0)
        with torch.no_grad():
            module.tension.bias[EXPLORE] = -prior(maps(information), 1)[EXPLORE]
        return module(maps(information), NO_QUESTION, 1).relevance[0]

    torch.testing.assert_close(relevance(0.0), torch.tensor(information))
    wanted = [[0.1, 0.1, 0.5], [0.75, 1.0, 0.75], [0.45, 0.8, 0.55]]
    torch.testing.assert_close(relevance(0.5), torch.tensor(wanted))


def test_compress_spends_on_pooled_cells_and_particularize_does_not():
    scores = maps([[0.0, 0.6, 0.0]])

    def share(pole, configured):
        return pull(balancer(coarse_share=configured), COMPRESS, pole)(scores, NO_QUESTION, 1).coarse_share

    assert share(-1, 0.2) == pytest.approx(0.4)
    assert share(+1, 0.2) == pytest.approx(0.0, abs=1e-5)
    assert share(-1, 0.8) == 0.9  # something fine is always left
    assert share(-1, 0.0) == 0.0


def test_exploit_moves_weight_to_what_the_question_needs():
    """Explore +1: (1.5 * 0.4 + 0.5 * 1.5 * 0.8 + 0.5 * 0.2) / 2.5 = 0.52; exploit: (0.5 * 0.4 + 0.5 * 0.5 * 0.8 + 1.5 * 0.2)
    / 2.5 = 0.28. The temperature goes from 0.1 e to 0.1 / e."""
    scores = maps([[0.4, 0.0]], [[0.8, 0.0]], [[0.2, 0.0]])
    explore = pull(balancer(area_strength=0.0), EXPLORE, +1)(scores, NO_QUESTION, 1)
    exploit = pull(balancer(area_strength=0.0), EXPLORE, -1)(scores, NO_QUESTION, 1)
    torch.testing.assert_close(explore.relevance[0, 0], torch.tensor([0.52, 0]))
    torch.testing.assert_close(exploit.relevance[0, 0], torch.tensor([0.28, 0]))
    assert explore.temperature.item() == pytest.approx(0.1 * math.e, abs=1e-5)
    assert exploit.temperature.item() == pytest.approx(0.1 / math.e, abs=1e-5)


def test_focus_suppresses_nothing_and_diversify_twice_the_dial():
    scores = maps([[0.0, 0.6, 0.0]])
    assert pull(balancer(), DIVERSIFY, -1)(scores, NO_QUESTION, 1).suppression.item() == pytest.approx(0, abs=1e-5)
    assert pull(balancer(), DIVERSIFY, +1)(scores, NO_QUESTION, 1).suppression.item() == pytest.approx(0.5)
    assert pull(balancer(diversity=0.0), DIVERSIFY, +1)(scores, NO_QUESTION, 1).suppression is None


def test_cells_that_the_question_rules_out_keep_their_order_below_blank_ones():
    """Exploit: (1.5 * p) / 2.5 = 0.6 p, and a tenth of that below 0: -0.06 and -0.03."""
    scores = maps([[0.0, 0.0, 0.0]], None, [[-1.0, -0.5, 0.5]])
    relevance = pull(balancer(area_strength=0.0), EXPLORE, -1)(scores, NO_QUESTION, 1).relevance
    torch.testing.assert_close(relevance[0, 0], torch.tensor([-0.06, -0.03, 0.3]))


@pytest.mark.parametrize("seed", range(10))
def test_tensions_and_what_they_set_stay_inside_their_bounds(seed):
    torch.manual_seed(seed)
    module = balancer()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(0.1 * torch.randn_like(parameter))
    scores = {
        "information": torch.rand(1, 5, 7),
        "perspective": torch.rand(1, 5, 7),
        "participation": 2 * torch.rand(1, 5, 7) - 1,
    }
    balance = module(scores, torch.randn(6, 8), 1 + seed)
    assert balance.tensions.shape == (len(TENSIONS),)
    assert (balance.tensions.abs() < 1).all()
    assert 0 <= balance.suppression <= 0.5
    assert 0 <= balance.coarse_share <= 0.4
    assert 0.1 / math.e <= balance.temperature <= 0.1 * math.e
    assert balance.relevance.dtype == torch.float32
    assert balance.relevance.isfinite().all()


def test_a_tension_that_large_weights_set_stays_short_of_its_bound():
    module, scores = balancer(), {name: torch.rand(1, 5, 7) for name in ("information", "perspective", "participation")}
    torch.manual_seed(0)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(1000 * torch.randn_like(parameter))
    assert (module(scores, torch.randn(6, 8), 3).tensions.abs() < 1).all()


def test_question_counts_once_something_is_learned():
    scores = maps([[0.5, 0.2], [0.1, 0.0]])
    module = balancer()
    torch.manual_seed(1)
    with torch.no_grad():
        module.tension.weight.normal_()
    first, second = torch.randn(3, 8), torch.randn(4, 8)
    asked = [module(scores, query, 2).tensions for query in (first, second, NO_QUESTION)]
    assert not torch.allclose(asked[0], asked[1])
    assert not torch.allclose(asked[0], asked[2])
    # No question reads like one that says nothing, and the order of its words does not count.
    assert torch.equal(asked[2], module(scores, torch.zeros(2, 8), 2).tensions)
    torch.testing.assert_close(module(scores, first.flip(0), 2).tensions, asked[0])


@pytest.mark.parametrize("shape", [(1, 1, 1), (1, 1, 113), (1, 113, 1), (2, 3, 4), (1, 128, 128)])
def test_any_grid(shape):
    scores = {name: torch.rand(shape) for name in SCORES}
    balance = balancer()(scores, torch.randn(3, 8), 1)
    assert balance.relevance.shape == shape
    assert balance.relevance.isfinite().all()
    assert balance.tensions.isfinite().all()


def test_every_parameter_learns_from_the_second_step_on():
    """At start the tension layer is zero, so the question's summary gets its first gradient after one step."""
    module = balancer()
    scores = maps([[0.5, 0.2], [0.1, 0.0]], [[0.1, 0.4], [0.0, 0.0]], [[0.3, -0.3], [0.1, 0.0]])
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    for _ in range(2):
        optimizer.zero_grad()
        balance = module(scores, torch.ones(3, 8), 2)
        (balance.relevance.square().sum() + balance.temperature + balance.suppression).backward()
        optimizer.step()
    for name, parameter in module.named_parameters():
        assert parameter.grad.isfinite().all(), name
        assert parameter.grad.abs().max() > 0, name


def test_what_all_cells_have_alike_moves_no_tension():
    """A trained participation has a hundred in every cell. It chooses none, so its gradient is that without it."""
    found = {}
    for shared in (0.0, 100.0):
        module = balancer(area_strength=0.0)
        scores = maps([[0.4, 0.0, 0.1]], [[0.8, 0.0, 0.3]], [[shared + 0.2, shared, shared + 0.5]])
        with torch.no_grad():
            alone = prior(scores, 1)
            module.tension.bias[EXPLORE] = 0.3 - alone[EXPLORE]
        balance = module(scores, NO_QUESTION, 1)
        (balance.relevance[0, 0, 2] - (balance.relevance[0, 0, 1]).detach()).backward()
        found[shared] = module.tension.bias.grad[EXPLORE], balance.relevance - balance.relevance.amin()
    torch.testing.assert_close(found[0.0], found[100.0], atol=1e-4, rtol=1e-3)
