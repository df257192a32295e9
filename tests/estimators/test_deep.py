"""The deep kernel classifier as its users meet it."""

import pickle
import re
import resource
import signal
import subprocess
import sys
import time
import warnings
from itertools import product
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
import torch
from scipy import sparse
from scipy.special import expit, softmax
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import nn

import labelfield
from labelfield import DataError, DeepKernelClassifier, LabelfieldError, MLGPFClassifier, synth
from labelfield.inference.trainer import Interrupted
from labelfield.metrics import popularity, precision_at_k
from labelfield.models import artifact
from labelfield.models.artifact import ModelError

WORDS = np.array(["cat", "dog", "eel"])
STAGES = ("network", "processes", "joint")
ALONE = {"process_epochs": 0, "max_epochs": 0}


@pytest.fixture(scope="module")
def rings():
    """Enough rows for a calibration."""
    return synth.make_rings(400, 3, noise=0.1, seed=1).split(0.25)


@pytest.fixture(scope="module")
def few():
    return synth.make_rings(120, 3, noise=0.1, seed=2)


def small(**options):
    sizes = {"hidden": (16,), "dropout": 0.0, "grid_size": 12, "batch_size": 100, "learning_rate": 0.05}
    epochs = {"network_epochs": 20, "process_epochs": 3, "max_epochs": 3}
    return DeepKernelClassifier(**sizes | epochs | {"device": "cpu"} | options)


def tiny(**options):
    epochs = {"network_epochs": 1, "process_epochs": 1, "max_epochs": 1}
    return small(**{"hidden": (8,), "grid_size": 8, "batch_size": 60} | epochs | options)


@pytest.fixture(scope="module")
def fitted(rings):
    return small(process_epochs=6, process_learning_rate=0.05).fit(rings.X, WORDS[rings.Y.indices])


@pytest.fixture(scope="module")
def several(data):
    """A model of several labels a row."""
    return small(network_epochs=8, row_transform="unit").fit(data.X, data.Y)


def arrays(estimator):
    return {name: value.numpy().copy() for name, value in estimator.model_.state_dict().items()}


def assert_same_arrays(a, b):
    assert a.keys() == b.keys()
    for name in a:
        np.testing.assert_array_equal(a[name], b[name], err_msg=name)


# Networks of a user's own


class Own(nn.Module):
    """With everything that is one thing in training and another afterwards."""

    def __init__(self, n_features=2, n_outputs=3, width=16):
        super().__init__()
        layers = nn.Linear(n_features, width), nn.BatchNorm1d(width), nn.ReLU(), nn.Dropout(0.3)
        self.layers = nn.Sequential(*layers, nn.Linear(width, n_outputs))

    def forward(self, X):
        return self.layers(X)


class OwnSparse(nn.Module):
    """Of rows that are never made dense."""

    takes_sparse = True

    def __init__(self, n_features, n_outputs):
        super().__init__()
        self.bag = nn.EmbeddingBag(n_features, 16, mode="sum")
        nn.init.normal_(self.bag.weight, std=0.1)
        self.last = nn.Linear(16, n_outputs)

    def forward(self, X):
        assert X.layout == torch.sparse_csr
        h = self.bag(X.col_indices().long(), X.crow_indices()[:-1].long(), per_sample_weights=X.values())
        return self.last(h.relu())


class Wrong(nn.Module):
    """Gives whatever a function makes of its features."""

    def __init__(self, change, n_outputs=3):
        super().__init__()
        self.layer, self.change = nn.Linear(2, n_outputs), change

    def forward(self, X):
        return self.change(X, self.layer(X))


class Poisoned(nn.Module):
    """Where a row's first feature is beyond 50, what it gives is not finite."""

    def __init__(self, value=float("nan")):
        super().__init__()
        self.layer, self.value = nn.Linear(2, 3), value

    def forward(self, X):
        return torch.where(X[:, :1] > 50, self.value, self.layer(X))


def seeded(make, *arguments, **options):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return make(*arguments, **options)


