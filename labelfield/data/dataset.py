"""The data set: sparse rows, their labels, and the names of the columns, one per line in a text file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import InitVar, dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Any, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from labelfield.csr import MAX_COLUMNS, as_features, as_positives, row_norms, take_rows, used_columns
from labelfield.data.codes import find_codes
from labelfield.data.transform import choose_class_transform
from labelfield.errors import DataError


class Names(Sequence[str]):
    """An immutable list of names, in memory or still in its file. Equal to any sequence of the same strings."""

    def __init__(self, names: Iterable[str]) -> None:
        self._names: tuple[str, ...] | None = tuple(names)
        self.path: Path | None = None
        self._length = len(self._names)
        for i, name in enumerate(self._names):
            if not isinstance(name, str) or "\n" in name or "\r" in name or "\0" in name:
                raise DataError(f"name {i} is {name!r}", "a string without line breaks", "Rename it.")
            try:
                name.encode()
            except UnicodeEncodeError:
                raise DataError(f"name {i} is {name!r}", "valid Unicode", "Rename it.") from None

    @classmethod
    def from_bytes(cls, content: bytes) -> Names:
        """Return the names whose `to_bytes` gave these contents."""
        return cls(_lines(content))

    @classmethod
    def in_file(cls, path: Path, length: int | None = None) -> Names:
        """Return the lines of a UTF-8 file. If `length` is given, the file is not read before a name is needed."""
        names = cls(())
        names._names, names.path = None, path
        names._length = len(names._load()) if length is None else length
        return names

    def _load(self) -> tuple[str, ...]:
        if self._names is None:
            assert self.path is not None
            if not self.path.is_file():  # a device never ends
                raise DataError("there is no such file", path=self.path, fix="Check the file.")
            try:
                self._names = _lines(self.path.read_bytes())
            except OSError as error:
                raise DataError(f"cannot be read ({error.strerror})", path=self.path, fix="Check the file.") from None
            except UnicodeDecodeError as error:
                line = error.object.count(b"\n", 0, error.start) + 1
                raise DataError("not UTF-8 text", path=self.path, line=line, fix="Save it as UTF-8.") from None
        return self._names

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[str, ...]: ...
    def __getitem__(self, index: int | slice) -> str | tuple[str, ...]:
        names = self._load()
        if len(names) != self._length:
            found = f"{len(names)} names where {self._length} were recorded"
            raise DataError(found, path=self.path, fix="The folder was changed by hand; write it again.")
        return names[index]

    def __iter__(self) -> Iterator[str]:
        return iter(self[:])

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Sequence) and not isinstance(other, str):
            return len(self) == len(other) and self[:] == tuple(other)
        return NotImplemented

    def __hash__(self) -> int:
        return hash(self[:])

    def __repr__(self) -> str:
        shown = ", ".join(map(repr, self[:3])) + (", …" if len(self) > 3 else "")
        return f"Names([{shown}], length={len(self)})"

    def digest(self) -> str:
        """Return a fingerprint of all names in their order."""
        return sha256(self.to_bytes()).hexdigest()

    def to_bytes(self) -> bytes:
        """Return the contents of a file that reads back as these names."""
        text = "".join(f"{name}\n" for name in self)
        # Reading drops one byte-order mark, so a first name that begins with that very character needs another.
        return ("\ufeff" + text if text.startswith("\ufeff") else text).encode()


def _lines(content: bytes) -> tuple[str, ...]:
    text = content.removeprefix(b"\xef\xbb\xbf").decode()
    return tuple(line.removesuffix("\r") for line in text.removesuffix("\n").split("\n")) if text else ()


@dataclass(frozen=True, eq=False)
class Dataset:
    """N rows of D features (`X`, CSR float32) and K labels (`Y`, CSR whose stored entries are the positives).

    Any array or sparse matrix is accepted and brought to that form: sorted indices, no duplicates, no stored zeros. One
    that is in this form already is used without a copy. A data set with two splits is its training rows, with the test
    rows as `test`. `trusted` skips the check of X and Y: readers pass it for arrays that they have built in this form.
    """

    X: sparse.csr_array
    Y: sparse.csr_array
    label_names: Names | None = None
    feature_names: Names | None = None
    test: Dataset | None = None
    trusted: InitVar[bool] = field(default=False, kw_only=True)

    def __post_init__(self, trusted: bool) -> None:
        if self.test is not None:
            object.__setattr__(self, "test", self._matching(self.test))
        parts = {"label_names": _as_names(self.label_names), "feature_names": _as_names(self.feature_names)}
        if not trusted:
            parts |= {"X": as_features(self.X), "Y": as_positives(self.Y)}
        for name, part in parts.items():
            object.__setattr__(self, name, part)
        if self.X.shape[0] != self.Y.shape[0]:
            found = f"X has {self.X.shape[0]} rows and Y has {self.Y.shape[0]}"
            raise DataError(found, "one row of labels for each row of features", "Pass the matrices of the same rows.")
        if max(self.n_features, self.n_labels) > MAX_COLUMNS:
            found = f"{self.n_features} features and {self.n_labels} labels"
            raise DataError(found, f"at most {MAX_COLUMNS}", "Use fewer.")
        named = (("label", self.label_names, self.n_labels), ("feature", self.feature_names, self.n_features))
        for what, names, size in named:
            if names is not None and len(names) != size:
                found = f"{len(names)} {what} names for {size} {what}s"
                expected = "one name per line for each index, starting with 0"
                fix = "Correct the list, or remove it to use no names."
                raise DataError(found, expected, fix, path=names.path)

    def _matching(self, test: Dataset) -> Dataset:
        """Return the test rows with the names of the training rows; raise a DataError if their columns differ."""
        labels, features = _as_names(self.label_names), _as_names(self.feature_names)
        for what, ours, theirs in (("label", labels, test.label_names), ("feature", features, test.feature_names)):
            if theirs is not None and theirs != ours:
                found, fix = f"the {what} names of the two splits differ", "Write both splits with the same columns."
                raise DataError(found, "the same columns in both", fix)
        (d, k), (d_test, k_test) = ((int(part.X.shape[1]), int(part.Y.shape[1])) for part in (self, test))
        if (d, k) != (d_test, k_test):
            found = f"the training rows have {d} features and {k} labels, the test rows {d_test} and {k_test}"
            raise DataError(found, "the same in both splits", "Write both splits with the same header.")
        return test.with_parts(label_names=labels, feature_names=features)

    def with_parts(self, **parts: Any) -> Dataset:
        """Return the data set with other parts; a new X or Y must be in the form that a data set has."""
        return replace(self, trusted=True, **parts)

    @property
    def n_rows(self) -> int:
        return int(self.X.shape[0])

    @property
    def n_features(self) -> int:
        return int(self.X.shape[1])

    @property
    def n_labels(self) -> int:
        return int(self.Y.shape[1])

    def __len__(self) -> int:
        return self.n_rows

    @property
    def train(self) -> Dataset:
        """The training rows alone."""
        return self if self.test is None else self.with_parts(test=None)

    @property
    def splits(self) -> Mapping[str, Dataset]:
        """The splits by name: `train` and `test`, or `all` for a data set without splits."""
        return {"all": self} if self.test is None else {"train": self.train, "test": self.test}

    def take(self, rows: ArrayLike | slice) -> Dataset:
        """Return the data set of these rows (indices, a mask or a slice), in this order."""
        chosen = row_numbers(rows, self.n_rows)
        return self.with_parts(X=take_rows(self.X, chosen), Y=take_rows(self.Y, chosen), test=None)

    def split(self, test: float = 0.2, seed: int = 0) -> Dataset:
        """Split at random: `round(test * N)` rows become the test split; both keep the original order of rows."""
        if self.test is not None:
            raise DataError("the data set already has two splits", fix="Split its train or its test rows.")
        n_test = round(test * self.n_rows) if 0 < test < 1 else 0
        if not 0 < n_test < self.n_rows:
            expected = "a share between 0 and 1 that leaves rows in both splits"
            raise DataError(f"a test share of {test} of {self.n_rows} rows", expected, "Choose another share.")
        is_test = np.zeros(self.n_rows, np.bool_)
        is_test[np.random.default_rng(seed).choice(self.n_rows, n_test, replace=False)] = True
        return self.take(~is_test).with_parts(test=self.take(is_test))

    def __repr__(self) -> str:
        test = "" if self.test is None else f", test={self.test.n_rows} rows"
        return f"Dataset({self.n_rows} rows, {self.n_features} features, {self.n_labels} labels{test})"


def _as_names(names: Iterable[str] | Names | None) -> Names | None:
    if isinstance(names, str):
        raise DataError(f"the names are the string {names!r}", expected="a list of strings", fix="Pass a list.")
    return names if names is None or isinstance(names, Names) else Names(names)


def row_numbers(rows: ArrayLike | slice, n_rows: int) -> NDArray[np.int64]:
    """Convert indices, a mask or a slice to row numbers from 0 to n_rows - 1."""
    if isinstance(rows, slice):
        return np.arange(n_rows)[rows].copy()  # torch takes no negative strides
    chosen = np.asarray(rows)
    if chosen.size == 0:
        return np.empty(0, np.int64)
    if chosen.dtype == np.bool_ and chosen.shape == (n_rows,):
        return np.flatnonzero(chosen)
    if chosen.ndim != 1 or chosen.dtype.kind not in "iu":
        raise IndexError(f"rows must be a list of row numbers, a mask of length {n_rows}, or a slice")
    for row in (chosen.max(), chosen.min()):
        if not -n_rows <= row < n_rows:
            raise IndexError(f"row {row} does not exist: there are {n_rows} rows")
    chosen = chosen.astype(np.int64)
    return np.where(chosen < 0, chosen + n_rows, chosen)


def _coded_features(X: sparse.csr_array, Y: sparse.csr_array) -> list[int]:
    """Return the features whose numbers look like codes of categories."""
    codes = find_codes(X, Y) if choose_class_transform(X) == "coded" else None
    return [] if codes is None else np.unique(codes.columns).tolist()


def describe(dataset: Dataset) -> dict[str, Any]:
    """Summarise one split: sizes, densities, empty rows, label frequencies, value range, memory."""
    X, Y = dataset.X, dataset.Y
    features, labels = np.diff(X.indptr), np.diff(Y.indptr)
    seen, used = used_columns(Y)
    head = [(int(seen[i]), int(used[i])) for i in np.argsort(-used, kind="stable")[:5]]
    names, norms = dataset.label_names, row_norms(X.data, features)
    n = max(dataset.n_rows, 1)
    return {
        "rows": dataset.n_rows,
        "features": dataset.n_features,
        "labels": dataset.n_labels,
        "features_per_row": X.indices.size / n,
        "labels_per_row": Y.indices.size / n,
        "rows_without_features": int(np.count_nonzero(features == 0)),
        "rows_without_labels": int(np.count_nonzero(labels == 0)),
        "features_used": int(used_columns(X)[0].size),
        "labels_used": int(used.size),
        "rows_per_label": {
            "median": float(np.median(used)) if used.size else 0.0,
            "mean": Y.indices.size / max(dataset.n_labels, 1),
            "max": int(used.max(initial=0)),
            "seen_once": int(np.count_nonzero(used == 1)),
        },
        "coded_features": _coded_features(X, Y),
        "largest_label_set": int(labels.max(initial=0)),
        "value_range": [float(X.data.min()), float(X.data.max())] if X.data.size else [0.0, 0.0],
        "unit_rows": bool(norms.size and np.allclose(norms, 1, atol=1e-4)),
        "most_frequent": [{"label": i, "name": None if names is None else names[i], "rows": n} for i, n in head],
        "label_names": names is not None,
        "feature_names": dataset.feature_names is not None,
        "bytes": int(sum(a.nbytes for a in (X.data, X.indices, X.indptr, Y.indices, Y.indptr))),
    }
