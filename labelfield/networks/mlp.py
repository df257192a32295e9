"""Fully connected layers, for dense rows or for sparse ones, which are never made dense."""

from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from labelfield.linalg.rows import dot, take
from labelfield.networks.base import Dropout, Layer, Network

# From this many numbers in W on, a step that reads and writes all of them costs more than finding the needed ones.
_LARGE = 1 << 22


class Affine(Layer):
    """x W + b."""

    def __init__(self, n_inputs: int, n_outputs: int) -> None:
        super().__init__(n_inputs, n_outputs, n_outputs=n_outputs)

    def forward(self, X: Tensor) -> Tensor:
        return torch.addmm(self.b, X, self.W)


class MLP(Network):
    """ReLU layers of these widths, each with dropout, and a linear last layer, for dense rows."""

    def __init__(self, n_features: int, hidden: tuple[int, ...], n_outputs: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.n_outputs = n_outputs
        self.hidden = nn.ModuleList(Affine(*sizes) for sizes in pairwise((n_features, *hidden)))
        self.last = Affine((n_features, *hidden)[-1], n_outputs)
        self.dropout = Dropout(dropout)

    def forward(self, X: Tensor) -> Tensor:
        for layer in self.hidden:
            X = self.dropout(layer(X).relu())
        result: Tensor = self.last(X)
        return result

    def start(self, generator: torch.Generator) -> None:
        for layer in self.hidden:
            assert isinstance(layer, Affine)
            layer.start(2, generator)
        self.last.start(1, generator)


class BagMLP(Network):
    """An MLP of sparse or dense rows. Its first layer x W is a sum of the embeddings of a row's features, the rows of
    W, weighted by their values. With a large W, sparse rows give a sparse gradient."""

    takes_sparse = True

    def __init__(self, n_features: int, hidden: tuple[int, ...], n_outputs: int, dropout: float = 0.0) -> None:
        if not hidden:
            raise ValueError("hidden=(); expected at least one width, that of the embeddings")
        super().__init__()
        self.n_outputs = n_outputs
        self.bag = Affine(n_features, hidden[0])
        self.dropout = Dropout(dropout)
        self.rest = MLP(hidden[0], hidden[1:], n_outputs, dropout)
        self.is_large = n_features * hidden[0] > _LARGE

    def forward(self, X: Tensor) -> Tensor:
        is_by_feature = self.is_large and X.layout == torch.sparse_csr
        # A sparse product does not exist in half precision.
        with torch.autocast(X.device.type, enabled=False):
            product = (dot_of_features if is_by_feature else dot)(X, self.bag.W)
        result: Tensor = self.rest(self.dropout((product + self.bag.b).relu()))
        return result

    def start(self, generator: torch.Generator) -> None:
        # Scaled for D features although a row has few: larger initial embeddings learn more slowly.
        self.bag.start(2, generator)
        self.rest.start(generator)

    @property
    def is_capturable(self) -> bool:
        # The number of features that occur differs between batches.
        return not self.is_large


def dot_of_features(X: Tensor, W: Tensor) -> Tensor:
    """Return X W for sparse X, with a sparse gradient that has each row of W whose feature occurs in X, once."""
    # Entries of 0, which fill a batch of fixed size, are not features.
    is_real = X.values() != 0
    n_before = pad(is_real.cumsum(0), (1, 0))
    occurring, columns = torch.unique(X.col_indices()[is_real], return_inverse=True)
    renumbered = torch.sparse_csr_tensor(
        n_before[X.crow_indices()].int(),
        columns.int(),
        X.values()[is_real],
        size=(X.shape[0], occurring.numel()),
        check_invariants=False,
    )
    return dot(renumbered, take(W, occurring.long()))
