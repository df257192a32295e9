"""What a topic model is made of, apart from its numbers."""

from __future__ import annotations

from dataclasses import dataclass

from labelfield.constraints import Constraint, Flag, Integer, check_options

__all__ = ["TopicSpec"]

_CONSTRAINTS: dict[str, Constraint] = {
    "n_features": Integer(1),
    "n_labels": Integer(1),
    "n_placed": Integer(0),
    "n_topics": Integer(1),
    "n_draws": Integer(1),
    "is_exclusive": Flag(),
}


@dataclass(frozen=True)
class TopicSpec:
    """D features, L labels, A of them with a place of their own, K topics, T draws."""

    n_features: int
    n_labels: int
    n_placed: int
    n_topics: int
    n_draws: int = 1
    is_exclusive: bool = False  # one label per row

    def __post_init__(self) -> None:
        check_options(vars(self), _CONSTRAINTS)
        if self.n_placed > self.n_labels:
            raise ValueError(f"n_placed={self.n_placed}; expected at most n_labels={self.n_labels}")
