"""ARRCOCLayer: looking, knowing, balancing and attending in order; the only module that ARR-COC adds to Qwen3-VL."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import nn

from .allocation import Allocation
from .attending import attend, straight_through_gates, suppress_similar
from .balancing import SCORES, TENSIONS, AdaptiveTensionBalancer, Balance
from .configuration_arrcoc import SHAPES
from .knowing import Float32Linear, InformationScorer, NeutralLinear, PerspectivalScorer
from .looking import Glance
from .marking import CoarseMark
from .participating import ParticipatoryScorer
from .reading import READ_FEATURES, CellReader
from .restoring import ContextRestorer
from .scoping import QuestionScope
from .texture import TEXTURE_CHANNELS, pixel_canvas, texture_array

ScoreMaps = tuple[torch.Tensor, torch.Tensor, torch.Tensor]  # in the order of `SCORES`
_BALANCER_DIALS = ("area_strength", "dilation_strength", "diversity", "coarse_share", "gate_temperature")
_TAKES_SEVERAL: dict[str, dict[str, type[nn.Module]]] = {
    "look": {"information": InformationScorer},
    "rate": {
        "reader": CellReader,
        "perspective": PerspectivalScorer,
        "early_participation": ParticipatoryScorer,
        "scope": QuestionScope,
    },
    "knows": {"perspective": PerspectivalScorer, "participation": ParticipatoryScorer},
}


@dataclass(frozen=True, eq=False)
class ARRCOCOutput:
    """The layer's decision for one image.

    Attributes:
        allocation: the frozen plan.
        gates: (K,) straight-through gates of value 1 while training a pruned image, else `None`.
        value: (t * h * w,) relevance after suppression, which the choice ranks, with its gradient; `None` where the
            choice was not the layer's.
        balance: the balancer's result, with its gradients; `None` likewise.
        glance: stage 1 of this image; `None` likewise.
    """

    allocation: Allocation
    gates: torch.Tensor | None
    value: torch.Tensor | None = None
    balance: Balance | None = None
    glance: Glance | None = None


class TokenAllocator(nn.Module):
    """Spends the budget: similar cells suppress each other, then the best cells get the tokens. No parameters.

    Args:
        coverage_floor, min_deepstack_levels: see `ARRCOCQwen3VLConfig`.
        num_levels: DeepStack levels of the base.
    """

    def __init__(self, coverage_floor: float, min_deepstack_levels: int | None, num_levels: int):
        super().__init__()
        self.coverage_floor = coverage_floor
        self.min_deepstack_levels = min_deepstack_levels
        self.num_levels = num_levels

    def forward(
        self,
        balance: Balance,
        scores: Mapping[str, torch.Tensor],
        grid: tuple[int, int, int],
        budget: int,
        features: torch.Tensor,
        encoded: torch.Tensor | None = None,
        everywhere: torch.Tensor | None = None,
    ) -> ARRCOCOutput:
        """The allocation of `budget` tokens over `grid`, (1, h, w) of merged cells.

        Args:
            balance: the relevance of all cells, and what the tensions say of how similar ones suppress each other and how many
                cells are pooled.
            scores: (1, h, w) map of each of `SCORES` by name, which the allocation reports.
            features: (M, C), which tell what cells are similar; a row for each cell, or for each of `encoded`.
            encoded: (M,) raster index of the cells that can be chosen, `None` for all; not beside pooled cells.
            everywhere: scalar bool, whether all fine tokens are spread evenly; `None` for no.
        """
        value = balance.relevance.flatten()
        full = budget == value.numel()
        if encoded is not None:
            seen = self._suppressed(value[encoded], features, balance, budget)
            value = torch.full_like(value, -math.inf).index_copy(0, encoded, seen)
        elif not full:
            value = self._suppressed(value, features, balance, budget)
        plan = attend(
            value,
            grid,
            budget,
            coverage_floor=self.coverage_floor,
            coarse_share=0.0 if full else balance.coarse_share,
            min_deepstack_levels=None if full else self.min_deepstack_levels,
            num_levels=self.num_levels,
            everywhere=None if full else everywhere,
        )
        allocation = Allocation(
            grid=grid,
            relevance=balance.relevance.detach(),
            scores={name: score.detach() for name, score in scores.items()},
            tensions=dict(zip(TENSIONS, balance.tensions.detach().unbind(), strict=True)),
            everywhere=everywhere,
            **plan,
        )
        train = not full and self.training and value.requires_grad
        gates = straight_through_gates(value, allocation, balance.temperature) if train else None
        return ARRCOCOutput(allocation, gates, value, balance)

    def _suppressed(self, value, features, balance, budget: int) -> torch.Tensor:
        if balance.suppression is None:  # all pairs of cells would be compared for nothing
            return value
        return suppress_similar(value, features, balance.suppression, budget)


class QualityAdapter(nn.Module):
    """Brings pooled tokens back to what the language model was trained on; the identity, exactly, at start.

    A residual bottleneck on pooled tokens alone: a fine token is never touched.

    Args:
        size: width of the language model's tokens.
        hidden_size: width of the bottleneck.
    """

    def __init__(self, size: int, hidden_size: int = 64):
        super().__init__()
        self.norm = nn.LayerNorm(size)
        self.down = Float32Linear(size, hidden_size)
        self.up = NeutralLinear(hidden_size, size)

    def forward(self, tokens: torch.Tensor, level: torch.Tensor) -> torch.Tensor:
        """`tokens` (K, size) with the rows of `level` > 0 adapted; dtype is kept."""
        # of all tokens: to be told which are pooled the host would wait for the GPU
        with torch.autocast(tokens.device.type, enabled=False):
            adapted = self.up(F.gelu(self.down(self.norm(tokens.to(self.norm.weight.dtype)))))
        return torch.where((level > 0)[:, None], tokens + adapted.to(tokens.dtype), tokens)


class ARRCOCLayer(nn.Module):
    """Decides which cells of one image get a visual token, from the raw image, the vision features and the question.

    Args:
        config: `ARRCOCQwen3VLConfig`, or anything with its fields.
    """

    def __init__(self, config):
        super().__init__()
        vision, text = config.vision_config, config.text_config
        num_levels = len(vision.deepstack_visual_indexes)
        levels = [vision.out_hidden_size] * (1 + num_levels)  # the visual tokens, and what DeepStack adds
        self.information = InformationScorer()
        self.perspective = PerspectivalScorer(config.perspective_channels, len(TEXTURE_CHANNELS))
        self.participation = ParticipatoryScorer(
            len(TEXTURE_CHANNELS),
            levels,
            text.hidden_size,
            config.scorer_hidden_size,
            config.scorer_heads,
        )
        # Stage 1: the question meets what a small network reads of each cell, before the vision tower.
        self.reader = CellReader()
        self.early_participation = ParticipatoryScorer(
            len(TEXTURE_CHANNELS),
            [READ_FEATURES],
            text.hidden_size,
            config.scorer_hidden_size,
            config.scorer_heads,
            compares_words=False,  # it reads too little for that: dev/LOG.md
        )
        dials = {name: getattr(config, name) for name in _BALANCER_DIALS}
        self.balancer = AdaptiveTensionBalancer(text.hidden_size, weights=_weights(config), **dials)
        self.scope = QuestionScope(text.hidden_size)
        self.allocator = TokenAllocator(config.coverage_floor, config.min_deepstack_levels, num_levels)
        # Without pooled cells the adapter would have no input and its parameters no gradient.
        self.adapter = QualityAdapter(vision.out_hidden_size) if config.coarse_share > 0 else None
        self.restorer = ContextRestorer(levels)
        self.coarse_mark = CoarseMark(len(levels), vision.out_hidden_size)
        self.shapes = {name: getattr(config, name) for name in SHAPES}
        self.follow(config)

    def check_shapes(self, config) -> None:
        """Refuses a `config` from which other tensors would be built than these: what is saved with it could not be loaded.

        Raises:
            ValueError: one of `SHAPES` is another one, or see `follow`.
        """
        for name, built in self.shapes.items():
            if (asked := getattr(config, name)) != built:
                raise ValueError(
                    f"{name}={asked} is not what the allocator was built with ({built}); set it back, or train a new allocator of "
                    f"that shape (training.train_allocator --reset --set {name}={asked})"
                )
        self.follow(config)

    def follow(self, config) -> None:
        """Takes over the dials of `config` that no shape depends on; the model calls it before every decision.

        Raises:
            ValueError: `coarse_share` was 0 when the layer was built and is not any more, or there are fewer DeepStack levels than
                `min_deepstack_levels`.
        """
        if (config.min_deepstack_levels or 0) > self.allocator.num_levels:
            raise ValueError(
                f"min_deepstack_levels={config.min_deepstack_levels}, and this base has {self.allocator.num_levels} DeepStack "
                "levels; pass at most as many, or None for all"
            )
        if config.coarse_share > 0 and self.adapter is None:
            raise ValueError(
                f"coarse_share={config.coarse_share} needs an adapter, and the model was built without one; pass coarse_share "
                "to from_pretrained()"
            )
        self.max_cell_pixels = config.max_cell_pixels
        self.balancer.weights = _weights(config)
        for name in _BALANCER_DIALS:
            setattr(self.balancer, name, getattr(config, name))
        for name in ("coverage_floor", "min_deepstack_levels"):
            setattr(self.allocator, name, getattr(config, name))

    def look(self, image: torch.Tensor, grid: tuple[int, int, int]) -> Glance:
        """What the raw image tells, whatever is asked, before the vision tower has seen it.

        Args:
            image: (3, S, S) uint8, the raw image squeezed into a square.
            grid: (1, h, w) merged grid.
        """
        with torch.autocast(image.device.type, enabled=False):
            canvas = pixel_canvas(image, grid[1:], max_cell_pixels=self.max_cell_pixels)
            return Glance(texture_array(canvas, grid[1:]), self.information(canvas, grid[1:]), canvas)

    def takes_several(self, step: str) -> bool:
        """Whether `look`, `rate` or `knows` takes several images of one grid, with one more dimension in front of all that it takes
        and as many operations as for one. What replaces a scorer, or such a method in a subclass, is given one image at a time."""
        own = getattr(type(self), step) is getattr(ARRCOCLayer, step)
        parts = [(getattr(self, name), kind) for name, kind in _TAKES_SEVERAL[step].items()]
        return own and all(type(part).forward is kind.forward and "forward" not in vars(part) for part, kind in parts)

    def _perspective(self, glance: Glance) -> torch.Tensor:
        return self.perspective(glance.texture) if glance.perspective is None else glance.perspective

    def read(self, glance: Glance) -> Glance:
        """`glance` with what stage 1 reads of every cell, whatever is asked."""
        if glance.read is not None:
            return glance
        return replace(glance, read=self.reader(glance.canvas, glance.texture.shape[-2:]))

    def restore(self, glance: Glance, levels: list[torch.Tensor]) -> list[torch.Tensor]:
        """The features of the cells that were encoded, brought back to those of the whole page; see `ContextRestorer`.

        Args:
            glance: with `read` and `encoded`.
            levels: (M, vision out_hidden_size) each, as `knows` takes them.
        """
        return self.restorer(levels, glance.read, glance.encoded, glance.texture.shape[1:])

    def rate(self, glance: Glance, query: torch.Tensor, mask: torch.Tensor | None = None) -> Glance:
        """`glance` with `early`, which cells are worth encoding for the question `query` (see `forward`), `read`,
        `perspective` and `everywhere`.

        Several questions (Q, Tq, text hidden size) with `mask` (Q, Tq), False at padding, give an `early` of (Q, h * w) and an
        `everywhere` of (Q,), as do several images (see `takes_several`) with a question each, whose `glance` is
        `beside_each_other`.
        """
        with torch.autocast(query.device.type, enabled=False):
            mask = _without_padding(query) if mask is None else mask
            weights = self.balancer.weights
            glance = self.read(glance)
            perspective = self._perspective(glance)
            parts = (
                weights["information"] * glance.information,
                weights["perspective"] * perspective,
                weights["participation"] * self.early_participation(glance.texture, [glance.read], query, mask),
            )
            early = sum(parts).flatten(-2) / max(sum(weights.values()), 1e-6)
            return replace(glance, perspective=perspective, early=early, everywhere=self.about_all(query, mask))

    def about_all(self, query: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        """(...,) bool, whether each question (..., Tq, text hidden size) is about the whole image; `mask` (..., Tq) is False at
        padding."""
        with torch.autocast(query.device.type, enabled=False):
            return self.scope(query, _without_padding(query) if mask is None else mask) > 0

    def knows(
        self, glance: Glance, levels: list[torch.Tensor], query: torch.Tensor, mask: torch.Tensor | None = None
    ) -> ScoreMaps:
        """The maps of `SCORES`, (h, w) float32 each.

        Args:
            glance: stage 1 of the image.
            levels: (M, vision out_hidden_size) each, a row for each encoded cell: the visual tokens, then what each DeepStack level
                adds.
            query: (Tq, text hidden size) embeddings of the question's tokens; Tq = 0 where nothing is asked.
            mask: (Tq,) bool, False at padding; `None` where there is none.

        Several images (see `takes_several`), with as many cells encoded and a question each, have one more dimension in front of
        all of these and of the maps; their `glance` is `beside_each_other`.
        """
        with torch.autocast(query.device.type, enabled=False):
            mask = _without_padding(query) if mask is None else mask
            levels = [level.detach() for level in levels]  # no gradient enters the frozen base through the scores
            needed = self.participation(glance.texture, levels, query, mask, glance.encoded)
            return glance.information, self._perspective(glance), needed

    def forward(
        self,
        glance: Glance,
        grid: tuple[int, int, int],
        budget: int,
        merger_inputs: torch.Tensor,
        maps: ScoreMaps,
        query: torch.Tensor,
    ) -> ARRCOCOutput:
        """The decision for one image, in float32 whatever the dtype of the model.

        Args:
            glance: stage 1 of this image, from `look`.
            grid: (1, h, w) merged grid.
            budget: tokens to keep, 1 <= budget <= h * w, and at most the cells that are encoded.
            merger_inputs: (M, merge_size ** 2 * vision hidden size), what the patch merger reads of each encoded cell, h * w
                where all are; by them `diversity` tells what cells are similar.
            maps: from `knows`.
            query: (Tq, text hidden size) embeddings of the question's tokens; Tq = 0 where nothing is asked.
        """
        with torch.autocast(merger_inputs.device.type, enabled=False):
            scores = {name: score[None] for name, score in zip(SCORES, maps, strict=True)}
            balance = self.balancer(scores, query, budget)
            everywhere = glance.everywhere
            if everywhere is None:
                everywhere = self.about_all(query)
            features = merger_inputs.detach()
            output = self.allocator(balance, scores, grid, budget, features, glance.encoded, everywhere)
            output = replace(output, glance=glance)
        if output.gates is None or glance.encoded is None or glance.early is None:
            return output
        gates = _early_gates(glance.early, glance.encoded, output.allocation.raster, balance.temperature)
        return replace(output, gates=output.gates * gates)


def _without_padding(query: torch.Tensor) -> torch.Tensor:
    return torch.ones(query.shape[:-1], dtype=torch.bool, device=query.device)


def _weights(config) -> dict[str, float]:
    return {name: getattr(config, f"{name}_weight") for name in SCORES}


def _early_gates(early: torch.Tensor, encoded: torch.Tensor, kept: torch.Tensor, temperature) -> torch.Tensor:
    # Gates of value 1 that carry the loss to stage 1 too, which chose what stage 2 could choose from.
    left_out = torch.ones_like(early, dtype=torch.bool).index_fill(0, encoded, False)
    middle = (early[left_out].max() + early[encoded].min()).detach() / 2
    soft = torch.sigmoid((early[kept] - middle) / temperature)
    return 1 + (soft - soft.detach())
