"""The memory that solving linear machines takes."""

from labelfield.memory import FLOAT
from labelfield.models.linear.plan import COPIED_BYTES
from labelfield.models.linear.spec import LinearSpec

# Labels and blocks of them that are solved at the same time, and arrays that exist for each row and feature.
_LABELS, _BLOCKS, _ARRAYS = 128, 2, 4
# The most features that a machine has weights for; and one within a group of labels, which sees few rows.
_FEATURES, _FEATURES_WITHIN = 10_000, 500


def training_bytes(spec: LinearSpec, n_rows: int, n_ranks: int = 1) -> int:
    """Estimate the bytes that a step takes besides the rows, and those of all weights if none could be dropped; with
    several processes, those of each."""
    n_at_once = min(spec.n_labels, _LABELS)
    rows = min(_ARRAYS * FLOAT * n_rows * n_at_once, _BLOCKS * COPIED_BYTES)
    block = rows + _ARRAYS * FLOAT * spec.n_features * n_at_once
    n_within = spec.n_trees * spec.n_labels
    n_whole = (spec.n_machines or spec.n_labels) - n_within
    weights = n_whole * min(spec.n_features, _FEATURES) + n_within * min(spec.n_features, _FEATURES_WITHIN)
    return block + 2 * FLOAT * weights // n_ranks
