"""Whether promises about tags are kept, how much is tagged automatically beside omikuji's Bonsai, and how often
intervals of probabilities contain what they should.

Every model is trained once. Its predictions for test rows, which it has not seen, are then split at random many times:
a policy is fitted on one half and judged on the other. The evidence that is saved with the model is judged on all test
rows. Scores of Bonsai go through the same calibration, learned on the same half, before the same procedure.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.measuring.isolated import isolated
from benchmarks.paths import DATA
from benchmarks.peers.environments import PEERS, MissingPeerError, python_of

DATASETS = ("yeast", "bibtex", "delicious", "eurlex-4k", "eurovoc-text")
N_SPLITS, LEVEL = 200, 0.9
AIMS: dict[str, dict[str, Any]] = {
    "precision 0.95": {"precision": 0.95},
    "precision 0.95, one tag": {"precision": 0.95, "max_tags": 1},
    "precision 0.9": {"precision": 0.9},
    "precision 0.8": {"precision": 0.8},
    "recall 0.6": {"recall": 0.6},
    "recall 0.8": {"recall": 0.8},
}
# Labels per row that Bonsai is asked for.
_K = 20


def _prepare() -> Any:
    import labelfield

    return labelfield


def rows_of(name: str) -> Any:
    """Read rows, or documents as rows of words."""
    import labelfield
    from labelfield.data import Dataset
    from labelfield.estimators.inputs import encode_labels
    from labelfield.text.words import WordEncoder

    if name != "eurovoc-text":
        return labelfield.read(DATA / name)
    train, test = (labelfield.read_documents(DATA / name, part=part) for part in ("train", "test"))
    encoder = WordEncoder()
    X = encoder.fit_transform(iter(train.texts), (1.0,) * len(train.fields))
    Y, labels = encode_labels(train.labels, X.shape[0], None)
    known = set(labels.classes.tolist())
    lists = [[label for label in own if label in known] for own in test.labels or []]
    test_Y, _ = encode_labels(lists, len(lists), labels.classes)
    return Dataset(X, Y, test=Dataset(encoder.transform(iter(test.texts)), test_Y))


def kept(evidence: Any, aim: dict[str, Any], fresh: Any) -> dict[str, float] | None:
    """Return what a policy that was fitted on some rows does on others; None if nothing can be promised."""
    from labelfield.decide import fit_policy
    from labelfield.decide.policies import reached_by
    from labelfield.errors import CannotAnswerError

    try:
        return reached_by(fresh, fit_policy(evidence, **aim))
    except CannotAnswerError:
        return None


def split_many(pool: Any, aim: dict[str, Any], n_splits: int, calibrate: bool = False) -> dict[str, float]:
    """Split rows at random many times: how often a promise is made, and missed on the other half, in all splits."""
    name = next(iter(aim))
    missed, automatic = [], []
    for seed in range(n_splits):
        order = np.random.default_rng(seed).permutation(pool.n_rows)
        half, rest = (pool.take(np.sort(part)) for part in np.array_split(order, 2))
        if calibrate:
            half, rest = calibrated(half, rest)
        found = kept(half, aim, rest)
        missed.append(found is not None and found[name] < aim[name])
        automatic.append(0.0 if found is None else found["automatic"])
    promised = [share > 0 for share in automatic]
    return {
        "promised, % of splits": 100 * float(np.mean(promised)),
        "missed, % of splits": 100 * float(np.mean(missed)),
        "rows tagged, %": 100 * float(np.mean(automatic)),
    }


def calibrated(half: Any, rest: Any) -> tuple[Any, Any]:
    """Return rows with calibrated scores: of one half cross-fitted, of the other by the whole half."""
    from labelfield.decide import Evidence
    from labelfield.decide.evidence import folds
    from labelfield.inference.calibrating import by_rank
    from labelfield.models.calibration import Calibration

    def learned(rows: NDArray[np.bool_]) -> Any:
        found = Calibration(True)
        found.fit(half.p[rows].clip(1e-6, 1), half.hit[rows])
        return found

    p = half.p.copy()
    for own in folds(half.n_rows):
        p[own] = by_rank(learned(~own), half.p[own].clip(1e-6, 1))
    new = by_rank(learned(np.ones(half.n_rows, bool)), rest.p.clip(1e-6, 1))
    return Evidence.of(half.labels, p, half.truth), Evidence.of(rest.labels, new, rest.truth)


def coverage(pool: Any, level: float = LEVEL, n_rows: int = 500) -> float:
    """Return how often intervals contain the share of labels that hold, in percent, if all test rows are the truth and
    held-out rows are drawn from them."""
    from labelfield.decide.intervals import reliability

    found = []
    for seed in range(N_SPLITS):
        drawn = pool.take(np.random.default_rng(seed).integers(pool.n_rows, size=n_rows))
        own = reliability(drawn, level)
        exact = reliability(pool, level, own.edges).share
        found.append((own.low <= exact) & (exact <= own.high))
    return 100 * float(np.concatenate(found).mean())


def bonsai(data: Any, k: int = _K) -> Any:
    """Return what Bonsai says of test rows, as evidence."""
    from labelfield.data import read_predictions, write
    from labelfield.decide import Evidence

    peer = PEERS["omikuji-bonsai"]
    python = python_of(peer.environment)
    with tempfile.TemporaryDirectory(prefix="labelfield-bench-") as scratch:
        at = Path(scratch)
        for rows, name in ((data.train, "train.txt"), (data.test, "test.txt")):
            write(rows, at / name)
        task = {"train": str(at / "train.txt"), "test": str(at / "test.txt"), "k": k, "threads": 2, "seed": 0}
        task |= {"options": peer.options, "model": str(at / "model"), "predictions": str(at / "out.txt")}
        (at / "task.json").write_text(json.dumps(task | {"answer": str(at / "answer.json")}))
        subprocess.run([str(python), str(peer.path), str(at / "task.json")], check=True, capture_output=True)
        scores = read_predictions(at / "out.txt", data.test.n_rows, data.n_labels)
    counts = np.diff(scores.indptr)
    width = int(counts.max())
    is_there = np.arange(width) < counts[:, None]
    labels, p = np.zeros(is_there.shape, np.int64), np.zeros(is_there.shape)
    labels[is_there], p[is_there] = scores.indices, scores.data.clip(0, 1)
    return Evidence.of(labels, p, data.test.Y, is_there)


def measure(name: str, n_splits: int, labelfield: Any) -> dict[str, Any]:
    """Train on one data set and measure everything."""
    from labelfield.decide import Evidence

    data = rows_of(name)
    model = labelfield.AutoClassifier(device="cpu").fit(data.X, data.Y)
    pool = Evidence.of_scores(model.predict_topk(data.test.X, model.evidence_.n_listed), data.test.Y)
    results: dict[str, Any] = {"held-out rows": model.evidence_.n_rows, "test rows": pool.n_rows}
    for title, aim in AIMS.items():
        results[title] = split_many(pool, aim, n_splits)
        own = kept(model.evidence_, aim, pool)
        if own is not None:
            results[title] |= {
                f"with the model's own evidence: {what}": 100 * own[what] for what in (next(iter(aim)), "automatic")
            }
    results[f"{100 * LEVEL:.0f} % intervals that contain the share, %"] = coverage(pool)
    started = time.perf_counter()
    model.policy(precision=0.5)
    results["seconds to fit a policy"] = time.perf_counter() - started
    try:
        peer = bonsai(data)
    except MissingPeerError as error:
        results["omikuji Bonsai"] = str(error)
        return results
    for title in ("precision 0.95", "precision 0.9", "precision 0.8"):
        results[f"omikuji Bonsai, {title}"] = split_many(peer, AIMS[title], n_splits // 4, calibrate=True)
    return results


def run(datasets: tuple[str, ...] = DATASETS[:3], n_splits: int = N_SPLITS) -> dict[str, Any]:
    """Measure the smaller data sets; fewer splits give a quick look instead of what is recorded."""
    return {name: isolated(_prepare, partial(measure, name, n_splits)).value for name in datasets}


def run_large() -> dict[str, Any]:
    """Measure the larger data sets."""
    return run(DATASETS[3:])
