"""The draws have the laws that they claim: moments, masses, transforms in closed form, within five standard errors."""

import numpy as np
import pytest
from polyagamma import random_polyagamma
from scipy.special import digamma, gamma, gammaln, polygamma
from scipy.stats import chi2, ks_2samp

from labelfield.topics import draws
from labelfield.topics.draws import polya_gamma, split_counts, table_counts, zero_truncated_poisson


def assert_moments(x, mean, variance=None):
    """Draws along the last axis have this mean and variance, within five standard errors of each."""
    spread = x.std(axis=-1) if variance is None else np.sqrt(variance)
    tolerance = 5 * spread / np.sqrt(x.shape[-1]) + 1e-12 * np.abs(mean) + 1e-15
    error = np.abs(x.mean(axis=-1) - mean)
    assert (error <= tolerance).all(), error / tolerance
    if variance is not None:
        assert_moments((x - np.expand_dims(mean, -1)) ** 2, variance)


def columns(*values):
    """Each parameter as a column, to be broadcast against draws."""
    return [np.asarray(value)[..., None] for value in values]


class Fixed:
    """A generator whose uniform draws are all the same, and which shows the rate of a Poisson draw."""

    def __init__(self, u):
        self.u = u

    def random(self, shape):
        return np.full(shape, self.u)

    def poisson(self, rate):
        self.rate = rate
        return np.zeros(rate.shape, int)

    def multinomial(self, counts, p):
        assert len(counts) == 0
        return np.zeros(p.shape, int)


# Zero-truncated Poisson.


@pytest.mark.parametrize("rate", [1e-3, 0.1, 1.0, 7.0, 50.0, 1e6])
def test_truncated_poisson_moments(rate):
    m = zero_truncated_poisson(np.full(400_000, rate), np.random.default_rng(1))
    mean = rate / -np.expm1(-rate)
    assert m.dtype == np.int64
    assert m.min() >= 1
    assert_moments(m, mean, mean * (1 + rate - mean))


@pytest.mark.parametrize("rate", [0.05, 0.9, 4.0, 12.0])
def test_truncated_poisson_masses(rate):
    n = 300_000
    m = zero_truncated_poisson(np.full(n, rate), np.random.default_rng(2))
    values = np.arange(1, 60)
    expected = n * np.exp(values * np.log(rate) - gammaln(values + 1)) / np.expm1(rate)
    values, expected = values[expected > 10], expected[expected > 10]
    observed = np.array([(m == value).sum() for value in values])
    others = n - expected.sum()
    statistic = ((observed - expected) ** 2 / expected).sum() + (n - observed.sum() - others) ** 2 / others
    assert 1e-5 < chi2.sf(statistic, len(values)) < 1 - 1e-5


def test_truncated_poisson_at_tiny_rates():
    """P(m = 2) = rate / 2 to first order: what is left after the first arrival is exact where 1 - e^-rate is not."""
    assert (zero_truncated_poisson(np.full((10_000, 3), [1e-12, 1e-300, 0.0]), np.random.default_rng(3)) == 1).all()
    zero_truncated_poisson(1e-12, median := Fixed(0.5))
    np.testing.assert_allclose(median.rate, 0.5e-12, rtol=1e-11)


def test_truncated_poisson_when_the_first_arrival_is_last():
    zero_truncated_poisson(np.logspace(-12, 1, 2000), late := Fixed(1 - 2**-53))
    assert late.rate.min() == 0  # not below


# Multinomial split.


@pytest.mark.parametrize("count", [1, 2, 9, 1000])
def test_split_moments(count):
    n, weights = 60_000, np.array([0.5, 0.0, 3.0, 1e-3, 1.5])
    m = split_counts(np.full(n, count), np.tile(weights, (n, 1)), np.random.default_rng(4))
    p = weights / weights.sum()
    covariance = count * (np.diag(p) - np.outer(p, p))
    assert_moments(m.T.astype(float), count * p)
    centred = m - count * p
    for j in range(5):
        assert_moments(centred.T * centred[:, j], covariance[j])


