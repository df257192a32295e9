"""What training and prediction will take in memory, before any of it is taken."""

from __future__ import annotations

from pathlib import Path

import torch

from labelfield.models.build import Spec
from labelfield.models.build_deep import DeepSpec
from labelfield.models.build_multiclass import ClassSpec

__all__ = ["deep_bytes", "free_bytes", "multiclass_bytes", "n_parameters", "training_bytes"]

# Adam keeps two numbers for each parameter, beside its gradient and itself; all float32.
_BYTES_PER_PARAMETER = 16
_FLOAT, _DOUBLE = 4, 8


def n_parameters(spec: Spec) -> int:
    """How many numbers a model of this make has to learn, kernels of one number each left out."""
    d, k, p, m = spec.n_features, spec.n_labels, spec.n_latent, spec.n_inducing
    seen = spec.n_support or d
    inputs = {"free": m * seen, "fixed": 0, "subspace": m * spec.rank, "subspace_basis": spec.rank * (m + d)}
    covariance = {"whitened_diagonal": m * p, "parsimonious": m * p, "whitened_shared": m * m}
    weights = d * spec.kernel.count("_ard") + p * spec.kernel.count("per_process")
    private = spec.n_private * (2 if spec.private == "mean_field" else 1)
    return private + inputs[spec.inducing] + m * p + covariance.get(spec.posterior, p * m * m) + k * (p + 1) + weights


def training_bytes(spec: Spec, batch_size: int, n_labels: int) -> int:
    """The largest arrays of a step on so many rows and labels, with the parameters and the optimiser's share."""
    p, m, b = spec.n_latent, spec.n_inducing, batch_size
    seen = spec.n_support or spec.n_features
    fixed = seen * (m if spec.inducing == "fixed" else spec.rank if spec.inducing == "subspace" else 0)
    # Matrices of processes that have a kernel each, or a full covariance each, come P times.
    gram = 6 * _DOUBLE * m * m
    cross = _DOUBLE * 4 * m * b
    if "per_process" in spec.kernel or spec.posterior == "parsimonious":
        gram, cross = gram * p, cross * p
    elif spec.posterior in ("full", "whitened_full"):
        gram, cross = gram + 2 * _DOUBLE * p * m * m, cross + 2 * _FLOAT * p * m * b
    weighted = 3 * _FLOAT * seen * m if "_ard" in spec.kernel else 0
    labels = _FLOAT * (8 * b * n_labels + 3 * n_labels * p)
    labels += 20 * spec.n_private  # where the weights of private processes lie
    return _BYTES_PER_PARAMETER * n_parameters(spec) + _FLOAT * fixed + gram + cross + weighted + labels + 32 * b * p


def multiclass_bytes(spec: ClassSpec, batch_size: int, n_classes: int) -> int:
    """The parameters of all classes with the optimiser's share, and the largest arrays of a step on so many classes."""
    d, k, m, b = spec.n_features, spec.n_labels, spec.n_inducing, batch_size
    if spec.posterior == "point":
        return _BYTES_PER_PARAMETER * k * (d + 1) + _FLOAT * n_classes * (8 * b + 2 * d)
    covariance = {"whitened_diagonal": k * m, "parsimonious": k * m, "whitened_shared": m * m}
    seen = spec.n_support or d
    inputs = k * m * d if spec.inducing == "per_class" else m * seen
    weights = (k if spec.own_kernel else 1) * d * spec.kernel.count("_ard")
    parameters = inputs + weights + k * (m + 2) + covariance.get(spec.posterior, k * m * m)
    # Matrices of classes that have inducing inputs or a kernel of their own come once for each.
    n_matrices = n_classes if spec.has_own_matrices else 1
    step = n_matrices * (6 * _DOUBLE * m * m + 4 * _DOUBLE * m * b) + 3 * _FLOAT * m * seen
    if spec.inducing == "per_class" or (spec.own_kernel and "_ard" in spec.kernel):
        step += 3 * _FLOAT * n_classes * m * seen
    if spec.posterior in ("full", "whitened_full"):
        step += n_classes * (2 * _DOUBLE * m * m + 2 * _FLOAT * m * b)
    # Robustmax has the rivals at each quadrature point, softmax all classes in each draw, and their gradients.
    at_once = {"robustmax": 4 * spec.n_points, "softmax": 32}.get(spec.likelihood, 0)
    return _BYTES_PER_PARAMETER * parameters + step + _FLOAT * b * n_classes * (8 + at_once)


def deep_bytes(spec: DeepSpec, n_weights: int, batch_size: int, n_labels: int) -> int:
    """The parameters with the optimiser's share, and the largest arrays of a step that looks at so many labels."""
    J, n, d, b = spec.n_processes, spec.grid_size, spec.n_dimensions, batch_size
    parameters: int = n_weights + spec.n_labels * (J + 1) + J * (n**d + d * n * n)
    baseline = _FLOAT * (n_weights + spec.n_labels * J) * spec.has_baseline
    widths = sum(spec.network.hidden) + spec.n_outputs if spec.network is not None else 4 * spec.n_outputs
    if spec.network is not None and spec.network.name == "cnn" and spec.network.image_shape is not None:
        # Each convolution keeps the size of the image and is pooled afterwards.
        area = spec.network.image_shape[1] * spec.network.image_shape[2]
        widths += sum(3 * area * channels >> 2 * place for place, channels in enumerate(spec.network.channels))
    network = 4 * _FLOAT * b * (widths + spec.n_features * (spec.network is None or spec.network.name != "bag"))
    matrices = J * d * n * n * (4 * _DOUBLE + 6 * _FLOAT)
    windows: int = _FLOAT * b * J * (24 * d + 3 * 4**d)
    draws = 1 if spec.likelihood == "bernoulli" and spec.moments == "exact" else spec.n_samples
    labels = _FLOAT * b * (10 * n_labels * draws + 4 * J * draws)
    return _BYTES_PER_PARAMETER * parameters + baseline + network + matrices + windows + labels


def free_bytes(device: torch.device) -> int | None:
    """How much memory is left on a device, as far as the system tells; None if it does not."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    known = []
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        known += [1024 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable:")]
        limit, used = (Path("/sys/fs/cgroup") / f"memory.{name}" for name in ("max", "current"))
        if limit.exists() and (text := limit.read_text().strip()).isdecimal():
            # Pages of files count as used, and are given back when asked for.
            cache = [
                int(line.split()[1])
                for line in (limit.parent / "memory.stat").read_text().splitlines()
                if line.startswith(("inactive_file ", "active_file "))
            ]
            known.append(int(text) - int(used.read_text()) + sum(cache))
    except (OSError, ValueError, IndexError):
        pass  # another system
    return min(known, default=None)
