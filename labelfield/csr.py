"""The one form in which sparse arrays travel: CSR, float32, int32 columns, sorted, no duplicates, no stored zeros."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from labelfield.errors import DataError

__all__ = ["MAX_COLUMNS", "as_features", "as_positives", "assemble", "from_counts", "gather_rows", "verify"]


# One below the largest int32, so that the number of columns fits as well as every index.
MAX_COLUMNS = 2**31 - 1


def assemble(
    data: NDArray[Any], indices: NDArray[np.int32], indptr: NDArray[np.int64], shape: tuple[int, int]
) -> sparse.csr_array:
    """A CSR array around these buffers as they are, known to be in our form: nothing is read, copied or cast.

    SciPy's constructor would read all of `indptr` and, above 2^31 entries, copy `indices` to 64 bits.
    """
    array = sparse.csr_array(shape, dtype=np.float32)
    array.data, array.indices, array.indptr = data, indices, indptr
    array.has_sorted_indices = True
    array.has_canonical_format = True
    array.is_in_our_form = True
    return array


def _is_in_our_form(array: Any) -> bool:
    """Whether `assemble` made this very array; whatever else comes is looked at."""
    return isinstance(array, sparse.csr_array) and getattr(array, "is_in_our_form", False)


def from_counts(
    counts: NDArray[np.int64], indices: NDArray[np.int32], data: NDArray[Any] | None, n_columns: int
) -> sparse.csr_array:
    """A CSR array from entries a row (None for data: ones)."""
    indptr = np.zeros(counts.size + 1, np.int64)
    np.cumsum(counts, out=indptr[1:])
    if indptr[-1] <= np.iinfo(np.int32).max:
        indptr = indptr.astype(np.int32)  # SciPy wants both index arrays of one type
    if data is None:
        data = np.ones(indices.size, np.float32)
    return assemble(data, indices, indptr, (counts.size, n_columns))


def gather_rows(array: sparse.csr_array, rows: NDArray[np.int64]) -> sparse.csr_array:
    """These rows, in this order, by one gather. Of a memory-mapped array nothing but these rows is read."""
    start = array.indptr[rows].astype(np.int64)
    counts = array.indptr[rows + 1] - start
    if (counts < 0).any() or (start < 0).any() or (start + counts > array.indices.size).any():
        raise _broken("row pointers that fall or point outside")
    end = np.cumsum(counts)
    total = int(end[-1]) if end.size else 0
    if rows.size and (start[1:] == start[:-1] + counts[:-1]).all():
        where: Any = slice(int(start[0]), int(start[0]) + total)  # neighbouring rows are one piece
    else:
        where = np.arange(total)
        where += np.repeat(start - end + counts, counts)
    indices = array.indices[where]
    if indices.size != total or (total and not 0 <= int(indices.min()) <= int(indices.max()) < array.shape[1]):
        raise _broken(f"columns outside 0 to {array.shape[1] - 1}")
    return from_counts(counts, indices, array.data[where], array.shape[1])


def verify(array: sparse.csr_array) -> None:
    """Read all of an array that came from a file and raise a DataError unless it is in our form."""
    indptr, indices = array.indptr, array.indices
    if indptr.size != array.shape[0] + 1 or indptr[0] != 0 or indptr[-1] != indices.size:
        raise _broken("row pointers that do not fit the entries")
    if (np.diff(indptr) < 0).any():
        raise _broken("row pointers that fall")
    if indices.size and not 0 <= int(indices.min()) <= int(indices.max()) < array.shape[1]:
        raise _broken(f"columns outside 0 to {array.shape[1] - 1}")
    rises = np.diff(indices) > 0
    inner = indptr[1:-1]
    rises[inner[(inner > 0) & (inner < indices.size)] - 1] = True
    if not rises.all():
        raise _broken("columns that are unsorted or repeated within a row")
    if not np.isfinite(array.data).all() or not array.data.all():
        raise _broken("values that are not finite, or zeros that are stored")


def _broken(found: str) -> DataError:
    return DataError(f"the sparse array is damaged: {found}", fix="Write the file or folder anew.")


def _to_csr(array: Any, name: str) -> sparse.csr_array:
    if not sparse.issparse(array):
        array = np.asarray(array)
        if array.dtype.kind not in "biuf":
            raise DataError(f"{name} holds {array.dtype} values", expected="numbers", fix=f"Convert {name} first.")
    if array.ndim != 2:
        raise DataError(f"{name} has {array.ndim} dimensions", expected="a matrix", fix=f"Reshape {name}.")
    result = sparse.csr_array(array)
    if result is array or any(a is b for a, b in zip(_parts(result), _parts(array), strict=False)):
        result = result.copy()  # what is tidied below must not be the caller's
    result.sum_duplicates()
    return result


def _parts(array: Any) -> tuple[Any, ...]:
    return tuple(getattr(array, part, None) for part in ("data", "indices", "indptr")) if sparse.issparse(array) else ()


def as_features(X: Any) -> sparse.csr_array:
    """X in our form. Values that are not finite in float32 are refused."""
    if _is_in_our_form(X):
        return X
    X = _to_csr(X, "X")
    with np.errstate(over="ignore"):
        data = X.data.astype(np.float32, copy=False)
    bad = np.flatnonzero(~np.isfinite(data))
    if bad.size:
        row = int(np.searchsorted(X.indptr, bad[0], side="right")) - 1
        raise DataError(
            f"X[{row}, {X.indices[bad[0]]}] is {X.data[bad[0]]}",
            expected="a finite float32 number",
            fix="Impute or remove such values.",
        )
    X = sparse.csr_array((data, X.indices, X.indptr), shape=X.shape)
    return _finish(X)


def as_positives(Y: Any) -> sparse.csr_array:
    """Y in our form: what is not zero is a positive and becomes 1; negative and non-finite entries are refused."""
    if _is_in_our_form(Y) and (Y.data.strides == (0,) or bool((Y.data == 1).all())):
        return Y
    Y = _to_csr(Y, "Y")
    bad = np.flatnonzero(~(Y.data >= 0) | (Y.data == np.inf))
    if bad.size:
        row = int(np.searchsorted(Y.indptr, bad[0], side="right")) - 1
        raise DataError(
            f"Y[{row}, {Y.indices[bad[0]]}] is {Y.data[bad[0]]}",
            expected="1 for a label that holds and 0 for one that does not",
            fix="Recode Y.",
        )
    Y = sparse.csr_array(((Y.data != 0).astype(np.float32), Y.indices, Y.indptr), shape=Y.shape)
    return _finish(Y)


def _finish(array: sparse.csr_array) -> sparse.csr_array:
    array.eliminate_zeros()
    indptr = array.indptr.astype(np.int64, copy=False) if array.nnz > np.iinfo(np.int32).max else array.indptr
    return assemble(array.data, array.indices.astype(np.int32, copy=False), indptr, array.shape)
