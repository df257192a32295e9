"""Where a deep kernel model starts before the first step, and which features of a network it can use."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from labelfield.models.deep.model import DeepKernel
from labelfield.networks import Network

__all__ = ["FeatureError", "require_features", "start"]

# The largest feature whose square is finite in float32.
_LARGEST_FEATURE = 1e18


def start(model: DeepKernel, counts: NDArray[np.int64], n_rows: int, seed: int) -> None:
    """Fill a model in place: draw the weights of a built-in network; set A to the identity, or draw it if it is not
    square; set b to the log-odds of each label, or to 0 for classes."""
    generator = torch.Generator().manual_seed(seed)
    network = model.features.network
    if isinstance(network, Network):
        network.start(generator)
    with torch.no_grad():
        K, J = model.A.shape
        if K == J:
            model.A.copy_(torch.eye(K))
        else:
            model.A.copy_(torch.randn(K, J, generator=generator) / J**0.5)
        if model.is_multilabel:
            odds = (counts + 0.5) / (n_rows - counts + 0.5)
            model.b.copy_(torch.from_numpy(np.log(odds)))


def require_features(h: Tensor, first_row: int = 0) -> None:
    """Check that features and their squares are finite, and name the first row where they are not."""
    is_bad = ~(h.abs() < _LARGEST_FEATURE).all(1)
    if bool(is_bad.any()):
        row = int(is_bad.nonzero()[0, 0])
        found = f"as large as {h[row].abs().max():.3g}" if bool(torch.isfinite(h[row]).all()) else "that are not finite"
        raise FeatureError(
            f"the network gives features {found} for row {first_row + row}; check the row and the weights of the "
            "network, scale its last layer or lower learning_rate"
        )


class FeatureError(ValueError):
    """Features of a network that cannot be used."""
