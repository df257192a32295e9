"""What the topic classifier refuses."""

import pickle

import numpy as np
import pytest
import torch
from scipy import sparse
from sklearn.exceptions import NotFittedError
from topic_cases import tiny

from labelfield import DataError


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_topics": 0}, "n_topics=0; expected an integer of at least 1"),
        ({"n_topics": 2.5}, "n_topics=2.5"),
        ({"n_topics": 31}, "n_topics=31; expected at most 30, the number of labels"),
        ({"algorithm": "magic"}, "algorithm='magic'; expected one of em, online_em, gibbs"),
        ({"algorithm": None}, "algorithm=None"),
        ({"n_gradient_steps": -1}, "n_gradient_steps=-1"),
        ({"max_epochs": 0}, "max_epochs=0"),
        ({"tol": -1}, "tol=-1"),
        ({"tol": float("nan")}, "tol=nan"),
        ({"batch_size": 0}, "batch_size=0"),
        ({"step_power": 0.3}, "step_power=0.3; expected a number from 0.5 to 1"),
        ({"step_offset": 0}, "step_offset=0"),
        ({"n_draws": 0}, "n_draws=0"),
        ({"weight_scale": 0}, "weight_scale=0"),
        ({"shape_strength": "much"}, "shape_strength='much'"),
        ({"learn_hyper": 1}, "learn_hyper=1; expected True or False"),
        ({"time_budget": 0}, "time_budget=0"),
        ({"row_transform": "magic"}, "row_transform='magic'"),
        ({"device": "abacus"}, "device='abacus'; expected 'auto', 'cpu' or 'cuda'"),
        ({"random_state": -1}, "random_state=-1"),
    ],
)
def test_wrong_options(options, message, few):
    with pytest.raises(ValueError, match=message) as caught:
        tiny(**options).fit(*few)
    assert "\n" not in str(caught.value)


def test_device(few):
    model = tiny(device="auto").fit(*few).to("cpu")
    assert model.device == "cpu"
    assert model.model_.device.type == "cpu"
    assert np.isfinite(model.partial_fit(*few).to("cpu").partial_fit(*few).predict_proba(few[0])).all()
    if not torch.cuda.is_available():
        with pytest.raises(ValueError, match="no CUDA device"):
            tiny(device="cuda").fit(*few)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda X, Y: (X, -Y), "Y is not binary"),
        (lambda X, Y: (X, 2 * Y), "Y is not binary"),
        (lambda X, Y: (X, sparse.csr_array(-Y)), "Y is not binary"),
        (lambda X, Y: (X, 0.5 * Y), "Y is not binary"),
        (lambda X, Y: (X, np.where(Y > 0, np.inf, 0)), "NaN or infinity"),
        (lambda X, Y: (X, Y * 0), "no row has a label"),
        (lambda X, Y: (X, [[]] * 80), "Y has no labels"),
        (lambda X, Y: (X, Y[:, :0]), "Y has no labels"),
        (lambda X, Y: (X, Y[:0]), "X has 80 rows and Y has 0"),
        (lambda X, Y: (X, []), "X has 80 rows and Y has 0"),
        (lambda X, Y: (X[:0], Y[:0]), "0 sample"),
        (lambda X, Y: (X, None), "requires y"),
        (lambda X, Y: (X, Y[1:]), "X has 80 rows and Y has 79"),
        (lambda X, Y: (X, Y[None]), "3 dimensions"),
        (lambda X, Y: (np.where(X.toarray() > 0, np.nan, 0), Y), "NaN"),
        (lambda X, Y: (np.where(X.toarray() > 0, np.inf, 0), Y), "infinity"),
        (lambda X, Y: (X * np.nan, Y), "NaN"),
        (lambda X, Y: (X.toarray()[:, :0], Y), "0 feature"),
    ],
)
@pytest.mark.parametrize("algorithm", ["em", "online_em"])
def test_refused(change, message, algorithm, few):
    with pytest.raises(ValueError, match=message) as caught:
        tiny(algorithm=algorithm).fit(*change(*few))
    assert len(str(caught.value).splitlines()) <= 6


def test_a_fit_that_fails_leaves_nothing_of_the_one_before(few):
    model = tiny().fit(*few)
    with pytest.raises(ValueError):
        model.fit(few[0], -few[1])
    with pytest.raises(NotFittedError):
        model.predict(few[0])


def test_other_widths(fitted, X):
    with pytest.raises(ValueError, match="99 features"):
        fitted.predict(X[:, :99])
    with pytest.raises(DataError, match="Y has 29 labels; expected 30"):
        pickle.loads(pickle.dumps(fitted)).partial_fit(X, np.ones((400, 29)))


def test_sizes_beyond_the_memory_are_refused_before_they_are_tried(few, monkeypatch):
    monkeypatch.setattr("labelfield.estimators.classifier.free_bytes", lambda device: 1000)
    with pytest.raises(MemoryError, match="lower n_topics, or batch_size with algorithm='online_em'"):
        tiny().fit(*few)
