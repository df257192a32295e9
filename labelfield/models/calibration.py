"""Calibrated probabilities: a monotone map learned on rows that the model has not seen.

    logit q = c + Σ_j s_j (the part of logit p in piece j) + d_rank

The pieces lie between quantiles of logit p. Every slope s_j is positive and d falls with the rank, so that the ranking
is preserved: no label overtakes one before it in its row. Without the last term the top label of each row would get too
small a probability, since at the same p it is right more often than the fifth. Where that difference grows with p, the
first label may have a steeper slope beyond a knot of its own, which preserves the ranking too.
"""

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax, logit
from torch import Tensor, nn
from torch.nn.functional import logsigmoid

from labelfield.linalg.newton import logistic_regression

# Ranks with their own offset; the last one is for all later ranks.
N_RANKS = 6
_N_KNOTS = 4
_LEAST_SLOPE = 0.05
# Held-out entries of one rank are grouped by similar probability into this many groups: the likelihood is the same to
# four digits, and fitting takes no time.
_N_GROUPS = 256
# The prior belief that no map is needed, in numbers of held-out entries.
_CAUTION = 5.0
# The logarithm of the largest power of probabilities.
_MOST_POWER = 2.3
# Probabilities closer to 0 or 1 than this are set to it: float32 cannot tell them apart.
_SMALLEST, _LARGEST = 1e-37, 1 - 6e-8


class Calibration(nn.Module):
    """The map, which is the identity until fitted. With `has_lead` the first label of a row has one more slope."""

    knots: Tensor
    slopes: Tensor
    offsets: Tensor
    lead: Tensor  # the knot of the first label, and the additional slope beyond it

    def __init__(self, has_lead: bool = False) -> None:
        super().__init__()
        self.has_lead = has_lead
        if has_lead:
            self.register_buffer("lead", torch.zeros(2))
        self.register_buffer("knots", torch.zeros(_N_KNOTS))
        self.register_buffer("slopes", torch.ones(_N_KNOTS + 1))
        self.register_buffer("offsets", torch.zeros(N_RANKS))  # including the constant

    def forward(self, p: Tensor, rank: Tensor | int = N_RANKS - 1) -> Tensor:
        """Return the calibrated probability of labels with probability p at this rank (0 for the first) in a row."""
        if self.is_identity():
            return p
        z = torch.logit(p.clamp(_SMALLEST, _LARGEST))
        knots, slopes = self.knots, self.slopes
        result = slopes[0] * z
        for knot, change in zip(knots, slopes.diff(), strict=True):
            result = result + change * (z - knot).clamp_min(0)
        last = torch.as_tensor(rank, device=p.device).clamp_max(N_RANKS - 1)
        if self.has_lead:
            result = result + self.lead[1] * (z - self.lead[0]).clamp_min(0) * (last == 0)
        return torch.sigmoid(result + self.offsets[last])

    def log_inverse(self, q: Tensor) -> Tensor:
        """Return log p of the least p that becomes q (float64) at the last rank; -inf where every p reaches q."""
        knots, slopes = self.knots.double(), self.slopes.double()
        at_knots = slopes[0] * knots + (slopes.diff() * (knots[:, None] - knots).clamp_min(0)).sum(1)
        y = torch.logit(q) - self.offsets[-1].double()
        z = y / slopes[0]
        for place, change in zip(at_knots, (1 / slopes).diff(), strict=True):
            z = z + change * (y - place).clamp_min(0)
        return torch.where(z > np.log(_SMALLEST) + 1e-3, logsigmoid(z), -torch.inf)

    def is_identity(self) -> bool:
        """Return whether nothing has been learned."""
        is_plain = bool((self.slopes == 1).all()) and not bool(self.offsets.any())
        return is_plain and not (self.has_lead and bool(self.lead[1]))

    def fit(
        self,
        p: NDArray[np.floating],
        is_true: NDArray[np.bool_],
        is_known: NDArray[np.bool_] | None = None,
        weight: NDArray[np.float64] | None = None,
    ) -> None:
        """Learn the map from ranked probabilities (N, k), largest first, and whether these labels hold, if `is_known`.

        Rows have a `weight` (N,), 1 for all by default. The likelihood is concave in slopes and offsets; a weak prior
        at the identity keeps a few rows from deciding. All ranks that share the last offset together weigh as much as
        all others.
        """
        z = logit(np.clip(p.astype(np.float64), _SMALLEST, _LARGEST))
        known = np.ones(z.shape, np.bool_) if is_known is None else is_known
        each = np.broadcast_to(np.ones((1, 1)) if weight is None else weight[:, None], z.shape)
        n_first = min(N_RANKS - 1, z.shape[1])
        if not known[:, :n_first].any():
            return  # nothing to learn from
        knots = np.quantile(z[:, :n_first][known[:, :n_first]], np.linspace(0, 1, _N_KNOTS + 2)[1:-1])
        lead_knot = np.quantile(z[:, 0][known[:, 0]], 1 / (_N_KNOTS + 1)) if known[:, 0].any() else 0.0
        ranked = [(rank, own) for rank, own in enumerate(known.T[:n_first]) if own.any()]
        groups = [_grouped(z[own, rank], is_true[own, rank], rank, each[own, rank]) for rank, own in ranked]
        if (rest := known[:, n_first:]).any():
            share = known[:, :n_first].sum() / rest.sum() * each[:, n_first:][rest]
            groups.append(_grouped(z[:, n_first:][rest], is_true[:, n_first:][rest], N_RANKS - 1, share))
        z, target, weight, place = (np.concatenate(part) for part in zip(*groups, strict=True))
        between = zip(knots, np.r_[knots[1:], np.inf], strict=True)
        design = [np.minimum(z, knots[0]), *(np.clip(z - low, 0, high - low) for low, high in between)]
        # Offsets decrease: each is the one before it minus something positive.
        steps = [place >= 0, *(-1.0 * (place >= step) for step in range(1, N_RANKS))]
        lead = [np.maximum(z - lead_knot, 0) * (place == 0)] if self.has_lead else []
        features = np.stack([*design, *steps, *lead], axis=-1).astype(np.float64)
        start = np.r_[np.ones(_N_KNOTS + 1), np.zeros(N_RANKS + len(lead))]

        least = np.r_[np.full(_N_KNOTS + 1, _LEAST_SLOPE), -np.inf, np.zeros(N_RANKS - 1 + len(lead))]
        found = logistic_regression(features, target, start, least, _CAUTION, weight)
        slopes, offsets, steeper = np.split(found, [_N_KNOTS + 1, _N_KNOTS + 1 + N_RANKS])
        learned = {"knots": knots, "slopes": slopes, "offsets": offsets[0] - np.r_[0, np.cumsum(offsets[1:])]}
        if self.has_lead:
            learned["lead"] = np.array([lead_knot, *steeper])
        for name, values in learned.items():
            self.get_buffer(name).copy_(torch.from_numpy(np.asarray(values, np.float32)))


