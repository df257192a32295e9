"""Requests to stop."""

import signal
import threading

import pytest

from labelfield.inference.signals import Interrupted, stop_requests


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_is_collected_and_handlers_come_back(number):
    before = signal.getsignal(number)
    with stop_requests() as caught:
        signal.raise_signal(number)
        assert caught == [number]
    assert signal.getsignal(number) is before


def test_blocks_within_a_block_share_its_list():
    with stop_requests() as outer:
        signal.raise_signal(signal.SIGTERM)
        with stop_requests() as inner:
            assert inner is outer
        assert signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL
    with stop_requests() as fresh:
        assert fresh == []


def test_asked_twice_it_stops_at_once():
    with stop_requests():
        signal.raise_signal(signal.SIGTERM)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


def test_in_another_thread_nothing_is_collected():
    found = []

    def work():
        with stop_requests() as caught:
            found.append(caught)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == [[]]


def test_the_error_names_the_signal():
    error = Interrupted(signal.SIGTERM)
    assert str(error) == "interrupted by SIGTERM"
    assert error.signal_number == signal.SIGTERM
