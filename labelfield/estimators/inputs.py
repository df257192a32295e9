"""Convert rows and labels from the forms in which users pass them to the one form that the package uses."""

from typing import Any, NamedTuple
from warnings import warn

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.exceptions import DataConversionWarning
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import validate_data

from labelfield.csr import as_features, as_positives, from_counts
from labelfield.errors import DataError
from labelfield.mapped import pieces

LABEL_KINDS = ("indicator", "lists", "classes")
# Lists of label numbers get a column for each number up to the largest; larger numbers cannot be columns.
_MOST_NUMBERS = 50_000_000


class Labels(NamedTuple):
    """How labels were given: as an indicator matrix, as lists of labels, or as one class per row."""

    kind: str
    classes: NDArray[Any]


def as_rows(estimator: Any, X: Any, *, reset: bool) -> sparse.csr_array:
    """Return X as CSR float32, checked as scikit-learn checks it; `reset` in fit, where any width is allowed."""
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
    """Return Y as CSR of positives, from an indicator matrix, lists of labels, or one class per row.

    `classes` names all labels, in case Y does not show them all.
    """
    given = _read(Y, n_rows, None)
    if isinstance(given, _Lists):
        known = Labels(given.kind, _classes_of(given) if classes is None else np.unique(classes))
        return _place(given, known), known
    if classes is not None and len(classes) != given.shape[1]:
        raise DataError(f"Y has {given.shape[1]} labels, but {len(classes)} classes are named", expected="as many")
    return given, Labels("indicator", np.arange(given.shape[1]))


def encode_known(Y: Any, n_rows: int, known: Labels) -> sparse.csr_array:
    """Return Y in the columns of labels that are already known; refuse others."""
    given = _read(Y, n_rows, known.kind)
    if isinstance(given, _Lists):
        return _place(given, known)
    if given.shape[1] != known.classes.size:
        raise DataError(f"Y has {given.shape[1]} labels", expected=f"{known.classes.size}, as in the first fit")
    return given


def encode_seen(Y: Any, n_rows: int, known: Labels) -> tuple[sparse.csr_array, NDArray[np.bool_]]:
    """Return Y in the columns of labels that are already known, and which rows have others."""
    given = _read(Y, n_rows, known.kind)
    if not isinstance(given, _Lists):
        return encode_known(given, n_rows, known), np.zeros(n_rows, np.bool_)
    _require_same_type(given.values, known.classes)
    is_seen, row = np.isin(given.values, known.classes), np.repeat(np.arange(n_rows), given.counts)
    seen = _Lists(given.kind, np.bincount(row[is_seen], minlength=n_rows), given.values[is_seen])
    return _place(seen, known), np.bincount(row[~is_seen], minlength=n_rows) > 0


class _Lists(NamedTuple):
    """Labels by their values: how many each row has, and all of them, row after row."""

    kind: str
    counts: NDArray[np.int64]
    values: NDArray[Any]


def _read(Y: Any, n_rows: int, kind: str | None) -> sparse.csr_array | _Lists:
    """Read Y into one of two forms. Ambiguous labels, such as lists of 0 and 1, are read as the known kind."""
    result = _read_any(Y, kind)
    found = result.counts.size if isinstance(result, _Lists) else result.shape[0]
    if found != n_rows:
        raise DataError(f"X has {n_rows} rows and Y has {found}", expected="one row of labels for each row of features")
    return result


def _read_any(Y: Any, kind: str | None) -> sparse.csr_array | _Lists:
    if Y is None:
        raise ValueError("this classifier requires y to be passed, but the target y is None")
    if sparse.issparse(Y):
        return as_positives(_binary(Y.tocsr()))
    if _is_ragged(Y) or (kind == "lists" and _holds_lists(Y)):
        rows = [sorted(set(row), key=str) for row in Y]
        flat = [label for row in rows for label in row]
        return _Lists("lists", np.array([len(row) for row in rows], np.int64), np.array(flat))
    array = np.asarray(Y)
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise ValueError("Input y contains NaN or infinity")
    if array.ndim == 2 and array.shape[1] == 1 and array.dtype.kind != "b" and kind != "indicator":
        warn("A column-vector y was passed when a 1d array was expected.", DataConversionWarning, stacklevel=4)
        array = array.ravel()
    if array.ndim == 2:
        return as_positives(_binary(array))
    if array.ndim != 1:
        raise DataError(f"Y has {array.ndim} dimensions", expected="a matrix, lists of labels, or a vector")
    array = _plain(array)
    check_classification_targets(array)
    return _Lists("classes", np.ones(array.size, np.int64), array)


