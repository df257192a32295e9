"""Kernels of the distance of two numbers are the kernels of points on a line, and positive definite on every grid."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from labelfield.kernels import matern, squared_exponential
from labelfield.kernels.names import LAG_KERNELS, lag_kernel_from_name
from labelfield.models.multiclass.model import select_processes

LAGS = torch.linspace(0, 2, 9, dtype=torch.float64)


def random_kernel(name, n_processes, seed=0):
    torch.manual_seed(seed)
    kernel = lag_kernel_from_name(name, n_processes)
    with torch.no_grad():
        for parameter in kernel.parameters():
            parameter.add_(torch.randn_like(parameter))
    return kernel


@pytest.mark.parametrize("n_processes", [None, 2])
@pytest.mark.parametrize("name", LAG_KERNELS)
def test_the_kernel_of_points_on_a_line(name, n_processes):
    kernel = random_kernel(name, n_processes)
    K = kernel.gram(LAGS.unsqueeze(1)).view(-1, 9, 9)
    torch.testing.assert_close(kernel.of_lag(LAGS), K[:, 0])


@given(
    st.sampled_from(LAG_KERNELS),
    st.none() | st.integers(1, 3),
    st.integers(1, 30),
    st.floats(0.01, 1),
    st.integers(0, 9999),
)
def test_positive_definite_on_every_grid(name, n_processes, n, step, seed):
    kernel = random_kernel(name, n_processes, seed)
    column = kernel.of_lag(step * torch.arange(n, dtype=torch.float64))
    assert column.dtype == torch.float64
    assert column.shape == (n_processes or 1, n)
    torch.testing.assert_close(column[:, 0], torch.ones(n_processes or 1, dtype=torch.float64))
    places = (torch.arange(n)[:, None] - torch.arange(n)).abs()
    assert torch.linalg.eigvalsh(column[:, places]).min() > -1e-9


@pytest.mark.parametrize("name", LAG_KERNELS)
def test_gradients(name):
    kernel = random_kernel(name, 2).double()
    names, values = zip(*kernel.named_parameters(), strict=True)

    def of_lag(*values):
        return torch.func.functional_call(Lags(kernel), dict(zip([f"kernel.{n}" for n in names], values, strict=True)))

    assert torch.autograd.gradcheck(of_lag, [value.detach().requires_grad_() for value in values])


class Lags(torch.nn.Module):
    def __init__(self, kernel):
        super().__init__()
        self.kernel = kernel

    def forward(self):
        return self.kernel.of_lag(LAGS)


@pytest.mark.parametrize("name", LAG_KERNELS)
def test_the_kernels_of_some_processes_are_rows_of_all(name):
    kernel, chosen = random_kernel(name, 4), torch.tensor([3, 1])
    torch.testing.assert_close(select_processes(kernel, chosen).of_lag(LAGS), kernel.of_lag(LAGS)[chosen])


@pytest.mark.parametrize("name", LAG_KERNELS)
def test_a_kernel_without_memory_can_be_filled(name):
    kernel = random_kernel(name, 2)
    with torch.device("meta"):
        empty = lag_kernel_from_name(name, 2)
    empty.load_state_dict(kernel.state_dict(), assign=True)
    assert torch.equal(empty.of_lag(LAGS), kernel.of_lag(LAGS))


def test_errors():
    with pytest.raises(ValueError, match="'cubic'; expected se, matern12"):
        lag_kernel_from_name("cubic", None)
    for kernel in (squared_exponential(n_features=2), matern(0.5, n_features=2)):
        with pytest.raises(ValueError, match="takes a single length"):
            kernel.of_lag(LAGS)
