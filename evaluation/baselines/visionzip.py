"""Dominant and contextual tokens, after VisionZip (Yang et al. 2024, arXiv 2412.04467), without its fine-tuning.

The contextual tokens stand in the middle of as many equal parts of the others, where its code takes each part's first.
"""

import torch
import torch.nn.functional as F

from evaluation.baselines.interface import Prepared
from evaluation.baselines.last_block import watch_last_block
from evaluation.baselines.selection import Plan, encode, fill, plan_cells, plan_groups

# The paper's 54 dominant and 10 contextual tokens of 64, used here at any budget.
CONTEXTUAL_SHARE = 10 / 64


def zip_cells(attention: torch.Tensor, keys: torch.Tensor, count: int, width: int) -> Plan:
    """The plan of `count` tokens: those most attended to, and the others gathered around evenly spaced ones of them.

    Args:
        attention: (N,) attention that each cell receives.
        keys: (N, C) by whose cosine a cell finds the contextual token that it joins.
        count: tokens, 1 .. N.
        width: columns of the grid.
    """
    total, device = len(attention), attention.device
    contextual = round(CONTEXTUAL_SHARE * count) if count < total else 0
    dominant = attention.argsort(descending=True, stable=True)[: count - contextual]
    if not contextual:
        return plan_cells(dominant, total)
    rest = torch.ones(total, dtype=torch.bool, device=device)
    rest[dominant] = False
    kept, rest = ~rest, rest.nonzero().flatten()
    targets = rest[(2 * torch.arange(contextual, device=device) + 1) * len(rest) // (2 * contextual)]
    directions = F.normalize(keys.float(), dim=-1)
    groups = torch.empty(total, dtype=torch.long, device=device)
    groups[rest] = (directions[rest] @ directions[targets].T).argmax(-1) + len(dominant)
    groups[dominant] = torch.arange(len(dominant), device=device)
    groups[targets] = torch.arange(len(dominant), count, device=device)
    return plan_groups(groups, width, stands=torch.cat([dominant, targets]), kept=kept)


def visionzip(model, processor, examples, budgets) -> Prepared:
    """Inputs with K tokens of each picture, 27 of 32 of them dominant cells and the rest contextual means.

    As in its published code for Qwen2.5-VL: that ViT has no class token, so a cell is dominant by the attention that its
    patches receive from all patches of the last block, and tokens are dropped and merged after the patch merger. Kept are
    the dominant cells.

    What departs from it: a contextual token is the mean of a target and the cells that joined it (the published code adds the
    target to the others' mean instead, which doubles its length), on every DeepStack level alike, at the target's place;
    cells join by their patches' keys before RoPE, side by side (there, the mean of the patches' keys after it); and 10 of 64
    tokens are contextual at every K, the share of the paper's runs with LLaVA at 64 tokens (there, as many as a twentieth of
    all cells).
    """
    with watch_last_block(model) as block:
        encoded = encode(model, processor, examples, budgets)
    plans = [
        zip_cells(attention, keys, count, width)
        for attention, keys, count, (_, width) in zip(
            block.attention(), block.keys(), encoded.counts, encoded.grids, strict=True
        )
    ]
    return fill(encoded, plans)
