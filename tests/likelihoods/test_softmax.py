import torch

from labelfield.likelihoods import OneVsEach, Softmax


def test_expectation_is_unbiased(moments, draws_of):
    """The mean over many calls is that of one large sample."""
    mean, var, target = moments(4, 5)
    generator = torch.Generator().manual_seed(0)
    calls = torch.stack([Softmax(4).expected_log_prob(mean, var, target, generator=generator) for _ in range(3000)])
    for row, y in enumerate(target.tolist()):
        values = draws_of(mean[row], var[row], 200_000).log_softmax(1)[:, y]
        error = (calls[:, row].var() / len(calls) + values.var() / len(values)).sqrt()
        assert abs(calls[:, row].mean() - values.mean()) < 5 * error


def test_gradients_are_those_of_the_draws(moments):
    mean, var, target = moments(3, 4)

    def expected(m, v):
        return Softmax(3).expected_log_prob(m, v, target, generator=torch.Generator().manual_seed(0))

    assert torch.autograd.gradcheck(expected, (mean.requires_grad_(), var.requires_grad_()))


def test_draws_come_from_the_generator(moments):
    mean, var, target = moments(3, 4)

    def twice(seed):
        generator = torch.Generator().manual_seed(seed)
        return [Softmax().expected_log_prob(mean, var, target, generator=generator) for _ in range(2)]

    first, second = twice(0)
    assert not torch.equal(first, second)
    assert all(map(torch.equal, (first, second), twice(0)))
    state = torch.get_rng_state()
    Softmax().expected_log_prob(mean, var, target)
    assert not torch.equal(torch.get_rng_state(), state)


def test_without_variance_it_is_the_log_softmax(moments):
    mean, var, target = moments(10, 5)
    ours = Softmax().expected_log_prob(mean, torch.zeros_like(var), target)
    torch.testing.assert_close(ours, mean.log_softmax(1).gather(1, target[:, None])[:, 0], atol=1e-5, rtol=0)


def test_it_predicts_as_one_vs_each_does(moments):
    mean, var, _ = moments(10, 5)
    ours = Softmax(n_samples_predict=64).predict_proba(mean, var)
    assert torch.equal(ours, OneVsEach(n_samples=64).predict_proba(mean, var))
