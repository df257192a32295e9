"""All ranking scores from top-5 lists: of the size of EUR-Lex against napkinXC, and of a million rows."""

from __future__ import annotations

from functools import partial
from statistics import median
from typing import Any

import numpy as np

from benchmarks.measuring.isolated import isolated

K = (1, 3, 5)


def _lists(n: int, n_labels: int, per_row: int, rng: np.random.Generator) -> Any:
    """Make CSR rows of `per_row` distinct labels with random scores, frequent labels more often."""
    from labelfield.csr import from_counts

    labels = (n_labels * rng.random((n, 4 * per_row)) ** 3).astype(np.int64)
    labels.sort(axis=1)
    labels += np.arange(4 * per_row) * (np.diff(labels, axis=1, prepend=-1) == 0)
    labels = np.sort(labels, axis=1)[:, ::4] % n_labels
    labels.sort(axis=1)
    keep = np.diff(labels, axis=1, prepend=-1) > 0
    values = rng.random(int(keep.sum()), np.float32)
    return from_counts(keep.sum(axis=1), labels[keep].astype(np.int32), values, n_labels)


def _prepare(n: int, n_labels: int) -> Any:
    import napkinxc.metrics
    from scipy import sparse

    from labelfield import metrics

    rng = np.random.default_rng(0)
    Y, predictions = _lists(n, n_labels, 5, rng), _lists(n, n_labels, 5, rng)
    Y = sparse.csr_array((np.ones_like(Y.data), Y.indices, Y.indptr), shape=Y.shape)
    return metrics, napkinxc.metrics, Y, predictions


def _score_ours(prepared: Any) -> dict[str, float]:
    metrics, _, Y, predictions = prepared
    inverse = metrics.inverse_propensity(Y)
    judged = metrics.score_ranking(Y, predictions, max(K))
    result: dict[str, float] = {}
    for k in K:
        result |= {f"P@{k}": judged.precision(k), f"nDCG@{k}": judged.ndcg(k), f"R@{k}": judged.recall(k)}
        result |= {f"PSP@{k}": judged.psp(k, inverse), f"PSnDCG@{k}": judged.psndcg(k, inverse)}
    return result


def _prepare_theirs(n: int, n_labels: int) -> Any:
    """Make plain lists, best label first, on which napkinXC is fastest; the time for this does not count."""
    metrics, napkin, Y, predictions = _prepare(n, n_labels)
    truth = [part.tolist() for part in np.split(Y.indices, Y.indptr[1:-1])]
    ranked = metrics.top_k(predictions, max(K)).labels
    return napkin, truth, [row[row >= 0].tolist() for row in ranked], metrics.inverse_propensity(Y)


def _score_theirs(prepared: Any) -> dict[str, float]:
    napkin, truth, lists, inverse = prepared
    result: dict[str, float] = {}
    for name, score in (("P", napkin.precision_at_k), ("nDCG", napkin.ndcg_at_k), ("R", napkin.recall_at_k)):
        at = score(truth, lists, k=max(K))
        result |= {f"{name}@{k}": float(at[k - 1]) for k in K}
    for name, score in (("PSP", napkin.psprecision_at_k), ("PSnDCG", napkin.psndcg_at_k)):
        at = score(truth, lists, inverse, k=max(K))
        result |= {f"{name}@{k}": float(at[k - 1]) for k in K}
    return result


def run() -> dict[str, Any]:
    eurlex = partial(_prepare, 3809, 3993)
    ours = [isolated(eurlex, _score_ours) for _ in range(3)]
    theirs = [isolated(partial(_prepare_theirs, 3809, 3993), _score_theirs) for _ in range(3)]
    million = isolated(partial(_prepare, 1_000_000, 13_000), _score_ours)
    difference = max(abs(ours[0].value[name] - theirs[0].value[name]) for name in ours[0].value)
    seconds, peer_seconds = (median(one.seconds for one in runs) for runs in (ours, theirs))
    return {
        "scores": sorted(ours[0].value),
        "eurlex_seconds": seconds,
        "napkinxc_seconds": peer_seconds,
        "time_ratio": seconds / peer_seconds,
        "largest_difference": difference,
        "million_seconds": million.seconds,
        "million_peak_mb": million.peak_mb,
    }
