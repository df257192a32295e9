"""Numbers about the test rows: scores beside those of simpler answers, by how frequent labels are, by how sure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from labelfield.csr import from_counts
from labelfield.metrics import RankedHits, auc, score_ranking, top_k
from labelfield.metrics.probabilities import Reliability, reliability_of
from labelfield.metrics.propensity import inverse_propensity_of
from labelfield.report.answers import DEPTH, Answers

__all__ = [
    "Band",
    "Counts",
    "Doubt",
    "Score",
    "Tenth",
    "bands",
    "confusion",
    "doubt",
    "places_of",
    "reliabilities",
    "scores",
]

_KS = (1, 3, 5)
_N_BANDS = 5
# So few labels are shown each by itself.
_FEW_LABELS = 12


@dataclass(frozen=True, eq=False)
class Counts:
    """How many of the n training rows have each label (K,)."""

    of_labels: NDArray[np.int64]
    n_rows: int

    def wide(self, n_labels: int) -> Counts:
        """With columns for labels that no training row has."""
        return Counts(np.pad(self.of_labels, (0, n_labels - self.of_labels.size)), self.n_rows)

    @property
    def inverse_propensity(self) -> NDArray[np.float64]:
        return inverse_propensity_of(self.of_labels, self.n_rows)


@dataclass(frozen=True)
class Score:
    """A score of the model and, where there are such, of the popularity ranking and of the network alone."""

    name: str
    model: float
    popularity: float | None = None
    network: float | None = None


@dataclass(frozen=True)
class Band:
    """Labels with about the same number of training rows, `least` to `most`.

    `precision` and `psp` are what the band adds to P@k and PSP@k: over all bands they sum to these. `found` is the
    share of its true labels that are among the first k of their row. By k; shares from 0 to 1.
    """

    name: str
    least: int
    most: int
    n_labels: int
    n_true: int
    precision: dict[int, float]
    psp: dict[int, float]
    found: dict[int, float]


@dataclass(frozen=True)
class Tenth:
    """Rows that the model is about equally sure of: how many, their mean uncertainty, and how often it is wrong."""

    n_rows: int
    uncertainty: float
    error: float


@dataclass(frozen=True)
class Doubt:
    """Whether the model knows when it does not know: tenths of rows, the surest first, and AUROCs of being wrong."""

    tenths: list[Tenth]
    auroc: float
    auroc_of_p: float
    error: float


def places_of(n_labels: int) -> list[int]:
    """Where lists are cut: a list of all labels says nothing."""
    return [k for k in _KS if k < n_labels] or [1]


def scores(answers: Answers, counts: Counts, has_classes: bool) -> list[Score]:
    """What `labelfield evaluate` says of the model, and of the labels by their frequency in training; in percent, but
    for nlpd."""
    n_rows, n_labels = answers.Y.shape
    counts = counts.wide(n_labels)
    popular = score_ranking(answers.Y, _popular(counts, n_rows), DEPTH)
    found: list[Score] = []

    def add(name: str, ask: Callable[[RankedHits], float], has_popular: bool = True) -> None:
        by_popularity = 100 * ask(popular) if has_popular else None
        by_network = None if answers.plain is None else 100 * ask(answers.plain)
        found.append(Score(name, 100 * ask(answers.judged), by_popularity, by_network))

    ks = places_of(n_labels)
    if has_classes:
        add("error rate", lambda judged: 1 - judged.precision(1))
        found.append(_nlpd(answers, counts))
        for k in ks[1:]:
            add(f"R@{k}", lambda judged, k=k: judged.recall(k))  # type: ignore[misc]  # mypy knows no lambda's default
    else:
        for k in ks:
            add(f"P@{k}", lambda judged, k=k: judged.precision(k))  # type: ignore[misc]  # as above
        inverse = counts.inverse_propensity
        for k in ks:
            add(f"PSP@{k}", lambda judged, k=k: judged.psp(k, inverse))  # type: ignore[misc]  # as above
    for k in ks[:1] if has_classes else sorted({ks[0], ks[-1]}):
        add(f"ECE@{k}", lambda judged, k=k: reliability_of(judged, k).ece, False)  # type: ignore[misc]  # as above
    return found


def _popular(counts: Counts, n_rows: int) -> sparse.csr_array:
    """The same labels in every row: the most frequent in training, with their frequency as probability."""
    frequency = counts.of_labels / max(counts.n_rows, 1)
    best = np.sort(top_k(frequency[None], min(DEPTH, frequency.size)).labels[0])
    values = np.tile(frequency[best].astype(np.float32), n_rows)
    return from_counts(
        np.full(n_rows, best.size, np.int64), np.tile(best.astype(np.int32), n_rows), values, frequency.size
    )


def _nlpd(answers: Answers, counts: Counts) -> Score:
    """The mean of -log p(class) over rows of classes that the model knows; of popularity, by the training counts."""
    y, assumed = answers.Y.indices, counts.of_labels / max(counts.of_labels.sum(), 1)

    def mean(p: NDArray[np.float64] | None) -> float | None:
        if p is None:
            return None
        known = p[~np.isnan(p)]
        with np.errstate(divide="ignore"):
            return float(-np.log(known).mean()) if known.size else float("nan")

    assert answers.p_true is not None  # of one class a row
    value = mean(answers.p_true)
    assert value is not None
    popular = np.where(np.isnan(answers.p_true), np.nan, assumed[y])
    return Score("nlpd", value, mean(popular), mean(answers.plain_p_true))


# Labels by their frequency


def bands(answers: Answers, counts: Counts, names: Sequence[str], has_classes: bool) -> list[Band]:
    """Labels by their training counts, the rarest first: about equally many true labels of the test rows in each band.

    Labels of the same count are in the same band; those that no training row has are a band of their own. Up to
    twelve labels are a band each, and so many classes stand in their own order.
    """
    judged, n_labels = answers.judged, answers.Y.shape[1]
    counts = counts.wide(n_labels)
    n_true = np.bincount(answers.Y.indices, minlength=n_labels)
    is_each = _is_few(n_labels)
    band_of = np.arange(n_labels) if is_each and has_classes else _band_of_labels(counts.of_labels, n_true)
    n_bands = int(band_of.max(initial=-1)) + 1
    label = judged.ranked.labels
    inverse = counts.inverse_propensity
    ks = places_of(n_labels)

    def by_band(k: int, weight: NDArray[np.float64] | None = None) -> NDArray[np.float64]:
        hits = label[:, :k][judged.hit[:, :k]]
        return np.bincount(band_of[hits], None if weight is None else weight[hits], n_bands).astype(np.float64)

    true = np.bincount(band_of, n_true, n_bands)
    precision = {k: by_band(k) / (k * max(judged.n_rows, 1)) for k in ks}
    found = {k: by_band(k) / np.maximum(true, 1) for k in ks}
    psp = {}
    for k in () if has_classes else ks:
        weighted = by_band(k, inverse)
        # A band's share of what was gained, of all that could be.
        psp[k] = weighted * (judged.psp(k, inverse) / weighted.sum() if weighted.sum() else 0.0)
    result = []
    for band in range(n_bands):
        members = np.flatnonzero(band_of == band)
        least, most = (int(bound(counts.of_labels[members])) for bound in (np.min, np.max))
        result.append(
            Band(
                names[members[0]] if is_each else _name(least, most),
                least,
                most,
                members.size,
                int(true[band]),
                *({k: float(values[band]) for k, values in part.items()} for part in (precision, psp, found)),
            )
        )
    return result


def _is_few(n_labels: int) -> bool:
    return n_labels <= _FEW_LABELS


def _band_of_labels(count: NDArray[np.int64], n_true: NDArray[np.int64]) -> NDArray[np.int64]:
    """The band of each label, 0 for the rarest."""
    order = np.argsort(count, kind="stable")
    if _is_few(count.size):
        return np.argsort(order, kind="stable")
    values, place = np.unique(count, return_inverse=True)
    is_seen = values > 0
    # True labels of the test rows at each count; halfway through them is where a count belongs.
    true = np.bincount(place, n_true, values.size) * is_seen
    middle = (np.cumsum(true) - true / 2) / max(true.sum(), 1)
    band = np.minimum((middle * _N_BANDS).astype(np.int64), _N_BANDS - 1)
    band[~is_seen] = -1
    return np.unique(band, return_inverse=True)[1][place]


def _name(least: int, most: int) -> str:
    if most == 0:
        return "none"
    return f"{least:,}" if least == most else f"{least:,}–{most:,}"


def confusion(answers: Answers) -> NDArray[np.int64] | None:
    """How many rows of each class (K,) are named as each (K, K), of few enough classes to be seen at once."""
    n_classes = answers.Y.shape[1]
    if not _is_few(n_classes):
        return None
    pairs = answers.Y.indices.astype(np.int64) * n_classes + answers.judged.ranked.labels[:, 0]
    return np.bincount(pairs, minlength=n_classes**2).reshape(n_classes, n_classes)


# How sure


def reliabilities(answers: Answers, has_classes: bool) -> dict[int, Reliability]:
    """The reliability curve of the first label of each row and, of several labels a row, of the first k."""
    ks = places_of(answers.Y.shape[1])
    return {k: reliability_of(answers.judged, k) for k in (ks[:1] if has_classes else sorted({1, ks[-1]}))}


def doubt(answers: Answers) -> Doubt:
    """Tenths of the rows by their uncertainty, and how well it tells a wrong first label from a right one."""
    wrong = answers.is_wrong
    order = np.argsort(answers.uncertainty, kind="stable")
    cuts = np.linspace(0, wrong.size, min(10, wrong.size) + 1).round().astype(np.int64)
    tenths = []
    for first, last in pairwise(cuts):
        rows = order[first:last]
        tenths.append(Tenth(rows.size, float(answers.uncertainty[rows].mean()), float(wrong[rows].mean())))
    truth = sparse.csr_array(wrong[:, None].astype(np.float32))
    auroc, auroc_of_p = (auc(truth, values[:, None]) for values in (answers.uncertainty, 1 - answers.first))
    return Doubt(tenths, auroc, auroc_of_p, float(wrong.mean()))
