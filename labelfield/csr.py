"""Our form of sparse arrays: CSR, float32, int32 columns that rise within each row, no stored zeros, all values finite.

`as_features` and `as_positives` bring any matrix to this form. They check all of it each time: an array keeps no mark
of an earlier check, since its buffers can be edited. What the package itself builds in this form goes to `Dataset` with
`trusted=True` and is not checked again.
"""

from hashlib import sha256
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from labelfield.errors import DataError
from labelfield.mapped import Growing, folder_for, map_of, pieces

# The largest int32, so that the number of columns fits as well as every index.
MAX_COLUMNS = 2**31 - 1
# Entries that are checked at a time: few enough to stay in cache.
_BLOCK = 1 << 18
# Entries of rows that are taken from a mapped array into memory, and rows that are taken at a time.
_IN_MEMORY, _ROWS = 1 << 24, 1 << 14


def assemble(
    data: NDArray[Any], indices: NDArray[np.int32], indptr: NDArray[np.integer], shape: tuple[int, int]
) -> sparse.csr_array:
    """Make a CSR array around these buffers, whose columns must rise within each row. Nothing is read, copied or cast.

    SciPy's constructor would read all of `indptr` and, above 2^31 entries, copy `indices` to 64 bits.
    """
    array = sparse.csr_array(shape, dtype=np.float32)
    array.data, array.indices, array.indptr = data, indices, indptr
    array.has_sorted_indices = True
    array.has_canonical_format = True
    return array


def from_counts(
    counts: NDArray[np.integer], indices: NDArray[np.int32], data: NDArray[Any] | None, n_columns: int
) -> sparse.csr_array:
    """Make a CSR array from the number of entries per row, their columns and their values (None: ones)."""
    indptr = _pointers(counts) if map_of(counts) is None else _mapped_pointers(counts, indices.size)
    if data is None and map_of(indices) is not None:
        data = np.broadcast_to(np.float32(1), (indices.size,))  # one number in memory, as of a folder on disk
    elif data is None:
        data = np.ones(indices.size, np.float32)
    return assemble(data, indices, indptr, (counts.size, n_columns))


def _pointers(counts: NDArray[np.integer]) -> NDArray[np.integer]:
    indptr = np.zeros(counts.size + 1, np.int64)
    np.cumsum(counts, out=indptr[1:])
    # SciPy wants both index arrays of one type.
    return indptr.astype(np.int32) if indptr[-1] <= np.iinfo(np.int32).max else indptr


def _mapped_pointers(counts: NDArray[np.integer], n_entries: int) -> NDArray[np.integer]:
    """Return pointers that are in a file, as the counts are."""
    pointers = Growing(np.int32 if n_entries <= np.iinfo(np.int32).max else np.int64, folder_for(counts))
    pointers.extend(np.zeros(1, np.int64))
    end = 0
    for some in pieces(counts):
        ends = end + np.cumsum(counts[some], dtype=np.int64)
        pointers.extend(ends)
        end = int(ends[-1])
    return pointers.finish()


def row_of_entries(array: sparse.csr_array) -> NDArray[np.int64]:
    """Return the row of each stored entry."""
    return np.repeat(np.arange(array.shape[0]), np.diff(array.indptr))


def row_norms(values: NDArray[Any], counts: NDArray[np.integer]) -> NDArray[np.float64]:
    """Return the Euclidean norms of the rows that have entries, from all values and their number per row."""
    filled = counts[counts > 0]
    starts = np.cumsum(filled) - filled
    return np.sqrt(np.add.reduceat(np.square(values, dtype=np.float64), starts)) if starts.size else np.ones(0)


def sorted_csr(array: Any) -> sparse.csr_array:
    """Return a sparse matrix as CSR with sorted columns and without duplicates; the caller's arrays are not changed."""
    array = sparse.csr_array(array)
    if not array.has_canonical_format:
        array = array.copy()
        array.sum_duplicates()
    return array


def digest_of(array: sparse.csr_array) -> str:
    """Return a fingerprint of a CSR array, the same for index arrays of any type."""
    digest = sha256(repr(array.shape).encode())
    for part, dtype in ((array.data, array.data.dtype), (array.indices, np.int64), (array.indptr, np.int64)):
        for some in pieces(part):
            digest.update(np.ascontiguousarray(part[some], dtype).data)
    return digest.hexdigest()


