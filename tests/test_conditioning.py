"""Steps in which every direction of a question's embeddings counts alike."""

import pytest
import torch
from torch import nn

from arrcoc.matching import normalised
from arrcoc.participating import ParticipatoryScorer
from training.conditioning import condition, question_weights, whitening

WIDTH = 24


def embeddings(tokens: int = 400, shared: float = 5.0) -> torch.Tensor:
    """Of tokens that are nearly alike, as those of a language model are."""
    generator = torch.Generator().manual_seed(0)
    common = torch.randn(WIDTH, generator=generator)
    return shared * common + torch.randn(tokens, WIDTH, generator=generator)


def test_every_direction_has_the_same_second_moment():
    rows = normalised(embeddings())
    whitened = whitening(embeddings())
    assert (whitened - whitened.T).abs().max() < 1e-4
    moment = torch.linalg.eigvalsh((rows @ whitened).T @ (rows @ whitened) / len(rows))
    assert torch.linalg.eigvalsh(rows.T @ rows / len(rows))[-1] > 15
    assert moment[1:] == pytest.approx(torch.ones(WIDTH - 1), abs=0.02)  # `normalised` has taken one direction away
    assert moment[0] < 1e-3


def test_directions_that_hold_nothing_are_not_made_large():
    flat = torch.zeros(50, WIDTH)
    flat[:, :2] = torch.randn(50, 2, generator=torch.Generator().manual_seed(1))
    assert whitening(flat).isfinite().all()
    assert whitening(flat).abs().max() < 100


def test_a_large_vocabulary_is_read_in_part():
    many = embeddings(40000)
    assert (whitening(many) - whitening(many[::3])).abs().max() < 1e-4


@pytest.mark.parametrize("words", [1, 3])
def test_steps_are_those_of_the_matrix_before_the_whitening(words, monkeypatch):
    whitened = whitening(embeddings())
    layer = nn.Linear(words * WIDTH, 5, bias=False)
    blocks = torch.block_diag(*[whitened] * words)
    with torch.no_grad():
        layer.weight.copy_(layer.weight @ blocks)
    before = nn.Parameter(layer.weight.detach() @ torch.linalg.pinv(blocks))
    settings = {"lr": 1e-2, "weight_decay": 0.1, "eps": 1e-3}
    ours, plain = torch.optim.AdamW([layer.weight], **settings), torch.optim.AdamW([before], **settings)
    monkeypatch.setattr("training.conditioning.question_weights", lambda scorer: {layer.weight: words})
    condition(ours, layer, whitened)
    rows = torch.randn(30, words * WIDTH, generator=torch.Generator().manual_seed(2))
    began = layer.weight.detach().clone()
    for _ in range(4):
        for optimizer, weight in ((ours, layer.weight), (plain, before @ blocks)):
            optimizer.zero_grad()
            ((rows @ weight.T).tanh() - 0.3).square().mean().backward()
        ours.step()
        plain.step()
    assert (layer.weight - began).abs().max() > 1e-2
    assert (layer.weight - before @ blocks).abs().max() < 1e-3


def test_other_weights_step_as_before():
    scorer = ParticipatoryScorer(4, [16], WIDTH, hidden_size=16, num_heads=2)
    copy = ParticipatoryScorer(4, [16], WIDTH, hidden_size=16, num_heads=2)
    copy.load_state_dict(scorer.state_dict())
    optimizers = [torch.optim.AdamW(one.parameters(), lr=1e-2) for one in (scorer, copy)]
    condition(optimizers[0], scorer, whitening(embeddings()))
    for one, optimizer in zip((scorer, copy), optimizers, strict=True):
        for parameter in one.parameters():
            parameter.grad = torch.ones_like(parameter)
        optimizer.step()
    read = {id(weight) for weight in question_weights(scorer)}
    moved = dict(copy.named_parameters())
    for name, parameter in scorer.named_parameters():
        assert torch.equal(parameter, moved[name]) != (id(parameter) in read), name


def test_what_reads_a_question_is_found_where_it_is_trained():
    scorer = ParticipatoryScorer(4, [16], WIDTH, hidden_size=16, num_heads=2)
    found = question_weights(scorer)
    assert {tuple(weight.shape): words for weight, words in found.items()} == {
        (16, WIDTH): 1,
        (64, 3 * WIDTH): 3,
        (8, WIDTH): 1,
    }
    assert all(weight.shape[1] == words * WIDTH for weight, words in found.items())
    assert not question_weights(scorer.requires_grad_(False))
    assert not question_weights(nn.Linear(4, 4))
