"""Default sizes and rates, as a rule of N, D and K.

A vocabulary is D of at least 1,000: bags of words rather than measurements.

| what | rule | why |
|---|---|---|
| kernel | se_linear_ard for a vocabulary, else matern32_ard | words add up; measurements do not |
| label_linear | point estimate from 5,000 features and up to D K = 2^28, else off | rare words, rare labels |
| P, latent processes | K, at most 300, or 200 with label_linear | which does part of their work |
| M, inducing inputs | vocabulary: N / 16, from 200; else N / 5, from 100; at most 400 | K_Z costs D M² |
| B, rows per batch | N / 16, from 50 to 1,000 | the costs per batch (K_Z) are paid rarely |
| epochs | 9 from 5,000 features on, 16 for a vocabulary, else 32 from 10,000 rows on or 40 | converged by then |
| | fewer if an epoch has over 16 steps | |
| learning rate | 0.1, 0.04, 0.015 and 0.01 | the more epochs, the smaller |
| weight of the divergence | 0.25 from 5,000 features on, 0.5 for a vocabulary, else 1 | see below |
| negatives | all labels up to 5,000, else 1,000 drawn per batch | beyond, all labels cost more than they teach |
| cost of the squared hinge | 0.1 with label_linear, else 1 | a divergence of weight 0.25 and τ = 2 make 0.1 count 1.6 |

The true bound (weight 1) is too cautious about words: many are rare, and for each of them the posterior stays at the
prior, since the divergence costs more than the word contributes. With a smaller weight rankings are
better on every text data set, and the calibration on held-out rows corrects the overconfident probabilities. For
measurements the true bound is best.

The rule was chosen on rows held out of the training rows of seven data sets (EUR-Lex, Bibtex, Delicious, RCV1, Enron,
Yeast, Emotions), not on their test rows; docs/DECISIONS.md has the numbers.
"""

from dataclasses import dataclass
from math import ceil
from typing import Any

from labelfield.models.mlgpf.spec import Spec
from labelfield.models.sizes import ALL_LABELS, VOCABULARY

_LARGE_VOCABULARY = 5000
_MOST_LABEL_LINEAR = 1 << 28
_MANY_ROWS = 10_000
_STEPS = 16


@dataclass(frozen=True)
class Plan:
    """The sizes and rates that the rule chose."""

    kernel: str
    label_linear: str
    n_latent: int
    n_inducing: int
    batch_size: int
    max_epochs: int
    learning_rate: float
    kl_weight: float
    n_negatives: int | None
    hinge_cost: float


def plan(n_rows: int, n_features: int, n_labels: int) -> Plan:
    """Return the sizes and rates that the rule above gives for a data set of this size."""
    is_vocabulary = n_features >= VOCABULARY
    batch_size = max(1, min(1000, max(50, ceil(n_rows / _STEPS)), n_rows))
    if n_features >= _LARGE_VOCABULARY:
        epochs, rate, kl_weight = 9, 0.1, 0.25
    elif is_vocabulary:
        epochs, rate, kl_weight = 16, 0.04, 0.5
    elif n_rows >= _MANY_ROWS:
        epochs, rate, kl_weight = 32, 0.015, 1.0
    else:
        epochs, rate, kl_weight = 40, 0.01, 1.0
    n_inducing = min(400, max(200, ceil(n_rows / 16)) if is_vocabulary else max(100, ceil(n_rows / 5)))
    has_label_linear = n_features >= _LARGE_VOCABULARY and n_features * n_labels <= _MOST_LABEL_LINEAR
    label_linear = "point" if has_label_linear else "off"
    steps = max(_STEPS, ceil(n_rows / batch_size))
    return Plan(
        kernel="se_linear_ard" if is_vocabulary else "matern32_ard",
        label_linear=label_linear,
        n_latent=min(n_labels, 300 if label_linear == "off" else 200),
        n_inducing=max(1, min(n_inducing, n_rows)),
        batch_size=batch_size,
        max_epochs=max(3, ceil(epochs * (_STEPS / steps) ** 0.5)),
        learning_rate=rate,
        kl_weight=kl_weight,
        n_negatives=1000 if n_labels > ALL_LABELS else None,
        hinge_cost=0.1 if has_label_linear else 1.0,
    )


def companion(n_rows: int, n_features: int, n_labels: int) -> dict[str, Any]:
    """Return options for a smaller and faster factor model beside linear machines, which do much of its work.

    On Bibtex, RCV1 and EUR-Lex the mix is as good on held-out rows as with the full model, in a third to a half of the
    time. With few features machines do less, and a factor model that is cut short costs the mix of Delicious 0.2 to 0.3
    points (docs/LAB.md): there it is the full one.
    """
    full = plan(n_rows, n_features, n_labels)
    if n_features < VOCABULARY:
        return {}
    epochs, rate = (6, 0.1) if n_features >= _LARGE_VOCABULARY else (10, 0.06)
    epochs = max(3, ceil(epochs * full.max_epochs / plan(1, n_features, n_labels).max_epochs))
    return {
        "n_inducing": min(200, full.n_inducing),
        "n_latent": min(n_labels, 200),
        "batch_size": max(full.batch_size, min(500, n_rows)),
        "max_epochs": epochs,
        "learning_rate": rate,
    }


def variants(first: Spec, max_epochs: int, learning_rate: float, n_views: int) -> list[dict[str, Any]]:
    """Return options in which further members of an ensemble may differ from the first, most useful first.

    For text, members differ in how rows are scaled and in whether labels have processes of their own; for measurements,
    in the smoothness of the kernel. Found by trying all sets of up to four of twelve members on held-out rows
    (docs/LAB.md). There are more than needed, because duplicates are left out.
    """
    more = {"n_latent": 3 * first.n_latent // 2, "max_epochs": 3 * max_epochs // 2}
    # Where labels have no processes of their own, the shared ones do all the work: more of them, trained for longer.
    shared: dict[str, Any] = {
        "label_linear": "off",
        "kernel": "se_ard + linear",
        "n_latent": 2 * first.n_latent,
        "max_epochs": 2 * max_epochs,
        "learning_rate": learning_rate / 2,
    }
    larger = {"n_latent": 3 * first.n_latent // 2, "n_inducing": 3 * first.n_inducing // 2}
    if first.n_features // n_views >= VOCABULARY:
        return [
            {"row_transform": "unit+log", **more},
            {"row_transform": "unit", **shared},
            {"row_transform": "unit+log", **shared, "n_inducing": 3 * first.n_inducing // 2},
            {"row_transform": "tfidf", **shared},
            {"row_transform": "log", **more},
            {"row_transform": "sqrt", **shared},
            {"row_transform": "sqrt+tfidf", **more},
        ]
    return [
        {"kernel": "se_ard"},
        {"row_transform": "sqrt"},
        {"kernel": "matern52_ard", "row_transform": "log"},
        {"kernel": "matern32_ard", "row_transform": "sqrt", **larger},
        {"kernel": "se_ard", **larger},
        {"kernel": "matern12_ard"},
        {"kernel": "matern32_ard", "row_transform": "log"},
    ]
