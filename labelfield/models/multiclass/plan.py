"""Default sizes and rates for a model with one process per class, as a rule of N, D and K."""

from dataclasses import dataclass
from math import ceil

from labelfield.models.sizes import MANY_ROWS, VOCABULARY

_ALL_CLASSES = 200
_MOST_COVARIANCES = 1 << 17
_CLASS_STEPS, _MOST_STEPS = 1200, 3000


@dataclass(frozen=True)
class ClassPlan:
    """The sizes and rates that the rule for multi-class models chose."""

    kernel: str
    kernel_per_class: bool
    posterior: str
    inducing: str
    n_inducing: int
    batch_size: int
    max_epochs: int
    learning_rate: float
    n_negatives: int | None


def plan(
    n_rows: int, n_features: int, n_classes: int, posterior: str | None = None, inducing: str | None = None
) -> ClassPlan:
    """Return the sizes and rates of a model with a process per class, for a data set of this size.

    | what | rule | why |
    |---|---|---|
    | kernel | se_linear_ard for a vocabulary, else matern32_ard | as for several labels per row |
    | inducing inputs | shared by all classes: 400, at most N / 4, 800 from 100,000 rows on | they help every class |
    | kernels | per class if inducing inputs are per class, else shared | K_Z is then factorised once |
    | posterior | full up to 2^17 covariances (K M²), else diagonal | a full one is most of a step and gains little |
    | epochs | as many as make 1,200 steps, or 3,000 from 100,000 rows on; from 10 to 200 | converged by then |
    | rivals | all classes up to 200, else 100 drawn per batch | beyond, all classes cost more than they teach |
    """
    is_own = inducing == "per_class"
    has_many_rows = n_rows >= MANY_ROWS
    most = 100 if is_own else 800 if has_many_rows else 400
    n_inducing = max(1, min(n_rows, most, max(50, n_rows // 4)))
    batch_size = max(1, min(n_rows, 1000 if has_many_rows else 500))
    n_steps = ceil(n_rows / batch_size)
    covariances = n_classes * n_inducing**2
    return ClassPlan(
        kernel="se_linear_ard" if n_features >= VOCABULARY else "matern32_ard",
        kernel_per_class=is_own,
        posterior="whitened_diagonal" if covariances > _MOST_COVARIANCES else "whitened_full",
        inducing="free",
        n_inducing=n_inducing,
        batch_size=batch_size,
        max_epochs=max(10, min(200, ceil((_MOST_STEPS if has_many_rows else _CLASS_STEPS) / n_steps))),
        learning_rate=0.02 if has_many_rows and posterior != "point" else 0.03,
        n_negatives=100 if n_classes > _ALL_CLASSES else None,
    )
