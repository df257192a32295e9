"""Factor models as a search sees them: guesses are mean utilities."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse

from labelfield.errors import CannotAnswerError
from labelfield.linalg.rows import to_tensor
from labelfield.models.linear.scores import Weights
from labelfield.models.search import Asked, Own, Scorer, own_products

if TYPE_CHECKING:
    from labelfield.models.mlgpf.predict import FactorPredictor

F4 = NDArray[np.float32]


class FactorScorer(Scorer):
    """A factor model: vectors of labels are loadings, those of rows the means of processes."""

    def __init__(self, predictor: FactorPredictor) -> None:
        self.predictor, self.model = predictor, predictor.model
        model, linear = self.model, self.model.label_linear
        if model.Phi.device.type != "cpu":
            raise CannotAnswerError("a search with an index is for the CPU; on a GPU all labels are ranked as fast")
        if linear is not None and linear.kind == "mean_field":
            raise CannotAnswerError("weights with variances (label_linear='mean_field') have no index")
        self.Phi, self.scale = model.Phi.detach().contiguous().numpy(), np.float32(model.likelihood.scale)
        self.n_labels, self.n_numbers = self.Phi.shape
        self.bias = self.scale * model.b.detach().numpy()
        self.n_features = 0
        if linear is not None:
            pointers, features = (linear.get_buffer(name).numpy() for name in ("pointers", "features"))
            weights = Weights(linear.weights.detach().numpy(), features, pointers)
            self.own = [Own(weights, np.full(self.n_labels, self.scale))]
            self.n_features = linear.n_features
        self.most_square: float | None = None

    def vectors(self, labels: slice) -> F4:
        return self.scale * self.Phi[labels]

    @torch.no_grad()
    def ask(self, rows: sparse.csr_array) -> AskedFactors:
        h = self.model.latent(to_tensor(rows, "cpu"), self.predictor.state)[0]
        return AskedFactors(self, rows, *(part.contiguous().numpy() for part in h))


class AskedFactors(Asked):
    """The moments of the processes at some rows."""

    def __init__(self, scorer: FactorScorer, rows: sparse.csr_array, mean: F4, var: F4) -> None:
        self.scorer, self.vectors, self.var = scorer, mean, var
        self.rows = rows if scorer.own else sparse.csr_array((rows.shape[0], 0), dtype=np.float32)

    def bound(self, guess: F4) -> F4:
        """E exp(λ g) = exp(λ E g + λ² Var g / 2) bounds E σ(g) for every λ in [0, 1]."""
        scorer = self.scorer
        if scorer.most_square is None:
            scorer.most_square = float(np.einsum("kp,kp->k", scorer.Phi, scorer.Phi).max(initial=0)) * (1 + 1e-5)
        v = np.maximum(scorer.scale**2 * self.var.max(1, initial=0) * np.float32(scorer.most_square), np.float32(1e-6))
        exponent = np.clip(-guess / v, 0, 1)
        return np.asarray(np.exp(np.minimum(exponent * (guess + 0.5 * exponent * v), 0)), np.float32)

    @torch.no_grad()
    def probabilities(self, labels: NDArray[np.int64]) -> F4:
        from labelfield.compiled.search import dense_products

        scorer = self.scorer
        mean, var = (np.empty(labels.shape, np.float32) for _ in range(2))
        dense_products(self.vectors, scorer.Phi, labels, False, mean)
        dense_products(self.var, scorer.Phi, labels, True, var)
        if scorer.own:
            mean += own_products(self.rows, scorer.own[0].weights, labels)
        mean += scorer.model.b.detach().numpy()[labels]
        p = scorer.model.likelihood.predict_proba(torch.from_numpy(mean), torch.from_numpy(var))
        return np.asarray(p.numpy(), np.float32)
