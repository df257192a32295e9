"""Labels that go together, according to what a model has learned."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch.nn.functional import normalize

from labelfield.estimators.protocol import FittedClassifier

# Similarities that exist at once.
_BLOCK_ENTRIES = 1 << 22


class LabelNeighbours(NamedTuple):
    """A label by number and name, and the labels most similar to it with their similarities, from -1 to 1."""

    number: int
    name: str
    neighbours: list[tuple[str, float]]


def label_neighbours(estimator: FittedClassifier, labels: Sequence[int], n: int = 5) -> list[LabelNeighbours] | None:
    """Return the n labels most similar to each of these, given by number; None if the model has no loadings.

    Similarity is the cosine of loadings: for factor models the correlation of utilities under the prior, from Φ; for
    deep kernels the same from the mixing A; for topics it compares the weights of two labels in each topic. For an
    ensemble the loadings of all members count. Labels without training rows are similar to none. Similarities are
    formed for a block of the given labels at a time, so there may be very many labels.
    """
    names, loadings = estimator.label_names(), estimator.predictor_.loadings()
    if loadings is None:
        return None
    n_labels = len(names)
    if any(not 0 <= label < n_labels for label in labels):
        raise ValueError(f"labels from {min(labels)} to {max(labels)}; expected numbers from 0 to {n_labels - 1}")
    known = torch.from_numpy(estimator.label_counts_ > 0).to(loadings.device) & (loadings.abs().amax(1) > 0)
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
