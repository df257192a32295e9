"""One step: what is bad changes nothing, and what a GPU replays is what it would have computed."""

import copy

import numpy as np
import pytest
import torch
from scipy import sparse

from labelfield import Dataset, DeepKernelClassifier, MLGPFClassifier, synth
from labelfield.inference.adam import RowAdam
from labelfield.inference.deep import follow_features
from labelfield.inference.source import DatasetSource, ResidentSource
from labelfield.inference.stepper import Stepper
from labelfield.linalg.cholesky import JitterWarning

needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")


def prepared(device, **options):
    """A model before training, its objective and its rows."""
    data = synth.make_multilabel(300, 80, 30, seed=2)
    estimator = MLGPFClassifier(
        device=device, n_latent=6, n_inducing=20, batch_size=50, n_negatives=0, label_linear="point", **options
    )
    return estimator, estimator.prepare(data.X, data.Y)


def stepper(estimator, model, source, is_capturable):
    def objective(X, Y, n_data, generator):
        return model.elbo(X, Y, n_data, n_points=estimator.n_points)

    optimiser = RowAdam([p for p in model.parameters() if p.requires_grad], lr=0.02)
    return Stepper(objective, source, optimiser, torch.Generator().manual_seed(0), is_capturable=is_capturable)


def batches(n_batches, n_rows=300, size=50):
    rng = np.random.default_rng(0)
    return [np.sort(rng.choice(n_rows, size, replace=False)) for _ in range(n_batches)]


def test_a_bad_step_changes_no_parameter():
    estimator, data = prepared("cpu")
    data.X.data[data.X.indptr[7]] = np.nan
    steps = stepper(estimator, estimator.model_, DatasetSource(data), False)
    steps.step(np.arange(20, 60), 300)
    before = [p.detach().clone() for p in estimator.model_.parameters()]
    steps.step(np.arange(40), 300)
    assert all(torch.equal(a, b) for a, b in zip(before, estimator.model_.parameters(), strict=True))
    tally = steps.read()
    assert (tally.n_good, tally.n_bad, tally.n_bad_at_end) == (1, 1, 1)


@needs_cuda
@pytest.mark.parametrize("kernel", ["se_ard", "linear", "matern32_ard"])
def test_replayed_steps_give_the_arrays_of_launched_ones(kernel):
    estimator, data = prepared("cuda", kernel=kernel)
    source = ResidentSource(data, torch.device("cuda"))
    start, twin = copy.deepcopy(estimator.model_), copy.deepcopy(estimator.model_)
    replayed, launched = (stepper(estimator, m, source, c) for m, c in ((estimator.model_, True), (twin, False)))
    for rows in batches(15):
        replayed.step(rows, 300)
        launched.step(rows, 300)
    assert replayed._captured is not None
    assert launched._captured is None
    ours, theirs = replayed.read(), launched.read()
    assert ours.n_good == theirs.n_good == 15
    assert ours.sum_bound == pytest.approx(theirs.sum_bound, rel=1e-4)
    for name, before in start.named_parameters():
        a, b = (model.get_parameter(name) for model in (estimator.model_, twin))
        # Sums on a GPU come in any order, and Adam makes much of gradients that are nearly 0.
        assert (a - b).norm() < 0.05 * (b - before).norm(), name


@needs_cuda
@pytest.mark.parametrize("likelihood", ["softmax", "bernoulli"])
@pytest.mark.parametrize("stage", ["network", "joint"])
def test_what_is_drawn_is_the_same_whether_a_step_is_replayed_or_launched(stage, likelihood):
    """Dropout and draws of the processes, from a generator that is seeded for each step."""
    rng = np.random.default_rng(0)
    X, classes = rng.normal(size=(300, 8)).astype(np.float32), rng.integers(0, 3, 300)
    y = classes if likelihood == "softmax" else np.eye(3, dtype=np.int8)[classes] | (X[:, :3] > 0)
    found = []
    for is_captured in (True, False):
        model = DeepKernelClassifier(
            network="mlp", hidden=(20, 10), dropout=0.5, likelihood=likelihood, mixed_precision=False, device="cuda"
        )
        data = model.prepare(X, y)
        follow_features(model.model_, data, 0)
        start = [p.detach().clone() for p in model.model_.parameters()]
        steps = Stepper(
            model.trainer_.objective(stage),
            model.trainer_.source(data),
            RowAdam([p for p in model.model_.parameters() if p.requires_grad], 1e-3),
            torch.Generator().manual_seed(0),
            is_capturable=is_captured,
        )
        for rows in batches(12):
            steps.step(rows, 300)
        assert (steps._captured is not None) == is_captured
        tally = steps.read()
        assert tally.n_good == 12
        found.append((tally.sum_bound, [p.detach().clone() for p in model.model_.parameters()]))
    (ours, replayed), (theirs, launched) = found
    assert ours == pytest.approx(theirs, rel=1e-5)
    for a, b, before in zip(replayed, launched, start, strict=True):
        assert (a - b).norm() <= 1e-3 * (b - before).norm()


