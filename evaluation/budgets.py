"""Token budgets as they are written on the command line, and what they mean for one picture."""

FULL = "full"


def parse_budgets(text: str) -> tuple[float | int | str, ...]:
    """The budgets of a comma-separated list: shares in (0, 1) as float, token counts as int, and `"full"`.

    Raises:
        ValueError: an entry is none of these, or two have one `label`, under which answers are kept.
    """
    budgets = tuple(_parse(entry.strip()) for entry in text.split(","))
    labels = [label(budget) for budget in budgets]
    twice = sorted({name for name in labels if labels.count(name) > 1})
    if twice:
        raise ValueError(
            f"the budgets {text!r} name {', '.join(twice)} more than once (of a share six digits count); name each once"
        )
    return budgets


def _parse(entry: str) -> float | int | str:
    if entry == FULL:
        return FULL
    try:
        number = int(entry) if entry.lstrip("+-").isdigit() else float(entry)
    except ValueError:
        number = None
    if isinstance(number, int) and number >= 1:
        return number
    if isinstance(number, float) and 0 < number < 1:
        return number
    raise ValueError(
        f"{entry!r} is no budget; pass a share between 0 and 1 such as 0.25, a count of tokens such as 64, or 'full'"
    )


def label(budget: float | int | str) -> str:
    """The budget as it stands in tables and files: `"0.25"`, `"64"` or `"full"`."""
    return f"{budget:g}" if isinstance(budget, float) else str(budget)


def heading(budget: float | int | str) -> str:
    """The budget as the heading of a column: `"25%"`, `"64 tokens"`, `"1 token"` or `"full"`."""
    if budget == FULL:
        return FULL
    return f"{100 * budget:g}%" if isinstance(budget, float) else f"{budget} token{'s' * (budget != 1)}"


def tokens_for(budget: float | int | str, cells: int) -> int:
    """K of a picture of `cells` tokens: a share is rounded and at least one.

    A count above `cells` means the whole picture: the same count is asked of pictures of all sizes, and the mean of
    `tokens` in the results says how many were used.
    """
    if budget == FULL:
        return cells
    if isinstance(budget, float):
        return max(1, round(budget * cells))
    return min(budget, cells)
