"""A data set as every method of a suite reads it: the same plain text for all."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.paths import MADE
from labelfield.data import Dataset, read, write
from labelfield.data.transform import RowTransform
from labelfield.errors import DataError

__all__ = ["BenchData", "locate"]


def locate(name: str, folder: Path) -> Path:
    """Find a data set by its name in a folder, by its path, or among those that were made of texts."""
    for path in (folder / name, Path(name), MADE / name):
        if path.exists():
            return path
    raise DataError(
        f"no data set {name}",
        path=folder,
        fix="Set LABELFIELD_DATA to the folder that holds it, name its own path, or run benchmarks.suites.making.",
    )


@dataclass(frozen=True)
class BenchData:
    """Training and test rows, in memory for scoring, and in a scratch folder for the methods that are measured."""

    path: Path
    scratch: Path

    @cached_property
    def whole(self) -> Dataset:
        """All rows, training and test."""
        return self._with_test(read(self.path))

    @cached_property
    def of_classes(self) -> Dataset:
        """The same rows, with one class per row."""
        return self._with_test(read(self.path, classes=True))

    def _with_test(self, data: Dataset) -> Dataset:
        if data.test is None:
            raise DataError(
                "no test rows", path=self.path, expected="a folder with train.* and test.*", fix="Use labelfield split."
            )
        return data

    @cached_property
    def has_classes(self) -> bool:
        """Whether every training row has exactly one label."""
        counts = self.whole.train.Y.indptr
        return bool((counts[1:] - counts[:-1] == 1).all())

    @cached_property
    def fingerprint(self) -> dict[str, Any]:
        """Sizes and a digest of all features and labels: which data these are, under any name."""
        train, test = self.whole.train, self.whole.test
        assert test is not None
        digest = hashlib.sha256()
        for matrix in (train.X, train.Y, test.X, test.Y):
            # The same numbers give the same digest in any width.
            for part, kind in ((matrix.indptr, "<i8"), (matrix.indices, "<i8"), (matrix.data, "<f8")):
                digest.update(np.ascontiguousarray(part, kind).data)
        sizes = {"rows": train.n_rows, "test_rows": test.n_rows, "features": train.n_features, "labels": train.n_labels}
        return {**sizes, "digest": digest.hexdigest()[:16]}

    @cached_property
    def text(self) -> tuple[Path, Path]:
        """Files of training and test rows as plain text, which every package reads or is given a reader for."""
        assert self.whole.test is not None
        paths = self.scratch / "train.txt", self.scratch / "test.txt"
        for rows, path in zip((self.whole.train, self.whole.test), paths, strict=True):
            write(rows, path)
        return paths

    def transformed(self, name: str) -> tuple[Path, Path]:
        """Return files of the same rows through a row transform of ours, for peers that are better on such rows."""
        assert self.whole.test is not None
        folder = self.scratch / name
        paths = folder / "train.txt", folder / "test.txt"
        if not folder.exists():
            folder.mkdir()
            transform = RowTransform.fit(name, self.whole.train.X)
            for rows, path in zip((self.whole.train, self.whole.test), paths, strict=True):
                write(Dataset(transform(rows.X), rows.Y), path)
        return paths

    def truth(self, classes: bool) -> tuple[Any, Any]:
        """Return the labels of test and training rows."""
        data = self.of_classes if classes else self.whole
        assert data.test is not None
        return data.test.Y, data.train.Y