def column_counts(array: sparse.csr_array) -> NDArray[np.int64]:
    """Return the number of stored entries of each column. (NumPy would copy all indices to 64 bits.)"""
    counts = np.zeros(array.shape[1], np.int64)
    for some in pieces(array.indices):
        counts += np.bincount(array.indices[some], minlength=counts.size)
    return counts


def used_columns(array: sparse.csr_array) -> tuple[NDArray[np.integer], NDArray[np.int64]]:
    """Return the columns that have entries, and how many each has. A file may claim far more columns than it uses."""
    if array.shape[1] > array.indices.size:
        return np.unique(array.indices, return_counts=True)
    counts = column_counts(array)
    return np.flatnonzero(counts), counts[counts > 0]


def gather_rows(array: sparse.csr_array, rows: NDArray[np.int64]) -> sparse.csr_array:
    """Return these rows, in this order, by one gather. No other rows of a memory-mapped array are read."""
    start = array.indptr[rows].astype(np.int64)
    counts = array.indptr[rows + 1] - start
    if (counts < 0).any() or (start < 0).any() or (start + counts > array.indices.size).any():
        raise _damaged("row pointers that decrease or point outside")
    end = np.cumsum(counts)
    total = int(end[-1]) if end.size else 0
    if rows.size and (start[1:] == start[:-1] + counts[:-1]).all():
        where: Any = slice(int(start[0]), int(start[0]) + total)  # neighbouring rows are one piece
    else:
        where = np.arange(total)
        where += np.repeat(start - end + counts, counts)
    indices = array.indices[where]
    if indices.size != total or (total and not 0 <= int(indices.min()) <= int(indices.max()) < array.shape[1]):
        raise _damaged(f"columns outside 0 to {array.shape[1] - 1}")
    return from_counts(counts, indices, array.data[where], array.shape[1])


def some_of(array: sparse.csr_array, first: int, last: int) -> sparse.csr_array:
    """Return neighbouring rows, whose entries are not copied."""
    indptr = array.indptr[first : last + 1]
    entries = slice(int(indptr[0]), int(indptr[-1]))
    indptr = (indptr - indptr[0]).astype(np.int32 if entries.stop - entries.start < 2**31 else np.int64, copy=False)
    return assemble(array.data[entries], array.indices[entries], indptr, (last - first, array.shape[1]))


def take_rows(array: sparse.csr_array, rows: NDArray[np.int64]) -> sparse.csr_array:
    """Return these rows, in this order, as `gather_rows` does; many rows of a mapped array lie in files in turn."""
    folder = folder_for(array.indices)
    n_entries = 0 if folder is None else int((array.indptr[rows + 1] - array.indptr[rows]).sum(dtype=np.int64))
    if folder is None or n_entries <= _IN_MEMORY:
        return gather_rows(array, rows)
    has_values = map_of(array.data) is not None
    counts, indices, data = (Growing(dtype, folder) for dtype in (np.int64, np.int32, np.float32))
    for first in range(0, rows.size, _ROWS):
        some = gather_rows(array, rows[first : first + _ROWS])
        counts.extend(np.diff(some.indptr))
        indices.extend(some.indices)
        data.extend(some.data[: some.data.size * has_values])
    values = data.finish() if has_values else None
    return from_counts(counts.finish(), indices.finish(), values, array.shape[1])


def verify(array: sparse.csr_array) -> None:
    """Read all of a CSR array with float32 values and int32 columns, and raise a DataError unless it is in our form."""
    if (flaw := _flaw(array)) is not None:
        raise _damaged(flaw)


