"""A stack recovers planted weights, never lets a better score lower a label, and ranks labels never seen last."""

import numpy as np
import pytest
import torch
from scipy.special import expit

from labelfield.models.stack import N_LEVELS, NEVER, Stack, log_odds_of


def counted(n_parts, counts):
    stack = Stack(n_parts, len(counts))
    stack.count(np.asarray(counts))
    return stack


def entries(stack, slopes, offsets, n, seed=0):
    """Scores of entries, their labels, and truth drawn from the log-odds that these slopes and offsets give."""
    rng = np.random.default_rng(seed)
    planted = Stack(*stack.slopes.shape[:1], len(stack.places))
    planted.load_state_dict(stack.state_dict())
    planted.slopes.copy_(torch.tensor(slopes))
    planted.offsets.copy_(torch.tensor(offsets))
    labels = rng.integers(0, len(stack.places), n)
    scores = [rng.normal(size=n).astype(np.float32) for _ in slopes]
    places = stack.places.numpy()[labels]
    z = sum(part * (places @ np.array(own)) for part, own in zip(scores, slopes, strict=True)) + places @ offsets
    return scores, labels, rng.random(n) < expit(z)


def test_places_are_weights_between_levels():
    """Half of all positives are of labels beyond the middle level, and the levels are the ends of the frequencies."""
    rng = np.random.default_rng(0)
    counts = np.sort(np.r_[rng.zipf(1.5, 300) % 5000, 0, 1])
    places = counted(1, counts).places.numpy()
    assert (places >= 0).all()
    np.testing.assert_allclose(places.sum(1), 1, atol=1e-5)
    np.testing.assert_allclose(places[-1], [0, 0, 1], atol=1e-5)
    level = places @ np.arange(N_LEVELS)
    assert (np.diff(level) >= -1e-6).all()
    share = counts[level > 1].sum() / counts.sum()
    assert abs(share - 0.5) < counts.max() / counts.sum() + 1e-6


@pytest.mark.parametrize("counts", [[0, 0, 0], [5, 5, 5], [1], [0, 7]])
def test_counts_of_any_kind_have_places(counts):
    stack = counted(2, counts)
    assert bool(torch.isfinite(stack.places).all())
    np.testing.assert_allclose(stack.places.sum(1), 1, atol=1e-5)
    stack.check()


def test_labels_never_seen_come_last():
    stack = counted(1, [4, 0, 900, 0])
    stack.slopes.fill_(2.0)
    for low, high in ((-3.0, 6.0), (-1e6, 1e6)):
        z = stack([torch.tensor([[low, high, 0.1, high]])])[0]
        assert z[[1, 3]].tolist() == [NEVER, NEVER]
        p = z.sigmoid()
        assert p[1] < p[0] < p[2]  # also in float32


def test_planted_slopes_and_offsets_are_found():
    stack = counted(2, [3, 10, 40, 200, 2000])
    slopes, offsets = [[3.0, 2.0, 1.0], [0.5, 1.0, 2.0]], [1.0, -1.0, -2.0]
    stack.fit(*entries(stack, slopes, offsets, 60_000))
    np.testing.assert_allclose(stack.slopes, slopes, atol=0.2)
    np.testing.assert_allclose(stack.offsets, offsets, atol=0.2)


@pytest.mark.parametrize("scale", [1e-3, 0.37, 1.0, 20.0])
def test_slopes_are_never_negative_also_by_rounding(scale):
    """Scores that speak against their labels get no weight, whatever their scale, and pass the check of folders."""
    for seed in range(20):
        stack = counted(3, [3, 30, 300])
        scores, labels, is_true = entries(stack, [[2.0] * 3, [0.0] * 3, [0.0] * 3], [0.0] * 3, 500, seed)
        against = -scale * (1 + seed / 7) * scores[0]
        stack.fit([against, scores[1], against], labels, is_true)
        assert (stack.slopes >= 0).all()
        assert stack.slopes[[0, 2]].max() * scale < (0.05 if scale <= 1 else 2)  # the prior knows large scores
        stack.check()


def test_the_scale_of_scores_does_not_matter():
    a, b = counted(2, [3, 30, 300]), counted(2, [3, 30, 300])
    scores, labels, is_true = entries(a, [[2.0] * 3, [1.0] * 3], [-1.0] * 3, 2000)
    b.slopes.copy_(a.slopes / torch.tensor([[10.0], [0.1]]))
    a.fit(scores, labels, is_true)
    b.fit([10 * scores[0], 0.1 * scores[1]], labels, is_true)
    ours = a([torch.from_numpy(part) for part in scores], torch.from_numpy(labels))
    theirs = b([torch.from_numpy(10 * scores[0]), torch.from_numpy(0.1 * scores[1])], torch.from_numpy(labels))
    np.testing.assert_allclose(ours, theirs, atol=0.02)


def test_the_order_of_parts_and_entries_does_not_matter():
    a, b = counted(2, [3, 30, 300]), counted(2, [3, 30, 300])
    scores, labels, is_true = entries(a, [[2.0] * 3, [1.0] * 3], [-1.0] * 3, 2000)
    mixed = np.random.default_rng(1).permutation(2000)
    a.fit(scores, labels, is_true)
    b.fit([scores[1][mixed], scores[0][mixed]], labels[mixed], is_true[mixed])
    np.testing.assert_allclose(a.slopes.flip(0), b.slopes, atol=0.01)
    np.testing.assert_allclose(a.offsets, b.offsets, atol=0.01)


def test_few_entries_change_little_and_none_change_nothing():
    stack = counted(1, [3, 30, 300])
    before = stack.slopes.clone()
    stack.fit([np.zeros(0, np.float32)], np.zeros(0, np.int64), np.zeros(0, bool))
    torch.testing.assert_close(stack.slopes, before)
    stack.fit([np.array([1.0], np.float32)], np.array([0]), np.array([True]))
    assert (stack.slopes - before).abs().max() < 1
    stack.check()


def test_some_labels_are_answered_as_among_all():
    stack = counted(2, [3, 30, 300, 0])
    stack.slopes.copy_(torch.rand(2, N_LEVELS))
    scores, labels = [torch.randn(5, 4) for _ in range(2)], torch.tensor([2, 0])
    torch.testing.assert_close(stack([part[:, labels] for part in scores], labels), stack(scores)[:, labels])
    with pytest.raises(ValueError, match="zip"):
        stack(scores[:1])


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("slopes", -0.1),
        ("slopes", float("nan")),
        ("offsets", float("inf")),
        ("places", float("nan")),
        ("places", -0.1),
    ],
)
def test_damage_is_refused(name, value):
    stack = counted(2, [3, 30])
    stack.check()
    getattr(stack, name)[-1] = value
    with pytest.raises(ValueError, match="weights of members"):
        stack.check()


def test_log_odds_of_probabilities_are_finite():
    p = torch.tensor([0.0, 1e-3, 0.5, 0.9, 1.0], dtype=torch.float64)
    odds = log_odds_of(p)
    assert bool(torch.isfinite(odds).all())
    torch.testing.assert_close(odds[1:4].sigmoid(), p[1:4])
    assert odds[0] < -10
    assert odds[4] > 10
