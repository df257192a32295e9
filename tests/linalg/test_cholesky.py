"""The Cholesky factor: it raises its jitter, and its failure names the matrix."""

import pytest
import torch

from labelfield.linalg.cholesky import FactorisationError, JitterWarning, cholesky


def test_jitter_is_raised_and_said():
    K = torch.ones(3, 3, dtype=torch.float64) - 1e-6 * torch.eye(3, dtype=torch.float64)
    with pytest.warns(JitterWarning, match="K raised|jitter raised"):
        L = cholesky(K, "K", 1e-8)
    assert torch.isfinite(L).all()


@pytest.mark.parametrize(
    ("K", "message"),
    [
        ([[0.0, 1.0], [1.0, 0.0]], r"K_Z of shape \(2, 2\).*smallest eigenvalue is -1"),
        ([[float("nan")] * 2] * 2, "not finite"),
    ],
)
def test_failure_names_the_matrix_its_size_and_its_smallest_eigenvalue(K, message):
    with pytest.raises(FactorisationError, match=message):
        cholesky(torch.tensor(K, dtype=torch.float64), "K_Z", 1e-8)
