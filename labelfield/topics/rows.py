"""Rows as the topic model sees them: features, used only in products, positive labels, and what was observed.

Labels that hold in no row, and about which all rows know the same, are alike to the model. The arrays here leave them
out: they cover the active labels, which `labels` lists.
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor

from labelfield.cluster import ALONE, Cluster
from labelfield.linalg.rows import dot, to_tensor, transposed


class DesignMatrix:
    """Features with a constant appended, used only in products.

    Of several processes each has some rows of its own. Whatever is summed over rows is then summed over all processes.
    """

    def __init__(self, X: Tensor, cluster: Cluster = ALONE) -> None:
        self.X, self.transposed, self.cluster = X, transposed(X), cluster
        n_rows = torch.tensor(float(X.shape[0]), dtype=torch.float64)
        self.n_rows, self.n_weights = int(self.over_all(n_rows)), int(X.shape[1]) + 1
        self._squares: Tensor | None = None

    def over_all(self, total: Tensor) -> Tensor:
        """Return the sum of a total over the rows of this process and those of all others."""
        self.cluster.sum("a step", total)
        return total

    def times(self, W: Tensor) -> Tensor:
        """Return X W (N, K) for W (D + 1, K)."""
        return dot(self.X, W[:-1]).add_(W[-1])

    def transposed_times(self, G: Tensor) -> Tensor:
        """Return Xᵀ G (D + 1, K) for G (N, K)."""
        constant = G.sum(0, keepdim=True, dtype=torch.float64).to(G.dtype)
        return self.over_all(torch.cat([dot(self.transposed, G), constant]))

    @property
    def squares(self) -> Tensor:
        """Σ_n x_nd² (D + 1,), computed once since every step asks for it."""
        if self._squares is None:
            squares = torch.zeros(self.X.shape[1], dtype=torch.float64, device=self.X.device)
            squares.index_add_(0, self.X.col_indices().long(), self.X.values().double().square())
            squares = self.over_all(squares)
            self._squares = torch.cat([squares, squares.new_full((1,), self.n_rows)]).to(self.X.dtype)
        return self._squares


class SparsePattern:
    """The positions (N, A) of the entries of a sparse array, by rows and by labels; values are supplied when needed."""

    def __init__(self, places: sparse.csr_array, device: torch.device | str) -> None:
        self.shape, self.n_entries = (int(places.shape[0]), int(places.shape[1])), len(places.indices)
        numbers = np.arange(places.nnz, dtype=np.int64)
        turned = sparse.csr_array((numbers, places.indices, places.indptr), shape=places.shape).tocsc()
        arrays = (places.indptr, places.indices, turned.indptr, turned.indices, turned.data)
        parts = [torch.from_numpy(np.asarray(part, np.int64)).to(device) for part in arrays]
        self.pointers, self.label, self.turned_pointers, self.turned_row, self.order = parts
        self.row = torch.repeat_interleave(torch.arange(self.shape[0], device=device), self.pointers.diff())

    def sum_of_labels(self, values: Tensor | None, V: Tensor) -> Tensor:
        """Return S V (N, K) for S with these values, or 1, at these positions."""
        return _product(self.pointers, self.label, values, V)

    def sum_of_rows(self, values: Tensor | None, U: Tensor) -> Tensor:
        """Return Sᵀ U (A, K)."""
        return _product(self.turned_pointers, self.turned_row, None if values is None else values[self.order], U)


def _product(pointers: Tensor, columns: Tensor, values: Tensor | None, dense: Tensor) -> Tensor:
    values = dense.new_ones(columns.numel()) if values is None else values
    size = (len(pointers) - 1, len(dense))
    return dot(torch.sparse_csr_tensor(pointers, columns, values, size=size, check_invariants=False), dense)


@dataclass(frozen=True, eq=False)
class TopicRows:
    """Rows of a data set. `mask` has the positions that were observed, or with `is_missing` those that were not;
    without a mask everything was observed."""

    design: DesignMatrix
    positives: SparsePattern
    mask: SparsePattern | None = None
    is_missing: bool = False

    @property
    def n_rows(self) -> int:
        """The number of rows, of all processes."""
        return self.design.n_rows

    def observed_weight(self, V: Tensor) -> Tensor | None:
        """Return c_kn = Σ_{l observed in row n} v_lk (N, K), or None where that is 1."""
        if self.mask is None:
            return None
        of_mask = self.mask.sum_of_labels(None, V)
        return (1 - of_mask if self.is_missing else of_mask).clamp_min_(_LEAST_WEIGHT)

    def exposure(self, U: Tensor) -> tuple[Tensor, Tensor] | None:
        """Return e_lk = Σ_{n where l is observed} u_kn of active labels (A, K) and of others (K,), or None if all are
        equal."""
        if self.mask is None:
            return None
        total = U.sum(0, dtype=torch.float64).to(U.dtype)
        of_mask = self.mask.sum_of_rows(None, U)
        return ((total - of_mask).clamp_min_(0), total) if self.is_missing else (of_mask, torch.zeros_like(total))


# The weight of a row in which nothing was observed: too small to change anything, but with a logarithm.
_LEAST_WEIGHT = 1e-6


def active_labels(Y: sparse.csr_array, mask: sparse.csr_array | None) -> NDArray[np.int64]:
    """Return the active labels: those that hold somewhere, or that the mask names."""
    used = Y.indices if mask is None else np.concatenate([Y.indices, mask.indices])
    return np.unique(used).astype(np.int64)


def topic_rows(
    X: sparse.csr_array,
    Y: sparse.csr_array,
    labels: NDArray[np.int64],
    mask: sparse.csr_array | None = None,
    is_missing: bool = False,
    device: torch.device | str = "cpu",
    cluster: Cluster = ALONE,
) -> TopicRows:
    """Build rows whose labels, and those of the mask, are all among `labels`, which are sorted.

    The processes of a `cluster` each build some rows of one set.
    """

    def placed(array: sparse.csr_array) -> SparsePattern:
        columns, shape = np.searchsorted(labels, array.indices), (array.shape[0], len(labels))
        ones = np.ones(columns.size, np.int8)
        return SparsePattern(sparse.csr_array((ones, columns, array.indptr), shape=shape), device)

    design = DesignMatrix(to_tensor(X, device), cluster)
    return TopicRows(design, placed(Y), None if mask is None else placed(mask), is_missing)
