"""Inducing inputs in words, and what each of them does for the labels of a row.

The mean utility of a label is a sum over the inducing inputs, and what is not theirs:

    E f_l(x) = Σ_m s_m(x) Σ_p φ_lp v_pm  +  w_lᵀ x  +  b_l,        s(x) = K_Z^-½ k_Z(x),  v_p = K_Z^½ α_p

with the private process w_l of the label, where the model has one, and α such that E h_p(x) = Σ_m k(x, z_m) α_pm
(`Family.coefficients`). Of classes each has its own process, and φ is the identity. Of an ensemble this is said of the
first member, whose utilities are those of the ensemble too.

The terms k(x, z_m) α_pm have the same sum, but where inducing inputs are like each other these are large and cancel
(digits: 30 and -30 in a utility of 2). K_Z^-½ makes of the inducing inputs the uncorrelated ones that are nearest to
them, so that ‖s(x)‖² ≤ k(x, x), and no term is larger than it must be.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor

from labelfield.data.transform import RowTransform
from labelfield.estimators.gp import GPClassifier
from labelfield.estimators.mlgpf import MLGPFClassifier
from labelfield.explain.names import FeatureNames, label_names
from labelfield.inducing.subspace import SubspacePoints
from labelfield.kernels import DensePoints, Kernel, Points
from labelfield.linalg.rows import to_tensor
from labelfield.models.processes import SparseUtilities
from labelfield.variational import Family, Prior

__all__ = ["Contributions", "InducingInput", "contributions", "describe_inputs", "inducing_inputs"]

_N_LABELS = 3
_SMALLEST = 1e-12
# Of the largest eigenvalue of K_Z: below it they are what rounding made of them.
_LEAST_SHARE = 1e-6


class InducingInput(NamedTuple):
    """An inducing input: its number, its strongest features, and the labels that it speaks for.

    Where the model brings rows to norm 1, features are those with the largest values, as the model sees them; where it
    scales features one by one, those in which the input differs most from the mean of all, in the units of the rows.
    With each label stands by how much its utility lies above the bias there. Where classes have inducing inputs of
    their own, `of_class` says whose it is; numbers then start anew for each.

    Beside a row, `similarity` is the correlation of the processes at the two under the prior, and `shared` are the
    features of rows of norm 1 that most bring it about, with their part in the weighted inner product.
    """

    number: int
    features: list[tuple[str, float]]
    labels: list[tuple[str, float]]
    of_class: str | None = None
    similarity: float | None = None
    shared: tuple[tuple[str, float], ...] = ()


class Contributions(NamedTuple):
    """The parts of the mean utilities of k labels: inducing inputs (k, M), private processes (k,), biases (k,)."""

    inducing: NDArray[np.float64]
    private: NDArray[np.float64]
    bias: NDArray[np.float64]


class _Processes(NamedTuple):
    """Some latent processes: their kernel and points, K_Z (M, M) or (P, M, M), α (P, M), and K_Z α (P, M), their means
    at the points."""

    kernel: Kernel
    points: Points
    K: Tensor
    coefficients: Tensor
    at_points: Tensor


def contributions(estimator: Any, x: sparse.csr_array, labels: NDArray[np.int64]) -> Contributions | None:
    """What the mean utilities of these labels at the row x (1, D) are the sum of; None for a method without inducing
    inputs."""
    if not _has_inputs(estimator):
        return None
    model = estimator.model_
    with torch.no_grad():
        chosen = torch.from_numpy(labels).to(model.b.device)
        X = to_tensor(estimator._rows(x), model.b.device)
        if isinstance(estimator, MLGPFClassifier):
            processes = _of_factors(estimator)
            parts = model.Phi[chosen].double() @ _at_row(processes, X)
            private = model.b.new_zeros(len(labels)) if model.private is None else model.private.of(chosen).means(X)[0]
        else:
            parts = _at_row(_of_classes(estimator, chosen), X)
            private = model.b.new_zeros(len(labels))
        return Contributions(*(part.double().cpu().numpy() for part in (parts, private, model.b[chosen])))


def inducing_inputs(
    estimator: Any, n: int, n_features: int = 8, *, feature_names: Sequence[str] | None = None
) -> list[InducingInput] | None:
    """The n inducing inputs at which the utilities of labels are furthest from their biases, the furthest first; None
    for a method that has none. Of classes with inputs of their own, those at which their class's utility is highest."""
    estimator._check_fitted()
    if not _has_inputs(estimator):
        return None
    with torch.no_grad():
        if isinstance(estimator, MLGPFClassifier):
            Phi, at_points = estimator.model_.Phi.double(), _of_factors(estimator).at_points
            strength = ((Phi.T @ Phi @ at_points) * at_points).sum(0)  # Σ_l (Σ_p φ_lp h_pm)²
        elif estimator.spec_.inducing == "per_class":
            strength = torch.cat([_of_classes(estimator, some).at_points for some in _blocks(estimator)]).flatten()
        else:
            parts = [_of_classes(estimator, some).at_points.square().sum(0) for some in _blocks(estimator)]
            strength = torch.stack(parts).sum(0)
    M = estimator.spec_.n_inducing
    order = strength.argsort(descending=True, stable=True)[:n].tolist()
    if not isinstance(estimator, MLGPFClassifier) and estimator.spec_.inducing == "per_class":
        places: list[tuple[int | None, int]] = [divmod(place, M) for place in order]
    else:
        places = [(None, place) for place in order]
    found = describe_inputs(estimator, places, n_features, feature_names)
    return [found[place] for place in places]


