"""What the allocator learns from: losses on its scores, and on what the language model makes of its choice."""

import math

import torch
import torch.nn.functional as F

from training.soft_topk import soft_topk

# name: (what it needs, what it is). "student" is a pass over the kept tokens, "soft" one over all tokens with soft
# top-k, "teacher" the frozen model's own pass over all tokens.
SIGNALS = {
    "evidence": ((), "Dice + BCE of the soft top-k of the scores against the evidence cells"),
    "mass": ((), "-log of what the softmax of the scores gives to the evidence cells together"),
    "lm": (("student",), "language-model loss, straight-through gates on kept tokens; same as lm_straight_through"),
    "lm_straight_through": (("student",), "language-model loss, gates of value 1 with a sigmoid's gradient"),
    "lm_gates": (("student",), "language-model loss, kept tokens times sigmoid gates"),
    "lm_gumbel": (("student",), "language-model loss, top-k of scores with Gumbel noise, straight-through gates"),
    "lm_soft_topk": (("soft",), "language-model loss, all tokens, log of their soft top-k added to the attention"),
    "lm_answered": (
        ("soft", "teacher"),
        "lm_soft_topk of what the frozen model answers from all tokens as the first of `answers` is written, alone",
    ),
    "distill_answer": (("student", "teacher"), "KL from the full model's answer distribution to the pruned one's"),
    "distill_attention": (("teacher",), "KL from the full model's attention over the image to the scores' softmax"),
    "distill_unmarked": (
        ("teacher",),
        "the same KL, only on questions that have no evidence box",
    ),
    "context": ((), "log loss of evidence and context cells together in the soft top tenth of the scores"),
    "named": ((), "BCE of the context cells, guessed from what each cell finds in the question"),
    "early_evidence": ((), "stage 1: log loss of evidence and context cells in the soft top third of its scores"),
    "early_distill": ((), "stage 1: the same of the cells that stage 2 chooses"),
    "early_features": ((), "stage 1: mean squared error of the visual tokens, guessed from what it reads of the cells"),
    "restored": (
        (),
        "mean squared error of pages in part against the whole ones, once restored; alone, with --ahead and --parts",
    ),
    "coarse": (
        ("student",),
        "language-model loss beside coarse views, of which their mark learns; alone, and without --ahead",
    ),
    "scope": (
        ("student",),
        "BCE of whether spreading the budget evenly loses less than choosing, weighed by how much; alone, and without --ahead",
    ),
    "binarize": ((), "BCE of the soft top-k against its own hard top-k, its weight rising with the progress"),
    "entropy": ((), "entropy of the scores' softmax, in [0, 1]"),
    "tension": ((), "mean square of the tensions, in [0, 1]"),
}
# What only the allocator's layer has: the learned baselines have no such parts.
LAYER_SIGNALS = ("named", "early_evidence", "early_distill", "early_features", "restored", "coarse", "scope", "tension")
# What goes alone, and the part of the layer that learns by it, and by nothing else.
ALONE = {"restored": "restorer", "coarse": "coarse_mark", "scope": "scope"}
DICE_WEIGHT, BCE_WEIGHT = 1.0, 0.1  # as GlimpsePrune (arXiv 2508.01548) weighs them
NAMED_WEIGHT = 5.0  # of a named cell; most are not named
CONTEXT_SHARE = 1 / 10  # of the cells, that evidence and context learn to be among
EARLY_SHARE = 1 / 3  # the same of stage 1
EARLY_CONTEXT = 0.3  # weight of a context cell there, that of an evidence cell being 1
_TOUCHED = 0.05  # share of a cell that evidence must cover to count


