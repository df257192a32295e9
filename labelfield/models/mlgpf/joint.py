"""Sets of labels that go together: how probable each set is, by joint draws through the mixing Φ.

Given h the labels of a row are independent, with utilities f = Φ h + b and each label's own linear process. A set S of
labels is exactly right among some labels with probability

    E_h Π_{k in S} p_k(h) Π_{k not in S} (1 - p_k(h))

which is not the product of the labels' probabilities: what is unknown about h moves all labels together. The mean over
draws of h is an unbiased estimate of it.
"""

import torch
from torch import Tensor

from labelfield.models.mlgpf.model import MLGPF
from labelfield.variational.families import Moments

# Entries of rows × draws × sets, or labels times processes, that exist at once.
_BLOCK_ENTRIES = 1 << 24
# Probabilities closer to 0 or 1 than this are set to it.
_SMALLEST = 1e-12


def draw_log_odds(model: MLGPF, h_var: Tensor, f: Moments, labels: Tensor, noise: Tensor) -> Tensor:
    """Return the log-odds (B, S, k) of labels (B, k) given each of S draws of h, from standard normal noise (S, P).

    What a label's own linear process leaves open is integrated out in its probability. All rows share the noise.
    """
    mean, var = (part.gather(1, labels) for part in f)
    spread = model.Phi[labels] * h_var.sqrt()[:, None, :]
    own = (var - spread.square().sum(2)).clamp_min(0)[:, None, :]
    drawn = mean[:, None, :] + torch.einsum("sp,bkp->bsk", noise, spread)
    p = model.likelihood.predict_proba(drawn, own.expand_as(drawn)).double().clamp(_SMALLEST, 1 - _SMALLEST)
    return p.log() - torch.log1p(-p)


def set_probabilities(odds: Tensor) -> Tensor:
    """Return the probability of every set of k labels (B, 2^k) from log-odds given draws (B, S, k).

    Bit j of the number of a set says whether it has label j.
    """
    k = odds.shape[2]
    member = (torch.arange(2**k, device=odds.device)[:, None] >> torch.arange(k, device=odds.device)) & 1
    none = -torch.nn.functional.softplus(odds).sum(2, keepdim=True)
    return (odds @ member.to(odds.dtype).T + none).exp().mean(1)


def rows_at_once(k: int, n_draws: int, n_processes: int) -> int:
    """Return for how many rows sets of k labels can be drawn at once."""
    return max(1, _BLOCK_ENTRIES // (n_draws * max(1 << k, k) + k * n_processes))


def probable_sets(
    model: MLGPF, h: Moments, X: Tensor, k: int, n_sets: int, noise: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the k most probable labels of rows (B, k), the most probable sets among them as members (B, n, k), and how
    probable these are (B, n)."""
    f = model.utilities(h, X)
    labels = model.likelihood.predict_proba(*f).topk(k, dim=1).indices
    p, number = set_probabilities(draw_log_odds(model, h.var, f, labels, noise)).topk(min(n_sets, 2**k), dim=1)
    bits = torch.arange(k, device=number.device)
    return labels, ((number[:, :, None] >> bits) & 1).bool(), p
