"""Ensembles of unlike members: which members there are, and how their probabilities become one.

Averaging models that see rows differently is worth far more than one larger model or more seeds of the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from labelfield.csr import from_counts
from labelfield.inference.trainer import Settings
from labelfield.metrics import evaluate
from labelfield.metrics.ranking import score_ranking
from labelfield.models.build import Spec
from labelfield.models.calibration import Calibration
from labelfield.models.defaults import VOCABULARY
from labelfield.models.mlgpf import MLGPF
from labelfield.models.prediction import probit_order, to_csr
from labelfield.variational import Moments

__all__ = [
    "MOST_MEMBERS",
    "N_REMEMBERED",
    "calibration_of_mean",
    "check_ensemble",
    "checkpoint_of_member",
    "held_out_scores",
    "members",
    "n_members",
    "remembered",
    "top_k_of_mean",
]

MOST_MEMBERS = 8
_AUTO = 4
_FIRST_CANDIDATES = 64
# Labels of a held-out row that each member remembers, so that the mean can be calibrated.
N_REMEMBERED = 64


def n_members(ensemble: Any) -> int:
    """How many members an ensemble has."""
    return 1 if ensemble is None else _AUTO if ensemble == "auto" else int(ensemble)


def members(ensemble: Any, first: Spec, settings: Settings, n_features: int) -> list[dict[str, Any]]:
    """Options in which members beside the first may differ from it, the best first; none for no ensemble.

    Of words, what differs first is how rows are scaled and whether labels have processes of their own; of measurements
    the smoothness of the kernel. There are more than needed: one that is like the first is left out. Found by trying
    all sets of up to four of twelve members on held-out rows (docs/DECISIONS.md).
    """
    if ensemble is None:
        return []
    more = {"n_latent": 3 * first.n_latent // 2, "max_epochs": 3 * settings.max_epochs // 2}
    # Without processes of the labels' own the shared ones have all the work: more of them, trained for longer.
    shared: dict[str, Any] = {
        "private": "off",
        "kernel": "se_ard + linear",
        "n_latent": 2 * first.n_latent,
        "max_epochs": 2 * settings.max_epochs,
        "learning_rate": settings.learning_rate / 2,
    }
    larger = {"n_latent": 3 * first.n_latent // 2, "n_inducing": 3 * first.n_inducing // 2}
    if n_features >= VOCABULARY:
        unlike: list[dict[str, Any]] = [
            {"row_transform": "unit+log", **more},
            {"row_transform": "unit", **shared},
            {"row_transform": "unit+log", **shared, "n_inducing": 3 * first.n_inducing // 2},
            {"row_transform": "tfidf", **shared},
            {"row_transform": "log", **more},
            {"row_transform": "sqrt", **shared},
            {"row_transform": "sqrt+tfidf", **more},
        ]
    else:
        unlike = [
            {"kernel": "se_ard"},
            {"row_transform": "sqrt"},
            {"kernel": "matern52_ard", "row_transform": "log"},
            {"kernel": "matern32_ard", "row_transform": "sqrt", **larger},
            {"kernel": "se_ard", **larger},
            {"kernel": "matern12_ard"},
            {"kernel": "matern32_ard", "row_transform": "log"},
        ]
    return unlike


def top_k_of_mean(models: Sequence[MLGPF], f: Sequence[Moments], k: int) -> tuple[Tensor, Tensor]:
    """The k labels of each row whose mean probability over members is largest, largest first.

    Each member names candidates. E σ(f) ≤ exp(m + v / 2) then proves of all other labels that their mean is smaller;
    the rows where it does not are integrated for all labels.
    """
    n_labels = f[0].mean.shape[1]
    n_candidates = min(n_labels, max(_FIRST_CANDIDATES, 4 * k))
    named = torch.cat([probit_order(member).topk(n_candidates, dim=1).indices for member in f], 1).sort(dim=1).values
    p = _mean_probability(models, [Moments(*(part.gather(1, named) for part in member)) for member in f])
    p[:, 1:][named[:, 1:] == named[:, :-1]] = -1  # named more than once
    order = p.sort(dim=1, descending=True, stable=True).indices[:, :k]
    best, values = named.gather(1, order), p.gather(1, order)
    most = sum((member.mean + 0.5 * member.var).clamp_max(0).exp() for member in f)
    assert isinstance(most, Tensor)
    is_open = most.div_(len(f)).scatter_(1, named, 0).amax(1) > values[:, -1]
    if is_open.any():
        p = _mean_probability(models, [Moments(*(part[is_open] for part in member)) for member in f])
        order = p.sort(dim=1, descending=True, stable=True).indices[:, :k]
        best[is_open], values[is_open] = order, p.gather(1, order)
    return best, values


def _mean_probability(models: Sequence[MLGPF], f: Sequence[Moments]) -> Tensor:
    parts = [model.likelihood.predict_proba(*member) for model, member in zip(models, f, strict=True)]
    return torch.stack(parts).mean(0)


def check_ensemble(ensemble: Any) -> None:
    """Raise unless it says how many members there are."""
    is_count = isinstance(ensemble, int | np.integer) and not isinstance(ensemble, bool)
    if ensemble not in (None, "auto") and not (is_count and 2 <= ensemble <= MOST_MEMBERS):
        raise ValueError(f"ensemble={ensemble!r}; expected 'auto', or from 2 to {MOST_MEMBERS} members")


def checkpoint_of_member(checkpoint: Path, number: int) -> Path:
    """The checkpoint of another member, beside that of the first."""
    return checkpoint.with_name(f"{checkpoint.stem}-{number}{checkpoint.suffix}")


def remembered(ranked: sparse.csr_array, truth: sparse.csr_array) -> dict[str, Tensor]:
    """What a member said of the held-out rows, and what is true of them, as tensors that a checkpoint holds."""
    shape = (ranked.shape[0], -1)
    return {
        "labels": torch.from_numpy(ranked.indices.reshape(shape).astype(np.int64)),
        "p": torch.from_numpy(ranked.data.reshape(shape).copy()),
        "true_counts": torch.from_numpy(np.diff(truth.indptr).astype(np.int64)),
        "true_labels": torch.from_numpy(truth.indices.copy()),
    }


def calibration_of_mean(memories: Sequence[dict[str, Tensor]], n_labels: int) -> Calibration:
    """The map for mean probabilities, from what each member remembers; the identity where nothing was held out."""
    calibration = Calibration()
    if all(memories):
        judged = score_ranking(_truth(memories[0], n_labels), _mean(memories, n_labels), N_REMEMBERED)
        calibration.fit(judged.ranked.scores, judged.hit)
    return calibration


def held_out_scores(memories: Sequence[dict[str, Tensor]], n_labels: int) -> list[dict[str, list[float]]]:
    """P@1, 3 and 5 on held-out rows of each member alone, and of the mean of it and all before it."""
    if not all(memories):
        return [{} for _ in memories]
    truth = _truth(memories[0], n_labels)

    def scores(some: Sequence[dict[str, Tensor]]) -> list[float]:
        found = evaluate(truth, _mean(some, n_labels))
        return [float(found[f"P@{k}"]) for k in (1, 3, 5)]

    return [{"alone": scores([memory]), "together": scores(memories[: i + 1])} for i, memory in enumerate(memories)]


def _truth(memory: dict[str, Tensor], n_labels: int) -> sparse.csr_array:
    return from_counts(memory["true_counts"].numpy(), memory["true_labels"].numpy(), None, n_labels)


def _mean(memories: Sequence[dict[str, Tensor]], n_labels: int) -> sparse.csr_array:
    """The mean of what members said of the held-out rows: of each row the best labels.

    A label that a member does not remember counts 0 for it: it is not among its 64 best.
    """
    n_rows, n_kept = memories[0]["labels"].shape
    rows = np.arange(n_rows)[:, None]
    keys = np.concatenate([(rows * n_labels + memory["labels"].numpy()).ravel() for memory in memories])
    values = np.concatenate([memory["p"].numpy().ravel() for memory in memories])
    found, place_of = np.unique(keys, return_inverse=True)
    total = np.bincount(place_of, values) / len(memories)
    row, label = found // n_labels, found % n_labels
    order = np.lexsort((label, -total, row))
    counts = np.bincount(row, minlength=n_rows)
    place = np.arange(order.size) - (np.cumsum(counts) - counts)[row[order]]
    kept = order[place < n_kept]
    return to_csr(label[kept].reshape(n_rows, -1), total[kept].astype(np.float32).reshape(n_rows, -1), n_labels)
