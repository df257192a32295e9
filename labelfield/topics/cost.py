"""The memory that training a topic model takes, estimated in advance."""

from labelfield.memory import FLOAT
from labelfield.topics.spec import TopicSpec


def training_bytes(spec: TopicSpec, batch_size: int, is_exact: bool, keeps_matrices: bool = False) -> int:
    """Return the largest arrays of a step on this many rows; an exact solve for W also takes D² numbers, and online EM
    that keeps a matrix per topic K D² of them, three times."""
    of_rows, of_labels, of_features = (size * spec.n_topics for size in (batch_size, spec.n_placed, spec.n_features))
    exact = 24 * spec.n_features**2 * (spec.n_topics if keeps_matrices else int(is_exact))
    return FLOAT * (10 * of_rows + 6 * of_labels + 8 * of_features + of_labels * spec.n_draws) + exact
