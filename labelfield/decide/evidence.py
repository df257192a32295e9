"""A model's predictions for rows that it had not seen, and the true labels: the evidence for promises."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from labelfield.csr import from_counts
from labelfield.errors import CannotAnswerError

# Held-out rows that are kept at the most, evenly among all.
MOST_ROWS = 20_000
# With fewer, no promise is worth making.
LEAST_ROWS = 100
# From this number on, maps of probabilities that half of the rows taught are as good as those of all.
_MANY_ROWS = 1000
_ARRAYS = ("labels", "p", "true_counts", "true_labels")
_IS_KNOWN = "is_known"


class Outcome(NamedTuple):
    """The effect of a threshold on each held-out row: its number of tags whose truth is known, and of correct ones."""

    n_tags: NDArray[np.int64]
    n_hits: NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Evidence:
    """The best labels (n, k) of held-out rows with their probabilities, most probable first, and the true labels.

    Probabilities are those that the model gives to new rows: every row was scored by a model, and by a map of its
    probabilities, that had not seen it. `is_known` (n, k) tells for which labels the truth was observed: others become
    tags as in a new row, and are neither right nor wrong. A probability of -1 fills up a row with fewer labels.
    """

    labels: NDArray[np.int32]
    p: NDArray[np.float32]
    true_counts: NDArray[np.int64]
    true_labels: NDArray[np.int32]
    is_known: NDArray[np.bool_]
    n_labels: int

    @classmethod
    def of(
        cls,
        labels: NDArray[np.integer],
        p: NDArray[np.floating],
        Y: sparse.csr_array,
        is_known: NDArray[np.bool_] | None = None,
    ) -> Evidence:
        """Gather evidence from the labels (n, k) of rows in any order, their probabilities, and the true labels Y."""
        kept = np.unique(np.linspace(0, max(len(p) - 1, 0), min(len(p), MOST_ROWS)).astype(np.int64))
        parts: list[NDArray[Any]] = [p[kept], labels[kept], (p >= 0 if is_known is None else is_known & (p >= 0))[kept]]
        if (parts[0][:, 1:] > parts[0][:, :-1]).any():
            order = np.argsort(-parts[0], axis=1, kind="stable")
            parts = [np.take_along_axis(part, order, 1) for part in parts]
        values, labels, known = parts
        Y = sparse.csr_array(Y)[kept]
        return cls(
            labels.astype(np.int32),
            values.astype(np.float32),
            np.diff(Y.indptr).astype(np.int64),
            Y.indices.astype(np.int32),
            known,
            max(int(Y.shape[1]), int(labels.max(initial=-1)) + 1),  # rows may be of a file that has fewer
        )

    @classmethod
    def of_scores(cls, scores: sparse.csr_array, Y: sparse.csr_array) -> Evidence:
        """Gather evidence from predictions in CSR with the same number of labels in each row, as `predict_topk` gives
        them for rows that were not trained on."""
        shape = (scores.shape[0], -1)
        return cls.of(scores.indices.reshape(shape), scores.data.reshape(shape), Y)

    @classmethod
    def restore(cls, arrays: dict[str, NDArray[Any]], n_labels: int) -> Evidence:
        """Make evidence of arrays from anyone; raise a ValueError where they do not fit together."""
        # Earlier folders do not say what is known: there, labels that were not observed have no probability.
        is_known = arrays.get(_IS_KNOWN, arrays["p"] >= 0)
        found = cls(**{name: arrays[name] for name in _ARRAYS}, is_known=is_known, n_labels=n_labels)
        labels, p, counts, true = (getattr(found, name) for name in _ARRAYS)
        fits = (
            labels.ndim == 2
            and labels.shape == p.shape
            and is_known.shape == p.shape
            and is_known.dtype == np.bool_
            and not (is_known & (p < 0)).any()
            and counts.shape == (len(labels),)
            and true.ndim == 1
            and (counts >= 0).all()
            and counts.sum() == true.size
            and all(part.dtype.kind == "i" for part in (labels, counts, true))
            and all((part >= 0).all() and (part < n_labels).all() for part in (labels, true))
            and p.dtype.kind == "f"
            and bool(((p >= 0) & (p <= 1) | (p == -1)).all())
            and bool((np.diff(p, axis=1) <= 0).all())
        )
        if not fits:
            raise ValueError("what was said of held-out rows does not fit together")
        return found

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return all of it, as arrays that a model folder can hold."""
        return {name: np.ascontiguousarray(getattr(self, name)) for name in (*_ARRAYS, _IS_KNOWN)}

    @property
    def n_rows(self) -> int:
        """The number of rows."""
        return len(self.p)

    @property
    def n_listed(self) -> int:
        """How many labels of each row are known."""
        return int(self.p.shape[1])

    @cached_property
    def truth(self) -> sparse.csr_array:
        """The true labels (n, K)."""
        return from_counts(self.true_counts, self.true_labels, None, self.n_labels)

    @cached_property
    def hit(self) -> NDArray[np.bool_]:
        """Which of the listed labels (n, k) hold."""
        true = np.repeat(np.arange(self.n_rows), self.true_counts) * self.n_labels + self.true_labels
        found = np.isin(np.arange(self.n_rows)[:, None] * self.n_labels + self.labels, true)
        return np.asarray(found & self.is_known)

    @cached_property
    def _among_first(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """How many of the first 0, 1, … k labels are known, and how many hold (n, k + 1)."""
        known, hits = (np.cumsum(part, axis=1, dtype=np.int64) for part in (self.is_known, self.hit))
        return np.pad(known, ((0, 0), (1, 0))), np.pad(hits, ((0, 0), (1, 0)))

    def outcome(self, threshold: float, max_tags: int) -> Outcome:
        """Return the outcome of tagging labels of at least this probability, up to a number per row."""
        # The most probable come first: no more of them can become tags.
        place = np.arange(self.n_rows), np.count_nonzero(self.p[:, :max_tags] >= np.float32(threshold), axis=1)
        known, hits = self._among_first
        return Outcome(known[place], hits[place])

    def take(self, rows: NDArray[Any]) -> Evidence:
        """Return some of the rows."""
        Y = self.truth[rows]
        counts = np.diff(Y.indptr).astype(np.int64)
        return Evidence(self.labels[rows], self.p[rows], counts, Y.indices, self.is_known[rows], self.n_labels)

    def held_out_positives(self) -> NDArray[np.int64]:
        """Return in how many held-out rows each label (K,) holds."""
        return np.bincount(self.true_labels, minlength=self.n_labels)

    def require_rows(self) -> None:
        """Raise if the rows are too few to promise anything."""
        if self.n_rows < LEAST_ROWS:
            raise CannotAnswerError(
                f"{self.n_rows} rows were held out in training, and a promise needs at least {LEAST_ROWS}. "
                "Train on more rows, or set rows of your own aside and fit a policy to them (labelfield.decide)"
            )


def folds(n_rows: int) -> Iterator[NDArray[np.bool_]]:
    """Yield which rows are in each fold: of few rows nearly all are needed to learn from, of many a half is enough.

    Held-out rows were drawn at random, so that their order does not matter.
    """
    n_folds = 5 if n_rows < _MANY_ROWS else 2
    number = np.arange(n_rows) % max(1, min(n_folds, n_rows))
    for one in range(int(number.max(initial=-1)) + 1):
        yield number == one
