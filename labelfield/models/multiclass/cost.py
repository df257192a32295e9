"""The memory that training a multi-class model takes, estimated in advance."""

from __future__ import annotations

from labelfield.memory import BYTES_PER_PARAMETER, DOUBLE, FLOAT
from labelfield.models.multiclass.spec import ClassSpec

__all__ = ["training_bytes"]


def training_bytes(spec: ClassSpec, batch_size: int, n_classes: int) -> int:
    """Return the bytes of the parameters with the optimiser's share, and of the largest arrays of such a step."""
    d, k, m, b = spec.n_features, spec.n_labels, spec.n_inducing, batch_size
    if spec.posterior == "point":
        return BYTES_PER_PARAMETER * k * (d + 1) + FLOAT * n_classes * (8 * b + 2 * d)
    covariance = {"whitened_diagonal": k * m, "parsimonious": k * m, "whitened_shared": m * m}
    seen = spec.n_support or d
    inputs = k * m * d if spec.inducing == "per_class" else m * seen
    weights = (k if spec.kernel_per_class else 1) * d * spec.kernel.count("_ard")
    parameters = inputs + weights + k * (m + 2) + covariance.get(spec.posterior, k * m * m)
    # Classes with their own inducing inputs or kernel have one matrix each.
    n_matrices = n_classes if spec.has_own_matrices else 1
    step = n_matrices * (6 * DOUBLE * m * m + 4 * DOUBLE * m * b) + 3 * FLOAT * m * seen
    if spec.inducing == "per_class" or (spec.kernel_per_class and "_ard" in spec.kernel):
        step += 3 * FLOAT * n_classes * m * seen
    if spec.posterior in ("full", "whitened_full"):
        step += n_classes * (2 * DOUBLE * m * m + 2 * FLOAT * m * b)
    # Robustmax has the rivals at each quadrature point and softmax has all classes in each draw, both with gradients.
    at_once = {"robustmax": 4 * spec.n_points, "softmax": 32}.get(spec.likelihood, 0)
    return BYTES_PER_PARAMETER * parameters + step + FLOAT * b * n_classes * (8 + at_once)
