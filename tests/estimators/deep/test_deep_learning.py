"""The deep kernel classifier learns, in stages that may be left out, in all its variants."""

from itertools import product

import numpy as np
import pytest
import torch
from deep_cases import ALONE, STAGES, WORDS, Own, arrays, seeded, small, tiny
from scipy import sparse
from scipy.special import expit, softmax
from sklearn.linear_model import LogisticRegression

import labelfield
from labelfield.metrics import popularity, precision_at_k


class TestLearning:
    def test_it_tells_rings_apart_which_no_linear_model_does(self, rings, fitted):
        X, y = rings.test.X, WORDS[rings.test.Y.indices]
        linear = LogisticRegression().fit(rings.X.toarray(), WORDS[rings.Y.indices])
        assert linear.score(X.toarray(), y) < 0.6
        assert fitted.score(X, y) > 0.95

    def test_several_labels_per_row_are_ranked_better_than_by_popularity(self, data, several):
        popular = precision_at_k(data.test.Y, popularity(data.Y, data.test.n_rows, 1), 1)
        assert precision_at_k(data.test.Y, several.predict_topk(data.test.X, 1), 1) > 2 * popular
        assert several.spec_.likelihood == "bernoulli"
        assert several.spec_.n_processes == data.n_labels

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
        assert list(model.trainer_.stage_settings()) == [s for s, count in zip(STAGES, epochs, strict=True) if count]
        assert model.spec_.is_plain == (not n_process and not n_joint)
        assert model.spec_.has_baseline == (n_network > 0 and not model.spec_.is_plain)
        assert model.spec_.has_baseline == any(name.startswith("baseline.") for name in arrays(model))

    def test_something_is_to_be_trained(self, few):
        with pytest.raises(ValueError, match="network_epochs, process_epochs and max_epochs are all 0"):
            tiny(network_epochs=0, **ALONE).fit(few.X, few.Y.indices)

    @pytest.mark.parametrize("n_processes", [None, 5])
    @pytest.mark.parametrize("subset_size", [1, 2])
    def test_the_network_alone_is_a_softmax_of_its_logits(self, n_processes, subset_size, rings):
        options = {"n_processes": n_processes, "subset_size": subset_size, "network_epochs": 6}
        model = small(**ALONE, **options).fit(rings.X, rings.Y.indices)
        X, A, b = rings.test.X, *(getattr(model.model_, name).detach().numpy() for name in "Ab")
        sums = model.transform(X).reshape(100, -1, subset_size).sum(2)
        assert sums.shape[1] == (n_processes or 3)
        logits = sums @ A.T + b
        np.testing.assert_allclose(model.predict_proba(X, calibrated=False), softmax(logits, 1), atol=1e-6)
        power = model.model_.calibration.power.numpy()
        assert power != 1
        np.testing.assert_allclose(model.predict_proba(X), softmax(power * logits, 1), atol=1e-5)
        latent = model.predict_latent(X)
        np.testing.assert_allclose(latent.h_mean, sums, rtol=1e-5, atol=1e-6)
        assert not latent.h_var.any()
        bound = model.bound(X, rings.test.Y.indices)
        assert bound["kl"] == 0
        log_prob = np.log(softmax(logits, 1))[np.arange(100), rings.test.Y.indices].sum()
        assert bound["bound"] == pytest.approx(log_prob, rel=1e-4)
        for ask in (model.baseline_proba, model.baseline_topk):
            with pytest.raises(ValueError, match="there is no baseline; fit with keep_baseline=True"):
                ask(X)

    def test_the_network_alone_of_several_labels(self, data):
        model = tiny(**ALONE, calibrate=False).fit(data.X, data.Y)
        b = model.model_.b.detach().numpy()
        logits = model.transform(data.test.X) + b  # a square mixing stays the identity
        np.testing.assert_allclose(model.predict_proba(data.test.X), expit(logits), rtol=1e-5, atol=1e-7)

    @pytest.mark.parametrize(("network", "process_epochs"), [("mlp", 3), ("own", 3), ("mlp", 0)])
    def test_the_baseline_is_the_plain_network_as_it_was(self, network, process_epochs, rings):
        options = {"calibrate": False, "network": seeded(Own) if network == "own" else network, "network_epochs": 5}
        y, epochs = rings.Y.indices, {"process_epochs": process_epochs}
        whole, alone = (small(**options, **rest).fit(rings.X, y) for rest in (epochs, ALONE))
        X = rings.test.X
        np.testing.assert_array_equal(whole.baseline_proba(X), alone.predict_proba(X))
        np.testing.assert_array_equal(whole.baseline_topk(X, 3).toarray(), alone.predict_proba(X))
        assert not np.array_equal(whole.predict_proba(X), alone.predict_proba(X))

    @pytest.mark.parametrize("left_out", ["process_epochs", "max_epochs"])
    def test_processes_begin_where_the_network_ended(self, left_out, rings):
        """Before they have learned anything they are as sure of the same classes, but for their doubts."""
        rates = {"process_learning_rate": 1e-9, "joint_learning_rate": 1e-9, "calibrate": False, left_out: 0}
        model = small(**rates).fit(rings.X, rings.Y.indices)
        h = torch.from_numpy(model.transform(rings.X))
        # Almost all features are where the grid takes them as they are.
        assert (model.model_.processes.grid.squash(h).abs() <= 0.8).float().mean() > 0.98
        np.testing.assert_allclose(model.predict_latent(rings.X).h_mean, h, atol=0.1 * h.abs().max())
        best = [ask(rings.X).argmax(1) for ask in (model.predict_proba, model.baseline_proba)]
        assert np.mean(best[0] == best[1]) > 0.9

    def test_a_baseline_of_several_labels(self, data):
        whole, alone = (tiny(calibrate=False, **rest).fit(data.X, data.Y) for rest in ({}, ALONE))
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
        model = tiny(network_epochs=10**5, process_epochs=10**5, max_epochs=10**5, time_budget=0.1)
        model.fit(few.X, few.Y.indices)
        assert {epoch["stage"] for epoch in model.history_} == set(STAGES)
        assert sum(s.time_budget for s in model.trainer_.stage_settings().values()) == pytest.approx(0.1)
        assert model.n_iter_ < 10**5


