"""Soft top-k: how much of each cell is taken when K cells may be, with gradients for the scores and for K."""

import torch

_ROUNDS = 60  # halvings: enough for float64 from any starting interval


class _SoftTopK(torch.autograd.Function):
    """sigmoid(scores + shift) with the shift that makes each row sum to its count."""

    @staticmethod
    def forward(ctx, scores: torch.Tensor, count: torch.Tensor) -> torch.Tensor:
        low, high = _bracket(scores, count)
        for _ in range(_ROUNDS):
            middle = (low + high) / 2
            over = torch.sigmoid(scores + middle).sum(-1, keepdim=True) > count
            low, high = torch.where(over, low, middle), torch.where(over, middle, high)
        share = torch.sigmoid(scores + (low + high) / 2)
        ctx.save_for_backward(share)
        return share

    @staticmethod
    def backward(ctx, gradient: torch.Tensor):
        (share,) = ctx.saved_tensors
        slope = share * (1 - share)
        # A selection that is all 0 and 1 has no slope, and no gradient.
        per_count = slope / slope.sum(-1, keepdim=True).clamp_min(torch.finfo(slope.dtype).tiny)
        to_count = (gradient * per_count).sum(-1, keepdim=True)
        return slope * (gradient - to_count), to_count


def _bracket(scores: torch.Tensor, count: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    # If every score were the largest (smallest), this shift would be exact; the true one lies in between.
    exact = torch.logit(count / scores.shape[-1])
    return exact - scores.amax(-1, keepdim=True), exact - scores.amin(-1, keepdim=True)


def soft_topk(scores: torch.Tensor, count: torch.Tensor | float, temperature: torch.Tensor | float = 1.0):
    """Shares in (0, 1) that sum to `count`: sigmoid((scores + t) / temperature), t found by bisection.

    The gradient is that of the implicit function theorem: with v = P (1 - P), dP_i / dx_j = v_i (1[i = j] - v_j / sum v)
    and dP / dK = v / sum v. So a learned budget gets a gradient too.

    Args:
        scores: (..., N) float32 or float64.
        count: K, a number or a tensor (...,), 0 < K < N.
        temperature: number or scalar tensor > 0, in units of the scores. Towards 0 the shares become the hard top-k.

    Returns:
        (..., N) of the dtype of `scores`.

    Raises:
        ValueError: a count outside (0, N).
    """
    count = torch.as_tensor(count, dtype=scores.dtype, device=scores.device)
    cells = scores.shape[-1]
    if not bool(((count > 0) & (count < cells)).all()):
        raise ValueError(f"count={count.tolist()} does not lie between 0 and the {cells} scores; pass 0 < K < {cells}")
    count = count.expand(scores.shape[:-1])[..., None]
    return _SoftTopK.apply(scores / temperature, count)
