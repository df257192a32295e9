"""Masks: which entries of Y were observed, in the forms in which users pass them."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from labelfield.csr import as_positives
from labelfield.data.mask import Mask
from labelfield.errors import DataError
from labelfield.estimators.inputs import Labels, encode_known


def split_missing(Y: Any) -> tuple[Any, Any]:
    """Return Y with 0 for NaN and for masked entries, and where these were; None if there are none."""
    if isinstance(Y, np.ma.MaskedArray) and Y.ndim == 2:
        hidden = np.ma.getmaskarray(Y)
        return Y.filled(0), hidden if hidden.any() else None
    array = _as_matrix(Y)
    if array is None or array.dtype.kind != "f":
        return Y, None
    is_missing = np.isnan(array)
    return (np.where(is_missing, 0, array), is_missing) if is_missing.any() else (Y, None)


def _as_matrix(values: Any) -> NDArray[Any] | None:
    """Return a dense matrix, a table, or lists of numbers that are not all integers (as labels are) as an array."""
    if isinstance(values, list | tuple):
        if not values or not all(isinstance(row, list | tuple | np.ndarray) for row in values):
            return None
        is_table = len({len(row) for row in values}) == 1 and any(
            isinstance(entry, bool | np.bool_ | float | np.floating) for row in values for entry in row
        )
        return np.asarray(values) if is_table else None
    if sparse.issparse(values) or len(getattr(values, "shape", ())) != 2:
        return None
    return np.asarray(values)


def read_mask(observed: Any, missing: Any, shape: tuple[int, int], labels: Labels) -> Mask | None:
    """Read the observed entries, or the missing ones: a boolean or sparse matrix, or a list of labels for each row."""
    if observed is not None and missing is not None:
        raise ValueError("pass observed or missing, not both")
    given, is_missing = (observed, False) if missing is None else (missing, True)
    if given is None:
        return None
    name = "missing" if is_missing else "observed"
    is_array = isinstance(given, np.ndarray) and given.dtype != object
    matrix = given.tocsr() if sparse.issparse(given) else given if is_array else _as_matrix(given)
    if matrix is None and _is_table_of(given, shape):
        matrix = np.asarray(given)
    if matrix is not None:
        if matrix.shape != shape:
            raise DataError(f"{name} has the shape {matrix.shape}", expected=f"{shape}, like Y")
        if not np.isin(matrix.data if sparse.issparse(matrix) else matrix, (0, 1)).all():
            raise DataError(f"{name} is not binary", expected="0 and 1, or True and False")
        places = as_positives(matrix)
    else:
        places = _read_lists(given, shape[0], labels, name)
    if 2 * places.nnz > shape[0] * shape[1]:
        every = np.ones(shape, np.bool_)  # no larger than what was given
        every[places.nonzero()] = False
        places, is_missing = as_positives(sparse.csr_array(every)), not is_missing
    mask = Mask(places, is_missing)
    if mask.n_observed() == 0:
        raise DataError("no label of any row was observed", expected="some", fix="Check the mask.")
    return mask if places.nnz or not is_missing else None


def _is_table_of(values: Any, shape: tuple[int, int]) -> bool:
    """Return whether lists of 0 and 1 have the shape of Y: then they are not lists of labels."""
    rows = values if isinstance(values, list | tuple) and len(values) == shape[0] else ()
    return bool(rows) and all(
        isinstance(row, list | tuple) and len(row) == shape[1] and all(entry in (0, 1) for entry in row) for row in rows
    )


def _read_lists(values: Any, n_rows: int, labels: Labels, name: str) -> sparse.csr_array:
    """Read a list of labels for each row."""
    try:
        rows = [list(row) for row in values]
    except TypeError:
        raise DataError(
            f"{name} is {type(values).__name__}", expected="a matrix of 0 and 1, or a list of labels for each row"
        ) from None
    if len(rows) != n_rows:
        raise DataError(f"{name} has {len(rows)} rows", expected=f"{n_rows}, like Y")
    try:
        return encode_known(rows, n_rows, Labels("lists", labels.classes))
    except DataError as error:
        raise DataError(f"{name} as labels of Y: {error}") from None
