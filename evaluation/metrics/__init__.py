"""Scores of one answer, each beside its `evaluate.Metric`: `evaluate.load("evaluation/metrics/anls")` works offline."""

from evaluation.metrics.anls.anls import anls
from evaluation.metrics.evidence_recall.evidence_recall import WHOLE, evidence_recall
from evaluation.metrics.exact_match.exact_match import exact_match, normalise
from evaluation.metrics.relaxed_accuracy.relaxed_accuracy import as_number, relaxed_accuracy

__all__ = ["WHOLE", "anls", "as_number", "evidence_recall", "exact_match", "normalise", "relaxed_accuracy"]
