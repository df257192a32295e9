"""Labels that go together, from what a model has learned."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import normalize

from labelfield.estimators.deep import DeepKernelClassifier
from labelfield.estimators.mlgpf import MLGPFClassifier
from labelfield.estimators.topics import TopicClassifier
from labelfield.explain.names import label_names

__all__ = ["LabelNeighbours", "label_neighbours"]

# Similarities that exist at once.
_BLOCK_ENTRIES = 1 << 22


class LabelNeighbours(NamedTuple):
    """A label by its number and name, and the labels most like it with how much, from -1 to 1."""

    number: int
    name: str
    neighbours: list[tuple[str, float]]


def label_neighbours(estimator: Any, labels: Sequence[int], n: int = 5) -> list[LabelNeighbours] | None:
    """The n labels that go most with each of these, given by number; None for a method in which labels share nothing.

    Of factor models it is the correlation of their utilities under the prior, from the loadings Φ (of an ensemble those
    of the first member); of deep kernels the same from the mixing A; of topics the cosine of how much of each topic
    they are. Labels that no training row had are like nothing. A row of similarities exists for some of the labels
    asked for at a time, so that there may be very many others.
    """
    estimator._check_fitted()
    loadings = _loadings(estimator)
    if loadings is None:
        return None
    n_labels = estimator.spec_.n_labels
    if any(not 0 <= label < n_labels for label in labels):
        raise ValueError(f"labels from {min(labels)} to {max(labels)}; expected numbers from 0 to {n_labels - 1}")
    names = label_names(estimator)
    known = loadings.new_zeros(n_labels, dtype=torch.bool)
    known[torch.from_numpy(estimator.label_counts_ > 0).to(known.device)] = True
    known &= loadings.abs().amax(1) > 0
    directions = normalize(loadings, dim=1)
    asked = torch.tensor(list(labels), dtype=torch.long, device=loadings.device)
    found: list[LabelNeighbours] = []
    for some in torch.split(asked, max(1, _BLOCK_ENTRIES // n_labels)):
        similarity = directions[some] @ directions.T
        similarity[:, ~known] = -torch.inf
        similarity.scatter_(1, some.unsqueeze(1), -torch.inf)  # not itself
        values, best = similarity.topk(min(n, n_labels), dim=1)
        for label, own, nearest in zip(some.tolist(), values.tolist(), best.tolist(), strict=True):
            pairs = zip(nearest, own, strict=True) if bool(known[label]) else ()
            neighbours = [(names[other], value) for other, value in pairs if value > -torch.inf]
            found.append(LabelNeighbours(label, names[label], neighbours))
    return found


def _loadings(estimator: Any) -> Tensor | None:
    """What labels are made of (K, …), each column as far as it counts."""
    if isinstance(estimator, MLGPFClassifier):
        return estimator.model_.Phi.detach()
    if isinstance(estimator, DeepKernelClassifier):
        deep = estimator.model_
        with torch.no_grad():
            return deep.A * (1 if deep.is_plain else deep.processes.prior_variance().sqrt().to(deep.A.dtype))
    if isinstance(estimator, TopicClassifier):
        model = estimator.model_
        whole = model.share.new_zeros(model.n_labels, len(model.share))
        # The share of a topic in all labels, times that of the label in the topic.
        whole[model.labels] = model.mean_weights() * model.share
        return whole
    return None
