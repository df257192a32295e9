"""Text to rows: our words and pairs against TfidfVectorizer at the same vocabulary, and a million documents of a file.

Both get the same texts in memory, words as they are and pairs of neighbours, columns in two documents at least. Times
are those of the work alone, in a process of its own each, with compiled loops loaded. TfidfVectorizer uses one core.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks.measuring.isolated import isolated
from benchmarks.paths import DATA
from labelfield.text.reading import open_documents

REPEATS = 3
N_LARGE, LETTERS = 1_000_000, 500
GENERATED, N_GENERATED = "drawn", 20_000


def _texts(name: str) -> list[str]:
    if name == GENERATED:
        return list(_documents(N_GENERATED))
    from labelfield.text import read_documents

    return [" ".join(texts) for texts in read_documents(DATA / name).texts]


def _limit(n_cores: int) -> None:
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:n_cores])


def _prepare_ours(name: str, n_cores: int, is_fitted: bool) -> Any:
    from labelfield.text import WordEncoder

    _limit(n_cores)
    texts = _texts(name)
    WordEncoder(language="none", characters="off").fit_transform(texts[:100])  # loads compiled loops
    encoder = WordEncoder(language="none", characters="off")
    return (encoder.fit(texts) if is_fitted else encoder), texts


def _prepare_theirs(name: str, n_cores: int, is_fitted: bool) -> Any:
    from sklearn.feature_extraction.text import TfidfVectorizer

    _limit(n_cores)
    texts = _texts(name)
    encoder = TfidfVectorizer(ngram_range=(1, 2), min_df=2, sublinear_tf=True)
    return (encoder.fit(texts) if is_fitted else encoder), texts


def _fit_transform(prepared: Any) -> int:
    encoder, texts = prepared
    return int(encoder.fit_transform(texts).shape[1])


def _transform(prepared: Any) -> int:
    encoder, texts = prepared
    return int(encoder.transform(texts).shape[1])


def _documents(n: int) -> Iterator[str]:
    """Draw documents of 500 letters, one at a time: 200,000 different words, some far more frequent than others."""
    rng = np.random.default_rng(0)
    letters = np.array(list("abcdefghijklmnopqrstuvwxyz"))
    words = ["".join(word) for word in letters[rng.integers(0, 26, (200_000, 7))].tolist()]
    for _ in range(0, n, 1000):
        ranks = (len(words) * rng.random((1000, LETTERS // 8)) ** 4).astype(np.int64)
        for row in ranks.tolist():
            yield " ".join([words[rank] for rank in row])


def _prepare_large(path: Path, n: int) -> Any:
    from labelfield.text import WordEncoder

    with open(path, "w", encoding="utf-8") as file:
        for number, text in enumerate(_documents(n)):
            file.write(json.dumps({"id": number, "text": text}) + "\n")
    WordEncoder(language="none", characters="off").fit_transform(["a few words", "a few more words"])
    return WordEncoder(language="en", characters="off"), path


def _stream(prepared: Any) -> dict[str, int]:
    """Learn the vocabulary and make rows of a file, which is read twice, batch by batch; no text or row is kept."""
    encoder, path = prepared
    with open_documents(path) as file:
        encoder.fit(document.texts for document in file.documents)
    with open_documents(path) as file:
        parts = encoder.transform_batches(document.texts for document in file.documents)
        n_entries = sum(int(indices.size) for _, indices, _ in parts)
    return {"columns": encoder.n_features_, "entries": n_entries}


def run() -> dict[str, Any]:
    """Measure speed on three corpora, with one core and with all."""
    found: dict[str, Any] = {}
    for name in ("eurovoc-text", "makupalat", GENERATED):
        for n_cores in sorted({1, len(os.sched_getaffinity(0))}):
            for what, work, is_fitted in (("fit_transform", _fit_transform, False), ("transform", _transform, True)):
                ours, theirs = [], []
                for _ in range(REPEATS):  # in turn, so that a slow moment of the machine affects both
                    ours.append(isolated(partial(_prepare_ours, name, n_cores, is_fitted), work))
                    theirs.append(isolated(partial(_prepare_theirs, name, n_cores, is_fitted), work))
                seconds, peer_seconds = (median(one.seconds for one in runs) for runs in (ours, theirs))
                cpu, peer_cpu = (median(one.cpu_seconds for one in runs) for runs in (ours, theirs))
                found[f"{name}, {what}, cores: {n_cores}"] = {
                    "seconds": seconds,
                    "scikit_learn_seconds": peer_seconds,
                    "times_as_fast": peer_seconds / seconds,
                    "cpu_seconds": cpu,
                    "scikit_learn_cpu_seconds": peer_cpu,
                    "columns": ours[0].value,
                    "scikit_learn_columns": theirs[0].value,
                    "peak_mb": median(one.peak_mb for one in ours),
                    "scikit_learn_peak_mb": median(one.peak_mb for one in theirs),
                }
    return found


def run_memory() -> dict[str, Any]:
    """Measure the memory of a stream by its number of documents."""
    found: dict[str, Any] = {}
    for n in (N_LARGE // 10, N_LARGE // 3, N_LARGE):
        with tempfile.TemporaryDirectory() as folder:
            large = isolated(partial(_prepare_large, Path(folder) / "documents.jsonl", n), _stream)
        found[f"{n} documents of {LETTERS} letters"] = {
            **large.value,
            "seconds": large.seconds,
            "peak_mb": large.peak_mb,
        }
    return found
