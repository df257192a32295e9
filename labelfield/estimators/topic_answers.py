"""What a fitted topic model answers beside probabilities: topics by name, proportions, samples, what it doubts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor

from labelfield.csr import as_positives, gather_rows
from labelfield.estimators.options import advising_on_memory, choose_seed, count_of_labels
from labelfield.estimators.probabilities import FEWER_ROWS, BlockPredictions
from labelfield.linalg.rows import to_tensor
from labelfield.topics.model import TopicModel, TopicSpec
from labelfield.topics.prediction import LARGEST_LOG_ODDS, log_odds, topic_proportions

__all__ = ["Doubts", "Topic", "TopicAnswers"]

# Rows times labels times draws whose probabilities exist at once.
_BLOCK_ENTRIES = 1 << 22
_MOST_ROWS = 4096


class Topic(NamedTuple):
    """A topic: its number, its share in the labels of the training rows, and its first labels with their weights."""

    number: int
    share: float
    labels: list[tuple[Any, float]]


class Doubts(NamedTuple):
    """Of rows (N,) and of labels (L,): the entropy, in nats, of what the model says of each, summed over the other."""

    rows: NDArray[np.float64]
    labels: NDArray[np.float64]


class TopicAnswers(BlockPredictions):
    """The answering half of a topic classifier."""

    model_: TopicModel
    spec_: TopicSpec
    threshold: float

    def _method(self) -> str:
        return "topics"

    def _blocks(self, rows: sparse.csr_array) -> Iterator[tuple[slice, Tensor]]:
        step = max(1, min(_MOST_ROWS, _BLOCK_ENTRIES // self.spec_.n_labels))
        for first in range(0, rows.shape[0], step):
            block = slice(first, min(first + step, rows.shape[0]))
            with advising_on_memory(FEWER_ROWS):
                X = to_tensor(gather_rows(rows, np.arange(block.start, block.stop)), self.model_.device)
            yield block, X

    def _probabilities(self, rows: sparse.csr_array, calibrated: bool) -> Iterator[tuple[slice, Tensor]]:
        for block, X in self._blocks(rows):
            with torch.no_grad(), advising_on_memory(FEWER_ROWS):
                P = self.model_.predict_proba(X)
                if self.label_kind_ == "classes":  # one of them holds
                    total = P.sum(1, keepdim=True)
                    P = torch.where(total > 0, P / total, 1 / self.spec_.n_labels)
                P = self._calibrated(self.model_.calibration, P) if calibrated else P
            yield block, P

    # Topics

    def topics(self, n: int = 10, label_names: Sequence[str] | None = None) -> list[Topic]:
        """The topics, those that most labels come from first, each with its n first labels by name."""
        self._check_fitted()
        _require_names(label_names, self.spec_.n_labels, "label")
        names = self._names() if label_names is None else label_names
        V, shares = self.model_.mean_weights(), self.model_.share
        weight, place = V.topk(min(count_of_labels(n, "n"), V.shape[0]), dim=0)
        label = self.model_.labels[place].T.tolist()
        found = []
        for number in shares.argsort(descending=True, stable=True).tolist():
            pairs = zip(label[number], weight[:, number].tolist(), strict=True)
            found.append(Topic(number, float(shares[number]), [(names[column], value) for column, value in pairs]))
        return found

    def top_features(
        self, topic: int, n: int = 10, feature_names: Sequence[str] | None = None
    ) -> list[tuple[Any, float]]:
        """The features that most raise a topic, by name or number, and their weights in ψ."""
        self._check_fitted()
        is_number = isinstance(topic, int | np.integer) and not isinstance(topic, bool)
        if not is_number or not 0 <= topic < self.spec_.n_topics:
            raise ValueError(f"topic={topic!r}; expected a number from 0 to {self.spec_.n_topics - 1}")
        weights = self.row_transform_.fold(self.model_.W.mean(0)[:-1, topic].cpu().numpy())
        _require_names(feature_names, len(weights), "feature")
        best = np.argsort(-weights, kind="stable")[: count_of_labels(n, "n")]
        return [(int(d) if feature_names is None else feature_names[d], float(weights[d])) for d in best]

    def transform(self, X: Any) -> NDArray[np.float32]:
        """The proportions of topics in rows (N, K); rows sum to one."""
        rows = self._rows(X)
        found = np.empty((rows.shape[0], self.spec_.n_topics), np.float32)
        for block, some in self._blocks(rows):
            with torch.no_grad():
                found[block] = topic_proportions(some, self.model_.drawn()).cpu().numpy()
        return found

    def fit_transform(self, X: Any, y: Any = None, **options: Any) -> NDArray[np.float32]:
        """Fit, and give the proportions of topics in the same rows."""
        return self.fit(X, y, **options).transform(X)

    def sample(self, X: Any, random_state: Any = None) -> sparse.csr_array:
        """A draw of the labels of each row from the model, as a CSR indicator (N, L); of several draws of V, W and r
        one is taken for each row. Labels of a row are drawn together, which knows nothing of the map of each one's
        probability: as often as `predict_proba(X, calibrated=False)` says."""
        rows = self._rows(X)
        rng = np.random.default_rng(choose_seed(random_state))
        model, n_draws = self.model_, self.spec_.n_draws
        whose = rng.integers(n_draws, size=rows.shape[0])
        row_parts, label_parts = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
        placed = model.labels.cpu().numpy()
        others = np.setdiff1d(np.arange(self.spec_.n_labels), placed, assume_unique=True)
        for number in range(n_draws):
            own = np.flatnonzero(whose == number)
            if own.size == 0:
                continue
            X_own = to_tensor(gather_rows(rows, own), model.device)
            psi = log_odds(X_own, model.W[number]).double().cpu().numpy()
            r = model.r[number].double().cpu().numpy()
            U = rng.gamma(r, np.exp(np.minimum(psi, LARGEST_LOG_ODDS)))
            # Where a topic gives more counts than there are labels, each label is asked for instead.
            is_many = self.spec_.n_labels < U
            counts = rng.poisson(np.where(is_many, 0.0, U))
            for k in range(self.spec_.n_topics):
                ends = np.cumsum(model.V[number, :, k].double().cpu().numpy())
                rest = float(model.rest[number, k])
                total = ends[-1] + len(others) * rest if len(ends) else 1.0
                u = rng.random(int(counts[:, k].sum())) * total
                place = np.searchsorted(ends, u, side="right")
                is_placed = place < len(placed)
                label = np.empty(u.size, np.int64)
                label[is_placed] = placed[place[is_placed]]
                n_others = int((~is_placed).sum())
                label[~is_placed] = others[rng.integers(len(others), size=n_others)] if len(others) else placed[-1]
                row_parts.append(np.repeat(own, counts[:, k]))
                label_parts.append(label)
                v = np.full(self.spec_.n_labels, rest)
                v[placed] = np.diff(ends, prepend=0.0)
                for n in np.flatnonzero(is_many[:, k]):
                    label = np.flatnonzero(rng.random(v.size) < -np.expm1(-v * U[n, k]))
                    row_parts.append(np.full(label.size, own[n]))
                    label_parts.append(label)
        row, label = np.concatenate(row_parts), np.concatenate(label_parts)
        shape = (rows.shape[0], self.spec_.n_labels)
        return as_positives(sparse.coo_array((np.ones(row.size, np.float32), (row, label)), shape=shape).tocsr())

    # What to ask for next

    def doubts(self, X: Any) -> Doubts:
        """How little the model knows of each row and of each label on these rows, by entropy: for active learning."""
        rows = self._rows(X)
        of_rows, of_labels = np.empty(rows.shape[0]), np.zeros(self.spec_.n_labels)
        for block, P in self._probabilities(rows, calibrated=True):
            each = torch.special.entr(P).add_(torch.special.entr(1 - P))
            of_rows[block] = each.sum(1, dtype=torch.float64).cpu().numpy()
            of_labels += each.sum(0, dtype=torch.float64).cpu().numpy()
        return Doubts(of_rows, of_labels)

    def most_uncertain(self, X: Any, n: int = 10) -> tuple[NDArray[np.int64], NDArray[Any]]:
        """The n rows, and the n labels on these rows, that the model knows least of, the least known first."""
        found, n = self.doubts(X), count_of_labels(n, "n")
        rows, labels = (np.argsort(-values, kind="stable")[:n] for values in found)
        return rows, self.classes_[labels]


def _require_names(names: Sequence[str] | None, n: int, what: str) -> None:
    if names is not None and len(names) != n:
        raise ValueError(f"{len(names)} {what} names; expected {n}")
