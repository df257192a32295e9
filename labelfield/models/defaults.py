"""Sizes and rates for a data set that nobody chose them for: a rule of N, D and K.

| what | rule | why |
|---|---|---|
| kernel | se_ard + linear from 1,000 features on, else se_ard | the linear part helps text, and costs Delicious 0.5 |
| P, latent processes | K, at most 300 | EUR-Lex: 300 to 500 is worth 0.4 P@1 and costs in proportion |
| M, inducing inputs | 400, at most N | 200 loses a point on EUR-Lex |
| B, rows a batch | N / 20, from 100 to 500 | small sets need steps, large ones want large products |
| epochs | 1,000 steps (640 above 1,000 labels), from 20 to 60 epochs | a one-cycle run has settled by then |
| learning rate | 0.01 (0.03 above 1,000 labels) | rare labels need the larger one to move at all |
| start of q's means | N(0, 0.3²) (N(0, 1) above 1,000 labels) | the wider gains 1 on EUR-Lex and costs Delicious 0.5 |
| negatives | all labels up to 1,000, else 300 drawn for each batch | beyond, all labels cost more than they teach |
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

__all__ = ["Plan", "plan"]

_MANY_LABELS = 1000
_TEXT_FEATURES = 1000


@dataclass(frozen=True)
class Plan:
    """What the rule chose."""

    kernel: str
    n_latent: int
    n_inducing: int
    batch_size: int
    max_epochs: int
    learning_rate: float
    start_mean: float
    n_negatives: int | None


def plan(n_rows: int, n_features: int, n_labels: int) -> Plan:
    """The rule above."""
    has_many_labels = n_labels > _MANY_LABELS
    batch_size = min(500, max(100, ceil(n_rows / 20)), max(n_rows, 1))
    steps = max(1, ceil(n_rows / batch_size))
    return Plan(
        kernel="se_ard + linear" if n_features >= _TEXT_FEATURES else "se_ard",
        n_latent=min(n_labels, 300),
        n_inducing=min(400, max(n_rows, 1)),
        batch_size=batch_size,
        max_epochs=min(60, max(20, ceil((640 if has_many_labels else 1000) / steps))),
        learning_rate=0.03 if has_many_labels else 0.01,
        start_mean=1.0 if has_many_labels else 0.3,
        n_negatives=300 if has_many_labels else None,
    )
