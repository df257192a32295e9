"""The memory that training a deep kernel model takes, estimated in advance."""

from __future__ import annotations

from labelfield.memory import BYTES_PER_PARAMETER, DOUBLE, FLOAT
from labelfield.models.deep.spec import DeepSpec

__all__ = ["training_bytes"]


def training_bytes(spec: DeepSpec, n_weights: int, batch_size: int, n_labels: int) -> int:
    """Return the bytes of the parameters with the optimiser's share, and of the largest arrays of such a step."""
    J, n, d, b = spec.n_processes, spec.grid_size, spec.n_dimensions, batch_size
    parameters: int = n_weights + spec.n_labels * (J + 1) + J * (n**d + d * n * n)
    baseline = FLOAT * (n_weights + spec.n_labels * J) * spec.has_baseline
    widths = sum(spec.network.hidden) + spec.n_outputs if spec.network is not None else 4 * spec.n_outputs
    if spec.network is not None and spec.network.name == "cnn" and spec.network.image_shape is not None:
        # Each convolution keeps the size of the image, which is then pooled.
        area = spec.network.image_shape[1] * spec.network.image_shape[2]
        widths += sum(3 * area * channels >> 2 * place for place, channels in enumerate(spec.network.channels))
    network = 4 * FLOAT * b * (widths + spec.n_features * (spec.network is None or spec.network.name != "bag"))
    matrices = J * d * n * n * (4 * DOUBLE + 6 * FLOAT)
    windows: int = FLOAT * b * J * (24 * d + 3 * 4**d)
    draws = 1 if spec.likelihood == "bernoulli" and spec.moments == "exact" else spec.n_samples
    labels = FLOAT * b * (10 * n_labels * draws + 4 * J * draws)
    return BYTES_PER_PARAMETER * parameters + baseline + network + matrices + windows + labels
