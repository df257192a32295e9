"""A Gaussian process for each class [TH 3].

    f_k = b_k + GP(0, k_k),  k = 1 … K            p(y | f): one-vs-each, robustmax or softmax (labelfield.likelihoods)

The bound is Σ_i E log p(y_i | f_i) - Σ_k KL_k. One-vs-each makes its first term a sum over the rivals of a row's class,
so that a step may use some classes alone [TH 3.36].
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from labelfield.likelihoods import MultiClass
from labelfield.linalg.rows import Rows, first_columns, n_rows, take
from labelfield.models.calibration import Temperature
from labelfield.models.elbo import Elbo
from labelfield.models.multiclass.processes import ClassSubset, LinearUtilities, SparseUtilities
from labelfield.models.sampling import Choice, Rivals, choose_labels
from labelfield.variational import Moments

__all__ = ["MultiClassGP"]


class MultiClassGP(nn.Module):
    """The model: its parts are given, the bias b (K,) is its own. With `rivals`, rivals are drawn by their scores."""

    def __init__(
        self,
        utilities: SparseUtilities | LinearUtilities,
        b: Tensor,
        likelihood: MultiClass,
        *,
        rivals: Rivals | None = None,
    ) -> None:
        super().__init__()
        self.utilities = utilities
        self.b = nn.Parameter(b)
        self.likelihood, self.rivals = likelihood, rivals
        self.calibration = Temperature()

    @property
    def n_classes(self) -> int:
        return int(self.b.shape[0])

    def moments(self, X: Rows, classes: Tensor | None = None, part: ClassSubset | None = None) -> Moments:
        """Return q(f) of rows for these classes, or for all (B, C)."""
        return self._with_bias((part or self.utilities.select(classes)).moments(X), classes)

    def _with_bias(self, f: Moments, classes: Tensor | None) -> Moments:
        return Moments(f.mean + (self.b if classes is None else take(self.b, classes)), f.var)

    def elbo(
        self,
        X: Rows,
        Y: Tensor,
        n_data: int,
        *,
        n_negatives: int | None = None,
        row_weight: Tensor | None = None,
        likelihood: MultiClass | None = None,
        generator: torch.Generator | None = None,
    ) -> Elbo:
        """Estimate the bound on n_data rows, without bias, from a batch with one class per row, Y in CSR.

        With `n_negatives` a step uses only the classes of the batch and this many drawn rivals. A row counts n_data / B
        times, or `row_weight` times where rows were not drawn with equal probability.
        """
        classes, weight, target = self._choose(first_columns(Y), n_negatives, generator)
        part = self.utilities.select(classes)
        f = self._with_bias(part.moments(X), classes)
        if weight is not None:
            weight = weight.to(f.mean.dtype)
        if classes is not None and self.rivals is not None:
            self.rivals.learn(classes, f.mean.detach(), target)
        each = (likelihood or self.likelihood).expected_log_prob(f.mean, f.var, target, weight, generator)
        counted = n_data / n_rows(X) if row_weight is None else row_weight
        kl = part.kl()
        return Elbo((each * counted).sum(dtype=torch.float64), (kl if weight is None else kl * weight).sum())

    def _choose(self, column: Tensor, n_negatives: int | None, generator: torch.Generator | None) -> Choice:
        if n_negatives is None or self.rivals is None:
            return choose_labels(column, n_negatives, self.n_classes, generator)
        return self.rivals.choose(column, n_negatives, generator)
