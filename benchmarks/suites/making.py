"""`python -m benchmarks.suites.making [NAME …]`: make data sets of texts for the suite `ranks`, in `benchmarks/made`.

The texts are those of the data folder (eurovoc-text, makupalat), the one-line descriptions of Debian packages as
`apt-cache dumpavail` prints them, and the glosses of WordNet as the Debian package wordnet-base has them. Words become
tf-idf rows by scikit-learn, fitted to the training texts; every fifth text of a random order is a test row, unless the
data have test rows of their own. Nothing of it is committed. A set whose texts are missing is left out with the reason.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy import sparse
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.preprocessing import MultiLabelBinarizer

from benchmarks.paths import DATA, MADE
from labelfield import read_documents
from labelfield.data import Dataset, write

__all__ = ["MAKERS", "encode", "main"]

# Texts at the most, and rows that a label has at the least, of the sets that have no rows of their own for testing.
_MOST_TEXTS, _LEAST_ROWS = 25_000, 10


class Texts(NamedTuple):
    """Texts and their labels, and how many of the first are for training; None for four in five of a random order."""

    texts: list[str]
    labels: list[list[str]]
    n_training: int | None = None


class MissingTextsError(Exception):
    """The texts of a data set are not at hand."""


def _of_folder(name: str) -> Texts:
    """Return the documents of the data folder, training rows first."""
    folder = DATA / name
    if not folder.exists():
        raise MissingTextsError(f"{folder} is missing; set LABELFIELD_DATA")
    parts = [read_documents(folder, part=part) for part in ("train", "test")]
    texts = [" ".join(fields) for part in parts for fields in part.texts]
    return Texts(texts, [list(labels) for part in parts for labels in part.labels or ()], len(parts[0].texts))


def _debian(read: Callable[[dict[str, str]], list[str]]) -> Texts:
    """Return the one-line descriptions of Debian packages, each once, and what `read` makes of their entries."""
    try:
        printed = subprocess.run(["apt-cache", "dumpavail"], capture_output=True, check=True).stdout.decode()
    except (OSError, subprocess.CalledProcessError) as error:
        raise MissingTextsError(f"apt-cache dumpavail does not run here: {error}") from None
    found: dict[str, list[str]] = {}
    for entry in printed.split("\n\n"):
        fields = dict(re.findall(r"^([A-Z][A-Za-z-]*): (.*(?:\n .*)*)", entry, re.MULTILINE))
        if "Description" in fields and (labels := read(fields)):
            found.setdefault(fields["Description"].split("\n")[0], labels)
    if not found:
        raise MissingTextsError("apt-cache knows no packages; run apt-get update")
    return Texts(list(found), list(found.values()))


def _tags(fields: dict[str, str]) -> list[str]:
    return [tag.strip() for tag in fields.get("Tag", "").split(",") if tag.strip()]


def _dependencies(fields: dict[str, str]) -> list[str]:
    """Return the names of the packages that a package depends on, without versions and alternatives."""
    named = (re.match(r"\s*([a-z0-9][a-z0-9+.-]*)", part) for part in fields.get("Depends", "").split(","))
    return sorted({match[1] for match in named if match})


def _wordnet() -> Texts:
    """Return the glosses of nouns, and all that each is a kind of."""
    with tempfile.TemporaryDirectory() as folder:
        steps = ["apt-get", "download", "wordnet-base"], ["sh", "-c", "dpkg-deb --extract wordnet-base_*.deb ."]
        for step in steps:
            done = subprocess.run(step, cwd=folder, capture_output=True, check=False)
            if done.returncode:
                raise MissingTextsError("the Debian package wordnet-base cannot be fetched")
        lines = (Path(folder) / "usr/share/wordnet/data.noun").read_text(encoding="utf-8").splitlines()
    glosses, parents, names = {}, {}, {}
    for line in lines:
        if line.startswith(" "):  # the licence
            continue
        facts, gloss = line.split(" | ", 1)
        words = facts.split()
        glosses[words[0]], names[words[0]] = gloss.split(";")[0], words[4]
        parents[words[0]] = re.findall(r"@i? (\d{8}) n", facts)
    above = {key: _above(key, parents) for key in glosses}
    kept = [key for key in glosses if above[key]]
    return Texts([glosses[key] for key in kept], [[f"{names[one]}-{one}" for one in above[key]] for key in kept])


def _above(key: str, parents: dict[str, list[str]]) -> list[str]:
    """Return everything that a noun is a kind of, nearest first."""
    found: dict[str, None] = {}
    waiting = list(parents[key])
    while waiting:
        one = waiting.pop(0)
        if one not in found:
            found[one] = None
            waiting += parents.get(one, [])
    return list(found)


MAKERS: dict[str, Callable[[], Texts]] = {
    "eurovoc-words": lambda: _of_folder("eurovoc-text"),
    "makupalat-words": lambda: _of_folder("makupalat"),
    "debian-tags": lambda: _debian(_tags),
    "debian-dependencies": lambda: _debian(_dependencies),
    "wordnet-kinds": _wordnet,
}


def encode(given: Texts, seed: int = 0) -> Dataset:
    """Return texts as tf-idf rows with test rows; labels that no training text has are left out."""
    n_training, order = given.n_training, np.arange(len(given.texts))
    if n_training is None:
        order = np.random.default_rng(seed).permutation(order)[:_MOST_TEXTS]
        n_training = order.size * 4 // 5
    texts, labels = [given.texts[i] for i in order], [given.labels[i] for i in order]
    words = TfidfVectorizer(min_df=2, dtype=np.float32)
    X = words.fit_transform(texts[:n_training])
    names = MultiLabelBinarizer(sparse_output=True).fit(labels[:n_training])
    known = set(names.classes_)
    Y = sparse.csr_array(names.transform([[name for name in row if name in known] for row in labels]), dtype=np.float32)
    if given.n_training is None:
        Y = Y[:, np.bincount(Y[:n_training].indices, minlength=Y.shape[1]) >= _LEAST_ROWS]
    training = sparse.csr_array(X), sparse.csr_array(Y[:n_training])
    test = sparse.csr_array(words.transform(texts[n_training:])), sparse.csr_array(Y[n_training:])
    return Dataset(*training, test=Dataset(*test))


def main(wanted: list[str]) -> None:
    """Make these data sets, or all, and say of each what became of it."""
    for name in wanted or list(MAKERS):
        folder = MADE / name
        if name not in MAKERS:
            print(f"{name}: not one of {', '.join(MAKERS)}")
        elif folder.exists():
            print(f"{name}: already there")
        else:
            try:
                data = encode(MAKERS[name]())
            except MissingTextsError as error:
                print(f"{name}: left out, {error}")
                continue
            assert data.test is not None
            folder.mkdir(parents=True)
            for part, rows in (("train", data.train), ("test", data.test)):
                write(rows, folder / f"{part}.txt")
            print(f"{name}: {data.n_rows} + {data.test.n_rows} rows, {data.n_features} words, {data.n_labels} labels")


if __name__ == "__main__":
    main(sys.argv[1:])
