"""A factor model is trained on the labels that were observed, in whichever way the others are named."""

import numpy as np
import pytest
from scipy import sparse

from labelfield import EnsembleClassifier, GPClassifier, LinearClassifier, MLGPFClassifier, load


def small(**options):
    return MLGPFClassifier(**{"n_latent": 5, "n_inducing": 20, "max_epochs": 6, "random_state": 1, **options})


@pytest.fixture(scope="module")
def hidden(few_words):
    return np.random.default_rng(1).random(few_words.Y.shape) < 0.4


@pytest.fixture(scope="module")
def masked(few_words, hidden):
    return small().fit(few_words.X, few_words.Y, missing=hidden)


def arrays(model):
    return {name: value.numpy() for name, value in model.model_.state_dict().items()}


def assert_same(a, b):
    for name, value in arrays(a).items():
        np.testing.assert_array_equal(value, arrays(b)[name], err_msg=name)


@pytest.mark.parametrize("value", [0, 1])
def test_what_is_hidden_counts_for_nothing(value, few_words, hidden, masked):
    """Not in the start, the bound, or the calibration; and a model that is told that it is absent is another one."""
    Y = np.where(hidden, value, few_words.Y.toarray())
    assert few_words.n_rows >= 300  # so that some rows calibrate
    assert_same(small().fit(few_words.X, Y, missing=hidden), masked)
    assert not np.allclose(small().fit(few_words.X, Y).predict_proba(few_words.X), masked.predict_proba(few_words.X))


def test_all_ways_of_saying_it(few_words, hidden, masked, tmp_path):
    Y = few_words.Y.toarray()
    for labels, options in (
        (np.where(hidden, np.nan, Y), {}),
        (Y, {"observed": ~hidden}),
        (few_words.Y, {"observed": sparse.csr_array(~hidden)}),
        (Y, {"missing": [np.flatnonzero(row).tolist() for row in hidden]}),
    ):
        assert_same(small().fit(few_words.X, labels, **options), masked)
    masked.save(tmp_path / "model")
    assert_same(load(tmp_path / "model", device="cpu"), masked)


def test_few_observed_entries_are_enough_to_learn(few_words):
    """Of nine tenths hidden labels none is taken for absent: probabilities stay at the level of the truth."""
    hidden = np.random.default_rng(2).random(few_words.Y.shape) < 0.9
    Y = few_words.Y.toarray()
    told = small(max_epochs=15).fit(few_words.X, Y, missing=hidden)
    untold = small(max_epochs=15).fit(few_words.X, np.where(hidden, 0, Y))
    told, untold = (model.predict_proba(few_words.test.X).mean() / Y.mean() for model in (told, untold))
    assert told == pytest.approx(1, abs=0.4)
    assert untold < 0.4


def test_a_label_that_nobody_looked_at_is_as_likely_as_others(few_words, hidden):
    """And not one that comes first for want of anything against it."""
    hidden = hidden.copy()
    hidden[:, 7] = True
    model = small(calibrate=False).fit(few_words.X, few_words.Y, missing=hidden)
    Y = few_words.Y.toarray()
    P = model.predict_proba(few_words.test.X)[:, 7]
    np.testing.assert_allclose(P, Y[~hidden].mean(), rtol=0.05)


def test_sampled_labels_and_other_likelihoods(few_words, hidden):
    for options in ({"n_negatives": 5}, {"likelihood": "squared_hinge"}, {"label_linear": "point"}):
        found = [
            small(max_epochs=2, **options).fit(
                few_words.X, np.where(hidden, value, few_words.Y.toarray()), missing=hidden
            )
            for value in (0, 1)
        ]
        assert_same(*found)


def test_a_resumed_run_needs_the_same_mask(few_words, hidden, masked, tmp_path):
    path = tmp_path / "state.safetensors"
    first = small().fit(few_words.X, few_words.Y, missing=hidden, checkpoint=path)
    assert_same(first, masked)
    assert_same(small().fit(few_words.X, few_words.Y, missing=hidden, checkpoint=path, resume=True), masked)
    other = hidden & ~(few_words.Y.toarray() > 0)
    Y = few_words.Y.multiply(~hidden)  # the same labels, of which more are said to be absent
    with pytest.raises(ValueError, match="other"):
        small().fit(few_words.X, Y, missing=other, checkpoint=path, resume=True)


def test_parts_may_have_gaps(few_words, hidden):
    models = []
    for value in (0, 1):
        model = small(batch_size=50)
        for first in (0, 100):
            rows = slice(first, first + 100)
            Y = np.where(hidden[rows], np.nan, np.where(hidden[rows], value, few_words.Y[rows].toarray()))
            model.partial_fit(few_words.X[rows], Y)
        models.append(model.partial_fit(few_words.X[200:], few_words.Y[200:]))
    assert_same(*models)
    plain = small(batch_size=50)
    for first in (0, 100, 200):
        plain.partial_fit(few_words.X[first : first + 100], few_words.Y[first : first + 100])
    assert not np.array_equal(arrays(plain)["b"], arrays(models[0])["b"])


def test_an_ensemble_takes_what_its_members_take(few_words, hidden):
    ensemble = EnsembleClassifier(estimator=small(max_epochs=3), n_members=2)
    found = [
        ensemble.fit(few_words.X, np.where(hidden, value, few_words.Y.toarray()), missing=hidden) for value in (0, 1)
    ]
    assert_same(found[0].members()[0], small(max_epochs=3).fit(few_words.X, few_words.Y, missing=hidden))


@pytest.mark.parametrize("estimator", [LinearClassifier(), GPClassifier()])
def test_other_methods_need_all_labels(estimator, few_words, hidden):
    X, Y = few_words.X, few_words.Y.toarray()
    with pytest.raises(ValueError, match="Input y contains NaN"):
        estimator.fit(X, np.where(hidden, np.nan, Y))
    for options in ({"observed": ~hidden}, {"missing": hidden}):
        with pytest.raises(ValueError, match="Classifier needs all labels observed; pass neither observed nor missing"):
            estimator.fit(X, Y, **options)
