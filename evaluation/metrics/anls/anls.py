"""Average normalised Levenshtein similarity: how near an answer's spelling comes to a reference's."""

import unicodedata

import datasets
import evaluate

THRESHOLD = 0.5  # Biten et al. 2019, section 4: further away than this is a wrong answer, not a misspelt one


def edit_distance(one: str, other: str) -> int:
    """Insertions, deletions and substitutions of single characters that turn `one` into `other` (Levenshtein 1966)."""
    row = list(range(len(other) + 1))
    for number, character in enumerate(one, start=1):
        diagonal, row[0] = row[0], number
        for column, target in enumerate(other, start=1):
            substituted = diagonal + (character != target)
            diagonal = row[column]
            row[column] = min(substituted, row[column] + 1, row[column - 1] + 1)
    return row[-1]


def anls(prediction: str, references, threshold: float = THRESHOLD) -> float:
    """The best 1 - d over `references`, d the edit distance over the longer length; 0.0 where d is not below `threshold`.

    Case and white space do not count. lmms-eval and the script of DocVQA count an answer of which exactly half is wrong, and
    lmms-eval divides by the length with all white space.

    Source: Biten et al. 2019, "Scene Text Visual Question Answering", equation 1.
    """
    prediction = _normalise(prediction)
    best = 0.0
    for reference in references:
        reference = _normalise(reference)
        distance = edit_distance(prediction, reference) / max(len(prediction), len(reference), 1)
        if distance < threshold:
            best = max(best, 1 - distance)
    return best


def _normalise(text: str) -> str:
    return " ".join(unicodedata.normalize("NFC", text).lower().split())


class ANLS(evaluate.Metric):
    """`compute(predictions=[text], references=[[text, ...]])`: the mean `anls`, and the `scores` behind it."""

    def _info(self):
        return evaluate.MetricInfo(
            description=__doc__,
            citation="Biten et al. 2019, Scene Text Visual Question Answering",
            inputs_description=type(self).__doc__,
            features=datasets.Features(
                {"predictions": datasets.Value("string"), "references": datasets.Sequence(datasets.Value("string"))}
            ),
        )

    def _compute(self, predictions, references, threshold=THRESHOLD):
        pairs = zip(predictions, references, strict=True)
        scores = [anls(prediction, answers, threshold) for prediction, answers in pairs]
        if not scores:
            raise ValueError("no predictions came; pass at least one")
        return {"anls": sum(scores) / len(scores), "scores": scores}
