"""Selection in the style of VisionSelector: a learned scorer on the merged visual tokens that never sees the question.

Written from the description in arXiv 2510.16598: a query-key attention over the visual tokens alone gives each its
importance; trained through a differentiable top-k (`lm_soft_topk`) with a penalty on undecided shares (`binarize`) whose
weight rises while the temperature falls; the plain top-k of the importance is kept.

What departs from the paper: the budget is drawn anew in every training step, as for every learned method here, where
VisionSelector is trained at one; the scorer's width follows the base, and its data and steps are those of the run. The weights
of the reported results (`checkpoints/baselines`) learned from evidence boxes and from no loss of the language model:
`evidence=1,mass=0.5,binarize=0.5`, of which the first and the last go through the differentiable top-k.
"""

import math

import torch
import torch.nn.functional as F
from torch import nn

from evaluation.baselines.interface import Prepared
from evaluation.baselines.learned import Weights, best_cells
from evaluation.baselines.selection import encode, fill, plan_cells


class ImportanceScorer(nn.Module):
    """How much attention each visual token gets from all of them, in a learned projection.

    Args:
        size: width of the merged visual tokens.
        hidden_size: width of queries and keys; the paper's size, half of `size`, by default.
    """

    def __init__(self, size: int, hidden_size: int | None = None):
        super().__init__()
        hidden_size = hidden_size or size // 2
        self.norm = nn.LayerNorm(size)
        self.query = nn.Linear(size, hidden_size)
        self.key = nn.Linear(size, hidden_size)

    @classmethod
    def for_model(cls, model) -> "ImportanceScorer":
        """A new scorer for a base, on its device."""
        return cls(model.config.vision_config.out_hidden_size).to(model.device)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """(cells,) log of cells x the mean attention that each token receives; `tokens` (cells, size)."""
        with torch.autocast(tokens.device.type, enabled=False):
            states = self.norm(tokens.detach().float())
            logits = self.query(states) @ self.key(states).T / math.sqrt(self.query.out_features)
            return torch.logsumexp(F.log_softmax(logits, -1), 0)  # the sum over N tokens is N x the mean


_WEIGHTS = Weights("vision_selector", ImportanceScorer.for_model)
load_weights = _WEIGHTS.load


@torch.no_grad()
def vision_selector(model, processor, examples, budgets) -> Prepared:
    """Inputs with the K most important cells of each picture; `load_weights` comes first."""
    scorer = _WEIGHTS.of(model)
    encoded = encode(model, processor, examples, budgets)
    pairs = zip(encoded.vision.pooler_output, encoded.counts, strict=True)
    return fill(encoded, [plan_cells(best_cells(scorer(tokens), count), len(tokens)) for tokens, count in pairs])
