"""Defaults for a topic model."""

_EPOCHS = {"em": 100, "online_em": 20, "gibbs": 200}
ALGORITHMS = tuple(_EPOCHS)
_MOST_TOPICS = 100
# The last epochs, in which rows that were held out take part: a number, or a share of all. EM needs few, since it goes
# on from where it is; a sampler has to forget where it was.
_FINISHING = {"em": 4, "online_em": 1 / 3, "gibbs": 1 / 2}


def default_epochs(algorithm: str) -> int:
    """Return how many passes over the rows an algorithm takes."""
    return _EPOCHS[algorithm]


def default_topics(n_labels: int) -> int:
    """Return 100 topics, or one per label where there are fewer: fewer topics than that cannot tell labels apart."""
    return min(_MOST_TOPICS, n_labels)


def finishing_epochs(algorithm: str, max_epochs: int) -> int:
    """Return how many of the epochs are on all rows, where some rows are held out before."""
    finishing = _FINISHING[algorithm]
    return min(int(finishing), max_epochs // 3) if finishing >= 1 else int(finishing * max_epochs)
