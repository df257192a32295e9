"""Products of sparse rows with weights that lie by feature: frequent features as dense vectors, the others sparse."""

import numpy as np
from numpy.typing import NDArray

from labelfield.compiled import compiled

F4 = NDArray[np.float32]
I4 = NDArray[np.int32]
I8 = NDArray[np.int64]

# Weights as they are, or in steps.
Kept = NDArray[np.float32] | NDArray[np.int16]

_F4, _ZERO, _MOST = np.float32, np.float32(0), np.float32(32767)


@compiled()
def count_features(features: I4, n_features: int) -> I8:
    """Return how often each feature occurs; as np.bincount, without a copy of the features."""
    counts = np.zeros(n_features, np.int64)
    for feature in features:
        counts[feature] += 1
    return counts


@compiled()
def largest_weights(pointers: I8, weights: F4) -> F4:
    """Return the largest size of a weight of each machine."""
    largest = np.zeros(pointers.shape[0] - 1, np.float32)
    for machine in range(largest.shape[0]):
        for j in range(pointers[machine], pointers[machine + 1]):
            largest[machine] = max(largest[machine], abs(weights[j]))
    return largest


@compiled()
def are_whole(pointers: I8, weights: F4, steps: F4) -> bool:
    """Return whether all weights of machines are multiples of their step that 16 bits hold."""
    for machine in range(pointers.shape[0] - 1):
        for j in range(pointers[machine], pointers[machine + 1]):
            multiple = weights[j] / steps[machine]
            if np.rint(multiple) != multiple or abs(multiple) > _MOST:
                return False
    return True


@compiled()
def lay_out(
    pointers: I8, features: I4, weights: F4, steps: F4,
    place: I4, dense: Kept, ends: I8, machines: I4, values: Kept,
) -> None:  # fmt: skip
    """Copy the weights of machines, which lie one after another, to where their features have them, in steps.

    A feature with a `place` has a row of `dense`, which is 0 before; any other one has the entries of `machines` and
    `values` from `ends[feature]` on. `ends` rises with every entry, and is where each feature ends afterwards.
    """
    for machine in range(pointers.shape[0] - 1):
        for j in range(pointers[machine], pointers[machine + 1]):
            feature, multiple = features[j], weights[j] / steps[machine]
            if place[feature] >= 0:
                dense[place[feature], machine] = multiple
            else:
                at = ends[feature]
                machines[at], values[at] = machine, multiple
                ends[feature] = at + 1


@compiled()
def scores_by_feature(
    indptr: I4,
    indices: I4,
    data: F4,
    place: I4,
    dense: Kept,
    starts: I8,
    machines: I4,
    values: Kept,
    steps: F4,
    out: F4,
) -> None:
    """Write the scores of all machines into `out` (N, at least machines), each summed in the order of a row's features.

    Neighbours with dense weights are added together, up to four of them: the sums stay in registers meanwhile.
    """
    n = min(out.shape[1], dense.shape[1])
    for row in range(out.shape[0]):
        own = out[row]
        own[:] = _ZERO
        at, end = np.int64(indptr[row]), np.int64(indptr[row + 1])
        while at < end:
            feature, x = indices[at], data[at]
            if place[feature] < 0:
                for j in range(starts[feature], starts[feature + 1]):
                    own[machines[j]] += x * _F4(values[j])
                at += 1
                continue
            n_dense = 1
            while n_dense < 4 and at + n_dense < end and place[indices[at + n_dense]] >= 0:
                n_dense += 1
            a = dense[place[feature]]
            if n_dense == 4:
                b, c, d = dense[place[indices[at + 1]]], dense[place[indices[at + 2]]], dense[place[indices[at + 3]]]
                y, z, u = data[at + 1], data[at + 2], data[at + 3]
                for j in range(n):
                    own[j] = (((own[j] + x * _F4(a[j])) + y * _F4(b[j])) + z * _F4(c[j])) + u * _F4(d[j])
                at += 4
            elif n_dense >= 2:
                b, y = dense[place[indices[at + 1]]], data[at + 1]
                for j in range(n):
                    own[j] = (own[j] + x * _F4(a[j])) + y * _F4(b[j])
                at += 2
            else:
                for j in range(n):
                    own[j] += x * _F4(a[j])
                at += 1
        for j in range(steps.shape[0]):
            own[j] *= steps[j]


@compiled()
def best_of(odds: F4, labels: I8) -> None:
    """Write the labels of the largest of these log-odds (K,) into `labels` (k,), as `best_labels` does of rows."""
    k, n = labels.shape[0], 0
    for label in range(odds.shape[0]):
        z = odds[label]
        if n == k and z <= odds[labels[k - 1]]:
            continue
        at = min(n, k - 1)
        while at > 0 and odds[labels[at - 1]] < z:
            labels[at] = labels[at - 1]
            at -= 1
        labels[at] = label
        n = min(n + 1, k)


@compiled()
def best_labels(odds: F4, labels: I8) -> None:
    """Write the most probable labels of each row into `labels` (N, k), best first; of equals the smaller one first."""
    for row in range(odds.shape[0]):
        best_of(odds[row], labels[row])
