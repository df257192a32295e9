"""The memory that training a multi-label factor model takes, estimated in advance, and whether a step is small."""

from dataclasses import replace

from labelfield.memory import BYTES_PER_PARAMETER, DOUBLE, FLOAT
from labelfield.models.mlgpf.spec import Spec

# Multiplications of a step that take about 50 milliseconds on a core. Below, two threads save little even where nothing
# else runs, and lose much where something does.
_SMALL_STEP = 1 << 29


def is_small_step(spec: Spec, batch_size: int, n_labels: int) -> bool:
    """Return whether a step has too little to do for several threads: K_Z, A = L⁻¹ k(Z, X), and the moments of h, f."""
    p, m, b = spec.n_latent, spec.n_inducing, batch_size
    return m * m * (spec.rank or spec.n_support or spec.n_features) + b * (m * m + m * p + p * n_labels) < _SMALL_STEP


def n_parameters(spec: Spec) -> int:
    """Return the number of parameters of a model with this spec, except for kernels with a single parameter."""
    d, k, p, m = spec.n_features, spec.n_labels, spec.n_latent, spec.n_inducing
    seen = spec.n_support or d
    inputs = {"free": m * seen, "subspace": m * spec.rank, "subspace_basis": spec.rank * (m + d)}
    covariance = {"whitened_diagonal": m * p, "parsimonious": m * p, "whitened_shared": m * m}
    weights = d * spec.kernel.count("_ard") + p * spec.kernel.count("per_process")
    weights += spec.n_label_linear * (2 if spec.label_linear == "mean_field" else 1)
    return inputs.get(spec.inducing, 0) + m * p + covariance.get(spec.posterior, p * m * m) + k * (p + 1) + weights


def training_bytes(spec: Spec, batch_size: int, n_labels: int, n_ranks: int = 1) -> int:
    """Return the bytes of the parameters with the optimiser's share, and of the largest arrays of such a step.

    Several processes divide the labels among them, after each has had all of them once.
    """
    if n_ranks > 1:
        own = replace(spec, n_labels=-(-spec.n_labels // n_ranks), n_label_linear=-(-spec.n_label_linear // n_ranks))
        at_first = FLOAT * (n_parameters(spec) - n_parameters(own))
        return max(at_first, training_bytes(own, batch_size, -(-n_labels // n_ranks)))
    p, m, b = spec.n_latent, spec.n_inducing, batch_size
    seen = spec.n_support or spec.n_features
    fixed = seen * {"fixed": m, "subspace": spec.rank, "subspace_fixed": spec.rank}.get(spec.inducing, 0)
    # Processes with a kernel each, or with a full covariance each, have P matrices.
    gram = 6 * DOUBLE * m * m
    cross = DOUBLE * 4 * m * b
    if "per_process" in spec.kernel or spec.posterior == "parsimonious":
        gram, cross = gram * p, cross * p
    elif spec.posterior in ("full", "whitened_full"):
        gram, cross = gram + 2 * DOUBLE * p * m * m, cross + 2 * FLOAT * p * m * b
    weighted = 3 * FLOAT * seen * m if "_ard" in spec.kernel else 0
    labels = FLOAT * (8 * b * n_labels + 3 * n_labels * p)
    labels += 20 * spec.n_label_linear  # the layout of the labels' linear weights
    return BYTES_PER_PARAMETER * n_parameters(spec) + FLOAT * fixed + gram + cross + weighted + labels + 32 * b * p
