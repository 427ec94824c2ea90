"""How many visual tokens an image gets: reading `token_budget`, and deciding `"auto"`."""

import operator
import re

import torch

# DeepSeek-OCR's mode names and their token counts (Wei et al. 2025, "DeepSeek-OCR", section 3.2).
MODES = {"tiny": 64, "small": 100, "base": 256, "large": 400}
TIERS = (64, 100, 160, 256, 400)
ONE_BUDGET = f"a whole number of tokens >= 1, one of {', '.join(map(repr, MODES))}, 'auto' or 'full'"
ALLOWED = f"{ONE_BUDGET}, None for the processor's default, or a list of these with one entry per image"

# Words by which a question asks for more than one place of the image.
_BROAD = re.compile(
    r"\b(all|every|each|any|anything|anyone|anybody|everything|everyone|everybody|list|count|how many|number of(?! the\b)|"
    r"describe|explain|summari[sz]e|overview|compare|differs?|differences?|different|more|fewer|average|transcribe|ocr|markdown|"
    r"(?:extract|read)(?: out)? (?:(?:the|this|its) )?(?:(?:whole|full) )?(?:text|page|document|image|picture|contents?)|"
    r"(?:do|can) you see|what(?:['\u2019]s| is) (?:in|on) (?:the|this) (?:image|picture|photo|page|screen|screenshot)(?=\W*\Z))\b",
    re.IGNORECASE,
)
# Tokens per informative cell: a question about one place needs a part of them, any other question all.
_NARROW_SHARE, _BROAD_SHARE = 0.5, 1.0


def _check_entry(budget, default):
    if budget is None:
        budget = default
    if isinstance(budget, str):
        if budget in MODES or budget in ("auto", "full"):
            return MODES.get(budget, budget)
    elif not isinstance(budget, bool) and getattr(budget, "dtype", None) != torch.bool:
        try:
            count = operator.index(budget)
        except TypeError:
            count = 0
        if count >= 1:
            return count
    raise ValueError(f"token_budget={budget!r} is not a budget; pass {ALLOWED}")


def as_entries(token_budget):
    """A list where `token_budget` has one entry per image (a list, tuple, range, or 1-D tensor or array); else as it is."""
    if isinstance(token_budget, (list, tuple, range)):
        return list(token_budget)
    return token_budget.tolist() if getattr(token_budget, "ndim", 0) == 1 else token_budget


def check_token_budget(token_budget, num_images: int, default="full") -> list[int | str]:
    """One checked budget for each of `num_images`: a token count >= 1, `"auto"` or `"full"`.

    `None`, alone or in a list, stands for `default`; mode names become their counts.

    Raises:
        ValueError: an entry is no budget, or the list has not one entry per image. The message names the value and what
            is allowed.
    """
    token_budget = as_entries(token_budget)
    if isinstance(token_budget, list):
        if len(token_budget) != num_images:
            raise ValueError(
                f"token_budget={token_budget!r} has {len(token_budget)} entries for {num_images} images; pass one entry "
                f"per image, or a single budget for all"
            )
        return [_check_entry(entry, default) for entry in token_budget]
    return [_check_entry(token_budget, default)] * num_images


def effective_cells(information: torch.Tensor) -> float:
    """The number of cells that the information is spread over: exp of the entropy of its distribution.

    1 for a single informative cell, the number of cells where all are equally informative, 0 for a blank image.

    Args:
        information: (h, w) non-negative map.
    """
    mass = information.double().flatten().clamp_min(0)
    total = mass.sum()
    if total <= 1e-6 * mass.numel():  # below any rounding of a blank page
        return 0.0
    share = mass / total
    return torch.special.entr(share).sum().exp().item()


def auto_token_budget(information: torch.Tensor, question: str) -> int:
    """The smallest tier that holds the informative cells that a question can need.

    Args:
        information: (h, w) map in [0, 1], the propositional score of the image alone.
        question: text of the asking turn, or `""`.

    Returns:
        One of `TIERS`; the largest where more would be needed.
    """
    broad = not question.strip() or _BROAD.search(question) is not None
    # Rounded, because the cells of an even map come out whole only up to the last bits.
    needed = round(effective_cells(information) * (_BROAD_SHARE if broad else _NARROW_SHARE))
    return next((tier for tier in TIERS if tier >= needed), TIERS[-1])
