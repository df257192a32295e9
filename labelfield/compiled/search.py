"""Searches of all labels by guesses: what labels have of features, which labels are kept, and exact scores of these.

Labels are looked at in blocks, whose guesses for some rows lie in cache. The postings of a feature are its labels,
which rise, so that a cursor for each entry of a row moves on from block to block.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from labelfield.compiled import compiled

F4 = NDArray[np.float32]
I4 = NDArray[np.int32]
I8 = NDArray[np.int64]

_ZERO = np.float32(0)
_END = np.int32(2**31 - 1)
# Guesses that are compared with a limit together.
_STEP = 128


@compiled()
def count_postings(
    pointers: I8, features: I4, weights: F4, slopes: F4, least: F4, counts: I8, most: F4, left_out: F4
) -> None:
    """Add to `counts` how many labels have at least the least weight of each feature. Raise `most` to its largest
    weight, and `left_out` to the largest that is less. The weights of labels are multiplied by their slopes."""
    for label in range(pointers.shape[0] - 1):
        slope = slopes[label]
        for j in range(pointers[label], pointers[label + 1]):
            feature, size = features[j], abs(slope * weights[j])
            most[feature] = np.maximum(most[feature], size)  # which is no number if one of them is none
            if size >= least[feature]:
                counts[feature] += 1
            else:
                left_out[feature] = max(left_out[feature], size)


@compiled()
def fill_postings(
    pointers: I8, features: I4, weights: F4, slopes: F4, least: F4, ends: I8, labels: I4, values: F4
) -> None:
    """Write the postings that `count_postings` counted. `ends` is where each feature begins, and afterwards ends."""
    for label in range(pointers.shape[0] - 1):
        slope = slopes[label]
        for j in range(pointers[label], pointers[label + 1]):
            weight = slope * weights[j]
            if abs(weight) >= least[features[j]]:
                at = ends[features[j]]
                labels[at], values[at] = label, weight
                ends[features[j]] = at + 1


@compiled()
def begin(indices: I4, starts: I8, labels: I4, cursors: I8, ends: I8, following: I4) -> None:
    """Write where the postings of each entry of some rows begin and end, and their first label."""
    for j in range(indices.shape[0]):
        first, end = starts[indices[j]], starts[indices[j] + 1]
        cursors[j], ends[j] = first, end
        following[j] = labels[first] if first < end else _END


@compiled()
def keep_best(
    first: int,
    products: NDArray[np.generic],
    row_scale: F4,
    label_scale: F4,
    bias: F4,
    indptr: I4,
    data: F4,
    cursors: I8,
    ends: I8,
    following: I4,
    labels: I4,
    values: F4,
    tree_slopes: F4,
    least: float,
    tree_indptr: I4,
    tree_data: F4,
    tree_cursors: I8,
    tree_ends: I8,
    tree_following: I4,
    tree_labels: I4,
    n_kept: int,
    limits: F4,
    sizes: I8,
    kept: I4,
    guesses: F4,
) -> None:
    """Keep the labels of a block, which begins at `first`, whose guess is above the limit of a row.

    A guess is a product of whole numbers, scaled, with what the features of the row add, and slope · log(1 + Σ x /
    least) over those groups of the row that the label is in. There is room for 2 n labels (rows, 2 n): when they are as
    many, the n best stay, and the limit rises to the least of them.
    """
    n, room = products.shape[1], kept.shape[1]
    last = first + n
    scales, offsets, slopes = label_scale[first:last], bias[first:last], tree_slopes[first:last]
    own, inside, touched = np.empty(n, np.float32), np.zeros(n, np.float32), np.empty(n, np.int64)
    for row in range(products.shape[0]):
        whole, scale = products[row], row_scale[row]
        for place in range(n):
            own[place] = np.float32(whole[place]) * (scale * scales[place]) + offsets[place]
        for j in range(indptr[row], indptr[row + 1]):
            label = following[j]
            if label < last:
                at, end, x = cursors[j], ends[j], data[j]
                while label < last:
                    own[label - first] += x * values[at]
                    at += 1
                    label = labels[at] if at < end else _END
                cursors[j], following[j] = at, label
        n_touched = 0
        for j in range(tree_indptr[row], tree_indptr[row + 1]):
            label = tree_following[j]
            if label < last:
                at, end, x = tree_cursors[j], tree_ends[j], tree_data[j]
                while label < last:
                    place = label - first
                    if inside[place] == _ZERO:
                        touched[n_touched] = place
                        n_touched += 1
                    inside[place] += x
                    at += 1
                    label = tree_labels[at] if at < end else _END
                tree_cursors[j], tree_following[j] = at, label
        for number in range(n_touched):
            place = touched[number]
            own[place] += slopes[place] * np.float32(np.log1p(inside[place] / least))
            inside[place] = _ZERO
        limit, size = limits[row], sizes[row]
        for start in range(0, n, _STEP):
            some, above = own[start : start + _STEP], np.int32(0)
            for place in range(some.shape[0]):  # many at a time
                above = np.int32(above + np.int32(some[place] > limit))
            if above == 0:
                continue
            for place in range(some.shape[0]):
                if some[place] > limit:
                    kept[row, size], guesses[row, size] = first + start + place, some[place]
                    size += 1
                    if size == room:
                        limit, size = _leave_best(guesses[row], kept[row], size, n_kept), n_kept
        limits[row], sizes[row] = limit, size


@compiled()
def finish(n_kept: int, limits: F4, sizes: I8, kept: I4, values: F4) -> None:
    """Leave the n best of the labels kept for each row, in order; the limit is then what no other label is above."""
    for row in range(kept.shape[0]):
        if sizes[row] > n_kept:
            limits[row] = _leave_best(values[row], kept[row], sizes[row], n_kept)
            sizes[row] = n_kept
        order = np.argsort(kept[row, :n_kept])
        kept[row, :n_kept] = kept[row, :n_kept][order]
        values[row, :n_kept] = values[row, :n_kept][order]


@compiled()
def _leave_best(values: F4, labels: I4, size: int, n: int) -> Any:
    """Move the n largest values and their labels to the front, and return the least of them (quickselect).

    Of equal values those of smaller labels come first.
    """
    low, high = 0, size - 1
    while low < high:
        pivot, label = values[(low + high) >> 1], labels[(low + high) >> 1]
        i, j = low, high
        while i <= j:
            while values[i] > pivot or (values[i] == pivot and labels[i] < label):
                i += 1
            while values[j] < pivot or (values[j] == pivot and labels[j] > label):
                j -= 1
            if i <= j:
                values[i], values[j] = values[j], values[i]
                labels[i], labels[j] = labels[j], labels[i]
                i += 1
                j -= 1
        if n - 1 <= j:
            high = j
        elif n - 1 >= i:
            low = i
        else:
            break
    return values[:n].min()


@compiled()
def own_products(
    indptr: I4, indices: I4, data: F4, pointers: I8, features: I4, weights: F4, first: int, x: F4, labels: I8, out: F4
) -> None:
    """Add wᵀx of the machines `first` + label to `out` (rows, n), each summed in the order of its features.

    `x` is 0 for all features, before and afterwards.
    """
    for row in range(labels.shape[0]):
        for j in range(indptr[row], indptr[row + 1]):
            x[indices[j]] = data[j]
        for place in range(labels.shape[1]):
            machine, total = first + labels[row, place], _ZERO
            for j in range(pointers[machine], pointers[machine + 1]):
                total += weights[j] * x[features[j]]
            out[row, place] += total
        for j in range(indptr[row], indptr[row + 1]):
            x[indices[j]] = _ZERO


@compiled(fastmath=True)
def dense_products(H: F4, vectors: F4, labels: I8, squared: bool, out: F4) -> None:
    """Write H[row] · vectors[label], or · their squares, for some labels (rows, n) of each row."""
    for row in range(labels.shape[0]):
        h = H[row]
        for place in range(labels.shape[1]):
            v, total = vectors[labels[row, place]], _ZERO
            if squared:
                for p in range(h.shape[0]):
                    total += h[p] * v[p] * v[p]
            else:
                for p in range(h.shape[0]):
                    total += h[p] * v[p]
            out[row, place] = total
