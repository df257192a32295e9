"""Sets of labels drawn through the mixing: a naive simulation finds the same sets as often."""

from itertools import product

import numpy as np
import pytest
import torch
from scipy import sparse
from scipy.special import expit

from labelfield import MLGPFClassifier
from labelfield.models.mlgpf.joint import set_probabilities
from labelfield.synth import make_multilabel

DATA = make_multilabel(200, 30, 6, seed=1)


@pytest.fixture(scope="module")
def model():
    options = {"n_latent": 3, "n_inducing": 10, "max_epochs": 3, "label_linear": "off", "device": "cpu"}
    found = MLGPFClassifier(calibrate=False, likelihood="bernoulli", **options).fit(DATA.X, DATA.Y)
    with torch.no_grad():
        found.model_.Phi.mul_(4)  # so that what is unknown about h matters
    return found


def test_probabilities_of_all_sets_are_those_of_a_loop_and_sum_to_one():
    odds = torch.from_numpy(np.random.default_rng(0).normal(0, 2, (4, 7, 3)))
    found = set_probabilities(odds).numpy()
    p = expit(odds.numpy())
    for number, bits in enumerate(product((0, 1), repeat=3)):
        own = np.array(bits[::-1], bool)  # bit j of the number is label j
        np.testing.assert_allclose(found[:, number], np.where(own, p, 1 - p).prod(2).mean(1), rtol=1e-12)
    np.testing.assert_allclose(found.sum(1), 1)


def test_sets_hold_as_often_as_in_a_simulation(model):
    X, n = DATA.X[:5], 40_000
    found = model.predict_sets(X, k=4, n_sets=16, n_draws=4000)
    np.testing.assert_allclose(found.probability.sum(1), 1, rtol=1e-5)
    assert (np.diff(found.probability, axis=1) <= 0).all()
    latent, rng = model.predict_latent(X), np.random.default_rng(3)
    Phi, b = (part.detach().numpy() for part in (model.model_.Phi, model.model_.b))
    is_dependent = False
    for row in range(5):
        h = latent.h_mean[row] + np.sqrt(latent.h_var[row]) * rng.standard_normal((n, 3))
        p = expit(h @ Phi.T + b)[:, found.labels[row]]
        y = rng.uniform(size=p.shape) < p
        for own, probability in zip(found.is_member[row], found.probability[row], strict=True):
            share = (y == own).all(1).mean()
            assert probability == pytest.approx(share, abs=5 * np.sqrt(max(share, 1e-3) / 4000))
            alone = np.where(own, p.mean(0), 1 - p.mean(0)).prod()
            is_dependent |= abs(probability - alone) > 5 * np.sqrt(max(share, 1e-3) / 4000)
    assert is_dependent  # a product of probabilities would not do


def test_labels_of_sets_are_the_most_probable_and_have_their_probabilities(model):
    X = DATA.X[:20]
    found, P = model.predict_sets(X, k=3, n_sets=8, n_draws=4000), model.predict_proba(X, calibrated=False)
    np.testing.assert_array_equal(np.sort(found.labels, 1), np.sort(np.argsort(-P, axis=1)[:, :3], 1))
    alone = (found.is_member * found.probability[:, :, None]).sum(1)
    np.testing.assert_allclose(alone, np.take_along_axis(P, found.labels, 1), atol=0.03)
    again = model.predict_sets(X[:7], k=3, n_sets=8, n_draws=4000)
    np.testing.assert_allclose(again.probability, found.probability[:7], rtol=1e-5)


def test_few_labels_and_no_rows_are_sets_too(model):
    assert model.predict_sets(DATA.X[:2], k=12, n_sets=100, n_draws=5).is_member.shape == (2, 64, 6)
    assert model.predict_sets(sparse.csr_array((0, DATA.X.shape[1]), dtype=np.float32)).probability.shape == (0, 3)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"k": 13}, "k=13; expected at most 12"),
        ({"k": 0}, "k=0; expected an integer of at least 1"),
        ({"n_sets": 1.5}, r"n_sets=1.5; expected an integer"),
        ({"n_draws": 0}, "n_draws=0; expected an integer"),
    ],
)
def test_bad_counts_are_refused(model, asked, said):
    with pytest.raises(ValueError, match=said):
        model.predict_sets(DATA.X[:2], **asked)
