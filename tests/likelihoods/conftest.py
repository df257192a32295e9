import pytest
import torch

from labelfield.likelihoods import OneVsEach, RobustMax, Softmax


@pytest.fixture
def moments():
    """A function from sizes to means, variances and targets of rows, the same for the same seed."""

    def make(n_rows, n_classes, dtype=torch.float64, seed=0):
        generator = torch.Generator().manual_seed(seed)
        mean = 1.5 * torch.randn(n_rows, n_classes, dtype=torch.float64, generator=generator)
        var = 0.3 + torch.rand(n_rows, n_classes, dtype=torch.float64, generator=generator)
        target = torch.randint(n_classes, (n_rows,), generator=generator)
        return mean.to(dtype), var.to(dtype), target

    return make


@pytest.fixture
def draws_of():
    """A function from moments (K,) and a number T to draws of f (T, K)."""

    def draw(mean, var, n_draws, seed=1):
        generator = torch.Generator().manual_seed(seed)
        return mean + var.sqrt() * torch.randn(n_draws, mean.numel(), dtype=mean.dtype, generator=generator)

    return draw


@pytest.fixture(params=[OneVsEach(), RobustMax(), Softmax()], ids=lambda likelihood: type(likelihood).__name__)
def any_likelihood(request):
    return request.param
