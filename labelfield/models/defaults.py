"""Sizes and rates for a data set that nobody chose them for: a rule of N, D and K.

A vocabulary is D of at least 1,000: bags of words rather than measurements.

| what | rule | why |
|---|---|---|
| kernel | se_linear_ard for a vocabulary, else matern32_ard | words add up; measurements do not |
| private processes | point estimate from 5,000 features and up to D K = 2^28, else off | rare words, rare labels |
| P, latent processes | K, at most 300, or 200 with private processes | these carry part of what P is for |
| M, inducing inputs | vocabulary: N / 16, from 200 to 400; else N / 5, from 100 to 600 | K_Z costs D M² |
| B, rows a batch | N / 16, from 50 to 1,000 | what costs once a batch (K_Z) is paid rarely |
| epochs | 9 from 5,000 features on, 25 for a vocabulary, else 40; fewer of more than 16 steps | converged by then |
| learning rate | 0.1, 0.03 and 0.01 | the more epochs, the smaller |
| weight of the divergence | 0.25 from 5,000 features on, 0.5 for a vocabulary, else 1 | see below |
| negatives | all labels up to 5,000, else 1,000 drawn for each batch | beyond, all labels cost more than they teach |

The true bound (weight 1) is too cautious about words: many are rare, and for each the posterior would rather stay at
the prior than pay for leaving it. With a smaller weight rankings are better on every text, and the calibration on
held-out rows makes up for the surer probabilities. Of measurements the true bound is best.

How it was chosen: on rows held out of the training rows of seven data sets (EUR-Lex, Bibtex, Delicious, RCV1, Enron,
Yeast, Emotions), not on their test rows; docs/DECISIONS.md has the numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from labelfield.variational.grid import LARGE_GRID

__all__ = ["SUPPORT", "VOCABULARY", "ClassPlan", "DeepPlan", "Plan", "plan", "plan_deep", "plan_multiclass"]

VOCABULARY = 1000
# Inducing inputs have values on the most frequent features alone: K_Z costs M² for each of them, and a word that few
# rows have tells rows apart, which the rows' own norms still see, but does not bring them together.
SUPPORT = 8192
_LARGE_VOCABULARY = 5000
_ALL_LABELS = 5000
_MOST_PRIVATE = 1 << 28
_STEPS = 16


@dataclass(frozen=True)
class Plan:
    """What the rule chose."""

    kernel: str
    private: str
    n_latent: int
    n_inducing: int
    batch_size: int
    max_epochs: int
    learning_rate: float
    kl_weight: float
    n_negatives: int | None


def plan(n_rows: int, n_features: int, n_labels: int) -> Plan:
    """The rule above."""
    is_vocabulary = n_features >= VOCABULARY
    batch_size = max(1, min(1000, max(50, ceil(n_rows / _STEPS)), n_rows))
    if n_features >= _LARGE_VOCABULARY:
        epochs, rate, kl_weight = 9, 0.1, 0.25
    elif is_vocabulary:
        epochs, rate, kl_weight = 25, 0.03, 0.5
    else:
        epochs, rate, kl_weight = 40, 0.01, 1.0
    n_inducing = min(400, max(200, ceil(n_rows / 16))) if is_vocabulary else min(600, max(100, ceil(n_rows / 5)))
    has_private = n_features >= _LARGE_VOCABULARY and n_features * n_labels <= _MOST_PRIVATE
    private = "point" if has_private else "off"
    steps = max(_STEPS, ceil(n_rows / batch_size))
    return Plan(
        kernel="se_linear_ard" if is_vocabulary else "matern32_ard",
        private=private,
        n_latent=min(n_labels, 300 if private == "off" else 200),
        n_inducing=max(1, min(n_inducing, n_rows)),
        batch_size=batch_size,
        max_epochs=max(3, ceil(epochs * (_STEPS / steps) ** 0.5)),
        learning_rate=rate,
        kl_weight=kl_weight,
        n_negatives=1000 if n_labels > _ALL_LABELS else None,
    )


@dataclass(frozen=True)
class ClassPlan:
    """What the rule for multi-class models chose."""

    kernel: str
    own_kernel: bool
    posterior: str
    inducing: str
    n_inducing: int
    batch_size: int
    max_epochs: int
    learning_rate: float
    n_negatives: int | None


_ALL_CLASSES = 200
_MANY_ROWS = 100_000
_MOST_COVARIANCES = 1 << 24
_CLASS_STEPS = 3000


def plan_multiclass(
    n_rows: int, n_features: int, n_classes: int, posterior: str | None = None, inducing: str | None = None
) -> ClassPlan:
    """Sizes and rates of a model with a process for each class.

    | what | rule | why |
    |---|---|---|
    | kernel | se_linear_ard for a vocabulary, else matern32_ard | as for several labels a row |
    | inducing inputs | shared by all classes: 400, at most N / 4, 800 from 100,000 rows on | they help each class |
    | kernels | of each class's own with inducing inputs of its own, else shared | K_Z is then factorised once |
    | posterior | full up to 2^24 covariances and 100,000 rows, else diagonal | then time is better spent on M |
    | epochs | as many as make 3,000 steps, from 10 to 200 | converged by then |
    | rivals | all classes up to 200, else 100 drawn for each batch | beyond, all classes cost more than they teach |
    """
    is_own = inducing == "per_class"
    has_many_rows = n_rows >= _MANY_ROWS
    most = 100 if is_own else 800 if has_many_rows else 400
    n_inducing = max(1, min(n_rows, most, max(50, n_rows // 4)))
    batch_size = max(1, min(n_rows, 1000 if has_many_rows else 500))
    n_steps = ceil(n_rows / batch_size)
    covariances = n_classes * n_inducing**2
    return ClassPlan(
        kernel="se_linear_ard" if n_features >= VOCABULARY else "matern32_ard",
        own_kernel=is_own,
        posterior="whitened_diagonal" if has_many_rows or covariances > _MOST_COVARIANCES else "whitened_full",
        inducing="free",
        n_inducing=n_inducing,
        batch_size=batch_size,
        max_epochs=max(10, min(200, ceil(_CLASS_STEPS / n_steps))),
        learning_rate=0.03 if posterior == "point" else 0.02,
        n_negatives=100 if n_classes > _ALL_CLASSES else None,
    )


@dataclass(frozen=True)
class DeepPlan:
    """What the rule for deep kernels chose."""

    network: str
    hidden: tuple[int, ...]
    dropout: float
    n_processes: int
    grid_size: int
    own_kernel: bool
    posterior: str
    batch_size: int
    network_epochs: int
    process_epochs: int
    max_epochs: int
    learning_rate: float
    process_learning_rate: float
    joint_learning_rate: float
    n_negatives: int | None


_GRIDS = {1: 64, 2: 20, 3: 10}
_DEEP_STEPS, _BAG_STEPS = 3000, 500


def plan_deep(
    n_rows: int,
    n_features: int,
    n_labels: int,
    is_multilabel: bool,
    network: str | None,
    subset_size: int,
    grid_size: int | None,
) -> DeepPlan:
    """Sizes and rates of a network with Gaussian processes on its features.

    | what | rule | why |
    |---|---|---|
    | network | bag for a vocabulary, else mlp; cnn where asked for | words are sparse |
    | J, processes | as many as classes; of several labels a row at most 512 | the paper's; the mixing is K × J |
    | grid | 64, 20 or 10 points a dimension for 1, 2 or 3 features of a process | cells shorter than lengths |
    | posterior | whitened up to 1,024 points a dimension, else not | a factor of K_d is cheap until then |
    | B, rows a batch | 500 for a vocabulary, 1,000 from 100,000 rows on, else 250 | enough steps in an epoch |
    | epochs | 500 steps for a vocabulary, else 3,000, from 4 to 60; as many jointly | converged by then |
    | learning rate | 3e-3 for a vocabulary, else 1e-3, jointly half of that | embeddings start small |
    | dropout | 0.5 for a vocabulary and images, else 0.2 | best on the tables of the benchmarks |
    """
    is_vocabulary = n_features >= VOCABULARY
    grid_size = grid_size or _GRIDS[subset_size]
    network = network or ("bag" if is_vocabulary else "mlp")
    is_bag = network == "bag"
    batch_size = max(1, min(n_rows, 500 if is_bag else 1000 if n_rows >= _MANY_ROWS else 250))
    n_steps = _BAG_STEPS if is_bag else _DEEP_STEPS
    epochs = max(4, min(60, ceil(n_steps * batch_size / n_rows)))
    return DeepPlan(
        network=network,
        hidden={"mlp": (256, 128), "bag": (512,), "cnn": (256,)}.get(network, ()),
        dropout={"mlp": 0.2, "bag": 0.5, "cnn": 0.5}.get(network, 0.0),
        n_processes=min(n_labels, 512) if is_multilabel else n_labels,
        grid_size=grid_size,
        own_kernel=True,
        posterior="whitened_kronecker" if grid_size < LARGE_GRID else "kronecker",
        batch_size=batch_size,
        network_epochs=epochs,
        process_epochs=max(1, epochs // 5),
        max_epochs=epochs,
        learning_rate=3e-3 if is_bag else 1e-3,
        process_learning_rate=1e-2,
        joint_learning_rate=1.5e-3 if is_bag else 5e-4,
        n_negatives=1000 if is_multilabel and n_labels > _ALL_LABELS else None,
    )
