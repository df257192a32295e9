"""Inducing inputs in words, and the effect of each on the labels of a row.

The mean utility of a label is a sum over the inducing inputs, plus terms that do not come from them:

    E f_l(x) = Σ_m s_m(x) Σ_p φ_lp v_pm  +  w_lᵀ x  +  b_l,        s(x) = K_Z^-½ k_Z(x),  v_p = K_Z^½ α_p

with the linear process w_l of the label, where the model has one, and α such that E h_p(x) = Σ_m k(x, z_m) α_pm
(`Family.coefficients`). If each class has a process of its own, φ is the identity.

The terms k(x, z_m) α_pm have the same sum, but where inducing inputs are similar they are large and cancel (digits: 30
and -30 in a utility of 2). K_Z^-½ replaces the inducing inputs by the uncorrelated ones nearest to them, so that
‖s(x)‖² ≤ k(x, x), and no term is larger than it must be.

The members of an ensemble have no inducing inputs in common, so its explanations show none.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor

from labelfield.data.transform import RowTransform
from labelfield.estimators.protocol import FittedClassifier
from labelfield.explain.features import Namer, feature_namer
from labelfield.inducing.subspace import SubspacePoints
from labelfield.kernels import DensePoints, Points
from labelfield.linalg.rows import to_tensor
from labelfield.models.predictor import LatentProcesses

_N_LABELS = 3
_SMALLEST = 1e-12
# Eigenvalues of K_Z below this share of the largest are rounding errors.
_LEAST_SHARE = 1e-6
# Where an inducing input is: the label that it belongs to, None for one that all labels share, and its number.
Place = tuple[int | None, int]


class InducingInput(NamedTuple):
    """An inducing input: its number, its strongest features, and the labels that it speaks for.

    Where the model scales rows to norm 1, features are those with the largest values, as the model sees them; where it
    scales features one by one, those in which the input differs most from the mean of all inputs, in the units of the
    rows. Labels come with how far their utility is above the bias there. If each class has inducing inputs of its own,
    `of_class` names the class, and numbers start from 0 in each.

    In the explanation of a row, `similarity` is the prior correlation of the processes at the row and at the input,
    and `shared` are the features of a row of norm 1 that contribute most to it, with their part in the weighted inner
    product.
    """

    number: int
    features: list[tuple[str, float]]
    labels: list[tuple[str, float]]
    of_class: str | None = None
    similarity: float | None = None
    shared: tuple[tuple[str, float], ...] = ()


class Contributions(NamedTuple):
    """The parts of the mean utilities of k labels: inducing inputs (k, M), linear processes (k,), biases (k,)."""

    inducing: NDArray[np.float64]
    label_linear: NDArray[np.float64]
    bias: NDArray[np.float64]
    has_own_points: bool


def contributions(estimator: FittedClassifier, x: sparse.csr_array, labels: NDArray[np.int64]) -> Contributions | None:
    """Return the parts that the mean utilities of labels at the row x (1, D) are the sum of; None without inputs."""
    with torch.no_grad():
        own = estimator.predictor_.processes(torch.from_numpy(labels))
        if own is None:
            return None
        X = to_tensor(estimator.rows(x), own.b.device)
        parts = _parts_at_row(own, X)
        parts = parts if own.mixing is None else own.mixing.double() @ parts
        linear = torch.zeros_like(own.b) if own.offsets is None else own.offsets(X)[0]
        inducing, label_linear, bias = (part.double().cpu().numpy() for part in (parts, linear, own.b))
        return Contributions(inducing, label_linear, bias, own.has_own_points)


def inducing_inputs(
    estimator: FittedClassifier, n: int, n_features: int = 8, *, feature_names: Sequence[str] | None = None
) -> list[InducingInput] | None:
    """Return the n strongest inducing inputs, strongest first; None for a model without common ones.

    These are the inputs at which the utilities of labels are furthest from their biases. If each class has inputs of
    its own, they are those at which the utility of that class is highest.
    """
    return strongest_inputs(estimator, n, n_features, feature_namer(estimator, feature_names))


def strongest_inputs(estimator: FittedClassifier, n: int, n_features: int, name: Namer) -> list[InducingInput] | None:
    """Return what `inducing_inputs` does, with features called by any function of their numbers."""
    strengths, n_inputs, has_own_points = list[Tensor](), 0, False
    with torch.no_grad():
        for block in estimator.predictor_.process_blocks():
            means, has_own_points = _means_at_points(block), block.has_own_points
            n_inputs = means.shape[1]
            if block.mixing is not None:
                Phi = block.mixing.double()
                strengths.append(((Phi.T @ Phi @ means) * means).sum(0))  # Σ_l (Σ_p φ_lp h_pm)²
            else:
                strengths.append(means.flatten() if has_own_points else means.square().sum(0))
    if not strengths:
        return None
    strength = torch.cat(strengths) if has_own_points else torch.stack(strengths).sum(0)
    order = strength.argsort(descending=True, stable=True)[:n].tolist()
    places: list[Place] = [divmod(place, n_inputs) if has_own_points else (None, place) for place in order]
    found = describe_inputs(estimator, places, n_features, name, None)
    return [found[place] for place in places]


def count_inputs(estimator: FittedClassifier) -> int:
    """Return how many inducing inputs a model has, over all classes; 0 without common ones."""
    with torch.no_grad():
        one = estimator.predictor_.processes(torch.tensor([0]))
    if one is None:
        return 0
    return int(one.prior.K.shape[-1]) * (estimator.predictor_.n_labels if one.has_own_points else 1)


def describe_inputs(
    estimator: FittedClassifier, places: Sequence[Place], n_features: int, name: Namer, row: sparse.csr_array | None
) -> dict[Place, InducingInput]:
    """Return inducing inputs in words, by place; with a row (1, D), also how similar they are to it."""
    predictor, transform, labels = estimator.predictor_, estimator.row_transform_, estimator.label_names()
    x = None if row is None else estimator.rows(row)
    found = {}
    with torch.no_grad():
        shared = list[tuple[LatentProcesses, Tensor]]()
        if any(label is None for label, _ in places):
            shared = [(block, _means_at_points(block)) for block in predictor.process_blocks()]
        for label, number in places:
            if label is None:
                own = shared[0][0]
                values = ((block.mixing, means[:, number]) for block, means in shared)
                f = torch.cat([h if mixing is None else mixing.double() @ h for mixing, h in values])
                most, best = f.topk(min(_N_LABELS, len(f)))
                pairs = zip(best.tolist(), most.tolist(), strict=True)
                raised = [(labels[other], value) for other, value in pairs if value > 0]
            else:
                processes = predictor.processes(torch.tensor([label]))
                assert processes is not None  # it has places
                own = processes
                raised = [(labels[label], float(_means_at_points(own)[0, number]))]
            z, centre = _coordinates(own.points, number)
            weights = _squared_weights(own, z)
            features = _strongest_features(transform, z, centre, weights, n_features, name)
            one = InducingInput(number, features, raised, None if label is None else labels[label])
            if x is not None:
                common = _shared_features(transform, z, weights, x, n_features, name)
                one = one._replace(similarity=_similarity(own, number, x), shared=common)
            found[label, number] = one
    return found


def _means_at_points(processes: LatentProcesses) -> Tensor:
    """Return K_Z α (P, M), the means of the processes at the inducing inputs."""
    alpha, K = processes.family.coefficients(processes.prior), processes.prior.K
    return alpha @ K if K.dim() == 2 else torch.bmm(K, alpha.unsqueeze(2)).squeeze(2)


def _parts_at_row(processes: LatentProcesses, X: Tensor) -> Tensor:
    """Return the part s_m v_pm (P, M) of each inducing input in the mean of each process at one row."""
    covariance = processes.kernel.cross(X, processes.points).double()  # (1, M), or (P, 1, M)
    alpha, K = processes.family.coefficients(processes.prior), processes.prior.K
    values, vectors = torch.linalg.eigh(K)
    # Whatever stands in for an eigenvalue, the sum over m is k(x, Z) α.
    roots = values.clamp_min(_SMALLEST).clamp_min(_LEAST_SHARE * values[..., -1:]).sqrt().unsqueeze(-2)
    s = (covariance @ vectors / roots) @ vectors.mT
    v = ((alpha if K.dim() == 2 else alpha.unsqueeze(1)) @ vectors * roots) @ vectors.mT
    parts: Tensor = s * v
    return parts if K.dim() == 2 else parts.squeeze(1)


def _strongest_features(
    transform: RowTransform, z: Tensor, centre: Tensor, weights: Tensor, n: int, name: Namer
) -> list[tuple[str, float]]:
    """Return the features of an inducing input that count most in the kernel, with their values.

    For rows of norm 1 these are its largest values: no row has values below 0. For measurements they are those in
    which it differs most from the centre of all inducing inputs, because 0 is a value like any other there.
    """
    distance = z.clamp_min(0) if transform.has_unit_norm else z - centre
    strength = transform.fold((weights * distance.square()).cpu().numpy())
    best = np.argsort(-strength, kind="stable")[:n]
    own = z.cpu().numpy()
    values = transform.fold(own) if transform.has_unit_norm else transform.original(own)
    return [(name(d), float(values[d])) for d in best.tolist() if strength[d] > 0]


def _similarity(processes: LatentProcesses, number: int, x: sparse.csr_array) -> float:
    """Return k(x, z) / √(k(x, x) k(z, z)), the mean over processes."""
    X, kernel = to_tensor(x, processes.b.device), processes.kernel
    with_row = kernel.cross(X, processes.points)[..., 0, number].double()
    variances = kernel.diag(X)[..., 0].double() * processes.prior.K[..., number, number]
    return float((with_row / variances.clamp_min(_SMALLEST).sqrt()).mean())


def _shared_features(
    transform: RowTransform, z: Tensor, weights: Tensor, x: sparse.csr_array, n: int, name: Namer
) -> tuple[tuple[str, float], ...]:
    """Return the features that make a row of norm 1 similar to an inducing input, the largest w² x z first."""
    if not transform.has_unit_norm:
        return ()
    products = (weights * z).cpu().numpy()[x.indices] * x.data
    features, place = np.unique(x.indices % (x.shape[1] // len(transform.views)), return_inverse=True)
    each = np.bincount(place, products, features.size)
    best = np.argsort(-each, kind="stable")[:n].tolist()
    return tuple((name(int(features[d])), float(each[d])) for d in best if each[d] > 0)


def _squared_weights(processes: LatentProcesses, z: Tensor) -> Tensor:
    """Return the squared weights of features (D,), the mean over processes; 1 under a kernel that has none."""
    relevance = processes.kernel.feature_relevance()
    return torch.ones_like(z) if relevance is None else relevance if relevance.dim() == 1 else relevance.mean(0)


def _coordinates(points: Points, number: int) -> tuple[Tensor, Tensor]:
    """Return an inducing input (D,) and the mean of all."""
    if isinstance(points, SubspacePoints):
        return points.basis @ points.A[number], points.basis @ points.A.mean(0)
    assert isinstance(points, DensePoints)
    Z = points.Z if points.Z.dim() == 2 else points.Z[0]
    support, place = getattr(points, "support", None), getattr(points, "place", None)
    z, centre = Z[number], Z.mean(0)
    if support is not None and place is not None:
        z, centre = (part.new_zeros(len(place)).index_copy_(0, support.long(), part) for part in (z, centre))
    return z, centre
