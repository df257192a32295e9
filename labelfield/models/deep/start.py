"""Where a deep kernel model starts before the first step, and which features of a network it can use."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from labelfield.models.deep.model import DeepKernel
from labelfield.networks import Network

__all__ = ["FeatureError", "require_features", "start"]

# Its square is still a number.
_LARGEST_FEATURE = 1e18


def start(model: DeepKernel, counts: NDArray[np.int64], n_rows: int, seed: int) -> None:
    """Fill a model in place: a built-in network is drawn; A is the identity, or drawn where it is not square; b is at
    the log-odds of each label, or 0 for classes."""
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
    """Features must be finite, and their squares too: one error that names the first row whose are not."""
    is_bad = ~(h.abs() < _LARGEST_FEATURE).all(1)
    if bool(is_bad.any()):
        row = int(is_bad.nonzero()[0, 0])
        found = f"as large as {h[row].abs().max():.3g}" if bool(torch.isfinite(h[row]).all()) else "that are not finite"
        raise FeatureError(
            f"the network gives features {found} for row {first_row + row}; check the row, the network and its "
            "weights; scale its last layer, or lower learning_rate"
        )


class FeatureError(ValueError):
    """What a network gives cannot be used."""
