"""Reading EUR-Lex-4K text: time against scikit-learn's reader of the same file, and peak memory."""

from __future__ import annotations

import gzip
from statistics import median
from typing import Any

from benchmarks.measuring.isolated import isolated
from benchmarks.paths import DATA

FILE = DATA / "eurlex-4k" / "train.txt.gz"
REPEATS = 5


def _import_ours() -> Any:
    import labelfield

    return labelfield.read


def _read_ours(read: Any) -> int:
    dataset = read(FILE)
    arrays = (dataset.X.data, dataset.X.indices, dataset.X.indptr, dataset.Y.data, dataset.Y.indices, dataset.Y.indptr)
    return sum(int(array.nbytes) for array in arrays)


def _import_theirs() -> Any:
    from sklearn.datasets import load_svmlight_file

    return load_svmlight_file


def _read_theirs(load: Any) -> int:
    with gzip.open(FILE) as file:
        file.readline()  # the header, which svmlight does not have
        X, _ = load(file, n_features=5000, multilabel=True, zero_based=True)
    return int(X.nnz)


def run() -> dict[str, Any]:
    ours, theirs = [], []
    for _ in range(REPEATS):  # in turn, so that a slow moment of the machine affects both
        ours.append(isolated(_import_ours, _read_ours))
        theirs.append(isolated(_import_theirs, _read_theirs))
    seconds, peer_seconds = (median(one.seconds for one in runs) for runs in (ours, theirs))
    arrays_mb = ours[0].value / 2**20
    peak_mb = median(one.peak_mb for one in ours)
    return {
        "file": "eurlex-4k/train.txt.gz",
        "repeats": REPEATS,
        "seconds": seconds,
        "scikit_learn_seconds": peer_seconds,
        "time_ratio": seconds / peer_seconds,
        "arrays_mb": arrays_mb,
        "peak_mb": peak_mb,
        "memory_ratio": peak_mb / arrays_mb,
        "scikit_learn_peak_mb": median(one.peak_mb for one in theirs),
    }