VARIANTS = [
    *({"kernel": kernel} for kernel in ("matern12", "matern32", "matern52")),
    {"posterior": "kronecker"},
    {"moments": "sampled"},
    {"moments": "sampled", "n_samples": 3},
    {"n_samples": 4},
    {"kernel_per_process": False},
    {"likelihood": "bernoulli"},
    {"likelihood": "bernoulli", "moments": "sampled"},
    {"n_samples_predict": 7},
    {"jitter": 0.1},
    *({"subset_size": size, "grid_size": 6, "posterior": p} for size in (2, 3) for p in ("kronecker", None)),
    {"subset_size": 2, "kernel_per_process": False, "kernel": "matern32"},
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
    assert (latent.h_var > 0).all()
    assert latent.h_mean.shape == latent.h_var.shape == (120, model.spec_.n_processes)
    assert latent.f_mean.shape == latent.f_var.shape == (120, 3)
    assert np.isfinite(bound["bound"])
    assert bound["kl"] > 0
    assert np.isfinite([epoch["bound"] for epoch in model.history_]).all()
    model.save(tmp_path / "m")
    np.testing.assert_array_equal(labelfield.load(tmp_path / "m", device="cpu").predict_proba(X), P)


@pytest.mark.parametrize("grid_size", [64, 600])
def test_a_fine_grid_starts_as_close_to_the_prior_as_a_coarse_one(grid_size, few):
    model = tiny(grid_size=grid_size)
    model.prepare(few.X, few.Y.indices)
    with torch.no_grad():
        assert (model.model_.processes.kl() < 60).all()


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
