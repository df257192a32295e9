"""The evidence lower bound, as all models that are trained by gradients give it."""

from typing import NamedTuple

from torch import Tensor


class Elbo(NamedTuple):
    """The two terms of the evidence lower bound of the whole data set, in nats."""

    fit: Tensor
    kl: Tensor

    def bound(self, kl_weight: float = 1.0) -> Tensor:
        """Return fit - kl; a `kl_weight` other than 1 gives a tempered bound."""
        return self.fit - kl_weight * self.kl
