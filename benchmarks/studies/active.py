"""How many rows a person has to label until a model is nearly as good as with all of them, by how rows are chosen.

Rows come from the training data alone: a fifth of them scores, the others are the pool. Every start begins with the
same random rows for all strategies; then rows are added in steps of half of what there is. A model of fixed settings is
trained after each step, so that only the choice of rows differs.
"""

from __future__ import annotations

import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from statistics import mean, stdev
from typing import Any

import numpy as np

from benchmarks.paths import DATA
from labelfield.active.query import Strategy

__all__ = ["run", "run_text"]

STRATEGIES: tuple[Strategy, ...] = ("random", "uncertainty", "information", "diverse")
N_STARTS, FIRST, GROWTH, SHARE = 10, 100, 1.5, 0.95
# Rows of a data set that take part, so that a step takes seconds.
_MOST_ROWS = {"bibtex": 5000, "eurovoc-text": 1500}


def _rows(name: str) -> tuple[Any, Any]:
    import labelfield
    from labelfield.csr import from_counts
    from labelfield.text.words import WordEncoder

    if name == "eurovoc-text":
        documents = labelfield.read_documents(DATA / name)
        assert documents.labels is not None
        X = WordEncoder(language="en", pairs=False, characters="off").fit_transform(documents.texts, (1.0, 1.0))
        names = sorted({one for own in documents.labels for one in own})
        columns = {one: place for place, one in enumerate(names)}
        counts = np.array([len(own) for own in documents.labels])
        indices = np.array([columns[one] for own in documents.labels for one in sorted(own)], np.int32)
        return X, from_counts(counts, indices, None, len(names))
    data = labelfield.read(DATA / name)
    return data.X, data.Y


def _fit(X: Any, Y: Any) -> Any:
    import labelfield

    return labelfield.LinearClassifier(row_transform="unit", cost=1.0, device="cpu", random_state=0).fit(X, Y)


def _score(model: Any, X: Any, Y: Any) -> float:
    from labelfield import metrics

    return float(np.mean([metrics.precision_at_k(Y, model.predict_topk(X, 5), k) for k in (1, 3, 5)]))


def needed(sizes: list[int], scores: list[float], target: float) -> float | None:
    """Return the number of rows at which scores first reach a target, by a line between steps; None if never."""
    for place, score in enumerate(scores):
        if score >= target:
            if place == 0:
                return float(sizes[0])
            before = scores[place - 1]
            return sizes[place - 1] + (sizes[place] - sizes[place - 1]) * (target - before) / (score - before)
    return None


def _start(name: str, seed: int) -> dict[str, Any]:
    """Return the rows that each strategy needs from one start."""
    from labelfield.active import query

    X, Y = _rows(name)
    rng = np.random.default_rng(seed)
    order = rng.permutation(X.shape[0])[: _MOST_ROWS[name]]
    n_score = len(order) // 5
    scoring, pool = np.sort(order[:n_score]), np.sort(order[n_score:])
    full = _score(_fit(X[pool], Y[pool]), X[scoring], Y[scoring])
    first = rng.choice(pool, FIRST, replace=False)
    found: dict[str, Any] = {"full": full, "pool": len(pool)}
    for strategy in STRATEGIES:
        labelled, sizes, scores = first, list[int](), list[float]()
        while True:
            model = _fit(X[labelled], Y[labelled])
            sizes.append(len(labelled))
            scores.append(_score(model, X[scoring], Y[scoring]))
            left = np.setdiff1d(pool, labelled)
            if scores[-1] >= SHARE * full or not left.size:
                break
            more = min(int(len(labelled) * (GROWTH - 1)), left.size)
            labelled = np.concatenate([labelled, left[query(model, X[left], more, strategy, random_state=seed)]])
        found[strategy] = {"sizes": sizes, "scores": scores, "needed": needed(sizes, scores, SHARE * full)}
    return found


def _study(name: str) -> dict[str, Any]:
    """Run all starts, two at a time, each on one core."""
    started = time.perf_counter()
    with ProcessPoolExecutor(2, mp_context=get_context("spawn"), initializer=_one_core) as pool:
        starts = list(pool.map(_start, [name] * N_STARTS, range(N_STARTS)))
    summary = {
        strategy: {
            "needed": [start[strategy]["needed"] for start in starts],
            "mean": mean(start[strategy]["needed"] for start in starts),
            "standard_error": stdev(start[strategy]["needed"] for start in starts) / N_STARTS**0.5,
        }
        for strategy in STRATEGIES
    }
    full, n_pool = mean(start["full"] for start in starts), starts[0]["pool"]
    print(name, {strategy: round(own["mean"]) for strategy, own in summary.items()}, flush=True)
    settings = {"share": SHARE, "first": FIRST, "growth": GROWTH, "pool": n_pool}
    return {name: {"full": full, "strategies": summary, "seconds": time.perf_counter() - started, **settings}}


def _one_core() -> None:
    import torch

    torch.set_num_threads(1)


def run() -> dict[str, Any]:
    return _study("bibtex")


def run_text() -> dict[str, Any]:
    return _study("eurovoc-text")
