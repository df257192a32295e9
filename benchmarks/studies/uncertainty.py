"""Which measure of uncertainty finds mistakes, rows of another kind, and labels that were never annotated.

Every measure is a number per row. On each data set, the AUROC says how often a row that should be distrusted has the
larger one of two. No measure was chosen by these data sets before they were first compared.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from benchmarks.measuring.isolated import isolated
from benchmarks.studies.decide import rows_of
from benchmarks.studies.trust import with_independent_features, with_permuted_features

DATASETS = ("emotions", "yeast", "enron", "bibtex", "delicious", "rcv1sub1", "eurlex-4k", "eurovoc-text")
# Rows that are drawn for training and for testing at the most, members of the ensemble, labels that are hidden.
N_TRAINED, N_TESTED, N_MEMBERS, HIDDEN = 3000, 2000, 4, 0.1
# Labels per row whose probabilities members may disagree about.
_N_FIRST = 10


def _prepare() -> Any:
    import labelfield

    return labelfield


def disagreement(members: list[Any], best: sparse.csr_array, X: sparse.csr_array) -> NDArray[np.float64]:
    """Return what members together do not know of the first labels and each alone does: the mutual information."""

    def entropy(p: NDArray[np.floating]) -> NDArray[np.float64]:
        p = p.astype(np.float64).clip(1e-9, 1 - 1e-9)
        return np.asarray(-p * np.log(p) - (1 - p) * np.log1p(-p))

    labels = best.indices.reshape(best.shape[0], -1)
    found = [np.take_along_axis(member.predict_proba(X), labels, 1) for member in members]
    return np.asarray((entropy(np.mean(found, 0)) - np.mean([entropy(p) for p in found], 0)).sum(1))


class Measures:
    """A trained default and an ensemble on rows drawn with replacement: every measure of any rows."""

    def __init__(self, labelfield: Any, X: sparse.csr_array, Y: sparse.csr_array) -> None:
        self.X, self.model = X, labelfield.AutoClassifier(device="cpu").fit(X, Y)
        self.factor = next((one for one in self.model.members() if hasattr(one.spec_, "n_inducing")), None)
        self.members = []
        for seed in range(N_MEMBERS):
            drawn = np.sort(np.random.default_rng(seed).integers(X.shape[0], size=X.shape[0]))
            member = labelfield.AutoClassifier(device="cpu", quality="fast", random_state=seed)
            self.members.append(member.fit(X[drawn], Y[drawn]))

    def __call__(self, X: sparse.csr_array) -> dict[str, NDArray[np.floating]]:
        """Return every measure of these rows."""
        from labelfield.decide import distance

        best = self.model.predict_topk(X, min(_N_FIRST, self.model.spec_.n_labels))
        first = best.max(axis=1).toarray().ravel()
        found = {
            "1 - max p": 1 - first,
            "disagreement of an ensemble": disagreement(self.members, best, X),
            "distance to training rows": distance(X, self.X),
        }
        if self.factor is not None:
            found["posterior variance"] = self.factor.predict_latent(X).h_var.mean(axis=1)
        return found


def auroc(is_bad: NDArray[np.bool_], measure: NDArray[np.floating]) -> float:
    """Return how often a row that should be distrusted has the larger measure, ties counting half; nan without any."""
    from labelfield import metrics

    if is_bad.all() or not is_bad.any():
        return float("nan")
    return metrics.auc(is_bad[:, None].astype(np.float32), measure[:, None])


def measure(name: str, labelfield: Any) -> dict[str, Any]:
    """Compare all measures on one data set, for each purpose."""
    from labelfield import metrics

    rng, data = np.random.default_rng(0), rows_of(name)
    train, test = (
        part.take(np.sort(rng.permutation(part.n_rows)[:most]))
        for part, most in ((data.train, N_TRAINED), (data.test, N_TESTED))
    )
    ask = Measures(labelfield, train.X, train.Y)
    known = ask(test.X)
    is_wrong = ~metrics.score_ranking(test.Y, ask.model.predict_topk(test.X, 1), 1).hit[:, 0]
    results: dict[str, Any] = {"training rows": train.n_rows, "test rows": test.n_rows}
    results["mistakes"] = {way: auroc(is_wrong, values) for way, values in known.items()}
    is_other = np.repeat([False, True], test.n_rows)
    for kind, change in (("permuted", with_permuted_features), ("independent", with_independent_features)):
        other = ask(change(test.X))
        results[f"rows with {kind} features"] = {
            way: auroc(is_other, np.concatenate([known[way], other[way]])) for way in known
        }
    hidden = rng.permutation(data.n_labels)[: max(1, round(HIDDEN * data.n_labels))]
    is_shown = np.setdiff1d(np.arange(data.n_labels), hidden)
    has_hidden = np.asarray(test.Y[:, hidden].sum(1)).ravel() > 0
    found = Measures(labelfield, train.X, train.Y[:, is_shown])(test.X)
    results["labels never annotated"] = {way: auroc(has_hidden, values) for way, values in found.items()}
    return results


def run(datasets: tuple[str, ...] = DATASETS) -> dict[str, Any]:
    """Compare all measures on all data sets."""
    return {name: isolated(_prepare, partial(measure, name)).value for name in datasets}
