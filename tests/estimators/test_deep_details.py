"""What is easily got wrong about the deep kernel classifier."""

import numpy as np
import pytest
import torch
from torch import nn

import labelfield
from labelfield import DataError, DeepKernelClassifier, synth
from labelfield.inference.signals import Interrupted
from labelfield.models.artifact import ModelError


@pytest.fixture(scope="module")
def few():
    return synth.make_rings(120, 3, noise=0.1, seed=2)


def tiny(**options):
    sizes = {"hidden": (8,), "dropout": 0.0, "grid_size": 8, "batch_size": 60}
    epochs = {"network_epochs": 1, "process_epochs": 1, "max_epochs": 1}
    return DeepKernelClassifier(**sizes | epochs | {"device": "cpu"} | options)


class Plain(nn.Module):
    """A linear layer, times something."""

    def __init__(self, factor=1.0, n_features=2, norm=None):
        super().__init__()
        self.layer, self.factor = nn.Linear(n_features, 3), factor
        self.norm = norm or nn.Identity()

    def forward(self, X):
        return self.factor * self.norm(self.layer(X))


def test_a_resumed_training_may_go_on_longer(few, tmp_path):
    def stop(run, _):
        if run.stage == "joint":
            raise Interrupted(2)

    path = tmp_path / "c"
    with pytest.raises(Interrupted):
        tiny(max_epochs=2).fit(few.X, few.Y.indices, checkpoint=path, on_step=stop)
    model = tiny(max_epochs=4, time_budget=100).fit(few.X, few.Y.indices, checkpoint=path, resume=True)
    assert [epoch["stage"] for epoch in model.history_].count("joint") == 4
    with pytest.raises(DataError, match="another"):
        tiny(max_epochs=4, joint_learning_rate=0.1).fit(few.X, few.Y.indices, checkpoint=path, resume=True)


def test_seconds_are_those_of_all_stages(few):
    seconds = [epoch["seconds"] for epoch in tiny(network_epochs=3, max_epochs=2).fit(few.X, few.Y.indices).history_]
    assert seconds == sorted(seconds)


@pytest.mark.parametrize("grid_size", [64, 600])
def test_a_fine_grid_starts_as_close_to_the_prior_as_a_coarse_one(grid_size, few):
    model = tiny(grid_size=grid_size)
    model.prepare(few.X, few.Y.indices)
    with torch.no_grad():
        assert (model.model_.processes.kl() < 60).all()


def test_features_too_large_to_square_are_said_to_be(few):
    with pytest.raises((DataError, ValueError), match=r"as large as 1\.[0-9]*e\+2|as large as [0-9.]+e\+(19|20)"):
        tiny(network=Plain(1e20)).fit(few.X, few.Y.indices)
    assert np.isfinite(tiny(network=Plain(1e10)).fit(few.X, few.Y.indices).predict_proba(few.X)).all()


def test_dense_rows_may_be_as_wide_as_images(few):
    X = np.random.default_rng(0).random((40, 9000), np.float32)
    y = np.arange(40) % 3
    assert tiny(network=Plain(n_features=9000)).fit(X, y).predict(X).shape == (40,)


@pytest.mark.parametrize("options", [{"max_epochs": 0}, {}], ids=str)
def test_partial_fit_goes_on_at_the_rates_of_the_joint_stage(options, few, tmp_path):
    rates = {"joint_learning_rate": 1e-3, "process_learning_rate": 2e-2}
    model = tiny(**options, **rates).fit(few.X, few.Y.indices)
    model.save(tmp_path / "m")
    for one in (model, labelfield.load(tmp_path / "m", device="cpu")):
        one.partial_fit(few.X, few.Y.indices)
        optimiser = one._training.gradient.optimiser
        assert one._training.settings.learning_rate == 1e-3
        scales = dict(zip(map(id, optimiser.parameters), optimiser.scales, strict=True))
        assert {scales[id(p)] for p in one.model_.features.parameters()} == {1.0}
        assert {scales[id(p)] for p in one.model_.processes.parameters()} == {20.0}


def test_what_a_batch_of_one_does_to_a_network_is_one_error(few):
    with pytest.raises(ValueError, match=r"cannot take, in training, rows of shape \(1, 2\)"):
        tiny(network=Plain(norm=nn.BatchNorm1d(3)), batch_size=1).fit(few.X, few.Y.indices)


def test_a_network_that_no_gradient_reaches_is_told_of(few):
    class Cut(Plain):
        def forward(self, X):
            return super().forward(X).detach()

    with pytest.warns(UserWarning, match="no gradient reaches"):
        tiny(network=Cut(), network_epochs=0).fit(few.X, few.Y.indices)


def test_sparse_rows_are_not_made_dense_at_once(few):
    X = np.zeros((400, 300), np.float32)
    X[np.arange(400), np.arange(400) % 300] = 1
    model = tiny(network="mlp")
    data = model.prepare(X, np.arange(400) % 3)
    batch, _ = model._source(data).batch(np.arange(5), torch.device("cpu"))
    assert batch.layout == torch.sparse_csr


@pytest.mark.parametrize("change", [lambda a: a.double(), lambda a: a.half(), lambda a: a * float("nan")])
def test_weights_of_another_kind_are_refused(change, few, tmp_path, monkeypatch):
    model = tiny(network=Plain()).fit(few.X, few.Y.indices)
    described = model._description

    def changed():
        config, arrays = described()
        name = "features.network.layer.weight"
        return config, arrays | {name: change(arrays[name])}

    monkeypatch.setattr(model, "_description", changed)
    model.save(tmp_path / "m")
    with pytest.raises(ModelError):
        labelfield.load(tmp_path / "m", network=Plain(), device="cpu")


@pytest.mark.parametrize("name", ["processes.family.factor", "processes.log_variance"])
def test_a_model_that_would_give_no_numbers_is_refused(name, few, tmp_path, monkeypatch):
    model = tiny().fit(few.X, few.Y.indices)
    described = model._description

    def changed():
        config, arrays = described()
        return config, arrays | {name: torch.full_like(arrays[name], 1e30)}

    monkeypatch.setattr(model, "_description", changed)
    model.save(tmp_path / "m")
    with pytest.raises(ModelError):
        labelfield.load(tmp_path / "m", device="cpu")
