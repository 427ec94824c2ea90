"""Share of answers that equal one of their references, but for case and white space."""

import unicodedata

import datasets
import evaluate


def normalise(text: str) -> str:
    """`text` without case, outer white space and repeated white space, accents as parts of their letters (Unicode's form NFC)."""
    return " ".join(unicodedata.normalize("NFC", text).lower().split())


def exact_match(prediction: str, references) -> float:
    """1.0 where `prediction` equals one of `references` after `normalise`, else 0.0."""
    return float(normalise(prediction) in {normalise(reference) for reference in references})


class ExactMatch(evaluate.Metric):
    """`compute(predictions=[text], references=[[text, ...]])`: the mean `exact_match`, and the `scores` behind it."""

    def _info(self):
        return evaluate.MetricInfo(
            description=__doc__,
            citation="",
            inputs_description=type(self).__doc__,
            features=datasets.Features(
                {"predictions": datasets.Value("string"), "references": datasets.Sequence(datasets.Value("string"))}
            ),
        )

    def _compute(self, predictions, references):
        scores = [exact_match(prediction, answers) for prediction, answers in zip(predictions, references, strict=True)]
        if not scores:
            raise ValueError("no predictions came; pass at least one")
        return {"exact_match": sum(scores) / len(scores), "scores": scores}
