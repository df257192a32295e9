"""What the deep kernel classifier refuses, and rows at the edge of what it takes."""

import re

import numpy as np
import pytest
from deep_cases import ALONE, WORDS, quietly, tiny
from scipy import sparse
from sklearn.exceptions import NotFittedError
from torch import nn

from labelfield import DataError, LabelfieldError


class TestBadInput:
    """One clear error, or what a user would expect."""

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"network": "rnn"}, "network='rnn'; expected one of mlp, bag, cnn, or a torch.nn.Module"),
            ({"network": nn.Linear}, "expected one of mlp, bag, cnn, or a torch.nn.Module"),
            ({"network": 5}, "network=5; expected one of mlp"),
            ({"network": "cnn"}, "2 features do not form a square image; pass image_shape="),
            ({"network": "cnn", "image_shape": (1, 2, 2)}, "whose product is n_features=2"),
            ({"network": "cnn", "image_shape": (1, 2)}, "expected channels, height and width"),
            ({"network": "cnn", "image_shape": 5}, "image_shape=5"),
            ({"network": "cnn", "image_shape": (1, 1, 2)}, "expected sides of at least 4"),
            ({"network": "cnn", "image_shape": (1, 1, 2), "channels": [0]}, r"channels\[0\]=0"),
            ({"network": "bag", "hidden": ()}, "expected at least one width"),
            ({"hidden": 16}, "hidden=16"),
            ({"hidden": [0]}, r"hidden\[0\]=0"),
            ({"hidden": [1.5]}, r"hidden\[0\]=1.5"),
            ({"hidden": "ab"}, "hidden='ab'"),
            ({"hidden": [65_536] * 3}, "weights; expected at most .* Make the layers narrower"),
            ({"channels": 3}, "channels=3"),
            ({"dropout": 1}, "dropout=1"),
            ({"dropout": -0.1}, "dropout=-0.1"),
            ({"grid_size": 4}, "grid_size=4; expected an integer from 5 to 100000"),
            ({"grid_size": 12.5}, "grid_size=12.5"),
            ({"grid_size": 90_000}, "grid_size=90000 for 3 processes on 1 features each; expected a smaller grid"),
            ({"subset_size": 4}, "subset_size=4"),
            ({"subset_size": 0}, "subset_size=0"),
            *(({"subsets": s}, "expected a list for each process") for s in (5, [], [[]], [0, 1], "ab", {0: [1]})),
            *(({"subsets": [[s]]}, "the feature .*; expected numbers from 0") for s in ("a", -1, 0.5, True)),
            ({"subsets": [[0], [0, 1]]}, "subsets of 1, 2 features"),
            ({"subsets": [[0, 1, 2, 3]]}, "subsets of 4 features"),
            ({"subsets": [[0, 0]]}, "expected each feature once"),
            ({"subsets": [[0], [1]], "n_processes": 3}, "n_processes=3 with 2 subsets"),
            ({"n_processes": 0}, "n_processes=0"),
            ({"kernel": "linear"}, "kernel='linear'; expected one of se"),
            ({"posterior": "full"}, "posterior='full'"),
            ({"likelihood": "robustmax"}, "likelihood='robustmax'"),
            ({"moments": "all"}, "moments='all'"),
            ({"n_samples": 0}, "n_samples=0"),
            ({"n_samples_predict": 10**9}, "n_samples_predict=1000000000; expected an integer from 1 to 100000"),
            ({"kernel_per_process": "yes"}, "kernel_per_process='yes'; expected True or False"),
            ({"n_negatives": 5}, "n_negatives is for several labels per row: a softmax needs all classes"),
            ({"n_negatives": -1}, "n_negatives=-1"),
            ({"network_epochs": -1}, "network_epochs=-1"),
            ({"max_epochs": 1.5}, "max_epochs=1.5"),
            ({"learning_rate": 0}, "learning_rate=0"),
            ({"joint_learning_rate": float("nan")}, "joint_learning_rate=nan"),
            ({"jitter": 1}, "jitter=1"),
            ({"row_transform": "cube"}, "transform"),
            ({"device": "tpu"}, "device='tpu'"),
            ({"random_state": "x"}, "random_state='x'"),
        ],
        ids=str,
    )
    def test_wrong_options(self, options, message, few):
        with pytest.raises(ValueError, match=message):
            tiny(**options).fit(few.X, few.Y.indices)

    @pytest.mark.parametrize("network", ["mlp", "own"])
    def test_rows_too_wide_to_be_made_dense(self, network):
        X = sparse.random(30, 9000, 0.01, format="csr", dtype=np.float32, random_state=0)
        options = {"network": nn.Linear(9000, 3) if network == "own" else network}
        with pytest.raises(DataError, match=r"9000 features, and .* takes dense rows; .* use network='bag'"):
            tiny(**options).fit(X, np.arange(30) % 3)

    @pytest.mark.parametrize("Y", [np.ones((120, 3), int), [["a", "b"], *[["a"]] * 119], np.zeros((120, 3), int)])
    def test_a_softmax_needs_one_class_per_row(self, Y, few):
        message = "row 0 has [023] labels; expected one class .* Use likelihood='bernoulli'"
        with pytest.raises(DataError, match=message):
            tiny(likelihood="softmax").fit(few.X, Y)
        assert tiny().fit(few.X, Y).spec_.likelihood == "bernoulli"

    def test_later_rows_have_one_class_too(self, few):
        model = tiny().fit(few.X, few.Y.indices)
        for ask in (model.partial_fit, model.bound, model.score):
            with pytest.raises(DataError, match="row 0 has 3 labels; expected one class"):
                ask(few.X, np.ones((120, 3), int))

    @pytest.mark.parametrize(
        ("X", "y", "message"),
        [
            (np.eye(3), ["a", "a", "a"], "y has one class, .*expected at least two"),
            (np.eye(3), [0, 1], "X has 3 rows and Y has 2"),
            (np.array([[np.nan], [1]]), [0, 1], "X contains NaN"),
            (np.eye(2), [0, np.nan], "y contains NaN"),
            (np.eye(2), [0.5, 1.5], "continuous"),
            (np.eye(2), None, "requires y"),
            (np.zeros((0, 3)), [], "0 sample"),
            (np.zeros((20, 3)), np.arange(20) % 2, "the network gives the same features for all rows"),
            (np.eye(2), np.zeros((2, 0), int), "Y has no labels"),
        ],
    )
    def test_refused(self, X, y, message):
        with pytest.raises(ValueError, match=message):
            tiny().fit(X, y)

    @pytest.mark.parametrize("network", ["mlp", "bag"])
    def test_batches_of_one_row(self, network, few):
        P = tiny(network=network, batch_size=1).fit(few.X[:20], few.Y.indices[:20]).predict_proba(few.X)
        np.testing.assert_allclose(P.sum(1), 1, rtol=1e-5)

    def test_two_rows(self):
        model = tiny().fit(np.eye(2), ["a", "b"])
        assert np.isfinite(model.predict_proba(np.eye(2))).all()

    def test_one_row_and_none(self, rings, fitted, several):
        X = rings.test.X
        np.testing.assert_allclose(fitted.predict_proba(X[[3]]), fitted.predict_proba(X)[[3]], rtol=1e-4, atol=1e-6)
        assert fitted.predict(X[[3]]).shape == (1,)
        none = sparse.csr_array((0, 2))
        assert fitted.predict(none).shape == fitted.predict_uncertainty(none).shape == (0,)
        for ask in (fitted.predict_proba, fitted.predict_topk, fitted.decision_function, fitted.transform):
            assert ask(none).shape == (0, 3)
        assert fitted.predict_latent(none).h_var.shape == (0, 3)
        assert several.predict(sparse.csr_array((0, several.n_features_in_))).shape == (0, several.spec_.n_labels)

    def test_wrong_width_and_nothing_fitted(self, fitted):
        with pytest.raises(ValueError, match="X has 3 features, but DeepKernelClassifier is expecting 2"):
            fitted.predict(np.eye(3))
        fresh = tiny()
        asked = ("predict", "predict_proba", "predict_topk", "predict_latent", "predict_uncertainty", "transform")
        for ask in (*asked, "predict_interval", "decision_function", "baseline_proba", "baseline_topk"):
            with pytest.raises(NotFittedError):
                getattr(fresh, ask)(np.eye(2))
        with pytest.raises(NotFittedError):
            fresh.save("m")
        for ask in ("score", "bound"):
            with pytest.raises(NotFittedError):
                getattr(fresh, ask)(np.eye(2), [0, 1])

    @pytest.mark.parametrize("rate", [1.0, 1e2, 1e5, 1e10, 1e20, 1e37])
    @pytest.mark.parametrize("options", [{}, {"subset_size": 2}, {"network_epochs": 0}, ALONE], ids=str)
    def test_rates_beyond_reason_never_end_in_nan(self, rate, options, few):
        rates = dict.fromkeys(("learning_rate", "process_learning_rate", "joint_learning_rate"), rate)
        epochs = {"network_epochs": 4, "process_epochs": 4, "max_epochs": 4}
        model = tiny(**epochs | options | rates)
        try:
            quietly(model.fit, few.X, few.Y.indices)
            asked = [model.predict_proba, *[model.baseline_proba] * model.spec_.has_baseline]
            answers = [ask(few.X) for ask in asked]
        except (LabelfieldError, ValueError) as error:
            message = str(error)
            assert rate > 10
            assert re.search("[Ll]ower (the )?learning[_ ]rate|check the row, the network and its weights", message)
            return
        for P in answers:
            np.testing.assert_allclose(P.sum(1), 1, rtol=1e-5)
        assert np.isfinite(model.decision_function(few.X)).all()

    def test_sizes_beyond_the_memory_are_refused_before_they_are_tried(self, few, monkeypatch):
        monkeypatch.setattr("labelfield.estimators.classifier.free_bytes", lambda device: 1000)
        with pytest.raises(MemoryError, match=r"lower batch_size, hidden or grid_size \(training needs about"):
            tiny().fit(few.X, few.Y.indices)

    def test_a_fit_that_fails_leaves_nothing_of_the_one_before(self, few):
        model = tiny().fit(few.X, WORDS[few.Y.indices])
        with pytest.raises(ValueError, match="cubic"):
            model.set_params(kernel="cubic").fit(few.X, few.Y.indices)
        with pytest.raises(NotFittedError):
            model.predict(few.X)
