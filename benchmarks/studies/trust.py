"""Whether uncertainty finds mistakes and unusual rows, and how often intervals contain the truth."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from benchmarks.measuring.isolated import isolated
from benchmarks.paths import DATA

DATASETS = ("eurlex-4k", "bibtex")
LEVELS = (0.5, 0.8, 0.95)
# The share of test rows that is flagged, rightly or not.
_FLAGGED = 0.05
# How many data sets are drawn from the model; coverage is averaged over them.
_N_DRAWS = 3
_SMALL: dict[str, Any] = {
    "kernel": "se_ard",
    "row_transform": "unit",
    "label_linear": "off",
    "n_latent": 8,
    "n_inducing": 150,
    "max_epochs": 30,
    "learning_rate": 0.03,
}
# Options, and which part of the truth the model is given; q(h) is always learned.
_FITTED: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "kernel, Φ and b known": (_SMALL, ("kernel", "mixing")),
    "Φ and b known": (_SMALL, ("mixing",)),
    "all learned": (_SMALL, ()),
    "all learned, no options": ({}, ()),
}


def _prepare() -> Any:
    import labelfield

    return labelfield.MLGPFClassifier


def with_permuted_features(X: sparse.csr_array, seed: int = 0) -> sparse.csr_array:
    """Return the rows under one permutation of their columns: the same pattern with other words."""
    order = np.random.default_rng(seed).permutation(X.shape[1])
    return sparse.csr_array((X.data, order[X.indices], X.indptr), shape=X.shape)


def with_independent_features(X: sparse.csr_array, seed: int = 0) -> sparse.csr_array:
    """Return rows with the same values of each feature, but drawn independently of the other features."""
    rng = np.random.default_rng(seed)
    columns = sparse.csc_array(X)
    rows = [rng.choice(X.shape[0], count, replace=False) for count in np.diff(columns.indptr)]
    shuffled = sparse.csc_array((columns.data, np.concatenate(rows), columns.indptr), shape=X.shape)
    return sparse.csr_array(shuffled)


def uncertainties(model: Any, X: sparse.csr_array) -> dict[str, NDArray[np.floating]]:
    """Return several measures of how unsure the model is of each row."""
    return {
        "1 - max probability": model.predict_uncertainty(X),
        "posterior variance of h": model.predict_latent(X).h_var.mean(axis=1),
    }


def finding_mistakes(wrong: NDArray[np.bool_], uncertainty: NDArray[np.floating]) -> dict[str, float]:
    """Return the error of the first label in percent in the most and least certain tenth, and the AUROC of mistakes."""
    from labelfield import metrics

    order = np.argsort(uncertainty, kind="stable")
    tenth = max(1, wrong.size // 10)
    return {
        "error, most certain tenth": 100 * float(wrong[order[:tenth]].mean()),
        "error, least certain tenth": 100 * float(wrong[order[-tenth:]].mean()),
        "AUROC of a wrong first label": metrics.auc(wrong[:, None].astype(np.float32), uncertainty[:, None]),
    }


def _find(name: str, options: Mapping[str, Any], classifier: Any) -> dict[str, Any]:
    """Find mistakes and unusual rows by each measure of uncertainty."""
    import labelfield
    from labelfield import metrics

    data = labelfield.read(DATA / name)
    assert data.test is not None
    X = data.test.X
    model = classifier(device="cpu", **options).fit(data.X, data.Y)
    wrong = ~metrics.score_ranking(data.test.Y, model.predict_topk(X, 1), 1).hit[:, 0]
    known = uncertainties(model, X)
    others = {
        "permuted": uncertainties(model, with_permuted_features(X)),
        "independent": uncertainties(model, with_independent_features(X)),
    }
    results: dict[str, Any] = {"error of the first label": 100 * float(wrong.mean())}
    for way, uncertainty in known.items():
        results[way] = {**finding_mistakes(wrong, uncertainty), "mean, test rows": float(uncertainty.mean())}
        threshold = np.quantile(uncertainty, 1 - _FLAGGED)
        for kind, found in others.items():
            results[way][f"mean, {kind} features"] = float(found[way].mean())
            results[way][f"flagged, {kind} features"] = 100 * float((found[way] > threshold).mean())
    return results


def _give(model: Any, truth: Any, known: tuple[str, ...]) -> None:
    """Set the known parts of the truth in a prepared model, and freeze them."""
    import torch

    given: list[tuple[Any, NDArray[np.floating]]] = []
    if "mixing" in known:
        given += [(model.Phi, truth.Phi), (model.b, truth.b)]
    if "kernel" in known:
        # Frequencies of the squared-exponential kernel are N(0, w_d²), with w_d the ARD weights.
        given.append((model.kernel.log_inverse_length, 0.5 * np.log(np.square(truth.weights).mean(axis=1) + 1e-12)))
    for parameter, value in given:
        with torch.no_grad():
            parameter.copy_(torch.from_numpy(value))
        parameter.requires_grad_(False)


def _cover(options: Mapping[str, Any], known: tuple[str, ...], seed: int, classifier: Any) -> dict[str, float]:
    """Return how often credible intervals contain the true f, in percent, on data drawn from the model."""
    from scipy.special import ndtri

    from labelfield import synth

    drawn, truth = synth.make_multilabel(1600, 300, 60, n_factors=8, seed=seed, return_truth=True)
    data = drawn.split(0.25)
    assert data.test is not None
    X = data.test.X
    model = classifier(device="cpu", **options)
    prepared = model.prepare(data.X, data.Y)
    _give(model.model_, truth, known)
    model.train_prepared(prepared)
    latent, f = model.predict_latent(X), truth.utilities(X)
    away = np.abs(f - latent.f_mean) / np.sqrt(latent.f_var)
    listed = model.predict_topk(X, 5).toarray() > 0
    results: dict[str, float] = {}
    for level in LEVELS:
        inside = {"f": away <= ndtri(0.5 + level / 2)}
        for what, held in inside.items():
            results[f"{what} in its {100 * level:.0f} % interval"] = 100 * float(held.mean())
            results[f"{what} in its {100 * level:.0f} % interval, first five"] = 100 * float(held[listed].mean())
    return results


def _cover_draws(options: Mapping[str, Any], known: tuple[str, ...], classifier: Any) -> dict[str, float]:
    """Return the mean over draws."""
    draws = [_cover(options, known, seed, classifier) for seed in range(_N_DRAWS)]
    return {key: float(np.mean([draw[key] for draw in draws])) for key in draws[0]}


def run(options: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Measure everything; options such as fewer epochs give a quick look instead of what is recorded."""
    options = options or {}
    results: dict[str, Any] = {name: isolated(_prepare, partial(_find, name, options)).value for name in DATASETS}
    results["coverage on synthetic rows"] = {
        name: isolated(_prepare, partial(_cover_draws, {**fitted, **options}, known)).value
        for name, (fitted, known) in _FITTED.items()
    }
    return results
