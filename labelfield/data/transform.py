"""Row transforms, applied to rows before a model sees them. A transform is saved with its model."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from math import isqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from labelfield.csr import as_features, assemble, column_counts, from_counts, gather_rows, row_norms, some_of
from labelfield.data.codes import Codes, find_codes
from labelfield.errors import DataError
from labelfield.mapped import Growing, advise, folder_for, pieces

VIEWS = ("unit", "sqrt", "log", "tfidf", "scaled", "coded", "range", "deskew", "none")
# Those that cannot be joined with others.
ALONE = ("scaled", "coded", "range", "deskew", "none")
# Those that give every column a scale, and rows no norm.
MEASURED = ("scaled", "coded", "range")
_WEIGHTED = ("tfidf", "scaled", "coded", "range", "deskew")
# Ratio of the largest value of a row to the mean one above which few values dominate the row.
_UNEVEN = 5.0
# Standard deviations from 0 beyond which a mean is subtracted.
_FAR = 3.0
_FEW_FEATURES = 1000
# With fewer features, it may be by chance that most have the same largest value.
_LEAST_PIXELS = 50
# Entries that are transformed at a time, which bounds the memory needed beside the result.
_BLOCK_ENTRIES = 1 << 22
# A standard deviation below this fraction of the mean is a rounding error: the feature is constant.
_CONSTANT = 1e-9
# Images that are processed at a time: few enough that their copies stay in cache.
_BLOCK_IMAGES = 512
# Below this variance along y (in pixels²) a shape is a horizontal line, which has no slant.
_FLAT = 1e-2


@dataclass(frozen=True, eq=False)
class RowTransform:
    """One or more views of each row, side by side.

    A view takes each value v as it is ("unit"), as sign(v) √|v| ("sqrt"), as sign(v) log(1 + |v|) ("log"), or as the
    latter times log((1 + N) / (1 + n)) + 1 for a feature that occurs in n of N training rows ("tfidf"), and then scales
    each row to norm 1. Names joined by + give several views, each with its own columns, together of norm 1.

    Five transforms stand alone and leave norms as they are. "scaled" divides each value by the standard deviation of
    its feature over the training rows (by 1 if that is 0). If the mean of a feature is more than three standard
    deviations away from 0, so that at least nine tenths of its values are not 0, the mean is subtracted first, because
    distances between such numbers would be lost to rounding. Distances are the same as if all features were centred,
    and zeros of the other features stay zeros. "coded" does the same, but features whose numbers are codes of
    categories (`find_codes`) get an indicator for each code in further columns instead. "range" divides all values by
    the largest absolute value in the training rows, as is usual for images. "deskew" does this too, takes rows as
    square images, centres them and removes their slant (`deskew`). "none" leaves rows as they are.

    `weights` multiplies each feature: the second factor of "tfidf", or one over the divisor of the others. `shifts` is
    what "scaled" and "coded" subtract first, and `codes` are the categories of "coded".
    """

    name: str
    weights: NDArray[np.float32] | None = None
    shifts: NDArray[np.float32] | None = None
    codes: Codes | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", "+".join(_split(self.name)))
        views = self.views
        is_known = set(views) <= set(VIEWS) and len(set(views)) == len(views)
        if not is_known or (len(views) > 1 and set(views) & set(ALONE)):
            allowed = f"one of {', '.join(VIEWS)}, or some of the first four joined by +"
            raise ValueError(f"row_transform={self.name!r}; expected {allowed}")
        if bool(set(views) & set(_WEIGHTED)) != (self.weights is not None):
            raise ValueError(f"{', '.join(_WEIGHTED)} need one weight per feature; other row transforms take none")
        if (self.name in ("scaled", "coded")) != (self.shifts is not None):
            raise ValueError("scaled and coded need one shift per feature; other row transforms take none")
        if (self.name == "coded") != (self.codes is not None):
            raise ValueError("coded needs the codes of categories; other row transforms take none")
        if self.name == "deskew" and self.weights is not None and isqrt(self.weights.size) ** 2 != self.weights.size:
            raise ValueError(f"row_transform='deskew' takes square images; {self.weights.size} is not a square number")

    @classmethod
    def fit(cls, name: str, X: sparse.csr_array, Y: sparse.csr_array | None = None) -> RowTransform:
        """Return the transform of this name, fitted to the training rows; "scaled" for "coded" if there are no codes.

        Labels Y, if there are some, show which numbers are codes.
        """
        views = _split(name)
        codes = find_codes(X, Y) if views == ["coded"] else None
        if codes is not None:
            weights, shifts = _scales(X)
            shifts[codes.columns] = 0
            return cls(name, weights, shifts, codes)
        if "tfidf" in views:
            counts = column_counts(X)
            return cls(name, (np.log((1 + X.shape[0]) / (1 + counts)) + 1).astype(np.float32))
        if views in (["scaled"], ["coded"]):
            return cls("scaled", *_scales(X))
        if "deskew" in views or "range" in views:
            least, most = _extremes(X)
            largest = max(most, -least)
            return cls(name, np.full(X.shape[1], 1 / largest if largest > 0 else 1, np.float32))
        return cls(name)

    @property
    def views(self) -> list[str]:
        return self.name.split("+")

    @property
    def has_unit_norm(self) -> bool:
        """Whether rows that are not empty get norm 1."""
        return self.name not in ALONE

    def __call__(self, X: sparse.csr_array) -> sparse.csr_array:
        """Return the rows that a model sees (N, views · D)."""
        if self.name == "none":
            return X
        if self.name == "deskew" and self.weights is not None:
            return _upright(X, self.weights)
        if self.codes is not None:
            measured = np.ones(X.shape[1], np.float32)
            measured[self.codes.columns] = 0
            scaled = replace(self, name="scaled", codes=None)(as_features(X * measured))
            return _side_by_side([scaled, self.codes.indicators(X)])
        if self.shifts is not None and self.shifts.any():
            (n, d), columns = X.shape, np.flatnonzero(self.shifts).astype(np.int32)
            values = np.tile(self.shifts[columns], n)
            X = as_features(X - from_counts(np.full(n, columns.size), np.tile(columns, n), values, d))
        parts = [self._view(X, view) for view in self.views]
        return parts[0] if len(parts) == 1 else _side_by_side(parts)

    def _view(self, X: sparse.csr_array, view: str) -> sparse.csr_array:
        """Return X with the values of one view, in blocks of rows; all views of a row together have norm 1.

        Rows on disk stay there: the new values are in a file too.
        """
        values = Growing(np.float32, folder_for(X.data), X.nnz)
        cuts = np.unique(np.searchsorted(X.indptr, np.arange(0, X.nnz, _BLOCK_ENTRIES)))
        for first, last in pairwise([*cuts.tolist(), X.shape[0]]):
            part = slice(int(X.indptr[first]), int(X.indptr[last]))
            block = self._values(X.data[part], X.indices[part], view)
            if self.has_unit_norm:
                counts = np.diff(X.indptr[first : last + 1])
                norms = row_norms(block, counts)
                block = block * np.repeat(len(self.views) ** -0.5 / norms, counts[counts > 0])
            values.extend(block)
            for read in (X.data, X.indices):
                advise(read, "MADV_DONTNEED", part.start, part.stop)
        result = assemble(values.finish(), X.indices, X.indptr, X.shape)
        # A value far below the largest of its row may round to 0.
        is_full = all(result.data[part].all() for part in pieces(result.data))
        return result if is_full else as_features(result)

    def _values(self, values: NDArray[np.float32], indices: NDArray[np.int32], view: str) -> NDArray[np.floating]:
        size = np.abs(values)
        if view == "unit":
            return np.asarray(values)
        if view in ("scaled", "range") and self.weights is not None:
            return np.asarray(values * self.weights[indices])
        if view == "sqrt":
            return np.asarray(np.sign(values) * np.sqrt(size))
        result = np.sign(values) * np.log1p(size)
        return np.asarray(result if self.weights is None or view == "log" else result * self.weights[indices])

    def n_columns(self, n_features: int) -> int:
        """Return how many columns rows of n_features get."""
        return n_features * len(self.views) + (0 if self.codes is None else self.codes.columns.size)

    def fold(self, by_column: NDArray[np.float32]) -> NDArray[np.float32]:
        """Sum a number per column of the transformed rows over the views or codes of each feature."""
        if self.codes is None:
            return np.asarray(by_column.reshape(len(self.views), -1).sum(0))
        measured, coded = np.split(by_column, [by_column.size - self.codes.columns.size])
        return np.asarray(measured + np.bincount(self.codes.columns, coded, measured.size), by_column.dtype)

    def original(self, row: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the values of features at a transformed row that was not scaled to norm 1; of codes the strongest."""
        n_codes = 0 if self.codes is None else self.codes.columns.size
        values = np.array(row[: row.size - n_codes])
        if self.weights is not None:
            values = values / self.weights + (0 if self.shifts is None else self.shifts)
        if self.codes is not None:
            weakest_first = np.argsort(row[-n_codes:], kind="stable")
            values[self.codes.columns[weakest_first]] = self.codes.values[weakest_first]
        return values

    def absent(self) -> NDArray[np.float32] | None:
        """Return the value of each feature that says nothing: its shift, a code that is not known, or 0 (None if all
        are 0)."""
        if self.shifts is None or self.codes is None:
            return self.shifts
        values, (columns, unknown) = self.shifts.copy(), self.codes.unknown()
        values[columns] = unknown
        return values


