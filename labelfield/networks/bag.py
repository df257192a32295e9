"""A network of sparse rows, which are never made dense."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad

from labelfield.linalg.rows import dot, take
from labelfield.networks.base import Network
from labelfield.networks.dropout import Dropout
from labelfield.networks.mlp import MLP, Affine

__all__ = ["BagMLP", "dot_of_features"]

# Numbers in W from which on a step that reads and writes all of them costs more than finding those that it needs.
_LARGE = 1 << 22


class BagMLP(Network):
    """An MLP of sparse or dense rows. Its first layer is a sum of the embeddings of a row's features, weighted by their
    values: x W with an embedding in each row of W. Of a large W, sparse rows give a sparse gradient.
    """

    takes_sparse = True

    def __init__(self, n_features: int, hidden: tuple[int, ...], n_outputs: int, dropout: float = 0.0) -> None:
        if not hidden:
            raise ValueError("hidden=(); expected at least one width, which is that of the embeddings")
        super().__init__()
        self.n_outputs = n_outputs
        self.bag = Affine(n_features, hidden[0])
        self.dropout = Dropout(dropout)
        self.rest = MLP(hidden[0], hidden[1:], n_outputs, dropout)
        self.is_large = n_features * hidden[0] > _LARGE

    def forward(self, X: Tensor) -> Tensor:
        is_by_feature = self.is_large and X.layout == torch.sparse_csr
        # A sparse product has no form in half precision, whatever the rest is computed in.
        with torch.autocast(X.device.type, enabled=False):
            product = (dot_of_features if is_by_feature else dot)(X, self.bag.W)
        result: Tensor = self.rest(self.dropout((product + self.bag.b).relu()))
        return result

    def start(self, generator: torch.Generator) -> None:
        # For D features, although a row has few: embeddings that start larger than that are slower to learn.
        self.bag.start(2, generator)
        self.rest.start(generator)

    @property
    def is_capturable(self) -> bool:
        # How many features occur is another number in each batch.
        return not self.is_large


def dot_of_features(X: Tensor, W: Tensor) -> Tensor:
    """X W for sparse X; its gradient is sparse and has the rows of W whose features occur in X, each once."""
    # What fills up the last row of a batch is no feature.
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