def describe_inputs(
    estimator: Any,
    places: Sequence[tuple[int | None, int]],
    n_features: int,
    feature_names: Sequence[str] | None = None,
    row: sparse.csr_array | None = None,
) -> dict[tuple[int | None, int], InducingInput]:
    """Inducing inputs, by number, in words; with the class whose they are where classes have their own. With a row
    (1, D), how like it they are."""
    names, labels = FeatureNames(estimator, feature_names), label_names(estimator)
    found = {}
    x = None if row is None else estimator._rows(row)
    with torch.no_grad():
        if isinstance(estimator, MLGPFClassifier):
            shared, whole = _of_factors(estimator), None
        elif estimator.spec_.inducing != "per_class":
            parts = [_of_classes(estimator, some) for some in _blocks(estimator)]
            shared, whole = parts[0], torch.cat([part.at_points for part in parts])
        for of_class, number in places:
            if of_class is not None:
                own = _of_classes(estimator, torch.tensor([of_class], device=estimator.model_.b.device))
                raised = [(labels[of_class], float(own.at_points[0, number]))]
            else:
                own = shared
                at_point = shared.at_points[:, number] if whole is None else whole[:, number]
                f = estimator.model_.Phi.double() @ at_point if whole is None else at_point
                most, best = f.topk(min(_N_LABELS, len(f)))
                pairs = zip(best.tolist(), most.tolist(), strict=True)
                raised = [(labels[label], value) for label, value in pairs if value > 0]
            strongest = _strongest(estimator.row_transform_, own, number, n_features, names)
            one = InducingInput(number, strongest, raised, None if of_class is None else labels[of_class])
            if x is not None:
                beside = _similarity(own, number, x), _shared(estimator.row_transform_, own, number, x, names)
                one = one._replace(similarity=beside[0], shared=beside[1][:n_features])
            found[of_class, number] = one
    return found


def _has_inputs(estimator: Any) -> bool:
    if isinstance(estimator, GPClassifier):
        return isinstance(estimator.model_.utilities, SparseUtilities)
    return isinstance(estimator, MLGPFClassifier)


def _of_factors(estimator: MLGPFClassifier) -> _Processes:
    model = estimator.model_
    points, prior = model.frame()
    return _processes(model.kernel, points, prior, model.family)


def _of_classes(estimator: GPClassifier, classes: Tensor | None) -> _Processes:
    utilities = estimator.model_.utilities
    assert isinstance(utilities, SparseUtilities)
    return _processes(*utilities.of(classes))


def _processes(kernel: Kernel, points: Points, prior: Prior, family: Family) -> _Processes:
    coefficients, K = family.coefficients(prior), prior.K
    at_points = coefficients @ K if K.dim() == 2 else torch.bmm(K, coefficients.unsqueeze(2)).squeeze(2)
    return _Processes(kernel, points, K, coefficients, at_points)