def parse_signals(text: str) -> dict[str, float]:
    """`evidence=1,distill_attention=0.5` as weights by name; a name alone has weight 1.

    Raises:
        ValueError: a name is unknown or given twice, or a weight is no positive number.
    """
    weights: dict[str, float] = {}
    for entry in text.split(","):
        name, _, number = entry.strip().partition("=")
        if name not in SIGNALS:
            raise ValueError(f"signal {name!r} is unknown; choose from {', '.join(SIGNALS)}")
        name = "lm_straight_through" if name == "lm" else name
        if name in weights:
            raise ValueError(f"signal {name} is given twice; give each once, as in evidence=1,distill_attention=0.5")
        try:
            weight = float(number or 1)
        except ValueError:
            weight = math.nan
        if not 0 < weight < math.inf:
            raise ValueError(f"{entry.strip()!r}: the weight must be a number above 0")
        weights[name] = weight
    return weights


def needs(weights: dict[str, float]) -> set[str]:
    """Which passes of the language model the signals need: "student", "soft", "teacher"."""
    return {kind for name in weights for kind in SIGNALS[name][0]}


def evidence_target(covered: torch.Tensor) -> torch.Tensor:
    """(cells,) 1 for each cell that the evidence touches, from the covered share of each; never empty if any is covered."""
    threshold = torch.minimum(covered.amax(), covered.new_tensor(_TOUCHED))
    return ((covered >= threshold) & (covered > 0)).to(covered.dtype)


def needed_target(evidence: torch.Tensor, context: torch.Tensor) -> torch.Tensor:
    """(cells,) 1 for each cell that the evidence touches or what it is found by does, from the covered shares of each."""
    return torch.maximum(evidence_target(evidence), evidence_target(context))


def evidence_loss(value: torch.Tensor, temperature: torch.Tensor, target: torch.Tensor) -> torch.Tensor | None:
    """Dice + 0.1 BCE between the soft top-k of the scores and the evidence, K the number of evidence cells.

    With that K the best selection is the evidence itself, whatever the budget, and no threshold has to be learned.

    Args:
        value: (cells,) scores; temperature: scalar, in their units.
        target: (cells,) 0 or 1.

    Returns:
        A scalar, or `None` where there is no evidence or nothing else.
    """
    wanted = target.sum()
    if not 0 < wanted < len(target):
        return None
    share = soft_topk(value, wanted, temperature)
    dice = 1 - (2 * (share * target).sum() + 1) / (share.sum() + wanted + 1)
    return DICE_WEIGHT * dice + BCE_WEIGHT * _binary_cross_entropy(share, target)


def mass_loss(value: torch.Tensor, temperature: torch.Tensor, target: torch.Tensor) -> torch.Tensor | None:
    """-log of the softmax's mass on the evidence: unlike a soft top-k, it compares each evidence cell with every other cell.

    Args:
        value: (cells,) scores; temperature: scalar, in their units.
        target: (cells,) 0 or 1.

    Returns:
        A scalar, or `None` where there is no evidence.
    """
    if not target.any():
        return None
    share = F.log_softmax(value / temperature, -1)
    return -torch.logsumexp(share[target > 0], -1)


def restoring_loss(restored: list[torch.Tensor], whole: list[torch.Tensor]) -> torch.Tensor:
    """Mean squared error of features (M, size) per level, each level's in units of its variance in the whole page."""
    errors = [
        F.mse_loss(guess.float(), true.float()) / true.float().var(-1).mean()
        for guess, true in zip(restored, whole, strict=True)
    ]
    return torch.stack(errors).mean()


def among_loss(
    value: torch.Tensor, temperature: torch.Tensor, target: torch.Tensor, share: float
) -> torch.Tensor | None:
    """Mean -log of what the soft top `share` of the cells gives to those of `target`.

    Only what is lost counts, nothing that is kept besides.

    Args:
        value: (cells,) scores; temperature: scalar, in their units.
        target: (cells,) weight of each, 0 to 1.

    Returns:
        A scalar, or `None` where the target is empty or does not fit.
    """
    count = share * len(value)
    if not 0 < target.sum() < count:
        return None
    # so low that a cell which is ranked far down still has a gradient
    kept = soft_topk(value, count, temperature).clamp_min(1e-30)
    return -(kept.log() * target).sum() / target.sum()


