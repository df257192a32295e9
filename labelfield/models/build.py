"""A model from words and numbers, as options and saved models write them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse

from labelfield.inducing import Free, Subspace, frequent_features, kmeans, singular_vectors
from labelfield.kernels.names import kernel_from_name
from labelfield.likelihoods import Bernoulli
from labelfield.models.mlgpf import MLGPF
from labelfield.models.private import PRIVATE, PrivateProcess
from labelfield.variational import Family, Full, Parsimonious, WhitenedDiagonal, WhitenedFull, WhitenedShared

__all__ = ["INDUCING", "POSTERIORS", "Spec", "build", "fill_shared", "pad_rows", "start"]

# q starts narrower than the prior.
_SPREAD = 0.3
POSTERIORS: dict[str, Callable[[int, int], Family]] = {
    "whitened_diagonal": partial(WhitenedDiagonal, spread=_SPREAD),
    "whitened_shared": partial(WhitenedShared, spread=_SPREAD),
    "whitened_full": partial(WhitenedFull, spread=_SPREAD),
    "full": partial(Full, spread=_SPREAD),
    "parsimonious": Parsimonious,
}
INDUCING = ("free", "fixed", "subspace", "subspace_basis")
# Beyond this the weights of the outermost points underflow.
MOST_POINTS = 100
BASES = ("svd", "kmeans")


@dataclass(frozen=True)
class Spec:
    """What a model is made of, apart from its numbers."""

    n_features: int
    n_labels: int
    n_latent: int
    n_inducing: int
    kernel: str = "se_ard"
    posterior: str = "whitened_diagonal"
    inducing: str = "free"
    rank: int = 0  # of the subspace
    n_support: int = 0  # features that free or fixed inducing inputs have values on; 0 for all
    unit_norm: bool = True
    n_points: int = 10
    jitter: float = 1e-5
    private: str = "off"  # a linear process of each label's own
    n_private: int = 0  # weights of all of them
    private_scale: float = 2.0  # τ, or where it starts

    def __post_init__(self) -> None:
        if self.posterior not in POSTERIORS:
            raise ValueError(f"posterior={self.posterior!r}; expected one of {', '.join(POSTERIORS)}")
        if self.inducing not in INDUCING:
            raise ValueError(f"inducing={self.inducing!r}; expected one of {', '.join(INDUCING)}")
        if self.private not in PRIVATE:
            raise ValueError(f"private={self.private!r}; expected one of {', '.join(PRIVATE)}")
        if not isinstance(self.n_private, int) or self.n_private < 0:
            raise ValueError(f"n_private={self.n_private!r}; expected an integer of at least 0")
        if not isinstance(self.private_scale, int | float) or not 0 < self.private_scale < float("inf"):
            raise ValueError(f"private_scale={self.private_scale!r}; expected a positive number")
        for name in ("n_features", "n_labels", "n_latent", "n_inducing", "n_points"):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise ValueError(f"{name}={value!r}; expected an integer of at least 1")
        if self.n_points > MOST_POINTS:
            raise ValueError(f"n_points={self.n_points}; expected at most {MOST_POINTS}")
        if not isinstance(self.n_support, int) or not 0 <= self.n_support <= self.n_features:
            raise ValueError(f"n_support={self.n_support!r}; expected an integer from 0 to n_features")
        if not isinstance(self.rank, int) or (self.rank < 1 and "subspace" in self.inducing):
            raise ValueError(f"rank={self.rank!r}; expected an integer of at least 1")
        if not isinstance(self.jitter, int | float) or not 0 <= self.jitter < float("inf"):
            raise ValueError(f"jitter={self.jitter!r}; expected a number of at least 0")


def build(spec: Spec) -> MLGPF:
    """A model of this make with nothing in it yet."""
    m, p, k, d = spec.n_inducing, spec.n_latent, spec.n_labels, spec.n_features
    inducing: Free | Subspace
    if spec.inducing.startswith("subspace"):
        is_learned = spec.inducing == "subspace_basis"
        inducing = Subspace(
            torch.zeros(m, spec.rank), torch.zeros(spec.rank, d), is_basis_learned=is_learned, unit_norm=spec.unit_norm
        )
    else:
        inducing = Free(
            torch.zeros(m, spec.n_support or d),
            n_features=d if spec.n_support else None,
            is_learned=spec.inducing == "free",
            unit_norm=spec.unit_norm,
        )
    private = None if spec.private == "off" else PrivateProcess(k, d, spec.n_private, spec.private, spec.private_scale)
    return MLGPF(
        kernel_from_name(spec.kernel, d, p),
        inducing,
        POSTERIORS[spec.posterior](m, p),
        torch.zeros(k, p),
        torch.zeros(k),
        private=private,
        likelihood=Bernoulli(spec.n_points),
        jitter=spec.jitter,
    )


def start(
    model: MLGPF,
    spec: Spec,
    X: sparse.csr_array,
    Y: sparse.csr_array,
    seed: int,
    *,
    start_mean: float = 1.0,
    basis: str = "svd",
    device: torch.device | str = "cpu",
) -> None:
    """Fill a model in place: Z from the rows, Φ ~ N(0, 1/P), b at the log-odds of each label, q's means off centre.

    The means are drawn from N(0, start_mean²), so that Φ is pulled at from the first step on. The rows are looked at on
    this device, wherever the model is.
    """
    rng = np.random.default_rng(seed)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        if isinstance(model.inducing, Subspace):
            vectors = pad_rows(basis_vectors(X, spec.rank, basis, rng), spec.rank)
            coordinates = np.asarray(X @ vectors.T, np.float32)
            model.inducing.basis.copy_(torch.from_numpy(vectors.T.copy()))
            model.inducing.refresh()
            gram = vectors @ vectors.T
            centres = kmeans(coordinates, spec.n_inducing, rng, device=device)
            # Coordinates are products with the basis; the weights that give them are G⁻¹ times these.
            model.inducing.A.copy_(torch.from_numpy(pad_rows(centres @ np.linalg.pinv(gram), spec.n_inducing)))
        else:
            fill_shared(model.inducing, X, spec.n_inducing, spec.n_support, rng, device)
        frequency = np.bincount(Y.indices, minlength=spec.n_labels)
        odds = (frequency + 0.5) / (Y.shape[0] - frequency + 0.5)
        model.b.copy_(torch.from_numpy(np.log(odds)))
        model.Phi.normal_(0, spec.n_latent**-0.5, generator=generator)
        mean = model.family.get_parameter("mean")
        # Drawn inducing input by inducing input, whatever the layout.
        mean.copy_(torch.empty(mean.shape[::-1]).normal_(0, start_mean, generator=generator).T)


def fill_shared(
    inducing: Free,
    X: sparse.csr_array,
    n_inducing: int,
    n_support: int,
    rng: np.random.Generator,
    device: torch.device | str,
) -> None:
    """Centres of the rows for inducing inputs that all processes share, on their most frequent features if so many are
    given."""
    support = frequent_features(X, n_support) if n_support else None
    seen = X if support is None else sparse.csr_array(X[:, support])
    Z = torch.from_numpy(pad_rows(kmeans(seen, n_inducing, rng, device=device), n_inducing))
    inducing.fill(Z, None if support is None else torch.from_numpy(support))


def basis_vectors(X: sparse.csr_array, rank: int, basis: str, rng: np.random.Generator) -> NDArray[np.float32]:
    """The basis X̃ (R, D): leading right singular vectors, or centres of the rows."""
    if basis not in BASES:
        raise ValueError(f"basis={basis!r}; expected one of {', '.join(BASES)}")
    return singular_vectors(X, rank, rng) if basis == "svd" else kmeans(X, rank, rng)


def pad_rows(rows: NDArray[np.float32], n_rows: int) -> NDArray[np.float32]:
    """At least n_rows rows: the first ones again where there are fewer (duplicate rows, rank below R)."""
    return np.ascontiguousarray(np.resize(rows, (n_rows, rows.shape[1])), np.float32)
