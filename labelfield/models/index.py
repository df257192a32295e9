"""What a search beside a model needs: directions in which labels differ, and how many labels it looks at exactly.

A label has a vector φ_k, and a row a vector m of as many numbers: their product is a part of its log-odds. Both are
projected on the directions that matter most in rows such as those of the audit, so that

    m·φ_k ≈ c·φ_k + (Bᵀ(m - c)) · (Aᵀφ_k)

with the mean c of the rows. B and A come from the eigenvectors of R Σ R, for the covariance R² of the rows and Σ of the
labels: no other directions lose less of the product on average.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

F4 = NDArray[np.float32]

# The share of the variance of products that the directions hold.
_SHARE = 0.99
# Directions come in such numbers; products of bytes in more of them are not exact in float32.
_MULTIPLE, MOST_DIRECTIONS = 16, 1024
# Directions in which rows hardly vary count as if they varied by this share of the most.
_LEAST_VARIANCE = 1e-6
# Numbers of an index of a folder are not larger.
_LARGEST = 1e15
# An index pays from so many labels on if at most this share of them is scored exactly. Seconds do not decide: the same
# seed would not always give the same model.
_FEWEST_LABELS, _MOST_KEPT = 5_000, 1 / 16


@dataclass(frozen=True)
class Audit:
    """How many labels of a row are scored exactly, and what that was found to give: the share of the best `k` labels
    that are found, on average over `n_rows` rows, which is at least `target` with this confidence."""

    n_kept: int
    k: int
    recall: float
    target: float
    confidence: float
    n_rows: int

    def __post_init__(self) -> None:
        counts = self.n_kept, self.k, self.n_rows
        shares = self.recall, self.target, self.confidence
        if not all(type(count) is int and count >= 1 for count in counts):
            raise ValueError("the audit of the index has counts that are not whole numbers from 1")
        if not all(type(share) in (int, float) and 0 <= share <= 1 for share in shares):
            raise ValueError("the audit of the index has shares that are not between 0 and 1")


@dataclass(frozen=True, eq=False)
class Directions:
    """The mean c (P,) of the vectors of rows, and B and A (P, r). `least` (D,) is the least weight of each feature that
    counts before labels are scored exactly."""

    centre: F4
    of_rows: F4
    of_labels: F4
    least: F4

    @classmethod
    def of(cls, rows: F4, labels: F4, least: F4) -> Directions:
        """Find the directions for the vectors of some rows (N, P) and of some labels (n, P)."""
        if not rows.shape[1]:
            none = np.zeros((0, 0), np.float32)
            return cls(np.zeros(0, np.float32), none, none, least)
        centre = rows.mean(0, dtype=np.float64)
        covariances = [np.atleast_2d(np.cov(part.T.astype(np.float64), bias=True)) for part in (rows, labels)]
        values, vectors = np.linalg.eigh(covariances[0])
        spread = np.sqrt(np.maximum(values, max(_LEAST_VARIANCE * values[-1], 1e-30)))
        root, inverse = vectors * spread, vectors / spread
        values, found = np.linalg.eigh(root.T @ covariances[1] @ root)
        values, found = np.maximum(values[::-1], 1e-30), found[:, ::-1]
        enough = int(np.searchsorted(np.cumsum(values) / values.sum(), _SHARE)) + 1
        n = min(-(-enough // _MULTIPLE) * _MULTIPLE, len(values), MOST_DIRECTIONS)
        # Rows and labels get the same spread in each direction, and then the same in all: bytes hold them best so.
        balance = values[:n] ** 0.25
        turn = np.linalg.qr(np.random.default_rng(0).standard_normal((n, n)))[0]
        of_rows, of_labels = inverse @ (found[:, :n] * balance) @ turn, root @ (found[:, :n] / balance) @ turn
        return cls(centre.astype(np.float32), of_rows.astype(np.float32), of_labels.astype(np.float32), least)


@dataclass(frozen=True, eq=False)
class Index:
    """The directions, and the audit of searches with them."""

    directions: Directions
    audit: Audit

    def pays(self, n_labels: int) -> bool:
        """Return whether a search with it is expected to be faster than one of all labels."""
        return n_labels >= _FEWEST_LABELS and self.audit.n_kept <= _MOST_KEPT * n_labels

    def describe(self) -> dict[str, Any]:
        """Return the audit, as JSON can hold it."""
        return asdict(self.audit)

    def arrays(self) -> dict[str, F4]:
        """Return the arrays that a folder holds, by name."""
        return vars(self.directions)

    @classmethod
    def restore(
        cls, described: Any, arrays: dict[str, NDArray[Any]], n_labels: int, n_numbers: int, n_features: int
    ) -> Index:
        """Make an index of what a folder from anyone says; raise a ValueError where it does not fit.

        Nothing in it can make a search return a wrong probability, or a certificate that does not hold: scores and
        bounds are computed from the model. A bad index is slow, and misses labels.
        """
        audit, directions = Audit(**described), Directions(**arrays)
        if audit.n_kept > n_labels:
            raise ValueError(f"{audit.n_kept} labels of {n_labels} are scored exactly")
        n = directions.of_rows.shape[-1] if directions.of_rows.ndim else 0
        shapes = (n_numbers,), (n_numbers, n), (n_numbers, n), (n_features,)
        for array, shape in zip(vars(directions).values(), shapes, strict=True):
            if array.shape != shape or array.dtype != np.float32:
                raise ValueError(f"an index with an array of shape {array.shape}; expected {shape}")
            if not (np.abs(array) <= _LARGEST).all():
                raise ValueError("an index with numbers that are not finite")
        if n > min(n_numbers, MOST_DIRECTIONS) or (directions.least < 0).any():
            raise ValueError("an index with too many directions or negative weights")
        return cls(directions, audit)


def least_weights(
    sizes: F4,
    features: NDArray[np.int32],
    share: float,
    squares: NDArray[np.float64],
    counts: NDArray[np.int64],
    n_rows: int,
    most: float,
) -> F4:
    """Return the least weight of each feature that counts at first, so that a row meets about `most` of them.

    `sizes` and `features` are of a `share` of all weights; `squares` and `counts` say how large the entries of each
    feature are in `n_rows` rows, and how many.
    """
    scale = np.sqrt(squares / np.maximum(counts, 1))
    scale[counts == 0] = np.median(scale[counts > 0]) if counts.any() else 1.0
    effect = sizes * scale[features]
    order = np.argsort(-effect)
    met = np.cumsum(counts[features[order]]) / (share * max(n_rows, 1))
    place = int(np.searchsorted(met, most))
    if place >= len(order):
        return np.zeros(len(scale), np.float32)
    return np.asarray(np.minimum(effect[order[place]] / np.maximum(scale, 1e-30), _LARGEST / 2), np.float32)
