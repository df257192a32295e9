"""What solving linear machines costs in memory."""

from labelfield.memory import FLOAT
from labelfield.models.linear.spec import LinearSpec

# Labels that are solved at the same time, and arrays that exist for each row and feature.
_LABELS, _ARRAYS = 128, 4


def training_bytes(spec: LinearSpec, n_rows: int) -> int:
    """Return about how many bytes a step takes beside the rows, and all weights if none could be dropped."""
    block = _ARRAYS * FLOAT * (n_rows + spec.n_features) * min(spec.n_labels, _LABELS)
    return block + 2 * FLOAT * min(spec.n_features, 10_000) * max(spec.n_machines, spec.n_labels)