def _blocks(estimator: GPClassifier) -> list[Tensor | None]:
    """Classes whose matrices fit in memory together."""
    return estimator._class_blocks()


def _at_row(processes: _Processes, X: Tensor) -> Tensor:
    """The part s_m v_pm (P, M) of each inducing input in the mean of each process at one row."""
    covariance = processes.kernel.cross(X, processes.points).double()  # (1, M), or (P, 1, M)
    is_own = processes.K.dim() == 3
    alpha = processes.coefficients.unsqueeze(1) if is_own else processes.coefficients
    values, vectors = torch.linalg.eigh(processes.K)
    # Whatever stands in for an eigenvalue, the sum over m is k(x, Z) α.
    roots = values.clamp_min(_SMALLEST).clamp_min(_LEAST_SHARE * values[..., -1:]).sqrt().unsqueeze(-2)
    s = (covariance @ vectors / roots) @ vectors.mT
    v = (alpha @ vectors * roots) @ vectors.mT
    parts: Tensor = s * v
    return parts.squeeze(1) if is_own else parts


def _strongest(
    transform: RowTransform, processes: _Processes, number: int, n_features: int, names: FeatureNames
) -> list[tuple[str, float]]:
    """The features of an inducing input that count most in the kernel, with their values.

    Of rows of norm 1 these are its largest values: what is below 0 is on no row. Of measurements they are those in
    which it differs most from the mean of all inducing inputs, since there 0 is a value like any other.
    """
    z, centre = _coordinates(processes.points, number)
    distance = z.clamp_min(0) if transform.has_unit_norm else z - centre
    strength = transform.fold((_weights(processes, z) * distance.square()).cpu().numpy())
    best = np.argsort(-strength, kind="stable")[:n_features]
    values = transform.fold(z.cpu().numpy())
    if not transform.has_unit_norm and transform.weights is not None:
        values = values / transform.weights + (0 if transform.shifts is None else transform.shifts)
    return [(names[d], float(values[d])) for d in best.tolist() if strength[d] > 0]


def _similarity(processes: _Processes, number: int, x: sparse.csr_array) -> float:
    """k(x, z) / √(k(x, x) k(z, z)), the mean over processes."""
    X = to_tensor(x, processes.coefficients.device)
    kernel = processes.kernel
    with_row = kernel.cross(X, processes.points)[..., 0, number].double()
    variances = kernel.diag(X)[..., 0].double() * processes.K[..., number, number]
    return float((with_row / variances.clamp_min(_SMALLEST).sqrt()).mean())


def _shared(
    transform: RowTransform, processes: _Processes, number: int, x: sparse.csr_array, names: FeatureNames
) -> tuple[tuple[str, float], ...]:
    """The features by which a row of norm 1 is like an inducing input, those with the largest w² x z first."""
    if not transform.has_unit_norm:
        return ()
    z, _ = _coordinates(processes.points, number)
    weighted = (_weights(processes, z) * z).cpu().numpy()
    products = weighted[x.indices] * x.data
    features, place = np.unique(x.indices % (x.shape[1] // len(transform.views)), return_inverse=True)
    each = np.bincount(place, products, features.size)
    best = np.argsort(-each, kind="stable").tolist()
    return tuple((names[int(features[d])], float(each[d])) for d in best if each[d] > 0)


def _weights(processes: _Processes, z: Tensor) -> Tensor:
    """The squared weights of features (D,), as a mean over processes; 1 under a kernel that has none."""
    relevance = processes.kernel.feature_relevance()
    if relevance is None:
        return torch.ones_like(z)
    return relevance if relevance.dim() == 1 else relevance.mean(0)


def _coordinates(points: Points, number: int) -> tuple[Tensor, Tensor]:
    """An inducing input (D,) and the mean of all."""
    if isinstance(points, SubspacePoints):
        return points.basis @ points.A[number], points.basis @ points.A.mean(0)
    assert isinstance(points, DensePoints)
    Z = points.Z if points.Z.dim() == 2 else points.Z[0]
    support, place = getattr(points, "support", None), getattr(points, "place", None)
    found = Z[number], Z.mean(0)
    if support is None or place is None:
        return found
    z, centre = (part.new_zeros(len(place)).index_copy_(0, support.long(), part) for part in found)
    return z, centre
