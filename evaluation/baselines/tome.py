"""Token merging by bipartite matching, after ToMe (Bolya et al. 2023, arXiv 2210.09461).

After a round tokens stay in the order of the picture, where its code puts the first set's behind each other.
"""

import torch
import torch.nn.functional as F

from evaluation.baselines.interface import Prepared
from evaluation.baselines.last_block import watch_last_block
from evaluation.baselines.selection import encode, fill, plan_groups


def merge_similar(metric: torch.Tensor, count: int, rounds: int) -> torch.Tensor:
    """(N,) the group of each token, 0 .. count - 1, from rounds of bipartite soft matching.

    In each round the tokens, in order, are put in turn into two sets; each token of the first finds its most similar partner in
    the second, and the most similar pairs are merged. Sizes weigh the means, so that a merged token counts as all its members.

    Args:
        metric: (N, C) what is compared, by cosine.
        count: groups that are left, 1 .. N.
        rounds: in how many equal steps (the constant schedule). Where they don't suffice, since a round merges half
            of the tokens at most (of an odd number the larger half), more follow.
    """
    groups = torch.arange(len(metric), device=metric.device)
    metric, sizes = metric.float(), torch.ones(len(metric), 1, device=metric.device)
    step = -(-(len(metric) - count) // rounds)
    while (total := len(metric)) > count:
        directions = F.normalize(metric, dim=-1)
        best, partner = (directions[0::2] @ directions[1::2].T).max(-1)
        merged = best.argsort(descending=True, stable=True)[: min(step, total - count)]
        target = torch.arange(total, device=metric.device)
        target[2 * merged] = 2 * partner[merged] + 1
        alive, target = target.unique(return_inverse=True)
        sums = metric.new_zeros(len(alive), metric.shape[-1]).index_add(0, target, metric * sizes)
        sizes = sizes.new_zeros(len(alive), 1).index_add(0, target, sizes)
        metric, groups = sums / sizes, target[groups]
    return groups


def tome(model, processor, examples, budgets) -> Prepared:
    """Inputs with each picture's visual tokens merged down to K.

    ToMe merges inside the ViT, a few tokens per block. DeepStack reads the ViT's grid at several depths and the patch merger needs
    whole 2 x 2 groups, so here the visual tokens are merged after the ViT, in as many rounds as it has blocks, by the keys of its
    last block. Tokens and DeepStack levels are averaged alike. A merged token stands on its member nearest to the group's middle.
    Proportional attention is left out: the language model's attention stays as it is.
    """
    with watch_last_block(model) as block:
        encoded = encode(model, processor, examples, budgets)
    rounds = len(model.model.visual.blocks)
    plans = [
        plan_groups(merge_similar(keys, count, rounds), width)
        for keys, count, (_, width) in zip(block.keys(), encoded.counts, encoded.grids, strict=True)
    ]
    return fill(encoded, plans)
