"""The third way of knowing what a cell is worth: what the question needs."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn import init

from .knowing import Float32Conv2d, Float32Linear, check_texture
from .matching import WordMatcher, normalised
from .relating import RelatingStep
from .rows import rows_at, rows_of_all

_STEPS = 2


class ParticipatoryScorer(nn.Module):
    """Participatory knowing: what this question needs. Each head reads a part of the question, cells are multiplied by what
    was read and compared with each of its words, then see what was found along their row and column (the labels of a value
    stand there) and what follows from its place (`RelatingStep`), behind a gate that starts at zero.

    The product lets every feature of a cell meet every feature of the question from the first step (low-rank bilinear
    pooling, Kim et al. 2017, section 3), but knows the question as one sum. The comparison finds where a word of the question
    stands, whatever else is asked (`WordMatcher`); `compares_words=False` leaves it out, and the steps that build on it. The
    gate is there because an untrained match of question and picture ranks worse than none.
    """

    def __init__(
        self,
        texture_channels: int,
        feature_sizes: list[int],
        query_size: int,
        hidden_size: int = 64,
        num_heads: int = 8,
        compares_words: bool = True,
    ):
        super().__init__()
        if hidden_size % num_heads:
            raise ValueError(f"hidden_size={hidden_size} is not a multiple of num_heads={num_heads}: pass one that is")
        self.texture_channels, self.query_size = texture_channels, query_size
        self.feature_sizes, self.num_heads = tuple(feature_sizes), num_heads
        self.texture_projection = Float32Linear(texture_channels, hidden_size)
        self.feature_projections = nn.ModuleList(
            Float32Linear(size, hidden_size, bias=False) for size in self.feature_sizes
        )
        self.query_projection = Float32Linear(query_size, hidden_size)
        self.read = Float32Linear(hidden_size, num_heads)
        self.word = Float32Linear(hidden_size, 2 * hidden_size, bias=False)
        self.cell = Float32Linear(hidden_size, 2 * hidden_size, bias=False)
        self.matcher = None
        if compares_words:
            self.matcher = WordMatcher(self.feature_sizes, query_size, 4 * hidden_size, num_heads, hidden_size // 2)
        compared = 0 if self.matcher is None else self.matcher.out_features
        self.mix = Float32Linear(3 * hidden_size + compared, hidden_size)
        self.relate = Float32Linear(3 * hidden_size, hidden_size)
        self.steps = nn.ModuleList(RelatingStep(hidden_size) for _ in range(_STEPS if compares_words else 0))
        self.score = Float32Linear(hidden_size, 1)
        self.gate = nn.Parameter(torch.empty(1))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """The untrained state: random projections behind a gate of zero."""
        for module in self.modules():
            if isinstance(module, Float32Conv2d):
                module.reset_parameters()
            elif isinstance(module, Float32Linear):
                init.xavier_uniform_(module.weight)
                if module.bias is not None:
                    init.zeros_(module.bias)
        init.zeros_(self.gate)

    def forward(
        self,
        texture: torch.Tensor,
        features: Sequence[torch.Tensor],
        query: torch.Tensor,
        query_mask: torch.Tensor,
        encoded: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """(h, w) float32: gate * asinh of a score. Exactly 0 before training, and always where there is no question.

        asinh keeps cells within a few units of each other, but unlike tanh it never flattens: they keep their order and a gradient.
        What all cells have alike chooses none of them, and may be large.

        texture (texture_channels, h, w); features, one (h * w, size) per entry of `feature_sizes`, in raster order of the
        cells; query (Tq, query_size), query_mask (Tq,) bool, False at padding, or several questions (Q, Tq, query_size)
        with (Q, Tq), which give (Q, h, w); encoded (M,) long, ascending, the cells that the features have rows of, `None`
        for all: the others get the lowest score of these. Several pictures of one grid, each with its own question, have one
        more dimension in front of all of these. The question is detached: no gradient enters the frozen base's embeddings.
        Raises ValueError on any other shape.
        """
        height, width = check_texture(texture, self.texture_channels)
        self._check(texture, encoded, features, query, query_mask)
        with torch.autocast(texture.device.type, enabled=False):
            cells = self.texture_projection(rows_at(texture.flatten(-2).mT, encoded))
            features = [normalised(feature) for feature in features]
            for feature, projection in zip(features, self.feature_projections, strict=True):
                cells = cells + projection(feature)
            cells = normalised(cells)  # (cells, hidden)
            # Padding may hold anything, NaN too: it must not reach the products.
            query = normalised(query.detach().float().masked_fill(~query_mask[..., None], 0))
            tokens = self.query_projection(query)  # (Tq, hidden)
            met = self.cell(cells) * self._summary(tokens, query_mask)[..., None, :]
            parts = [cells.expand(met.shape[:-1] + cells.shape[-1:]), met]
            if self.matcher is not None:
                parts.append(self.matcher(features, query, query_mask, (height, width), encoded))
            found = F.gelu(self.mix(torch.cat(parts, dim=-1)))
            along = _on_grid(_along_axes, found, (height, width), encoded)
            related = F.gelu(self.relate(torch.cat([found, along], dim=-1)))
            if self.steps:  # cells that are not encoded have nothing to tell
                related = _on_grid(self._stepped, related, (height, width), encoded, empty=True)
            # the gate, which may be below 0, first: what is not encoded gets the lowest of what is
            score = _spread(self.gate.float() * torch.asinh(self.score(related)), encoded, height * width)
            return score.squeeze(-1).unflatten(-1, (height, width)) * query_mask.any(-1)[..., None, None]

    def _summary(self, tokens: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """(..., 2 * hidden) of (..., Tq, hidden): each head's mean of the words, weighted by how much it reads of each."""
        lowest = torch.finfo(torch.float32).min  # not -inf: a question that is all padding has no softmax then
        weight = self.read(tokens).masked_fill(~mask[..., None], lowest).softmax(-2)  # (..., Tq, heads)
        words = self.word(tokens).unflatten(-1, (self.num_heads, -1))
        return (weight[..., None] * words).sum(-3).flatten(-2)

    def _stepped(self, placed: torch.Tensor) -> torch.Tensor:
        for step in self.steps:
            placed = step(placed)
        return placed

    def _check(
        self, texture, encoded, features: Sequence[torch.Tensor], query: torch.Tensor, query_mask: torch.Tensor
    ) -> None:
        pictures = texture.shape[:-3]
        cells = texture.shape[-2] * texture.shape[-1] if encoded is None else encoded.shape[-1]
        wanted = [(*pictures, cells, size) for size in self.feature_sizes]
        came = [tuple(feature.shape) for feature in features]
        if came != wanted:
            raise ValueError(f"features have shapes {came}; wanted {wanted}: one row per cell of the texture's grid")
        if pictures and query.shape[:-2] != pictures:
            raise ValueError(
                f"query has shape {tuple(query.shape)} for {pictures[0]} pictures; wanted ({pictures[0]}, Tq, {self.query_size}): "
                "pass one question to each"
            )
        if query.ndim not in (2, 3) or query.shape[-1] != self.query_size:
            raise ValueError(
                f"query has shape {tuple(query.shape)}; wanted (Tq, {self.query_size}), or (Q, Tq, {self.query_size}) "
                "for several questions: pass what one image is asked"
            )
        if query_mask.dtype != torch.bool or query_mask.shape != query.shape[:-1]:
            raise ValueError(
                f"query_mask is {query_mask.dtype} of shape {tuple(query_mask.shape)}; wanted torch.bool of shape "
                f"{tuple(query.shape[:-1])}, True where there is a token"
            )


