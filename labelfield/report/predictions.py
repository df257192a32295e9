"""The model's predictions for the test rows that the page needs, computed once, a block of rows at a time."""

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse

from labelfield.csr import gather_rows
from labelfield.estimators.protocol import FittedClassifier
from labelfield.metrics import RankedHits, score_ranking, top_k
from labelfield.models.predictor import to_csr
from labelfield.progress import Progress, ignore

# How many labels of a row are scored and shown.
DEPTH = 5
# Rows times labels whose probabilities exist at once, and rows between two reports of progress.
_BLOCK_ENTRIES, _MOST_ROWS = 1 << 22, 1000


class Predictions(NamedTuple):
    """The ranked labels of each row, and which of them are right.

    `baseline` are the ranked labels of the plain model that this one started from, if it kept that. For one class per
    row, `p_true` and `baseline_p_true` are the probabilities of the true class, nan for a class that the model does not
    know.
    """

    judged: RankedHits
    p_true: NDArray[np.float64] | None = None
    baseline: RankedHits | None = None
    baseline_p_true: NDArray[np.float64] | None = None
    baseline_title: str = ""
    baseline_meaning: str = ""

    @property
    def Y(self) -> sparse.csr_array:
        """The true labels."""
        return self.judged.Y

    @property
    def first(self) -> NDArray[np.float64]:
        """The probability of the first label of each row."""
        return np.asarray(np.nan_to_num(self.judged.ranked.scores[:, 0]), np.float64)

    @property
    def uncertainty(self) -> NDArray[np.float64]:
        """How far to distrust the first label of each row, in the order that is shown."""
        return 1 - self.first

    @property
    def is_wrong(self) -> NDArray[np.bool_]:
        """Whether the first label of each row is wrong; a row without labels has no right one."""
        return np.asarray(~self.judged.hit[:, 0])


def predict_rows(
    estimator: FittedClassifier,
    X: sparse.csr_array,
    Y: sparse.csr_array,
    progress: Progress = ignore,
    weight: NDArray[np.float64] | None = None,
) -> Predictions:
    """Predict rows X with true labels Y, whose first columns are the labels of the model.

    With a positive `weight` for each column of Y, labels are ranked by probability times weight.
    """
    baseline, n_rows = estimator.predictor_.baseline(), X.shape[0]
    predictors = [estimator.predictor_, *([] if baseline is None else [baseline])]
    n_labels, has_classes = estimator.predictor_.n_labels, estimator.label_kind_ == "classes"
    step = max(1, min(_MOST_ROWS, _BLOCK_ENTRIES // n_labels))
    lists: list[list[sparse.csr_array]] = [[] for _ in predictors]
    p_true: list[list[NDArray[np.float64]]] = [[] for _ in predictors]
    for first in range(0, n_rows, step):
        block = np.arange(first, min(first + step, n_rows))
        some, truth = gather_rows(X, block), gather_rows(Y, block)
        rows = estimator.rows(some)
        for predictor, ranked, p in zip(predictors, lists, p_true, strict=True):
            if has_classes:
                P = predictor.proba(rows)
                known = np.pad(P, ((0, 0), (0, 1)), constant_values=np.nan)  # and one for all unknown classes
                p.append(known[np.arange(block.size), np.minimum(truth.indices, n_labels)].astype(np.float64))
                best = top_k(P, min(DEPTH, n_labels))
                pair = torch.from_numpy(best.labels), torch.from_numpy(best.scores.astype(np.float32))
                ranked.append(to_csr([pair], best.labels.shape[1], n_labels))
            else:
                ranked.append(predictor.top_k(rows, DEPTH, weight=None if weight is None else weight[:n_labels]))
        progress(int(block[-1]) + 1, n_rows)
    judged = [_judged(Y, ranked, weight) for ranked in lists]
    joined = [np.concatenate(p) if p else None for p in p_true]
    of_baseline = (judged[1], joined[1], baseline.title, baseline.meaning) if baseline is not None else ()
    return Predictions(judged[0], joined[0], *of_baseline)


def _judged(Y: sparse.csr_array, lists: list[sparse.csr_array], weight: NDArray[np.float64] | None) -> RankedHits:
    """Return the verdict on ranked labels, which may have fewer columns than the truth."""
    ranked = sparse.vstack(lists, format="csr")
    wide = sparse.csr_array((ranked.data, ranked.indices, ranked.indptr), shape=Y.shape)
    return score_ranking(Y, wide, DEPTH, weight=weight)