def test_split_adds_up_and_gives_nothing_to_zero_weights(monkeypatch):
    monkeypatch.setattr(draws, "_CHUNK", 1 << 10)  # many chunks
    rng = np.random.default_rng(5)
    counts = rng.choice([0, 1, 1, 1, 2, 5, 10**12], 3000)
    weights = rng.gamma(0.01, size=(3000, 17)) * rng.choice([0, 1e-310, 1.0, 1e300], (3000, 17))
    weights[:, 3] += 1e-320
    split = split_counts(counts, weights, rng)
    assert split.dtype == np.int64
    np.testing.assert_array_equal(split.sum(axis=1), counts)
    assert split.min() == 0
    assert not split[weights == 0].any()


def test_split_with_weights_of_its_own_for_each_row():
    """A row of weights that is 0 but for one entry has no choice, whatever its neighbours have, in any dtype."""
    counts, topic = np.arange(600) % 4, np.arange(600) % 7
    weights = np.zeros((600, 7), np.float32)
    weights[np.arange(600), topic] = np.linspace(1e-30, 1e30, 600)
    split = split_counts(counts, weights, np.random.default_rng(6))
    np.testing.assert_array_equal(split, counts[:, None] * (np.arange(7) == topic[:, None]))


def test_split_where_probabilities_are_rounded():
    """A thousand thirds of a third add up to a little more or less than 1: NumPy may refuse or misplace such."""
    weights = np.full((50, 1001), 1 / 3)
    weights[:, -1] = 0
    weights[:, 0] = 1e-17
    split = split_counts(np.full(50, 10**9), weights, np.random.default_rng(7))
    assert (split.sum(axis=1) == 10**9).all()
    assert not split[:, -1].any()


@pytest.mark.parametrize(("u", "topic"), [(0.0, 1), (1 - 2**-53, 3)])
def test_split_at_the_ends_of_the_uniform_draw(u, topic):
    split = split_counts([1], [[0.0, 1e-300, 1e-9, 0.7, 0.0]], Fixed(u))
    np.testing.assert_array_equal(split[0], np.arange(5) == topic)


@pytest.mark.parametrize("size", [1e-323, 1e308])
@pytest.mark.parametrize("count", [1, 3])
def test_split_by_weights_whose_sum_is_no_number(size, count):
    split = split_counts(np.full(4000, count), np.full((4000, 4), size), np.random.default_rng(8))
    assert_moments(split.T, count / 4, count * 3 / 16)


# Chinese restaurant tables.


def test_table_moments():
    m, r = np.meshgrid([1, 2, 5, 40], [0.01, 0.7, 3.0, 100.0])
    tables = table_counts(*(np.broadcast_to(a, (4, 4, 20_000)) for a in columns(m, r)), np.random.default_rng(8))
    mean = r * (digamma(r + m) - digamma(r))
    variance = mean + r**2 * (polygamma(1, r + m) - polygamma(1, r))
    assert tables.dtype == np.int64
    assert ((tables >= 1) & (tables <= m[..., None])).all()
    assert_moments(tables, mean, np.maximum(variance, 0))


def test_table_masses():
    """P(l | m = 4) = |s(4, l)| r^l / (r (r + 1) (r + 2) (r + 3)) with Stirling numbers of the first kind."""
    r, n = 1.3, 200_000
    tables = table_counts(np.full(n, 4), r, np.random.default_rng(9))
    p = np.array([6, 11, 6, 1]) * r ** np.arange(1, 5)
    expected = n * p / p.sum()
    observed = np.bincount(tables, minlength=5)[1:]
    assert chi2.sf(((observed - expected) ** 2 / expected).sum(), 3) > 1e-5


def test_tables_broadcast_and_a_large_restaurant_is_cut(monkeypatch):
    monkeypatch.setattr(draws, "_CHUNK", 1000)
    rng = np.random.default_rng(10)
    m = np.array([[0, 1, 30_000], [7, 0, 2]])
    r = np.array([[1e-9], [1e9]])
    tables = table_counts(m, r, rng)
    np.testing.assert_array_equal(tables, [[0, 1, 1], [7, 0, 2]])  # one table, or a table for everybody
    tables = table_counts(np.full(200, 3000), 20.0, rng)
    assert_moments(tables, 20 * (digamma(3020) - digamma(20)))


