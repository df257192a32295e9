"""One step of gradient training: the bound, its gradient, the update. On a GPU it is captured once and then replayed.

The outcome of a step, such as a bound that is not finite, stays on the device until it is read: a GPU that is queried
after every step is idle most of the time.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from labelfield.inference.optimisers import RowOptimiser
from labelfield.inference.source import ResidentSource, Sizes, Source
from labelfield.inference.team import NO_TEAM, Team, values_of
from labelfield.linalg.cholesky import FactorisationError
from labelfield.linalg.rows import Rows


class Estimate(Protocol):
    """An unbiased estimate of the evidence lower bound of the whole data set."""

    def bound(self, kl_weight: float) -> Tensor:
        """Return the bound in nats, with its divergence weighted by `kl_weight`."""


# From rows, labels as the source has them, the number of rows of the data set, and a generator on the same device.
Objective = Callable[[Rows, Any, int, torch.Generator], Estimate]


class Tally(NamedTuple):
    """The sum of the bounds of the steps since the last reading, and how many of them were good and bad."""

    sum_bound: float
    n_good: int
    n_bad: int
    n_bad_at_end: int


class _Step(NamedTuple):
    """A step that was taken, kept so that it can be repeated."""

    rows: NDArray[np.int64]
    n_data: int
    seed: int | None
    is_replayed: bool


class Stepper:
    """Steps of one objective on one source of rows."""

    def __init__(
        self,
        objective: Objective,
        source: Source,
        optimiser: RowOptimiser,
        generator: torch.Generator,
        kl_weight: float = 1.0,
        clip_norm: float | None = None,
        is_capturable: bool = False,
        team: Team = NO_TEAM,
    ) -> None:
        self.objective, self.source, self.optimiser, self.generator = objective, source, optimiser, generator
        self.kl_weight, self.clip_norm, self.team = kl_weight, clip_norm, team
        self.parameters, self.device = optimiser.parameters, optimiser.device
        # On the device of the parameters. The given generator is on the CPU, where its state can be saved.
        self.draws = generator if self.device.type == "cpu" else torch.Generator(self.device)
        self._tally = torch.zeros(4, dtype=torch.float64, device=self.device)
        self.is_capturable = is_capturable and isinstance(source, ResidentSource) and self.device.type == "cuda"
        self._captured: _Captured | None = None
        self._since_reading: list[_Step] = []

    def step(self, rows: NDArray[np.int64], n_data: int) -> None:
        """Take a step on these rows, which stand for n_data."""
        captured, seed = self._captured, None
        if self.draws is not self.generator:
            # A new seed for each step, so that it draws the same numbers whether it is launched or replayed.
            seed = int(torch.randint(1 << 62, (), generator=self.generator))
        if captured is not None and captured.fits(rows, n_data):
            self._since_reading.append(_Step(rows, n_data, seed, is_replayed=True))
            self._seed(seed)
            captured.replay(rows)
            return
        step = _Step(rows, n_data, seed, is_replayed=False)
        self._launch(step)
        self._since_reading.append(step)
        # The step that was just launched has warmed everything up; a batch of unusual size does not matter.
        if self.is_capturable and (captured is None or captured.is_for_others(rows, n_data)):
            assert isinstance(self.source, ResidentSource)
            self._captured = _Captured(self, self.source, len(rows), n_data)

    def _seed(self, seed: int | None) -> None:
        if seed is not None:
            self.draws.manual_seed(seed)

    def _launch(self, step: _Step) -> None:
        self._seed(step.seed)
        self.compute(*self.source.batch(step.rows, self.device), step.n_data)

    def compute(self, X: Rows, Y: Any, n_data: int) -> None:
        """Compute the bound, its gradient and the update without waiting for the device."""
        self.optimiser.zero_grad()
        loss = -self.objective(X, Y, n_data, self.draws).bound(self.kl_weight) / n_data
        loss.backward()  # type: ignore[no-untyped-call]  # torch's is untyped
        with torch.no_grad():
            loss, norm = self.team.combine(loss, self.parameters)
            if self.clip_norm is not None:
                for gradient in [values_of(p.grad) for p in self.parameters if p.grad is not None]:
                    gradient.mul_((self.clip_norm / (norm + 1e-6)).clamp_max(1))
            is_bad = 1 - torch.isfinite(loss + norm).float()
            self.optimiser.update(is_bad)
            self._count(torch.where(is_bad > 0, 0, -loss), is_bad)

    def _count(self, bound: Tensor, is_bad: Tensor) -> None:
        self._tally[:3] += torch.stack([bound, 1 - is_bad.double(), is_bad.double()])
        self._tally[3] = (self._tally[3] + 1) * is_bad

    def read(self) -> Tally:
        """Return how the steps since the last reading went.

        Once a replayed step is bad, so are those after it, since it has changed nothing. They are launched again: a
        matrix may only have needed more jitter, which a captured step cannot find out.
        """
        tally, steps = self._read(), self._since_reading
        self._since_reading = []
        if not tally.n_bad:
            return tally
        self.is_capturable, self._captured = False, None  # from now on every step is launched
        lost = [step for step in steps[len(steps) - tally.n_bad_at_end :] if step.is_replayed]
        if not lost:
            return tally
        for step in lost:
            try:
                self._launch(step)
            except FactorisationError:
                self._count(torch.zeros((), device=self.device), torch.ones((), device=self.device))
        again = self._read()
        n_bad = tally.n_bad - len(lost) + again.n_bad
        return Tally(tally.sum_bound + again.sum_bound, tally.n_good + again.n_good, n_bad, again.n_bad_at_end)

    def _read(self) -> Tally:
        sum_bound, n_good, n_bad, at_end = self._tally.tolist()
        self._tally.zero_()
        return Tally(sum_bound, int(n_good), int(n_bad), int(at_end))


class _Captured:
    """A step on batches of a fixed number of rows, recorded once; to replay it is a single launch."""

    def __init__(self, stepper: Stepper, source: ResidentSource, n_rows: int, n_data: int) -> None:
        self.source, self.n_rows, self.n_data = source, n_rows, n_data
        self.optimiser = stepper.optimiser
        self.sizes: Sizes = source.fixed_sizes(n_rows)
        self.rows = torch.zeros(n_rows, dtype=torch.long, device=stepper.device)
        self.graph = torch.cuda.CUDAGraph()
        self.graph.register_generator_state(stepper.draws)
        stepper.optimiser.zero_grad()
        torch.cuda.synchronize()
        with torch.cuda.graph(self.graph):
            stepper.compute(*source.gather(self.rows, self.sizes), n_data)

    def is_for_others(self, rows: NDArray[np.int64], n_data: int) -> bool:
        return (len(rows), n_data) != (self.n_rows, self.n_data)

    def fits(self, rows: NDArray[np.int64], n_data: int) -> bool:
        return not self.is_for_others(rows, n_data) and self.source.fits(rows, self.sizes)

    def replay(self, rows: NDArray[np.int64]) -> None:
        self.rows.copy_(torch.from_numpy(rows), non_blocking=True)
        self.graph.replay()
        self.optimiser.mark_changed()


def all_finite(tensors: Sequence[Tensor]) -> bool:
    """Return whether all numbers are finite, by the norm of the tensors: that allocates nothing of their size."""
    return bool(torch.isfinite(nn.utils.get_total_norm(tensors)))
