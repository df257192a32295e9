"""Scores for many labels, on CSR truth and dense scores or CSR top-k predictions. NumPy and SciPy only."""

from labelfield.metrics.pairs import auc, coverage_error, ranking_loss
from labelfield.metrics.popularity import popularity
from labelfield.metrics.probabilities import (
    Reliability,
    brier,
    ece_at_k,
    error_rate,
    f1,
    log_loss,
    nlpd,
    reliability_curve,
)
from labelfield.metrics.propensity import inverse_propensity
from labelfield.metrics.ranking import (
    Judged,
    TopK,
    judge,
    ndcg_at_k,
    precision_at_k,
    psndcg_at_k,
    psp_at_k,
    recall_at_k,
    top_k,
)
from labelfield.metrics.report import evaluate

__all__ = [
    "Judged",
    "Reliability",
    "TopK",
    "auc",
    "brier",
    "coverage_error",
    "ece_at_k",
    "error_rate",
    "evaluate",
    "f1",
    "inverse_propensity",
    "judge",
    "log_loss",
    "ndcg_at_k",
    "nlpd",
    "popularity",
    "precision_at_k",
    "psndcg_at_k",
    "psp_at_k",
    "ranking_loss",
    "recall_at_k",
    "reliability_curve",
    "top_k",
]
