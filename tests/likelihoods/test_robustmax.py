import pytest
import torch

from labelfield.likelihoods import RobustMax


def test_expectation_equals_monte_carlo(moments, draws_of):
    mean, var, target = moments(5, 4)
    ours = RobustMax(1e-3).expected_log_prob(mean, var, target)
    largest = torch.log(torch.tensor([1e-3 / 3, 1 - 1e-3], dtype=torch.float64))
    for row, y in enumerate(target.tolist()):
        f = draws_of(mean[row], var[row], 400_000)
        values = largest[(f.argmax(1) == y).long()]
        assert abs(values.mean() - ours[row]) < 5 * values.std() / len(f) ** 0.5 + 1e-3


def test_probabilities_equal_monte_carlo(moments, draws_of):
    mean, var, _ = moments(5, 4)
    epsilon = 0.05
    ours = RobustMax(epsilon).predict_proba(mean, var)
    for row in range(5):
        f = draws_of(mean[row], var[row], 400_000)
        chance = f.argmax(1).bincount(minlength=4) / len(f)
        expected = (1 - epsilon) * chance + epsilon / 3 * (1 - chance)
        error = (chance * (1 - chance) / len(f)).sqrt()
        assert ((expected - ours[row]).abs() < 5 * error + 1e-3).all()


def test_the_chances_to_be_largest_sum_to_one(moments):
    """Σ_k S_k = 1 is not put in by hand here: E log p over all targets is linear in S."""
    mean, var, _ = moments(20, 5)
    likelihood = RobustMax(0.1, n_points=60)
    total = torch.stack([likelihood.expected_log_prob(mean, var, torch.full((20,), k)) for k in range(5)]).sum(0)
    right, wrong = torch.log(torch.tensor([0.9, 0.1 / 4], dtype=torch.float64))
    torch.testing.assert_close(total, (right + 4 * wrong).expand(20), atol=1e-3, rtol=0)


def test_two_classes_are_a_probit_of_the_difference(moments):
    """S_1 = Φ((m_1 - m_0)/√(s_0 + s_1))."""
    mean, var, _ = moments(50, 2)
    chance = torch.special.ndtr((mean[:, 1] - mean[:, 0]) / var.sum(1).sqrt())
    expected = 0.9 * chance + 0.1 * (1 - chance)
    torch.testing.assert_close(RobustMax(0.1, 60).predict_proba(mean, var)[:, 1], expected, atol=1e-4, rtol=0)


@pytest.mark.parametrize("n_classes", [2, 5])
def test_gradients(moments, n_classes):
    """The derivatives are those of the quadrature, so few points do."""
    mean, var, target = moments(4, n_classes)
    likelihood = RobustMax(n_points=7)
    assert torch.autograd.gradcheck(
        lambda m, v: likelihood.expected_log_prob(m, v, target), (mean.requires_grad_(), var.requires_grad_())
    )


def test_one_class_is_refused():
    f = torch.zeros(3, 1)
    for act in (
        lambda: RobustMax().expected_log_prob(f, f + 1, torch.zeros(3).long()),
        lambda: RobustMax().predict_proba(f, f + 1),
    ):
        with pytest.raises(ValueError, match="at least two classes"):
            act()


@pytest.mark.parametrize("epsilon", [0.0, 1.0, -0.1, float("nan")])
def test_epsilon_is_a_probability(epsilon):
    with pytest.raises(ValueError, match="epsilon"):
        RobustMax(epsilon)
