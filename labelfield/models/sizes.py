"""The sizes at which default rules change, shared by all models."""

# From this many features on, rows are treated as bags of words; below it as measurements.
VOCABULARY = 1000
# The number of features, the most frequent ones, on which inducing inputs have values: K_Z costs M² per feature, and a
# rare word distinguishes rows, which their norms still show, but does not bring them together.
SUPPORT = 8192
# Up to this many labels, every step uses all of them.
ALL_LABELS = 5000
MANY_ROWS = 100_000


def support_size(asked: int | None, n_features: int) -> int:
    """Return how many features inducing inputs have values on (0 for all): as asked, or by the rule."""
    wanted = SUPPORT if asked is None else asked
    return wanted if 0 < wanted < n_features else 0