# Pólya-Gamma.

H, Z = (a.ravel() for a in np.meshgrid([0.02, 0.4, 1.0, 2.7, 6.5], [0.0, -1e-3, 1.5, -6.0, 30.0, 2000.0]))


def moments(h, z):
    """Mean and variance of PG(h, z), by their limits where z is 0."""
    y = np.where(z == 0, 1, np.abs(z) / 2)
    mean, variance = np.tanh(y) / (4 * y), (np.tanh(y) / y - 1 + np.tanh(y) ** 2) / (16 * y**2)
    small = np.abs(z) < 1e-2
    return h * np.where(small, 1 / 4 - z**2 / 48, mean), h * np.where(small, 1 / 24 - z**2 / 120, variance)


def test_polya_gamma_moments():
    h, z = columns(H, Z)
    w = polya_gamma(np.broadcast_to(h, (len(H), 50_000)), z, np.random.default_rng(11))
    assert w.dtype == np.float64
    assert w.min() > 0
    assert_moments(w, *moments(H, Z))


def log_laplace(s, h, z):
    """log E e^(-s ω) = h log cosh(z/2) - h log cosh √(z²/4 + s/2)."""
    log_cosh = lambda y: y + np.log1p(np.exp(-2 * y)) - np.log(2)  # noqa: E731
    return h * (log_cosh(np.abs(z) / 2) - log_cosh(np.sqrt(z**2 / 4 + s / 2)))


@pytest.mark.parametrize("scale", [0.3, 3.0, 30.0, 300.0])
def test_polya_gamma_transform(scale):
    """The larger s is, the smaller are the ω that count."""
    h, z = columns(H, Z)
    s = scale / moments(h, z)[0]
    expected = np.exp(log_laplace(s, h, z))[:, 0]
    likely = expected > 1e-3
    shape = (likely.sum(), 20_000)
    w = polya_gamma(np.broadcast_to(h[likely], shape), z[likely], np.random.default_rng(12))
    assert_moments(np.exp(-s[likely] * w), expected[likely])


def a_0(x, h):
    return 2**h * h / np.sqrt(2 * np.pi * x**3) * np.exp(-(h**2) / (2 * x))


def test_the_alternating_sum_is_a_density_with_the_transform_of_its_law():
    """No chance here: ∫ e^(-s x) f(x) dx = cosh(√(2s))^-h for J*(h, 0)."""
    h, s = np.array([0.1, 0.5, 0.9, 1.0])[:, None, None], np.array([0.0, 0.3, 4.0])[:, None]
    log_x, step = np.linspace(np.log(1e-8), np.log(30), 6001, retstep=True)
    x = np.exp(log_x)
    f = np.array([a_0(x, h[i, 0, 0]) * draws._alternating(x, np.full(len(x), h[i, 0, 0]), 25) for i in range(4)])
    integral = (np.exp(-s * x) * f[:, None] * x).sum(axis=-1) * step
    np.testing.assert_allclose(integral, (np.cosh(np.sqrt(2 * s)) ** -h)[..., 0], rtol=1e-4)


def test_proposals_are_above_the_density():
    x = np.concatenate([np.linspace(1e-3, draws._CUT, 300), np.linspace(draws._CUT, 12, 300)])
    for h in np.linspace(0.001, 1, 60):
        ratio = draws._alternating(x, np.full(len(x), h), 25)
        assert (ratio[:300] <= 1).all()
        np.testing.assert_allclose(draws._alternating(x[:300], np.full(300, h), 6), ratio[:300], atol=1e-12)
        beyond = x[300:]
        bound = (np.pi / 2) ** h * draws._CUT ** (h - 1) / gamma(h) * np.exp(-(np.pi**2) / 8 * beyond)
        assert (a_0(beyond, h) * ratio[300:] <= draws._EXCESS * bound).all()


