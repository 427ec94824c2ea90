"""What one column of a comparison is: a method, a budget, and how the budget is spent."""

import difflib
from collections.abc import Sequence
from dataclasses import dataclass

from arrcoc.budget import MODES
from arrcoc.configuration_arrcoc import check_allocation_mode, check_encode_ratio
from evaluation.budgets import FULL, heading, tokens_for

# Those of `evaluation.baselines` that need neither training nor evidence boxes; stock is transformers' own Qwen3-VL.
METHODS = (
    "arrcoc", "stock", "resize", "random", "strided", "pooling", "tome", "fastv", "visionzip", "divprune", "cdpruner",
)  # fmt: skip
AUTO = "auto"
SPENDING = ("allocation_mode", "encode_ratio")  # what of a condition says how arrcoc spends


@dataclass(frozen=True)
class Condition:
    """One way to spend visual tokens.

    Args:
        method: one of `METHODS`.
        token_budget: a share in (0, 1) of each picture's tokens, a count from 1 on, or "full"; for arrcoc also "auto" and the
            named modes. Stock takes none but "full".
        allocation_mode, encode_ratio: as `generate()` of ARR-COC takes them; arrcoc alone has them.

    Raises:
        ValueError: a value is not one of these; the message says what is.
    """

    method: str = "arrcoc"
    token_budget: float | int | str | None = None
    allocation_mode: str = "select"
    encode_ratio: float | str = 1.0

    def __post_init__(self):
        if self.method not in METHODS:
            near = difflib.get_close_matches(str(self.method), METHODS, n=1)
            hint = f", did you mean {near[0]!r}?" if near else ";"
            raise ValueError(f"method={self.method!r} is unknown{hint} pass one of {', '.join(METHODS)}")
        if self.method == "stock" and self.token_budget is None:
            object.__setattr__(self, "token_budget", FULL)
        self._check_budget()
        check_allocation_mode(self.allocation_mode)
        check_encode_ratio(self.encode_ratio)
        if self.encode_ratio != AUTO:
            object.__setattr__(self, "encode_ratio", float(self.encode_ratio))
        if self.method != "arrcoc" and self.spending:
            raise ValueError(
                f"method={self.method} encodes pictures whole; leave out {' and '.join(self.spending)}, or pass method=arrcoc"
            )

    def _check_budget(self):
        budget, ours = self.token_budget, self.method == "arrcoc"
        if self.method == "stock" and budget != FULL:
            raise ValueError(f"method=stock reads every token; leave out token_budget={budget!r}")
        named = (FULL, AUTO, *MODES) if ours else (FULL,)
        if isinstance(budget, str) and budget in named:
            return
        if isinstance(budget, int) and not isinstance(budget, bool) and budget >= 1:
            return
        if isinstance(budget, float) and 0 < budget < 1:
            return
        raise ValueError(
            f"token_budget={budget!r} is no budget of method={self.method}; pass a share between 0 and 1 such as 0.1, a count "
            f"of tokens such as 64, or one of {', '.join(named)}"
        )

    @property
    def spending(self) -> dict:
        """`allocation_mode` and `encode_ratio` where they are not the defaults; other methods than arrcoc have none."""
        own = {name: getattr(self, name) for name in SPENDING}
        return {name: value for name, value in own.items() if value != getattr(Condition, name)}

    @property
    def all_spending(self) -> dict:
        """`allocation_mode` and `encode_ratio` of arrcoc, the defaults too."""
        return {name: getattr(self, name) for name in SPENDING if self.method == "arrcoc"}

    def budgets(self, cells: Sequence[int]) -> list[int | str]:
        """Tokens of each picture, from the tokens that it has; `"auto"` where only the processor can tell."""
        if self.token_budget == AUTO:
            return [AUTO] * len(cells)
        budget = MODES.get(self.token_budget, self.token_budget)
        return [tokens_for(budget, count) for count in cells]

    @property
    def budget(self) -> str:
        """The budget as a table's row names it: `"10%"`, `"64 tokens"`, `"full"`, `"auto"`, `"small"`."""
        return self.token_budget if isinstance(self.token_budget, str) else heading(self.token_budget)

    @property
    def title(self) -> str:
        """The method as a table names it, with what is not the default."""
        return ", ".join([self.method, *(f"{name}={value}" for name, value in self.spending.items())])

    @property
    def arguments(self) -> dict:
        """What `--model_args` says of this condition."""
        return {"method": self.method, "token_budget": self.token_budget, **self.spending}

    @property
    def folder(self) -> str:
        """Name of the folder of its results."""
        return "_".join(str(value) for value in self.arguments.values())


def conditions(
    methods: Sequence[str],
    budgets: Sequence[float | int | str],
    allocation_mode: str = "select",
    encode_ratio: float | str = 1.0,
) -> list[Condition]:
    """Every method at every budget, stock once and first; `allocation_mode` and `encode_ratio` are arrcoc's.

    Raises:
        ValueError: as `Condition`, or what is arrcoc's is given without it.
    """
    if "arrcoc" not in methods and (allocation_mode, encode_ratio) != ("select", 1.0):
        raise ValueError(
            f"allocation_mode={allocation_mode} and encode_ratio={encode_ratio} are arrcoc's, which is not among the methods; "
            "leave them out, or add arrcoc to --methods"
        )
    ours = {"allocation_mode": allocation_mode, "encode_ratio": encode_ratio}
    chosen = [Condition("stock")] if "stock" in methods else []
    for budget in budgets:
        for method in methods:
            if method != "stock":
                chosen.append(Condition(method, budget, **(ours if method == "arrcoc" else {})))
    return chosen
