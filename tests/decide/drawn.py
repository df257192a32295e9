"""Held-out rows whose truth is known: calibrated probabilities, with labels of a row that go wrong together."""

import numpy as np
from scipy import sparse
from scipy.special import expit

from labelfield.decide import Evidence


def draw(n_rows, n_labels=12, n_listed=8, seed=0, together=1.0, bias=0.0):
    """Draw probabilities and labels. Labels of a row share a shock, so that they are not independent of each other, and
    a label with probability p holds with probability p, or with log-odds lower by `bias`."""
    rng = np.random.default_rng(seed)
    odds = rng.normal(-1.5, 2.0, (n_rows, n_labels)) + rng.normal(0, 1, (n_rows, 1))
    shock = rng.uniform(size=(n_rows, 1))
    is_shared = rng.uniform(size=(n_rows, n_labels)) < together
    u = np.where(is_shared, shock, rng.uniform(size=(n_rows, n_labels)))
    Y = sparse.csr_array((u < expit(odds - bias)).astype(np.float32))
    p = expit(odds)
    best = np.argsort(-p, axis=1)[:, :n_listed]
    return Evidence.of(best, np.take_along_axis(p, best, 1), Y)
