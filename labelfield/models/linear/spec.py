"""The specification of linear machines, without their weights."""

from dataclasses import dataclass

from labelfield.constraints import Constraint, Integer, Real, check_options
from labelfield.models.linear.model import LinearMachines

MOST_TREES = 16
# Constraints on the options of the model; the estimator adds those of training.
CONSTRAINTS: dict[str, Constraint] = {"cost": Real(1e-6)}
_SPEC_CONSTRAINTS = {
    **CONSTRAINTS,
    **dict.fromkeys(("n_features", "n_labels"), Integer(1)),
    "n_weights": Integer(0),
    "n_trees": Integer(0, MOST_TREES),
    "n_machines": Integer(0),
}


@dataclass(frozen=True)
class LinearSpec:
    """Sizes, the cost C of a row beyond the margin, and how many label trees and, with these, machines there are."""

    n_features: int
    n_labels: int
    cost: float = 1.0
    n_weights: int = 0
    n_trees: int = 0
    n_machines: int = 0  # 0 for one per label

    def __post_init__(self) -> None:
        check_options(vars(self), _SPEC_CONSTRAINTS)
        least = (1 + self.n_trees) * self.n_labels
        is_plain = self.n_trees == 0 and self.n_machines in (0, self.n_labels)
        if not is_plain and not (self.n_trees and self.n_machines > least):
            raise ValueError(f"{self.n_machines} machines do not fit {self.n_labels} labels and {self.n_trees} trees")


def build(spec: LinearSpec) -> LinearMachines:
    """Build the machines that the spec describes, not yet filled."""
    n_machines = spec.n_machines or spec.n_labels
    return LinearMachines(spec.n_features, spec.n_labels, spec.n_weights, spec.n_trees, n_machines)
