"""The arithmetic of a step: operations, bytes and messages, counted from the sizes of data, model and cluster.

B rows with z values each, M inducing inputs on S features, P processes, K labels of which J take part in a step, W
processes that divide the labels. Forward and backward together are three products of each kind; an exchange is a sum
over all processes (ring: each sends and receives 2 (W - 1) / W times the bytes).

    same on all processes      6 M² S (K_Z on the support of Z)  +  8 M³ (its factor, in float64)
    divided by rows            (B / W) (6 z M + 12 M² + 12 M P)
    divided by labels          (J / W) B (12 P + 12 p)           p weights of its own that a label has in a row
    numbers that are touched   28 bytes for each parameter with a gradient (Adam reads 4 numbers and writes 3)
    element by element         (J / W) B entries of the likelihood
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

FLOAT = 4
# Bytes of a parameter with its gradient and Adam's two numbers, and those that a step reads and writes.
KEPT, TOUCHED = 16, 28
# Sums over all processes in a step: moments and their gradient, gradients of what is shared, loss and norm, clock.
EXCHANGES = 5


@dataclass(frozen=True)
class Sizes:
    """Data (N, D, K, z values and y labels per row) and model (P, M, S, B, negatives, private weights per label)."""

    n_rows: int
    n_features: int
    n_labels: int
    n_nonzeros: float
    n_positives: float
    n_latent: int
    n_inducing: int
    batch_size: int
    n_negatives: int | None = 1000
    n_support: int = 8192
    n_private: int = 0
    # Labels that can hold in a batch, each equally likely; None: rare and frequent ones, as in the twins.
    n_pool: int | None = None

    @property
    def labels_per_step(self) -> float:
        """J: the labels that hold in some row of a batch, as expected, and the negatives that are drawn."""
        if self.n_negatives is None:
            return self.n_labels
        n_draws = self.batch_size * self.n_positives
        if self.n_pool is not None:
            held = self.n_pool * (1 - (1 - 1 / self.n_pool) ** n_draws)
        else:
            # Label ⌊K u³⌋ for uniform u: the chance of each is the difference of cube roots.
            edges = np.linspace(0, 1, min(self.n_labels, 1_000_000) + 1) ** (1 / 3)
            each, times = np.diff(edges), self.n_labels / (len(edges) - 1)
            held = float(times * -np.expm1(n_draws * np.log1p(-each / times)).sum())
        return float(min(self.n_labels, held + self.n_negatives))

    @property
    def n_shared(self) -> int:
        """Parameters that all processes have: Z, q(u), a weight per feature."""
        return (
            self.n_inducing * min(self.n_support, self.n_features)
            + 2 * self.n_inducing * self.n_latent
            + self.n_features
        )

    @property
    def n_of_labels(self) -> int:
        """Parameters of labels: Φ, b and private weights."""
        return self.n_labels * (self.n_latent + 1 + self.n_private)


class Work(NamedTuple):
    """What one process does in a step."""

    operations: float
    entries: float
    bytes_touched: float
    bytes_sent: float
    n_messages: int

    @staticmethod
    def of(sizes: Sizes, n_ranks: int = 1) -> Work:
        """Count what each of n_ranks processes does."""
        s, M, P, B = sizes, sizes.n_inducing, sizes.n_latent, sizes.batch_size
        J, W = s.labels_per_step, n_ranks
        own = s.n_nonzeros * min(s.n_private / max(s.n_features, 1), 1.0)
        same = 6.0 * M * M * min(s.n_support, s.n_features) + 8.0 * M**3
        rows = B / W * (6 * s.n_nonzeros * M + 12.0 * M * M + 12.0 * M * P)
        labels = J / W * B * (12.0 * P + 12.0 * own)
        touched = TOUCHED * (s.n_shared + J / W * (P + 1 + s.n_private))
        exchanged = FLOAT * (2 * 2 * B * P + s.n_shared)
        around = 2 * (W - 1) / W
        return Work(same + rows + labels, J / W * B, touched, around * exchanged, 2 * (W - 1) * EXCHANGES)


@dataclass(frozen=True)
class Machine:
    """How fast one process works: seconds of any step, per operation, per entry and per byte, and its memory."""

    name: str
    overhead: float
    per_operation: float
    per_entry: float
    per_byte: float
    memory: float = float("inf")


@dataclass(frozen=True)
class Network:
    """Bytes per second that a process can send, and the seconds of a message."""

    name: str
    bandwidth: float
    latency: float


class Prediction(NamedTuple):
    """What a training with n_ranks processes takes."""

    step_seconds: float
    network_seconds: float
    epoch_seconds: float
    bytes_per_rank: float
    bytes_sent: float

    @staticmethod
    def of(sizes: Sizes, machine: Machine, n_ranks: int = 1, network: Network | None = None) -> Prediction:
        work = Work.of(sizes, n_ranks)
        own = machine.overhead + machine.per_operation * work.operations + machine.per_entry * work.entries
        own += machine.per_byte * work.bytes_touched
        sent = 0.0
        if network is not None and n_ranks > 1:
            sent = work.bytes_sent / network.bandwidth + work.n_messages * network.latency
        n_steps = -(-sizes.n_rows // sizes.batch_size)
        return Prediction(own + sent, sent, n_steps * (own + sent), memory_of(sizes, n_ranks), work.bytes_sent)


def memory_of(sizes: Sizes, n_ranks: int = 1) -> float:
    """Return the bytes of a process: parameters with what Adam keeps, the batch, and the arrays of a step."""
    s, B = sizes, sizes.batch_size
    private = 8.0 * s.n_private * s.n_labels / n_ranks  # where each weight belongs
    parameters = KEPT * (s.n_shared + s.n_of_labels / n_ranks) + private
    batch = 3 * 8.0 * B * (s.n_nonzeros + s.n_positives)
    arrays = 8.0 * (6 * s.n_inducing**2 + 4 * s.n_inducing * B) + 32.0 * B * s.n_latent
    arrays += 3 * FLOAT * s.labels_per_step / n_ranks * s.n_latent
    return parameters + batch + arrays
