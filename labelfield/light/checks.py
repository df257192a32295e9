"""Checks of a folder from anyone, before its arrays are computed with: the shapes its specs say, and sound numbers.

These are the checks of `labelfield/estimators/validation.py` and `labelfield/models/validation.py`, without torch. What
fails here is left to the estimators, which say what is wrong.
"""

from __future__ import annotations

from math import isfinite
from typing import Any

import numpy as np

from labelfield.data.transform import RowTransform
from labelfield.light.answers import Arrays
from labelfield.models.linear.plan import N_LEVELS
from labelfield.models.linear.scores import Weights

# As in stack.py, calibration.py, linear/spec.py and sparse.py of `models`, and in `estimators/ensemble.py`.
_N_LEVELS, _N_KNOTS, _N_RANKS, _MOST_TREES, _MOST_POINTS, _MOST_MEMBERS = 3, 4, 6, 16, 100, 8
# Type and shape of each array.
_Shapes = dict[str, tuple[type[np.generic], tuple[int, ...]]]


def check_folder(config: dict[str, Any], arrays: Arrays, n_labels: int) -> None:
    """Raise a ValueError if the members of a mix do not fit together, or what joins them is not sound."""
    members = config.get("members", [config])
    if not isinstance(members, list) or not 1 <= len(members) <= _MOST_MEMBERS:
        raise ValueError("the members are not a short list")
    if any(_count(own["spec"], "n_labels", 1) != n_labels for own in members):
        raise ValueError(f"{n_labels} label names for another number of labels")
    if "members" in config:
        _check_shapes(arrays, _stack(len(members), n_labels) | _calibration(arrays))
        _check_order(arrays)


def check_transform(transform: RowTransform, n_features: int, spec: dict[str, Any]) -> None:
    """Raise a ValueError if rows of documents do not become those that a member knows."""
    for values in (transform.weights, transform.shifts):
        if values is not None and (values.shape != (n_features,) or values.dtype != np.float32):
            raise ValueError("weights or shifts of other features")
        if values is not None and not np.isfinite(values).all():
            raise ValueError("weights or shifts of features that are not finite")
    if transform.weights is not None and not (transform.weights > 0).all():
        raise ValueError("weights of features that are not positive")
    if transform.n_columns(n_features) != _count(spec, "n_features", 1):
        raise ValueError(f"{n_features} features make other columns")


def check_linear(arrays: Arrays, spec: dict[str, Any]) -> None:
    """Raise a ValueError if linear machines are not as their spec says, or point outside their features."""
    n_labels, n_features, n_weights = (_count(spec, f"n_{name}") for name in ("labels", "features", "weights"))
    n_trees = _count(spec, "n_trees", 0, _MOST_TREES)
    n_machines = _count(spec, "n_machines") or n_labels
    n_levels, has_own = _count({"n_levels": 1} | spec, "n_levels", 1, N_LEVELS), spec.get("has_own", True)
    if not isinstance(has_own, bool) or not (has_own or n_trees):
        raise ValueError("no machines")
    n_before = (n_trees + has_own) * n_labels
    if n_machines != n_labels if n_trees == 0 else n_machines <= n_before:
        raise ValueError(f"{n_machines} machines do not fit {n_labels} labels and {n_trees} trees")
    own: _Shapes = {
        "groups": (np.int64, (n_levels * n_trees, n_labels)),
        "pointers": (np.int64, (n_machines + 1,)),
        "features": (np.int32, (n_weights,)),
        "weights": (np.float32, (n_weights,)),
        "intercepts": (np.float32, (n_machines,)),
    }
    _check_shapes(arrays, own | _stack(has_own + (n_trees > 0), n_labels) | _calibration(arrays))
    _check_order(arrays)
    Weights(*(arrays[name] for name in ("weights", "features", "pointers"))).require_inside(n_features)
    groups = arrays["groups"]
    if groups.size and not n_before <= int(groups.min()) <= int(groups.max()) < n_machines:
        raise ValueError("labels of groups that do not exist")


def check_factors(arrays: Arrays, spec: dict[str, Any]) -> None:
    """Raise a ValueError if a factor model is not as its spec says, or has inducing inputs outside its features."""
    d, k, p, m = (_count(spec, f"n_{name}", 1) for name in ("features", "labels", "latent", "inducing"))
    n_support = _count(spec, "n_support", 0, d)
    _count(spec, "n_points", 1, _MOST_POINTS)
    jitter = spec["jitter"]
    if not isinstance(spec["unit_norm"], bool) or isinstance(jitter, bool) or not isinstance(jitter, int | float):
        raise ValueError("unit_norm or jitter is something else")
    if not (isfinite(jitter) and jitter >= 0):
        raise ValueError(f"jitter={jitter!r}; expected a number of at least 0")
    own: _Shapes = {
        "Phi": (np.float32, (k, p)),
        "b": (np.float32, (k,)),
        "family.mean": (np.float32, (p, m)),
        "family.log_var": (np.float32, (p, m)),
        "inducing.transposed": (np.float32, (n_support or d, m)),
        "kernel.log_variance": (np.float32, ()),
        "kernel.log_slope": (np.float32, ()),
        "kernel.log_weights": (np.float32, (d,)),
    }
    support: _Shapes = {"inducing.support": (np.int32, (n_support,))} if n_support else {}
    _check_shapes(arrays, own | support | _calibration(arrays))
    _check_order(arrays)
    if n_support and not 0 <= int(arrays["inducing.support"].min()) <= int(arrays["inducing.support"].max()) < d:
        raise ValueError("the inducing inputs have values on features that do not exist")


def _count(spec: dict[str, Any], name: str, least: int = 0, most: int | None = None) -> int:
    value = spec[name]
    is_count = isinstance(value, int) and not isinstance(value, bool)
    if not is_count or value < least or (most is not None and value > most):
        raise ValueError(f"{name}={value!r} is no such number")
    return int(value)


def _stack(n_parts: int, n_labels: int) -> _Shapes:
    return {
        "stack.slopes": (np.float32, (n_parts, _N_LEVELS)),
        "stack.offsets": (np.float32, (_N_LEVELS,)),
        "stack.places": (np.float32, (n_labels, _N_LEVELS)),
        "stack.unseen": (np.float32, (n_labels,)),
    }


def _calibration(arrays: Arrays) -> _Shapes:
    lead: _Shapes = {"calibration.lead": (np.float32, (2,))} if "calibration.lead" in arrays else {}
    sizes = {"knots": _N_KNOTS, "slopes": _N_KNOTS + 1, "offsets": _N_RANKS}
    return lead | {f"calibration.{name}": (np.float32, (size,)) for name, size in sizes.items()}


def _check_shapes(arrays: Arrays, expected: _Shapes) -> None:
    for name, (kind, shape) in expected.items():
        array = arrays[name]
        if array.dtype != kind or array.shape != shape:
            raise ValueError(f"{name} is {array.dtype} of shape {array.shape}")
        if kind is np.float32 and not np.isfinite(array).all():
            raise ValueError(f"{name} holds numbers that are not finite")


def _check_order(arrays: Arrays) -> None:
    """Check that what turns scores into probabilities keeps their order."""
    slopes, offsets = (arrays[f"calibration.{name}"] for name in ("slopes", "offsets"))
    lead = arrays.get("calibration.lead")
    if not (slopes > 0).all() or (np.diff(offsets) > 0).any() or (lead is not None and lead[1] < 0):
        raise ValueError("the calibration would change the ranking")
    if any((arrays[name] < 0).any() for name in ("stack.slopes", "stack.places") if name in arrays):
        raise ValueError("the weights of members are not numbers of at least 0")
