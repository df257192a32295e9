"""The synthetic data are what they claim to be."""

import numpy as np
import pytest
import torch

import labelfield
from labelfield.linalg.rows import to_tensor
from labelfield.synth import make_multilabel, make_rings, make_topics, models, words
from labelfield.topics.density import Drawn, label_probabilities


def test_the_same_seed_gives_the_same_data(monkeypatch):
    monkeypatch.setattr(words, "_ROW_BLOCK", 64)  # several blocks
    a = make_multilabel(500, 300, 40, seed=5)
    monkeypatch.setattr(words, "cpu_count", lambda: 1)
    b = make_multilabel(500, 300, 40, seed=5)
    for part in ("data", "indices", "indptr"):
        np.testing.assert_array_equal(getattr(a.X, part), getattr(b.X, part))
        np.testing.assert_array_equal(getattr(a.Y, part), getattr(b.Y, part))
    assert not np.array_equal(a.X.indices, make_multilabel(500, 300, 40, seed=6).X.indices)


def test_rows_look_like_tf_idf():
    dataset = make_multilabel(2000, 1000, 50, n_nonzeros=30)
    card = labelfield.describe(dataset)
    assert card["unit_rows"]
    assert abs(card["features_per_row"] - 30) < 1
    assert card["rows_without_features"] == 0
    assert (dataset.X.data > 0).all()


def test_label_frequencies_follow_a_power_law():
    dataset = make_multilabel(8000, 500, 100, labels_per_row=2.0, power=1.0)
    frequency = np.sort(np.bincount(dataset.Y.indices, minlength=100))[::-1] / 8000
    assert abs(frequency.sum() - 2.0) < 0.3
    wanted = models._power_law(100, 2.0, 1.0)
    tail = slice(5, 60)  # the head is cut at 0.15, the last ones are counts of a few
    slope = np.polyfit(np.log(np.arange(1, 101)[tail]), np.log(frequency[tail]), 1)[0]
    assert abs(slope - np.polyfit(np.log(np.arange(1, 101)[tail]), np.log(wanted[tail]), 1)[0]) < 0.25


@pytest.mark.parametrize("kernel", ["se", "linear"])
def test_labels_are_bernoulli_draws_of_the_planted_probabilities(kernel):
    dataset, truth = make_multilabel(3000, 400, 60, kernel=kernel, return_truth=True, seed=3)
    P = truth.probabilities(dataset.X).astype(np.float64)
    y = dataset.Y.toarray()
    # Sum of standardised residuals over any fixed set of entries is N(0, 1) if the labels were drawn so.
    for low, high in [(0, 0.01), (0.01, 0.1), (0.1, 0.5), (0.5, 0.9), (0.9, 1.01)]:
        chosen = (low <= P) & (high > P)
        z = (y - P)[chosen].sum() / np.sqrt((P * (1 - P))[chosen].sum())
        assert abs(z) < 4, (low, high, z)
    per_label = (y - P).sum(axis=0) / np.sqrt((P * (1 - P)).sum(axis=0) + 1e-9)
    assert np.abs(per_label).max() < 5


def test_utilities_are_the_factor_model():
    dataset, truth = make_multilabel(100, 200, 30, n_factors=7, return_truth=True)
    h = truth.latent(dataset.X)
    assert h.shape == (100, 7)
    np.testing.assert_allclose(truth.utilities(dataset.X), h @ truth.Phi.T + truth.b, rtol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(truth.Phi, axis=1), 8.0, rtol=1e-5)


def test_latent_functions_have_the_covariance_of_the_kernel():
    """Over many draws of h the covariance of two rows is exp(-|w(x - x')|^2 / 2)."""
    dataset = make_multilabel(6, 40, 10, seed=1)
    relevance = models._relevance(dataset.X)
    rows = dataset.X.toarray() * relevance
    squared = ((rows[:, None] - rows[None]) ** 2).sum(axis=2)
    draws = []
    for seed in range(300):
        truth = models._draw_truth(dataset.X, 10, 2.0, 32, "se", 1.0, 8.0, 1.0, np.random.SeedSequence(seed))
        draws.append(truth.latent(dataset.X))
    h = np.concatenate(draws, axis=1).astype(np.float64)
    covariance = h @ h.T / h.shape[1]
    # Draws share frequencies within a seed, so the error is that of 300 x 256 features, not of all columns.
    np.testing.assert_allclose(covariance, np.exp(-squared / 2), atol=0.06)


