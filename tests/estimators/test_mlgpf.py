"""The classifier as its users meet it."""

import json
import pickle
import subprocess
import sys
from itertools import pairwise

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler

import labelfield
from labelfield import DataError, MLGPFClassifier, metrics, synth
from labelfield.models import artifact
from labelfield.models.artifact import ModelError


@pytest.fixture(scope="module")
def data():
    return synth.make_multilabel(600, 200, 40, seed=4).split(0.25)


def small(**options):
    return MLGPFClassifier(**{"n_latent": 10, "n_inducing": 40, "max_epochs": 20, "learning_rate": 0.03} | options)


@pytest.fixture(scope="module")
def fitted(data):
    return small().fit(data.X, data.Y)


def test_it_beats_popularity(data, fitted):
    ours = metrics.precision_at_k(data.test.Y, fitted.predict_topk(data.test.X), 5)
    assert ours > 1.3 * metrics.precision_at_k(data.test.Y, metrics.popularity(data.Y, data.test.n_rows), 5)


def test_the_many_ways_to_predict_agree(data, fitted):
    X = data.test.X
    P = fitted.predict_proba(X)
    assert P.shape == (150, 40)
    assert ((P > 0) & (P < 1)).all()
    lists = fitted.predict_topk(X, 7)
    assert np.diff(lists.indptr).tolist() == [7] * 150
    ranked = metrics.top_k(P, 7)
    np.testing.assert_array_equal(np.sort(ranked.labels, axis=1), lists.indices.reshape(150, 7))
    np.testing.assert_allclose(P[np.arange(150)[:, None], lists.indices.reshape(150, 7)].ravel(), lists.data, rtol=1e-5)
    np.testing.assert_array_equal(fitted.predict(X).toarray(), P >= 0.5)
    np.testing.assert_array_equal(fitted.predict(X, k=7).indices, lists.indices)
    latent = fitted.predict_latent(X)
    p = fitted.predict_proba(X, calibrated=False)
    np.testing.assert_allclose(1 / (1 + np.exp(-fitted.decision_function(X))), p, rtol=1e-4, atol=1e-6)
    assert latent.h_mean.shape == latent.h_var.shape == (150, 10)
    assert (latent.f_var > 0).all()
    low, high = fitted.predict_interval(X, 0.9)
    assert (low < high).all()
    assert ((low < P) & (high > P)).mean() > 0.99
    wider = fitted.predict_interval(X, 0.99)
    assert (wider[0] < low).all()
    assert (wider[1] > high).all()


def test_probabilities_are_the_integral_over_f(data, fitted):
    latent = fitted.predict_latent(data.test.X[:5])
    draws = np.random.default_rng(0).standard_normal((20_000, 1, 1))
    f = latent.f_mean + np.sqrt(latent.f_var) * draws
    raw = fitted.predict_proba(data.test.X[:5], calibrated=False)
    np.testing.assert_allclose(raw, (1 / (1 + np.exp(-f))).mean(0), atol=0.015)


