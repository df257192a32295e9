"""Training by gradients: steps of an optimiser on an estimate of the bound, from batches of rows."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from labelfield.errors import DataError
from labelfield.inference.adam import RowAdam
from labelfield.inference.checkpoint import under
from labelfield.inference.loop import Algorithm, Info, breakdown
from labelfield.inference.optimisers import RULES, RowOptimiser, RowRule
from labelfield.inference.run import Clock, Run, Settings
from labelfield.inference.source import Source
from labelfield.inference.stepper import Objective, Stepper, all_finite
from labelfield.inference.team import NO_TEAM, Team
from labelfield.linalg.cholesky import FactorisationError

_MOST_BAD_STEPS = 20
# Steps that a GPU is given before their outcome is read.
_STEPS_AHEAD = 64

# From the rows of an epoch in random order, the size of a batch, the number of batches, and a generator: the batches.
Batches = Callable[[NDArray[Any], int, int, np.random.Generator], Sequence[NDArray[Any]]]

# The parameters to train, each at that many times the learning rate.
Rates = Mapping[nn.Parameter, float]


def _optimiser(settings: Settings, parameters: list[nn.Parameter], scales: list[float]) -> RowOptimiser:
    """Return the optimiser that the settings name."""
    if settings.optimiser == "adam":
        return RowAdam(parameters, settings.learning_rate, scales)
    return RowRule(RULES[settings.optimiser], parameters, settings.learning_rate, scales)


class Gradient(Algorithm[nn.Module]):
    """Steps of an optimiser. The state is the model, which each step changes in place.

    A step that fails is skipped: its rows come again in the next epoch. Too many in a row end the run.
    """

    def __init__(
        self, model: nn.Module, settings: Settings, seed: int, rates: Rates | None = None, team: Team = NO_TEAM
    ) -> None:
        """Train the parameters in `rates`, each at that many times the rate of the settings; by default all, at 1."""
        self.model, self.settings, self.team = model, settings, team
        rates = dict.fromkeys(model.parameters(), 1.0) if rates is None else rates
        self.parameters = [parameter for parameter in rates if parameter.requires_grad]
        scales = [rates[parameter] for parameter in self.parameters]
        self.optimiser = _optimiser(settings, self.parameters, scales)
        self.generator = torch.Generator().manual_seed(seed)
        self.n_bad_steps = 0  # since the last good one
        self.steps_ahead = 1 if self.optimiser.device.type == "cpu" else _STEPS_AHEAD

    def open(self, objective: Objective, source: Source, batches: Batches | None, is_capturable: bool) -> None:
        """Take rows from this source until `close`."""
        if source.n_rows == 0:
            raise DataError("there are no training rows", expected="at least one", fix="Check the training data.")
        self.source, self.batches, how = source, batches, self.settings
        self.held_out = how.held_out_rows(source.n_rows)
        self.stepper = Stepper(
            objective, source, self.optimiser, self.generator, how.kl_weight, how.clip_norm, is_capturable, self.team
        )

    def close(self) -> None:
        """Release the rows, which belong to the caller."""
        del self.source, self.batches, self.stepper

    def part(self, run: Run) -> Gradient:
        """Return itself, for this part of a run: on all rows, or at first on all but those held out."""
        self.is_used = np.ones(self.source.n_rows, np.bool_)
        self.is_used[self.held_out] = run.is_finishing
        self.n_rows = int(self.is_used.sum())
        self.n_steps = -(-self.n_rows // self.settings.batch_size)
        self.drawn: tuple[int, Sequence[NDArray[Any]]] = (-1, [])  # the batches of an epoch
        return self

    def _batch(self, run: Run) -> NDArray[np.int64]:
        """Return the rows of the next step. They depend only on the seed and the epoch, counted through all stages."""
        epoch = len(run.history)
        if self.drawn[0] != epoch:
            self.drawn = (-1, [])  # the last ones take memory
            rng = np.random.default_rng((self.settings.seed, epoch))
            order = self.source.order(rng)
            order = order[self.is_used[order]]
            # All of one size, which a GPU needs; the few rows that are left over come in other epochs.
            size = self.n_rows // self.n_steps
            if self.batches is not None:
                found = self.batches(order, size, self.n_steps, rng)
            else:
                found = list(order[: size * self.n_steps].reshape(self.n_steps, size))
            self.drawn = (epoch, found)
        return self.drawn[1][run.step].astype(np.int64, copy=False)

    def step_size(self, state: nn.Module, run: Run) -> float:
        return Clock(run, self.settings).rate()

    def step(self, state: nn.Module, run: Run) -> tuple[nn.Module, Info]:
        self.optimiser.rate = self.step_size(state, run)
        problem, n_done = "", run.step + 1
        try:
            self.stepper.step(self._batch(run), self.n_rows)
        except FactorisationError as error:
            problem = self._skip(run, str(error), 1)
        if n_done % self.steps_ahead == 0 or n_done == self.n_steps:
            info = self.collect(run)
            return state, info._replace(problem=info.problem or problem)
        return state, Info(problem=problem)

    def collect(self, run: Run) -> Info:
        tally = self.stepper.read()
        if tally.n_good:
            self.n_bad_steps = tally.n_bad_at_end - tally.n_bad
        problem = self._skip(run, "the bound or its gradient is not finite", tally.n_bad) if tally.n_bad else ""
        return Info(tally.sum_bound, tally.n_good, problem)

    def _skip(self, run: Run, problem: str, n_steps: int) -> str:
        """Count bad steps and warn about them, or raise if there are too many; return the problem and what to do."""
        self.n_bad_steps += n_steps
        rate = self.settings.learning_rate
        advice = f"{problem}. Lower learning_rate (now {rate:g}), set clip_norm, or scale the rows"
        if self.n_bad_steps > _MOST_BAD_STEPS or not all_finite(self.parameters):
            raise breakdown(run, advice)
        for _ in range(n_steps):
            warnings.warn(f"step skipped: {problem}", UserWarning, stacklevel=4)
        return advice

    def tensors(self, state: nn.Module) -> dict[str, Tensor]:
        tensors = {f"model.{name}": value for name, value in state.state_dict().items()}
        tensors |= {f"optimiser.{name}": value for name, value in self.optimiser.tensors().items()}
        tensors |= {"generator": self.generator.get_state(), "n_bad_steps": torch.tensor(self.n_bad_steps)}
        if self.team.cluster.size == 1:
            return tensors
        parts = {name: value for name, value in tensors.items() if value.dim() and self.own_rows(name, 0) is not None}
        return tensors | self.team.collect("the saving of a checkpoint", parts)

    def own_rows(self, name: str, n_rows: int) -> slice | None:
        """Return which of n_rows rows of a tensor of a checkpoint this process has; None for all."""
        kind, _, rest = name.partition(".")
        if kind == "optimiser":
            number = int(rest.partition(".")[0])
            rest = next(own for own, part in self.model.named_parameters() if part is self.parameters[number])
        return self.team.divided.get(rest) if kind in ("model", "optimiser") else None

    def restore(self, tensors: dict[str, Tensor]) -> nn.Module:
        # Where the rows of this process begin is known already; in the file it is told of all rows.
        known = {f"model.{name}": value for name, value in self.model.named_buffers() if name.endswith("pointers")}
        tensors |= known if self.team.cluster.size > 1 else {}
        self.model.load_state_dict(under("model.", tensors))
        self.optimiser.restore(under("optimiser.", tensors))
        self.generator.set_state(tensors["generator"])
        self.n_bad_steps = int(tensors["n_bad_steps"])
        return self.model
