"""Whether a question is about the whole image, so that no cell is worth more to it than another."""

import torch
import torch.nn.functional as F
from torch import nn

from .knowing import Float32Linear, NeutralLinear
from .matching import normalised

_RUN = 5  # words that are read together


class QuestionScope(nn.Module):
    """How far a question is about the whole image ("What kind of page is this?") and not about something in it.

    Reads the question's tokens in runs of five and keeps the most and the mean of what each feature finds (a convolution over words
    with pooling over time: Kim 2014, "Convolutional Neural Networks for Sentence Classification", section 2). Before training
    exactly 0, which counts as about something in it.

    Args:
        query_size: width of the question's token embeddings.
        hidden_size: features of a word, and of a run of words.
    """

    def __init__(self, query_size: int, hidden_size: int = 32):
        super().__init__()
        self.query_size = query_size
        self.word = Float32Linear(query_size, hidden_size)
        self.run = Float32Linear(_RUN * hidden_size, hidden_size)
        self.score = NeutralLinear(2 * hidden_size, 1)

    def forward(self, query: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """(...,) float32 logits, above 0 where the question is about the whole image; 0 where nothing is asked.

        Args:
            query: (..., Tq, query_size) embeddings of questions' tokens, which get no gradient.
            mask: (..., Tq) bool, False at padding.
        """
        if not query.shape[-2]:
            return query.new_zeros(query.shape[:-2], dtype=torch.float32)
        said = mask[..., None]
        # padding may hold anything, NaN too
        words = self.word(normalised(query.detach().float().masked_fill(~said, 0))) * said
        around = F.pad(words, (0, 0, _RUN // 2, _RUN // 2))
        runs = torch.tanh(self.run(around.unfold(-2, _RUN, 1).flatten(-2)))
        most, count = runs.masked_fill(~said, -1).amax(-2), said.sum(-2)
        mean = (runs * said).sum(-2) / count.clamp_min(1)
        return self.score(torch.cat([most, mean], -1)).squeeze(-1) * (count.squeeze(-1) > 0)
