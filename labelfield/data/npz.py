"""NumPy and SciPy .npz files.

Three kinds are read: files from `write_npz`; a pair of SciPy matrices whose names differ only in X and Y
(`X_train.npz` and `Y_train.npz`, `test.X.npz` and `test.Y.npz`); and one file with an array `X` of any shape and either
an indicator matrix `Y` or a vector `y` with one class per row.
"""

import math
import re
import zipfile
import zlib
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from labelfield.csr import MAX_COLUMNS, assemble, from_counts, verify
from labelfield.data.classes import class_columns
from labelfield.data.dataset import Dataset, Names
from labelfield.data.reading import FileContents, Options
from labelfield.errors import DataError

_X_PART = re.compile(r"(?<![A-Za-z0-9])X(?![A-Za-z0-9])")
# Rows of a coo or csc matrix beyond which most are empty: as csr, each takes memory that the file does not have.
_MOST_EMPTY_ROWS, _ROWS_PER_ENTRY = 1_000_000, 10
_OURS = ("X_values", "X_indices", "X_indptr", "X_shape", "Y_indices", "Y_indptr", "Y_shape")


def label_partner(path: Path) -> Path | None:
    """Return the file with the labels of a SciPy matrix X: the same name with Y for X."""
    return path.with_name(_X_PART.sub("Y", path.name)) if _X_PART.search(path.name) else None


def load_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """Read all arrays of an .npz file; objects, which only pickle could read, are refused."""
    if not path.is_file():
        raise DataError("there is no such file", path=path, fix="Check the path.")
    try:
        with zipfile.ZipFile(path) as archive:
            return {one.filename.removesuffix(".npy"): _load_member(archive, one) for one in archive.infolist()}
    except (OSError, ValueError, EOFError, RuntimeError, NotImplementedError, zipfile.BadZipFile, zlib.error) as error:
        found = f"cannot be read ({str(error).splitlines()[0] if str(error) else type(error).__name__})"
        raise DataError(found, path=path, expected="an .npz file of plain arrays", fix="Write it again.") from None


