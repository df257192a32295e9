"""Numbers about the test rows: scores beside those of simpler models, by frequency of labels, by uncertainty."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from labelfield.csr import column_counts, from_counts
from labelfield.metrics import RankedHits, auc, score_ranking, top_k
from labelfield.metrics.probabilities import Reliability, reliability_of
from labelfield.metrics.propensity import inverse_propensity_of
from labelfield.report.predictions import DEPTH, Predictions

_KS = (1, 3, 5)
_N_BANDS = 5
# Up to this many labels are shown one by one.
_FEW_LABELS = 12


class Counts(NamedTuple):
    """How many training rows have each label (K,), and how many rows there are."""

    of_labels: NDArray[np.int64]
    n_rows: int

    def wide(self, n_labels: int) -> Counts:
        """Return the same with columns for labels that no training row has."""
        return Counts(np.pad(self.of_labels, (0, n_labels - self.of_labels.size)), self.n_rows)

    @property
    def inverse_propensity(self) -> NDArray[np.float64]:
        """The inverse propensity of each label."""
        return inverse_propensity_of(self.of_labels, self.n_rows)


class Score(NamedTuple):
    """A score of the model and, where there are such, of the popularity ranking and of the baseline."""

    name: str
    model: float
    popularity: float | None = None
    baseline: float | None = None


class Band(NamedTuple):
    """Labels with about the same number of training rows, from `least` to `most`.

    `precision` and `psp` are what the band adds to P@k and PSP@k: over all bands they sum to these. `found` is the
    share of its true labels that are among the first k of their row. All are given by k, as shares from 0 to 1.
    """

    name: str
    least: int
    most: int
    n_labels: int
    n_true: int
    precision: dict[int, float]
    psp: dict[int, float]
    found: dict[int, float]


class Tenth(NamedTuple):
    """Rows of about the same uncertainty: how many, their mean uncertainty, and how often the first label is wrong."""

    n_rows: int
    uncertainty: float
    error: float


class Errors(NamedTuple):
    """How often first labels are wrong: by tenths of the rows, the surest first, and over all.

    `auroc` says how well the uncertainty tells wrong first labels from right ones.
    """

    tenths: list[Tenth]
    auroc: float
    error: float


def places_of(n_labels: int) -> list[int]:
    """Return the lengths at which to cut ranked lists, all shorter than a list of all labels, which says nothing."""
    return [k for k in _KS if k < n_labels] or [1]


def scores(predictions: Predictions, counts: Counts, has_classes: bool) -> list[Score]:
    """Return the scores of `labelfield evaluate` for the model and for simpler ones, in percent except for nlpd."""
    n_rows, n_labels = predictions.Y.shape
    counts = counts.wide(n_labels)
    popular = score_ranking(predictions.Y, _popular(counts, n_rows), DEPTH)
    own, by_popularity, by_baseline = (
        {} if judged is None else _ranking_scores(judged, counts, has_classes)
        for judged in (predictions.judged, popular, predictions.baseline)
    )
    # The gap of probabilities says nothing about a ranking that is the same for all rows.
    by_popularity = {name: value for name, value in by_popularity.items() if not name.startswith("ECE")}
    found = [Score(name, value, by_popularity.get(name), by_baseline.get(name)) for name, value in own.items()]
    if has_classes:
        found.insert(1, _nlpd(predictions, counts))
    return found


def _ranking_scores(judged: RankedHits, counts: Counts, has_classes: bool) -> dict[str, float]:
    """Return the scores of ranked labels in percent, by name."""
    ks, inverse = places_of(judged.Y.shape[1]), counts.inverse_propensity
    if has_classes:
        found = {"error rate": 1 - judged.precision(1), **{f"R@{k}": judged.recall(k) for k in ks[1:]}}
    else:
        found = {f"P@{k}": judged.precision(k) for k in ks} | {f"PSP@{k}": judged.psp(k, inverse) for k in ks}
    for k in ks[:1] if has_classes else sorted({ks[0], ks[-1]}):
        found[f"ECE@{k}"] = reliability_of(judged, k).ece
    return {name: 100 * value for name, value in found.items()}


def _popular(counts: Counts, n_rows: int) -> sparse.csr_array:
    """Give every row the most frequent labels of the training rows, with their frequency as probability."""
    frequency = counts.of_labels / max(counts.n_rows, 1)
    best = np.sort(top_k(frequency[None], min(DEPTH, frequency.size)).labels[0])
    labels, values = (np.tile(part, n_rows) for part in (best.astype(np.int32), frequency[best].astype(np.float32)))
    return from_counts(np.full(n_rows, best.size, np.int64), labels, values, frequency.size)


def _nlpd(predictions: Predictions, counts: Counts) -> Score:
    """Return the mean of -log p(class) over rows of known classes; popularity goes by the training counts."""
    p_true, assumed = predictions.p_true, counts.of_labels / max(counts.of_labels.sum(), 1)
    assert p_true is not None  # there is one class per row

    def mean(p: NDArray[np.float64]) -> float:
        known = p[~np.isnan(p)]
        with np.errstate(divide="ignore"):
            return float(-np.log(known).mean()) if known.size else float("nan")

    popular = np.where(np.isnan(p_true), np.nan, assumed[predictions.Y.indices])
    baseline = predictions.baseline_p_true
    return Score("nlpd", mean(p_true), mean(popular), None if baseline is None else mean(baseline))


def bands(predictions: Predictions, counts: Counts, names: Sequence[str], has_classes: bool) -> list[Band]:
    """Group labels by their training counts, rarest first: each band has about as many true labels in the test rows.

    Labels of the same count are in the same band, and labels without training rows in one of their own. Up to twelve
    labels are a band each; so few classes keep their own order.
    """
    judged, n_labels = predictions.judged, predictions.Y.shape[1]
    counts, label = counts.wide(n_labels), judged.ranked.labels
    n_true = column_counts(predictions.Y)
    is_each = n_labels <= _FEW_LABELS
    band_of = np.arange(n_labels) if is_each and has_classes else _band_of_labels(counts.of_labels, n_true)
    n_bands = int(band_of.max(initial=-1)) + 1
    inverse, ks = counts.inverse_propensity, places_of(n_labels)

    def by_band(k: int, weight: NDArray[np.float64] | None = None) -> NDArray[np.float64]:
        hits = label[:, :k][judged.hit[:, :k]]
        return np.bincount(band_of[hits], None if weight is None else weight[hits], n_bands).astype(np.float64)

    true = np.bincount(band_of, n_true, n_bands)
    precision = {k: by_band(k) / (k * max(judged.n_rows, 1)) for k in ks}
    found = {k: by_band(k) / np.maximum(true, 1) for k in ks}
    psp = {}
    for k in () if has_classes else ks:
        weighted = by_band(k, inverse)
        psp[k] = weighted * (judged.psp(k, inverse) / weighted.sum() if weighted.sum() else 0.0)
    result = []
    for band in range(n_bands):
        members = np.flatnonzero(band_of == band)
        least, most = (int(bound(counts.of_labels[members])) for bound in (np.min, np.max))
        name = "none" if most == 0 else f"{least:,}" if least == most else f"{least:,}–{most:,}"
        parts = ({k: float(values[band]) for k, values in part.items()} for part in (precision, psp, found))
        result.append(Band(names[members[0]] if is_each else name, least, most, members.size, int(true[band]), *parts))
    return result


def _band_of_labels(count: NDArray[np.int64], n_true: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the band of each label, 0 for the rarest."""
    if count.size <= _FEW_LABELS:
        return np.argsort(np.argsort(count, kind="stable"), kind="stable")
    values, place = np.unique(count, return_inverse=True)
    is_seen = values > 0
    # A count belongs to the band in which the middle of its true labels in the test rows lies.
    true = np.bincount(place, n_true, values.size) * is_seen
    middle = (np.cumsum(true) - true / 2) / max(true.sum(), 1)
    band = np.minimum((middle * _N_BANDS).astype(np.int64), _N_BANDS - 1)
    band[~is_seen] = -1
    return np.unique(band, return_inverse=True)[1][place]


