"""What the topic model knows [BMLPL 1-6].

    y_ln = 1(m_ln ≥ 1),  m_ln = Σ_k m_lkn,  m_lkn ~ Poisson(v_lk u_kn),  u_kn ~ Gamma(r_k, scale e^{ψ_kn}),  ψ = Xw
    v_k ~ Dirichlet(η),  w_dk ~ N(0, 1/λ_d),  λ_d ~ Gamma(1, K s²/2),  r_k ~ Gamma(g N, g N)

L labels, A of them with a place of their own, K topics, N rows, D features and a constant.
"""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Priors:
    """Of what is learned: weights vary by `weight_scale` at least; r_k is near 1, which counts as much as
    `shape_strength` times the rows."""

    weight_scale: float = 2.0
    shape_strength: float = 1.0

    def least_variance(self) -> float:
        """s², the scale that λ_d is learned from beside the weights."""
        return self.weight_scale**2


@dataclass(frozen=True, eq=False)
class Topics:
    """V (A, K) of the labels that have a place, `rest` (K,) of each of the `n_rest` others, W (D + 1, K), r (K,),
    λ (D + 1,) and η. The last of λ is of the constant and is not learned."""

    V: Tensor
    rest: Tensor
    n_rest: int
    W: Tensor
    r: Tensor
    precision: Tensor
    eta: float

    @property
    def n_topics(self) -> int:
        return int(self.r.shape[0])

    @property
    def n_labels(self) -> int:
        """L, with those that have no place."""
        return int(self.V.shape[0]) + self.n_rest


def tensors_of(topics: Topics) -> dict[str, Tensor]:
    """Return the topics as named tensors, to be kept in a file."""
    numbers = {"n_rest": torch.tensor(topics.n_rest), "eta": torch.tensor(topics.eta, dtype=torch.float64)}
    return {name: getattr(topics, name) for name in ("V", "rest", "W", "r", "precision")} | numbers


def restored_topics(tensors: dict[str, Tensor]) -> Topics:
    """Return the topics that `tensors_of` was given."""
    values = {name: tensors[name] for name in ("V", "rest", "W", "r", "precision")}
    return Topics(**values, n_rest=int(tensors["n_rest"]), eta=float(tensors["eta"]))
