"""Which topics a label of a row comes from."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse

from labelfield.estimators.topics import TopicClassifier
from labelfield.linalg.rows import to_tensor
from labelfield.topics.prediction import log_odds

__all__ = ["TopicShare", "first_labels", "topic_shares"]

_SMALLEST = 1e-30


class TopicShare(NamedTuple):
    """A topic, its first labels by name, and its share in the rate of the label that is explained."""

    number: int
    labels: list[str]
    share: float


def topic_shares(estimator: TopicClassifier, x: sparse.csr_array, labels: NDArray[np.int64]) -> NDArray[np.float64]:
    """The share of each topic (k, topics) in the rate at which a row x (1, D) has each of these labels; they sum to 1.

    A label holds if any of its counts does, and the counts of topic k come at the rate v_lk u_k, in the mean
    v_lk r_k e^{ψ_k}. Over draws it is the mean of their shares, as that of topics in rows is.
    """
    model = estimator.model_
    X = to_tensor(estimator._rows(x), model.device)
    asked = torch.from_numpy(labels).to(model.device)
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


def first_labels(estimator: TopicClassifier, topics: list[int], n: int, names: list[str]) -> dict[int, list[str]]:
    """The n first labels of these topics, by name."""
    V = estimator.model_.mean_weights()[:, topics]
    label = estimator.model_.labels[V.topk(min(n, V.shape[0]), dim=0).indices].T.tolist()
    return {number: [names[column] for column in own] for number, own in zip(topics, label, strict=True)}
