"""Whether promises about tags are kept, how much is tagged automatically beside omikuji's Bonsai, and how often
intervals of probabilities contain what they should.

All rows of a data set, its test rows too, are split at random into quarters, and each quarter is predicted by models of
the other three. The predictions are split at random many times: a policy is fitted on one half and judged on the other.
The evidence that is saved with a model is judged on the whole quarter. Scores of Bonsai go through the same
calibration, learned on the same half, before the same procedure.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from itertools import product
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
N_SPLITS, N_PARTS, LEVEL = 200, 4, 0.9
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


def all_rows(data: Any) -> tuple[Any, Any]:
    """Return X and Y of training and test rows together."""
    X, Y = (sparse.csr_array(sparse.vstack([getattr(part, at) for part in (data.train, data.test)])) for at in "XY")
    return X, Y


def split(X: Any, Y: Any, test: NDArray[np.int64]) -> Any:
    """Return a data set with these test rows and all others for training, both in their own order."""
    from labelfield.csr import gather_rows
    from labelfield.data import Dataset

    rest = np.setdiff1d(np.arange(X.shape[0]), test)
    train, held = ((gather_rows(X, rows), gather_rows(Y, rows)) for rows in (rest, np.sort(test)))
    return Dataset(*train, test=Dataset(*held))


def quarters(data: Any) -> Iterator[Any]:
    """Yield all rows once for each quarter, which is then the test part."""
    X, Y = all_rows(data)
    for test in np.array_split(np.random.default_rng(0).permutation(X.shape[0]), N_PARTS):
        yield split(X, Y, test)


def kept(evidence: Any, aim: dict[str, Any], fresh: Any) -> dict[str, float] | None:
    """Return what a policy that was fitted on some rows does on others; None if nothing can be promised."""
    from labelfield.decide import fit_policy
    from labelfield.decide.policies import reached_by
    from labelfield.errors import CannotAnswerError

    try:
        return reached_by(fresh, fit_policy(evidence, **aim))
    except CannotAnswerError:
        return None


def split_many(pools: list[Any], aim: dict[str, Any], n_splits: int, calibrate: bool = False) -> dict[str, Any]:
    """Return how often a promise is made and missed, over random splits of each pool and over draws from it.

    In splits, a policy is fitted on one half and judged on the other: a half that looks better than it is leaves a half
    that looks worse, so that promises which are true may be missed. In draws, all rows are the population, so that the
    truth is known, and as many as a half are drawn from it with replacement: what is missed there was false.
    """
    name, shape = next(iter(aim)), (len(pools), n_splits // len(pools))
    made, missed, automatic, false = (np.zeros(shape) for _ in range(4))
    for place in np.ndindex(shape):
        pool, rng = pools[place[0]], np.random.default_rng(place[1])
        half, rest = (pool.take(np.sort(part)) for part in np.array_split(rng.permutation(pool.n_rows), 2))
        if calibrate:
            half, rest = calibrated(half, rest)
        found = kept(half, aim, rest)
        made[place] = found is not None
        missed[place] = found is not None and found[name] < aim[name]
        automatic[place] = 0.0 if found is None else found["automatic"]
        if not calibrate:
            drawn = pool.take(np.sort(rng.integers(pool.n_rows, size=half.n_rows)))
            found = kept(drawn, aim, pool)
            false[place] = found is not None and found[name] < aim[name]
    results = {
        "promised, % of splits": 100 * float(made.mean()),
        "missed, % of splits": 100 * float(missed.mean()),
        "rows tagged, %": 100 * float(automatic.mean()),
        "rows tagged in each quarter, %": ", ".join(f"{100 * share:.1f}" for share in automatic.mean(1)),
    }
    return results | ({} if calibrate else {"false, % of draws": 100 * float(false.mean())})


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


def coverage(pools: list[Any], n_splits: int, level: float = LEVEL, n_rows: int = 500) -> float:
    """Return how often intervals contain the share of labels that hold, in percent, if all rows of a pool are the truth
    and held-out rows are drawn from them."""
    from labelfield.decide.intervals import reliability

    found = []
    for pool, seed in product(pools, range(n_splits // len(pools))):
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
    labels, p = np.zeros(is_there.shape, np.int64), np.full(is_there.shape, -1.0)
    labels[is_there], p[is_there] = scores.indices, scores.data.clip(0, 1)
    return Evidence.of(labels, p, data.test.Y)


def measure(name: str, n_splits: int, labelfield: Any) -> dict[str, Any]:
    """Train on three quarters of one data set, measure everything on the fourth, and so on in turn."""
    from labelfield.decide import Evidence

    models, pools, peers, missing = [], [], [], ""
    for data in quarters(rows_of(name)):
        model = labelfield.AutoClassifier(device="cpu").fit(data.X, data.Y)
        models.append(model)
        pools.append(Evidence.of_scores(model.predict_topk(data.test.X, model.evidence_.n_listed), data.test.Y))
        try:
            peers.append(bonsai(data))
        except MissingPeerError as error:
            missing = str(error)
    n_rows = {"held-out rows": [model.evidence_.n_rows for model in models], "test rows": [one.n_rows for one in pools]}
    results: dict[str, Any] = {what: float(np.mean(each)) for what, each in n_rows.items()}
    for title, aim in AIMS.items():
        results[title] = split_many(pools, aim, n_splits)
        own = [found for model, pool in zip(models, pools, strict=True) if (found := kept(model.evidence_, aim, pool))]
        results[title]["promised by the model's own evidence, of four"] = len(own)
        for what in (next(iter(aim)), "automatic") if own else ():
            results[title][f"with the model's own evidence: {what}"] = 100 * float(np.mean([one[what] for one in own]))
    results[f"{100 * LEVEL:.0f} % intervals that contain the share, %"] = coverage(pools, n_splits)
    started = time.perf_counter()
    models[0].policy(precision=0.5)
    results["seconds to fit a policy"] = time.perf_counter() - started
    if missing:
        return results | {"omikuji Bonsai": missing}
    for title in ("precision 0.95", "precision 0.9", "precision 0.8"):
        results[f"omikuji Bonsai, {title}"] = split_many(peers, AIMS[title], n_splits, calibrate=True)
    return results


def retrained(name: str, n_splits: int, labelfield: Any) -> dict[str, Any]:
    """Split all rows at random many times, train anew, and judge promises of the model's own evidence on test rows.

    Also tell how often `check` warns about test rows, which are drawn as the training rows were.
    """
    from labelfield.decide import Evidence
    from labelfield.decide.drift import Drift, compare

    data, warned = rows_of(name), []
    X, Y = all_rows(data)
    found: dict[str, list[dict[str, float] | None]] = {title: [] for title in AIMS}
    for seed in range(n_splits):
        order = np.random.default_rng(_FIRST_SEED + seed).permutation(X.shape[0])
        own = split(X, Y, order[data.n_rows :])
        model = labelfield.AutoClassifier(device="cpu", quality="fast", random_state=seed).fit(own.X, own.Y)
        known = model.evidence_
        fresh = Evidence.of_scores(model.predict_topk(own.test.X, known.n_listed), own.test.Y)
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
