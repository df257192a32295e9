"""Default sizes and rates for a network with Gaussian processes on its features, as a rule of N, D and K."""

from dataclasses import dataclass
from math import ceil

from labelfield.models.sizes import ALL_LABELS, MANY_ROWS, VOCABULARY
from labelfield.variational.grid import LARGE_GRID

_GRIDS = {1: 64, 2: 20, 3: 10}
_STEPS = {"bag": 500, "mlp": 1300}
_MOST_STEPS = 3000


@dataclass(frozen=True)
class DeepPlan:
    """The sizes and rates that the rule for deep kernels chose."""

    network: str
    hidden: tuple[int, ...]
    dropout: float
    n_processes: int
    grid_size: int
    kernel_per_process: bool
    posterior: str
    batch_size: int
    network_epochs: int
    process_epochs: int
    max_epochs: int
    learning_rate: float
    process_learning_rate: float
    joint_learning_rate: float
    n_negatives: int | None


def plan(
    n_rows: int,
    n_features: int,
    n_labels: int,
    is_multilabel: bool,
    network: str | None,
    subset_size: int,
    grid_size: int | None,
) -> DeepPlan:
    """Return the sizes and rates of a network with Gaussian processes on its features, for a data set of this size.

    | what | rule | why |
    |---|---|---|
    | network | bag for a vocabulary, else mlp; cnn where requested | words are sparse |
    | J, processes | as many as classes; with several labels per row at most 512 | as in the paper; A is K × J |
    | grid | 64, 20 or 10 points per dimension for 1, 2 or 3 features per process | cells shorter than lengths |
    | posterior | whitened up to 1,024 points per dimension, else not | a factor of K_d is cheap until then |
    | B, rows per batch | 500 for a vocabulary, 1,000 from 100,000 rows on, else 250 | enough steps per epoch |
    | epochs | 500 steps of a bag, 1,300 of an mlp, else 3,000; 4 to 60 epochs, as many jointly | converged by then |
    | learning rate | 3e-3 for a bag, 2.5e-3 for an mlp, else 1e-3, jointly half | the fewer steps, the larger |
    | dropout | 0.5 for a vocabulary and images, else 0.2 | best on the tables of the benchmarks |
    """
    is_vocabulary = n_features >= VOCABULARY
    grid_size = grid_size or _GRIDS[subset_size]
    network = network or ("bag" if is_vocabulary else "mlp")
    is_bag = network == "bag"
    batch_size = max(1, min(n_rows, 500 if is_bag else 1000 if n_rows >= MANY_ROWS else 250))
    epochs = max(4, min(60, ceil(_STEPS.get(network, _MOST_STEPS) * batch_size / n_rows)))
    rate = {"bag": 3e-3, "mlp": 2.5e-3}.get(network, 1e-3)
    return DeepPlan(
        network=network,
        hidden={"mlp": (256, 128), "bag": (512,), "cnn": (256,)}.get(network, ()),
        dropout={"mlp": 0.2, "bag": 0.5, "cnn": 0.5}.get(network, 0.0),
        n_processes=min(n_labels, 512) if is_multilabel else n_labels,
        grid_size=grid_size,
        kernel_per_process=True,
        posterior="whitened_kronecker" if grid_size < LARGE_GRID else "kronecker",
        batch_size=batch_size,
        network_epochs=epochs,
        process_epochs=max(1, epochs // 5),
        max_epochs=epochs,
        learning_rate=rate,
        process_learning_rate=1e-2,
        joint_learning_rate=rate / 2,
        n_negatives=1000 if is_multilabel and n_labels > ALL_LABELS else None,
    )
