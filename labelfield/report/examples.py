"""Ten test rows worth looking at, with what the model says of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from labelfield.csr import gather_rows
from labelfield.explain import intervals
from labelfield.report.answers import Answers

__all__ = ["LEVEL", "Example", "Guess", "choose_rows", "examples"]

LEVEL = 0.9
# How many rows of each kind are wanted, and in which words.
_WANTED = {"sure and right": 3, "sure and wrong": 3, "unsure and right": 2, "unsure and wrong": 2}
_N_ROWS = sum(_WANTED.values())


@dataclass(frozen=True)
class Guess:
    """A label that the model names: its number, probability, credible interval where there is one, and the verdict."""

    label: int
    p: float
    interval: tuple[float, float] | None
    is_right: bool


@dataclass(frozen=True)
class Example:
    """A test row: its number from 0, why it was chosen, what the model says of it, and which labels it missed."""

    row: int
    kind: str
    uncertainty: float
    guesses: list[Guess]
    missed: list[int]


def choose_rows(answers: Answers) -> list[tuple[int, str]]:
    """Rows from which one learns something: the surest and the least sure, right and wrong.

    Within a kind no first label comes twice while there are others; rows without labels come only if nothing else is
    left. Where a kind has too few rows, the least sure of the others fill up.
    """
    order = np.argsort(answers.uncertainty, kind="stable")
    order = np.concatenate([order[answers.judged.n_true[order] > 0], order[answers.judged.n_true[order] == 0]])
    has_labels = answers.judged.n_true > 0
    first = answers.judged.ranked.labels[:, 0]
    chosen: dict[int, str] = {}
    for kind, n in _WANTED.items():
        asked = order[(answers.is_wrong[order] == kind.endswith("wrong")) & has_labels[order]]
        asked = asked if kind.startswith("sure") else asked[::-1]
        _take(chosen, asked, first, kind, n)
    rest = np.array([row for row in order[::-1] if row not in chosen], np.int64)
    for row in rest[: max(0, _N_ROWS - len(chosen))]:
        chosen[int(row)] = "unsure and wrong" if answers.is_wrong[row] else "unsure and right"
    return sorted(chosen.items(), key=lambda item: list(_WANTED).index(item[1]))


def _take(chosen: dict[int, str], asked: NDArray[np.int64], first: NDArray[np.int64], kind: str, n: int) -> None:
    """The first n of the rows asked for that are not chosen yet, with unlike first labels where possible."""
    free = [int(row) for row in asked if int(row) not in chosen]
    _, where = np.unique(first[free], return_index=True) if free else (None, np.zeros(0, np.int64))
    unlike = [free[i] for i in np.sort(where)]
    others = [row for row in free if row not in set(unlike[:n])]
    for row in (unlike[:n] + others)[:n]:
        chosen[row] = kind


def examples(estimator: Any, X: sparse.csr_array, answers: Answers) -> list[Example]:
    """What the model says of the chosen rows; credible intervals are found for these rows alone."""
    rows = choose_rows(answers)
    numbers = np.array([row for row, _ in rows], np.int64)
    ends = intervals(estimator, gather_rows(X, numbers), LEVEL)
    result = []
    for place, (row, kind) in enumerate(rows):
        ranked, hit = answers.judged.ranked, answers.judged.hit
        named = [i for i in range(hit.shape[1]) if ranked.labels[row, i] >= 0]
        guesses = []
        for i in named:
            label = int(ranked.labels[row, i])
            own = None if ends is None else (float(ends[0][place, label]), float(ends[1][place, label]))
            guesses.append(Guess(label, float(ranked.scores[row, i]), own, bool(hit[row, i])))
        true = answers.Y.indices[answers.Y.indptr[row] : answers.Y.indptr[row + 1]]
        missed = [int(label) for label in true if label not in {guess.label for guess in guesses}]
        result.append(Example(row, kind, float(answers.uncertainty[row]), guesses, missed))
    return result
