"""Small models with drawn numbers, each with a predictor, and rows for them: nothing is trained."""

import numpy as np
import torch
from scipy import sparse

from labelfield.models.calibration import Calibration
from labelfield.models.ensemble import EnsemblePredictor, Member
from labelfield.models.linear.model import LinearMachines
from labelfield.models.linear.predict import LinearPredictor
from labelfield.models.mlgpf.predict import FactorPredictor
from labelfield.models.mlgpf.spec import Spec, build
from labelfield.models.stack import Stack

N_FEATURES = 60


class Same:
    """A transform of rows that leaves them as they are."""

    def __call__(self, rows):
        return rows

    def fold(self, values):
        return values


def draw_rows(n_rows, rng, density=0.15, lowest=0.1):
    rows = sparse.random_array(
        (n_rows, N_FEATURES), density=density, rng=rng, data_sampler=lambda size: rng.uniform(lowest, 1, size)
    )
    rows = sparse.csr_array(rows.astype(np.float32))
    rows.indices, rows.indptr = rows.indices.astype(np.int32), rows.indptr.astype(np.int64)
    return rows


def factors(n_labels, rng, label_linear="point", b=-3.0):
    """Return a factor model whose labels lie in clusters."""
    chosen = np.sort(rng.random((n_labels, N_FEATURES)).argsort(1)[:, :8], 1)
    n_weights = 0 if label_linear == "off" else chosen.size
    spec = Spec(
        N_FEATURES, n_labels, 5, 12, kernel="se_linear_ard", label_linear=label_linear, n_label_linear=n_weights
    )
    model = build(spec)
    centres = rng.normal(size=(12, 5))[rng.integers(12, size=n_labels)]
    with torch.no_grad():
        model.inducing.fill(torch.from_numpy(rng.random((12, N_FEATURES))))
        model.family.mean.copy_(torch.from_numpy(rng.normal(size=(5, 12))))
        model.Phi.copy_(torch.from_numpy(centres + 0.2 * rng.normal(size=centres.shape)))
        model.b.copy_(torch.from_numpy(rng.normal(b, 0.5, n_labels)))
        if label_linear != "off":
            model.label_linear.get_buffer("pointers").copy_(torch.arange(n_labels + 1) * 8)
            model.label_linear.get_buffer("features").copy_(torch.from_numpy(chosen.ravel()))
            model.label_linear.weights.copy_(torch.from_numpy(rng.normal(0.3, 0.5, chosen.size)))
        _calibrate(model.calibration)
    return FactorPredictor(model)


def machines(n_labels, rng, n_trees=2, n_levels=1, has_own=True):
    """Return linear machines of which some labels were never seen; each lower group is in one upper group."""
    n_lower, n_upper = 20, 5 * (n_levels - 1)
    n_each = (n_trees + has_own) * n_labels
    n_machines = n_each + (n_lower + n_upper) * n_trees
    model = LinearMachines(N_FEATURES, n_labels, 0, n_trees, n_machines, n_levels, has_own)
    chosen = np.sort(rng.random((n_machines, N_FEATURES)).argsort(1)[:, :8], 1).astype(np.int32)
    weights = rng.normal(0.2, 0.6, chosen.size).astype(np.float32)
    pointers = np.arange(n_machines + 1) * 8
    intercepts = rng.normal(0.8 * (n_levels - 1), 0.2, n_machines).astype(np.float32)  # paths are products of more
    model.fill(*map(torch.from_numpy, (pointers, chosen.ravel(), weights, intercepts)))
    for number in range(n_trees):
        first = n_each + number * (n_lower + n_upper)
        lower = rng.integers(n_lower, size=n_labels)
        levels = [lower % n_upper, n_upper + lower] if n_upper else [lower]
        for level, places in enumerate(levels):
            model.groups[n_levels * number + level] = torch.from_numpy(first + places)
    model.stack.count(rng.integers(0, 30, n_labels))
    model.stack.slopes.copy_(torch.from_numpy(rng.uniform(0.2, 2, model.stack.slopes.shape)))
    model.stack.offsets.fill_(-2 if n_trees else -4)
    _calibrate(model.calibration)
    return LinearPredictor(model)


def mix(n_labels, rng):
    """Return a stack of machines and a factor model."""
    members = [Member(Same(), machines(n_labels, rng)), Member(Same(), factors(n_labels, rng, "off"))]
    stack, calibration = Stack(2, n_labels), Calibration()
    stack.count(rng.integers(0, 30, n_labels))
    stack.slopes.copy_(torch.from_numpy(rng.uniform(0.1, 1, stack.slopes.shape)))
    _calibrate(calibration)
    return EnsemblePredictor(members, calibration, stack)


def mean(n_labels, rng):
    """Return an ensemble of two factor models."""
    members = [Member(Same(), factors(n_labels, rng)) for _ in range(2)]
    return EnsemblePredictor(members, members[0].predictor.calibration)


def mean_of_machines(n_labels, rng):
    """Return an ensemble of two sets of linear machines with trees."""
    members = [Member(Same(), machines(n_labels, rng)) for _ in range(2)]
    return EnsemblePredictor(members, members[0].predictor.calibration)


def _calibrate(calibration):
    calibration.slopes.fill_(0.9)
    calibration.offsets.copy_(torch.linspace(0.5, -0.5, len(calibration.offsets)))
