"""Seeds, interruptions, checkpoints, and what a training will cost."""

import signal

import numpy as np
import pytest
import torch
from topic_cases import ALGORITHMS, arrays, assert_same_arrays, bounds, differ, tiny

from labelfield import DataError
from labelfield.inference.signals import Interrupted


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_the_same_seed_gives_the_same_arrays(algorithm, few):
    before = torch.get_rng_state()
    a, b, c = (tiny(algorithm=algorithm, random_state=seed).fit(*few) for seed in (3, 3, 4))
    assert_same_arrays(a, b)
    assert differ(a, c)
    assert torch.equal(torch.get_rng_state(), before)


def test_fitting_twice_is_like_fitting_once(few):
    twice = tiny().fit(few[0][:50], few[1][:50] == 1)
    assert_same_arrays(twice.fit(*few), tiny().fit(*few))


# Steps: 4 of each epoch of online EM, 1 of the others.
STOPS = [
    *((*stop, masked) for stop in (("em", 1), ("em", 4), ("gibbs", 2), ("gibbs", 5)) for masked in (False, True)),
    *(("online_em", stop_after, stop_after == 6) for stop_after in (1, 4, 6, 11)),
]


@pytest.fixture(scope="module")
def fit(few):
    """How runs that are to be interrupted are fitted."""
    missing = np.random.default_rng(0).random(few[1].shape) < 0.2
    options = {"max_epochs": 6, "batch_size": 25, "n_draws": 3, "tol": 0.0}
    return lambda algorithm, masked, **others: tiny(algorithm=algorithm, **options).fit(
        *few, missing=missing if masked else None, **others
    )


@pytest.fixture(scope="module")
def uninterrupted(fit):
    return {run: fit(*run) for run in {(algorithm, masked) for algorithm, _, masked in STOPS}}


@pytest.mark.parametrize(("algorithm", "stop_after", "masked"), STOPS)
def test_an_interrupted_run_resumes_to_the_same_arrays(
    algorithm, stop_after, masked, fit, uninterrupted, tmp_path, interrupt_after
):
    path, interrupt = tmp_path / "checkpoint.safetensors", interrupt_after(stop_after, signal.SIGINT)
    with pytest.raises(Interrupted, match="SIGINT"):
        fit(algorithm, masked, checkpoint=path, on_step=interrupt)
    assert interrupt.steps == stop_after
    steps, whole = [], uninterrupted[algorithm, masked]
    resumed = fit(algorithm, masked, checkpoint=path, resume=True, on_step=lambda run, n: steps.append(n))
    n_steps = 4 if algorithm == "online_em" else 1
    assert steps == [n_steps] * (6 * n_steps - stop_after)
    assert_same_arrays(whole, resumed)
    np.testing.assert_array_equal(bounds(whole), bounds(resumed))
    rates = [[epoch["learning_rate"] for epoch in model.history_] for model in (whole, resumed)]
    assert rates[0] == rates[1]


def test_a_run_may_go_on_longer(few, tmp_path):
    path = tmp_path / "c"
    tiny(max_epochs=3).fit(*few, checkpoint=path)
    longer = tiny(max_epochs=7, time_budget=100).fit(*few, checkpoint=path, resume=True)
    assert_same_arrays(longer, tiny(max_epochs=7).fit(*few))


class TestCheckpoints:
    @pytest.mark.parametrize("algorithm", ALGORITHMS)
    def test_one_of_something_else_is_refused(self, algorithm, few, tmp_path):
        path, (X, Y) = tmp_path / "c", few
        tiny(algorithm=algorithm).fit(X, Y, checkpoint=path)
        other = {"em": "gibbs", "gibbs": "online_em", "online_em": "em"}[algorithm]
        changes = [{"algorithm": other}, {"n_topics": 2}, {"weight_scale": 1.0}, {"shape_strength": 2.0}]
        changes += [{"learn_hyper": False}, {"random_state": 1}, {"n_gradient_steps": 3}, {"row_transform": "log"}]
        message = "the checkpoint was made with another .*; expected the same options and data"
        for change in changes:
            with pytest.raises(DataError, match=message):
                tiny(**{"algorithm": algorithm} | change).fit(X, Y, checkpoint=path, resume=True)
        hidden = np.zeros(Y.shape, bool)
        hidden[:, 2] = True
        for arguments in (
            {"X": X[::-1], "Y": Y},
            {"X": X, "Y": Y[::-1]},
            {"X": X, "Y": Y, "missing": hidden},
            {"X": X, "Y": Y, "observed": hidden},
        ):
            with pytest.raises(DataError, match=message):
                tiny(algorithm=algorithm).fit(**arguments, checkpoint=path, resume=True)

    def test_what_was_observed_and_what_was_missing_are_not_the_same(self, few, tmp_path):
        """The places are the same, and no label holds there."""
        X, Y = few
        places = np.zeros(Y.shape, bool)
        places[:, 27:] = True
        Y = Y * 0
        Y[:, 27] = 1
        tiny().fit(X, Y, observed=places, checkpoint=tmp_path / "c")
        with pytest.raises(DataError, match="another model or other training data"):
            tiny().fit(X, np.roll(Y, -10, 1), missing=places, checkpoint=tmp_path / "c", resume=True)

    def test_a_damaged_one_is_refused(self, few, tmp_path):
        tiny().fit(*few, checkpoint=tmp_path / "c")
        (tmp_path / "c").write_bytes((tmp_path / "c").read_bytes()[:-9] + b"something")
        with pytest.raises(DataError, match="checkpoint is damaged"):
            tiny().fit(*few, checkpoint=tmp_path / "c", resume=True)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_what_training_will_cost_changes_nothing(algorithm, few):
    model = tiny(algorithm=algorithm)
    rows = model.prepare(*few)
    before, cost = arrays(model), model.training_cost(rows)
    assert cost.seconds > 0
    assert cost.n_bytes > 0
    assert model.n_parameters() > 3 * (100 + 25)
    assert model.summary() == f"30 labels; 3 topics by {algorithm}"
    for name, value in arrays(model).items():
        np.testing.assert_array_equal(value, before[name])
    assert_same_arrays(model.train_prepared(rows), tiny(algorithm=algorithm).fit(*few))
