"""What a model says of the test rows, as far as the page needs it: asked once, some rows at a time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from labelfield.csr import assemble, gather_rows
from labelfield.metrics import RankedHits, score_ranking, top_k
from labelfield.models.prediction import to_csr
from labelfield.progress import Progress, ignore

__all__ = ["DEPTH", "Answers", "ask"]

# How far down the lists scores look, and how many labels of a row are shown.
DEPTH = 5
# Rows times labels whose probabilities exist at once, and rows between two signs of life.
_BLOCK_ENTRIES, _MOST_ROWS = 1 << 22, 1000


@dataclass(frozen=True, eq=False)
class Answers:
    """The ranked lists and the verdict on each place, and how far each row is to be distrusted.

    `plain` is the verdict on the network alone, where a model has kept that. Of one class a row, `p_true` and
    `plain_p_true` are the probabilities of the true class; a class that the model has not seen has none (nan).
    """

    judged: RankedHits
    uncertainty: NDArray[np.float64]
    has_novelty: bool
    p_true: NDArray[np.float64] | None = None
    plain: RankedHits | None = None
    plain_p_true: NDArray[np.float64] | None = None

    @property
    def Y(self) -> sparse.csr_array:
        return self.judged.Y

    @property
    def first(self) -> NDArray[np.float64]:
        """The probability of the first label of each row."""
        return np.asarray(np.nan_to_num(self.judged.ranked.scores[:, 0]), np.float64)

    @property
    def is_wrong(self) -> NDArray[np.bool_]:
        """Whether the first label of each row is wrong; a row without labels has no right one."""
        return np.asarray(~self.judged.hit[:, 0])


def ask(estimator: Any, X: sparse.csr_array, Y: sparse.csr_array, progress: Progress = ignore) -> Answers:
    """Everything about rows X with the true labels Y, whose first columns are the labels of the model."""
    n_rows, n_labels = X.shape[0], estimator.spec_.n_labels
    has_classes = estimator.label_kind_ == "classes"
    has_baseline = bool(getattr(estimator.spec_, "has_baseline", False))
    has_novelty = hasattr(estimator, "predict_uncertainty")
    step = max(1, min(_MOST_ROWS, _BLOCK_ENTRIES // n_labels))
    lists: dict[str, list[sparse.csr_array]] = {"model": [], "plain": []}
    p_true: dict[str, list[NDArray[np.float64]]] = {"model": [], "plain": []}
    doubts = []
    for first in range(0, n_rows, step):
        block = np.arange(first, min(first + step, n_rows))
        some, truth = gather_rows(X, block), gather_rows(Y, block)
        for name in ("model", "plain") if has_baseline else ("model",):
            if has_classes:
                P = (estimator.predict_proba if name == "model" else estimator.baseline_proba)(some)
                p_true[name].append(_of_true_class(P, truth.indices))
                best = top_k(P, min(DEPTH, n_labels))
                ranked = to_csr(best.labels, best.scores.astype(np.float32), Y.shape[1])
            else:
                ask_best = estimator.predict_topk if name == "model" else estimator.baseline_topk
                ranked = ask_best(some, DEPTH)
            lists[name].append(ranked)
        doubts.append(
            estimator.predict_uncertainty(some) if has_novelty else 1 - lists["model"][-1].max(axis=1).toarray().ravel()
        )
        progress(int(block[-1]) + 1, n_rows)

    def verdict(name: str) -> RankedHits | None:
        if not lists[name]:
            return None
        ranked = sparse.vstack(lists[name], format="csr")
        return score_ranking(Y, assemble(ranked.data, ranked.indices, ranked.indptr, Y.shape), DEPTH)

    def probabilities(name: str) -> NDArray[np.float64] | None:
        return np.concatenate(p_true[name]) if p_true[name] else None

    judged = verdict("model")
    assert judged is not None  # there are rows
    return Answers(
        judged,
        np.concatenate(doubts).astype(np.float64),
        has_novelty,
        probabilities("model"),
        verdict("plain"),
        probabilities("plain"),
    )


def _of_true_class(P: NDArray[np.float32], y: NDArray[np.int32]) -> NDArray[np.float64]:
    """p of the class of each row; nan for one that the model does not know."""
    is_known = y < P.shape[1]
    found = np.full(y.size, np.nan)
    found[is_known] = P[np.flatnonzero(is_known), y[is_known]]
    return found
