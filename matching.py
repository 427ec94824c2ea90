"""Where the words of a question stand on a page."""

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import nn

from .knowing import Float32Conv2d, Float32Linear
from .rows import rows_at, rows_of_all

_PAIRS_AT_ONCE = 1 << 18  # of a cell and a word, which bounds the memory of long questions about large pages
_CELLS, _WORDS = 3, 7  # that a phrase is looked for in, at a time: a cell may show three words
_DISTANCES = (1, 3, 9)  # of the words that say what part a word has


class WordMatcher(nn.Module):
    """How well each cell fits the word of the question that fits it best: late interaction (Khattab and Zaharia 2020, "ColBERT",
    section 3.2), each word taken with its two neighbours, as a cell shows a few letters that need not begin where a word does;
    and what `PhraseMatcher` finds in the same comparisons.

    Args:
        feature_sizes: of the features of a cell; query_size: of a word's embedding.
        size: width of the space in which both are compared, split among `num_heads` comparisons.
        phrase_size: features of `PhraseMatcher`.
    """

    def __init__(self, feature_sizes: tuple[int, ...], query_size: int, size: int, num_heads: int, phrase_size: int):
        super().__init__()
        self.num_heads = num_heads
        self.cells = nn.ModuleList(Float32Linear(width, size, bias=False) for width in feature_sizes)
        self.words = Float32Linear(3 * query_size, size, bias=False)
        self.phrases = PhraseMatcher(query_size, num_heads, phrase_size)
        self.out_features = 2 * num_heads + phrase_size

    def forward(
        self,
        features: Sequence[torch.Tensor],
        query: torch.Tensor,
        mask: torch.Tensor,
        grid: tuple[int, int],
        encoded: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """(..., cells, out_features) float32, 0 where no word fits: how well each cell fits its best word, the same with what it
        falls short of the best cell for that word taken off, and what the phrases find.

        features (cells, size) each, `normalised`; query (..., Tq, query_size), 0 at padding; mask (..., Tq) bool, False there;
        grid (h, w); encoded (cells,) long, the cells of the grid that the features have rows of, `None` for all. Several pictures
        have one more dimension in front.
        """
        projected = [layer(feature) for layer, feature in zip(self.cells, features, strict=True)]
        cells = normalised(torch.stack(projected).sum(0).unflatten(-1, (self.num_heads, -1)))
        words = normalised(self.words(_with_neighbours(query, 1)).unflatten(-1, (self.num_heads, -1)))
        parts = self.phrases.parts(query, mask)
        shape = (*query.shape[:-2], cells.shape[-3])
        best = cells.new_zeros(*shape, 2 * self.num_heads)
        phrases = cells.new_zeros(*shape, self.out_features - 2 * self.num_heads)
        num_questions = math.prod(query.shape[:-2])
        at_once = max(1, _PAIRS_AT_ONCE // max(1, num_questions * math.prod(grid)))
        for first in range(0, words.shape[-3] if shape[-1] else 0, at_once):
            begin, last = max(0, first - _WORDS // 2), first + at_once
            some = slice(begin, last + _WORDS // 2)  # phrases reach beyond the words whose turn it is
            fit = torch.einsum("...chd,...thd->...cht", cells, words[..., some, :, :]) / math.sqrt(cells.shape[-1])
            fit = fit.masked_fill(~mask[..., None, None, some], 0)
            found = self.phrases(fit, parts[..., some, :], mask[..., some], grid, encoded)
            own = slice(first - begin, last - begin)
            phrases = torch.maximum(phrases, found[..., own].amax(-1))
            fit = fit[..., own]
            short = fit.amax(-3, keepdim=True) - fit
            best = torch.maximum(best, torch.cat([fit.amax(-1), (fit - short).amax(-1)], -1))
        return torch.cat([best, phrases], -1)


class PhraseMatcher(nn.Module):
    """What words that follow each other find in cells that follow each other: a convolution over the cells of a row and the words
    of the question (Pang et al. 2016, "Text Matching as Image Recognition", section 3). A text that runs over several cells
    stands out from one of its words alone.

    What each word is there for is added, by the words around it: in one question a header names what is wanted, in the next
    one what is given.
    """

    def __init__(self, query_size: int, num_heads: int, size: int):
        super().__init__()
        self.together = Float32Conv2d(num_heads, size, (_CELLS, _WORDS), padding=(_CELLS // 2, _WORDS // 2))
        self.enter = Float32Linear(query_size, size)
        self.around = nn.ModuleList(Float32Linear(3 * size, size) for _ in _DISTANCES)

    def parts(self, query: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """(..., Tq, size) of (..., Tq, query_size): what each word is there for."""
        part = self.enter(query)
        for layer, distance in zip(self.around, _DISTANCES, strict=True):
            part = part.masked_fill(~mask[..., None], 0)
            part = part + F.gelu(layer(_with_neighbours(part, distance)))
        return part

    def forward(
        self,
        fit: torch.Tensor,
        parts: torch.Tensor,
        mask: torch.Tensor,
        grid: tuple[int, int],
        encoded: torch.Tensor | None,
    ) -> torch.Tensor:
        """(..., cells, size, Tq) of fit (..., cells, heads, Tq); 0 at padding. The rest as in `WordMatcher`."""
        height, width = grid
        whole = rows_of_all(fit.flatten(-2), encoded, height * width).unflatten(-1, fit.shape[-2:])
        rows = whole.unflatten(-3, (height, width)).movedim(-2, -3)  # (..., h, heads, w, Tq)
        found = self.together(rows.flatten(0, -4)).unflatten(0, rows.shape[:-3])
        found = F.gelu(found.movedim(-3, -2) + parts.mT[..., None, None, :, :]).flatten(-4, -3)
        found = rows_at(found.flatten(-2), encoded).unflatten(-1, found.shape[-2:])
        return found.masked_fill(~mask[..., None, None, :], 0)


def _with_neighbours(words: torch.Tensor, distance: int) -> torch.Tensor:
    """(..., Tq, 3 C): the word `distance` before each of (..., Tq, C), itself, and the one as far after it; 0 beyond the ends."""
    count = words.shape[-2]
    padded = F.pad(words, (0, 0, distance, distance))
    return torch.cat([padded[..., :count, :], words, padded[..., 2 * distance :, :]], -1)


def normalised(features: torch.Tensor) -> torch.Tensor:
    """The features at mean 0 and variance 1, in float32."""
    return F.layer_norm(features.float(), features.shape[-1:])
