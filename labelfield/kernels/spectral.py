"""Mixtures of Gaussians as spectral densities: covariances of one number that may rise and fall with distance."""

from __future__ import annotations

from math import log, pi

import torch
from torch import Tensor, nn

__all__ = ["SpectralMixture"]

# Where it starts, for inputs from -1 to 1: neighbouring components half a cycle a unit apart, up to a few cycles in
# all, each a smooth function of length 1, with weights that halve from one frequency to the next.
_STEP = 0.5
_HIGHEST = 2.0
_LOWEST = 0.01
_LENGTH = 1.0


class SpectralMixture(nn.Module):
    """k(r) = Σ_q w_q exp(-2π² σ_q² r²) cos(2π μ_q r) with Σ_q w_q = 1, the same or others for each process."""

    def __init__(self, n_components: int, n_processes: int | None = None) -> None:
        super().__init__()
        if n_components < 1:
            raise ValueError(f"n_components={n_components}; expected at least 1")
        step = min(_STEP, _HIGHEST / max(1, n_components - 1))
        self.per_process = () if n_processes is None else ("logits", "log_frequency", "log_width")
        n_rows = 1 if n_processes is None else n_processes
        self.logits = _rows([-q * log(2) for q in range(n_components)], n_rows)
        self.log_frequency = _rows([log(max(_LOWEST, q * step)) for q in range(n_components)], n_rows)
        self.log_width = _rows([-log(2 * pi * _LENGTH)] * n_components, n_rows)

    def of_lag(self, lag: Tensor) -> Tensor:
        """k at distances (n,): (P, n) under each process's parameters or (1, n) if all share them, in their type."""
        logits, log_frequency, log_width = (
            values.to(lag.dtype).unsqueeze(-1) for values in (self.logits, self.log_frequency, self.log_width)
        )
        decay = (-0.5 * (2 * pi * log_width.exp() * lag).square()).exp()
        return (logits.softmax(1) * decay * (2 * pi * log_frequency.exp() * lag).cos()).sum(1)


def _rows(values: list[float], n_rows: int) -> nn.Parameter:
    """A parameter with the same row for each process. Of Python's numbers: a model to be loaded has no memory."""
    return nn.Parameter(torch.tensor([values] * n_rows))