@pytest.mark.parametrize(("h", "z"), [(1, 0.0), (2, 2.0), (5, -1.0), (3, 20.0)])
def test_polya_gamma_has_the_law_of_devroyes_method(h, z):
    """The exact method of another library, which needs whole numbers h."""
    rng = np.random.default_rng(13)
    theirs = random_polyagamma(float(h), z, size=100_000, method="devroye", random_state=rng)
    assert ks_2samp(polya_gamma(np.full(100_000, h), z, rng), theirs, method="asymp").pvalue > 1e-4


def test_polya_gamma_adds_up_in_h():
    """PG(a, z) + PG(b, z) = PG(a + b, z): Devroye's method is the reference for whole h, which real h are between."""
    rng = np.random.default_rng(14)
    ours = sum(polya_gamma(np.full(100_000, h), 0.8, rng) for h in (0.05, 0.25, 0.7))
    theirs = random_polyagamma(1.0, 0.8, size=100_000, method="devroye", random_state=rng)
    assert ks_2samp(ours, theirs, method="asymp").pvalue > 1e-4


def test_polya_gamma_at_the_ends():
    rng = np.random.default_rng(15)
    h = np.array([[0.0], [1e-300], [1e-12], [1e5]])
    w = polya_gamma(h, [0.0, 1e-200, 3.0, -700.0, 1e6], rng)
    assert w.shape == (4, 5)
    assert (w[0] == 0).all()
    assert np.isfinite(w).all()
    assert (w >= 0).all()
    np.testing.assert_allclose(w[3], moments(1e5, np.array([0.0, 0.0, 3.0, -700.0, 1e6]))[0], rtol=0.02)


# All of them.

CALLS = {
    "poisson": lambda rng, n=500: zero_truncated_poisson(np.linspace(0.1, 5, n), rng),
    "split": lambda rng, n=500: split_counts(np.arange(n) % 5, np.ones((n, 3)), rng),
    "tables": lambda rng, n=500: table_counts(np.arange(n) % 9, np.full(n, 0.5), rng),
    "polya": lambda rng, n=500: polya_gamma(np.linspace(0.1, 5, n), 1.0, rng),
}


@pytest.mark.parametrize("name", CALLS)
def test_the_generator_decides(name):
    first, second, other = (CALLS[name](np.random.default_rng(seed)) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, second)
    assert not np.array_equal(first, other)


@pytest.mark.parametrize("name", CALLS)
def test_nothing_gives_nothing(name):
    empty = CALLS[name](np.random.default_rng(0), 0)
    assert empty.shape == ((0, 3) if name == "split" else (0,))
    assert empty.dtype == (np.float64 if name == "polya" else np.int64)


@pytest.mark.parametrize(
    ("draw", "arguments", "message"),
    [
        (zero_truncated_poisson, ([0.5, -1e-9],), "rate has negative"),
        (zero_truncated_poisson, (np.nan,), "rate has negative, infinite or undefined"),
        (
            split_counts,
            ([1, 0, 2], [[1.0, 0.0], [0.0, 0.0], [0.0, 0.0]]),
            "row 2 has a count of 2 to split, but no weight",
        ),
        (split_counts, ([1], [[1.0, -1.0]]), "weights has negative"),
        (split_counts, ([2], [[1.0, np.inf]]), "infinite"),
        (split_counts, ([-1], [[1.0]]), "integers of at least 0"),
        (split_counts, ([1.0], [[1.0]]), "dtype float64"),
        (split_counts, ([1, 1], [[1.0]]), r"counts of shape \(2,\), weights \(1, 1\)"),
        (split_counts, ([0], np.ones((1, 0))), "K ≥ 1"),
        (table_counts, ([3], 0.0), "expected numbers above 0"),
        (table_counts, ([3], -1.0), "concentration has negative"),
        (table_counts, ([-3], 1.0), "integers of at least 0"),
        (polya_gamma, (-0.1, 0.0), "h has negative"),
        (polya_gamma, (1.0, np.inf), "z has infinite"),
    ],
)
def test_bad_input_is_refused_in_words(draw, arguments, message):
    with pytest.raises(ValueError, match=message):
        draw(*arguments, np.random.default_rng(0))
