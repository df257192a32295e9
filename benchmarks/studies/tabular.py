"""The four UCI data sets of the SV-DKL paper as dense rows for a network, and the folds of cross-validation."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.paths import DATA

__all__ = ["Table", "folds", "read", "scaled"]

_MIN_ROWS = 50  # categories with fewer rows share a column


@dataclass(frozen=True)
class Table:
    """Rows, their classes, groups of rows that belong together (such as those of a patient), and names of columns."""

    X: NDArray[np.float32]
    y: NDArray[np.int64]
    groups: NDArray[np.int64] | None = None
    columns: tuple[str, ...] = ()


def _one_hot(
    codes: NDArray[np.generic], categories: list[str], min_rows: int = 0
) -> tuple[NDArray[np.float32], list[str]]:
    """Make a column for each category; categories with fewer rows share a last one, if there are any."""
    codes = codes.astype(np.int64)
    counts = np.bincount(codes, minlength=len(categories))
    kept = np.flatnonzero(counts >= min_rows)
    names = [categories[k] for k in kept]
    if counts.sum() > counts[kept].sum():
        names.append("other")
    place = np.full(len(categories), len(kept))
    place[kept] = np.arange(len(kept))
    return np.eye(len(names), dtype=np.float32)[place[codes]], names


def _encoded(X: NDArray[np.generic], path: Path, min_rows: int = 0) -> tuple[NDArray[np.float32], tuple[str, ...]]:
    """Keep numeric columns, and encode categorical ones as `name=category`; the file says which are which."""
    kinds: dict[str, str | list[str]] = json.loads(path.read_text())
    parts, columns = [], []
    for column, (name, kind) in zip(X.T, kinds.items(), strict=True):
        if isinstance(kind, str):
            parts.append(column[:, None].astype(np.float32))
            columns.append(name)
        else:
            hot, names = _one_hot(column, kind, min_rows)
            parts.append(hot)
            columns += [f"{name}={category}" for category in names]
    return np.hstack(parts), tuple(columns)


def _adult() -> Table:
    """Read both parts of the standard split together, as the paper does."""
    with np.load(DATA / "adult" / "train.npz") as train, np.load(DATA / "adult" / "test.npz") as test:
        X, y = np.vstack([train["X"], test["X"]]), np.concatenate([train["y"], test["y"]])
    rows, columns = _encoded(X, DATA / "adult" / "columns.json")
    return Table(rows, y.astype(np.int64), columns=columns)


def _connect4() -> Table:
    with np.load(DATA / "connect4" / "data.npz") as file:
        X, y = file["X"], file["y"].astype(np.int64)
    places = (DATA / "connect4" / "features.txt").read_text().split()
    columns = tuple(f"{place}={state}" for place in places for state in ("blank", "o", "x"))
    return Table(np.eye(3, dtype=np.float32)[X].reshape(len(X), -1), y, columns=columns)


def _covertype() -> Table:
    with np.load(DATA / "covertype" / "data.npz") as file:
        X, y = file["X"].astype(np.float32), file["y"].astype(np.int64)
    return Table(X, y, columns=tuple((DATA / "covertype" / "features.txt").read_text().split()))


def _diabetes130() -> Table:
    """Read three classes: readmitted never, after 30 days, within 30 days; patients occur more than once."""
    with np.load(DATA / "diabetes130" / "data.npz") as file:
        X, y, patients = file["X"], file["y"].astype(np.int64), file["patient_nbr"].astype(np.int64)
    rows, columns = _encoded(X, DATA / "diabetes130" / "columns.json", _MIN_ROWS)
    return Table(rows, y, patients, columns)


def _diabetes130_30days() -> Table:
    table = _diabetes130()
    return replace(table, y=(table.y == 2).astype(np.int64))


_READERS: dict[str, Callable[[], Table]] = {
    "adult": _adult,
    "connect4": _connect4,
    "covertype": _covertype,
    "diabetes130": _diabetes130,
    "diabetes130-30days": _diabetes130_30days,
}


def read(name: str) -> Table:
    return _READERS[name]()


def folds(table: Table, n_folds: int = 5, seed: int = 0) -> list[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Return training and test rows of each fold, with the same shares of classes; no group is on both sides."""
    from sklearn.model_selection import StratifiedGroupKFold, StratifiedKFold

    splitter = StratifiedKFold if table.groups is None else StratifiedGroupKFold
    split = splitter(n_folds, shuffle=True, random_state=seed).split(table.y, table.y, table.groups)
    return [(train.astype(np.int64), test.astype(np.int64)) for train, test in split]


def scaled(train: NDArray[np.float32], test: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Scale both by the mean and deviation of the columns of training rows; columns constant there become 0."""
    weight = train.std(0, dtype=np.float64)  # float64: sums over a hundred thousand rows of thousands
    is_constant = train.min(0) == train.max(0)
    weight = np.where(is_constant, 0, 1 / np.where(is_constant, 1, weight)).astype(np.float32)
    mean = train.mean(0, dtype=np.float64).astype(np.float32)
    return (train - mean) * weight, (test - mean) * weight
