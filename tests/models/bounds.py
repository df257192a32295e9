"""Helpers for tests of evidence lower bounds."""

import torch


def as_csr(dense):
    """Return indicators (B, K) as a sparse CSR tensor of ones."""
    rows, columns = dense.nonzero(as_tuple=True)
    pointers = torch.cat([torch.zeros(1, dtype=torch.long), dense.bool().sum(1).cumsum(0)]).int()
    size = tuple(dense.shape)
    return torch.sparse_csr_tensor(pointers, columns.int(), torch.ones(len(rows)), size=size, check_invariants=False)


def value_and_gradient(model, elbo):
    """Return the bound and its gradient with respect to all parameters as one vector."""
    model.zero_grad()
    bound = elbo.bound()
    bound.backward()
    gradients = [torch.zeros_like(p) if p.grad is None else p.grad.to_dense() for p in model.parameters()]
    return torch.cat([bound.detach()[None], *(gradient.flatten() for gradient in gradients)])


def assert_unbiased(draws, exact):
    """Check that the mean of the draws is exact, within five standard errors, and that draws differ."""
    draws = torch.stack(draws)
    error = draws.std(0) / len(draws) ** 0.5
    # 1e-9 for rounding, where a number does not vary.
    assert ((draws.mean(0) - exact).abs() <= 5 * error + 1e-9).all()
    assert (draws.std(0) > 1e-6).any()
