"""Labels in cells: weights by feature and cell, bounds of what a cell can reach, and scores of labels of some cells.

Labels lie in the order of their cells. The weights of a feature then lie cell by cell, and those of one feature in one
cell are a pair: it knows the largest of them, and where they begin.
"""

import numpy as np
from numpy.typing import NDArray

from labelfield.compiled import compiled

F4 = NDArray[np.float32]
I4 = NDArray[np.int32]
I8 = NDArray[np.int64]

_ZERO = np.float32(0)


@compiled()
def lay_out_by_cell(pointers: I8, features: I4, weights: F4, order: I4, ends: I8, places: I4, values: F4) -> None:
    """Copy the weights of labels, which lie one after another, to where their features have them.

    `order` has the labels in the order of their cells. `ends` is where each feature begins, and afterwards ends.
    """
    for place in range(order.shape[0]):
        label = order[place]
        for j in range(pointers[label], pointers[label + 1]):
            at = ends[features[j]]
            places[at], values[at] = place, weights[j]
            ends[features[j]] = at + 1


@compiled()
def count_pairs(starts: I8, places: I4, cell_of_place: I4) -> I8:
    """Return in how many cells each feature has weights."""
    counts = np.zeros(starts.shape[0] - 1, np.int64)
    for feature in range(counts.shape[0]):
        last = -1
        for j in range(starts[feature], starts[feature + 1]):
            cell = cell_of_place[places[j]]
            counts[feature] += cell != last
            last = cell
    return counts


@compiled()
def fill_pairs(
    starts: I8, places: I4, values: F4, cell_of_place: I4, cells: I4, most: F4, sums: F4, begins: I8
) -> None:
    """Write the cell of each pair, its largest weight, at least 0, the sum of its weights, and where they begin."""
    pair = -1
    for feature in range(starts.shape[0] - 1):
        last = -1
        for j in range(starts[feature], starts[feature + 1]):
            cell = cell_of_place[places[j]]
            if cell != last:
                pair += 1
                cells[pair], most[pair], sums[pair], begins[pair] = cell, _ZERO, _ZERO, j
                last = cell
            most[pair] = max(most[pair], values[j])
            sums[pair] += values[j]


@compiled()
def add_pairs(
    indptr: I4, indices: I4, data: F4, pair_starts: I8, cells: I4, most: F4, likely: F4, bound: F4, guess: F4
) -> None:
    """Add x · most and x · likely of the pairs of each row to `bound` and `guess` (rows, cells)."""
    for row in range(bound.shape[0]):
        own, own_guess = bound[row], guess[row]
        for j in range(indptr[row], indptr[row + 1]):
            feature, x = indices[j], data[j]
            for pair in range(pair_starts[feature], pair_starts[feature + 1]):
                own[cells[pair]] += x * most[pair]
                own_guess[cells[pair]] += x * likely[pair]


