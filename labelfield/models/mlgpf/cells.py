"""Factor models with their labels in cells: bounds of utilities, and probabilities of the labels of some cells."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse

from labelfield.csr import gather_rows
from labelfield.errors import CannotAnswerError
from labelfield.linalg.rows import to_tensor
from labelfield.models.cells import Layout, Vectors, by_cell, sketch
from labelfield.models.linear.scores import Weights
from labelfield.models.search import Asked, CellScorer, Visits, WeightsByCell, require_compiled

if TYPE_CHECKING:
    from labelfield.models.mlgpf.predict import FactorPredictor

F4 = NDArray[np.float32]
# Labels of a row, with the largest means, whose variances are computed; at least so many.
_CANDIDATES, _LEAST_CANDIDATES = 4, 64


class FactorCells(CellScorer):
    """The labels of a factor model in cells, each with the mean of its loadings and how far others are from it."""

    def __init__(self, predictor: FactorPredictor, layout: Layout) -> None:
        from labelfield.compiled.cells import summarise

        require_compiled()
        model = predictor.model
        if model.Phi.device.type != "cpu":
            raise CannotAnswerError("a search in cells is for the CPU; on a GPU all labels are ranked as fast")
        if model.label_linear is not None and model.label_linear.kind == "mean_field":
            raise CannotAnswerError("weights with variances (label_linear='mean_field') have no cells")
        self.predictor, self.layout, self.model = predictor, layout, model
        self.Phi, self.b = model.Phi.detach().contiguous().numpy(), model.b.detach().numpy()
        n_cells, width = layout.n_cells, self.Phi.shape[1]
        self.centres = np.empty((n_cells, width), np.float32)
        self.radius, self.spread, self.norms = (np.empty(n_cells, np.float32) for _ in range(3))
        summarise(self.Phi, layout.order, layout.starts, self.centres, self.radius, self.spread, self.norms)
        self.most_b, self.mean_b = by_cell(np.maximum, self.b, layout), _mean_by_cell(self.b, layout)
        # The largest of n deviations from the centre in a random direction is about this long.
        n = np.maximum(layout.sizes, 1)
        self.spread *= np.sqrt(2 * np.log(n) / width).astype(np.float32)
        self.own = None
        if model.label_linear is not None:
            self.own = WeightsByCell(own_weights(predictor), layout, model.label_linear.n_features)

    @torch.no_grad()
    def ask(self, rows: sparse.csr_array) -> AskedFactors:
        h = self.model.latent(to_tensor(rows, "cpu"), self.predictor.state)[0]
        mean, var = (part.contiguous().numpy() for part in h)
        norm = np.linalg.norm(mean, axis=1, keepdims=True)
        centre = mean @ self.centres.T
        likely, most = centre + norm * self.spread + self.mean_b, centre + norm * self.radius + self.most_b
        if self.own is not None:
            bound, guess = self.own.bounds(rows)
            likely += guess
            most += bound
        most = self.log_bound(most, var.max(1, keepdims=True) * self.norms)
        return AskedFactors(self, rows, mean, var, likely, np.exp(most, out=most))

    def log_bound(self, mean: F4, var: F4) -> F4:
        """Return an upper bound of log E σ(scale f): exp(λ E g + λ² Var g / 2) bounds E σ(g) for every λ in [0, 1]."""
        scale = np.float32(self.model.likelihood.scale)
        g, v = scale * mean, np.maximum(scale**2 * var, np.float32(1e-6))
        exponent = np.clip(-g / v, 0, 1)
        return np.asarray(np.minimum(exponent * (g + np.float32(0.5) * exponent * v), 0), np.float32)

    def dense(self, H: F4, visits: Visits, squared: bool = False) -> F4:
        """Return H Φᵀ, or H (Φ²)ᵀ, of all visited labels."""
        from labelfield.compiled.cells import dense_products

        cells = visits.cells.ravel()
        order = np.argsort(cells, kind="stable")
        begins = np.concatenate([[0], np.cumsum(np.bincount(cells, minlength=self.layout.n_cells))])
        out = np.empty(visits.starts[-1], np.float32)
        places = self.Phi, squared, self.layout.order, self.layout.starts, order, begins, visits.cells.shape[1]
        dense_products(H, *places, visits.starts, out)
        return out


class AskedFactors(Asked):
    """The moments of the processes at some rows, and what follows for cells."""

    def __init__(self, cells: FactorCells, rows: sparse.csr_array, mean: F4, var: F4, likely: F4, most: F4) -> None:
        self.scorer, self.rows, self.mean, self.var, self.likely, self.most = cells, rows, mean, var, likely, most

    @property
    def likely_probability(self) -> F4:
        return np.asarray(
            torch.from_numpy(self.likely * np.float32(self.scorer.model.likelihood.scale)).sigmoid().numpy()
        )

    def take(self, rows: NDArray[np.int64]) -> AskedFactors:
        parts = (part[rows] for part in (self.mean, self.var, self.likely, self.most))
        return AskedFactors(self.scorer, gather_rows(self.rows, rows), *parts)

    def _means(self, visits: Visits) -> F4:
        own = self.scorer.own
        found = self.scorer.dense(self.mean, visits)
        if own is not None:
            found += own.products(self.rows, visits)
        found += self.scorer.b[visits.labels]
        return found

    def probabilities(self, visits: Visits) -> F4:
        return self._integrated(self._means(visits), self.scorer.dense(self.var, visits, squared=True))

    @torch.no_grad()
    def _integrated(self, mean: F4, var: F4) -> F4:
        p = self.scorer.model.likelihood.predict_proba(torch.from_numpy(mean), torch.from_numpy(var))
        return np.asarray(p.numpy(), np.float32)

    def best(self, visits: Visits, k: int) -> tuple[NDArray[np.int64], F4]:
        """Return the best: variances are computed for the labels with the largest means alone, where a bound proves
        that no other is among the best."""
        from labelfield.compiled.cells import squared_products

        n_kept = max(_CANDIDATES * k, _LEAST_CANDIDATES)
        places, mean = visits.best(self._means(visits), n_kept)
        labels, var = visits.labels[places], np.empty_like(mean)
        squared_products(self.var, self.scorer.Phi, labels, var)
        p = np.where(places < 0, np.float32(-1), self._integrated(np.where(places < 0, 0, mean), var))
        order = np.lexsort((labels, -p), axis=1)[:, :k]
        found = np.take_along_axis(places, order, 1), np.take_along_axis(p, order, 1)
        largest = self.var.max(1) * self.scorer.norms[visits.cells].max(1)
        most = np.exp(self.scorer.log_bound(mean[:, -1], largest))
        is_open = (places[:, -1] >= 0) & (most >= found[1][:, -1])
        if is_open.any():
            rows = np.flatnonzero(is_open)
            own = Visits(visits.layout, visits.cells[rows])
            places, p = Asked.best(self.take(rows), own, k)
            found[0][rows] = places + (visits.row_starts[rows] - own.row_starts[:-1])[:, None]
            found[1][rows] = p
        return found


def _mean_by_cell(values: F4, layout: Layout) -> F4:
    sums = by_cell(np.add, values.astype(np.float64), layout)
    return np.asarray(sums / np.maximum(layout.sizes, 1), np.float32)


def own_weights(predictor: FactorPredictor) -> Weights:
    """Return the sparse weights of the labels' linear processes."""
    linear = predictor.model.label_linear
    assert linear is not None
    pointers, features = (linear.get_buffer(name).numpy() for name in ("pointers", "features"))
    return Weights(linear.weights.detach().numpy(), features, pointers)


@torch.no_grad()
def label_vectors(predictor: FactorPredictor, rows: sparse.csr_array) -> Vectors:
    """Return vectors of labels whose distance says how much utilities differ in rows such as these."""
    h = predictor.model.latent(to_tensor(rows, "cpu"), predictor.state)[0]
    Phi, spread = predictor.model.Phi.detach().numpy(), h.mean.std(0).numpy()
    if predictor.model.label_linear is None:
        return lambda labels: Phi[labels] * spread
    sketched = sketch(own_weights(predictor), rows)
    return lambda labels: np.concatenate([Phi[labels] * spread, sketched(labels)], 1)
