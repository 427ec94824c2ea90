"""The most diverse tokens, after DivPrune (Alvar et al. 2025, arXiv 2503.02175).

The rule is the paper's: greedy max-min diversity by cosine distance between the projected visual tokens, before the language
model. New with Qwen3-VL: a kept token keeps its place in the picture and its DeepStack levels, which take no part in the choice.
"""

import torch
import torch.nn.functional as F

from evaluation.baselines.interface import Prepared
from evaluation.baselines.selection import encode, fill, plan_cells

ROWS_AT_ONCE = 2048


def most_diverse(features: torch.Tensor, count: int) -> torch.Tensor:
    """(count,) tokens chosen one by one for a large smallest cosine distance to each other (max-min diversity, greedy).

    The first is the token that lies farthest from its nearest neighbour; each next one lies farthest from the chosen ones.

    Args:
        features: (N, C).
        count: 1 .. N.
    """
    if count == len(features):
        return torch.arange(count, device=features.device)
    directions = F.normalize(features.float(), dim=-1)
    nearest = []
    for start in range(0, len(directions), ROWS_AT_ONCE):
        distance = 1 - directions[start : start + ROWS_AT_ONCE] @ directions.T
        distance.diagonal(start).fill_(torch.inf)
        nearest.append(distance.amin(-1))
    chosen = [torch.cat(nearest).argmax()]
    distance = torch.full((len(directions),), torch.inf, device=directions.device)
    while len(chosen) < count:
        distance = torch.minimum(distance, 1 - directions @ directions[chosen[-1]])
        distance[chosen[-1]] = -torch.inf
        chosen.append(distance.argmax())
    return torch.stack(chosen)


def divprune(model, processor, examples, budgets) -> Prepared:
    """Inputs with the K most diverse cells of each picture, by the tokens that the language model would read."""
    encoded = encode(model, processor, examples, budgets)
    plans = [
        plan_cells(most_diverse(tokens, count), len(tokens))
        for tokens, count in zip(encoded.vision.pooler_output, encoded.counts, strict=True)
    ]
    return fill(encoded, plans)