def _grouped(
    z: NDArray[np.float64], is_true: NDArray[np.bool_], place: int, weight: NDArray[np.float64]
) -> tuple[NDArray[np.float64], ...]:
    """Group entries of one rank by similar logit: return mean logits, shares that hold, weights and the rank."""
    order = np.argsort(z, kind="stable")
    starts = np.unique(np.linspace(0, order.size, min(order.size, _N_GROUPS) + 1).astype(np.int64)[:-1])
    total, logits, true = (np.add.reduceat(part[order], starts) for part in (weight, weight * z, weight * is_true))
    return logits / total, true / total, total, np.full(starts.size, place)


def ranks_of(best: Tensor, labels: slice) -> Tensor:
    """Return the rank of each label of a block within its row, given the best labels (B, N_RANKS) of each row."""
    place = torch.full((best.shape[0], labels.stop - labels.start), N_RANKS - 1, device=best.device)
    row, rank = ((best >= labels.start) & (best < labels.stop)).nonzero(as_tuple=True)
    place[row, best[row, rank] - labels.start] = rank
    return place


class Temperature(nn.Module):
    """q_k ∝ p_k^a for the classes of a row: rows still sum to one, and the ranking is preserved.

    One number is enough for classes that exclude each other: making one class surer makes all others less so.
    """

    power: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("power", torch.ones(1))

    def forward(self, P: Tensor) -> Tensor:
        """Return the calibrated probabilities of rows (B, K)."""
        return torch.softmax(self.power * P.clamp_min(_SMALLEST).log(), dim=1)

    def fit(self, P: NDArray[np.floating], target: NDArray[np.integer]) -> None:
        """Learn a from the probabilities (N, K) of held-out rows and their classes; the likelihood is concave in a."""
        z = np.log(np.clip(P.astype(np.float64), _SMALLEST, 1))
        rows = np.arange(len(z))

        def loss(log_power: float) -> float:
            return float(_CAUTION * log_power**2 - log_softmax(np.exp(log_power) * z, axis=1)[rows, target].sum())

        found = minimize_scalar(loss, bounds=(-_MOST_POWER, _MOST_POWER), method="bounded")
        self.power.fill_(float(np.exp(found.x)))