def confusion(predictions: Predictions) -> NDArray[np.int64] | None:
    """Count the rows of each class by the class that they are given (K, K); None for too many classes to show."""
    n_classes = predictions.Y.shape[1]
    if n_classes > _FEW_LABELS:
        return None
    pairs = predictions.Y.indices.astype(np.int64) * n_classes + predictions.judged.ranked.labels[:, 0]
    return np.bincount(pairs, minlength=n_classes**2).reshape(n_classes, n_classes)


def reliabilities(predictions: Predictions, has_classes: bool) -> dict[int, Reliability]:
    """Return the reliability curve of the first label of each row and, for several labels per row, of the first k."""
    ks = places_of(predictions.Y.shape[1])
    return {k: reliability_of(predictions.judged, k) for k in (ks[:1] if has_classes else sorted({1, ks[-1]}))}


def errors(predictions: Predictions) -> Errors:
    """Return how often first labels are wrong by tenths of uncertainty, and how well it tells wrong from right."""
    wrong, uncertainty = predictions.is_wrong, predictions.uncertainty
    order = np.argsort(uncertainty, kind="stable")
    cuts = np.linspace(0, wrong.size, min(10, wrong.size) + 1).round().astype(np.int64)
    parts = [order[first:last] for first, last in pairwise(cuts)]
    tenths = [Tenth(rows.size, float(uncertainty[rows].mean()), float(wrong[rows].mean())) for rows in parts]
    truth = sparse.csr_array(wrong[:, None].astype(np.float32))
    return Errors(tenths, auc(truth, uncertainty[:, None]), float(wrong.mean()))
