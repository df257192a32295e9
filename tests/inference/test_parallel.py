"""Trainings at once: what they return, and how they end."""

import threading
import time

import pytest
import torch
from threadpoolctl import threadpool_info

from labelfield.inference.parallel import at_most_threads, single_threads, train_in_parallel


def test_results_come_in_order_and_each_has_its_share_of_the_cores():
    before = torch.get_num_threads()
    both = threading.Barrier(2, timeout=10)

    def training(number):
        def run(on_step):
            both.wait()  # ends only if both run at once
            return number, torch.get_num_threads()

        return run

    assert train_in_parallel([training(0), training(1)], 2) == [(i, max(1, before // 2)) for i in (0, 1)]
    assert torch.get_num_threads() == before


def test_when_one_fails_all_end():
    steps = []

    def endless(on_step):
        while True:
            on_step(None, 1)
            time.sleep(0.001)

    def failing(on_step):
        on_step(None, 1)
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        train_in_parallel([endless, failing, endless], 2, lambda run, n_steps: steps.append(n_steps))
    assert steps


def test_one_after_the_other_in_the_same_thread():
    threads = train_in_parallel([lambda on_step: threading.get_ident()] * 2, 1)
    assert set(threads) == {threading.get_ident()}


def test_threads_are_limited_only_inside():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with at_most_threads(1):
            assert torch.get_num_threads() == 1
            assert {library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"} <= {1}
            with at_most_threads(4), at_most_threads(None):  # never more than before
                assert torch.get_num_threads() == 1
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_torch_computes_on_each_thread_of_a_pool_alone():
    before = torch.get_num_threads()
    with single_threads(2) as pool:
        assert set(pool.map(lambda _: torch.get_num_threads(), range(4))) == {1}
    assert torch.get_num_threads() == before
