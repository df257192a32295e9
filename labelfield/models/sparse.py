"""Common parts of models with inducing inputs: how shared inducing inputs are made, and where they start."""

from math import log
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse

from labelfield.csr import gather_rows
from labelfield.inducing import Free, frequent_features, kmeans, random_rows
from labelfield.kernels import Kernel
from labelfield.linalg.rows import squared_norms, to_tensor

# With more points the weights of the outermost ones underflow.
MOST_POINTS = 100
# Where inducing inputs start: at centres of the rows, or at rows.
STARTS = ("kmeans", "rows")
# The number of pairs of rows whose distances set the initial length.
_N_PAIRS = 2000


def make_shared(spec: Any) -> Free:
    """Make inducing inputs that all processes share, with values on all features or on n_support of them."""
    return Free(
        torch.zeros(spec.n_inducing, spec.n_support or spec.n_features),
        n_features=spec.n_features if spec.n_support else None,
        is_learned=spec.inducing == "free",
        unit_norm=spec.unit_norm,
    )


def fill_shared(
    inducing: Free,
    spec: Any,
    X: sparse.csr_array,
    rng: np.random.Generator,
    device: torch.device | str,
    at: str = "kmeans",
) -> None:
    """Start shared inducing inputs on the n_support most frequent features, or on all if 0."""
    support = frequent_features(X, spec.n_support) if spec.n_support else None
    Z = torch.from_numpy(starting_points(X, spec.n_inducing, rng, device, at, support))
    inducing.fill(Z, None if support is None else torch.from_numpy(support))


def starting_points(
    X: sparse.csr_array | NDArray[np.float32],
    count: int,
    rng: np.random.Generator,
    device: torch.device | str,
    at: str,
    columns: NDArray[np.integer] | None = None,
) -> NDArray[np.float32]:
    """Return where inducing inputs (M, D) start: at centres of the rows (at="kmeans"), or at random ones ("rows"), on
    these columns or all."""
    found = kmeans(X, count, rng, device, columns) if at == "kmeans" else random_rows(X, count, rng, columns)
    return pad_rows(found, count)


def pad_rows(rows: NDArray[np.float32], n_rows: int) -> NDArray[np.float32]:
    """Return exactly n_rows rows, repeating the first ones where there are fewer (duplicate rows, rank below R)."""
    return np.ascontiguousarray(np.resize(rows, (n_rows, rows.shape[1])), np.float32)


def start_lengths(kernel: Kernel, X: sparse.csr_array, rng: np.random.Generator) -> None:
    """Start the lengths of a kernel at a typical one: at 1, rows that are far from each other have nothing in common
    with any inducing input, and no gradient tells in what direction to go."""
    length = typical_length(X, rng)
    for name, parameter in kernel.named_parameters():
        if name.endswith(("log_inverse_length", "log_weights")):
            parameter.data.fill_(-log(length))


def typical_length(X: sparse.csr_array, rng: np.random.Generator) -> float:
    """Return √(half the median squared distance of two rows), for which a kernel exp(-r² / 2ℓ²) is 1/e between them."""
    first, second = rng.integers(X.shape[0], size=(2, _N_PAIRS))
    differences = sparse.csr_array(gather_rows(X, first) - gather_rows(X, second))
    squared = squared_norms(to_tensor(differences.astype(np.float32)), None).numpy()
    apart = squared[squared > 0]
    return float(np.sqrt(np.median(apart) / 2)) if apart.size else 1.0
