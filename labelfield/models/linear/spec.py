"""The specification of linear machines, without their weights."""

from dataclasses import dataclass

from labelfield.constraints import Constraint, Flag, Integer, Real, check_options
from labelfield.models.linear.model import LinearMachines
from labelfield.models.linear.plan import N_LEVELS

MOST_TREES = 16
# Constraints on the options of the model; the estimator adds those of training.
CONSTRAINTS: dict[str, Constraint] = {"cost": Real(1e-6)}
_SPEC_CONSTRAINTS = {
    **CONSTRAINTS,
    **dict.fromkeys(("n_features", "n_labels"), Integer(1)),
    "n_weights": Integer(0),
    "n_trees": Integer(0, MOST_TREES),
    "n_machines": Integer(0),
    "n_levels": Integer(1, N_LEVELS),
    "has_own": Flag(),
}


@dataclass(frozen=True)
class LinearSpec:
    """Sizes, the cost C of a row beyond the margin, how many label trees there are and, with these, machines, levels of
    groups, and whether labels have machines of their own beside the trees, as in models of former versions."""

    n_features: int
    n_labels: int
    cost: float = 1.0
    n_weights: int = 0
    n_trees: int = 0
    n_machines: int = 0  # 0 for one per label
    n_levels: int = 1
    has_own: bool = True

    def __post_init__(self) -> None:
        check_options(vars(self), _SPEC_CONSTRAINTS)
        least = (self.n_trees + self.has_own) * self.n_labels
        is_plain = self.n_trees == 0 and self.n_machines in (0, self.n_labels) and self.has_own
        if not is_plain and not (self.n_trees and self.n_machines > least):
            raise ValueError(f"{self.n_machines} machines do not fit {self.n_labels} labels and {self.n_trees} trees")


def build(spec: LinearSpec) -> LinearMachines:
    """Build the machines that the spec describes, not yet filled."""
    n_machines = spec.n_machines or spec.n_labels
    sizes = spec.n_features, spec.n_labels, spec.n_weights, spec.n_trees, n_machines
    return LinearMachines(*sizes, spec.n_levels, spec.has_own)
