"""Defaults for a topic model."""

from dataclasses import dataclass

_EPOCHS = {"em": 100, "online_em": 20, "gibbs": 200}
ALGORITHMS = tuple(_EPOCHS)
_MOST_TOPICS = 100
# The last epochs, in which rows that were held out take part: a number, or a share of all. EM needs few, since it goes
# on from where it is; a sampler has to forget where it was.
_FINISHING = {"em": 4, "online_em": 1 / 3, "gibbs": 1 / 2}


@dataclass(frozen=True)
class TopicPlan:
    """The choices of the rule. The steps of a topic model have a size of 1, whatever the schedule."""

    n_topics: int
    max_epochs: int
    learning_rate: float = 1.0
    schedule: str = "constant"


def plan(algorithm: str, n_labels: int) -> TopicPlan:
    """Choose 100 topics, or one per label if there are fewer labels; with fewer topics, labels cannot be told apart."""
    return TopicPlan(min(_MOST_TOPICS, n_labels), _EPOCHS[algorithm])


def finishing_epochs(algorithm: str, max_epochs: int) -> int:
    """Return the number of final epochs on all rows, after some rows were held out."""
    finishing = _FINISHING[algorithm]
    return min(int(finishing), max_epochs // 3) if finishing >= 1 else int(finishing * max_epochs)
