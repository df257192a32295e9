"""The latent processes given known labels of a row [TH 4.37]."""

import torch
from torch import Tensor

from labelfield.likelihoods import MultiLabel
from labelfield.linalg.gaussian import LEAST_VARIANCE
from labelfield.linalg.rows import Rows, entry_places, entry_rows
from labelfield.models.mlgpf.model import MLGPF
from labelfield.models.mlgpf.topk import BLOCK_ENTRIES, label_slices
from labelfield.variational.families import Moments

_HALVINGS = 8
# Newton's method ends when no row gains more than this share of its log-density.
_SETTLED = 1e-6


def condition(model: MLGPF, h: Moments, X: Rows, observed: Tensor, n_steps: int = 50) -> Moments:
    """Return q(h) conditioned on the known labels of these rows [TH 4.37].

    `observed` (B, K) is sparse CSR, with +1 where a label is known to hold and -1 where it is known not to. The mode of
    q(h) p(y_o | h) is found by Newton's method; the variances are the marginal ones of the Gaussian with the curvature
    at the mode (Laplace's approximation).
    """
    pointers, columns = observed.crow_indices().long(), observed.col_indices().long()
    means = means_at(model, h, X, entry_rows(pointers), columns)
    widest = int(pointers.diff().max()) if len(pointers) > 1 else 0
    step = max(1, BLOCK_ENTRIES // max(widest * h.mean.shape[1], 1))
    parts = []
    for start in range(0, h.mean.shape[0], step):
        part = slice(start, start + step)
        inside = slice(int(pointers[start]), int(pointers[min(start + step, h.mean.shape[0])]))
        known = model.Phi[columns[inside]], means[inside], observed.values()[inside].sign()
        own = Moments(h.mean[part], h.var[part])
        rows = entry_rows(pointers[start : start + step + 1])
        parts.append(_condition_rows(model.likelihood, own, rows, *known, n_steps))
    if not parts:
        return h
    return Moments(*(torch.cat(moments) for moments in zip(*parts, strict=True)))


def _condition_rows(
    likelihood: MultiLabel, h: Moments, rows: Tensor, Phi: Tensor, means: Tensor, signs: Tensor, n_steps: int
) -> Moments:
    """Run `condition` for few rows, given the rows of known labels, their loadings, means under q(h), and signs."""
    precision = 1 / h.var
    offsets = means - (h.mean[rows] * Phi).sum(1)  # the bias, and the labels' linear processes

    def utility(estimate: Tensor) -> Tensor:
        return (estimate[rows] * Phi).sum(1) + offsets

    def log_density(estimate: Tensor) -> Tensor:
        """Return log q(h) p(y_o | h) of each row, up to a constant; it is concave in h."""
        prior = -0.5 * (precision * (estimate - h.mean).square()).sum(1)
        return prior.index_add(0, rows, likelihood.at_margin(signs * utility(estimate))[0])

    estimate = h.mean.clone()
    best = log_density(estimate)
    for _ in range(n_steps):
        _, slope, curvature = likelihood.at_margin(signs * utility(estimate))
        gradient = -precision * (estimate - h.mean)
        gradient = gradient.index_add(0, rows, (signs * slope).unsqueeze(1) * Phi)
        direction = _solve_rows(precision, rows, curvature, Phi, gradient)
        # A full step may overshoot the mode; each row takes the first halving that does not lower its density.
        share = torch.ones_like(best)
        for _ in range(_HALVINGS):
            trial = estimate + share.unsqueeze(1) * direction
            loses = log_density(trial) < best
            if not loses.any():
                break
            share = torch.where(loses, share / 2, share)
        trial = estimate + share.unsqueeze(1) * direction
        value = log_density(trial)
        gains = value > best
        estimate = torch.where(gains.unsqueeze(1), trial, estimate)
        is_settled = not (value - best > _SETTLED * (1 + best.abs())).any()
        best = torch.where(gains, value, best)
        if is_settled:
            break
    curvature = likelihood.at_margin(signs * utility(estimate))[2]
    return Moments(estimate, _marginal_variances(h.var, rows, curvature, Phi))


def _marginal_variances(var: Tensor, rows: Tensor, curvature: Tensor, Phi: Tensor) -> Tensor:
    """Return the diagonal of (diag(1 / v_i) + Σ_o c_o φ_o φ_oᵀ)⁻¹ for each row i, by Woodbury's identity.

    With U = √c Φ_o and D = diag(v) it is that of D - D Uᵀ (I + U D Uᵀ)⁻¹ U D, factorised for several rows at once.
    """
    place, width = entry_places(rows, var.shape[0])
    if width == 0:
        return var
    result = var.clone()
    step = max(1, BLOCK_ENTRIES // (width * max(var.shape[1], width)))
    for start in range(0, var.shape[0], step):
        inside = (rows >= start) & (rows < start + step)
        D = var[start : start + step].double()
        U = torch.zeros(D.shape[0], width, D.shape[1], dtype=torch.float64, device=var.device)
        U[rows[inside] - start, place[inside]] = (curvature[inside].sqrt().unsqueeze(1) * Phi[inside]).double()
        UD = U * D.unsqueeze(1)
        inner = torch.eye(width, dtype=torch.float64, device=var.device) + UD @ U.mT
        V = torch.linalg.solve_triangular(torch.linalg.cholesky(inner), UD, upper=False)
        result[start : start + step] = (D - V.square().sum(1)).to(var.dtype)
    return result.clamp_min(LEAST_VARIANCE)


def _solve_rows(precision: Tensor, rows: Tensor, curvature: Tensor, Phi: Tensor, gradient: Tensor) -> Tensor:
    """Return (diag(precision_i) + Σ_o c_o φ_o φ_oᵀ)⁻¹ gradient_i for each row i, by conjugate gradients.

    They end after one step more than a row has known labels: the matrix is a diagonal plus a matrix of that rank.
    """
    x = torch.zeros_like(gradient)
    residual = gradient
    scaled = residual / precision
    direction = scaled
    size = (residual * scaled).sum(1, keepdim=True)
    n_known = int(torch.bincount(rows).max()) if rows.numel() else 0
    for _ in range(min(gradient.shape[1], n_known) + 1):
        along = (direction[rows] * Phi).sum(1)
        product = (precision * direction).index_add(0, rows, (curvature * along).unsqueeze(1) * Phi)
        step = size / (direction * product).sum(1, keepdim=True).clamp_min(1e-30)
        x = x + step * direction
        residual = residual - step * product
        scaled = residual / precision
        smaller = (residual * scaled).sum(1, keepdim=True)
        direction = scaled + smaller / size.clamp_min(1e-30) * direction
        size = smaller
    return x


def means_at(model: MLGPF, h: Moments, X: Rows, rows: Tensor, columns: Tensor) -> Tensor:
    """Return the mean utilities at these rows and columns."""
    result = h.mean.new_empty(rows.numel())
    for labels in label_slices(model, h):
        inside = ((columns >= labels.start) & (columns < labels.stop)).nonzero().squeeze(1)
        with torch.no_grad():
            result[inside] = model.means(h, X, labels)[rows[inside], columns[inside] - labels.start]
    return result