def _side_by_side(parts: list[sparse.csr_array]) -> sparse.csr_array:
    """Return the columns of all parts beside each other, in a file where the parts are in files."""
    folder, n_rows = folder_for(parts[0].data), parts[0].shape[0]
    step = max(1, _BLOCK_ENTRIES * n_rows // max(parts[0].indices.size, 1))
    counts, indices, data = (Growing(dtype, folder) for dtype in (np.int64, np.int32, np.float32))
    for first in range(0, n_rows, step):
        some = [some_of(part, first, min(first + step, n_rows)) for part in parts]
        joined = sparse.hstack(some, format="csr")
        counts.extend(np.diff(joined.indptr))
        indices.extend(joined.indices)
        data.extend(joined.data)
    width = sum(part.shape[1] for part in parts)
    return from_counts(counts.finish(), indices.finish(), data.finish(), width)


def _split(name: str) -> list[str]:
    return [view.strip() for view in name.split("+")]


def _extremes(X: sparse.csr_array) -> tuple[float, float]:
    """Return the least and the largest stored value; 0 and 0 if there is none."""
    found = [(float(X.data[part].min()), float(X.data[part].max())) for part in pieces(X.data)] or [(0.0, 0.0)]
    return min(least for least, _ in found), max(most for _, most in found)


def _scales(X: sparse.csr_array) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return 1 / (standard deviation over all rows) of each feature, or 1 if it is constant; and its mean, or 0 if that
    is near 0."""
    n, d = X.shape
    counts = column_counts(X)
    mean, square = np.zeros(d), np.zeros(d)
    for part in pieces(X.indices, X.data):
        mean += np.bincount(X.indices[part], X.data[part], d) / n
    for part in pieces(X.indices, X.data):
        square += np.bincount(X.indices[part], np.square(X.data[part] - mean[X.indices[part]]), d)
    deviation = np.sqrt((square + (n - counts) * mean**2) / max(n, 1))
    varies = deviation > np.maximum(_CONSTANT * np.abs(mean), np.finfo(np.float32).tiny)
    deviation = np.where(varies, deviation, 1)
    shifts = np.where(np.abs(mean) > _FAR * deviation, mean, 0)
    return np.asarray(1 / deviation, np.float32), np.asarray(shifts, np.float32)


def _upright(X: sparse.csr_array, weights: NDArray[np.float32]) -> sparse.csr_array:
    """Deskew rows that are square images, in blocks, so that only a few rows are dense at a time."""
    n, d = X.shape
    side, parts = isqrt(d), []
    for start in range(0, n, _BLOCK_IMAGES):
        images = deskew((X[start : start + _BLOCK_IMAGES].toarray() * weights).reshape(-1, side, side))
        parts.append(sparse.csr_array(images.reshape(-1, d)))
    return as_features(sparse.vstack(parts, format="csr")) if parts else X


def deskew(images: NDArray[Any]) -> NDArray[np.float32]:
    """Move the centre of mass of each image (N, H, W) of non-negative values to the middle, and remove its slant.

    Pixel (v, u) of the result, counted from the middle, is (ȳ + v, x̄ + u + α v) of the image, with bilinear
    interpolation between pixels and 0 beyond the edge. With α = μ11 / μ02, x and y of the result are uncorrelated.
    """
    images = np.asarray(images, np.float32)
    if images.ndim != 3:
        raise ValueError(f"images of shape {images.shape}; expected (images, rows, columns)")
    if images.size and float(images.min()) < 0:
        fix = "Use a row_transform other than deskew."
        raise DataError("an image with values below 0", expected="values of at least 0", fix=fix)
    n, height, width = images.shape
    y, x = (np.arange(size) - (size - 1) / 2 for size in (height, width))
    mass = images.sum(2, dtype=np.float64)  # per row
    total = mass.sum(1)
    total[total == 0] = 1  # an empty image stays as it is
    moment = np.asarray(images @ x.astype(np.float32), np.float64)  # Σ_x x I, per row
    centre_y, centre_x = mass @ y / total, moment.sum(1) / total
    v = y - centre_y[:, None]
    variance = (mass * v**2).sum(1) / total
    is_flat = variance < _FLAT
    slant = np.where(is_flat, 0, (moment * v).sum(1) / total / np.where(is_flat, 1, variance))
    # The shift along x depends only on the row of the result, so moving rows first and then pixels is bilinear.
    upright = _moved(images, centre_y)
    shift = centre_x[:, None] + slant[:, None] * y
    return _moved(upright.reshape(n * height, width), shift.ravel()).reshape(n, height, width)


def _moved(lines: NDArray[np.float32], shift: NDArray[np.float64]) -> NDArray[np.float32]:
    """Shift each line (L, n, …): entry i becomes entry i + shift, interpolated linearly, and 0 beyond the ends."""
    n_lines, length = lines.shape[:2]
    padded = np.zeros((n_lines, length + 2, *lines.shape[2:]), np.float32)
    padded[:, 1:-1] = lines
    whole = np.floor(shift)
    place = np.arange(1, length + 2) + whole.astype(np.intp)[:, None]
    np.clip(place, 0, length + 1, out=place)
    taken = padded[np.arange(n_lines)[:, None], place]
    part = (shift - whole).astype(np.float32).reshape(-1, *[1] * (lines.ndim - 1))
    return np.asarray(taken[:, :-1] * (1 - part) + taken[:, 1:] * part)


def choose_transform(X: sparse.csr_array) -> str:
    """Choose a transform by the training rows alone: "sqrt" if a few large values dominate rows, else "unit".

    They do if the largest absolute value of a row is more than 5 times the mean one (median over rows): with raw counts
    and tf-idf, single words outweigh all others (EUR-Lex: 12; RCV1, scaled by its makers: 3; binary rows: 1).
    """
    if X.nnz > _BLOCK_ENTRIES:  # every so many rows tell enough
        X = gather_rows(X, np.arange(0, X.shape[0], -(-X.nnz // _BLOCK_ENTRIES)))
    counts = np.diff(X.indptr)
    filled = counts > 0
    if not filled.any():
        return "unit"
    size, starts = np.abs(X.data), X.indptr[:-1][filled]
    mean = np.add.reduceat(size, starts) / counts[filled]
    return "sqrt" if float(np.median(np.maximum.reduceat(size, starts) / mean)) > _UNEVEN else "unit"


def choose_class_transform(X: sparse.csr_array) -> str:
    """Choose a transform by the training rows alone, for models of one class per row.

    Rows with fewer than a thousand features are measurements, each with its own scale, or codes of categories, and are
    "coded" (which is "scaled" where there are no codes), unless most features have the same largest value, like the
    pixels of images, which share one scale. For those rows, and for words, `choose_transform` decides.
    """
    if X.shape[1] >= _FEW_FEATURES:
        return choose_transform(X)
    largest = np.zeros(X.shape[1], np.float32)
    for part in pieces(X.indices, X.data):
        np.maximum.at(largest, X.indices[part], np.abs(X.data[part]))
    used = largest[largest > 0]
    has_one_scale = used.size >= _LEAST_PIXELS and np.mean(used == used.max()) > 0.5
    return choose_transform(X) if has_one_scale else "coded"


def candidate_transforms(X: sparse.csr_array) -> list[str]:
    """Return the transforms worth trying for linear machines, most likely first.

    Text differs most in how values are scaled, and no transform is best everywhere. Where all values are the same, most
    transforms are too.
    """
    if choose_class_transform(X) not in ("unit", "sqrt"):
        return ["scaled", "unit"]  # measurements
    first = choose_transform(X)
    least, most = _extremes(X)
    is_binary = X.nnz == 0 or least == most
    names = ["unit", "tfidf"] if is_binary else [first, *{"unit": ["sqrt"], "sqrt": ["unit"]}[first], "log", "tfidf"]
    return names if least >= 0 else ["unit", "sqrt"]
