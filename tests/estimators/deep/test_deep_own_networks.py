"""Deep kernels on networks of the user's own."""

import numpy as np
import pytest
import torch
from deep_cases import WORDS, Linear, Own, OwnSparse, Poisoned, Wrong, quietly, seeded, tiny
from scipy import sparse
from torch import nn

import labelfield
from labelfield import DataError, LabelfieldError, MLGPFClassifier
from labelfield.metrics import popularity, precision_at_k
from labelfield.models.artifact import ModelError


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
        sizes = data.n_features, data.n_labels
        model = tiny(network=seeded(OwnSparse, *sizes), network_epochs=10, row_transform="unit").fit(data.X, data.Y)
        popular = precision_at_k(data.test.Y, popularity(data.Y, data.test.n_rows, 1), 1)
        assert precision_at_k(data.test.Y, model.predict_topk(data.test.X, 1), 1) > 1.5 * popular
        model.save(tmp_path / "m")
        again = labelfield.load(tmp_path / "m", network=OwnSparse(*sizes), device="cpu")
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
            (lambda _, h: h[:, 0], r"the network returns \(2,\) for 2 rows; expected a tensor \(2, Q\)"),
            (lambda _, h: h[:1], r"the network returns \(1, 3\) for 2 rows"),
            (lambda _, h: (h, h), "the network returns tuple for 2 rows"),
            (lambda *_: None, "the network returns NoneType for 2 rows"),
            (lambda _, h: h.unsqueeze(2), r"the network returns \(2, 3, 1\) for 2 rows"),
            (lambda _, h: h.double(), "torch.float64 features; expected torch.float32"),
            (lambda X, _: X[:, [7]], r"the network Wrong cannot process rows of shape \(2, 2\): .*index 7"),
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
        with pytest.raises(
            ValueError, match=r"the network Linear cannot process rows of shape \(2, 2\): .*mat1 and mat2"
        ):
            tiny(network=nn.Linear(5, 3)).fit(few.X, few.Y.indices)

    @pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
    def test_features_that_are_not_finite(self, value, few, monkeypatch):
        X = few.X.toarray()
        model = tiny(network=Poisoned(value)).fit(X, few.Y.indices)
        # A row among those that say where the grid is to be, whatever its number is among them.
        monkeypatch.setattr("labelfield.inference.deep._SEEN_ROWS", 50)
        row = np.random.default_rng(0).permutation(120)[:50].max()
        X[row, 0] = 99
        with pytest.raises(DataError, match=f"features that are not finite for row {row};"):
            tiny(network=Poisoned(value)).fit(X, few.Y.indices)
        monkeypatch.setattr("labelfield.models.deep.predict._MOST_ROWS", 7)
        for ask in (model.predict, model.predict_proba, model.transform, model.baseline_proba):
            with pytest.raises(DataError, match=f"features that are not finite for row {row};"):
                ask(X)

    @pytest.mark.parametrize("network_epochs", [0, 2])
    def test_a_row_that_nobody_looked_at_before(self, network_epochs, few, monkeypatch):
        X, row = few.X.toarray(), np.random.default_rng(0).permutation(120)[-1]
        X[row, 0] = 99
        monkeypatch.setattr("labelfield.inference.deep._SEEN_ROWS", 50)
        expected = "training broke down" if network_epochs else f"not finite for row {row};"
        model = tiny(network=Poisoned(), network_epochs=network_epochs, batch_size=120)
        with pytest.raises(LabelfieldError, match=expected):
            quietly(model.fit, X, few.Y.indices)

    def test_features_too_large_to_square(self, few):
        with pytest.raises((DataError, ValueError), match=r"as large as 1\.[0-9]*e\+2|as large as [0-9.]+e\+(19|20)"):
            tiny(network=Linear(1e20)).fit(few.X, few.Y.indices)
        assert np.isfinite(tiny(network=Linear(1e10)).fit(few.X, few.Y.indices).predict_proba(few.X)).all()

    @pytest.mark.parametrize("network", [Own(), Linear(norm=nn.BatchNorm1d(3))])
    def test_a_batch_of_one_row_is_too_few_for_batch_norm(self, network, few):
        message = r"cannot process, in training, rows of shape \(1, 2\): .*more than 1 value per channel"
        with pytest.raises(ValueError, match=message):
            tiny(network=network, batch_size=1).fit(few.X, few.Y.indices)

    def test_dense_rows_may_be_as_wide_as_images(self):
        X = np.random.default_rng(0).random((40, 9000), np.float32)
        assert tiny(network=Linear(n_features=9000)).fit(X, np.arange(40) % 3).predict(X).shape == (40,)

    def test_a_warning_says_that_no_gradient_reaches_the_network(self, few):
        class Cut(Linear):
            def forward(self, X):
                return super().forward(X).detach()

        with pytest.warns(UserWarning, match="no gradient reaches"):
            tiny(network=Cut(), network_epochs=0).fit(few.X, few.Y.indices)
