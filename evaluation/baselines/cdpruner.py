"""Tokens that are diverse given the question, after CDPruner (Zhang et al. 2025, arXiv 2506.10967).

The paper takes the set of tokens with a large determinant of diag(r) L diag(r): L holds the cosines of the projected visual
tokens, r their relevance, the cosine to the question's embedding scaled to [0, 1] over the picture. Here as there.

Whose embedding, and with which sign:

- The paper, for LLaVA: CLIP's vision and text towers with their projections. The published code
  (github.com/Theia-4869/CDPruner) negates that cosine before scaling it, so that what is least like the question is most
  relevant; its authors say that they saw this in CLIP only (issue 14 there).
- The paper, for models with a vision tower alone, such as Qwen2.5-VL: the mean of the language model's embeddings of the
  question. That repository has code for LLaVA alone.
- Here, Qwen3-VL, which has no text tower: the second, with the merged visual tokens, which live in the same space. Nothing
  trains these two to be alike, as CLIP's towers are. `cdpruner` has the paper's sign, `cdpruner_negated` that of the code.
"""

from functools import partial

import torch
import torch.nn.functional as F

from evaluation.baselines.interface import Prepared
from evaluation.baselines.selection import Encoded, encode, fill, plan_cells

# A gain below this is rounding: what is left lies in the span of what is chosen.
SMALLEST_GAIN = 1e-6


def relevance_of(tokens: torch.Tensor, question: torch.Tensor, negated: bool = False) -> torch.Tensor:
    """(N,) cosine of each token (N, C) to the mean of the question's (Tq, C), scaled to [0, 1] over the picture; of its
    opposite, if `negated`.

    All ones where nothing is asked, or where all tokens are equally relevant.
    """
    if not len(question):
        return torch.ones(len(tokens), device=tokens.device)
    cosine = F.normalize(tokens.float(), dim=-1) @ F.normalize(question.float().mean(0), dim=-1)
    cosine = -cosine if negated else cosine
    low, high = cosine.min(), cosine.max()
    return (cosine - low) / (high - low) if high > low else torch.ones_like(cosine)


def greedy_map(features: torch.Tensor, relevance: torch.Tensor, count: int) -> torch.Tensor:
    """(count,) tokens of large determinant under the kernel relevance_i * cosine_ij * relevance_j.

    Greedy maximum a posteriori inference of a determinantal point process by an incremental Cholesky factor (Chen et al.
    2018, arXiv 1709.05135). The kernel's rank is the width of the features at most; beyond it no token adds to the
    determinant, and the most relevant of the others follow.

    Args:
        features: (N, C).
        relevance: (N,) in [0, 1].
        count: 1 .. N.
    """
    precise = torch.float32 if features.device.type == "mps" else torch.float64  # which MPS has not
    directions = F.normalize(features.to(precise), dim=-1) * relevance.to(precise)[:, None]
    gains = directions.square().sum(-1)
    factor = directions.new_zeros(count, len(gains))
    free = torch.ones_like(gains, dtype=torch.bool)
    chosen, gained = [], []
    for step in range(count):  # a GPU is not waited for until all steps are done
        gain, best = gains.masked_fill(~free, -torch.inf).max(0)
        chosen.append(best)
        gained.append(gain)
        free = free.index_fill(0, best, False)
        row = directions @ directions[best] - factor[:step].index_select(1, best[None])[:, 0] @ factor[:step]
        factor[step] = row / gain.sqrt()
        gains = gains - factor[step].square()
    rank = int((torch.stack(gained) >= SMALLEST_GAIN).long().cumprod(0).sum())  # what comes after is rounding
    order = torch.stack(chosen)[:rank]
    others = relevance.index_fill(0, order, -torch.inf).argsort(descending=True, stable=True)
    return torch.cat([order, others[: count - rank]])


def embedded_questions(model, encoded: Encoded) -> list[torch.Tensor]:
    """Per picture (Tq, C), the language model's input embeddings of its question."""
    ids, mask = encoded.asked["query_input_ids"], encoded.asked["query_attention_mask"].bool()
    embed = model.get_input_embeddings()
    with torch.no_grad():
        return [embed(row[real]) for row, real in zip(ids, mask, strict=True)]


def cdpruner(model, processor, examples, budgets, negated: bool = False) -> Prepared:
    """Inputs with the K cells of each picture that a determinantal point process conditioned on the question chooses.

    How the question enters on a model without a text tower, and what is `negated`, is said at the top of this file.
    """
    encoded = encode(model, processor, examples, budgets)
    plans = []
    for tokens, question, count in zip(
        encoded.vision.pooler_output, embedded_questions(model, encoded), encoded.counts, strict=True
    ):
        plans.append(plan_cells(greedy_map(tokens, relevance_of(tokens, question, negated), count), len(tokens)))
    return fill(encoded, plans)


cdpruner_negated = partial(cdpruner, negated=True)