@compiled()
def list_labels(visited: I4, order: I4, cell_starts: I8, starts: I8, labels: I4) -> None:
    """Write the labels of the visited cells (rows, n) of all rows; those of a visit begin at `starts`."""
    n = visited.shape[1]
    for visit in range(visited.size):
        cell = visited[visit // n, visit % n]
        begin, end = cell_starts[cell], cell_starts[cell + 1]
        labels[starts[visit] : starts[visit] + end - begin] = order[begin:end]


@compiled()
def add_products(
    indptr: I4,
    indices: I4,
    data: F4,
    visited: I4,
    starts: I8,
    cell_starts: I8,
    pair_starts: I8,
    cells: I4,
    begins: I8,
    places: I4,
    values: F4,
    out: F4,
) -> None:
    """Add wᵀx of all labels of the visited cells (rows, n), which rise in each row, in the order of the features."""
    n = visited.shape[1]
    for row in range(visited.shape[0]):
        for j in range(indptr[row], indptr[row + 1]):
            feature, x = indices[j], data[j]
            first, last = pair_starts[feature], pair_starts[feature + 1]
            for number in range(n):
                cell = visited[row, number]
                low, high = first, last
                while low < high:
                    middle = (low + high) >> 1
                    if cells[middle] < cell:
                        low = middle + 1
                    else:
                        high = middle
                first = low
                if low == last:
                    break
                if cells[low] == cell:
                    to = starts[row * n + number] - cell_starts[cell]
                    for at in range(begins[low], begins[low + 1]):
                        out[to + places[at]] += x * values[at]


@compiled()
def summarise(vectors: F4, order: I4, cell_starts: I8, centres: F4, radius: F4, spread: F4, norms: F4) -> None:
    """Write the mean of the vectors (K, P) of each cell, how far from it they are at the most and in the root of the
    mean square, and their largest squared norm."""
    n = vectors.shape[1]
    centre = np.empty(n, np.float64)
    for cell in range(centres.shape[0]):
        begin, end = cell_starts[cell], cell_starts[cell + 1]
        centre[:] = 0.0
        for at in range(begin, end):
            v = vectors[order[at]]
            for p in range(n):
                centre[p] += v[p]
        for p in range(n):
            centres[cell, p] = centre[p] / max(end - begin, 1)
        farthest, total, largest = 0.0, 0.0, 0.0
        for at in range(begin, end):
            v = vectors[order[at]]
            away, norm = 0.0, 0.0
            for p in range(n):
                away += (v[p] - centres[cell, p]) ** 2
                norm += v[p] * v[p]
            farthest, total, largest = max(farthest, away), total + away, max(largest, norm)
        radius[cell], norms[cell] = np.sqrt(farthest), largest
        spread[cell] = np.sqrt(total / max(end - begin, 1))


@compiled(fastmath=True)
def dense_products(
    H: F4,
    vectors: F4,
    squared: bool,
    order: I4,
    cell_starts: I8,
    visits: I8,
    visit_starts: I8,
    n: int,
    starts: I8,
    out: F4,
) -> None:
    """Write H[row] · vectors[label], or · their squares, for all labels of the visited cells.

    `visits` are row * n + number, sorted by cell; those of a cell begin at `visit_starts`.
    """
    width = H.shape[1]
    for cell in range(cell_starts.shape[0] - 1):
        n_visits = visit_starts[cell + 1] - visit_starts[cell]
        n_labels = cell_starts[cell + 1] - cell_starts[cell]
        if n_visits == 0 or n_labels == 0:
            continue
        own = np.empty((n_labels, width), np.float32)
        for at in range(n_labels):
            own[at] = vectors[order[cell_starts[cell] + at]]
        if squared:
            own *= own
        rows = np.empty((n_visits, width), np.float32)
        for at in range(n_visits):
            rows[at] = H[visits[visit_starts[cell] + at] // n]
        found = np.dot(rows, own.T)
        for at in range(n_visits):
            to = starts[visits[visit_starts[cell] + at]]
            out[to : to + n_labels] = found[at]


@compiled(fastmath=True)
def squared_products(H: F4, vectors: F4, labels: I4, out: F4) -> None:
    """Write Σ_p h_p v_p² of the vectors of some labels (rows, n) of each row."""
    for row in range(labels.shape[0]):
        h = H[row]
        for place in range(labels.shape[1]):
            v, total = vectors[labels[row, place]], _ZERO
            for p in range(h.shape[0]):
                total += h[p] * v[p] * v[p]
            out[row, place] = total


@compiled()
def best_of(values: F4, labels: I4, starts: I8, best: I8, found: F4) -> None:
    """Write the places of the largest values of each row into `best` (rows, k), best first, and the values; of equals
    the smaller label first. Where a row has fewer than k, the rest is -1."""
    k = best.shape[1]
    for row in range(best.shape[0]):
        place, value, n = best[row], found[row], 0
        place[:] = -1
        for at in range(starts[row], starts[row + 1]):
            v = values[at]
            if n == k and (v < value[k - 1] or (v == value[k - 1] and labels[at] > labels[place[k - 1]])):
                continue
            to = min(n, k - 1)
            while to > 0 and (value[to - 1] < v or (value[to - 1] == v and labels[place[to - 1]] > labels[at])):
                place[to], value[to] = place[to - 1], value[to - 1]
                to -= 1
            place[to], value[to] = at, v
            n = min(n + 1, k)
