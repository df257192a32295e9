"""The specification of a multi-class model, in words and numbers, as options and saved models write it."""

from dataclasses import dataclass

import torch

from labelfield.constraints import Constraint, Flag, Integer, OneOf, Real, Word, check_options
from labelfield.inducing import Free, PerClass
from labelfield.kernels.names import kernel_from_name
from labelfield.likelihoods import MultiClass, OneVsEach, RobustMax, Softmax
from labelfield.models.multiclass.model import LinearUtilities, MultiClassGP, SparseUtilities
from labelfield.models.sampling import Rivals
from labelfield.models.sparse import MOST_POINTS, make_shared
from labelfield.variational.families import POSTERIORS

LIKELIHOODS = ("one_vs_each", "robustmax", "softmax")
# Constraints on the options of the model; the estimator adds those of training.
CONSTRAINTS: dict[str, Constraint] = {
    "likelihood": OneOf(LIKELIHOODS),
    "n_inducing": Integer(1),
    "kernel": Word(),
    "kernel_per_class": Flag(),
    # A point estimate is one of the weights of a linear kernel; it has no inducing inputs.
    "posterior": OneOf((*POSTERIORS, "point")),
    "inducing": OneOf(("per_class", "free", "fixed")),
    "negative_sampling": OneOf(("uniform", "importance")),
    "unit_norm": Flag(),
    "epsilon": Real(1e-12, 0.5),
    "n_samples": Integer(1, 100_000),
    "jitter": Real(0, 1),
    "prior_scale": Real(1e-12),
}
_SPEC_CONSTRAINTS = CONSTRAINTS | {"n_features": Integer(1), "n_labels": Integer(2), "n_support": Integer(0)}
_SPEC_CONSTRAINTS["n_points"] = Integer(1, MOST_POINTS)


@dataclass(frozen=True)
class ClassSpec:
    """The structure of a model, without its arrays."""

    n_features: int
    n_labels: int
    n_inducing: int
    likelihood: str = "one_vs_each"
    kernel: str = "se_ard"
    kernel_per_class: bool = True
    posterior: str = "whitened_full"
    inducing: str = "per_class"
    negative_sampling: str = "uniform"
    unit_norm: bool = True
    epsilon: float = 1e-3  # of robustmax
    n_points: int = 20
    n_samples: int = 256
    jitter: float = 1e-5
    prior_scale: float = 1.0  # of the weights of a point estimate
    n_support: int = 0  # features that shared inducing inputs have values on; 0 for all

    def __post_init__(self) -> None:
        check_options(vars(self), _SPEC_CONSTRAINTS)
        if self.posterior == "point" and self.kernel != "linear":
            raise ValueError(f"posterior='point' with kernel={self.kernel!r}; it needs kernel='linear'")
        if self.n_support > self.n_features:
            raise ValueError(f"n_support={self.n_support}; expected at most n_features")
        if self.n_support and self.inducing == "per_class":
            raise ValueError("n_support with inducing='per_class'; such inputs have values on all features")

    @property
    def has_own_matrices(self) -> bool:
        """Whether each class has its own covariance matrix of inducing inputs."""
        is_own = self.kernel_per_class or self.inducing == "per_class" or "per_process" in self.kernel
        return is_own or self.posterior == "parsimonious"


def make_likelihood(spec: ClassSpec, n_points: int | None = None) -> MultiClass:
    """Make the likelihood; training may need fewer quadrature points than the spec has."""
    points = spec.n_points if n_points is None else n_points
    if spec.likelihood == "one_vs_each":
        return OneVsEach(points, spec.n_samples)
    if spec.likelihood == "robustmax":
        return RobustMax(spec.epsilon, points)
    return Softmax(n_samples_predict=spec.n_samples)


def build(spec: ClassSpec) -> MultiClassGP:
    """Build the model that the spec describes, not yet filled."""
    k, m, d = spec.n_labels, spec.n_inducing, spec.n_features
    utilities: SparseUtilities | LinearUtilities
    if spec.posterior == "point":
        utilities = LinearUtilities(k, d, spec.prior_scale)
    else:
        inducing: Free | PerClass
        if spec.inducing == "per_class":
            inducing = PerClass(torch.zeros(k, m, d), unit_norm=spec.unit_norm)
        else:
            inducing = make_shared(spec)
        kernel = kernel_from_name(spec.kernel, d, k, is_own=spec.kernel_per_class, is_scaled=True)
        utilities = SparseUtilities(kernel, inducing, POSTERIORS[spec.posterior](m, k), spec.jitter)
    rivals = Rivals(k) if spec.negative_sampling == "importance" else None
    return MultiClassGP(utilities, torch.zeros(k), make_likelihood(spec), rivals=rivals)
