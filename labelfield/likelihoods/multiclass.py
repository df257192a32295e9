"""The interface of likelihoods of one class out of K."""

from abc import ABC, abstractmethod

import torch
from torch import Tensor


class MultiClass(ABC):
    """p(y | f) of one class y out of K, with q(f) = ∏_k N(mean_k, var_k) in each row."""

    needs_all_classes: bool
    """Whether the bound needs all classes. If not, a sample of classes gives an unbiased estimate."""

    def expected_log_prob(
        self,
        mean: Tensor,
        var: Tensor,
        target: Tensor,
        rival_weight: Tensor | None = None,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """Return E_q log p(y | f) (B,) for means and variances (B, C) of some classes; the class of row b is in column
        target_b.

        As a rival of other classes, column ℓ counts `rival_weight` (C,) times, or once if that is None. `generator`, on
        the device of the moments, is for likelihoods that draw.
        """
        if rival_weight is not None and self.needs_all_classes:
            raise ValueError(f"{type(self).__name__} needs all classes; its rivals cannot be sampled and weighted")
        return self._expected_log_prob(mean, var, target, rival_weight, generator)

    @abstractmethod
    def _expected_log_prob(
        self, mean: Tensor, var: Tensor, target: Tensor, rival_weight: Tensor | None, generator: torch.Generator | None
    ) -> Tensor: ...

    @abstractmethod
    def predict_proba(self, mean: Tensor, var: Tensor) -> Tensor:
        """Return p(y = k) (B, K), with the uncertainty of f integrated out; rows sum to one. It has no gradient."""