def _flaw(array: sparse.csr_array) -> str | None:
    """Say why an array with the right types is not in our form, or return None if it is."""
    data, indices, indptr = array.data, array.indices, array.indptr
    n, width = indices.size, array.shape[1]
    if indptr.size != array.shape[0] + 1 or indptr[0] != 0 or not indptr[-1] == n == data.size:
        return "row pointers that do not match the number of entries"
    if (indptr[1:] < indptr[:-1]).any():
        return "row pointers that decrease"
    for some in pieces(indices, data, size=_BLOCK):
        columns = indices[some.start : some.stop + 1]  # one more, to compare it with the last of this block
        if not 0 <= columns.min() <= columns.max() < width:
            return f"columns outside 0 to {width - 1}"
        # Where columns do not rise, a row must begin.
        falls = some.start + 1 + np.flatnonzero(columns[1:] <= columns[:-1])
        if (indptr[np.searchsorted(indptr, falls)] != falls).any():
            return "columns that are unsorted or repeated within a row"
        values = data[some]
        if not (np.isfinite(values).all() and values.all()):
            return "values that are not finite, or stored zeros"
    return None


def _damaged(flaw: str) -> DataError:
    return DataError(f"the sparse array is damaged: {flaw}", fix="Write the file or folder again.")


def _as_it_is(array: Any) -> sparse.csr_array | None:
    """Return a CSR array around the buffers of one that is in our form, without a copy; None for any other matrix."""
    if not sparse.issparse(array) or array.format != "csr" or array.ndim != 2:
        return None
    if array.data.dtype != np.float32 or array.indices.dtype != np.int32 or array.indptr.dtype.kind != "i":
        return None
    return assemble(array.data, array.indices, array.indptr, array.shape) if _flaw(array) is None else None


def _converted(array: Any, name: str) -> sparse.csr_array:
    """Return a copy of any matrix as CSR without duplicates; the caller's arrays are not changed."""
    if not sparse.issparse(array):
        array = np.asarray(array)
        if array.dtype.kind not in "biuf":
            raise DataError(f"{name} holds {array.dtype} values", expected="numbers", fix=f"Convert {name} first.")
    if array.ndim != 2:
        raise DataError(f"{name} has {array.ndim} dimensions", expected="a matrix", fix=f"Reshape {name}.")
    # SciPy takes neither numbers in the byte order of another machine nor those of half precision.
    native = array.dtype.newbyteorder("=")
    array = array.astype(np.float32 if native == np.float16 else native, copy=False)
    result = sparse.csr_array(array, copy=True)
    result.sum_duplicates()
    return result


def _finished(
    array: sparse.csr_array, data: NDArray[np.float32], is_bad: NDArray[np.bool_], name: str, expected: str, fix: str
) -> sparse.csr_array:
    """Return the array with these values, in our form; raise a DataError that names the first bad entry."""
    bad = np.flatnonzero(is_bad)
    if bad.size:
        row = int(np.searchsorted(array.indptr, bad[0], side="right")) - 1
        found = f"{name}[{row}, {array.indices[bad[0]]}] is {array.data[bad[0]]}"
        raise DataError(found, expected=expected, fix=fix)
    array = sparse.csr_array((data, array.indices, array.indptr), shape=array.shape)
    array.eliminate_zeros()
    indptr = array.indptr.astype(np.int64, copy=False) if array.nnz > np.iinfo(np.int32).max else array.indptr
    return assemble(array.data, array.indices.astype(np.int32, copy=False), indptr, array.shape)


def as_features(X: Any) -> sparse.csr_array:
    """Return X in our form, without a copy if it is already. Values that are not finite in float32 are refused."""
    if (found := _as_it_is(X)) is not None:
        return found
    X = _converted(X, "X")
    with np.errstate(over="ignore"):
        data = X.data.astype(np.float32, copy=False)
    return _finished(X, data, ~np.isfinite(data), "X", "a finite float32 number", "Impute or remove such values.")


def as_positives(Y: Any) -> sparse.csr_array:
    """Return Y in our form, with 1 for every entry that is not zero; negative and non-finite entries are refused."""
    found = _as_it_is(Y)
    if found is not None and found.data.min(initial=1) == found.data.max(initial=1) == 1:
        return found
    Y = _converted(Y, "Y")
    is_bad = ~(Y.data >= 0) | (Y.data == np.inf)
    expected = "1 for a label that holds and 0 for one that does not"
    return _finished(Y, (Y.data != 0).astype(np.float32), is_bad, "Y", expected, "Recode Y.")
