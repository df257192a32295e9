"""Prediction files: a line `label:score label:score …` for each row, or .npz (SciPy CSR, or a dense array)."""

import re
from itertools import chain
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from labelfield.atomic import replacing_file
from labelfield.csr import assemble, from_counts, row_of_entries, sorted_csr
from labelfield.data.grammar import Grammar
from labelfield.data.npz import load_arrays, sparse_from, unusable
from labelfield.data.reading import line_blocks, open_for_writing
from labelfield.data.text import read_rows, write_rows
from labelfield.errors import DataError, locating
from labelfield.progress import Progress, ignore

_HEADER = re.compile(rb"[ \t]*([0-9]+)[ \t]+([0-9]+)[ \t\r]*\n")


def read_predictions(
    path: str | PathLike[str], n_rows: int, n_labels: int, *, progress: Progress = ignore, like: str = "the truth has"
) -> Any:
    """Read predictions for n_rows rows: a CSR array whose stored entries are the listed labels, or a dense array.

    Text has a line for each row, empty for a row without predictions; a first line `rows labels` is allowed. `like`
    names, in messages, where the numbers of rows and labels come from.
    """
    path = Path(path)
    if not path.is_file():
        found = "a folder, not a file" if path.is_dir() else "there is no such file"
        raise DataError(found, path=path, fix="Check the path.")
    with locating(path):
        if path.suffix == ".npz":
            arrays = load_arrays(path)
            matrices = [array for array in arrays.values() if array.ndim == 2 and array.dtype.kind in "biuf"]
            if "format" in arrays:
                scores = sparse.csr_array(sparse_from(arrays, path))
            elif len(arrays) == 1 and matrices:
                scores = matrices[0]
            else:
                expected = "one matrix of scores, or a file of scipy.sparse.save_npz"
                raise unusable(arrays, expected, "Save the scores alone.")
            _check_shape(scores.shape, n_rows, n_labels, like)
            _require_finite(scores.data if "format" in arrays else scores)
            return scores
        grammar = Grammar(n_labels, has_labels=False, keep_zeros=True, column="label", value_type=np.float64)
        with line_blocks(path, progress) as blocks:
            head, first_line = next(blocks, b""), 1
            if match := _HEADER.match(head):
                _check_shape(tuple(int(group[:18]) for group in match.groups()), n_rows, n_labels, like)
                head, first_line = head[match.end() :], 2
            rows = read_rows(chain([head], blocks), grammar, first_line, n_rows, like)
    return from_counts(rows.counts, rows.indices, rows.values, n_labels)


def _check_shape(shape: tuple[int, ...], n_rows: int, n_labels: int, like: str) -> None:
    if tuple(shape) != (n_rows, n_labels):
        found = f"predictions for {shape[0]} rows and {shape[1]} labels"
        expected = f"{n_rows} rows and {n_labels} labels as {like}"
        raise DataError(found, expected, "Predict the same rows with the same label set.")


def _require_finite(scores: NDArray[Any]) -> None:
    if not np.isfinite(scores).all():
        raise DataError("a score is not finite", "numbers that can be ranked", "Check the predictions.")


def write_predictions(
    scores: Any,
    path: str | PathLike[str],
    *,
    weight: NDArray[np.float64] | None = None,
    progress: Progress = ignore,
) -> None:
    """Write predictions so that `read_predictions` gives them back; text lists the best label first.

    The best have the largest score, or score times `weight` (K,); what is written is the score. The stored entries of
    CSR scores are written, zeros included; for dense scores, all labels of every row.
    """
    path = Path(path)
    if sparse.issparse(scores):
        lists = sorted_csr(scores)
    else:
        n, k = np.shape(scores)
        columns = np.tile(np.arange(k, dtype=np.int32), n)
        lists = from_counts(np.full(n, k, np.int64), columns, np.ravel(scores), k)
    _require_finite(lists.data)
    with replacing_file(path) as new:
        if path.suffix == ".npz":
            with open(new, "wb") as file:
                if sparse.issparse(scores):
                    sparse.save_npz(file, lists)
                else:
                    np.savez_compressed(file, scores=np.asarray(scores))
            return
        # Among equal scores, the smaller label comes first.
        ranked = lists.data if weight is None else lists.data * weight[lists.indices]
        order = np.lexsort((lists.indices, -ranked, row_of_entries(lists)))
        indices, data = lists.indices[order].astype(np.int32), lists.data[order]
        with open_for_writing(new, path.name) as file:
            write_rows(file, assemble(data, indices, lists.indptr, lists.shape), None, 0, progress)
