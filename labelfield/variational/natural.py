"""Natural gradient steps on the covariances of a whitened full family (Hensman et al. 2013; Salimbeni et al. 2018)."""

from typing import Any

import torch
from torch import Tensor, nn

from labelfield.linalg.autograd import apply
from labelfield.linalg.triangular import split

# Steps of the training between two natural steps, and the least share of the way that one goes.
_EVERY, _LEAST_SHARE = 10, 0.1


class NaturalSteps(nn.Module):
    """Moves factors L_p, S_p = L_p L_pᵀ, towards the optimum of the bound at every tenth step of a training.

    With g_ip = -∂ E log p(y_i | f_i) / ∂ var_ip the bound is stationary in S_p where S_p⁻¹ = I + 2 Σ_i g_ip a_i a_iᵀ. A
    natural step goes a share of the way there in terms of S_p⁻¹, as estimated from the rows of a batch. The first one
    goes all the way, the second half, and so on down to a tenth: a running mean over batches. Where log p is concave,
    g ≥ 0 and every S_p is a covariance; g below 0 counts as 0.

    Adam needs three products with each L_p per step, and many steps for its M² / 2 numbers; here a step needs one.
    `scale` turns gradients of the loss into those of the bound of all rows with its divergence counted once.
    """

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("n_seen", torch.zeros((), dtype=torch.int64))
        self.scale = 1.0
        self._covariance: tuple[tuple[int, int], Tensor] | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the covariances, which are computed again when needed."""
        return self.__dict__ | {"_covariance": None}

    def square_norms(self, factor: Tensor, A: Tensor) -> Tensor:
        """Return ‖L_pᵀ a_i‖² = a_iᵀ S_p a_i (P, B) for A (M, B). Its gradient goes to A, and counts as a step."""
        key = factor.data_ptr(), factor._version
        if self._covariance is None or self._covariance[0] != key:
            lower = factor.detach().tril()
            self._covariance = key, lower @ lower.mT
        return apply(_QuadraticForms, A, self._covariance[1], lambda g: self._count(factor, A.detach(), g))

    @torch.no_grad()
    def _count(self, factor: Tensor, A: Tensor, g: Tensor) -> None:
        n_seen = int(self.n_seen)
        self.n_seen += 1
        if n_seen % _EVERY == 0 and bool(torch.isfinite(g).all()):
            share = max(1 / (1 + n_seen // _EVERY), _LEAST_SHARE)
            self.step(factor, A, g, share)

    @torch.no_grad()
    def step(self, factor: Tensor, A: Tensor, g: Tensor, share: float) -> None:
        """Go this share of the way to the optimum for rows A (M, B) with gradients g (P, B) of the loss."""
        weight = (2 * self.scale * g).clamp_min(0)
        eye = torch.eye(A.shape[0], dtype=torch.float64, device=A.device)
        for some, own in zip(split(factor), split(weight.unsqueeze(1), factor), strict=True):
            target = ((A * own) @ A.mT).double() + eye
            root = torch.linalg.solve_triangular(some.double().tril(), eye, upper=False)  # L⁻¹; S⁻¹ = L⁻ᵀ L⁻¹
            precision = torch.lerp(root.mT @ root, target, share)
            # S⁻¹ = R Rᵀ with R upper triangular, by a factorisation from the last row on; then L = R⁻ᵀ is lower.
            upper = torch.linalg.cholesky(precision.flip(-2, -1)).flip(-2, -1)
            some.copy_(torch.linalg.solve_triangular(upper.mT, eye, upper=False))


class _QuadraticForms(torch.autograd.Function):
    """a_iᵀ S_p a_i (P, B) with the gradient 2 Σ_p g_ip S_p a_i; `seen` is told g (P, B)."""

    @staticmethod
    def forward(ctx: Any, A: Tensor, S: Tensor, seen: Any) -> Tensor:
        products = (S.flatten(0, 1) @ A).view(*S.shape[:2], A.shape[1])
        ctx.seen = seen
        ctx.save_for_backward(products)
        return (products * A).sum(1)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        (products,) = ctx.saved_tensors
        ctx.seen(gradients[0])
        return (products * (2 * gradients[0]).unsqueeze(1)).sum(0), None, None