def quietly(work, *arguments):
    """Without what is said of steps that were skipped."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "step skipped")
        return work(*arguments)


class TestLearning:
    def test_it_tells_rings_apart_which_no_linear_model_does(self, rings, fitted):
        X, y = rings.test.X, WORDS[rings.test.Y.indices]
        linear = LogisticRegression().fit(rings.X.toarray(), WORDS[rings.Y.indices])
        assert linear.score(X.toarray(), y) < 0.6
        assert fitted.score(X, y) > 0.95

    def test_several_labels_a_row_are_ranked_better_than_by_popularity(self, data, several):
        popular = precision_at_k(data.test.Y, popularity(data.Y, data.test.n_rows, 1), 1)
        assert precision_at_k(data.test.Y, several.predict_topk(data.test.X, 1), 1) > 2 * popular
        assert several.spec_.likelihood == "bernoulli"
        assert several.spec_.n_processes == 40

    @pytest.mark.parametrize("hidden", [(16,), (256,)])  # embeddings with gradients that are dense and sparse
    def test_wide_sparse_rows(self, hidden):
        rng, n_features = np.random.default_rng(0), 20_000
        y = np.arange(240) % 3
        words = np.c_[rng.integers(n_features, size=(240, 6)), 100 * y[:, None] + rng.integers(50, size=(240, 4))]
        X = sparse.csr_array((np.ones(2400, np.float32), (np.repeat(np.arange(240), 10), words.ravel())))
        X.resize((240, n_features))
        model = tiny(network=None, hidden=hidden, network_epochs=8, batch_size=40).fit(X[:180], y[:180])
        assert model.spec_.network.name == "bag"
        assert model.score(X[180:], y[180:]) > 0.9

    def test_images(self):
        """A bar somewhere, upright or lying, is alike for a linear model."""
        rng = np.random.default_rng(0)
        images, y = 0.3 * rng.standard_normal((300, 8, 8)), np.arange(300) % 2
        for image, is_upright, place in zip(images, y, rng.integers(8, size=300), strict=True):
            (image.T if is_upright else image)[place] += 1
        X = images.reshape(300, 64)
        model = tiny(network="cnn", channels=(4, 8), network_epochs=8, learning_rate=0.02)
        assert model.fit(X[:200], y[:200]).score(X[200:], y[200:]) > 0.95
        assert model.spec_.network.image_shape == (1, 8, 8)
        assert LogisticRegression().fit(X[:200], y[:200]).score(X[200:], y[200:]) < 0.7


class TestStages:
    @pytest.mark.parametrize("epochs", [e for e in product((0, 2), repeat=3) if any(e)])
    def test_each_may_be_left_out(self, epochs, few):
        n_network, n_process, n_joint = epochs
        model = tiny(network_epochs=n_network, process_epochs=n_process, max_epochs=n_joint)
        P = model.fit(few.X, few.Y.indices).predict_proba(few.X)
        np.testing.assert_allclose(P.sum(1), 1, rtol=1e-5)
        expected = [name for name, count in zip(STAGES, epochs, strict=True) for _ in range(count)]
        assert [epoch["stage"] for epoch in model.history_] == expected
        assert model.n_iter_ == sum(epochs)
        assert list(model.stage_settings()) == [s for s, count in zip(STAGES, epochs, strict=True) if count]
        assert model.spec_.is_plain == (not n_process and not n_joint)
        assert model.spec_.has_baseline == (n_network > 0 and not model.spec_.is_plain)
        assert model.spec_.has_baseline == any(name.startswith("baseline.") for name in arrays(model))

    def test_something_is_to_be_trained(self, few):
        with pytest.raises(ValueError, match="network_epochs, process_epochs and max_epochs are all 0"):
            tiny(network_epochs=0, **ALONE).fit(few.X, few.Y.indices)

    @pytest.mark.parametrize("n_processes", [None, 5])
    @pytest.mark.parametrize("subset_size", [1, 2])
    def test_the_network_alone_is_a_softmax_of_its_logits(self, n_processes, subset_size, rings):
        model = small(**ALONE, n_processes=n_processes, subset_size=subset_size).fit(rings.X, rings.Y.indices)
        X, A, b = rings.test.X, *(getattr(model.model_, name).detach().numpy() for name in "Ab")
        sums = model.transform(X).reshape(100, -1, subset_size).sum(2)
        assert sums.shape[1] == (n_processes or 3)
        logits = sums @ A.T + b
        np.testing.assert_allclose(model.predict_proba(X, calibrated=False), softmax(logits, 1), atol=1e-6)
        power = model.model_.calibration.power.numpy()
        assert power != 1
        np.testing.assert_allclose(model.predict_proba(X), softmax(power * logits, 1), atol=1e-5)
        latent = model.predict_latent(X)
        np.testing.assert_allclose(latent.f_mean, sums, rtol=1e-5, atol=1e-6)
        assert not latent.f_var.any()
        bound = model.bound(X, rings.test.Y.indices)
        assert bound["kl"] == 0
        log_prob = np.log(softmax(logits, 1))[np.arange(100), rings.test.Y.indices].sum()
        assert bound["bound"] == pytest.approx(log_prob, rel=1e-4)
        for ask in (model.baseline_proba, model.baseline_topk):
            with pytest.raises(ValueError, match="there is no baseline; fit with keep_baseline=True"):
                ask(X)

    def test_the_network_alone_of_several_labels(self, data):
        model = tiny(**ALONE, calibrated=False).fit(data.X, data.Y)
        b = model.model_.b.detach().numpy()
        logits = model.transform(data.test.X) + b  # a square mixing stays the identity
        np.testing.assert_allclose(model.predict_proba(data.test.X), expit(logits), rtol=1e-5, atol=1e-7)

    @pytest.mark.parametrize(("network", "process_epochs"), [("mlp", 3), ("own", 3), ("mlp", 0)])
    def test_the_baseline_is_the_plain_network_as_it_was(self, network, process_epochs, rings):
        options = {"calibrated": False, "network": seeded(Own) if network == "own" else network, "network_epochs": 5}
        y, epochs = rings.Y.indices, {"process_epochs": process_epochs}
        whole, alone = (small(**options, **rest).fit(rings.X, y) for rest in (epochs, ALONE))
        X = rings.test.X
        np.testing.assert_array_equal(whole.baseline_proba(X), alone.predict_proba(X))
        np.testing.assert_array_equal(whole.baseline_topk(X, 3).toarray(), alone.predict_proba(X))
        assert not np.array_equal(whole.predict_proba(X), alone.predict_proba(X))

    @pytest.mark.parametrize("left_out", ["process_epochs", "max_epochs"])
    def test_processes_begin_where_the_network_ended(self, left_out, rings):
        """Before they have learned anything they are as sure of the same classes, but for their doubts."""
        rates = {"process_learning_rate": 1e-9, "joint_learning_rate": 1e-9, "calibrated": False, left_out: 0}
        model = small(**rates).fit(rings.X, rings.Y.indices)
        h = torch.from_numpy(model.transform(rings.X))
        # Almost all features are where the grid takes them as they are.
        assert (model.model_.processes.grid.squash(h).abs() <= 0.8).float().mean() > 0.98
        np.testing.assert_allclose(model.predict_latent(rings.X).f_mean, h, atol=0.1 * h.abs().max())
        best = [ask(rings.X).argmax(1) for ask in (model.predict_proba, model.baseline_proba)]
        assert np.mean(best[0] == best[1]) > 0.9

    def test_a_baseline_of_several_labels(self, data):
        whole, alone = (tiny(calibrated=False, **rest).fit(data.X, data.Y) for rest in ({}, ALONE))
        np.testing.assert_array_equal(whole.baseline_proba(data.test.X), alone.predict_proba(data.test.X))
        best = whole.baseline_topk(data.test.X, 4)
        np.testing.assert_array_equal(best.toarray(), alone.predict_topk(data.test.X, 4).toarray())

    def test_the_baseline_has_a_calibration_of_its_own(self, rings, fitted):
        raw, P = (fitted.baseline_proba(rings.test.X, calibrated=c) for c in (False, True))
        power = fitted.model_.baseline.calibration.power.numpy()
        assert power not in (1, fitted.model_.calibration.power.numpy())
        np.testing.assert_allclose(P, softmax(power * np.log(raw), 1), rtol=1e-4, atol=1e-7)

    def test_no_baseline_is_kept_unasked(self, few):
        model = tiny(keep_baseline=False).fit(few.X, few.Y.indices)
        assert not any(name.startswith("baseline.") for name in arrays(model))
        with pytest.raises(ValueError, match="there is no baseline"):
            model.baseline_proba(few.X)

    def test_a_time_budget_is_shared_by_all(self, few):
        model = tiny(network_epochs=10**5, process_epochs=10**5, max_epochs=10**5, time_budget=0.3)
        model.fit(few.X, few.Y.indices)
        assert {epoch["stage"] for epoch in model.history_} == set(STAGES)
        assert sum(s.time_budget for s in model.stage_settings().values()) == pytest.approx(0.3)
        assert model.n_iter_ < 10**5


VARIANTS = [
    *({"kernel": kernel} for kernel in ("matern12", "matern32", "matern52", "spectral_mixture")),
    {"kernel": "spectral_mixture", "n_mixtures": 2},
    {"posterior": "kronecker"},
    {"moments": "sampled"},
    {"moments": "sampled", "n_samples": 3},
    {"n_samples": 4},
    {"own_kernel": False},
    {"likelihood": "bernoulli"},
    {"likelihood": "bernoulli", "moments": "sampled"},
    {"n_samples_predict": 7},
    {"jitter": 0.1},
    *({"subset_size": size, "grid_size": 6, "posterior": p} for size in (2, 3) for p in ("kronecker", None)),
    {"subset_size": 2, "own_kernel": False, "kernel": "spectral_mixture"},
    {"subsets": [[0, 1], [1, 2], [2, 0]], "grid_size": 6},
    {"subsets": np.array([[0], [1], [0], [1]])},
    {"n_processes": 2},
    {"schedule": "constant"},
    {"kl_weight": 0.1},
    {"clip_norm": 0.01},
    {"dropout": 0.5},
    {"hidden": (8, 4)},
    {"hidden": ()},
]


@pytest.fixture(scope="module")
def plain_variant(few):
    return tiny().fit(few.X, few.Y.indices).predict_proba(few.X)


@pytest.mark.parametrize("options", VARIANTS, ids=str)
def test_variants(options, few, plain_variant, tmp_path):
    """Each does something, has a finite bound, gives probabilities, and is saved."""
    X, y = few.X, few.Y.indices
    model = tiny(**options).fit(X, y)
    for name in vars(model.spec_).keys() & {name for name, value in options.items() if value is not None}:
        if name != "subsets":
            assert getattr(model.spec_, name) == options[name]
    P, latent, bound = model.predict_proba(X), model.predict_latent(X), model.bound(X, y)
    assert ((P >= 0) & (P <= 1)).all()
    if options.get("likelihood") != "bernoulli":
        np.testing.assert_allclose(P.sum(1), 1, rtol=1e-5)
    assert not np.array_equal(P, plain_variant)
    assert (latent.f_var > 0).all()
    assert latent.f_mean.shape == latent.f_var.shape == (120, model.spec_.n_processes)
    assert latent.g_mean.shape == latent.g_var.shape == (120, 3)
    assert np.isfinite(bound["bound"])
    assert bound["kl"] > 0
    assert np.isfinite([epoch["bound"] for epoch in model.history_]).all()
    model.save(tmp_path / "m")
    np.testing.assert_array_equal(labelfield.load(tmp_path / "m", device="cpu").predict_proba(X), P)


def test_subsets_say_which_features_each_process_is_on(few):
    model = tiny(subsets=[[0, 3], [3, 1]], grid_size=6).fit(few.X, few.Y.indices)
    assert (model.spec_.n_outputs, model.spec_.n_processes, model.spec_.n_dimensions) == (4, 2, 2)
    h = torch.from_numpy(model.transform(few.X)).clone()
    with torch.no_grad():
        before = model.model_.latent(h).mean
        h[:, 0] += 0.5
        changed = model.model_.latent(h).mean != before
    assert changed[:, 0].any()
    assert not changed[:, 1].any()


@pytest.mark.parametrize("moments", ["exact", "sampled"])
def test_drawn_negatives(moments, data):
    model = small(n_negatives=5, moments=moments, network_epochs=8, row_transform="unit").fit(data.X, data.Y)
    assert model.n_negatives_ == 5
    assert precision_at_k(data.test.Y, model.predict_topk(data.test.X, 1), 1) > 0.35


class TestNetworksOfTheUsersOwn:
    @pytest.fixture(scope="class")
    @classmethod
    def saved(cls, few, tmp_path_factory):
        """A model around a network, that network, as it was before, and the folder of the model."""
        network = seeded(Own)
        before = {name: value.clone() for name, value in network.state_dict().items()}
        model = tiny(network=network).fit(few.X, WORDS[few.Y.indices])
        folder = tmp_path_factory.mktemp("own") / "m"
        model.save(folder)
        return model, network, before, folder

    def test_fitting_leaves_it_as_it_was(self, saved):
        model, network, before, _ = saved
        assert network.training
        for name, value in network.state_dict().items():
            assert torch.equal(value, before[name])
        learned = model.model_.features.network.state_dict()
        assert not torch.equal(learned["layers.0.weight"], before["layers.0.weight"])
        assert not torch.equal(learned["layers.1.running_mean"], before["layers.1.running_mean"])
        assert model.network is network

    def test_it_is_found_again(self, saved, few, tmp_path):
        model, _, _, folder = saved
        fresh = Own()
        before = {name: value.clone() for name, value in fresh.state_dict().items()}
        again = labelfield.load(folder, network=fresh, device="cpu")
        for ask in ("predict_proba", "baseline_proba", "transform", "predict"):
            np.testing.assert_array_equal(getattr(again, ask)(few.X), getattr(model, ask)(few.X))
        for name, value in fresh.state_dict().items():
            assert torch.equal(value, before[name])
        again.save(tmp_path / "m")
        once_more = labelfield.load(tmp_path / "m", network=Own(), device="cpu")
        np.testing.assert_array_equal(once_more.predict_proba(few.X), model.predict_proba(few.X))
        once_more.partial_fit(few.X, WORDS[few.Y.indices])
        assert not np.array_equal(once_more.predict_proba(few.X), model.predict_proba(few.X))

    def test_what_is_predicted_does_not_depend_on_rows_beside(self, saved, few):
        """Neither BatchNorm nor Dropout is in training any more."""
        model, X = saved[0], few.X
        P = model.predict_proba(X)
        np.testing.assert_array_equal(model.predict_proba(X), P)
        np.testing.assert_allclose(model.predict_proba(X[[7]]), P[[7]], rtol=1e-5)

    def test_loading_without_it_says_what_is_missing(self, saved):
        with pytest.raises(ModelError, match=r"network of your own, \S*Own, which is not in its folder; .* network=…"):
            labelfield.load(saved[3])

    @pytest.mark.parametrize("network", [Own(width=5), Own(n_outputs=4), nn.Linear(2, 3), nn.Identity()])
    def test_loading_with_another_one(self, network, saved):
        with pytest.raises(ModelError, match=r"the network does not fit|no model can be made of it") as caught:
            labelfield.load(saved[3], network=network)
        assert "\n" not in str(caught.value)

    def test_only_models_that_have_one_are_given_one(self, few, tmp_path):
        tiny().fit(few.X, few.Y.indices).save(tmp_path / "deep")
        with pytest.raises(ModelError, match="has a network of its own; load it without network="):
            labelfield.load(tmp_path / "deep", network=Own())
        MLGPFClassifier(max_epochs=1, n_inducing=5, n_latent=2).fit(few.X, few.Y).save(tmp_path / "mlgpf")
        with pytest.raises(ModelError, match="method 'mlgpf', which has no network; load it without network="):
            labelfield.load(tmp_path / "mlgpf", network=Own())

    def test_one_that_takes_sparse_rows(self, data, tmp_path):
        options = {"network": seeded(OwnSparse, 200, 40), "network_epochs": 10, "row_transform": "unit"}
        model = tiny(**options).fit(data.X, data.Y)
        popular = precision_at_k(data.test.Y, popularity(data.Y, data.test.n_rows, 1), 1)
        assert precision_at_k(data.test.Y, model.predict_topk(data.test.X, 1), 1) > 1.5 * popular
        model.save(tmp_path / "m")
        again = labelfield.load(tmp_path / "m", network=OwnSparse(200, 40), device="cpu")
        np.testing.assert_array_equal(again.predict_proba(data.test.X), model.predict_proba(data.test.X))

    def test_rows_wider_than_dense_ones_may_be(self):
        X = sparse.random(60, 9000, 0.01, format="csr", dtype=np.float32, random_state=0)
        model = tiny(network=seeded(OwnSparse, 9000, 3)).fit(X, np.arange(60) % 3)
        assert model.transform(X).shape == (60, 3)

    @pytest.mark.parametrize("network", [nn.Identity(), nn.Linear(2, 2).requires_grad_(False)])
    def test_nothing_need_be_learned_in_it(self, network, few):
        model = tiny(network=network).fit(few.X, few.Y.indices)
        np.testing.assert_allclose(model.transform(few.X), network(torch.from_numpy(few.X.toarray())), rtol=1e-5)
        assert model.spec_.n_processes == 2

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            (lambda _, h: h[:, 0], r"the network gives \(2,\) for 2 rows; expected a tensor \(2, Q\)"),
            (lambda _, h: h[:1], r"the network gives \(1, 3\) for 2 rows"),
            (lambda _, h: (h, h), "the network gives tuple for 2 rows"),
            (lambda *_: None, "the network gives NoneType for 2 rows"),
            (lambda _, h: h.unsqueeze(2), r"the network gives \(2, 3, 1\) for 2 rows"),
            (lambda _, h: h.double(), "features of torch.float64; expected torch.float32"),
            (lambda X, _: X[:, [7]], r"the network Wrong cannot take rows of shape \(2, 2\): .*index 7"),
            (lambda _, h: 0 * h, "the network gives the same features for all rows, such as"),
        ],
    )
    def test_features_that_are_none(self, change, message, few):
        with pytest.raises(ValueError, match=message):
            tiny(network=Wrong(change)).fit(few.X, few.Y.indices)

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"n_processes": 2}, "the network gives 3 features; 2 processes on 1 each need 2"),
            ({"subset_size": 2}, "the network gives 3 features; 1 processes on 2 each need 2"),
            ({"subsets": [[0], [3]]}, "subsets has the feature 3; expected numbers from 0 to 2"),
        ],
    )
    def test_features_that_do_not_go_round(self, options, message, few):
        with pytest.raises(ValueError, match=message):
            tiny(network=nn.Linear(2, 3), **options).fit(few.X, few.Y.indices)

    def test_rows_that_it_cannot_take(self, few):
        with pytest.raises(ValueError, match=r"the network Linear cannot take rows of shape \(2, 2\): .*mat1 and mat2"):
            tiny(network=nn.Linear(5, 3)).fit(few.X, few.Y.indices)

    @pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
    def test_features_that_are_not_finite(self, value, few, monkeypatch):
        X = few.X.toarray()
        model = tiny(network=Poisoned(value)).fit(X, few.Y.indices)
        # A row among those that say where the grid is to be, whatever its number is among them.
        monkeypatch.setattr("labelfield.estimators.deep_training._SEEN_ROWS", 50)
        row = np.random.default_rng(0).permutation(120)[:50].max()
        X[row, 0] = 99
        with pytest.raises(DataError, match=f"features that are not finite for row {row};"):
            tiny(network=Poisoned(value)).fit(X, few.Y.indices)
        monkeypatch.setattr("labelfield.estimators.deep_prediction._MOST_ROWS", 7)
        for ask in (model.predict, model.predict_proba, model.transform, model.baseline_proba):
            with pytest.raises(DataError, match=f"features that are not finite for row {row};"):
                ask(X)

    @pytest.mark.parametrize("network_epochs", [0, 2])
    def test_a_row_that_nobody_looked_at_before(self, network_epochs, few, monkeypatch):
        X, row = few.X.toarray(), np.random.default_rng(0).permutation(120)[-1]
        X[row, 0] = 99
        monkeypatch.setattr("labelfield.estimators.deep_training._SEEN_ROWS", 50)
        expected = "training broke down" if network_epochs else f"not finite for row {row};"
        model = tiny(network=Poisoned(), network_epochs=network_epochs, batch_size=120)
        with pytest.raises(LabelfieldError, match=expected):
            quietly(model.fit, X, few.Y.indices)

    def test_a_batch_of_one_row_is_too_few_for_batch_norm(self, few):
        with pytest.raises(ValueError, match="more than 1 value per channel"):
            tiny(network=Own(), batch_size=1).fit(few.X, few.Y.indices)


# Models to be saved: what they are, the rows they are fitted to and asked about.
def make_models(rings, data):
    bars = np.random.default_rng(0).standard_normal((90, 64)).astype(np.float32)
    lists = [[f"label {label}" for label in data.Y[[row]].indices] for row in range(data.n_rows)]
    y = WORDS[rings.Y.indices]
    return {
        "mlp": (small(network_epochs=3).fit(rings.X, y), rings.test.X),
        "mlp alone": (small(network_epochs=3, **ALONE).fit(rings.X, y), rings.test.X),
        "bag": (tiny(network="bag", max_epochs=3, row_transform="unit").fit(data.X, lists), data.test.X),
        "bag without baseline": (
            tiny(network="bag", keep_baseline=False, row_transform="unit").fit(data.X, data.Y),
            data.test.X,
        ),
        "bag alone": (
            tiny(network="bag", network_epochs=3, row_transform="unit", **ALONE).fit(data.X, data.Y),
            data.test.X,
        ),
        "cnn": (tiny(network="cnn", channels=(2, 3)).fit(bars, WORDS[np.arange(90) % 3]), sparse.csr_array(bars)),
    }


@pytest.fixture(scope="module")
def models(rings, data):
    return make_models(rings, data)


class TestSaving:
    @pytest.mark.parametrize("name", ["mlp", "mlp alone", "bag", "bag without baseline", "bag alone", "cnn"])
    def test_a_saved_model_predicts_the_same(self, name, models, tmp_path):
        model, X = models[name]
        model.save(tmp_path / "m")
        again = labelfield.load(tmp_path / "m", device="cpu")
        asked = ["predict_proba", "predict_uncertainty", "transform", "decision_function"]
        for ask in asked + ["baseline_proba"] * model.spec_.has_baseline:
            np.testing.assert_array_equal(getattr(again, ask)(X), getattr(model, ask)(X), err_msg=ask)
        assert again.spec_ == model.spec_
        assert again.classes_.tolist() == model.classes_.tolist()
        assert again.history_ == model.history_
        if name in ("mlp", "mlp alone", "bag"):
            assert model.settings_.held_out > 0
            assert not np.array_equal(again.predict_proba(X), again.predict_proba(X, calibrated=False))
        if model.label_kind_ == "classes":
            assert again.predict(X).tolist() == model.predict(X).tolist()
            assert set(again.predict(X)) <= set(WORDS)

    def test_in_a_new_process(self, models, tmp_path):
        script = """
