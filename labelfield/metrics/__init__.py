"""Scores for many labels, from CSR truth and dense scores or CSR top-k predictions. Needs only NumPy and SciPy."""

from labelfield.metrics.pairs import auc, coverage_error, ranking_loss
from labelfield.metrics.probabilities import (
    Reliability,
    brier,
    ece_at_k,
    error_rate,
    evaluate,
    f1,
    log_loss,
    nlpd,
    reliability_curve,
)
from labelfield.metrics.propensity import inverse_propensity
from labelfield.metrics.ranking import (
    RankedHits,
    TopK,
    f1_at_k,
    ndcg_at_k,
    popularity,
    precision_at_k,
    psndcg_at_k,
    psp_at_k,
    recall_at_k,
    score_ranking,
    top_k,
)

__all__ = ["auc", "coverage_error", "ranking_loss"]
__all__ += ["Reliability", "brier", "ece_at_k", "error_rate", "evaluate", "f1", "log_loss", "nlpd"]
__all__ += ["f1_at_k", "inverse_propensity", "reliability_curve", "score_ranking", "top_k"]
__all__ += ["RankedHits", "TopK", "ndcg_at_k", "popularity", "precision_at_k", "psndcg_at_k", "psp_at_k", "recall_at_k"]
