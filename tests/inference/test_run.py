"""Settings, and the schedule and the clock that they set."""

import numpy as np
import pytest

from labelfield.inference.run import SCHEDULES, Clock, Run, Settings, rate_factor


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_epochs": 0},
        {"batch_size": 0},
        {"learning_rate": 0},
        {"kl_weight": -1},
        {"kl_weight": float("inf")},
        {"schedule": "x"},
        {"finishing_epochs": 30},
        {"tol": "small"},
    ],
    ids=str,
)
def test_settings_are_checked(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Settings(**wrong)


def test_held_out_rows_depend_on_the_seed_and_leave_a_row():
    held = Settings(held_out=10, seed=3).held_out_rows(100)
    np.testing.assert_array_equal(held, Settings(held_out=10, seed=3, max_epochs=4).held_out_rows(100))
    assert len(held) == len(set(held)) == 10
    assert not np.array_equal(held, Settings(held_out=10, seed=4).held_out_rows(100))
    assert len(Settings(held_out=10).held_out_rows(3)) == 2
    assert len(Settings().held_out_rows(100)) == 0


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_schedules_stay_within_the_rate(schedule):
    factors = [rate_factor(schedule, share) for share in np.linspace(0, 1, 101)]
    assert 0 < min(factors) <= max(factors) <= 1 + 1e-12
    if schedule != "constant":
        assert factors[-1] < 0.01


def test_an_unknown_schedule_is_named():
    with pytest.raises(ValueError, match="schedule='x'; expected one of one_cycle"):
        rate_factor("x", 0.5)


LONG = Settings(max_epochs=10, finishing_epochs=4, learning_rate=1.0, schedule="constant")
TIMED = Settings(max_epochs=10, finishing_epochs=4, learning_rate=1.0, schedule="constant", time_budget=10.0)
PLAIN = Settings(max_epochs=10, learning_rate=1.0, schedule="constant")


@pytest.mark.parametrize(
    ("settings", "run", "rate", "is_due", "is_over"),
    [
        (PLAIN, {"epoch": 9}, 1, False, False),
        (PLAIN, {"epoch": 2, "is_stopped_early": True}, 1, False, True),
        (LONG, {"epoch": 5, "step": 4}, 1, False, False),
        (LONG, {"epoch": 5, "step": 5}, 1, True, False),
        (LONG, {"epoch": 6}, 1, True, False),
        (LONG, {"epoch": 2, "is_stopped_early": True}, 1, True, False),
        (LONG, {"epoch": 6, "finishing_epoch": 6}, 1, False, False),
        (LONG, {"epoch": 8, "finishing_epoch": 6}, 0.5, False, False),
        (LONG, {"epoch": 9, "step": 5, "finishing_epoch": 6}, 0, False, True),
        (LONG, {"epoch": 7, "finishing_epoch": 3}, 0, False, True),
        (LONG, {"epoch": 7, "finishing_epoch": 6, "is_stopped_early": True}, 0.75, False, True),
        (TIMED, {"epoch": 1, "seconds": 5.9}, 1, False, False),
        (TIMED, {"epoch": 1, "seconds": 6.0}, 1, True, False),
        (TIMED, {"epoch": 2, "seconds": 8.0, "finishing_epoch": 2, "finishing_seconds": 6.0}, 0.5, False, False),
        (TIMED, {"epoch": 2, "seconds": 10.0, "finishing_epoch": 2, "finishing_seconds": 6.0}, 0, False, True),
    ],
)
def test_the_clock_goes_by_epochs_or_by_time(settings, run, rate, is_due, is_over):
    clock = Clock(Run(**{"n_steps": 5} | run), settings)
    assert clock.rate() == pytest.approx(rate)
    assert clock.is_finishing_due() == is_due
    assert clock.is_over() == is_over
