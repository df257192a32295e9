"""The costs that linear machines choose from, most likely first, and when they get label trees.

The cost is near 1 for rows of norm 1, and smaller where labels are frequent. If there are very many labels, most are
rare, and label trees rank short texts better than one machine per label and take a fraction of the time. With fewer
labels they add nothing.
"""

from math import ceil

from labelfield.models.sizes import ALL_LABELS

COSTS = (1.0, 0.3, 0.1, 3.0)
# Trees that differ make fewer of the same mistakes.
_TREES = 3
# Upper groups of a tree at the most, and labels that are in one on average at the least; labels per lower group.
_UPPER_GROUPS, _LEAST_UPPER_SIZE, LOWER_SIZE = 100, 64, 16
# Levels of groups of a tree: upper and lower ones.
N_LEVELS = 2

# The most held-out rows times machines: their scores are in memory. More rows teach nothing further.
_HELD_OUT_ENTRIES, _MOST_HELD_OUT = 1 << 27, 50_000
# Bytes that the copy of the rows for a block of labels may take, for each thread. More rows are read where they are.
COPIED_BYTES = 1 << 28
# The prior standard deviation of the intercepts of trees: within a group, labels are frequent.
TREE_DEVIATION = 1.0
# f + 1 of a machine that has no row where it does not hold: a group that is the only one of its upper group.
CERTAIN = 2.0


def most_held_out(n_machines: int) -> int:
    """Return the largest number of rows that can be held out."""
    return min(_MOST_HELD_OUT, max(200, _HELD_OUT_ENTRIES // max(n_machines, 1)))


def default_trees(n_labels: int) -> int:
    """Return how many label trees this many labels get."""
    return _TREES if n_labels > ALL_LABELS else 0


def most_upper(n_seen: int) -> int:
    """Return how many upper groups a tree has at the most, if so many labels hold in some row."""
    return min(_UPPER_GROUPS, ceil(n_seen / _LEAST_UPPER_SIZE))


def n_machines(n_labels: int, n_seen: int, n_trees: int) -> int:
    """Return how many machines there are at the most for labels of which n_seen hold in some row.

    Without trees each label has one. With trees it has one in each, and each group has one; one lower group in each
    upper group need not be full.
    """
    return n_trees * (n_labels + 2 * most_upper(n_seen) + n_seen // LOWER_SIZE) or n_labels
