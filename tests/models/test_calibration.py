"""The map of probabilities: monotone, faithful to the ranking, and right where the truth is known."""

import numpy as np
import torch

from labelfield.models.calibration import Calibration


def overconfident(n, seed):
    """Ranked probabilities, the truth drawn from softer ones."""
    rng = np.random.default_rng(seed)
    true = np.sort(rng.beta(1, 2, (n, 5)), axis=1)[:, ::-1]
    z = np.log(true / (1 - true))
    return (1 / (1 + np.exp(-2.5 * z))).astype(np.float32), rng.random((n, 5)) < true, true


def test_it_finds_the_true_probabilities():
    p, is_true, _ = overconfident(20_000, 0)
    calibration = Calibration()
    calibration.fit(p, is_true)
    p, _, true = overconfident(500, 1)
    q = calibration(torch.from_numpy(p), torch.arange(5)).numpy()
    assert np.abs(p - true).mean() > 0.1
    assert np.abs(q - true).mean() < 0.015


def test_the_ranking_stays():
    p, is_true, _ = overconfident(300, 2)
    calibration = Calibration()
    calibration.fit(p, is_true)
    grid = torch.logspace(-30, 0, 2000).clamp_max(1 - 1e-7)
    for rank in range(8):
        q = calibration(grid, rank)
        assert (q.diff() >= 0).all()
        assert (q[grid < 0.99].diff() > 0).all()
        assert (calibration(grid, rank + 1) <= q).all()


def test_a_first_label_that_is_surer_the_surer_it_is():
    """Its own slope is found, and the ranking stays."""
    rng = np.random.default_rng(7)
    z = np.sort(rng.normal(-1, 2, (20_000, 5)), axis=1)[:, ::-1]
    truth = z.copy()
    truth[:, 0] += 1.5 * np.maximum(z[:, 0] - 0.5, 0)
    is_true, p = rng.random(z.shape) < 1 / (1 + np.exp(-truth)), (1 / (1 + np.exp(-z))).astype(np.float32)
    plain, led = Calibration(), Calibration(has_lead=True)
    errors = []
    for calibration in (plain, led):
        calibration.fit(p, is_true)
        q = calibration(torch.from_numpy(p), torch.arange(5)).numpy()
        errors.append(np.abs(q[:, 0] - 1 / (1 + np.exp(-truth[:, 0]))).mean())
        assert (np.diff(q, axis=1) <= 0).all()
    assert errors[1] < 0.5 * errors[0]
    grid = torch.logspace(-30, 0, 2000).clamp_max(1 - 1e-7)
    assert (led(grid, 0).diff() >= 0).all()
    assert (led(grid, 1) <= led(grid, 0)).all()


def test_few_rows_change_little_and_none_nothing():
    calibration = Calibration()
    p = torch.rand(50)
    assert calibration(p) is p
    few, is_true, _ = overconfident(3, 3)
    calibration.fit(few, is_true)
    assert (calibration(p, 0) - p).abs().max() < 0.25


def test_what_is_not_known_counts_for_nothing():
    """Rows without known labels might as well be absent, and the values of unknown entries do not matter."""
    p, is_true, _ = overconfident(400, 4)
    rng = np.random.default_rng(5)
    of_rows = np.repeat(rng.random((400, 1)) < 0.6, 5, axis=1)
    of_entries = rng.random((400, 5)) < 0.6
    whole, some, one, other, never = (Calibration() for _ in range(5))
    whole.fit(p[of_rows[:, 0]], is_true[of_rows[:, 0]])
    some.fit(p, is_true, of_rows)
    one.fit(p, is_true | ~of_entries, of_entries)
    other.fit(p, is_true & of_entries, of_entries)
    for a, b in ((whole, some), (one, other)):
        for name, value in a.state_dict().items():
            torch.testing.assert_close(value, b.state_dict()[name], rtol=0, atol=0)
    never.fit(p, is_true, np.zeros_like(of_entries))
    assert never.is_identity()
    assert not one.is_identity()


def test_places_of_which_nothing_is_known():
    p, is_true, _ = overconfident(2000, 6)
    known = np.ones_like(is_true)
    known[:, 2] = False
    calibration = Calibration()
    calibration.fit(p, is_true, known)
    q = calibration(torch.from_numpy(p), torch.arange(5)).numpy()
    assert np.abs(q.mean(0) - is_true.mean(0)).max() < 0.05


def test_rows_count_by_their_weight():
    p, is_true, _ = overconfident(2000, 5)
    plain, weighed, doubled = Calibration(True), Calibration(True), Calibration(True)
    weight = np.random.default_rng(6).exponential(size=2000)
    plain.fit(p, is_true)
    doubled.fit(p, is_true, weight=np.full(2000, 1.0))
    weighed.fit(p, is_true, weight=weight)
    assert all(torch.equal(own, other) for own, other in zip(plain.buffers(), doubled.buffers(), strict=True))
    surprise = (is_true - weighed(torch.from_numpy(p), torch.arange(5)).numpy()).sum(axis=1)
    assert abs(weight @ surprise) < 0.1 * abs(surprise.sum())  # all but the caution of the prior
