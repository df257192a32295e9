"""Where a topic model starts before the first step."""

import torch

from labelfield.topics.rows import TopicRows
from labelfield.topics.state import Priors, Topics

_CONSTANT_PRECISION = 1e-3
# η starts at this, and adds at most this share to the labels of a topic, however many labels there are.
_FIRST_ETA, _MOST_ADDED = 0.01, 0.05


def start_topics(
    data: TopicRows,
    n_topics: int,
    n_labels: int,
    priors: Priors,
    generator: torch.Generator,
    dtype: torch.dtype = torch.float32,
) -> Topics:
    """Return random topics around how often each label holds; features say nothing yet."""
    device, n_active = data.design.X.device, data.positives.shape[1]
    counts = torch.bincount(data.positives.label, minlength=n_active).to(torch.float64)
    noise = torch.rand(n_active, n_topics, generator=generator, dtype=torch.float64).to(device)
    eta = min(_FIRST_ETA, _MOST_ADDED * max(data.positives.n_entries, 1) / (n_topics * n_labels))
    # Where nothing holds yet, noise alone tells topics apart.
    V = (counts.unsqueeze(1) + eta) * (0.1 + noise)
    rest = torch.full((n_topics,), eta, dtype=torch.float64, device=device)
    total = V.sum(0) + rest * (n_labels - n_active)
    # As many labels per row as in the data.
    per_row = max(data.positives.n_entries, 1) / data.n_rows
    W = torch.zeros(data.design.n_weights, n_topics, dtype=dtype, device=device)
    W[-1] = float(torch.tensor(per_row / n_topics).log())
    precision = torch.full((data.design.n_weights,), 1 / priors.least_variance(), dtype=dtype, device=device)
    precision[-1] = _CONSTANT_PRECISION
    r = torch.ones(n_topics, dtype=torch.float64, device=device)
    return Topics((V / total).to(dtype), (rest / total).to(dtype), n_labels - n_active, W, r, precision, eta)