def test_the_signal_can_be_learned_and_popularity_cannot_see_it():
    dataset, truth = make_multilabel(return_truth=True)
    test = dataset.split(0.2).test
    best = labelfield.metrics.precision_at_k(test.Y, truth.utilities(test.X), 1)
    popular = labelfield.metrics.precision_at_k(test.Y, labelfield.metrics.popularity(dataset.Y, test.n_rows), 1)
    assert best > 0.7
    assert popular < 0.25


def test_small_sizes_have_fitting_defaults():
    for n, d, k in [(1, 1, 1), (3, 2, 2), (10, 7, 5)]:
        if d >= 2:
            assert make_multilabel(n, d, k).X.shape == (n, d)


@pytest.mark.parametrize(
    "options",
    [
        {"n_rows": 0},
        {"n_features": 0},
        {"n_labels": 0},
        {"n_nonzeros": 1e9},
        {"labels_per_row": 0},
        {"kernel": "cubic"},
    ],
)
def test_refused(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        make_multilabel(**options)


def test_progress_reaches_the_end():
    calls = []
    make_multilabel(300, 100, 20, progress=lambda done, total: calls.append((done, total)))
    assert calls[-1] == (600, 600)


class TestRings:
    def test_classes_are_balanced(self):
        rings = make_rings(503)
        assert rings.X.shape == (503, 2)
        assert rings.label_names == [f"ring {k}" for k in (1, 2, 3, 4, 5)]
        np.testing.assert_array_equal(np.diff(rings.Y.indptr), 1)
        assert sorted(np.bincount(rings.Y.indices)) == [100, 100, 101, 101, 101]

    def test_radii_are_as_stated(self):
        rings = make_rings(20_000, noise=0.1, seed=2)
        radius = np.linalg.norm(rings.X.toarray(), axis=1)
        for k in range(5):
            own = radius[rings.Y.indices == k]
            assert abs(own.mean() - (k + 1)) < 0.01
            assert abs(own.std() - 0.1) < 0.01

    def test_the_best_error_is_as_stated(self):
        rings = make_rings(100_000)
        nearest = np.clip(np.round(np.linalg.norm(rings.X.toarray(), axis=1)), 1, 5) - 1
        assert abs((nearest != rings.Y.indices).mean() - 1.6 * 0.02275) < 0.002

    def test_a_line_tells_nothing(self):
        rings = make_rings(20_000)
        means = [rings.X[rings.Y.indices == k].mean(axis=0) for k in range(5)]
        np.testing.assert_allclose(means, 0, atol=0.25)

    def test_the_seed_and_what_is_refused(self):
        np.testing.assert_array_equal(make_rings(50, seed=1).X.data, make_rings(50, seed=1).X.data)
        assert not np.array_equal(make_rings(50, seed=1).X.data, make_rings(50, seed=2).X.data)
        for options in ({"n_rows": 4}, {"n_rings": 0}, {"noise": -1.0}, {"noise": float("nan")}):
            with pytest.raises(ValueError, match=next(iter(options))):
                make_rings(**options)


class TestTopics:
    def test_the_same_seed_gives_the_same_data(self, monkeypatch):
        monkeypatch.setattr(words, "_ROW_BLOCK", 64)  # several blocks
        a, truth = make_topics(500, 300, 40, 5, seed=5, return_truth=True)
        assert a.X.shape == (500, 300)
        assert a.Y.shape == (500, 40)
        assert (truth.V.shape, truth.W.shape, truth.r.shape) == ((40, 5), (301, 5), (5,))
        monkeypatch.setattr(words, "cpu_count", lambda: 1)
        b = make_topics(500, 300, 40, 5, seed=5)
        for part in ("data", "indices", "indptr"):
            np.testing.assert_array_equal(getattr(a.X, part), getattr(b.X, part))
            np.testing.assert_array_equal(getattr(a.Y, part), getattr(b.Y, part))
        assert not np.array_equal(a.Y.indices, make_topics(500, 300, 40, 5, seed=6).Y.indices)

    def test_labels_hold_as_often_as_the_closed_form_says(self):
        """With u integrated out. Labels of a row depend on each other through u, those of different rows do not."""
        dataset, truth = make_topics(6000, return_truth=True, seed=3)
        P, y = truth.probabilities(dataset.X), dataset.Y.toarray()
        per_label = (y - P).sum(axis=0) / np.sqrt((P * (1 - P)).sum(axis=0))
        assert np.abs(per_label).max() < 4.5  # 100 labels
        for low, high in [(0, 0.01), (0.01, 0.1), (0.1, 0.5), (0.5, 0.9), (0.9, 1)]:
            per_row = np.where((low <= P) & (high > P), y - P, 0).sum(axis=1)
            assert abs(per_row.sum()) < 4 * np.linalg.norm(per_row), (low, high)

    def test_the_truth_is_the_model_of_labelfield_topics(self):
        dataset, truth = make_topics(50, 40, 12, 3, return_truth=True)
        V, W, r = (torch.from_numpy(part).unsqueeze(0) for part in (truth.V, truth.W, truth.r))
        drawn = Drawn(V, torch.zeros_like(r), W, r)
        placed, _ = label_probabilities(to_tensor(dataset.X.astype(np.float64)), drawn)
        np.testing.assert_allclose(truth.probabilities(dataset.X), placed, rtol=1e-5)  # rows are float32

    def test_topics_are_separate_and_rows_have_one_or_a_few(self):
        dataset, truth = make_topics(return_truth=True)
        np.testing.assert_allclose(truth.V.sum(axis=0), 1)
        unit = truth.V / np.linalg.norm(truth.V, axis=0)
        assert (unit.T @ unit - np.eye(8)).max() < 0.1
        assert (truth.V.max(axis=1) > 0.8 * truth.V.sum(axis=1)).all()
        expected = truth.r * np.exp(truth.log_odds(dataset.X))
        np.testing.assert_allclose(expected.mean(axis=0), 4 / 8, rtol=0.15)  # of all rows, as of the pilot's
        n_topics = (expected > 0.1 * expected.sum(axis=1, keepdims=True)).sum(axis=1)
        assert n_topics.max() <= 5
        assert n_topics.mean() < 2.5

    def test_small_sizes_and_many_labels(self):
        for sizes in [(1, 2, 1, 1), (3, 4, 5, 5), (40, 10, 6, 1)]:
            assert make_topics(*sizes).Y.shape == (sizes[0], sizes[2])
        assert make_topics(2000, 100, 100_000, 3).Y.nnz < 10_000  # 200 million entries that nobody makes

    @pytest.mark.parametrize("options", [{"n_rows": 0}, {"n_topics": 0}, {"n_topics": 101}, {"overlap": 1.0}])
    def test_refused(self, options):
        with pytest.raises(ValueError, match=next(iter(options))):
            make_topics(**options)

    def test_progress_reaches_the_end(self):
        calls = []
        make_topics(300, 100, 20, 3, progress=lambda done, total: calls.append((done, total)))
        assert calls[-1] == (600, 600)


@pytest.mark.slow
def test_a_million_rows():
    """1,000,000 x 200,000 x 13,000 with 70 non-zeros a row: minutes, and far below 8 GB."""
    import resource

    dataset = make_multilabel(1_000_000, 200_000, 13_000, n_nonzeros=70)
    assert dataset.X.shape == (1_000_000, 200_000)
    assert abs(dataset.X.nnz / 1_000_000 - 70) < 1
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < 8e6
