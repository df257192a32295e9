"""The specification of a multi-label factor model, in words and numbers, as options and saved models write it."""

from dataclasses import dataclass

import torch

from labelfield.constraints import Constraint, Flag, Integer, OneOf, Real, Word, check_options
from labelfield.inducing import Free, Subspace
from labelfield.kernels.names import kernel_from_name
from labelfield.likelihoods import Bernoulli, SquaredHinge
from labelfield.models.mlgpf.label_linear import LABEL_LINEAR, LabelLinear
from labelfield.models.mlgpf.model import MLGPF
from labelfield.models.sparse import MOST_POINTS, make_shared
from labelfield.variational.families import POSTERIORS

LIKELIHOODS = ("bernoulli", "squared_hinge")
INDUCING = ("free", "fixed", "subspace", "subspace_fixed", "subspace_basis")
# Constraints on the options of the model; the estimator adds those of training.
CONSTRAINTS: dict[str, Constraint] = {
    "n_latent": Integer(1),
    "n_inducing": Integer(1),
    "kernel": Word(),
    "posterior": OneOf(POSTERIORS),
    "inducing": OneOf(INDUCING),
    "unit_norm": Flag(),
    "jitter": Real(0, 1),
    "label_linear": OneOf(LABEL_LINEAR),
    "label_linear_scale": Real(1e-12),
    "likelihood": OneOf(LIKELIHOODS),
    "hinge_cost": Real(1e-12),
}
_SPEC_CONSTRAINTS = {
    **CONSTRAINTS,
    **dict.fromkeys(("n_features", "n_labels"), Integer(1)),
    **dict.fromkeys(("n_support", "rank", "n_label_linear"), Integer(0)),
    "n_points": Integer(1, MOST_POINTS),
}


@dataclass(frozen=True)
class Spec:
    """The structure of a model, without its arrays."""

    n_features: int
    n_labels: int
    n_latent: int
    n_inducing: int
    kernel: str = "se_ard"
    posterior: str = "whitened_diagonal"
    inducing: str = "free"
    rank: int = 0  # of the subspace
    n_support: int = 0  # features that free or fixed inducing inputs have values on; 0 for all
    unit_norm: bool = True
    n_points: int = 10
    jitter: float = 1e-5
    label_linear: str = "off"  # a linear process for each label
    n_label_linear: int = 0  # the number of weights of all of them
    label_linear_scale: float = 2.0  # τ, or where it starts
    likelihood: str = "bernoulli"
    hinge_cost: float = 1.0  # C of the squared hinge

    def __post_init__(self) -> None:
        check_options(vars(self), _SPEC_CONSTRAINTS)
        if self.n_support > self.n_features:
            raise ValueError(f"n_support={self.n_support}; expected at most n_features")
        if self.rank < 1 and "subspace" in self.inducing:
            raise ValueError(f"rank={self.rank}; expected an integer of at least 1")


def build(spec: Spec) -> MLGPF:
    """Build the model that the spec describes, not yet filled."""
    m, p, k, d = spec.n_inducing, spec.n_latent, spec.n_labels, spec.n_features
    inducing: Free | Subspace
    if spec.inducing.startswith("subspace"):
        inducing = Subspace(
            torch.zeros(m, spec.rank),
            torch.zeros(spec.rank, d),
            is_learned=spec.inducing != "subspace_fixed",
            is_basis_learned=spec.inducing == "subspace_basis",
            unit_norm=spec.unit_norm,
        )
    else:
        inducing = make_shared(spec)
    linear = None
    if spec.label_linear != "off":
        linear = LabelLinear(k, d, spec.n_label_linear, spec.label_linear, spec.label_linear_scale)
    kernel, family = kernel_from_name(spec.kernel, d, p), POSTERIORS[spec.posterior](m, p)
    parts = kernel, inducing, family, torch.zeros(k, p), torch.zeros(k)
    if spec.likelihood == "bernoulli":
        return MLGPF(*parts, label_linear=linear, likelihood=Bernoulli(spec.n_points), jitter=spec.jitter)
    likelihood = SquaredHinge(spec.hinge_cost, spec.n_points)
    return MLGPF(*parts, label_linear=linear, likelihood=likelihood, b_mean=torch.zeros(k), jitter=spec.jitter)
