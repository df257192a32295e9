"""The simulator: what it counts grows as it must, and what it learns from steps explains others."""

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.simulator.fitting import Point, fitted
from benchmarks.simulator.step import Machine, Network, Prediction, Sizes, Work, memory_of
from benchmarks.studies.simulate import traffic

SIZES = Sizes(10**6, 50_000, 40_000, 50, 5, 100, 200, 500, 1000, n_pool=1_500)
MACHINE = Machine("some", 1e-3, 1e-11, 1e-9, 1e-10)
NETWORK = Network("some", 1e9, 1e-5)


def test_a_step_costs_the_same_for_any_number_of_labels_and_rows():
    """If negatives are drawn: only those that take part count."""
    one = Prediction.of(SIZES, MACHINE).step_seconds
    for other in (replace(SIZES, n_labels=4_000_000), replace(SIZES, n_rows=10**8)):
        assert Prediction.of(other, MACHINE).step_seconds == pytest.approx(one)
    assert Prediction.of(replace(SIZES, n_rows=10**8), MACHINE).epoch_seconds == pytest.approx(
        100 * Prediction.of(SIZES, MACHINE).epoch_seconds
    )


def test_operations_are_linear_in_values_per_row():
    found = [Work.of(replace(SIZES, n_nonzeros=n)).operations for n in (10, 20, 30)]
    assert found[2] - found[1] == pytest.approx(found[1] - found[0])
    assert found[1] > found[0]


def test_labels_that_hold_in_a_batch_are_those_of_a_draw():
    rng = np.random.default_rng(0)
    for n_pool, draw in ((1_500, lambda n: rng.integers(1_500, size=n)), (None, lambda n: 40_000 * rng.random(n) ** 3)):
        sizes = replace(SIZES, n_pool=n_pool, n_negatives=0)
        drawn = np.mean([np.unique(np.floor(draw(2_500))).size for _ in range(40)])
        assert sizes.labels_per_step == pytest.approx(drawn, rel=0.02)
    assert replace(SIZES, n_negatives=None).labels_per_step == 40_000


def test_processes_divide_labels_and_their_memory():
    whole, parts = memory_of(SIZES), memory_of(SIZES, 4)
    shared = memory_of(replace(SIZES, n_labels=1, n_negatives=0, n_pool=1))
    assert parts - shared == pytest.approx((whole - shared) / 4, rel=0.05)
    one, four = Work.of(SIZES), Work.of(SIZES, 4)
    assert four.entries == one.entries / 4
    assert four.operations < one.operations
    assert one.bytes_sent == one.n_messages == 0
    assert Prediction.of(SIZES, MACHINE, 4, NETWORK).network_seconds > 0


def test_what_is_sent_is_what_a_step_adds_up():
    found = traffic(Sizes(1_000, 500, 300, 10, 3, 12, 9, 40, 50, 200, n_pool=100))
    assert found["predicted_bytes"] == pytest.approx(found["counted_bytes"], rel=0.02)


def test_rates_are_found_from_steps():
    rng, points = np.random.default_rng(0), []
    for _ in range(12):
        changed = {"n_latent": int(rng.integers(20, 300)), "batch_size": int(rng.integers(100, 2_000))}
        sizes = replace(SIZES, n_inducing=int(rng.integers(50, 400)), **changed)
        points.append(Point(sizes, Prediction.of(sizes, MACHINE).step_seconds))
    machine = fitted("found", points)
    for name in ("overhead", "per_operation", "per_entry"):
        assert getattr(machine, name) == pytest.approx(getattr(MACHINE, name), rel=0.05)
