"""The skeletons of the how-tos keep the promises that our own kernels and likelihoods keep: they pass their tests."""

import importlib.util
import sys
from functools import partial

import numpy as np
import pytest
import torch
from pages import DOCS, ROOT, blocks

from labelfield import GPClassifier, MLGPFClassifier, synth
from labelfield.kernels import names


def load(path):
    """A file of tests as a module."""
    spec = importlib.util.spec_from_file_location(f"theorems_{path.stem}", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def skeleton(page, name):
    """A class of the first block of a page."""
    found = {"__name__": page}
    first = next(text for language, _, text in blocks((DOCS / page).read_text()) if language == "python")
    exec(compile(first, page, "exec"), found)
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
    # Inducing inputs and a kernel of each class's own, of which a step takes some.
    sampled = {"n_negatives": 1, "classes_per_batch": 1, "batch_size": 20}
    model = GPClassifier(kernel=name, inducing="per_class", own_kernel=True, n_inducing=10, max_epochs=10, **sampled)
    model.fit(one.X, one.Y.indices)
    assert model.history_[-1]["bound"] > model.history_[0]["bound"]