import sys, labelfield, numpy as np
from scipy import sparse
from pathlib import Path
for folder in sorted(Path(sys.argv[1]).iterdir()):
    model, X = labelfield.load(folder / "m", device="cpu"), sparse.load_npz(folder / "X.npz")
    plain = model.baseline_proba(X) if model.spec_.has_baseline else []
    np.savez(folder / "found.npz", P=model.predict_proba(X), plain=plain)
"""
        for name, (model, X) in models.items():
            model.save(tmp_path / name / "m")
            sparse.save_npz(tmp_path / name / "X.npz", sparse.csr_array(X))
        subprocess.run([sys.executable, "-c", script, tmp_path], check=True, timeout=60)
        for name, (model, X) in models.items():
            found = np.load(tmp_path / name / "found.npz")
            np.testing.assert_array_equal(found["P"], model.predict_proba(X), err_msg=name)
            if model.spec_.has_baseline:
                np.testing.assert_array_equal(found["plain"], model.baseline_proba(X), err_msg=name)

    def test_a_loaded_model_goes_on(self, models, rings, tmp_path):
        model, X = models["mlp"]
        model.save(tmp_path / "m")
        again = labelfield.load(tmp_path / "m", device="cpu").partial_fit(rings.X, WORDS[rings.Y.indices])
        assert again.n_iter_ == model.n_iter_ + 1
        assert not np.array_equal(again.predict_proba(X), model.predict_proba(X))
        np.testing.assert_array_equal(again.baseline_proba(X), model.baseline_proba(X))

    @pytest.mark.parametrize("form", ["indicators", "sparse indicators", "lists"])
    def test_one_class_a_row_in_other_forms(self, form, few, tmp_path):
        y = few.Y.indices
        forms = {"indicators": np.eye(3, dtype=int)[y], "sparse indicators": few.Y, "lists": [[int(i)] for i in y]}
        Y = forms[form]
        model, other = tiny(likelihood="softmax").fit(few.X, Y), tiny().fit(few.X, y)
        model.save(tmp_path / "m")
        for found in (model, labelfield.load(tmp_path / "m", device="cpu")):
            np.testing.assert_array_equal(found.predict(few.X), other.predict(few.X))
            np.testing.assert_array_equal(found.predict_proba(few.X), other.predict_proba(few.X))
            assert found.score(few.X, Y) == other.score(few.X, y)
            assert found.bound(few.X, Y) == other.bound(few.X, y)


class TestDamagedModels:
    """By someone who also mends the checksums."""

    @pytest.fixture(scope="class")
    @classmethod
    def saved(cls, few, tmp_path_factory):
        folder = tmp_path_factory.mktemp("damaged") / "m"
        tiny().fit(few.X, few.Y.indices).save(folder)
        return artifact.load_artifact(folder)

    def damage(self, saved, config=None, arrays=None):
        changed = saved[0] | (config or {}), saved[1] | (arrays or {}), saved[2]
        with (
            patch("labelfield.estimators.saving.load_artifact", lambda path: changed),
            pytest.raises(ModelError) as caught,
        ):
            labelfield.load("model")
        message = str(caught.value)
        assert message.startswith("model: ")
        assert "\n" not in message
        return message

    @pytest.fixture
    def little_memory(self):
        """A gigabyte more than there is."""
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        before = resource.getrlimit(resource.RLIMIT_AS)
        resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + (1 << 30), before[1]))
        yield
        resource.setrlimit(resource.RLIMIT_AS, before)

    def test_impossible_sizes(self, saved, little_memory):
        spec = saved[0]["spec"]
        started = time.perf_counter()
        for change in (
            {"grid_size": 10**9},
            {"grid_size": 50_000},  # which a model could have
            {"n_labels": 10**12},
            {"n_outputs": 10**9},
            {"n_features": 10**9},
            {"subsets": [[0]] * 100_000},
            {"subsets": [[0, 1, 2]] * 3, "grid_size": 1300},
            {"kernel": "spectral_mixture", "n_mixtures": 10**11},
            {"n_samples": 10**11},
            {"n_samples_predict": 10**11},  # which would be felt in prediction
            *(
                {"network": spec["network"] | network}
                for network in (
                    {"hidden": [65_536, 60_000]},
                    {"hidden": [65_536] * 64},
                    {"hidden": [10**12]},
                    {"n_features": 10**9},
                    {"n_outputs": 65_536},
                    {"name": "bag", "hidden": [65_536, 60_000]},
                    {"name": "cnn", "image_shape": [1, 1, 2], "channels": []},
                    {"name": "cnn", "image_shape": [2, 1, 1], "channels": [65_536, 40_000]},
                )
            ),
        ):
            message = self.damage(saved, config={"spec": spec | change})
            assert "alloc" not in message
            assert "memory" not in message
        assert time.perf_counter() - started < 2

    def test_descriptions(self, saved):
        config = saved[0]
        spec, options = config["spec"], config["options"]
        for change in (
            {"method": "softmax"},
            {"method": "mlgpf"},
            {"label_kind": "indicator"},
            {"label_kind": "lists"},
            {"classes": [1, 2]},
            {"n_features": 3},
            {"row_transform": "cube"},
            {"spec": None},
            {"options": None},
            {"options": options | {"kernel": "cubic"}},
            {"options": options | {"nonsense": 1}},
            *(
                {"spec": {name: value for name, value in spec.items() if name != missing}}
                for missing in ("network", "network_class", "subsets", "grid_size")
            ),
            *(
                {"spec": spec | changed}
                for changed in (
                    {"network": None},
                    {"network": "mlp"},
                    {"network": {"name": "mlp"}},
                    {"network": spec["network"] | {"name": "rnn"}},
                    {"network": spec["network"] | {"dropout": 1}},
                    {"network": spec["network"] | {"code": "__import__('os')"}},
                    {"network_class": "os.system"},
                    {"network": None, "network_class": "os.system"},
                    {"network_class": 3},
                    {"likelihood": "bernoulli"},
                    {"likelihood": "robustmax"},
                    {"kernel": "spectral_mixture"},
                    {"kernel": "__import__('os')"},
                    {"posterior": "best"},
                    {"moments": "all"},
                    {"own_kernel": False},
                    {"own_kernel": 1},
                    {"has_baseline": False},
                    {"is_plain": "no"},
                    {"subsets": [[0], [1]]},
                    {"subsets": [[0], [1], [3]]},
                    {"subsets": []},
                    {"n_samples": 0},
                    {"n_points": 500},
                    {"n_labels": 4},
                    {"jitter": float("nan")},
                    {"nonsense": 1},
                )
            ),
        ):
            self.damage(saved, config=change)

    def test_numbers(self, saved):
        arrays = saved[1]
        for name in (
            "A",
            "b",
            "baseline.b",
            "calibration.power",
            "features.network.last.W",
            "processes.log_variance",
            "processes.family.mean",
            "processes.grid.centre",
        ):
            self.damage(saved, arrays={name: arrays[name] * float("nan")})
            self.damage(saved, arrays={name: arrays[name][:0]})
            self.damage(saved, arrays={name: arrays[name].double()})
        for name in ("calibration.power", "baseline.calibration.power", "processes.grid.scale", "rows.weights"):
            self.damage(saved, arrays={name: -arrays[name]})
        self.damage(saved, arrays={"surplus": arrays["b"]})


class TestSeeds:
    @pytest.mark.parametrize("options", [{}, {"dropout": 0.5, "moments": "sampled"}, {"network": "own"}])
    def test_the_same_seed_gives_the_same_arrays(self, options, few):
        if options.get("network") == "own":
            options = {"network": seeded(Own)}
        a, b, c = (arrays(tiny(random_state=s, **options).fit(few.X, few.Y.indices)) for s in (3, 3, 4))
        assert_same_arrays(a, b)
        assert not np.array_equal(a["processes.family.mean"], c["processes.family.mean"])

    @pytest.mark.parametrize("is_own", [False, True])
    def test_torchs_own_generator_is_left_alone(self, is_own, few):
        network = Own() if is_own else "mlp"
        before = torch.get_rng_state()
        model = tiny(network=network, dropout=0.5).fit(few.X, few.Y.indices)
        model.predict_proba(few.X)
        model.partial_fit(few.X, few.Y.indices)
        assert torch.equal(torch.get_rng_state(), before)

    def test_nor_does_it_matter_where_that_stands(self, few):
        found = []
        for seed in (1, 2):
            with torch.random.fork_rng():
                torch.manual_seed(seed)
                found.append(arrays(tiny(network=seeded(Own)).fit(few.X, few.Y.indices)))
        assert_same_arrays(*found)

    @staticmethod
    def in_stages(is_own):
        network = seeded(Own) if is_own else "mlp"
        return small(network=network, dropout=0.3, network_epochs=2, process_epochs=2, max_epochs=3)

    @pytest.fixture(scope="class")
    @classmethod
    def uninterrupted(cls, rings):
        return {is_own: cls.in_stages(is_own).fit(rings.X, rings.Y.indices) for is_own in (False, True)}

    # Steps an epoch: 3. In each stage, at the end of one, and after rows that were held out have joined.
    @pytest.mark.parametrize(
        ("is_own", "stop_after"),
        [*((False, step) for step in (2, 6, 8, 14, 20)), *((True, step) for step in (5, 11, 16))],
    )
    def test_an_interrupted_run_resumes_to_the_same_arrays(
        self, is_own, stop_after, rings, uninterrupted, tmp_path, interrupt_after
    ):
        X, y, path = rings.X, rings.Y.indices, tmp_path / "checkpoint.safetensors"
        interrupt = interrupt_after(stop_after, signal.SIGINT)
        with pytest.raises(Interrupted, match="SIGINT"):
            self.in_stages(is_own).fit(X, y, checkpoint=path, on_step=interrupt)
        assert interrupt.steps == stop_after
        stages, resumed = [], self.in_stages(is_own)
        resumed.fit(X, y, checkpoint=path, resume=True, on_step=lambda run, _: stages.append(run.stage))
        assert stages == (["network"] * 6 + ["processes"] * 6 + ["joint"] * 9)[stop_after:]
        whole = uninterrupted[is_own]
        assert whole.settings_.held_out == 30
        assert_same_arrays(arrays(whole), arrays(resumed))
        np.testing.assert_array_equal(resumed.predict_proba(X), whole.predict_proba(X))
        told = [[(e["stage"], e["bound"]) for e in fit.history_] for fit in (whole, resumed)]
        assert told[0] == told[1]

    def test_a_checkpoint_of_something_else_is_refused(self, few, tmp_path):
        X, y, path = few.X, few.Y.indices, tmp_path / "checkpoint.safetensors"
        tiny().fit(X, y, checkpoint=path)
        for options in ({"kernel": "matern32"}, {"hidden": (9,)}, {"joint_learning_rate": 0.1}, {"dropout": 0.1}):
            with pytest.raises(DataError, match="the checkpoint was made with another"):
                tiny(**options).fit(X, y, checkpoint=path, resume=True)
        with pytest.raises(DataError, match="the checkpoint was made in the stage 'joint'; expected one of network"):
            tiny(**ALONE).fit(X, y, checkpoint=path, resume=True)

    def test_rows_that_do_not_fit_as_dense_ones_come_sparse(self, few, monkeypatch):
        dense = arrays(tiny().fit(few.X, few.Y.indices))
        monkeypatch.setattr("labelfield.estimators.deep_training.free_bytes", lambda device: 1)
        assert_same_arrays(dense, arrays(tiny().fit(few.X, few.Y.indices)))


class TestBadInput:
    """One clear error, or what a user would expect."""

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"network": "rnn"}, "network='rnn'; expected one of mlp, bag, cnn, or a torch.nn.Module"),
            ({"network": nn.Linear}, "expected one of mlp, bag, cnn, or a torch.nn.Module"),
            ({"network": 5}, "network=5; expected one of mlp"),
            ({"network": "cnn"}, "2 features are no square image; pass image_shape="),
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
            ({"grid_size": 4}, "grid_size=4; expected an integer of at least 5"),
            ({"grid_size": 12.5}, "grid_size=12.5"),
            ({"grid_size": 90_000}, "grid_size=90000 for 3 processes on 1 features each; expected a smaller grid"),
            ({"subset_size": 4}, "subset_size=4"),
            ({"subset_size": 0}, "subset_size=0"),
            *(({"subsets": s}, "expected a list for each process") for s in (5, [], [[]], [0, 1], [["a"]], "ab")),
            *(({"subsets": s}, "expected a list for each process") for s in ([[-1]], [[0.5]], [[True]], {0: [1]})),
            ({"subsets": [[0], [0, 1]]}, "subsets of 1, 2 features"),
            ({"subsets": [[0, 1, 2, 3]]}, "subsets of 4 features"),
            ({"subsets": [[0, 0]]}, "expected each feature once"),
            ({"subsets": [[0], [1]], "n_processes": 3}, "n_processes=3 with 2 subsets"),
            ({"n_processes": 0}, "n_processes=0"),
            ({"n_mixtures": 0}, "n_mixtures=0"),
            ({"kernel": "linear"}, "kernel='linear'; expected one of se"),
            ({"posterior": "full"}, "posterior='full'"),
            ({"likelihood": "robustmax"}, "likelihood='robustmax'"),
            ({"moments": "all"}, "moments='all'"),
            ({"n_samples": 0}, "n_samples=0"),
            ({"n_samples_predict": 10**9}, "n_samples_predict=1000000000; expected .* at most 100000"),
            ({"own_kernel": "yes"}, "own_kernel='yes'; expected True or False"),
            ({"n_negatives": 5}, "n_negatives is for several labels a row: a softmax needs all classes"),
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
    def test_a_softmax_needs_one_class_a_row(self, Y, few):
        message = "row 0 has [023] labels; expected one class a row. Use likelihood='bernoulli'"
        with pytest.raises(DataError, match=message):
            tiny(likelihood="softmax").fit(few.X, Y)
        assert tiny().fit(few.X, Y).spec_.likelihood == "bernoulli"

    def test_later_rows_have_one_class_too(self, few):
        model = tiny().fit(few.X, few.Y.indices)
        for ask in (model.partial_fit, model.bound, model.score):
            with pytest.raises(DataError, match="a row has no class or several; expected one class a row"):
                ask(few.X, np.ones((120, 3), int))

    @pytest.mark.parametrize(
        ("X", "y", "message"),
        [
            (np.eye(3), ["a", "a", "a"], "y has one class; expected at least two"),
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
        assert fitted.predict_latent(none).f_var.shape == (0, 3)
        assert several.predict(sparse.csr_array((0, 200))).shape == (0, 40)

    def test_wrong_width_and_nothing_fitted(self, fitted):
        with pytest.raises(ValueError, match="X has 3 features, but DeepKernelClassifier is expecting 2"):
            fitted.predict(np.eye(3))
        fresh = tiny()
        asked = ("predict", "predict_proba", "predict_topk", "predict_latent", "predict_uncertainty", "transform")
        for ask in (*asked, "decision_function", "baseline_proba", "baseline_topk", "save"):
            with pytest.raises(NotFittedError):
                getattr(fresh, ask)(np.eye(2))
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
        monkeypatch.setattr("labelfield.estimators.training.free_bytes", lambda device: 1000)
        with pytest.raises(MemoryError, match=r"lower batch_size, hidden or grid_size \(training needs about"):
            tiny().fit(few.X, few.Y.indices)

    def test_a_fit_that_fails_leaves_nothing_of_the_one_before(self, few):
        model = tiny().fit(few.X, WORDS[few.Y.indices])
        with pytest.raises(ValueError, match="cubic"):
            model.set_params(kernel="cubic").fit(few.X, few.Y.indices)
        with pytest.raises(NotFittedError):
            model.predict(few.X)


class TestPartialFit:
    def test_classes_that_come_later_can_be_announced(self, few):
        y = WORDS[few.Y.indices]
        model = tiny()
        for part in (slice(0, 40), slice(40, 120)):
            model.partial_fit(few.X[part], y[part], classes=["cat", "dog", "eel", "fox"])
        assert model.classes_.tolist() == ["cat", "dog", "eel", "fox"]
        assert (model.n_rows_, model.n_iter_) == (120, 2)
        model.partial_fit(few.X[:2], ["fox", "fox"])
        assert model.label_counts_.tolist() == [40, 40, 40, 2]
        with pytest.raises(DataError, match="the label 'gnu'"):
            model.partial_fit(few.X[:1], ["gnu"])
        with pytest.raises(DataError, match="classes differ"):
            model.partial_fit(few.X, y, classes=["cat", "dog"])

    @pytest.mark.parametrize("options", [{}, ALONE, {"network": "own"}])
    def test_it_goes_on_learning(self, options, few):
        options = {"network": seeded(Own)} if options.get("network") == "own" else options
        model = tiny(joint_learning_rate=0.02, **options)
        bounds = []
        for _ in range(8):
            model.partial_fit(few.X, few.Y.indices)
            bounds.append(model.bound(few.X, few.Y.indices)["bound"])
        assert bounds[-1] > bounds[0]
        copy = pickle.loads(pickle.dumps(model))
        np.testing.assert_array_equal(copy.predict_proba(few.X), model.predict_proba(few.X))

    def test_it_has_trained_no_baseline(self, few, tmp_path):
        model = tiny().partial_fit(few.X, few.Y.indices)
        model.save(tmp_path / "m")
        for found in (model, labelfield.load(tmp_path / "m", device="cpu")):
            with pytest.raises(ValueError, match="there is no baseline"):
                found.baseline_proba(few.X)

    def test_after_fit_the_baseline_stays(self, few):
        model = tiny().fit(few.X, few.Y.indices)
        P, plain = model.predict_proba(few.X), model.baseline_proba(few.X)
        model.partial_fit(few.X, few.Y.indices)
        np.testing.assert_array_equal(model.baseline_proba(few.X), plain)
        assert not np.array_equal(model.predict_proba(few.X), P)


class TestAnswers:
    def test_the_many_ways_to_predict_agree(self, rings, fitted):
        X = rings.test.X
        P, raw = (fitted.predict_proba(X, calibrated=c) for c in (True, False))
        np.testing.assert_allclose(P.sum(1), 1, rtol=1e-5)
        assert fitted.classes_.tolist() == WORDS.tolist()
        np.testing.assert_array_equal(fitted.predict(X), WORDS[P.argmax(1)])
        lists = fitted.predict_topk(X, 2)
        assert np.diff(lists.indptr).tolist() == [2] * 100
        np.testing.assert_array_equal(lists.max(1).toarray().ravel(), P.max(1))
        np.testing.assert_array_equal(fitted.predict_topk(X, 99).toarray(), P)
        np.testing.assert_array_equal(fitted.predict_topk(X, 99, calibrated=False).toarray(), raw)
        np.testing.assert_allclose(np.exp(fitted.decision_function(X)), raw, rtol=1e-4, atol=1e-30)

    def test_several_labels(self, data, several):
        X = data.test.X
        P, raw = (several.predict_proba(X, calibrated=c) for c in (True, False))
        assert ((P >= 0) & (P <= 1)).all()
        np.testing.assert_array_equal(several.predict(X).toarray(), P >= 0.5)
        assert 0 < several.predict(X).nnz < P.size
        with patch.object(several, "threshold", 0.2):
            np.testing.assert_array_equal(several.predict(X).toarray(), P >= 0.2)
        best = several.predict(X, k=3)
        assert best.sum(1).tolist() == [3] * 150
        np.testing.assert_array_equal(best.toarray() > 0, several.predict_topk(X, 3).toarray() > 0)
        assert (np.where(best.toarray(), P, 1).min(1) >= np.where(best.toarray(), 0, P).max(1)).all()
        np.testing.assert_allclose(expit(several.decision_function(X)), raw, rtol=1e-3, atol=1e-6)
        np.testing.assert_array_equal(several.predict_topk(X, 99).toarray(), P)

    def test_calibration_keeps_the_ranking(self, rings, fitted, data, several):
        for model, X in ((fitted, rings.test.X), (several, data.test.X)):
            assert model.settings_.held_out == model.n_rows_ // 10
            raw, P = (model.predict_proba(X, calibrated=c) for c in (False, True))
            assert not np.array_equal(raw, P)
            lists = [model.predict_topk(X, 5, calibrated=c) for c in (False, True)]
            np.testing.assert_array_equal(*(np.sort(found.indices.reshape(len(P), -1), 1) for found in lists))

    def test_without_calibration_probabilities_are_raw(self, rings):
        model = small(calibrated=False, network_epochs=2).fit(rings.X, rings.Y.indices)
        assert model.settings_.held_out == 0
        raw, P = (model.predict_proba(rings.test.X, calibrated=c) for c in (False, True))
        np.testing.assert_allclose(raw, P, rtol=1e-5, atol=1e-7)

    def test_latent(self, rings, fitted):
        latent = fitted.predict_latent(rings.test.X)
        assert latent.f_mean.shape == latent.f_var.shape == latent.g_mean.shape == latent.g_var.shape == (100, 3)
        assert (latent.f_var > 0).all()
        A, b = (getattr(fitted.model_, name).detach().numpy() for name in "Ab")
        np.testing.assert_allclose(latent.g_mean, latent.f_mean @ A.T + b, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(latent.g_var, latent.f_var @ np.square(A).T, rtol=1e-4)
        raw = fitted.predict_proba(rings.test.X, calibrated=False)
        is_sure = raw.max(1) > 0.9
        assert is_sure.sum() > 50
        np.testing.assert_array_equal(latent.g_mean.argmax(1)[is_sure], raw.argmax(1)[is_sure])

    def test_uncertainty(self, rings, fitted):
        U = fitted.predict_uncertainty(rings.test.X)
        assert U.shape == (100,)
        assert ((U >= 0) & (U <= 1)).all()
        p = fitted.predict_proba(rings.test.X).max(1)
        assert (1 - p <= U + 1e-6).all()
        # On the border of two rings it knows less than on a ring.
        angle = np.linspace(0, 6, 40)
        radii = np.linalg.norm(rings.X.toarray(), axis=1)
        border = (np.median(radii[rings.Y.indices == 0]) + np.median(radii[rings.Y.indices == 1])) / 2
        between = border * np.c_[np.cos(angle), np.sin(angle)]
        assert fitted.predict_uncertainty(between).mean() > 2 * U.mean()

    def test_the_bound(self, rings, fitted):
        y = WORDS[rings.Y.indices]
        bound = fitted.bound(rings.X, y)
        assert bound["bound"] == pytest.approx(bound["fit"] - bound["kl"])
        assert bound["fit"] < 0 < bound["kl"]
        assert bound == fitted.bound(rings.X, y.tolist())
        assert bound["bound"] > tiny().fit(rings.X, y).bound(rings.X, y)["bound"]

    def test_features(self, rings, fitted):
        h = fitted.transform(rings.test.X)
        assert h.shape == (100, 3)
        rows = torch.from_numpy(fitted.row_transform_(rings.test.X).toarray())
        with torch.no_grad():
            np.testing.assert_allclose(h, fitted.model_.features.network.eval()(rows), rtol=1e-5, atol=1e-6)

    @pytest.mark.parametrize(("name", "size"), [("_MOST_ROWS", 7), ("_BLOCK_ENTRIES", 90)])
    def test_blocks_change_nothing(self, name, size, rings, fitted, data, several, monkeypatch):
        cases = (fitted, rings.test.X, WORDS[rings.test.Y.indices]), (several, data.test.X, data.test.Y)
        asked = ("predict_proba", "baseline_proba", "transform", "predict_uncertainty", "decision_function")
        whole = [{ask: getattr(model, ask)(X) for ask in asked} for model, X, _ in cases]
        lists = [model.predict_topk(X, 3) for model, X, _ in cases]
        latent = [model.predict_latent(X) for model, X, _ in cases]
        bound = several.bound(data.test.X, data.test.Y)
        monkeypatch.setattr(f"labelfield.estimators.deep_prediction.{name}", size)
        assert len(list(fitted._probabilities(fitted._rows(rings.test.X), calibrated=True))) > 1
        for (model, X, _), once, best, f in zip(cases, whole, lists, latent, strict=True):
            for ask, expected in once.items():
                np.testing.assert_allclose(getattr(model, ask)(X), expected, rtol=1e-4, atol=1e-5, err_msg=ask)
            np.testing.assert_allclose(model.predict_topk(X, 3).toarray(), best.toarray(), rtol=1e-4, atol=1e-5)
            for part, expected in zip(model.predict_latent(X), f, strict=True):
                np.testing.assert_allclose(part, expected, rtol=1e-4, atol=1e-4)
        assert several.bound(data.test.X, data.test.Y) == pytest.approx(bound, rel=1e-5)

    def test_dense_and_sparse_rows_agree(self, rings, fitted):
        X = rings.test.X
        for other in (X.toarray(), X.toarray().astype(np.float64), sparse.csc_matrix(X), sparse.coo_array(X)):
            np.testing.assert_allclose(fitted.predict_proba(other), fitted.predict_proba(X), rtol=1e-5, atol=1e-6)

    @pytest.mark.parametrize("names", [["b", "a", "c"], [100, 3, 7], [1, -1], [True, False], [2.0, 1.0]])
    def test_whatever_classes_are_called(self, names, tmp_path):
        names = np.array(names)
        rows = synth.make_rings(120, len(names), noise=0.05, seed=3)
        y = names[rows.Y.indices]
        model = small(network_epochs=15, process_epochs=1, max_epochs=1, batch_size=30).fit(rows.X, y)
        assert model.classes_.tolist() == sorted(names.tolist())
        assert model.score(rows.X, y) > 0.6
        model.save(tmp_path / "m")
        again = labelfield.load(tmp_path / "m", device="cpu")
        assert again.predict(rows.X).tolist() == model.predict(rows.X).tolist()
        scores = model.decision_function(rows.X)
        assert scores.shape == ((120,) if len(names) == 2 else (120, 3))
        if len(names) == 2:
            raw = model.predict_proba(rows.X, calibrated=False)
            np.testing.assert_array_equal(scores > 0, raw[:, 1] > raw[:, 0])


class TestWithScikitLearn:
    def test_clone_and_parameters(self, few):
        network = Own()
        model = tiny(network=network, subsets=[[0, 1], [1, 2]], grid_size=6)
        other = clone(model)
        assert other.get_params().keys() == model.get_params().keys()
        assert other.get_params()["grid_size"] == 6
        assert isinstance(other.network, Own)
        assert other.network is not network
        np.testing.assert_array_equal(
            other.fit(few.X, few.Y.indices).predict_proba(few.X), model.fit(few.X, few.Y.indices).predict_proba(few.X)
        )
        assert "Own" in repr(model)
        assert other.set_params(network="mlp", hidden=(4,), subsets=None).fit(few.X, few.Y.indices).spec_.network.hidden
        assert clone(other).hidden == (4,)

    def test_in_a_pipeline_and_across_folds(self, rings):
        X, y = rings.X.toarray(), WORDS[rings.Y.indices]
        model = small(network_epochs=40, process_epochs=1, max_epochs=1)
        pipeline = make_pipeline(StandardScaler(), model).fit(X, y)
        assert pipeline.score(rings.test.X.toarray(), WORDS[rings.test.Y.indices]) > 0.9
        assert cross_val_score(model, X, y, cv=2).mean() > 0.85

    def test_its_features_go_to_another_model(self, rings):
        """Rings are apart for a linear model that sees them as the network does."""
        X, y = rings.X.toarray(), WORDS[rings.Y.indices]
        np.testing.assert_array_equal(tiny().fit_transform(X, y), tiny().fit(X, y).transform(X))
        pipeline = make_pipeline(small(process_epochs=0), LogisticRegression()).fit(X, y)
        assert pipeline.score(rings.test.X.toarray(), WORDS[rings.test.Y.indices]) > 0.9

    def test_fitting_twice_is_like_fitting_once(self, few, data):
        model = tiny().fit(data.X, data.Y)
        model.fit(few.X, WORDS[few.Y.indices])
        other = tiny().fit(few.X, WORDS[few.Y.indices])
        assert_same_arrays(arrays(model), arrays(other))
        assert model.label_kind_ == "classes"
        assert model.n_iter_ == 3
        np.testing.assert_array_equal(model.predict(few.X), other.predict(few.X))

    def test_validation(self, rings):
        X, y = rings.X, WORDS[rings.Y.indices]
        validation = (rings.test.X, WORDS[rings.test.Y.indices])
        epochs = {"network_epochs": 12, "process_epochs": 2, "max_epochs": 2, "calibrated": False}
        model = small(**epochs).fit(X, y, validation=validation)
        scores = [epoch["scores"]["P@1"] for epoch in model.history_]
        assert scores[-1] == pytest.approx(100 * model.score(*validation))
        # While the network trains alone, it is the network that is scored.
        alone = small(**epochs | ALONE).fit(X, y, validation=validation)
        assert scores[:12] == [epoch["scores"]["P@1"] for epoch in alone.history_]
        plain = 100 * np.mean(WORDS[model.baseline_proba(validation[0]).argmax(1)] == validation[1])
        assert scores[11] == pytest.approx(plain)
        with pytest.raises(DataError, match="the label 'fox'; expected labels of the first fit"):
            tiny().fit(X, y, validation=(X[:2], ["cat", "fox"]))

    def test_scores_leave_the_training_alone(self, few):
        y = few.Y.indices
        watched = tiny(dropout=0.5).fit(few.X, y, validation=(few.X, y))
        assert_same_arrays(arrays(watched), arrays(tiny(dropout=0.5).fit(few.X, y)))


def test_what_training_will_cost_changes_nothing(few):
    """`labelfield train` tries a step before it begins; BatchNorm must not remember it."""
    told, untold = tiny(network=seeded(Own)), tiny(network=seeded(Own))
    prepared = told.prepare(few.X, few.Y.indices)
    assert told.seconds_per_step(prepared) > 0
    assert told.training_bytes() > 0
    assert told.n_whole_epochs() == pytest.approx(2.1)
    told.train_prepared(prepared)
    assert_same_arrays(arrays(told), arrays(untold.fit(few.X, few.Y.indices)))


@pytest.mark.parametrize(
    ("options", "summary"),
    [
        ({}, "3 labels; network mlp 8, 3 processes on 1 features each, kernel se, grid of 8, softmax"),
        (ALONE, "3 labels; network mlp 8 alone"),
        ({"hidden": (), **ALONE}, "3 labels; network mlp alone"),
        ({"network": nn.Linear(2, 4), "subset_size": 2}, "network torch.nn.modules.linear.Linear, 2 processes on 2"),
    ],
)
def test_a_model_in_a_line(options, summary, few):
    assert summary in tiny(**options).fit(few.X, few.Y.indices).summary()
