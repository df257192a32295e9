"""Predictions of the topic model for rows [BMLPL 19].

    p(y_l = 1 | x) = 1 - ∏_k (1 + v_lk e^{ψ_k})^{-r_k},   ψ = Wᵀx

with u integrated out. With several draws of V, W and r it is the mean over them.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from labelfield.linalg.rows import dot
from labelfield.memory import row_blocks

# Beyond it e^ψ has no place in float32; every label of the topic holds long before.
LARGEST_LOG_ODDS = 80.0
# The most numbers formed at once.
_CHUNK = 1 << 22


class Drawn(NamedTuple):
    """T draws, or one estimate: V (T, A, K) of labels that have a place, of each other one (T, K), W (T, D + 1, K) and
    r (T, K)."""

    V: Tensor
    rest: Tensor
    W: Tensor
    r: Tensor


def log_odds(X: Tensor, W: Tensor) -> Tensor:
    """Return ψ (N, K) of sparse or dense rows."""
    return dot(X, W[:-1]) + W[-1]


def label_probabilities(X: Tensor, drawn: Drawn) -> tuple[Tensor, Tensor]:
    """Return the probability of each label that has a place (N, A), and that of any other one (N,)."""
    placed = torch.zeros(X.shape[0], drawn.V.shape[1], dtype=X.dtype, device=X.device)
    rest = placed.new_zeros(X.shape[0])
    for V, of_rest, W, shape in zip(*drawn, strict=True):
        odds, r = log_odds(X, W).clamp_(max=LARGEST_LOG_ODDS).exp_(), shape.to(X.dtype)
        rest -= torch.expm1(-(torch.log1p(odds * of_rest) @ r))
        for rows in row_blocks(len(odds), V.numel(), entries=_CHUNK, most=_CHUNK):
            placed[rows] -= torch.expm1(-(torch.log1p(odds[rows].unsqueeze(1) * V) @ r))
    return placed / len(drawn.r), rest / len(drawn.r)


def topic_proportions(X: Tensor, drawn: Drawn) -> Tensor:
    """Return the share of each topic in the expected labels of a row, r_k e^{ψ_k} (N, K); rows sum to one.

    Over draws it is the mean: topics of a chain that mixes so well as to exchange them would be lost in it.
    """
    shares = [(log_odds(X, W).double() + r.log()).softmax(1) for W, r in zip(drawn.W, drawn.r, strict=True)]
    return torch.stack(shares).mean(0).to(X.dtype)
