"""Where a multi-class model starts before the first step."""

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse

from labelfield.csr import column_counts, gather_rows
from labelfield.inducing import PerClass, kmeans
from labelfield.models.multiclass.model import LinearUtilities, MultiClassGP
from labelfield.models.multiclass.spec import ClassSpec
from labelfield.models.sparse import fill_shared, pad_rows, start_lengths


def start(
    model: MultiClassGP, spec: ClassSpec, X: sparse.csr_array, Y: sparse.csr_array, seed: int, device: torch.device
) -> None:
    """Fill a model in place: Z from the rows (those of each class where Z is per class), lengths from the distances
    between rows, and b at the log frequency of each class."""
    rng = np.random.default_rng(seed)
    counts = column_counts(Y)
    with torch.no_grad():
        model.b.copy_(torch.from_numpy(np.log((counts + 0.5) / (Y.shape[0] + 0.5 * spec.n_labels))))
        model.b.sub_(model.b.mean())
        utilities = model.utilities
        if isinstance(utilities, LinearUtilities):
            return
        if isinstance(utilities.inducing, PerClass):
            utilities.inducing.fill(torch.from_numpy(_centres_of_classes(X, Y, spec, rng, device)))
        else:
            fill_shared(utilities.inducing, spec, X, rng, device)
        start_lengths(utilities.kernel, X, rng)


def _centres_of_classes(
    X: sparse.csr_array, Y: sparse.csr_array, spec: ClassSpec, rng: np.random.Generator, device: torch.device
) -> NDArray[np.float32]:
    """Return k-means centres of the rows of each class (K, M, D); a class with too few rows borrows random ones."""
    result = np.empty((spec.n_labels, spec.n_inducing, spec.n_features), np.float32)
    order = np.argsort(Y.indices, kind="stable")
    ends = np.cumsum(column_counts(Y))
    for k in range(spec.n_labels):
        own = order[(ends[k - 1] if k else 0) : ends[k]]
        if own.size < spec.n_inducing:
            own = np.concatenate([own, rng.choice(Y.shape[0], spec.n_inducing - own.size)])
            result[k] = gather_rows(X, np.sort(own)).toarray()
        else:
            centres = kmeans(gather_rows(X, np.sort(own)), spec.n_inducing, rng, device)
            result[k] = pad_rows(centres, spec.n_inducing)
    return result
