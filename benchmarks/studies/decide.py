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
from scipy import sparse

from benchmarks.measuring.isolated import isolated
from benchmarks.paths import DATA
from benchmarks.peers.environments import PEERS, MissingPeerError, python_of

DATASETS = ("yeast", "bibtex", "delicious", "eurlex-4k", "eurovoc-text")
# Sets that train within seconds, and how many times.
RETRAINED = {"bibtex": 200, "enron": 200, "rcv1sub1": 200, "delicious": 60}
N_SPLITS, LEVEL = 200, 0.9
# Splits before these were looked at while the method was made.
_FIRST_SEED = 30_000
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
    """Return how often a promise is made and missed, over many random splits and over many draws.

    In splits, a policy is fitted on one half and judged on the other: a half that looks better than it is leaves a half
    that looks worse, so that promises which are true may be missed. In draws, all rows are the population, so that the
    truth is known, and as many as a half are drawn from it with replacement: what is missed there was false.
    """
    name, (made, missed, automatic, false) = next(iter(aim)), ([], [], [], [])
    for seed in range(n_splits):
        rng = np.random.default_rng(seed)
        half, rest = (pool.take(np.sort(part)) for part in np.array_split(rng.permutation(pool.n_rows), 2))
        if calibrate:
            half, rest = calibrated(half, rest)
        found = kept(half, aim, rest)
        made.append(found is not None)
        missed.append(found is not None and found[name] < aim[name])
        automatic.append(0.0 if found is None else found["automatic"])
        if not calibrate:
            drawn = pool.take(np.sort(rng.integers(pool.n_rows, size=half.n_rows)))
            found = kept(drawn, aim, pool)
            false.append(found is not None and found[name] < aim[name])
    results = {
        "promised, % of splits": 100 * float(np.mean(made)),
        "missed, % of splits": 100 * float(np.mean(missed)),
        "rows tagged, %": 100 * float(np.mean(automatic)),
    }
    return results | ({"false, % of draws": 100 * float(np.mean(false))} if false else {})


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


def retrained(name: str, n_splits: int, labelfield: Any) -> dict[str, Any]:
    """Split all rows at random many times, train anew, and judge promises of the model's own evidence on test rows.

    Also tell how often `check` warns about test rows, which are drawn as the training rows were.
    """
    from labelfield.csr import gather_rows
    from labelfield.decide import Evidence
    from labelfield.decide.drift import Drift, compare

    data, warned = rows_of(name), []
    X, Y = (sparse.csr_array(sparse.vstack([getattr(part, at) for part in (data.train, data.test)])) for at in "XY")
    found: dict[str, list[dict[str, float] | None]] = {title: [] for title in AIMS}
    for seed in range(n_splits):
        order = np.random.default_rng(_FIRST_SEED + seed).permutation(X.shape[0])
        train, test = (np.sort(part) for part in np.split(order, [data.n_rows]))
        model = labelfield.AutoClassifier(device="cpu", quality="fast", random_state=seed)
        model.fit(gather_rows(X, train), gather_rows(Y, train))
        known = model.evidence_
        best = model.predict_topk(gather_rows(X, test), known.n_listed)
        fresh = Evidence.of_scores(best, gather_rows(Y, test))
        warned.append(Drift(compare(known, fresh.labels, fresh.p), [], known.n_rows, fresh.n_rows).is_new_kind)
        for title, aim in AIMS.items():
            found[title].append(kept(known, aim, fresh))
    results: dict[str, Any] = {"splits": n_splits, "`check` warns, % of splits": 100 * float(np.mean(warned))}
    for title, each in found.items():
        name_of, made = next(iter(AIMS[title])), [one for one in each if one is not None]
        n_missed = sum(one[name_of] < AIMS[title][name_of] for one in made)
        results[title] = {"promised": len(made), "missed": n_missed}
        if made:
            results[title]["rows tagged, %"] = 100 * float(np.mean([one["automatic"] for one in made]))
            results[title][f"mean {name_of}, %"] = 100 * float(np.mean([one[name_of] for one in made]))
    return results


def run(datasets: tuple[str, ...] = DATASETS[:3], n_splits: int = N_SPLITS) -> dict[str, Any]:
    """Measure the smaller data sets; fewer splits give a quick look instead of what is recorded."""
    return {name: isolated(_prepare, partial(measure, name, n_splits)).value for name in datasets}


def run_large() -> dict[str, Any]:
    """Measure the larger data sets."""
    return run(DATASETS[3:])


def run_retrained() -> dict[str, Any]:
    """Train anew on random splits of sets that train within seconds."""
    return {name: isolated(_prepare, partial(retrained, name, n)).value for name, n in RETRAINED.items()}
