"""Scores of probabilities: log-loss, Brier score, F1 at a threshold, calibration; error rate and nlpd for classes.

`evaluate` computes these and all other scores by the names they have in tables.

In CSR predictions, a label that is not stored has probability 0.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from labelfield.csr import as_positives, column_counts, from_counts
from labelfield.errors import DataError
from labelfield.metrics.inputs import Scores, are_probabilities, as_probabilities, as_scores, block_rows, scores_of
from labelfield.metrics.pairs import auc, coverage_error, ranking_loss
from labelfield.metrics.propensity import PROPENSITY_A, PROPENSITY_B, RankBy, inverse_propensity, rank_weight
from labelfield.metrics.ranking import RankedHits, Unlabelled, score_ranking, top_k

N_BINS = 15
# A wrong probability of exactly 0 or 1 would have an infinite loss; scikit-learn clips here too.
_CLIP = float(np.finfo(np.float64).eps)


def _at_positives(Y: sparse.csr_array, P: Any) -> NDArray[np.float64]:
    return np.nan_to_num(scores_of(Y, P).astype(np.float64))


def _blocks(P: Any) -> Iterator[NDArray[np.float64]]:
    """Yield the stored probabilities, in float64 blocks."""
    if isinstance(P, np.ndarray):
        for rows in block_rows(*P.shape):
            yield P[rows].astype(np.float64)
    else:
        yield P.data.astype(np.float64)


def log_loss(Y: Any, P: Scores) -> float:
    """Return the mean of -log p(y) over all N x K decisions, with probabilities clipped 2.2e-16 away from 0 and 1."""
    Y = as_positives(Y)
    P = as_probabilities(P, Y.shape)
    size = Y.shape[0] * Y.shape[1]
    unstored = 0 if isinstance(P, np.ndarray) else size - P.nnz
    total = -unstored * np.log1p(-_CLIP)
    for block in _blocks(P):
        total -= np.log1p(-np.clip(block, _CLIP, 1 - _CLIP)).sum()
    p = np.clip(_at_positives(Y, P), _CLIP, 1 - _CLIP)
    total += (np.log1p(-p) - np.log(p)).sum()
    return float(total / size) if size else float("nan")


def brier(Y: Any, P: Scores) -> float:
    """Return the mean of (p - y)^2 over all N x K decisions."""
    Y = as_positives(Y)
    P = as_probabilities(P, Y.shape)
    size = Y.shape[0] * Y.shape[1]
    total = sum(float(np.square(block).sum()) for block in _blocks(P)) + (1 - 2 * _at_positives(Y, P)).sum()
    return float(total / size) if size else float("nan")


def f1(Y: Any, P: Scores, threshold: float = 0.5, average: Literal["micro", "macro"] = "micro") -> float:
    """Return F1 of the decisions p >= threshold: over all entries, or as a mean over labels.

    A label that is neither true nor predicted in any row counts as 0. In CSR predictions, a label that is not stored is
    not predicted at any threshold.
    """
    if average not in ("micro", "macro"):
        raise ValueError(f"average={average!r}; expected 'micro' or 'macro'")
    Y = as_positives(Y)
    P = as_scores(P, Y.shape)
    k = Y.shape[1]
    hits = np.bincount(Y.indices[scores_of(Y, P).astype(np.float64) >= threshold], minlength=k)
    predicted = np.zeros(k)
    if isinstance(P, np.ndarray):
        for rows in block_rows(*P.shape):
            predicted += np.count_nonzero(P[rows] >= threshold, axis=0)
    else:
        predicted += np.bincount(P.indices[P.data >= threshold], minlength=k)
    at_stake = predicted + column_counts(Y)
    if average == "micro":
        return float(2 * hits.sum() / at_stake.sum()) if at_stake.sum() else 0.0
    return float(np.mean(2 * hits / np.maximum(at_stake, 1)))


@dataclass(frozen=True, eq=False)
class Reliability:
    """A reliability curve: per bin, the number of predictions, their mean probability and how often they hold."""

    edges: NDArray[np.float64]
    count: NDArray[np.int64]
    confidence: NDArray[np.float64]
    frequency: NDArray[np.float64]

    @property
    def ece(self) -> float:
        """Expected calibration error: the mean gap between stated and observed frequency, weighted by predictions."""
        total = self.count.sum()
        gap = np.abs(np.nan_to_num(self.confidence) - np.nan_to_num(self.frequency))
        return float((self.count * gap).sum() / total) if total else float("nan")


def reliability_curve(
    Y: Any, P: Scores, k: int = 5, *, n_bins: int = N_BINS, unlabelled: Unlabelled = "miss"
) -> Reliability:
    """Return the calibration of the k most probable labels of each row, in equal bins (lower, upper] and 0."""
    Y = as_positives(Y)
    return reliability_of(score_ranking(Y, as_probabilities(P, Y.shape), k, unlabelled=unlabelled), k, n_bins)


def reliability_of(hits: RankedHits, k: int, n_bins: int = N_BINS) -> Reliability:
    """Return the reliability curve of the first k places of ranked lists whose scores are probabilities."""
    counted = hits.ranked.labels[:, :k] >= 0
    if hits.unlabelled == "drop":
        counted &= (hits.n_true > 0)[:, None]
    p = hits.ranked.scores[:, :k][counted]
    held = hits.hit[:, :k][counted]
    edges = np.linspace(0, 1, n_bins + 1)
    bin_of = np.searchsorted(edges[1:-1], p)
    count = np.bincount(bin_of, minlength=n_bins)
    with np.errstate(invalid="ignore"):
        confidence = np.bincount(bin_of, p, n_bins) / count
        frequency = np.bincount(bin_of, held, n_bins) / count
    return Reliability(edges, count, confidence, frequency)


def ece_at_k(Y: Any, P: Scores, k: int = 5, *, n_bins: int = N_BINS, unlabelled: Unlabelled = "miss") -> float:
    """Return the expected calibration error of the k most probable labels of each row."""
    return reliability_curve(Y, P, k, n_bins=n_bins, unlabelled=unlabelled).ece


def _classes(y: Any, n_rows: int, n_classes: int) -> NDArray[np.int64]:
    """Return class numbers, from a vector, or from a truth matrix (n_rows, n_classes) with one positive per row."""
    if sparse.issparse(y) or np.ndim(y) == 2:
        Y = as_positives(y)
        if Y.shape != (n_rows, n_classes):
            raise DataError(f"classes of shape {Y.shape}", expected=f"({n_rows}, {n_classes})", fix="Pass a vector.")
        if (np.diff(Y.indptr) != 1).any():
            raise DataError(
                "a row that does not have exactly one class", "one class per row", "Use multi-label scores."
            )
        y = Y.indices
    y = np.asarray(y)
    if y.shape != (n_rows,) or y.dtype.kind not in "iub" or (y.size and not 0 <= y.min() <= y.max() < n_classes):
        found = f"classes of shape {y.shape} and type {y.dtype}"
        raise DataError(found, expected=f"{n_rows} integers from 0 to {n_classes - 1}")
    return np.asarray(y, np.int64)


def error_rate(y: Any, scores: Scores) -> float:
    """Return the fraction of rows whose best class (the first of equal ones) is wrong."""
    scores = as_scores(scores)
    wrong = top_k(scores, 1).labels[:, 0] != _classes(y, *scores.shape)
    return float(wrong.mean()) if wrong.size else float("nan")


def nlpd(y: Any, P: Scores) -> float:
    """Return the negative log predictive density: the mean of -log p of the true class, infinite if any p is 0."""
    P = as_probabilities(P)
    y = _classes(y, *P.shape)
    Y = from_counts(np.ones(y.size, np.int64), y.astype(np.int32), None, P.shape[1])
    with np.errstate(divide="ignore"):
        return float(-np.log(_at_positives(Y, P)).mean()) if y.size else float("nan")


def _given(weights: NDArray[np.float64] | None) -> NDArray[np.float64]:
    if weights is None:
        raise DataError("rank_by needs propensities", fix="Pass the training labels, or the inverse propensities.")
    return weights


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
    rank_by: RankBy = "probability",
) -> dict[str, float | int]:
    """Compute all scores that apply, by name.

    At each k these are `P`, `nDCG` and `R`, with training labels `PSP` and `PSnDCG`, and for probabilities `ECE`. They
    and the F1 scores are in percent. Dense scores, which rank every label, also give AUCs (0 to 1), coverage and
    ranking loss and, if they are probabilities, log-loss and Brier. `rows` is the number of rows that means are taken
    over. The inverse propensities can be given instead of the training labels.

    With `rank_by` ("propensity", or a power of the inverse propensity) labels are ranked by score times inverse
    propensity. This decides which labels are listed, and so all scores at k. Everything else, and the probabilities
    that ECE compares with frequencies, are the scores themselves.
    """
    Y = as_positives(Y)
    scores = as_scores(scores, Y.shape)
    has_probabilities = are_probabilities(scores)
    ks = sorted(set(k))
    if not ks:
        raise ValueError("k is empty; expected lengths of the ranked lists, such as (1, 3, 5)")
    weights = inverse if Y_train is None else inverse_propensity(Y_train, a, b)
    order = rank_weight(rank_by, lambda: _given(weights))
    hits = score_ranking(Y, scores, max(ks), unlabelled=unlabelled, weight=order)
    result: dict[str, float | int] = {"rows": hits.n_rows, "unlabelled_rows": int(np.count_nonzero(hits.n_true == 0))}

    def at_each_k(name: str, score: Any) -> None:
        result.update({f"{name}@{n}": 100 * score(n) for n in ks})

    at_each_k("P", hits.precision)
    at_each_k("nDCG", hits.ndcg)
    at_each_k("R", hits.recall)
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
