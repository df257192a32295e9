"""Our folder format: plain .npy arrays, which open memory-mapped at any size.

    meta.json                                   sizes, format and version
    X_values.npy X_indices.npy X_indptr.npy     the features, CSR
    Y_indices.npy Y_indptr.npy                  the positives, CSR
    labels.txt features.txt                     names, one per line, if there are any

A data set with two splits is a folder with meta.json and two such folders, train and test.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from labelfield.csr import assemble
from labelfield.data.dataset import Dataset, Names
from labelfield.errors import DataError
from labelfield.mapped import advise, pieces

_META = "meta.json"
_FORMAT = "labelfield dataset"
_VERSION = 1
_FIX = "Convert the original data again."
_ARRAYS = ("X_values", "X_indices", "X_indptr", "Y_indices", "Y_indptr")
STORE_FILES = (_META, *(f"{name}.npy" for name in _ARRAYS), "labels.txt", "features.txt")
_COUNTS = ("n_rows", "n_features", "n_labels", "n_values", "n_positives")


def is_store(path: Path) -> bool:
    """Return whether a folder is in our format."""
    return (path / _META).is_file()


def write_store(dataset: Dataset, folder: Path) -> None:
    """Write a data set into an empty folder."""
    if dataset.test is not None:
        _write_meta(folder, {"splits": list(dataset.splits)})
        for name, split in dataset.splits.items():
            (folder / name).mkdir()
            write_store(split, folder / name)
        return
    X, Y = dataset.X, dataset.Y
    for name, array in zip(_ARRAYS, (X.data, X.indices, X.indptr, Y.indices, Y.indptr), strict=True):
        _save(folder / f"{name}.npy", array)
    for what, names in (("labels", dataset.label_names), ("features", dataset.feature_names)):
        if names is not None:
            (folder / f"{what}.txt").write_bytes(names.to_bytes())
    counts = (dataset.n_rows, dataset.n_features, dataset.n_labels, X.indices.size, Y.indices.size)
    _write_meta(folder, dict(zip(_COUNTS, counts, strict=True)))


def _save(path: Path, array: NDArray[Any]) -> None:
    """Write an array as numpy.save does, but one that is mapped in pieces."""
    with open(path, "wb") as file:
        header = np.lib.format.header_data_from_array_1_0(array)
        np.lib.format.write_array_header_1_0(file, header)
        for some in pieces(array):
            file.write(np.ascontiguousarray(array[some]).data)


def _write_meta(folder: Path, content: dict[str, Any]) -> None:
    meta = {"format": _FORMAT, "version": _VERSION, **content}
    (folder / _META).write_text(json.dumps(meta, indent=2) + "\n")


def open_store(folder: Path) -> Dataset:
    """Open a folder memory-mapped: sizes are checked, contents are read when used."""
    meta = _read_meta(folder)
    if "splits" in meta:
        if meta["splits"] != ["train", "test"]:
            raise _damaged(folder / _META, "splits other than train and test")
        return open_store(folder / "train").with_parts(test=open_store(folder / "test"))
    counts: list[Any] = [meta.get(name) for name in _COUNTS]
    if not all(type(count) is int and 0 <= count < 2**62 for count in counts):
        raise _damaged(folder / _META, f"counts {counts}")
    n, d, k, n_values, n_positives = counts
    X = _assemble(folder, "X", _map(folder / "X_values.npy", n_values, "float32"), (n, d))
    # The positives are all ones: one number in memory, seen n_positives times.
    Y = _assemble(folder, "Y", np.broadcast_to(np.float32(1), (n_positives,)), (n, k))
    files = ((folder / "labels.txt", k), (folder / "features.txt", d))
    labels, features = (Names.in_file(file, size) if file.exists() else None for file, size in files)
    return Dataset(X, Y, labels, features, trusted=True)


def _read_meta(folder: Path) -> dict[str, Any]:
    path = folder / _META
    try:
        meta = json.loads(path.read_bytes()) if path.is_file() else None
    except OSError as error:
        raise _damaged(path, f"cannot be read ({error.strerror})") from None
    except (ValueError, RecursionError):
        raise _damaged(path, "not JSON") from None
    if not isinstance(meta, dict) or meta.get("format") != _FORMAT:
        raise _damaged(path, "not the description of a labelfield data set")
    if meta.get("version") != _VERSION:
        found = f"version {meta.get('version')!r} of the folder format"
        is_newer = isinstance(meta.get("version"), int) and meta["version"] > _VERSION
        fix = "Install a newer labelfield: pip install --upgrade labelfield." if is_newer else _FIX
        raise DataError(found, f"version {_VERSION}", fix, path=path)
    return meta


def _assemble(folder: Path, name: str, values: NDArray[np.float32], shape: tuple[int, int]) -> sparse.csr_array:
    indices = _map(folder / f"{name}_indices.npy", values.size, "int32")
    path = folder / f"{name}_indptr.npy"
    indptr = _map(path, shape[0] + 1, "int32", "int64")
    if indptr[0] != 0 or indptr[-1] != values.size:
        raise _damaged(path, f"row pointers from {indptr[0]} to {indptr[-1]} for {values.size} entries")
    if shape[1] > np.iinfo(np.int32).max:
        raise _damaged(folder / _META, f"{shape[1]} columns")
    return assemble(values, indices, indptr, shape)


def _map(path: Path, size: int, *types: str) -> NDArray[Any]:
    if not path.is_file():
        raise _damaged(path, "missing, or not a file")
    try:
        with np.errstate(over="ignore"):  # of a size that no file has
            mapped = np.load(path, mmap_mode="r", allow_pickle=False)
    except Exception as error:  # NumPy reads headers with a parser of Python, which raises what it likes
        raise _damaged(path, str(error).splitlines()[0] if str(error) else "unreadable") from None
    # Batches read scattered rows: reading ahead would fetch hundreds of times as much as they need.
    advise(mapped, "MADV_RANDOM")
    array = np.asarray(mapped)
    if array.shape != (size,) or array.dtype.name not in types or not array.dtype.isnative:
        raise _damaged(path, f"{array.dtype.name} of shape {array.shape} instead of {types[0]} of shape ({size},)")
    return array


def _damaged(path: Path, found: str) -> DataError:
    return DataError(found, "an unmodified folder", _FIX, path=path)