def _load_member(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> NDArray[Any]:
    """Read one array. NumPy would set aside what its header asks for, which must be what the archive has of it."""
    with archive.open(member) as file:
        shape, is_by_column, dtype = _read_header(file)
        n_bytes = math.prod(shape) * dtype.itemsize
        if n_bytes > member.file_size:
            raise ValueError(f"the header of {member.filename} asks for {n_bytes} bytes of {member.file_size}")
        content = file.read()
    if len(content) != n_bytes:
        raise ValueError(f"{member.filename} has {len(content)} bytes of numbers where its header says {n_bytes}")
    array = np.frombuffer(bytearray(content), dtype) if n_bytes else np.empty(math.prod(shape), dtype)
    if dtype.kind == "U" and n_bytes and int(array.view(dtype.str[0] + "u4").max()) > 0x10FFFF:
        raise ValueError(f"{member.filename} holds characters that do not exist")
    return array.reshape(shape, order="F" if is_by_column else "C")


def _read_header(file: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    try:
        version = np.lib.format.read_magic(file)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, is_by_column, dtype = read(file)
    except Exception as error:  # NumPy reads headers with a parser of Python, which raises what it likes
        raise ValueError(f"not an array of NumPy: {error}") from None
    if dtype.hasobject:
        raise ValueError("Object arrays cannot be loaded when allow_pickle=False")
    if dtype.itemsize == 0 or any(type(size) is not int or size < 0 for size in shape):
        raise ValueError(f"an array of shape {shape}")
    return shape, is_by_column, dtype


def sparse_from(arrays: Mapping[str, NDArray[Any]], path: Path) -> Any:
    """Return the matrix that scipy.sparse.save_npz wrote, with all indices checked before compiled code uses them."""
    try:
        kind = arrays["format"].item()
        kind = kind.decode() if isinstance(kind, bytes) else kind
        shape = tuple(int(size) for size in arrays["shape"])
        if arrays["data"].dtype.kind not in "biuf":
            raise ValueError(f"it holds {arrays['data'].dtype} values")
        if kind != "csr" and shape and shape[0] > _MOST_EMPTY_ROWS + _ROWS_PER_ENTRY * arrays["data"].size:
            raise ValueError(f"{shape[0]} rows for {arrays['data'].size} entries; write it as csr")
        if kind in ("csr", "csc"):
            build = sparse.csr_array if kind == "csr" else sparse.csc_array
            ends, n_entries = arrays["indptr"], arrays["indices"].size
            # SciPy does not look at the rest if the last one is negative.
            if ends.ndim != 1 or not ends.size or not (ends[1:] >= ends[:-1]).all() or not 0 <= ends[-1] <= n_entries:
                raise ValueError("row pointers that decrease or point outside")
            matrix = build((arrays["data"], arrays["indices"], arrays["indptr"]), shape=shape)
            matrix.check_format(full_check=True)
            return matrix
        if kind == "coo":
            return sparse.coo_array((arrays["data"], (arrays["row"], arrays["col"])), shape=shape)
        raise ValueError(f"the matrix is of kind {kind!r}; write it as csr")
    except (KeyError, ValueError, TypeError, IndexError) as error:
        found = f"not a SciPy matrix ({error})"
        raise DataError(found, path=path, expected="csr, csc or coo", fix="Write it again.") from None


def read_npz(path: Path, options: Options) -> FileContents:
    """Read any of the three kinds. The number of classes is not stated by a file with a vector of class numbers.

    With `classes`, the values of `y` are the names of classes, any integers or strings. With `unlabelled`, a file may
    contain X alone.
    """
    arrays = load_arrays(path)
    if all(name in arrays for name in _OURS):
        return FileContents(_read_ours(arrays), True, holds_names=True)
    if "format" in arrays:
        return FileContents(_read_pair(path, arrays), True)
    if "X" in arrays and ("Y" in arrays or "y" in arrays):
        return _read_dense(arrays, options.classes)
    if "X" in arrays and options.unlabelled:
        X = _as_matrix(arrays["X"])
        return FileContents(Dataset(X, np.zeros((X.shape[0], 0))), False, has_classes=True)
    fix = "Save it with labelfield.write, or as X and y with numpy.savez."
    raise unusable(arrays, "X with Y or y, or a SciPy matrix X beside its Y", fix)


def unusable(arrays: Collection[str], expected: str, fix: str) -> DataError:
    """Return the error for a file with unexpected arrays."""
    return DataError(f"arrays {', '.join(sorted(arrays)[:8]) or '(none)'}", expected, fix)


def _read_ours(arrays: Mapping[str, NDArray[Any]]) -> Dataset:
    parts = []
    for name, values in (("X", arrays["X_values"]), ("Y", np.ones(arrays["Y_indices"].size, np.float32))):
        shape, indices, indptr = arrays[f"{name}_shape"], arrays[f"{name}_indices"], arrays[f"{name}_indptr"]
        right_types = values.dtype == np.float32 and indices.dtype == np.int32 and indptr.dtype.kind == "i"
        right_shape = shape.shape == (2,) and shape.dtype.kind == "i" and shape.min() >= 0
        right_shape = right_shape and indptr.size == int(shape[0]) + 1
        if not right_types or not right_shape or values.shape != indices.shape or indices.ndim != 1 or indptr.ndim != 1:
            raise DataError(f"{name} is not a CSR array", fix="Write the file again.")
        parts.append(assemble(values, indices, indptr, (int(shape[0]), int(shape[1]))))
        verify(parts[-1])
    return Dataset(*parts, *(_names(arrays, key) for key in ("label_names", "feature_names")), trusted=True)


def _names(arrays: Mapping[str, NDArray[Any]], key: str) -> Names | None:
    """Decode names from the UTF-8 bytes of their list: strings of NumPy would lose trailing zero characters."""
    if key not in arrays:
        return None
    try:
        return Names.from_bytes(arrays[key].astype(np.uint8).tobytes())
    except UnicodeDecodeError:
        raise DataError(f"{key} is not UTF-8", fix="Write the file again.") from None


def _read_pair(path: Path, arrays: Mapping[str, NDArray[Any]]) -> Dataset:
    partner = label_partner(path)
    if partner is None or not partner.exists():
        expected = f"the labels in {partner.name if partner else 'a file named with Y for X'} beside it"
        fix = "Name the pair X.npz and Y.npz, or write both with labelfield.write."
        raise DataError("one SciPy matrix and no labels", expected, fix)
    return Dataset(sparse_from(arrays, path), sparse_from(load_arrays(partner), partner))


def _as_matrix(X: NDArray[Any]) -> NDArray[Any]:
    """Flatten rows of any shape, such as images."""
    if X.ndim == 0:
        raise DataError("X is a single number", expected="one row for each example", fix="Save X as a matrix.")
    return X.reshape(X.shape[0], -1) if X.size else X.reshape(X.shape[0], 0)


def _read_dense(arrays: Mapping[str, NDArray[Any]], classes: bool) -> FileContents:
    X = _as_matrix(arrays["X"])
    labels = arrays["Y" if "Y" in arrays else "y"]
    if "Y" in arrays or (labels.ndim == 2 and labels.shape[0] == X.shape[0] and labels.shape[1] > 1):
        return FileContents(Dataset(X, labels), True)
    y = labels.ravel()
    names = None
    if classes:
        names, y = _named_classes(y)
    elif y.dtype.kind == "U":
        found, y = np.unique(y, return_inverse=True)
        names = Names(found.tolist())
    if y.dtype.kind not in "iub" or (y.size and y.min() < 0):
        raise DataError(f"y holds {y.dtype} values", expected="classes 0, 1, 2, … or strings", fix="Recode y.")
    if y.size and int(y.max()) >= MAX_COLUMNS:
        raise DataError(f"y holds the class {y.max()}", expected=f"classes below {MAX_COLUMNS}", fix="Recode y.")
    n_labels = int(y.max(initial=0)) + (y.size > 0) if names is None else len(names)
    Y = from_counts(np.ones(y.size, np.int64), y.astype(np.int32), None, n_labels)
    return FileContents(Dataset(X, Y, names), names is not None, has_classes=classes)


def _named_classes(y: NDArray[Any]) -> tuple[Names, NDArray[np.int32]]:
    """Return the names of the classes in y, and the column of each row."""
    if y.dtype.kind == "f":
        wrong = np.flatnonzero(~(np.isfinite(y) & (y == np.round(y))))
        if wrong.size:
            raise DataError(f"y[{wrong[0]}] is {y[wrong[0]]}", expected="a class: an integer or text", fix="Recode y.")
    elif y.dtype.kind not in "iubU":
        raise DataError(f"y holds {y.dtype} values", expected="integers or strings", fix="Recode y.")
    found, which = np.unique(y.astype(np.int8) if y.dtype == np.bool_ else y, return_inverse=True)
    return class_columns([str(value) for value in found.tolist()], which)


def write_npz(file: IO[bytes], dataset: Dataset) -> None:
    """Write a data set as one file."""
    arrays: dict[str, Any] = {"X_values": dataset.X.data}
    for name, array in (("X", dataset.X), ("Y", dataset.Y)):
        arrays |= {f"{name}_indices": array.indices, f"{name}_indptr": array.indptr}
        arrays[f"{name}_shape"] = np.array(array.shape, np.int64)
    for key, names in (("label_names", dataset.label_names), ("feature_names", dataset.feature_names)):
        if names is not None:
            arrays[key] = np.frombuffer(names.to_bytes(), np.uint8)
    np.savez_compressed(file, allow_pickle=False, **arrays)
