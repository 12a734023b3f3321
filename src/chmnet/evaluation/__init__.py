"""Evaluation: predict once into a file, score it in as many ways as asked, report."""

from chmnet.evaluation.predict import check_pairs, predict
from chmnet.evaluation.predictions import Header, PredictionFile, open_finished, open_predictions
from chmnet.evaluation.report import write_report
from chmnet.evaluation.score import evaluate

__all__ = [
    "Header",
    "PredictionFile",
    "check_pairs",
    "evaluate",
    "open_finished",
    "open_predictions",
    "predict",
    "write_report",
]
