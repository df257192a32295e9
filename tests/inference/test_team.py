"""Several processes that train a factor model together: the same model for any number of them, and any can go on."""

import numpy as np
import pytest

from labelfield import MLGPFClassifier, TopicClassifier, synth
from labelfield.cluster import ALONE, ClusterError
from labelfield.csr import from_counts
from labelfield.errors import DataError
from labelfield.inference.run import Settings
from labelfield.models.mlgpf.shares import Shares
from tests.threads import together

DATA = synth.make_multilabel(160, 40, 150, seed=0)
SMALL = {"n_latent": 6, "n_inducing": 8, "batch_size": 32, "max_epochs": 4, "random_state": 3, "device": "cpu"}


def train(size, X=DATA.X, Y=DATA.Y, checkpoint=None, resume=False, **options):
    """Train with some ranks, and return what the first has."""

    def act(cluster):
        model = MLGPFClassifier(**SMALL | options)
        rows = model.prepare(X, Y, cluster=cluster)
        return model.train_prepared(rows, cluster=cluster, checkpoint=checkpoint, resume=resume)

    return together(size, act)[0]


def assert_alike(one, other, tolerance=1e-5):
    assert one.spec_ == other.spec_
    a, b = one.model_.state_dict(), other.model_.state_dict()
    assert a.keys() == b.keys()
    for name, value in a.items():
        np.testing.assert_allclose(value.numpy(), b[name].numpy(), rtol=0, atol=tolerance, err_msg=name)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"n_negatives": 20},
        {"label_linear": "point"},
        {"label_linear": "mean_field", "n_negatives": 20},
        {"likelihood": "squared_hinge", "label_linear": "point"},
        {"clip_norm": 0.1, "propensity": 0.5},
        {"inducing": "subspace", "posterior": "whitened_full"},
    ],
    ids=str,
)
def test_any_number_of_processes_trains_the_same_model(options):
    alone = train(1, **options)
    for size in (2, 4):  # 150 labels are three blocks: the fourth process has none
        found = train(size, **options)
        assert_alike(alone, found)
        assert [epoch["bound"] for epoch in found.history_] == pytest.approx(
            [epoch["bound"] for epoch in alone.history_], rel=1e-6
        )


def test_held_out_rows_calibrate_the_whole_model_and_join():
    data = synth.make_multilabel(400, 40, 150, seed=1)
    alone, found = (train(size, data.X, data.Y, label_linear="point", max_epochs=3) for size in (1, 2))
    assert alone.settings_.held_out == 40
    assert_alike(alone, found, 1e-4)  # weights are rounded before calibration and after
    np.testing.assert_allclose(alone.predict_proba(data.X[:9]), found.predict_proba(data.X[:9]), atol=1e-5)
    assert found.evidence_ is not None


@pytest.mark.parametrize(("first", "second"), [(4, 2), (2, 1), (1, 4)])
@pytest.mark.parametrize("options", [{}, {"label_linear": "point", "n_negatives": 20}], ids=str)
def test_any_number_of_processes_goes_on_from_a_checkpoint(tmp_path, first, second, options):
    how = {"schedule": "constant", "calibrate": False, **options}
    train(first, max_epochs=2, checkpoint=tmp_path / "run.safetensors", **how)
    found = train(second, max_epochs=4, checkpoint=tmp_path / "run.safetensors", resume=True, **how)
    assert len(found.history_) == 4
    assert_alike(train(1, max_epochs=4, **how), found)


def test_a_checkpoint_of_other_options_is_refused_by_all(tmp_path):
    how = {"checkpoint": tmp_path / "run.safetensors", "max_epochs": 2}
    train(2, **how)
    with pytest.raises(DataError, match="another learning_rate"):
        train(2, resume=True, learning_rate=0.5, **how)


def test_a_block_of_labels_without_positives_trains():
    kept = DATA.Y.indices < 60  # the second block of 64 has none, nor has the third
    counts = np.add.reduceat(np.r_[kept, False], DATA.Y.indptr[:-1]) * (np.diff(DATA.Y.indptr) > 0)
    Y = from_counts(counts.astype(np.int64), DATA.Y.indices[kept], None, DATA.n_labels)
    assert_alike(train(1, Y=Y, label_linear="point"), train(3, Y=Y, label_linear="point"))


def test_processes_have_equal_shares_of_the_parameters():
    model = MLGPFClassifier(**SMALL | {"label_linear": "point", "max_epochs": 1})
    model.prepare(DATA.X, synth.make_multilabel(160, 40, 5000, seed=0).Y)
    whole, sizes = model.model_, []
    n_all = whole.Phi.numel() + whole.b.numel() + whole.label_linear.weights.numel()
    covered = []
    for rank in range(4):
        cluster = type(ALONE)(rank, 4)
        labels = Shares.of(whole, cluster).labels
        pointers = whole.label_linear.pointers
        covered += range(labels.start, labels.stop)
        sizes.append((labels.stop - labels.start) * (whole.Phi.shape[1] + 1))
        sizes[-1] += int(pointers[labels.stop] - pointers[labels.start])
    assert covered == list(range(5000))
    assert max(sizes) <= 1.1 * n_all / 4


def test_a_process_that_fails_ends_the_others():
    def act(cluster):
        model = MLGPFClassifier(**SMALL)
        rows = model.prepare(DATA.X, DATA.Y, cluster=cluster)

        def stop(run, n_steps):
            if cluster.rank == 1 and run.step == 2:
                raise RuntimeError("enough")

        model.train_prepared(rows, cluster=cluster, on_step=stop)

    with pytest.raises(RuntimeError, match="enough"):
        together(2, act)


def test_time_is_that_of_the_first(monkeypatch):
    """A budget ends all processes in the same step, whatever their own clocks say."""
    found = train(2, time_budget=0.05, max_epochs=1000)
    assert found.history_[-1]["seconds"] >= 0.05
    assert Settings().checkpoint_every == 120.0


# Topics


def train_topics(size, checkpoint=None, resume=False, **options):
    def act(cluster):
        model = TopicClassifier(**{"n_topics": 5, "max_epochs": 20, "tol": 0.0, "device": "cpu"} | options)
        rows = model.prepare(DATA.X, DATA.Y, cluster=cluster)
        return model.train_prepared(rows, cluster=cluster, checkpoint=checkpoint, resume=resume)

    return together(size, act)[0]


def test_topics_of_rows_that_are_divided_are_those_of_one_process():
    alone = train_topics(1)
    for size in (2, 4):
        found = train_topics(size)
        assert_alike(alone, found, 1e-4)  # twenty steps of EM, each of which solves for W
        assert [epoch["bound"] for epoch in found.history_] == pytest.approx(
            [epoch["bound"] for epoch in alone.history_], rel=1e-5
        )


@pytest.mark.parametrize(("first", "second"), [(3, 2), (2, 1), (1, 3)])
def test_topics_go_on_with_any_number_of_processes(tmp_path, first, second):
    how = {"calibrate": False}
    train_topics(first, max_epochs=8, checkpoint=tmp_path / "run.safetensors", **how)
    found = train_topics(second, max_epochs=20, checkpoint=tmp_path / "run.safetensors", resume=True, **how)
    assert len(found.history_) == 20
    assert_alike(train_topics(1, **how), found, 1e-4)


@pytest.mark.parametrize(
    "options", [{"algorithm": "gibbs"}, {"algorithm": "online_em"}, {"n_gradient_steps": 0}], ids=str
)
def test_other_ways_to_topics_say_that_they_train_in_one_process(options):
    with pytest.raises(ClusterError, match="start it without torchrun"):
        train_topics(2, **options)
