"""The costs that linear machines choose from, most likely first, and when they get label trees.

The cost is near 1 for rows of norm 1, and smaller where labels are frequent. Label trees help if there are very many
labels: on three sets of short texts with 15,000 to 20,000 labels they are worth half a point to two points of P@1. With
fewer labels they add nothing.
"""

from math import ceil

from labelfield.models.sizes import ALL_LABELS

COSTS = (1.0, 0.3, 0.1, 3.0)
# Labels per group, of each tree in turn: trees that differ make fewer of the same mistakes.
_GROUP_SIZES = (64, 16, 32)

# The most held-out rows times machines: their scores are in memory. More rows teach nothing further.
_HELD_OUT_ENTRIES, _MOST_HELD_OUT = 1 << 26, 50_000
# Bytes that the copy of the rows for a block of labels may take, for each thread. More rows are read where they are.
COPIED_BYTES = 1 << 28
# The cost of the machines of trees, for which no trials are made.
TREE_COST = 1.0


def most_held_out(n_machines: int) -> int:
    """Return the largest number of rows that can be held out."""
    return min(_MOST_HELD_OUT, max(200, _HELD_OUT_ENTRIES // max(n_machines, 1)))


def default_trees(n_labels: int) -> int:
    """Return how many label trees this many labels get."""
    return len(_GROUP_SIZES) if n_labels > ALL_LABELS else 0


def group_size(tree: int) -> int:
    """Return the largest number of labels in a group of this tree."""
    return _GROUP_SIZES[tree % len(_GROUP_SIZES)]


def n_machines(n_labels: int, n_seen: int, n_trees: int) -> int:
    """Return how many machines there are for labels of which n_seen hold in some row: two levels for each tree."""
    return (1 + n_trees) * n_labels + sum(ceil(n_seen / group_size(tree)) for tree in range(n_trees))
