"""How much of the answer's place in the picture was kept."""

import datasets
import evaluate
import numpy

WHOLE = 0.999  # recall from which evidence counts as kept whole


def evidence_recall(kept, weight) -> float:
    """The share, in [0, 1], of the evidence's area that lies in kept cells.

    Args:
        kept: (rows, columns), true where the cell was kept.
        weight: (rows, columns), the share of the evidence's area in each cell; its sum is 1.

    Raises:
        ValueError: the shapes differ, a weight is below 0 or none, or they do not sum to 1.
    """
    kept, weight = numpy.asarray(kept, dtype=bool), numpy.asarray(weight, dtype=float)
    if kept.shape != weight.shape:
        raise ValueError(f"kept cells of shape {kept.shape} and evidence of shape {weight.shape}; pass the same grid")
    if not (weight >= 0).all():
        raise ValueError("a weight of the evidence is below 0 or NaN; pass shares of its area")
    if abs(weight.sum() - 1) > 1e-3:
        raise ValueError(f"the evidence's weights sum to {weight.sum():.4g}; pass shares of its area, which sum to 1")
    return float(min(1.0, weight[kept].sum()))


class EvidenceRecall(evaluate.Metric):
    """`compute(predictions=[kept grid], references=[weight grid])`: mean `evidence_recall`, share `kept_whole`, `scores`."""

    def _info(self):
        def grid(kind):
            return datasets.Sequence(datasets.Sequence(datasets.Value(kind)))

        return evaluate.MetricInfo(
            description=__doc__,
            citation="",
            inputs_description=type(self).__doc__,
            features=datasets.Features({"predictions": grid("bool"), "references": grid("float64")}),
        )

    def _compute(self, predictions, references):
        scores = [evidence_recall(kept, weight) for kept, weight in zip(predictions, references, strict=True)]
        if not scores:
            raise ValueError("no predictions came; pass at least one")
        whole = [score >= WHOLE for score in scores]
        return {
            "evidence_recall": sum(scores) / len(scores),
            "kept_whole": sum(whole) / len(whole),
            "scores": scores,
        }
