"""A multi-class model from words and numbers, as options and saved models write them, and where it starts."""

from __future__ import annotations

from dataclasses import dataclass
from math import log

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse

from labelfield.csr import gather_rows
from labelfield.inducing import Free, PerClass, kmeans
from labelfield.kernels.names import kernel_from_name
from labelfield.likelihoods import MultiClass, OneVsEach, RobustMax, Softmax
from labelfield.linalg.rows import squared_norms, to_tensor
from labelfield.models.build import MOST_POINTS, POSTERIORS, fill_shared, pad_rows
from labelfield.models.multiclass import MultiClassGP
from labelfield.models.processes import LinearUtilities, SparseUtilities
from labelfield.models.sampling import Rivals

__all__ = [
    "CLASS_INDUCING",
    "CLASS_POSTERIORS",
    "LIKELIHOODS",
    "RIVALS",
    "ClassSpec",
    "build_multiclass",
    "start_multiclass",
]

LIKELIHOODS = ("one_vs_each", "robustmax", "softmax")
CLASS_INDUCING = ("per_class", "free", "fixed")
# A point estimate is of the weights of a linear kernel; it has no inducing inputs.
CLASS_POSTERIORS = (*POSTERIORS, "point")
RIVALS = ("uniform", "importance")
# Pairs of rows whose distances say how long a length is.
_N_PAIRS = 2000


@dataclass(frozen=True)
class ClassSpec:
    """What a model is made of, apart from its numbers."""

    n_features: int
    n_labels: int
    n_inducing: int
    likelihood: str = "one_vs_each"
    kernel: str = "se_ard"
    own_kernel: bool = True  # a kernel of each class's own
    posterior: str = "whitened_full"
    inducing: str = "per_class"
    rivals: str = "uniform"
    unit_norm: bool = True
    epsilon: float = 1e-3  # of robustmax
    n_points: int = 20
    n_samples: int = 256
    jitter: float = 1e-5
    scale: float = 1.0  # of the prior of a point estimate's weights
    n_support: int = 0  # features that shared inducing inputs have values on; 0 for all

    def __post_init__(self) -> None:
        for name, known in (
            ("likelihood", LIKELIHOODS),
            ("posterior", CLASS_POSTERIORS),
            ("inducing", CLASS_INDUCING),
            ("rivals", RIVALS),
        ):
            if getattr(self, name) not in known:
                raise ValueError(f"{name}={getattr(self, name)!r}; expected one of {', '.join(known)}")
        for name in ("n_features", "n_labels", "n_inducing", "n_points", "n_samples"):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise ValueError(f"{name}={value!r}; expected an integer of at least 1")
        if self.n_labels < 2:
            raise ValueError(f"n_labels={self.n_labels}; expected at least 2 classes")
        if self.n_points > MOST_POINTS:
            raise ValueError(f"n_points={self.n_points}; expected at most {MOST_POINTS}")
        for name in ("jitter", "scale", "epsilon"):
            value = getattr(self, name)
            if not isinstance(value, int | float) or not 0 <= value < float("inf"):
                raise ValueError(f"{name}={value!r}; expected a number of at least 0")
        if self.scale == 0:
            raise ValueError("scale=0; expected a positive number")
        if self.posterior == "point" and self.kernel != "linear":
            raise ValueError(f"posterior='point' with kernel={self.kernel!r}; it needs kernel='linear'")
        if not isinstance(self.n_support, int) or not 0 <= self.n_support <= self.n_features:
            raise ValueError(f"n_support={self.n_support!r}; expected an integer from 0 to n_features")
        if self.n_support and self.inducing == "per_class":
            raise ValueError("inducing inputs of each class's own have values on all features")

    @property
    def has_own_matrices(self) -> bool:
        """Whether covariances of inducing inputs come once for each class."""
        is_own = self.own_kernel or self.inducing == "per_class" or "per_process" in self.kernel
        return is_own or self.posterior == "parsimonious"


def make_likelihood(spec: ClassSpec, n_points: int | None = None) -> MultiClass:
    """The likelihood, with fewer quadrature points in training where these are enough."""
    points = spec.n_points if n_points is None else n_points
    if spec.likelihood == "one_vs_each":
        return OneVsEach(points, spec.n_samples)
    if spec.likelihood == "robustmax":
        return RobustMax(spec.epsilon, points)
    return Softmax(n_samples_predict=spec.n_samples)


