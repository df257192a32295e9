"""Tags for documents: our commands beside Annif and scikit-learn, each in a process of its own, one after another."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.measuring.processes import run_process
from benchmarks.paths import DATA, ROOT
from benchmarks.peers.environments import ENVIRONMENTS, MissingPeerError, Peer, python_of
from labelfield.csr import from_counts
from labelfield.data import read_predictions
from labelfield.metrics import ece_at_k, f1_at_k, precision_at_k
from labelfield.text import Documents, read_documents, read_vocabulary

K = 5
_URI = "http://label.example/"
_BONSAI = {"cluster_balanced": False, "cluster_k": 100, "max_depth": 3}
# Peers with the settings that their documentation gives for this use.
PEERS = {
    "Annif, omikuji Bonsai": Peer("annif", "annif_documents", {"backend": "omikuji", "min_df": 2, **_BONSAI}),
    "Annif, omikuji Parabel": Peer("annif", "annif_documents", {"backend": "omikuji", "min_df": 2}),
    "Annif, fastText": Peer(
        "annif", "annif_documents", {"backend": "fasttext", "dim": 500, "lr": 0.25, "epoch": 30, "chunksize": 24}
    ),
    "scikit-learn, TfidfVectorizer + LinearSVC": Peer(
        "scikit-learn", "sklearn_documents", {"min_df": 2, "sublinear_tf": True}
    ),
}
REFERENCE = "Annif, omikuji Bonsai"


def run_eurovoc() -> dict[str, Any]:
    """Measure all on English titles and texts."""
    return _measure("eurovoc-text", "en", "snowball(english)")


def run_makupalat() -> dict[str, Any]:
    """Measure all on short Finnish texts."""
    return _measure("makupalat", "fi", "snowball(finnish)")


def _measure(name: str, language: str, analyzer: str) -> dict[str, Any]:
    train, test = (read_documents(DATA / name, part=part) for part in ("train", "test"))
    vocabulary = read_vocabulary(DATA / name / "vocabulary.tsv")
    lists = [vocabulary.named(part.labels or []) for part in (train, test)]
    numbers = {
        label: place for place, label in enumerate(sorted({one for part in lists for own in part for one in own}))
    }
    truth = _indicators([[numbers[one] for one in own] for own in lists[1]], len(numbers))
    found: dict[str, Any] = {"documents": len(train), "test documents": len(test), "labels": len(numbers)}
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        found["labelfield"] = _ours(DATA / name, folder, numbers, truth)
        files = _write(folder, (train, test), lists, numbers)
        for title, peer in PEERS.items():
            task = {**files, "language": language, "analyzer": analyzer, "k": K}
            found[title] = _peer(peer, task, folder / f"peer-{len(found)}", truth)
            print(title, found[title], file=sys.stderr)
    return found


def _indicators(rows: list[list[int]], n_labels: int) -> Any:
    rows = [sorted(own) for own in rows]
    counts = np.array([len(own) for own in rows], np.int64)
    return from_counts(counts, np.array([one for own in rows for one in own], np.int32), None, n_labels)


def _scores(truth: Any, ranked: Any) -> dict[str, float]:
    found = {f"P@{k}": 100 * precision_at_k(truth, ranked, k) for k in (1, 3, 5)}
    found |= {f"ECE@{k}": 100 * ece_at_k(truth, ranked, k) for k in (1, 5)}
    return {name: float(value) for name, value in found.items()} | {"F1@5": float(f1_at_k(truth, ranked, 5))}


def _ours(data: Path, folder: Path, numbers: dict[str, int], truth: Any) -> dict[str, Any]:
    """Run the two commands of a newcomer."""
    model, tags = folder / "model", folder / "tags.jsonl"
    command = [sys.executable, "-m", "labelfield"]
    spent = []
    for arguments in (["train", str(data), "--out", str(model)], ["tag", str(model), str(data), "--out", str(tags)]):
        done = run_process([*command, *arguments], log=folder / "log", environment={"PYTHONPATH": str(ROOT)})
        if done.code:
            raise RuntimeError(done.errors)
        spent.append(done)
    lines = [json.loads(line) for line in tags.read_text(encoding="utf-8").splitlines()]
    said = [" ".join(f"{numbers[tag['label']]}:{tag['probability']}" for tag in line["tags"]) for line in lines]
    (folder / "ours.txt").write_text("\n".join(said) + "\n", encoding="utf-8")
    ranked = read_predictions(folder / "ours.txt", *truth.shape)
    size = sum(file.stat().st_size for file in model.iterdir())
    return {
        **_scores(truth, ranked),
        "train_seconds": spent[0].seconds,
        "predict_seconds": spent[1].seconds,
        "peak_mb": max(one.peak_mb for one in spent),
        "model_mb": size / 2**20,
    }


def _write(
    folder: Path, parts: tuple[Documents, Documents], lists: list[list[list[str]]], numbers: dict[str, int]
) -> dict[str, str]:
    """Write documents and labels as peers read them: fields of a document one after another, labels by number."""
    files = {}
    for name, documents, labels in zip(("train", "test"), parts, lists, strict=True):
        lines = []
        for texts, own in zip(documents.texts, labels, strict=True):
            uris = " ".join(f"<{_URI}{numbers[one]}>" for one in own)
            lines.append(f"{' '.join(' '.join(texts).split())}\t{uris}\n")
        files[name] = str(folder / f"{name}.tsv")
        Path(files[name]).write_text("".join(lines), encoding="utf-8")
    files["vocabulary"] = str(folder / "vocabulary.tsv")
    entries = [f"<{_URI}{number}>\t{label}\n" for label, number in numbers.items()]
    Path(files["vocabulary"]).write_text("".join(entries), encoding="utf-8")
    return files


def _peer(peer: Peer, task: dict[str, Any], folder: Path, truth: Any) -> dict[str, Any]:
    """Run a peer in its environment; return its scores and times, or why there are none."""
    folder.mkdir()
    try:
        python = python_of(peer.environment)
    except MissingPeerError as error:
        return {"skipped": str(error)}
    threads = len(os.sched_getaffinity(0))
    task |= {"options": peer.options, "threads": threads, "model": str(folder / "model")}
    task |= {"predictions": str(folder / "predictions.txt"), "answer": str(folder / "answer.json")}
    (folder / "task.json").write_text(json.dumps(task), encoding="utf-8")
    environment = {"PYTHONPATH": "", "OMP_NUM_THREADS": str(threads)}
    command = [str(python), str(peer.path), str(folder / "task.json")]
    done = run_process(command, log=folder / "log", environment=environment)
    if done.code:
        return {"skipped": f"ended with {done.code}: {(done.errors.splitlines() or [''])[-1]}"}
    answer = json.loads((folder / "answer.json").read_text(encoding="utf-8"))
    ranked = read_predictions(folder / "predictions.txt", *truth.shape)
    spent = {name: answer[name] for name in ("train_seconds", "predict_seconds")}
    versions = ENVIRONMENTS[peer.environment].versions
    size = answer["model_bytes"] / 2**20
    return {**_scores(truth, ranked), **spent, "peak_mb": done.peak_mb, "model_mb": size, "versions": versions}
