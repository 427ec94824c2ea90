"""Steps in which every direction of a question's embeddings counts alike, whichever the base has most of."""

import torch
from torch import nn

from arrcoc.matching import PhraseMatcher, WordMatcher, normalised
from arrcoc.participating import ParticipatoryScorer

_ROWS = 1 << 14  # of the embeddings are looked at, at most
_SMALLEST = 1e-4  # of the largest eigenvalue: directions with less are noise


def whitening(embeddings: torch.Tensor) -> torch.Tensor:
    """(C, C) float32, symmetric: what gives the rows of embeddings (tokens, C), as scorers read them, the second moment 1 in
    every direction. Not centred: a direction that all rows share gets no more than another.

    Embeddings that are tied to the head lie in a narrow cone, those of rare tokens most of all (Gao et al. 2019, "Representation
    Degeneration Problem in Training Natural Language Generation Models"): what tells such words apart is little of them, and is
    learned as slowly.
    """
    rows = embeddings.detach().float()
    rows = normalised(rows[:: -(-len(rows) // _ROWS)])
    values, vectors = torch.linalg.eigh(rows.T @ rows / len(rows))
    return (vectors * values.clamp(min=values[-1] * _SMALLEST).rsqrt()) @ vectors.T


def question_weights(scorer: nn.Module) -> dict[nn.Parameter, int]:
    """The matrices that read a question's embeddings, and how many words each reads side by side."""
    found = {}
    for module in scorer.modules():
        if isinstance(module, ParticipatoryScorer):
            found[module.query_projection.weight] = 1
        elif isinstance(module, WordMatcher):
            found[module.words.weight] = 3
        elif isinstance(module, PhraseMatcher):
            found[module.enter.weight] = 1
    return {weight: words for weight, words in found.items() if weight.requires_grad}


def condition(optimizer: torch.optim.Optimizer, scorer: nn.Module, whitened: torch.Tensor) -> None:
    """Makes an optimiser with decoupled weight decay, such as AdamW, step as if it learned V of each of the `question_weights`
    V W, W the `whitening`: what comes out are ordinary weights, and reading costs nothing more."""
    before: dict[nn.Parameter, tuple[int, torch.Tensor]] = {}

    @torch.no_grad()
    def enter(*_) -> None:
        before.clear()
        for weight, words in question_weights(scorer).items():  # anew, since sharding puts others in their place
            if weight.grad is not None:
                before[weight] = words, _local(weight).clone()
                grad = _local(weight.grad)
                grad.copy_(_by_word(grad, words, whitened))

    @torch.no_grad()
    def leave(*_) -> None:
        for group in optimizer.param_groups:
            kept = 1 - group["lr"] * group["weight_decay"]
            for weight in group["params"]:
                if weight in before:
                    words, was = before[weight]
                    now = _local(weight)
                    now.copy_(kept * was + _by_word(now - kept * was, words, whitened))

    optimizer.register_step_pre_hook(enter)
    optimizer.register_step_post_hook(leave)


def _local(tensor: torch.Tensor) -> torch.Tensor:
    # this process's rows of a sharded one; columns are whole
    tensor = tensor.detach()
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


def _by_word(matrix: torch.Tensor, words: int, whitened: torch.Tensor) -> torch.Tensor:
    return (matrix.unflatten(-1, (words, -1)).float() @ whitened.to(matrix.device)).flatten(-2).to(matrix.dtype)
