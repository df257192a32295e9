"""Choose the rows of a pool to label next: those that would teach the model the most.

The letters: p_j is the calibrated probability of label j for a row, n_j the number of training rows that have it.

- uncertainty: the sum over labels of the entropy of p_j, in nats: how much the right answer would say that the model
  does not know yet.
- information: the mutual information between the labels of a row and the model, H[E p] - E H[p] over the posterior
  (Houlsby et al., 2011). A model without a posterior gives Σ_j p_j (1 - p_j) / (1 + n_j): the information
  that a row has about the log-odds of a label, p (1 - p), against what the training rows have of it.
- diverse: rows that together tell the most about the uncertain rows of the pool (`design.py`): unlike each other,
  unlike those that are labelled already, and like many others.
- random: rows drawn evenly.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.special import expit

from labelfield.active.design import choose_rows
from labelfield.csr import gather_rows
from labelfield.errors import CannotAnswerError, DataError
from labelfield.estimators.inputs import as_rows
from labelfield.estimators.protocol import FittedClassifier
from labelfield.memory import row_blocks

Strategy = Literal["uncertainty", "information", "diverse", "random"]
STRATEGIES: tuple[str, ...] = get_args(Strategy)
# Labels of a row that count, the most probable ones; the others are hardly uncertain.
_MOST_LABELS = 64
# Rows of a pool that diverse looks at, and the least that a row counts for which the model is certain of.
_MOST_ROWS, _LEAST_UNCERTAIN = 50_000, 1e-6
# Rows times labels whose moments exist at once, and points of Gauss and Hermite for the mean over a posterior.
_ENTRIES = 1 << 22
_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(12)
_SHARES = _WEIGHTS / _WEIGHTS.sum()


def query(
    model: Any,
    X_pool: Any,
    n: int,
    strategy: Strategy = "diverse",
    *,
    X_labelled: Any = None,
    random_state: int = 0,
) -> NDArray[np.int64]:
    """Return the numbers of n rows of a pool that should be labelled next, the most useful first.

    `model` is any fitted classifier of ours; X_pool has rows as it takes them, or texts for a TextClassifier.
    X_labelled are those that it was trained on, if they are at hand: diverse looks for what they do not tell. The same
    seed gives the same rows; random depends on it, and so do ties and which rows of a very large pool are looked at.
    """
    if strategy not in STRATEGIES:
        raise ValueError(f"strategy={strategy!r}; expected one of {', '.join(STRATEGIES)}")
    if isinstance(n, bool) or not isinstance(n, int | np.integer) or n < 1:
        raise ValueError(f"n={n!r}; expected a whole number of at least 1")
    classifier: FittedClassifier = getattr(model, "classifier_", model)
    rows = _rows(model, classifier, X_pool)
    if rows.shape[0] == 0:
        raise DataError("a pool without rows", expected="at least one row")
    n, order = min(n, rows.shape[0]), np.random.default_rng(random_state).permutation(rows.shape[0])
    if strategy == "random":
        return order[:n]
    if strategy == "diverse":
        order = order[: max(n, _MOST_ROWS)]
        some, labelled = gather_rows(rows, order), None if X_labelled is None else _rows(model, classifier, X_labelled)
        unsure = np.maximum(classifier.predict_uncertainty(some).astype(np.float64), _LEAST_UNCERTAIN)
        return order[choose_rows(some, unsure, n, labelled)]
    scores = row_scores(classifier, rows, strategy)
    # Among equals, by chance instead of by place in the file.
    return np.asarray(order[np.argsort(-scores[order], kind="stable")[:n]])


def _rows(model: Any, classifier: FittedClassifier, X: Any) -> sparse.csr_array:
    """Return the rows of a model's inputs, which are texts where it is not the classifier itself."""
    found: sparse.csr_array = as_rows(model, X, reset=False) if model is classifier else model.rows(X)
    return found


def row_scores(classifier: FittedClassifier, rows: sparse.csr_array, strategy: str) -> NDArray[np.float64]:
    """Return how much each row (N,) would tell by this strategy, in nats or information."""
    if strategy == "information":
        try:
            return _mutual_information(classifier, rows)
        except CannotAnswerError:
            pass
    n_labels = classifier.predictor_.n_labels
    best = classifier.predict_topk(rows, min(n_labels, _MOST_LABELS))
    p = np.clip(best.data.astype(np.float64), 0, 1)
    if strategy == "information":
        values = p * (1 - p) / (1 + classifier.label_counts_[best.indices])
    else:
        values = binary_entropy(p)
    found = sparse.csr_array((values, best.indices, best.indptr), shape=best.shape)
    return np.asarray(found.sum(axis=1), np.float64).ravel()


def binary_entropy(p: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return -p log p - (1 - p) log(1 - p), which is 0 at both ends."""
    with np.errstate(divide="ignore", invalid="ignore"):
        found = -(p * np.log(p) + (1 - p) * np.log1p(-p))
    return np.where((p <= 0) | (p >= 1), 0.0, found)


def _mutual_information(classifier: FittedClassifier, rows: sparse.csr_array) -> NDArray[np.float64]:
    """Return H[E p] - E H[p] summed over labels, for p = σ(f) and f as the posterior has it.

    For a mix, return the mean over those of its members that have a posterior.
    """
    members = [one for one in classifier.members() if one is not classifier]
    if members:
        found = []
        for member in members:
            with suppress(CannotAnswerError):
                found.append(_mutual_information(member, rows))
        if not found:
            raise CannotAnswerError("no member has a posterior")
        return np.asarray(np.mean(found, axis=0))
    predictor = classifier.predictor_
    if predictor.is_exclusive:
        raise CannotAnswerError("labels exclude each other")
    seen, gain = classifier.rows(rows), np.zeros(rows.shape[0])
    for part in row_blocks(rows.shape[0], predictor.n_labels, entries=_ENTRIES, most=2000):
        latent = predictor.latent(gather_rows(seen, np.arange(part.start, part.stop)))
        mean, deviation = latent.f_mean.astype(np.float64), np.sqrt(latent.f_var.astype(np.float64))
        total, entropy = np.zeros_like(mean), np.zeros_like(mean)
        for node, share in zip(_NODES, _SHARES, strict=True):
            p = expit(mean + node * deviation)
            total += share * p
            entropy += share * binary_entropy(p)
        gain[part] = (binary_entropy(total) - entropy).sum(axis=1)
    return gain
