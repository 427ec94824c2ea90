"""Share of right answers where numbers may be 5% off."""

import math
import re
import unicodedata

import datasets
import evaluate

TOLERANCE = 0.05  # Masry et al. 2022, section 5
_CURRENCY = re.compile(r"^([+-]?)\s*[$€£]+\s*|\s*[$€£]+$")  # behind the sign, before it, or at the end
_GROUPED = re.compile(r"[+-]?[1-9]\d{0,2}(,\d{3})+(\.\d*)?\s*%?")


def as_number(text: str) -> float | None:
    """The finite number that `text` is, with thousands commas, a currency sign or a percent sign; else None, also with other
    commas, which may be decimal ones."""
    plain = _CURRENCY.sub(r"\1", text.strip())
    if _GROUPED.fullmatch(plain):
        plain = plain.replace(",", "")
    percent = plain.endswith("%")
    if "_" in plain:  # Python's own way to group digits
        return None
    try:
        value = float(plain.removesuffix("%"))
    except ValueError:
        return None
    if not math.isfinite(value):
        return None
    return value / 100 if percent else value


def relaxed_accuracy(prediction: str, references, tolerance: float = TOLERANCE) -> float:
    """1.0 where `prediction` is within `tolerance` of a number among `references`, or equals one of them; else 0.0.

    The tolerance is relative to the reference; a reference of zero is to be met exactly. Text must be equal but for case
    and white space. lmms-eval compares numbers with commas or a currency sign, and a reference of zero, as text.

    Source: Masry et al. 2022, "ChartQA", section 5.
    """
    number = as_number(prediction)
    for reference in references:
        target = as_number(reference)
        if number is not None and target is not None:
            # One part in 10^9 more, so that 95 against 100 does not depend on rounding.
            if abs(number - target) <= tolerance * abs(target) * (1 + 1e-9):
                return 1.0
        elif _normalise(prediction) == _normalise(reference):
            return 1.0
    return 0.0


def _normalise(text: str) -> str:
    return " ".join(unicodedata.normalize("NFC", text).lower().split())


class RelaxedAccuracy(evaluate.Metric):
    """`compute(predictions=[text], references=[[text, ...]])`: the mean `relaxed_accuracy`, and the `scores` behind it."""

    def _info(self):
        return evaluate.MetricInfo(
            description=__doc__,
            citation="Masry et al. 2022, ChartQA",
            inputs_description=type(self).__doc__,
            features=datasets.Features(
                {"predictions": datasets.Value("string"), "references": datasets.Sequence(datasets.Value("string"))}
            ),
        )

    def _compute(self, predictions, references, tolerance=TOLERANCE):
        pairs = zip(predictions, references, strict=True)
        scores = [relaxed_accuracy(prediction, answers, tolerance) for prediction, answers in pairs]
        if not scores:
            raise ValueError("no predictions came; pass at least one")
        return {"relaxed_accuracy": sum(scores) / len(scores), "scores": scores}
