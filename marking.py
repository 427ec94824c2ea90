"""What tells the language model that a token is one of a coarse view."""

import torch
from torch import nn
from torch.nn import init


class CoarseMark(nn.Module):
    """A gain and an offset per channel on the tokens of a coarse view, and on what each DeepStack level adds to them.

    The tokens of a view stand among fine ones of the same places, which a language model was never given together: it counts twice
    what both show. By their mark it can tell them apart (a feature-wise affine map: FiLM, Perez et al. 2018, section 2, without a
    condition). Exactly nothing before training.

    Args:
        levels: of features: the visual tokens, and each DeepStack level.
        size: of a token.
    """

    def __init__(self, levels: int, size: int):
        super().__init__()
        self.gain = nn.Parameter(torch.empty(levels, size))
        self.offset = nn.Parameter(torch.empty(levels, size))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """A gain of 1, held as its difference from it, and no offset."""
        init.zeros_(self.gain)
        init.zeros_(self.offset)

    def forward(self, levels: list[torch.Tensor]) -> list[torch.Tensor]:
        """`levels`, (C, size) each, marked in float32; their dtype is kept."""
        rows = torch.stack(levels)  # as many operations as for one level
        wide = rows.to(torch.promote_types(rows.dtype, torch.float32))
        marked = wide * (1 + self.gain.float()[:, None]) + self.offset.float()[:, None]
        return list(marked.to(rows.dtype).unbind())
