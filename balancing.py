"""Opponent tensions: from three score maps, the question and the scene to one relevance map."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn

from .knowing import Float32Linear, NeutralLinear

SCORES = ("information", "perspective", "participation")
TENSIONS = ("compress_particularize", "exploit_explore", "focus_diversify")
# Statistics of each score map that describe the scene (mean, standard deviation, maximum, spread), and the log of the
# budget's share of the grid.
_SCENE_FEATURES = 4 * len(SCORES) + 1

_INFORMATIVE = 0.15  # information above which a cell may be a part of what stands beside it
_FIRMEST = 7.0  # argument of tanh: float32 rounds it to exactly 1 from 9 on


@dataclass(frozen=True, eq=False)
class Balance:
    """What the balancer decided for one image.

    Attributes:
        relevance: (t, h, w) float32; only its differences between cells count.
        tensions: (3,) in (-1, 1), in the order of `TENSIONS`; -1 is the first pole of each name.
        temperature: scalar, width of the training gates in relevance.
        suppression: scalar in [0, 1], the share of its lead over the lowest cell that a cell loses where a higher one is fully
            similar; `None` where `diversity` is off.
        coarse_share: share of the budget for pooled cells.
    """

    relevance: torch.Tensor
    tensions: torch.Tensor
    temperature: torch.Tensor
    suppression: torch.Tensor | None
    coarse_share: float


def spread(scores: torch.Tensor) -> torch.Tensor:
    """How evenly each non-negative map (..., cells) is spread over its cells: exp(entropy) / cells, in (0, 1].

    1 for a flat map, also an all-zero one; 1 / cells for a single peak.
    """
    mass = scores.clamp_min(0) + 1e-6
    share = mass / mass.sum(-1, keepdim=True)
    return torch.special.entr(share).sum(-1).exp() / share.shape[-1]


def dilated(relevance: torch.Tensor) -> torch.Tensor:
    """(t, h, w), the largest of each cell and the four beside it: grey-scale dilation by a cross (Serra 1982, "Image Analysis and
    Mathematical Morphology")."""
    rows = F.max_pool2d(relevance, (1, 3), stride=1, padding=(0, 1))
    return torch.maximum(rows, F.max_pool2d(relevance, (3, 1), stride=1, padding=(1, 0)))


def scene_features(scores: Mapping[str, torch.Tensor], budget: int) -> torch.Tensor:
    """(13,) statistics of the score maps and the log share of cells that the budget pays for."""
    maps = torch.stack([scores[name].flatten() for name in SCORES])
    told = torch.stack([maps.mean(-1), maps.std(-1, correction=0), maps.amax(-1), spread(maps)], -1)
    return torch.cat([told.flatten(), maps.new_full((1,), math.log(budget / maps.shape[-1]))])


def scene_prior(scene: torch.Tensor) -> torch.Tensor:
    """(3,) what the scene alone says about each tension, before anything is learned (arguments of tanh), from `scene_features`.

    - compress_particularize: positive where the budget exceeds the informative cells, so that detail can be afforded.
    - exploit_explore: positive where the participatory score is flat, so that there is nothing to exploit.
    - focus_diversify: positive where information is spread over the image, negative where it is one peak.
    """
    of = scene[:-1].view(len(SCORES), -1)
    even, deviation = of[SCORES.index("information"), 3], of[SCORES.index("participation"), 1]
    return torch.stack([scene[-1] - even.log(), 1 - 2 * deviation, 2 * even - 1])


class AdaptiveTensionBalancer(nn.Module):
    """Three opponent tensions, each in (-1, 1), and the one relevance map that they balance the scores into.

    Each tension is tanh(what the scene says + what is learned from scene and question); the learned part is zero at
    start. They do three things:

    - compress_particularize: relevance moves towards its 3 x 3 mean (compress: cells that cover area) or away from it
      (particularize: single cells), and the share of pooled cells shrinks from compress to particularize.
    - exploit_explore: weight moves between the participatory score (exploit) and the other two (explore), by up to half,
      and the temperature of the gates rises with exploration.
    - focus_diversify: how much similar cells suppress each other, from none (focus) to twice `diversity`.

    With `dilation_strength`, informative cells then rise towards the best of the four beside them, whatever the tensions.

    Args:
        query_size: width of the question's token embeddings.
        weights: weight of each score by name.
        area_strength, dilation_strength, diversity, coarse_share, gate_temperature: see `ARRCOCQwen3VLConfig`.
        hidden_size: width of the question's summary.
    """

    def __init__(
        self,
        query_size: int,
        *,
        weights: Mapping[str, float],
        area_strength: float,
        dilation_strength: float = 0.0,
        diversity: float,
        coarse_share: float,
        gate_temperature: float,
        hidden_size: int = 16,
    ):
        super().__init__()
        self.weights = dict(weights)
        self.area_strength = area_strength
        self.dilation_strength = dilation_strength
        self.diversity = diversity
        self.coarse_share = coarse_share
        self.gate_temperature = gate_temperature
        self.question = Float32Linear(query_size, hidden_size)
        self.tension = NeutralLinear(_SCENE_FEATURES + hidden_size, len(TENSIONS))

    def forward(self, scores: Mapping[str, torch.Tensor], query: torch.Tensor, budget: int) -> Balance:
        """The balance of one image.

        Args:
            scores: each (t, h, w) float32: "information" in [0, 1], "perspective" there too before training, "participation"
                of any size and sign.
            query: (Tq, query_size) embeddings of the question's tokens; Tq = 0 where nothing is asked.
            budget: tokens to spend.
        """
        scene = scene_features(scores, budget)
        summary = query.detach().float().mean(0) if len(query) else scene.new_zeros(self.question.in_features)
        # of a batch of one: adapters such as DoRA take nothing else
        question = torch.tanh(self.question(summary[None]))
        learned = self.tension(torch.cat([scene[None], question], -1))[0]
        tensions = torch.tanh((scene_prior(scene) + learned).clamp(-_FIRMEST, _FIRMEST))
        particularize, explore, diversify = tensions.unbind()  # each names its pole of 1
        information, perspective, participation = (scores[name] for name in SCORES)
        exploited = self.weights["participation"] * (1 - 0.5 * explore)
        explored = self.weights["information"] * information + self.weights["perspective"] * perspective
        blended = (1 + 0.5 * explore) * explored + exploited * participation
        if explore.requires_grad:
            # What all cells have in participation chooses none of them, and a trained one has it a hundredfold: a loss that reads
            # how far a cell is above a threshold must not move the tension by it. Exactly 0 is added.
            shared = exploited * participation.detach().amin()
            blended = blended + (shared.detach() - shared)
        blended = blended / max(sum(self.weights.values()), 1e-6)
        # Cells that the question rules out keep an order among themselves, but can't be far below a blank one.
        blended = F.leaky_relu(blended, 0.1)
        area = F.avg_pool2d(blended, 3, stride=1, padding=1, count_include_pad=False)
        relevance = blended + self.area_strength * particularize * (blended - area)
        if self.dilation_strength:
            informative = (information > _INFORMATIVE).to(relevance)
            relevance = relevance + self.dilation_strength * informative * (dilated(relevance) - relevance)
        return Balance(
            relevance=relevance,
            tensions=tensions,
            temperature=self.gate_temperature * torch.exp(explore),
            suppression=self.diversity * (1 + diversify) if self.diversity else None,
            coarse_share=self.coarse_share and min(0.9, self.coarse_share * (1 - float(particularize.detach()))),
        )
