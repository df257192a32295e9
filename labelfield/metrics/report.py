"""All scores of a set of predictions, by the names they have in tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labelfield.csr import as_positives
from labelfield.metrics.inputs import Scores, are_probabilities, as_scores
from labelfield.metrics.pairs import auc, coverage_error, ranking_loss
from labelfield.metrics.probabilities import brier, f1, log_loss, reliability_of
from labelfield.metrics.propensity import PROPENSITY_A, PROPENSITY_B, inverse_propensity
from labelfield.metrics.ranking import Unlabelled, score_ranking

__all__ = ["evaluate"]


def evaluate(
    Y: Any,
    scores: Scores,
    Y_train: Any | None = None,
    *,
    k: Sequence[int] = (1, 3, 5),
    unlabelled: Unlabelled = "miss",
    a: float = PROPENSITY_A,
    b: float = PROPENSITY_B,
    threshold: float = 0.5,
    inverse: NDArray[np.float64] | None = None,
) -> dict[str, float | int]:
    """Compute all scores that apply, by name.

    At each k these are `P`, `nDCG` and `R`, with training labels `PSP` and `PSnDCG`, and for probabilities `ECE`. They
    and the F1 scores are in percent. Dense scores, which rank every label, also give AUCs (0 to 1), coverage and
    ranking loss and, if they are probabilities, log-loss and Brier. `rows` is the number of rows that means are taken
    over. The inverse propensities can be given instead of the training labels.
    """
    Y = as_positives(Y)
    scores = as_scores(scores, Y.shape)
    has_probabilities = are_probabilities(scores)
    ks = sorted(set(k))
    if not ks:
        raise ValueError("k is empty; expected lengths of the ranked lists, such as (1, 3, 5)")
    hits = score_ranking(Y, scores, max(ks), unlabelled=unlabelled)
    result: dict[str, float | int] = {"rows": hits.n_rows, "unlabelled_rows": int(np.count_nonzero(hits.n_true == 0))}

    def at_each_k(name: str, score: Any) -> None:
        result.update({f"{name}@{n}": 100 * score(n) for n in ks})

    at_each_k("P", hits.precision)
    at_each_k("nDCG", hits.ndcg)
    at_each_k("R", hits.recall)
    weights = inverse if Y_train is None else inverse_propensity(Y_train, a, b)
    if weights is not None:
        at_each_k("PSP", lambda n: hits.psp(n, weights))
        at_each_k("PSnDCG", lambda n: hits.psndcg(n, weights))
    if has_probabilities:
        at_each_k("ECE", lambda n: reliability_of(hits, n).ece)
        result |= {f"{kind}F1": 100 * f1(Y, scores, threshold, kind) for kind in ("micro", "macro")}
    if isinstance(scores, np.ndarray):
        result |= {f"AUC_{kind}": auc(Y, scores, kind) for kind in ("micro", "label", "row")}
        result |= {"coverage": coverage_error(Y, scores), "ranking_loss": ranking_loss(Y, scores)}
        if has_probabilities:
            result |= {"log_loss": log_loss(Y, scores), "brier": brier(Y, scores)}
    return result