def test_dense_and_sparse_rows_and_their_types_agree(data, fitted):
    X = data.test.X[:20]
    expected = fitted.predict_proba(X)
    unsorted = sparse.csr_matrix(X)
    for i in range(20):
        part = slice(unsorted.indptr[i], unsorted.indptr[i + 1])
        unsorted.indices[part] = unsorted.indices[part][::-1].copy()
        unsorted.data[part] = unsorted.data[part][::-1].copy()
    unsorted.has_sorted_indices = False
    for other in (X.toarray(), X.toarray().astype(np.float64), sparse.csc_matrix(X), sparse.coo_array(X), unsorted):
        np.testing.assert_allclose(fitted.predict_proba(other), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("form", ["csr", "dense", "lists", "sets"])
def test_forms_of_labels(form, data):
    Y = {
        "csr": data.Y,
        "dense": data.Y.toarray().astype(int),
        "lists": [data.Y.indices[a:b].tolist() for a, b in zip(data.Y.indptr[:-1], data.Y.indptr[1:], strict=True)],
        "sets": [set(data.Y.indices[a:b].tolist()) for a, b in zip(data.Y.indptr[:-1], data.Y.indptr[1:], strict=True)],
    }[form]
    a, b = small(max_epochs=1).fit(data.X, Y), small(max_epochs=1).fit(data.X, data.Y)
    np.testing.assert_array_equal(a.predict_proba(data.test.X), b.predict_proba(data.test.X))


def test_one_class_a_row():
    rng = np.random.default_rng(0)
    y = np.array(["cat", "dog", "eel"])[rng.integers(3, size=300)]
    X = np.eye(3)[[{"cat": 0, "dog": 1, "eel": 2}[c] for c in y]] + 0.1 * rng.random((300, 3))
    model = small(max_epochs=30, batch_size=50).fit(X, y)
    assert model.classes_.tolist() == ["cat", "dog", "eel"]
    assert model.score(X, y) > 0.95
    np.testing.assert_allclose(model.predict_proba(X).sum(axis=1), 1, rtol=1e-5)


def test_named_labels_in_lists():
    model = small(max_epochs=1, n_inducing=3).fit(np.eye(3), [["a", "b"], [], ["b"]])
    assert model.classes_.tolist() == ["a", "b"]


def test_conditioning_on_what_is_known(data, fitted):
    """Knowing one label helps to find the others; a known label is not listed; nothing known changes nothing."""
    Y = data.test.Y
    has_two = np.flatnonzero(np.diff(Y.indptr) >= 2)
    X, Y = data.test.X[has_two], sparse.csr_array(Y[has_two])
    first = sparse.csr_array(
        (np.ones(len(has_two)), (np.arange(len(has_two)), Y.indices[Y.indptr[:-1]])), shape=Y.shape
    )
    rest = sparse.csr_array(Y - first)
    rest.eliminate_zeros()
    listed = fitted.condition(X, first, k=5)
    assert np.diff(listed.indptr).max() == 5
    assert listed.multiply(first).nnz == 0
    nothing = fitted.condition(X, sparse.csr_array(Y.shape), k=5)
    np.testing.assert_allclose(nothing.toarray(), fitted.predict_topk(X, 5).toarray(), rtol=1e-4)
    negative = fitted.condition(X, -first, k=5)
    with_it = metrics.precision_at_k(rest, listed, 3)
    assert with_it > metrics.precision_at_k(rest, negative, 3)
    with pytest.raises(DataError, match="observed has shape"):
        fitted.condition(X, first[:3])
    with pytest.raises(DataError, match="other values"):
        fitted.condition(X, 7 * first)


def test_conditioning_finds_the_mode():
    """Newton's steps end where the gradient of log q(h) p(y | h) vanishes."""
    import torch
    from labelfield.models.build import Spec, build
    from labelfield.models.prediction import condition

    from labelfield.variational import Moments

    torch.manual_seed(0)
    model = build(Spec(3, 6, n_latent=4, n_inducing=2))
    torch.nn.init.normal_(model.Phi, std=2.0)
    h = Moments(torch.randn(5, 4), torch.rand(5, 4) + 0.2)
    observed = torch.tensor([[1.0, 0, 0, -1, 0, 1], *[[0, 1.0, 0, 0, -1, 0]] * 4]).to_sparse_csr()
    with torch.no_grad():
        found = condition(model, h, torch.zeros(5, 3), observed)
    estimate = found.mean.clone().requires_grad_()
    f = estimate @ model.Phi.detach().T + model.b.detach()
    signs = observed.to_dense()
    log_density = (torch.nn.functional.logsigmoid(signs * f) * signs.abs()).sum()
    log_density = log_density - 0.5 * ((estimate - h.mean) ** 2 / h.var).sum()
    log_density.backward()
    assert estimate.grad.abs().max() < 1e-3
    assert (found.var <= h.var + 1e-6).all()


def test_the_bound_can_be_asked_for(data, fitted):
    bound = fitted.bound(data.X, data.Y)
    assert bound["bound"] == pytest.approx(bound["fit"] - bound["kl"])
    assert bound["bound"] > small(max_epochs=1).fit(data.X, data.Y).bound(data.X, data.Y)["bound"]


def test_what_it_learned(fitted):
    correlation = fitted.label_correlation()
    assert correlation.shape == (40, 40)
    np.testing.assert_allclose(np.diag(correlation), 1, rtol=1e-5)
    assert fitted.label_correlation([3, 5]).shape == (2, 2)
    assert fitted.feature_relevance().shape == (200,)
    with pytest.raises(ValueError, match="treats all features alike"):
        small(kernel="se", max_epochs=1).fit(np.eye(4), np.eye(4)).feature_relevance()


def test_a_failed_prediction_leaves_gradients_on(data):
    import torch

    model = small(max_epochs=1).fit(data.X, data.Y)
    model.model_.likelihood.n_points = 0
    with pytest.raises(ValueError, match="n_points"):
        model.predict_proba(data.test.X)
    assert torch.is_grad_enabled()
    small(max_epochs=1).fit(data.X, data.Y)


def test_labels_keep_their_columns():
    X, y = np.eye(4), np.array(["a", "b", "c", "b"])
    model = small(n_inducing=4, max_epochs=1).fit(X, y)
    alone = model.bound(X[1:2], y[1:2])["fit"]
    assert alone == pytest.approx(model.bound(X[[1, 1]], y[[1, 1]])["fit"] / 2, rel=1e-5)
    model.partial_fit(X[1:3], y[1:3])
    with pytest.raises(DataError, match="the label 'z'"):
        model.partial_fit(X[:1], np.array(["z"]))
    indicators = small(n_inducing=4, max_epochs=1).fit(X, np.eye(4, dtype=int))
    for wrong in (np.eye(4, 3, dtype=int), np.eye(4, 5, dtype=int)):
        with pytest.raises(DataError, match="labels; expected 4"):
            indicators.bound(X, wrong)


def test_partial_fit(data):
    model = small()
    for first in range(0, 400, 100):
        model.partial_fit(data.X[first : first + 100], data.Y[first : first + 100])
    before = model.bound(data.X, data.Y)["bound"]
    for _ in range(5):
        model.partial_fit(data.X, data.Y)
    assert model.bound(data.X, data.Y)["bound"] > before
    with pytest.raises(DataError, match="labels"):
        model.partial_fit(data.X, data.Y[:, :3])


def test_a_saved_model_predicts_the_same_bits_in_a_new_process(data, fitted, tmp_path):
    fitted.save(tmp_path / "model", label_names=[f"name {i}" for i in range(40)])
    assert sorted(p.name for p in (tmp_path / "model").iterdir()) == ["arrays.safetensors", "config.json", "labels.txt"]
    labelfield.write(data.test, tmp_path / "rows")
    script = (
        "import sys, numpy as np, labelfield\n"
        "model = labelfield.load(sys.argv[1], device='cpu'); data = labelfield.read(sys.argv[2])\n"
        "np.save(sys.argv[3], model.predict_proba(data.X)); print(model.label_names_[3])\n"
        "model.partial_fit(data.X, data.Y); print('torch._dynamo' in sys.modules)\n"  # torch's compiler takes seconds
    )
    arguments = [tmp_path / "model", tmp_path / "rows", tmp_path / "p.npy"]
    done = subprocess.run([sys.executable, "-c", script, *arguments], check=True, capture_output=True, text=True)
    assert done.stdout == "name 3\nFalse\n"
    np.testing.assert_array_equal(np.load(tmp_path / "p.npy"), fitted.predict_proba(data.test.X))
    fitted.save(tmp_path / "model")  # replaced


@pytest.mark.parametrize(
    "options", [{"inducing": "subspace", "kernel": "se"}, {"posterior": "parsimonious"}, {"posterior": "full"}]
)
def test_every_make_can_be_saved(options, data, tmp_path):
    model = small(max_epochs=1, **options).fit(data.X, data.Y)
    model.save(tmp_path / "m")
    np.testing.assert_array_equal(
        labelfield.load(tmp_path / "m", device="cpu").predict_proba(data.test.X), model.predict_proba(data.test.X)
    )


def test_damaged_models_are_refused(data, tmp_path):
    path = tmp_path / "m"
    small(max_epochs=1).fit(data.X, data.Y).save(path)
    good = {file.name: file.read_bytes() for file in path.iterdir()}
    config = json.loads(good["config.json"])

    def restore():
        for name, content in good.items():
            (path / name).write_bytes(content)

    def damage(name, content):
        restore()
        if content is None:
            (path / name).unlink()
        else:
            (path / name).write_bytes(content)
        with pytest.raises(ModelError) as caught:
            labelfield.load(path)
        assert str(path) in str(caught.value)
        assert "\n" not in str(caught.value)

    for name in ("config.json", "arrays.safetensors"):
        damage(name, None)
        damage(name, b"")
        damage(name, good[name][: len(good[name]) // 2])
        damage(name, b"rubbish")

    def signed(change):
        """The description so changed by someone who also mends its checksum."""
        changed = config | change
        changed["sha256"] = config["sha256"] | {"config.json": artifact._digest_of_config(changed)}
        return json.dumps(changed).encode()

    for change in ({"n_rows": 5}, {"spec": config["spec"] | {"kernel": "se_ard"}}):
        damage("config.json", json.dumps(config | change).encode())
    for change in (
        {"version": True},
        {"method": []},
        {"label_kind": "guess"},
        {"label_kind": "lists", "classes": None},
        {"label_kind": "lists", "classes": [[]] * 40},
        {"history": [{}]},
        {"history": [{"epoch": "x", "bound": 1, "learning_rate": 1, "seconds": 1}]},
        {"row_transform": "cube"},
        {"n_rows": -1},
        {"settings": config["settings"] | {"batch_size": 0}},
        {"spec": config["spec"] | {"n_points": 0}},
        {"spec": config["spec"] | {"n_latent": 10**13}},
        {"spec": config["spec"] | {"jitter": "much"}},
        {"options": config["options"] | {"threshold": "high"}},
        {"version": 99},
        {"format": "other"},
        {"method": "unknown"},
        {"spec": {}},
        {"spec": config["spec"] | {"n_latent": 3}},
        {"spec": config["spec"] | {"kernel": "__import__('os')"}},
        {"options": {"no_such": 1}},
    ):
        damage("config.json", signed(change))
    damage("config.json", b"[" * 100_000)
    flipped = bytearray(good["arrays.safetensors"])
    flipped[-3] ^= 64
    damage("arrays.safetensors", bytes(flipped))
    damage("labels.txt", b"one\n")
    damage("labels.txt", None)
    restore()
    with pytest.raises(ModelError, match="no such model folder"):
        labelfield.load(tmp_path / "nowhere")


def test_it_works_in_pipelines_and_searches(data):
    model = make_pipeline(MaxAbsScaler(), small(max_epochs=1))
    assert model.fit(data.X, data.Y).predict_proba(data.test.X).shape == (150, 40)
    y = np.array(["a", "b"])[np.arange(60) % 2]
    X = np.eye(2)[np.arange(60) % 2]
    search = GridSearchCV(small(max_epochs=1, n_inducing=2), {"n_latent": [1, 2]}, cv=2).fit(X, y)
    assert search.best_params_["n_latent"] in (1, 2)
    copy = clone(small(kernel="se"))
    assert copy.kernel == "se"
    with pytest.raises(NotFittedError):
        copy.predict(X)


class TestAwkwardData:
    """As a user would expect, or one clear error."""

    def fit(self, X, Y, **options):
        return small(max_epochs=2, **options).fit(X, Y)

    def test_one_label(self):
        model = self.fit(np.eye(6), (np.arange(6) % 2)[:, None].astype(bool))
        assert model.predict_proba(np.eye(6)).shape == (6, 1)

    def test_a_label_with_no_positive_and_one_with_all(self):
        Y = np.zeros((20, 3), int)
        Y[:, 1] = 1
        Y[:7, 2] = 1
        P = small(max_epochs=20).fit(np.random.default_rng(0).random((20, 5)), Y).predict_proba(np.eye(5))
        assert np.isfinite(P).all()
        assert (P[:, 0] < 0.3).all()
        assert (P[:, 1] > 0.7).all()

    def test_empty_constant_and_duplicate_rows(self):
        X = np.zeros((30, 4))
        X[10:20] = 1
        X[20:] = [1, 2, 3, 4]
        for options in ({}, {"inducing": "subspace", "kernel": "se"}, {"kernel": "linear"}):
            assert np.isfinite(self.fit(X, np.eye(3)[np.arange(30) % 3].astype(int), **options).predict_proba(X)).all()

    def test_more_of_everything_than_there_is(self):
        X = np.random.default_rng(0).random((8, 5))
        model = self.fit(X, np.eye(8).astype(int), n_inducing=100, n_latent=50, batch_size=1000)
        assert model.spec_.n_inducing == 8
        model = self.fit(X, np.eye(8).astype(int), inducing="subspace", kernel="se", rank=500)
        assert model.spec_.rank == 5
        low_rank = np.outer(np.arange(1, 9), np.ones(5))
        assert np.isfinite(
            self.fit(low_rank, np.eye(8).astype(int), inducing="subspace", rank=4).bound(low_rank, np.eye(8))["bound"]
        )

    def test_empty_test_set(self, fitted):
        none = sparse.csr_array((0, 200))
        assert fitted.predict_proba(none).shape == (0, 40)
        assert fitted.predict_topk(none).shape == (0, 40)
        assert fitted.predict(none).shape == (0, 40)
        assert fitted.decision_function(none).shape == (0, 40)
        assert fitted.predict_latent(none).f_var.shape == (0, 40)

    def test_features_unseen_in_training(self):
        X = np.zeros((10, 6))
        X[:, :3] = np.random.default_rng(0).random((10, 3))
        unseen = np.zeros((1, 6))
        unseen[0, 5] = 1
        assert np.isfinite(self.fit(X, np.eye(2)[np.arange(10) % 2].astype(int)).predict_proba(unseen)).all()

    @pytest.mark.parametrize(
        ("X", "Y", "message"),
        [
            (np.eye(3), np.eye(2, 3), "X has 3 rows and Y has 2"),
            (np.array([[np.nan]]), [[1]], "contains NaN"),
            (np.eye(2), np.array([[0, 2], [1, 0]]), "not binary"),
            (np.eye(2), sparse.csr_array(np.array([[0, 0.5], [1, 0]])), "not binary"),
            (np.zeros((0, 3)), np.zeros((0, 2)), "0 sample"),
            (np.zeros((3, 0)), np.zeros((3, 2)), "0 feature"),
            (np.eye(3), np.zeros((3, 0)), "no labels"),
        ],
    )
    def test_refused(self, X, Y, message):
        with pytest.raises(ValueError, match=message):
            self.fit(X, Y)

    def test_wrong_width(self, fitted):
        with pytest.raises(ValueError, match="X has 3 features, but MLGPFClassifier is expecting 200"):
            fitted.predict(np.eye(3))

    def test_wrong_options(self, data):
        for options, message in (
            ({"kernel": "cubic"}, "kernel"),
            ({"posterior": "best"}, "posterior"),
            ({"inducing": "nowhere"}, "inducing"),
            ({"row_transform": "cube"}, "transform"),
            ({"schedule": "fast"}, "schedule"),
            ({"learning_rate": -1.0}, "learning_rate"),
            ({"basis": "random", "inducing": "subspace"}, "basis"),
            ({"precompute": True}, "precompute"),
            ({"max_epochs": 0}, "max_epochs"),
            ({"n_inducing": 0}, "n_inducing"),
            ({"n_inducing": 10.5}, "n_inducing"),
            ({"learning_rate": "fast"}, "learning_rate"),
            ({"n_negatives": -3}, "n_negatives"),
            ({"time_budget": -1}, "time_budget"),
            ({"clip_norm": -1}, "clip_norm"),
            ({"random_state": None, "jitter": float("nan")}, "jitter"),
            ({"unit_norm": "no"}, "unit_norm='no'; expected True or False"),
            ({"inducing": 5}, "inducing=5; expected one of free"),
            ({"basis": "zz"}, "basis"),
            ({"kernel": 5}, "kernel=5"),
            ({"kl_weight": -1}, "kl_weight=-1"),
            ({"n_points_predict": 500}, "n_points_predict=500; expected .* at most 100"),
            ({"random_state": 10**30}, "random_state"),
        ):
            with pytest.raises(ValueError, match=message):
                small(**options).fit(data.X, data.Y)

    def test_cuda_asked_for_and_absent(self, data, monkeypatch):
        monkeypatch.setattr("torch.cuda.is_available", lambda: False)
        with pytest.raises(ValueError, match="sees no CUDA device"):
            small(device="cuda").fit(data.X, data.Y)

    def test_out_of_memory_says_what_to_lower(self, data, monkeypatch):
        import torch

        def explode(*args, **options):
            raise torch.OutOfMemoryError("tried to allocate 1 TB")

        monkeypatch.setattr("labelfield.models.mlgpf.MLGPF.elbo", explode)
        with pytest.raises(MemoryError, match="lower batch_size, n_latent or n_inducing"):
            small().fit(data.X, data.Y)

    @pytest.mark.parametrize("size", [{"n_latent": 10**9}, {"batch_size": 600, "n_latent": 10**8}])
    def test_sizes_beyond_the_memory_are_refused_before_they_are_tried(self, size, data):
        with pytest.raises(MemoryError, match=r"lower batch_size, n_latent or n_inducing \(training needs about .*GiB"):
            small(**size).fit(data.X, data.Y)

    def test_failed_allocations_anywhere_say_what_to_lower(self, data, fitted, monkeypatch):
        monkeypatch.setattr("labelfield.estimators.mlgpf.free_bytes", lambda device: None)
        with pytest.raises(MemoryError, match="lower batch_size, n_latent or n_inducing"):
            small(n_latent=10**13).fit(data.X, data.Y)

        def explode(*args, **options):
            raise RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory")

        monkeypatch.setattr("labelfield.models.mlgpf.MLGPF.latent", explode)
        with pytest.raises(MemoryError, match="lower the number of rows"):
            fitted.predict_proba(data.test.X)

    def test_devices_and_seeds(self, data):
        with pytest.raises(ValueError, match="device='tpu'"):
            small(device="tpu").fit(data.X, data.Y)
        with pytest.raises(ValueError, match="random_state=-1"):
            small(random_state=-1).fit(data.X, data.Y)
        drawn = [small(max_epochs=1, random_state=np.random.RandomState(5)).fit(data.X, data.Y) for _ in range(2)]
        np.testing.assert_array_equal(*(model.predict_proba(data.test.X) for model in drawn))
        seeds = {small(max_epochs=1, random_state=None).fit(data.X, data.Y).settings_.seed for _ in range(3)}
        assert len(seeds) > 1

    def test_numbers_that_are_no_columns(self):
        with pytest.raises(DataError, match="label number 1000000000"):
            self.fit(np.eye(2), [[10**9], [3, 4]])


def test_blocks_over_labels_change_nothing(data, fitted, monkeypatch):
    X, Y = data.test.X, data.test.Y
    whole = (fitted.predict_proba(X), fitted.predict(X), fitted.predict_topk(X, 7), fitted.decision_function(X))
    bound, latent = fitted.bound(X, Y), fitted.predict_latent(X)
    known = sparse.csr_array(Y.multiply(sparse.random_array(Y.shape, density=0.3, rng=0).astype(bool)))
    conditioned = fitted.condition(X, known)
    monkeypatch.setattr("labelfield.models.prediction._BLOCK_ENTRIES", 1000)
    np.testing.assert_allclose(fitted.predict_proba(X), whole[0], rtol=1e-5)
    np.testing.assert_array_equal(fitted.predict(X).toarray(), whole[1].toarray())
    np.testing.assert_allclose(fitted.predict_topk(X, 7).toarray(), whole[2].toarray(), rtol=1e-5)
    np.testing.assert_allclose(fitted.decision_function(X), whole[3], rtol=1e-4, atol=1e-5)
    assert fitted.bound(X, Y)["bound"] == pytest.approx(bound["bound"], rel=1e-6)
    np.testing.assert_allclose(fitted.predict_latent(X).f_var, latent.f_var, rtol=1e-5)
    np.testing.assert_allclose(fitted.condition(X, known).toarray(), conditioned.toarray(), rtol=1e-3, atol=1e-5)


def test_partial_fit_goes_on(data):
    """The optimiser and the counts go on from call to call; labels that come later can be announced."""
    Y = [np.array(data.Y.indices[a:b]).astype(str).tolist() for a, b in pairwise(data.Y.indptr)]
    model = small(batch_size=50)
    for part in (slice(0, 100), slice(100, 250), slice(250, 450)):
        model.partial_fit(data.X[part], Y[part], classes=[str(i) for i in range(40)])
    assert model.n_rows_ == 450
    assert [epoch["epoch"] for epoch in model.history_] == [0, 1, 2]
    assert model.history_[-1]["bound"] > model.history_[0]["bound"]
    order = [int(name) for name in model.classes_]
    np.testing.assert_array_equal(model.label_counts_, np.bincount(data.Y.indices, minlength=40)[order])
    with pytest.raises(DataError, match="'other'"):
        model.partial_fit(data.X[:1], [["other"]])
    once, again = (small(batch_size=50).partial_fit(data.X, data.Y) for _ in range(2))
    again._training = None  # as after loading: a fresh optimiser
    once.partial_fit(data.X, data.Y)
    again.partial_fit(data.X, data.Y)
    assert not np.array_equal(once.predict_proba(data.test.X), again.predict_proba(data.test.X))


def test_numpy_numbers_are_numbers(data, tmp_path):
    options = {"patience": np.int64(3), "n_negatives": np.int64(5), "kl_weight": np.float32(1), "unit_norm": np.True_}
    model = small(max_epochs=np.int64(1), jitter=np.float32(1e-4), n_points_predict=np.int64(5), **options)
    model.fit(data.X, data.Y).save(tmp_path / "m")
    assert labelfield.load(tmp_path / "m").settings_.n_iter_no_change == 3


def test_partial_fit_never_falls_silent(data):
    """Neither patience nor an interrupted call keeps the next rows from being learned; history goes on."""
    model = small(patience=1, time_budget=1e-9, batch_size=50).fit(data.X, data.Y)
    n_before = model.n_iter_
    for _ in range(3):
        before = model.predict_proba(data.test.X)
        model.partial_fit(data.X, data.Y)
        assert not np.array_equal(before, model.predict_proba(data.test.X))
    assert model.n_iter_ == len(model.history_) == n_before + 3
    model._training.run.step = 5  # as an interrupted call leaves it
    model.partial_fit(data.X[:50], data.Y[:50])
    assert model._training.run.n_good_steps == 0
    with pytest.raises(DataError, match="classes differ"):
        model.partial_fit(data.X, data.Y, classes=range(7))
    copy = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(copy.predict_proba(data.test.X), model.predict_proba(data.test.X))


def test_score_takes_every_form_of_labels(data, fitted):
    lists = [data.test.Y.indices[a:b].tolist() for a, b in pairwise(data.test.Y.indptr)]
    assert fitted.score(data.test.X, lists) == fitted.score(data.test.X, data.test.Y)


def test_awkward_label_names(data, fitted, tmp_path):
    names = [f"name\r{i} \u2028é" for i in range(40)]
    fitted.save(tmp_path / "m", names)
    assert labelfield.load(tmp_path / "m").label_names_ == names
    before = {file.name: file.read_bytes() for file in (tmp_path / "m").iterdir()}
    for bad in ("two\nlines", "\udc80"):
        with pytest.raises(DataError, match="label name"):
            fitted.save(tmp_path / "m", [bad, *names[1:]])
    assert {file.name: file.read_bytes() for file in (tmp_path / "m").iterdir()} == before


@pytest.mark.parametrize("k", [0, -1, 2.5, True, None, "3"])
def test_how_many_labels_must_be_a_count(k, data, fitted):
    for ask in (fitted.predict_topk, lambda X, k: fitted.condition(X, sparse.csr_array((150, 40)), k)):
        with pytest.raises(ValueError, match="expected an integer of at least 1"):
            ask(data.test.X, k)


def test_projected_rows_train_like_rows(data):
    options = {"inducing": "subspace", "kernel": "se", "rank": 30, "max_epochs": 3}
    once, each = (small(precompute=p, **options).fit(data.X, data.Y) for p in (True, False))
    np.testing.assert_allclose(once.predict_proba(data.test.X), each.predict_proba(data.test.X), atol=2e-3)


def test_rare_labels_may_count_more(data):
    """They are then thought likelier, and the frequent ones less so."""
    plain, weighted = (small(propensity=p, calibrated=False).fit(data.X, data.Y) for p in (0.0, 1.0))
    means = [model.predict_proba(data.test.X).mean(0) for model in (plain, weighted)]
    order = np.argsort(plain.label_counts_)
    rare, frequent = order[:10], order[-5:]
    assert means[1][rare].mean() > means[0][rare].mean()
    assert means[1][frequent].mean() < means[0][frequent].mean()


def test_nothing_waits_in_partial_fit(data):
    model = small(private="point")
    for _ in range(2):
        model.partial_fit(data.X, data.Y)
    assert not model.model_.private.waiting.any()
    assert (model.model_.private.weights != 0).float().mean() > 0.95


def test_copies_are_as_small_before_and_after_predicting(data):
    model = small(private="point").fit(data.X, data.Y)
    before = len(pickle.dumps(model))
    expected = model.predict_proba(data.test.X)
    assert len(pickle.dumps(model)) < 1.01 * before
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).predict_proba(data.test.X), expected)


def test_it_works_in_inference_mode(data, tmp_path):
    import torch

    model = small(max_epochs=1).fit(data.X, data.Y)
    model.save(tmp_path / "m")
    with torch.inference_mode():
        again = labelfield.load(tmp_path / "m", device="cpu")
        for _ in range(2):
            np.testing.assert_array_equal(again.predict_topk(data.test.X).data, model.predict_topk(data.test.X).data)