@needs_cuda
def test_a_replayed_bad_step_changes_no_parameter_and_is_counted():
    estimator, data = prepared("cuda")
    data.X.data[data.X.indptr[299]] = np.nan
    steps = stepper(estimator, estimator.model_, ResidentSource(data, torch.device("cuda")), True)
    for rows in batches(5, n_rows=299):
        steps.step(rows, 300)
    assert steps._captured is not None
    before = [p.detach().clone() for p in estimator.model_.parameters()]
    steps.step(np.arange(250, 300), 300)
    assert all(torch.equal(a, b) for a, b in zip(before, estimator.model_.parameters(), strict=True))
    assert steps.read().n_bad == 1
    assert steps._captured is None, "after a bad step each is launched with care"


class _Failing:
    """A captured step whose replays are good so many times and bad from then on, as with a matrix without a factor."""

    def __init__(self, stepper, n_good):
        self.stepper, self.n_good = stepper, n_good

    def fits(self, rows, n_data):
        return True

    def replay(self, rows):
        if self.n_good:
            self.stepper.compute(*self.stepper.source.batch(rows, self.stepper.device), 300)
        else:
            self.stepper._count(torch.zeros(()), torch.ones(()))
        self.n_good = max(0, self.n_good - 1)


@pytest.mark.parametrize("n_good", [0, 3, 12])
def test_what_was_lost_in_replaying_is_done_again(n_good):
    estimator, data = prepared("cpu")
    twin = copy.deepcopy(estimator.model_)
    ours, launched = (stepper(estimator, model, DatasetSource(data), False) for model in (estimator.model_, twin))
    ours._captured = _Failing(ours, n_good)
    for rows in batches(12):
        ours.step(rows, 300)
        launched.step(rows, 300)
    found = ours.read()
    assert found == pytest.approx(launched.read())
    assert found[1:] == (12, 0, 0)
    assert all(torch.equal(a, b) for a, b in zip(estimator.model_.parameters(), twin.parameters(), strict=True))
    assert (ours._captured is None) == (n_good < 12)


@needs_cuda
def test_a_matrix_that_needs_more_jitter_costs_no_step():
    """As captured nothing can be asked, so nothing can be mended: what was lost is launched."""
    data = synth.make_multilabel(300, 20, 30, seed=2)
    model = MLGPFClassifier(
        device="cuda", kernel="linear", n_latent=6, n_inducing=60, jitter=0.0, batch_size=50, max_epochs=5
    )
    with pytest.warns(JitterWarning) as caught:  # 60 inducing inputs in 20 dimensions: no factor without jitter
        model.fit(data.X, data.Y)
    assert not any("step skipped" in str(warning.message) for warning in caught)
    assert model.history_[-1]["bound"] > model.history_[0]["bound"]


@needs_cuda
def test_a_batch_with_more_entries_than_were_recorded_is_launched():
    estimator, data = prepared("cuda")
    source = ResidentSource(data, torch.device("cuda"))
    steps = stepper(estimator, estimator.model_, source, True)
    for rows in batches(3):
        steps.step(rows, 300)
    steps._captured.sizes = steps._captured.sizes._replace(X=1)
    steps.step(batches(1)[0], 300)
    assert steps.read().n_good == 4


@needs_cuda
def test_a_gpu_learns_what_a_cpu_learns():
    data = synth.make_multilabel(300, 80, 30, seed=2)
    options = {"n_latent": 6, "n_inducing": 20, "max_epochs": 6, "batch_size": 50, "n_negatives": 0}
    here, there = (MLGPFClassifier(device=d, **options).fit(data.X, data.Y) for d in ("cpu", "cuda"))
    a, b = (m.predict_proba(data.X) for m in (here, there))
    assert np.abs(a - b).mean() < 0.01


def test_fixed_sizes_of_dense_rows_fit_in_their_matrix():
    """A captured step has room for almost any batch, but never for more entries than a full matrix has."""
    rows = sparse.csr_array(np.ones((90, 7), np.float32))
    labels = sparse.csr_array(np.eye(90, 3, dtype=np.float32))
    sizes = ResidentSource(Dataset(rows, labels), torch.device("cpu")).fixed_sizes(20)
    assert sizes.X == 20 * 7
    assert sizes.Y <= 20 * 3
