"""Prediction files: a line `label:score label:score …` for each row, or .npz (SciPy CSR, or a dense array)."""

from __future__ import annotations

import re
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from labelfield.csr import from_counts
from labelfield.data.atomic import replacing_file
from labelfield.data.grammar import Grammar
from labelfield.data.npz import load_arrays, sparse_from
from labelfield.data.streams import line_blocks, open_for_writing
from labelfield.data.text import read_rows, write_rows
from labelfield.errors import DataError
from labelfield.progress import Progress, ignore

__all__ = ["read_predictions", "write_predictions"]

_HEADER = re.compile(rb"[ \t]*([0-9]+)[ \t]+([0-9]+)[ \t\r]*\n")


def read_predictions(path: str | PathLike[str], n_rows: int, n_labels: int, *, progress: Progress = ignore) -> Any:
    """Predictions for n_rows rows: a CSR array whose stored entries are the listed labels, or a dense array.

    Text has a line for each row, an empty one for a row without predictions; a first line `rows labels` is allowed.
    """
    path = Path(path)
    if not path.is_file():
        raise DataError("there is no such prediction file", path=path, fix="Check the path.")
    if path.suffix == ".npz":
        scores = _read_npz(path)
        if tuple(scores.shape) != (n_rows, n_labels):
            raise _wrong_shape(path, scores.shape, n_rows, n_labels)
        return scores
    grammar = Grammar(n_labels, has_labels=False, keep_zeros=True, column="label")
    with line_blocks(path, progress) as blocks:
        head = next(blocks, b"")
        first_line = 1
        if match := _HEADER.match(head):
            stated = [int(group[:18]) for group in match.groups()]
            if stated != [n_rows, n_labels]:
                raise _wrong_shape(path, stated, n_rows, n_labels)
            head = head[match.end() :]
            first_line = 2
        rows = read_rows(head, blocks, grammar, path, first_line, n_rows=n_rows, promised_by="the truth has")
    return from_counts(rows.counts, rows.indices, rows.values, n_labels)


def _wrong_shape(path: Path, shape: Any, n_rows: int, n_labels: int) -> DataError:
    return DataError(
        f"predictions for {shape[0]} rows and {shape[1]} labels",
        path=path,
        expected=f"{n_rows} rows and {n_labels} labels as the truth has",
        fix="Predict the same rows with the same label set.",
    )


def _read_npz(path: Path) -> Any:
    arrays = load_arrays(path)
    if "format" in arrays:
        return sparse.csr_array(sparse_from(arrays, path))
    matrices = [array for array in arrays.values() if array.ndim == 2 and array.dtype.kind in "biuf"]
    if len(arrays) == 1 and matrices:
        return matrices[0]
    raise DataError(
        f"arrays {', '.join(sorted(arrays)[:8]) or '(none)'}",
        path=path,
        expected="one matrix of scores, or what scipy.sparse.save_npz writes",
        fix="Save the scores alone.",
    )


def write_predictions(scores: Any, path: str | PathLike[str], *, progress: Progress = ignore) -> None:
    """Write predictions so that `read_predictions` gives them back (float32); text lists the best label first."""
    path = Path(path)
    with replacing_file(path) as new:
        if path.suffix == ".npz":
            with open(new, "wb") as file:
                if sparse.issparse(scores):
                    sparse.save_npz(file, sparse.csr_array(scores))
                else:
                    np.savez_compressed(file, scores=np.asarray(scores))
            return
        with open_for_writing(new, path.name) as file:
            write_rows(file, _best_first(sparse.csr_array(scores)), None, progress=progress)


def _best_first(scores: sparse.csr_array) -> sparse.csr_array:
    """The same entries, each row ordered by score, of equal scores the smaller label first."""
    row = np.repeat(np.arange(scores.shape[0]), np.diff(scores.indptr))
    order = np.lexsort((scores.indices, -scores.data, row))
    return from_counts(
        np.diff(scores.indptr).astype(np.int64),
        scores.indices[order].astype(np.int32),
        scores.data[order].astype(np.float32),
        scores.shape[1],
    )
