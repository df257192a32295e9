"""The skeletons of the how-tos keep the promises that our own kernels, likelihoods and models keep."""

import importlib.util
import sys
from functools import partial

import numpy as np
import pytest
import torch
from pages import DOCS, ROOT, blocks
from sklearn.base import clone

import labelfield
from labelfield import GPClassifier, MLGPFClassifier, metrics, synth
from labelfield.estimators.options import parameters
from labelfield.kernels import names
from labelfield.methods import METHODS, SEVERAL, Method


def load(path):
    """Import a file of tests as a module."""
    spec = importlib.util.spec_from_file_location(f"theorems_{path.stem}", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def code(page):
    """Return the first block of Python on a page."""
    return next(text for language, _, text in blocks((DOCS / page).read_text()) if language == "python")


def skeleton(page, name):
    """Return a class from the first block of a page."""
    found = {"__name__": page}
    exec(compile(code(page), page, "exec"), found)
    return found[name]


# A likelihood: all tests of what every likelihood promises are collected here once more, for the skeleton.

promises = load(ROOT / "tests" / "likelihoods" / "test_multiclass.py")
globals().update({name: test for name, test in vars(promises).items() if name.startswith("test_")})
moments = load(ROOT / "tests" / "likelihoods" / "conftest.py").moments


@pytest.fixture
def any_likelihood():
    return skeleton("how-to-add-a-likelihood.md", "NoisySoftmax")()


# A kernel: the tests of all kernels, for the skeleton under a name of its own, as the how-to says to give it one.


@pytest.fixture
def name(monkeypatch):
    kernel, makers = skeleton("how-to-add-a-kernel.md", "RationalQuadratic"), names._makers

    def more(n_features, n_processes, is_own):
        ours = partial(kernel, n_features, n_processes if is_own else None)
        return {**makers(n_features, n_processes, is_own), "rational_quadratic_ard": ours}

    monkeypatch.setattr(names, "_makers", more)
    return "rational_quadratic_ard"


def test_the_kernel_passes_the_tests_of_kernels(name):
    theorems = load(ROOT / "tests" / "kernels" / "test_kernels.py")
    assert name in theorems.NAMES
    torch.set_default_dtype(torch.float64)
    try:
        theorems.test_positive_semi_definite(name)
        theorems.test_sparse_rows_equal_dense_rows(name)
        theorems.test_cross_and_diag_are_parts_of_the_gram_matrix(name)
        theorems.test_gradients(name)
        for unit_norm in (True, False):
            theorems.test_subspace_equals_free_when_the_basis_spans_everything(name, unit_norm)
    finally:
        torch.set_default_dtype(torch.float32)


def test_the_kernel_by_name_in_both_kinds_of_models(name):
    several, one = synth.make_multilabel(100, 40, 6, seed=0), synth.make_rings(100, 3, seed=0)
    model = MLGPFClassifier(kernel=f"{name} + linear", n_inducing=10, n_latent=3, max_epochs=3).fit(
        several.X, several.Y
    )
    assert np.isfinite(model.predict_proba(several.X)).all()
    # Each class has its own inducing inputs and kernel, and a step takes those of some classes.
    sampled = {"n_negatives": 1, "classes_per_batch": 1, "batch_size": 20}
    model = GPClassifier(
        kernel=name, inducing="per_class", kernel_per_class=True, n_inducing=10, max_epochs=10, **sampled
    )
    model.fit(one.X, one.Y.indices)
    assert model.history_[-1]["bound"] > model.history_[0]["bound"]


# A model: the skeleton is short, needs no dummies, and does what every classifier does.


@pytest.fixture(scope="module")
def data():
    return synth.make_multilabel(400, 100, 10, kernel="linear", seed=0).split(0.25)


@pytest.fixture(scope="module")
def logistic_classifier():
    return skeleton("how-to-add-a-model.md", "LogisticClassifier")


@pytest.fixture(scope="module")
def fitted(logistic_classifier, data):
    return logistic_classifier().fit(data.X, data.Y)


def test_the_model_takes_fewer_than_60_lines():
    lines = [line for line in code("how-to-add-a-model.md").splitlines() if line.strip()]
    assert len(lines) < 60
    # The page says how many there are.
    assert f"these {len(lines)}\nlines" in (DOCS / "how-to-add-a-model.md").read_text()


def test_the_model_learns_and_answers(fitted, data):
    n_rows, n_labels = data.test.Y.shape
    P, ranked = fitted.predict_proba(data.test.X), fitted.predict_topk(data.test.X, 3)
    assert P.shape == (n_rows, n_labels)
    assert ranked.nnz == 3 * n_rows
    floor = metrics.popularity(data.Y, n_rows, 3)
    assert metrics.precision_at_k(data.test.Y, ranked, 1) > metrics.precision_at_k(data.test.Y, floor, 1)
    assert fitted.predict(data.test.X).shape == (n_rows, n_labels)
    # It cannot tell new kinds of rows: only the first label's probability counts.
    np.testing.assert_allclose(fitted.predict_uncertainty(data.test.X), 1 - P.max(1), atol=1e-6)


def test_the_model_says_what_it_cannot_answer(fitted, data):
    with pytest.raises(labelfield.CannotAnswerError):
        fitted.predict_latent(data.test.X)
    assert fitted.feature_relevance() is None
    assert fitted.topics() is None


def test_the_model_is_cloned_and_fitted_in_parts(logistic_classifier, data):
    model = clone(logistic_classifier(prior_scale=2.0))
    assert model.get_params()["prior_scale"] == 2.0
    for _ in range(3):
        model.partial_fit(data.X, data.Y)
    assert model.n_iter_ == 3
    assert model.history_[-1]["bound"] > model.history_[0]["bound"]


def test_the_model_takes_one_class_per_row(logistic_classifier):
    rings = synth.make_rings(100, 3, seed=0)
    model = logistic_classifier(max_epochs=3).fit(rings.X, rings.Y.indices)
    np.testing.assert_allclose(model.predict_proba(rings.X).sum(1), 1, atol=1e-6)


def test_the_model_is_saved_resumed_and_loaded(logistic_classifier, fitted, data, tmp_path, monkeypatch):
    monkeypatch.setitem(METHODS, "bayesian_linear", Method("Linear.", SEVERAL, logistic_classifier))
    fitted.save(tmp_path / "model")
    again = labelfield.load(tmp_path / "model")
    assert (again.predict_proba(data.test.X) == fitted.predict_proba(data.test.X)).all()
    resumed = logistic_classifier().fit(data.X, data.Y, checkpoint=tmp_path / "state.safetensors")
    assert (resumed.predict_proba(data.test.X) == fitted.predict_proba(data.test.X)).all()


def test_the_options_of_the_model_are_declared_once(logistic_classifier, data):
    found = parameters(logistic_classifier)
    assert all(option.meaning and option.kind for option in found.values())
    with pytest.raises(ValueError, match=r"prior_scale=-1; expected a number of at least"):
        logistic_classifier(prior_scale=-1).fit(data.X, data.Y)