def _plain(array: NDArray[Any]) -> NDArray[Any]:
    """Return labels of an array of objects, as tables give them, in an array of their own type."""
    if array.dtype.kind != "O":
        return array
    labels = array.tolist()
    if any(label is None or label != label for label in labels):  # NaN is not itself
        raise ValueError("Input y contains NaN or missing labels")
    if len({isinstance(label, str) for label in labels}) > 1:
        raise DataError("Y mixes text with other types", expected="one kind of label", fix="Pass all labels as text.")
    return np.array(labels)


def _classes_of(given: _Lists) -> NDArray[Any]:
    """Return the names of labels: lists of numbers name columns, anything else names itself."""
    if given.kind == "classes" or (given.values.size and given.values.dtype.kind not in "iu"):
        return np.unique(given.values)
    if given.values.size and given.values.min() < 0:
        return np.unique(given.values)
    largest = int(given.values.max(initial=-1))
    if largest >= _MOST_NUMBERS:
        raise DataError(
            f"the label number {largest}",
            expected=f"column numbers below {_MOST_NUMBERS}",
            fix="Pass such labels as strings.",
        )
    return np.arange(largest + 1)


def _place(given: _Lists, known: Labels) -> sparse.csr_array:
    """Return labels in the columns of the known ones, which are sorted."""
    values, classes = given.values, known.classes
    if values.size == 0:
        values = np.zeros(0, classes.dtype)
    _require_same_type(values, classes)
    column = np.minimum(np.searchsorted(classes, values), max(classes.size - 1, 0))
    strange = values[classes[column] != values] if classes.size else values
    if strange.size:
        raise DataError(
            f"Y has the label {str(strange[0])!r}", expected="labels of the first fit", fix="Fit a new model."
        )
    row = np.repeat(np.arange(given.counts.size), given.counts)
    order = np.lexsort((column, row))
    return from_counts(given.counts, column[order].astype(np.int32), None, classes.size)


def _require_same_type(values: NDArray[Any], classes: NDArray[Any]) -> None:
    """Refuse numbers where labels are texts, and texts where they are numbers."""
    if values.size and classes.size and (values.dtype.kind in "US") != (classes.dtype.kind in "US"):
        raise DataError(
            f"Y has the label {values[0]!s}", expected=f"labels such as {classes[0]!s}", fix="Use one kind of label."
        )


def _binary(Y: Any) -> Any:
    values = Y.data if sparse.issparse(Y) else Y
    if values.dtype.kind not in "biuf":
        raise DataError(
            f"Y holds {values.dtype} values", expected="0 and 1", fix="Pass lists of labels, or indicators."
        )
    flat = values.ravel(order="K")  # a view, whichever way the array lies
    if not all(np.isin(flat[part], (0, 1)).all() for part in pieces(flat)):
        raise DataError("Y is not binary", expected="0 and 1", fix="Binarise Y, or pass one class per row as a vector.")
    return Y


def _holds_lists(Y: Any) -> bool:
    """Return whether Y is a sequence of lists, sets or tuples."""
    rows = Y if isinstance(Y, list | tuple) or (isinstance(Y, np.ndarray) and Y.dtype == object) else ()
    return len(rows) > 0 and all(isinstance(row, list | tuple | set | frozenset) for row in rows)


def _is_ragged(Y: Any) -> bool:
    """Return whether Y looks like lists of labels; a rectangular list of 0 and 1 is an indicator matrix."""
    if not _holds_lists(Y):
        return False
    if len({len(row) for row in Y}) > 1 or any(isinstance(row, set | frozenset) for row in Y):
        return True
    return not all(label in (0, 1) for row in Y for label in row)


def require_one_class(Y: sparse.csr_array, fix: str) -> None:
    """Check that each row has one class."""
    counts = np.diff(Y.indptr)
    if (counts != 1).any():
        row = int(np.flatnonzero(counts != 1)[0])
        raise DataError(f"row {row} has {counts[row]} labels", expected="one class per row", fix=fix)


def require_classes(Y: sparse.csr_array, classes: NDArray[Any], fix: str) -> None:
    """Check that each row has one class, and that there are two classes to tell apart."""
    require_one_class(Y, fix)
    if classes.size < 2:
        raise DataError(
            f"y has one class, {str(classes[0])!r}", expected="at least two classes", fix="Check the labels."
        )
