"""What users pass as X and Y, brought to the one form that the package works with."""

from __future__ import annotations

from typing import Any
from warnings import warn

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.exceptions import DataConversionWarning
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import validate_data

from labelfield.csr import as_features, as_positives, from_counts
from labelfield.data.dataset import one_label_per_row
from labelfield.errors import DataError

__all__ = ["LABEL_KINDS", "Labels", "as_rows", "encode_known", "encode_labels"]

LABEL_KINDS = ("indicator", "lists", "classes")
# Lists of label numbers get a column for each number up to the largest; beyond this they are no numbers of columns.
_MOST_NUMBERS = 50_000_000


class Labels:
    """How labels were given: as an indicator matrix, as lists of labels, or as one class a row."""

    def __init__(self, kind: str, classes: NDArray[Any]) -> None:
        self.kind, self.classes = kind, classes


def as_rows(estimator: Any, X: Any, *, reset: bool) -> sparse.csr_array:
    """X as CSR float32, checked as scikit-learn checks it; `reset` in fit, where any width will do."""
    X = validate_data(
        estimator,
        X,
        reset=reset,
        accept_sparse="csr",
        dtype=[np.float32, np.float64],
        ensure_min_samples=1 if reset else 0,
    )
    return as_features(X)


def encode_labels(Y: Any, n_rows: int, classes: Any = None) -> tuple[sparse.csr_array, Labels]:
    """Y as CSR of positives, from an indicator matrix (dense or sparse), lists of labels, or one class a row.

    `classes` names all labels that there are, where Y may not show them all.
    """
    encoded, labels = _encode(Y, n_rows)
    if classes is None:
        return encoded, labels
    known = Labels(labels.kind, np.arange(len(classes)) if labels.kind == "indicator" else np.unique(classes))
    return _in_columns(encoded, labels, known), known


def _encode(Y: Any, n_rows: int) -> tuple[sparse.csr_array, Labels]:
    if Y is None:
        raise ValueError("this classifier requires y to be passed, but the target y is None")
    if sparse.issparse(Y):
        Y = as_positives(_binary(Y))
        kind, classes = "indicator", np.arange(Y.shape[1])
    elif _is_ragged(Y):
        Y, classes = _encode_lists(Y)
        kind = "lists"
    else:
        array = np.asarray(Y)
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise ValueError("Input y contains NaN or infinity")
        if array.ndim == 2 and array.shape[1] == 1 and array.dtype.kind != "b":
            warn("A column-vector y was passed when a 1d array was expected.", DataConversionWarning, stacklevel=3)
            array = array.ravel()
        if array.ndim == 2:
            Y = as_positives(_binary(array))
            kind, classes = "indicator", np.arange(Y.shape[1])
        elif array.ndim == 1:
            check_classification_targets(array)
            classes, numbers = np.unique(array, return_inverse=True)
            Y = one_label_per_row(numbers, classes.size)
            kind = "classes"
        else:
            raise DataError(f"Y has {array.ndim} dimensions", expected="a matrix, lists of labels, or a vector")
    if Y.shape[0] != n_rows:
        raise DataError(
            f"X has {n_rows} rows and Y has {Y.shape[0]}", expected="one row of labels for each row of features"
        )
    return Y, Labels(kind, classes)


def encode_known(Y: Any, n_rows: int, known: Labels) -> sparse.csr_array:
    """Y in the columns of labels that are known already."""
    return _in_columns(*_encode(Y, n_rows), known)


def _in_columns(encoded: sparse.csr_array, labels: Labels, known: Labels) -> sparse.csr_array:
    if labels.kind == "indicator" or known.kind == "indicator":
        if encoded.shape[1] > known.classes.size or (
            labels.kind == "indicator" and encoded.shape[1] != known.classes.size
        ):
            raise DataError(f"Y has {encoded.shape[1]} labels", expected=f"{known.classes.size} as in the first fit")
        column = np.arange(encoded.shape[1])
    else:
        column = np.searchsorted(known.classes, labels.classes)
        column = np.minimum(column, known.classes.size - 1)
        strange = labels.classes[known.classes[column] != labels.classes]
        if strange.size:
            raise DataError(f"Y has the label {str(strange[0])!r}", expected="labels of the first fit", fix="Fit anew.")
    return from_counts(
        np.diff(encoded.indptr).astype(np.int64), column[encoded.indices].astype(np.int32), None, known.classes.size
    )


def _binary(Y: Any) -> Any:
    values = Y.data if sparse.issparse(Y) else Y
    if values.dtype.kind not in "biuf":
        raise DataError(
            f"Y holds {values.dtype} values", expected="0 and 1", fix="Pass lists of labels, or indicators."
        )
    if values.size and not np.isin(values, (0, 1)).all():
        raise DataError("Y is not binary", expected="0 and 1", fix="Binarise Y, or pass one class a row as a vector.")
    return Y


def _is_ragged(Y: Any) -> bool:
    """A list of lists, sets or tuples of labels; a rectangular list of 0 and 1 is an indicator matrix."""
    if isinstance(Y, np.ndarray):
        return Y.dtype == object and Y.ndim == 1 and Y.size > 0 and not np.isscalar(Y[0]) and not isinstance(Y[0], str)
    if (
        not isinstance(Y, list | tuple)
        or not Y
        or not all(isinstance(row, list | tuple | set | frozenset) for row in Y)
    ):
        return False
    if len({len(row) for row in Y}) > 1 or any(isinstance(row, set | frozenset) for row in Y):
        return True
    flat = [label for row in Y for label in row]
    return not all(label in (0, 1) for label in flat)


def _encode_lists(Y: Any) -> tuple[sparse.csr_array, NDArray[Any]]:
    rows = [sorted(set(row), key=str) for row in Y]
    flat = [label for row in rows for label in row]
    if all(isinstance(label, int | np.integer) and label >= 0 for label in flat):
        if max(flat, default=0) >= _MOST_NUMBERS:
            raise DataError(
                f"the label number {max(flat)}",
                expected=f"numbers of columns, below {_MOST_NUMBERS}",
                fix="Pass such labels as strings.",
            )
        classes = np.arange(max(flat, default=-1) + 1)
        numbers = np.array(flat, np.int64)
    else:
        classes, numbers = np.unique(np.array(flat), return_inverse=True)
    counts = np.array([len(row) for row in rows], np.int64)
    row_of = np.repeat(np.arange(counts.size), counts)
    order = np.lexsort((numbers, row_of))
    return from_counts(counts, numbers[order].astype(np.int32), None, classes.size), classes