def build_multiclass(spec: ClassSpec) -> MultiClassGP:
    """A model of this make with nothing in it yet."""
    k, m, d = spec.n_labels, spec.n_inducing, spec.n_features
    utilities: SparseUtilities | LinearUtilities
    if spec.posterior == "point":
        utilities = LinearUtilities(k, d, spec.scale)
    else:
        inducing: Free | PerClass
        if spec.inducing == "per_class":
            inducing = PerClass(torch.zeros(k, m, d), unit_norm=spec.unit_norm)
        else:
            inducing = Free(
                torch.zeros(m, spec.n_support or d),
                n_features=d if spec.n_support else None,
                is_learned=spec.inducing == "free",
                unit_norm=spec.unit_norm,
            )
        kernel = kernel_from_name(spec.kernel, d, k, is_own=spec.own_kernel, is_scaled=True)
        utilities = SparseUtilities(kernel, inducing, POSTERIORS[spec.posterior](m, k), spec.jitter)
    rivals = Rivals(k) if spec.rivals == "importance" else None
    return MultiClassGP(utilities, torch.zeros(k), make_likelihood(spec), rivals=rivals)


def start_multiclass(
    model: MultiClassGP, spec: ClassSpec, X: sparse.csr_array, Y: sparse.csr_array, seed: int, device: torch.device
) -> None:
    """Fill a model in place: Z from the rows, of each class's own where it has its own; lengths from how far rows are
    apart; b at the logarithm of how often each class occurs."""
    rng = np.random.default_rng(seed)
    counts = np.bincount(Y.indices, minlength=spec.n_labels)
    with torch.no_grad():
        model.b.copy_(torch.from_numpy(np.log((counts + 0.5) / (Y.shape[0] + 0.5 * spec.n_labels))))
        model.b.sub_(model.b.mean())
        utilities = model.utilities
        if isinstance(utilities, LinearUtilities):
            return
        if isinstance(utilities.inducing, PerClass):
            utilities.inducing.fill(torch.from_numpy(_centres_of_classes(X, Y, spec, rng, device)))
        else:
            fill_shared(utilities.inducing, X, spec.n_inducing, spec.n_support, rng, device)
        length = typical_length(X, rng)
        for name, parameter in utilities.kernel.named_parameters():
            if name.endswith(("log_inverse_length", "log_weights")):
                parameter.fill_(-log(length))


def _centres_of_classes(
    X: sparse.csr_array, Y: sparse.csr_array, spec: ClassSpec, rng: np.random.Generator, device: torch.device
) -> NDArray[np.float32]:
    """k-means centres of the rows of each class (K, M, D); a class with fewer rows takes some of other classes too."""
    result = np.empty((spec.n_labels, spec.n_inducing, spec.n_features), np.float32)
    order = np.argsort(Y.indices, kind="stable")
    ends = np.cumsum(np.bincount(Y.indices, minlength=spec.n_labels))
    for k in range(spec.n_labels):
        own = order[(ends[k - 1] if k else 0) : ends[k]]
        if own.size < spec.n_inducing:
            own = np.concatenate([own, rng.choice(Y.shape[0], spec.n_inducing - own.size)])
            result[k] = gather_rows(X, np.sort(own)).toarray()
        else:
            centres = kmeans(gather_rows(X, np.sort(own)), spec.n_inducing, rng, device=device)
            result[k] = pad_rows(centres, spec.n_inducing)
    return result


def typical_length(X: sparse.csr_array, rng: np.random.Generator) -> float:
    """√(half the median squared distance of two rows), at which a kernel exp(-r² / 2ℓ²) is 1/e between them."""
    first, second = rng.integers(X.shape[0], size=(2, _N_PAIRS))
    differences = sparse.csr_array(gather_rows(X, first) - gather_rows(X, second))
    squared = squared_norms(to_tensor(differences.astype(np.float32)), None).numpy()
    apart = squared[squared > 0]
    return float(np.sqrt(np.median(apart) / 2)) if apart.size else 1.0
