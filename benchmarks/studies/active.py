"""How many rows a person has to label until a model is nearly as good as with all of them, by how rows are chosen.

Rows come from the training data alone: some are the pool, others score. Every start draws them anew and begins with
the same random rows for all strategies; then rows are added in steps of half of what there is. A model of fixed
settings is trained after each step, so that only the choice of rows differs. modAL and small-text choose rows by
machines of their own; the score is that of our model on the rows they chose. Of eurovoc-text the most frequent labels
take part, so that ten starts of all packages take minutes.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from itertools import pairwise
from multiprocessing import get_context
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.paths import DATA
from benchmarks.peers.environments import SCRIPTS, MissingPeerError, python_of
from labelfield.active.query import Strategy

__all__ = ["run", "run_text"]

STRATEGIES: tuple[Strategy, ...] = ("random", "uncertainty", "information", "diverse")
PEERS = ("modAL", "small-text")
N_STARTS, FIRST, GROWTH, SHARE = 10, 100, 1.5, 0.95
N_POOL, N_SCORE, N_LABELS = 2000, 1500, 300


def _rows(name: str) -> tuple[Any, Any]:
    import labelfield
    from labelfield.csr import from_counts
    from labelfield.text.words import WordEncoder

    if name != "eurovoc-text":
        data = labelfield.read(DATA / name)
        return data.X, data.Y
    documents = labelfield.read_documents(DATA / name)
    assert documents.labels is not None
    X = WordEncoder(language="en", pairs=False, characters="off").fit_transform(documents.texts, (1.0, 1.0))
    names = sorted({one for own in documents.labels for one in own})
    columns = {one: place for place, one in enumerate(names)}
    counts = np.array([len(own) for own in documents.labels])
    indices = np.array([columns[one] for own in documents.labels for one in sorted(own)], np.int32)
    Y = from_counts(counts, indices, None, len(names))
    frequent = np.sort(np.argsort(-np.bincount(Y.indices), kind="stable")[:N_LABELS])
    Y = Y[:, frequent]
    labelled = np.diff(Y.indptr) > 0
    return X[labelled], Y[labelled]


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


def _sizes(n_pool: int) -> list[int]:
    """Return the numbers of labelled rows after each step."""
    sizes = [min(FIRST, n_pool)]
    while sizes[-1] < n_pool:
        sizes.append(min(int(sizes[-1] * GROWTH), n_pool))
    return sizes


def _chosen_by(package: str, X: Any, Y: Any, first: NDArray[np.int64], seed: int) -> NDArray[np.int64] | None:
    """Return all rows of a pool in the order in which a peer chooses them; None where it does not run."""
    try:
        python = python_of("active")
    except MissingPeerError:
        return None
    with tempfile.TemporaryDirectory() as folder:
        task, out = Path(folder) / "task.npz", Path(folder) / "out.npz"
        arrays = {
            f"{name}_{part}": getattr(array, part)
            for name, array in (("X", X), ("Y", Y))
            for part in ("data", "indices", "indptr", "shape")
        }
        np.savez(task, first=first, sizes=_sizes(X.shape[0]), package=package, seed=seed, **arrays)
        command = [str(python), str(SCRIPTS / "active_rows.py"), str(task), str(out)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            print(package, done.stderr[-500:], flush=True)
            return None
        return np.asarray(np.load(out)["labelled"])


def _start(name: str, seed: int) -> dict[str, Any]:
    """Return the rows that each strategy needs from one start."""
    from labelfield.active import query

    X, Y = _rows(name)
    rng = np.random.default_rng(seed)
    order = rng.permutation(X.shape[0])
    pool, scoring = np.sort(order[:N_POOL]), np.sort(order[N_POOL : N_POOL + N_SCORE])
    pool_X, pool_Y, X, Y = X[pool], Y[pool], X[scoring], Y[scoring]
    full = _score(_fit(pool_X, pool_Y), X, Y)
    first, sizes = rng.choice(len(pool), FIRST, replace=False), _sizes(len(pool))
    found: dict[str, Any] = {"full": full, "pool": len(pool)}
    every: tuple[Any, ...] = (*STRATEGIES, *PEERS)
    for strategy in every:
        labelled, scores, started = first, list[float](), time.perf_counter()
        peer = _chosen_by(strategy, pool_X, pool_Y, first, seed) if strategy in PEERS else None
        if strategy in PEERS and peer is None:
            continue
        for size, following in pairwise([*sizes, 0]):
            model = _fit(pool_X[labelled], pool_Y[labelled])
            scores.append(_score(model, X, Y))
            if scores[-1] >= SHARE * full or not following:
                break
            if peer is not None:
                labelled = peer[:following]
                continue
            left = np.setdiff1d(np.arange(len(pool)), labelled)
            own = {"X_labelled": pool_X[labelled], "random_state": seed}
            chosen = query(model, pool_X[left], following - size, strategy, **own)
            labelled = np.concatenate([labelled, left[chosen]])
        rows = needed(sizes[: len(scores)], scores, SHARE * full)
        found[strategy] = {"scores": scores, "needed": rows, "seconds": time.perf_counter() - started}
    print(name, seed, {one: round(found[one]["needed"]) for one in every if one in found}, flush=True)
    return found


def _study(name: str) -> dict[str, Any]:
    """Run all starts, one per core at a time."""
    n_cores = len(os.sched_getaffinity(0))
    with ProcessPoolExecutor(n_cores, mp_context=get_context("spawn"), initializer=_one_core) as pool:
        return summed(name, list(pool.map(_start, [name] * N_STARTS, range(N_STARTS))))


def summed(name: str, starts: list[dict[str, Any]]) -> dict[str, Any]:
    """Return what the starts of a study come to: rows needed, and the share of rows saved beside random."""
    summary, n = {}, len(starts)
    for strategy in (*STRATEGIES, *PEERS):
        rows = [start[strategy]["needed"] for start in starts if strategy in start]
        if len(rows) == n:
            saved = [1 - own / start["random"]["needed"] for own, start in zip(rows, starts, strict=True)]
            summary[strategy] = {
                "needed": rows,
                "mean": mean(rows),
                "standard_error": stdev(rows) / n**0.5,
                "saved": mean(saved),
                "saved_error": stdev(saved) / n**0.5,
            }
    print(name, {strategy: round(own["mean"]) for strategy, own in summary.items()}, flush=True)
    settings = {"share": SHARE, "first": FIRST, "growth": GROWTH, "pool": N_POOL, "scoring": N_SCORE, "starts": n}
    return {name: {"strategies": summary, **settings}}


def _one_core() -> None:
    import torch

    torch.set_num_threads(1)


def run() -> dict[str, Any]:
    return _study("bibtex")


def run_text() -> dict[str, Any]:
    return _study("eurovoc-text")
