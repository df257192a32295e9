"""Predictions of a fitted topic model: probabilities, topics of labels and rows, draws of labels, entropies."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor

from labelfield.csr import as_positives, gather_rows
from labelfield.linalg.rows import to_tensor
from labelfield.memory import FEWER_ROWS, advising_on_memory, row_blocks
from labelfield.models.predictor import Block, Predictor, calibrated_probabilities
from labelfield.topics.density import LARGEST_LOG_ODDS, log_odds, topic_proportions
from labelfield.topics.model import TopicModel
from labelfield.topics.spec import TopicSpec

# The most rows times labels whose probabilities exist at once, and the most rows.
BLOCK_ENTRIES, _MOST_ROWS = 1 << 22, 4096
_SMALLEST = 1e-30


class LabelEntropy(NamedTuple):
    """The entropy of the predictions, in nats: of each row (N,) over its labels, of each label (L,) over rows."""

    rows: NDArray[np.float64]
    labels: NDArray[np.float64]


class TopicPredictor(Predictor):
    """Predictions from one estimate of the topics, or from the mean over several draws."""

    def __init__(self, model: TopicModel, spec: TopicSpec) -> None:
        self.model, self.n_labels, self.is_exclusive = model, spec.n_labels, spec.is_exclusive
        self.calibration = model.calibration

    def blocks(self, rows: sparse.csr_array) -> Iterator[tuple[slice, Tensor]]:
        """Yield blocks of rows where the model is."""
        for block in row_blocks(rows.shape[0], self.n_labels, entries=BLOCK_ENTRIES, most=_MOST_ROWS):
            with advising_on_memory(FEWER_ROWS):
                X = to_tensor(gather_rows(rows, np.arange(block.start, block.stop)), self.model.device)
            yield block, X

    def probabilities(self, rows: sparse.csr_array, calibrated: bool = True) -> Iterator[Block]:
        for block, X in self.blocks(rows):
            with torch.no_grad(), advising_on_memory(FEWER_ROWS):
                P = self.model.predict_proba(X)
                if self.is_exclusive:
                    total = P.sum(1, keepdim=True)
                    P = torch.where(total > 0, P / total, 1 / self.n_labels)
                P = calibrated_probabilities(self.calibration, P) if calibrated else P
            yield Block(block, slice(0, self.n_labels), P)

    def loadings(self) -> Tensor:
        """Return the share of each topic in all labels times that of each label in the topic (L, K)."""
        model = self.model
        whole = model.share.new_zeros(model.n_labels, len(model.share))
        whole[model.labels] = model.V.mean(0) * model.share
        return whole

    def feature_relevance(self) -> NDArray[np.float32]:
        """Return the mean over topics, by their share, of the squared weight of each feature (D,)."""
        W = self.topic_weights().astype(np.float64)
        return np.asarray(W**2 @ self.model.share.double().cpu().numpy(), np.float32)

    def topic_weights(self) -> NDArray[np.float32]:
        """Return the weight of each feature in the ψ of each topic (D, K), as a mean over draws."""
        return np.asarray(self.model.W.mean(0)[:-1].cpu().numpy(), np.float32)

    def proportions(self, rows: sparse.csr_array) -> NDArray[np.float32]:
        """Return the share of each topic in each row (N, K); rows sum to one."""
        found = np.empty((rows.shape[0], len(self.model.share)), np.float32)
        for block, X in self.blocks(rows):
            with torch.no_grad():
                found[block] = topic_proportions(X, self.model.drawn()).cpu().numpy()
        return found

    def topic_shares(self, row: sparse.csr_array, labels: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the share of each topic (k, K) in the rate at which one row has each of these labels; they sum to 1.

        A label holds if any of its counts does, and the counts of topic k come at the rate v_lk u_k, in the mean
        v_lk r_k e^{ψ_k}. Of several draws it is the mean of their shares.
        """
        model = self.model
        X, asked = to_tensor(row, model.device), torch.from_numpy(labels).to(model.device)
        place = torch.searchsorted(model.labels, asked).clamp_(max=max(len(model.labels) - 1, 0))
        is_placed = (model.labels[place] == asked) if len(model.labels) else torch.zeros_like(asked, dtype=torch.bool)
        found = []
        with torch.no_grad():
            for V, rest, W, r in zip(*model.drawn(), strict=True):
                weight = rest.expand(len(asked), -1).clone()
                weight[is_placed] = V[place[is_placed]]
                logs = weight.double().clamp_min(_SMALLEST).log() + r.double().log() + log_odds(X, W).double()
                found.append(logs.softmax(1))
            return np.asarray(torch.stack(found).mean(0).cpu().numpy(), np.float64)

    def first_labels(self, n: int) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Return the n labels with the largest weight in each topic (K, n), largest first, and their weights."""
        V = self.model.V.mean(0)
        weight, place = V.topk(min(n, V.shape[0]), dim=0)
        return self.model.labels[place].T.cpu().numpy(), weight.T.cpu().numpy()

    def entropy(self, rows: sparse.csr_array) -> LabelEntropy:
        """Return how little the model knows of each row, and of each label on these rows."""
        of_rows, of_labels = np.empty(rows.shape[0]), np.zeros(self.n_labels)
        for block, _, P in self.probabilities(rows):
            each = torch.special.entr(P).add_(torch.special.entr(1 - P))
            of_rows[block] = each.sum(1, dtype=torch.float64).cpu().numpy()
            of_labels += each.sum(0, dtype=torch.float64).cpu().numpy()
        return LabelEntropy(of_rows, of_labels)

    def sample(self, rows: sparse.csr_array, rng: np.random.Generator) -> sparse.csr_array:
        """Draw the labels of each row from the model, as a CSR indicator (N, L).

        Of several draws of V, W and r each row takes one.
        """
        n_draws = len(self.model.r)
        whose = rng.integers(n_draws, size=rows.shape[0])
        parts = [(np.zeros(0, np.int64), np.zeros(0, np.int64))]
        for number in range(n_draws):
            own = np.flatnonzero(whose == number)
            if own.size:
                parts += self._sample_from(number, gather_rows(rows, own), own, rng)
        row, label = (np.concatenate(part) for part in zip(*parts, strict=True))
        shape = (rows.shape[0], self.n_labels)
        return as_positives(sparse.coo_array((np.ones(row.size, np.float32), (row, label)), shape=shape).tocsr())

    def _sample_from(
        self, number: int, rows: sparse.csr_array, own: NDArray[np.int64], rng: np.random.Generator
    ) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
        """Yield (row, label) pairs for rows under one draw of the model, topic by topic."""
        model = self.model
        placed = model.labels.cpu().numpy()
        others = np.setdiff1d(np.arange(self.n_labels), placed, assume_unique=True)
        psi = log_odds(to_tensor(rows, model.device), model.W[number]).double().cpu().numpy()
        U = rng.gamma(model.r[number].double().cpu().numpy(), np.exp(np.minimum(psi, LARGEST_LOG_ODDS)))
        # Where a topic gives more counts than there are labels, each label is drawn by itself instead.
        is_many = self.n_labels < U
        counts = rng.poisson(np.where(is_many, 0.0, U))
        for k in range(U.shape[1]):
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
            yield np.repeat(own, counts[:, k]), label
            v = np.full(self.n_labels, rest)
            v[placed] = np.diff(ends, prepend=0.0)
            for n in np.flatnonzero(is_many[:, k]):
                label = np.flatnonzero(rng.random(v.size) < -np.expm1(-v * U[n, k]))
                yield np.full(label.size, own[n]), label