def united(maps: Sequence[torch.Tensor]) -> torch.Tensor:
    """The map of several questions at once: each cell's best of `maps`, all of one shape, each of which is moved so that its best
    cell is worth what those of all are on average: none crowds another out."""
    if len(maps) == 1:
        return maps[0]
    stacked = torch.stack(list(maps))
    best = stacked.flatten(1).amax(1).view(-1, *[1] * maps[0].ndim)
    return (stacked - best).amax(0) + best.mean()


def _along_axes(found: torch.Tensor) -> torch.Tensor:
    """(..., h, w, 2 C): the largest of each channel of (..., h, w, C) in a cell's row and column, where its labels stand."""
    in_row, in_column = found.amax(-2, keepdim=True), found.amax(-3, keepdim=True)
    return torch.cat([in_row.expand_as(found), in_column.expand_as(found)], dim=-1)


def _spread(rows: torch.Tensor, encoded: torch.Tensor | None, cells: int, empty: bool = False) -> torch.Tensor:
    """(..., cells, C): `rows` (..., M, C) at the places `encoded`, the smallest of each channel elsewhere, or 0 if `empty`."""
    lowest = None if empty or encoded is None else rows.detach().amin(-2, keepdim=True)
    return rows_of_all(rows, encoded, cells, lowest)


def _on_grid(looks, rows: torch.Tensor, grid: tuple[int, int], encoded: torch.Tensor | None, empty: bool = False):
    """(..., M, C): what `looks`, which takes and gives (..., h, w, C), makes of `rows` at their places; see `_spread`."""
    placed = looks(_spread(rows, encoded, grid[0] * grid[1], empty).unflatten(-2, grid)).flatten(-3, -2)
    return rows_at(placed, encoded)