def named_loss(guess: torch.Tensor, target: torch.Tensor) -> torch.Tensor | None:
    """BCE of `guess` (cells,), logits, against `target` (cells,), 0 or 1; `None` where nothing is named."""
    if not target.any():
        return None
    return F.binary_cross_entropy_with_logits(guess, target, pos_weight=guess.new_tensor(NAMED_WEIGHT))


def guess_loss(guessed: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
    """Mean squared error of `guessed` against `tokens`, both (cells, size), each token at mean 0 and variance 1."""
    return F.mse_loss(guessed.float(), F.layer_norm(tokens.float(), tokens.shape[-1:]))


def binarize_loss(value: torch.Tensor, temperature: torch.Tensor, budget: int) -> torch.Tensor | None:
    """BCE between the soft top-k at the budget and the hard one; `None` where all cells are kept."""
    if budget >= len(value):
        return None
    hard = torch.zeros_like(value)
    hard[value.detach().topk(budget).indices] = 1
    return _binary_cross_entropy(soft_topk(value, budget, temperature), hard)


def _binary_cross_entropy(share: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    share = share.float().clamp(1e-6, 1 - 1e-6)  # torch's own is refused under autocast on a GPU
    return -(target * share.log() + (1 - target) * (1 - share).log()).mean()


def attention_loss(value: torch.Tensor, temperature: torch.Tensor, attention: torch.Tensor) -> torch.Tensor:
    """KL(attention || softmax(scores / temperature)), both (cells,); `attention` sums to 1."""
    return F.kl_div(F.log_softmax(value / temperature, -1), attention, reduction="sum")


def answer_loss(pruned_logits: torch.Tensor, full_logits: torch.Tensor) -> torch.Tensor:
    """Mean KL(full || pruned) of the next-token distributions, both (answer tokens, vocabulary)."""
    full = F.log_softmax(full_logits.detach().float(), -1)
    return F.kl_div(F.log_softmax(pruned_logits.float(), -1), full, reduction="batchmean", log_target=True)


def scope_loss(logit: torch.Tensor, even: torch.Tensor, chosen: torch.Tensor) -> torch.Tensor:
    """Mean BCE of which loses less, `even` by spreading the budget evenly or `chosen`, weighed by how much; all (images,).

    What is expected to be lost itself has no gradient left once most questions are told not to be about the whole image.
    """
    less = F.binary_cross_entropy_with_logits(logit, (even < chosen).to(logit), reduction="none")
    return ((even - chosen).abs() * less).mean()


def language_loss(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Mean cross entropy, logits (answer tokens, vocabulary), labels (answer tokens,)."""
    return F.cross_entropy(logits.float(), labels)


def answered(logits: torch.Tensor, labels: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    """(answers,) bool, whether every token of each is the likeliest one.

    Args:
        logits: (answer tokens, vocabulary); labels: (answer tokens,).
        lengths: (answers,) tokens of each, in order.
    """
    right = (logits.argmax(-1) == labels).split(lengths.tolist())
    return torch.stack([each.all() for each in right])


def entropy_loss(value: torch.Tensor, temperature: torch.Tensor) -> torch.Tensor:
    """Entropy of softmax(scores / temperature), as a share of the largest: 1 for a flat map, 0 for one peak."""
    log_share = F.log_softmax(value / temperature, -1)
    return -(log_share.exp() * log_share).sum() / math.log(max(2, len(value)))


def tension_loss(tensions: torch.Tensor) -> torch.Tensor:
    """Mean square of the tensions, each in (-1, 1): 0 where all are neutral."""
    return tensions.square().mean()


def gumbel_noise(value: torch.Tensor) -> torch.Tensor:
    """Standard Gumbel noise of the shape of `value`: its top-k is a sample without replacement (Kool et al. 2019)."""
    uniform = torch.rand_like(value).clamp(1e-9, 1 - 1e-7)
    return -torch.log(-torch.log(uniform))
