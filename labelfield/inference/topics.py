"""Fitting a topic model: EM, online EM and Gibbs sampling, as algorithms for the training loop."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from labelfield.inference.checkpoint import Checkpoint
from labelfield.inference.loop import Algorithm, Info, Loop, breakdown
from labelfield.inference.run import Monitor, Run, Settings
from labelfield.topics.em import EMOptions, EMState, Sums, em_step, is_settled, restored_em, start_em, tensors_of_em
from labelfield.topics.gibbs import GibbsOptions, GibbsState, gibbs_step, start_gibbs
from labelfield.topics.rows import TopicRows
from labelfield.topics.state import Priors, Topics, restored_topics, tensors_of

__all__ = ["EM", "Chain", "Gibbs", "OnlineEM", "TopicAlgorithm", "exposed", "sums_behind", "train_topics"]

# Steps of EM before the first sweep of the sampler, which would take long to find the topics by itself.
_EM_BEFORE_GIBBS = 20


class EM(Algorithm[EMState]):
    """EM on all rows in each step."""

    n_steps = 1

    def __init__(self, data: TopicRows, options: EMOptions) -> None:
        self.data, self.options = data, options

    def start(self, topics: Topics) -> EMState:
        return start_em(topics)

    def step(self, state: EMState, run: Run) -> tuple[EMState, Info]:
        state, info = em_step(state, self.data, self.options)
        return state, _info(run, info.objective, self.data.n_rows)

    def is_settled(self, state: EMState) -> bool:
        return is_settled(state, self.options)

    def detach(self, state: EMState) -> EMState:
        return EMState(state.topics, n_steps=state.n_steps)

    def tensors(self, state: EMState) -> dict[str, Tensor]:
        return tensors_of_em(state)

    def restore(self, tensors: dict[str, Tensor]) -> EMState:
        return restored_em(tensors, self.data)


class OnlineEM(Algorithm[EMState]):
    """EM on a batch of rows in each step, which are made when they are needed; step t counts (t + offset)^-power.

    The rows that `chosen` names stand for all n_rows. Bounds of different batches say little about convergence, so that
    it never settles.
    """

    def __init__(
        self,
        rows: Callable[[NDArray[np.int64]], TopicRows],
        chosen: NDArray[np.int64],
        n_rows: int,
        batch_size: int,
        options: EMOptions,
        *,
        power: float,
        offset: float,
        seed: int,
    ) -> None:
        self.rows, self.chosen, self.n_rows, self.options = rows, chosen, n_rows, options
        self.n_steps = -(-len(chosen) // batch_size)
        self.power, self.offset, self.seed = power, offset, seed

    def start(self, topics: Topics) -> EMState:
        return start_em(topics)

    def step(self, state: EMState, run: Run) -> tuple[EMState, Info]:
        order = np.random.default_rng((self.seed, run.epoch)).permutation(self.chosen)
        data = self.rows(np.sort(np.array_split(order, self.n_steps)[run.step]))
        rate = self.step_size(state, run)
        state, info = em_step(state, data, self.options, rate=rate, n_data=self.n_rows)
        return EMState(state.topics, state.sums, n_steps=state.n_steps), _info(run, info.objective, self.n_rows)

    def step_size(self, state: EMState, run: Run) -> float:
        return float(min(1.0, (state.n_steps + self.offset) ** -self.power)) if state.n_steps else 1.0

    def tensors(self, state: EMState) -> dict[str, Tensor]:
        return tensors_of_em(state)

    def restore(self, tensors: dict[str, Tensor]) -> EMState:
        return restored_em(tensors, None)


def sums_behind(topics: Topics, data: TopicRows, priors: Priors, in_topics: Tensor, n_data: int) -> Sums:
    """Return what online EM would remember of n_data rows like these if they had led to these topics, in which every
    label has a place. `in_topics` (K,) is the number of labels that each topic gave."""
    counts = topics.V.double() * (in_topics + topics.n_labels * topics.eta) - topics.eta
    psi, strength = data.design.times(topics.W), priors.shape_strength * n_data
    softplus = torch.nn.functional.softplus(psi).sum(0, dtype=torch.float64) * (n_data / data.n_rows)
    tables = topics.r * (strength + softplus) - strength
    return Sums(counts.clamp_min_(0).to(topics.V.dtype), None, None, tables.clamp_min_(0), softplus)


def exposed(sums: Sums) -> Sums:
    """Return the sums with exposures, for rows without missing labels: where W is best, the exposures of a topic are as
    large as its counts."""
    if sums.exposure is not None:
        return sums
    total = sums.counts.sum(0)
    return sums._replace(exposure=total.expand_as(sums.counts), exposure_rest=total)


@dataclass(frozen=True, eq=False)
class Chain:
    """A sampler and the draws that were kept."""

    sampler: GibbsState
    draws: tuple[Topics, ...] = ()


class Gibbs(Algorithm[Chain]):
    """Sweeps over all rows; n_draws are kept, at equal distances in the second half of the epochs `first` to `last`."""

    n_steps = 1

    def __init__(
        self,
        data: TopicRows,
        options: GibbsOptions,
        em_options: EMOptions,
        *,
        first: int,
        last: int,
        n_draws: int,
        seed: int,
    ) -> None:
        self.data, self.options, self.em_options, self.seed = data, options, em_options, seed
        middle = first + (last - first) // 2
        self.kept_at = {int(np.ceil(at)) for at in np.linspace(last, middle, n_draws, endpoint=False)}

    def start(self, topics: Topics) -> Chain:
        """Return the state before the first sweep, a few steps of EM after these topics."""
        state = start_em(topics)
        for _ in range(_EM_BEFORE_GIBBS):
            state, _ = em_step(state, self.data, self.em_options)
        return self._chain(state.topics)

    def attach(self, state: Chain) -> Chain:
        return self._chain(state.sampler.topics)

    def _chain(self, topics: Topics) -> Chain:
        # The first sweep draws from (seed, 0), which is the same as the seed alone.
        return Chain(start_gibbs(topics, self.data, np.random.default_rng((self.seed, 1 << 31))))

    def step(self, state: Chain, run: Run) -> tuple[Chain, Info]:
        # Each sweep has its own generator, so that a resumed run draws the same numbers.
        rng = np.random.default_rng((self.seed, run.epoch))
        sampler, info = gibbs_step(state.sampler, self.data, self.options, rng)
        draws = (*state.draws, sampler.topics) if run.epoch + 1 in self.kept_at else state.draws
        return Chain(sampler, draws), _info(run, info.objective, self.data.n_rows)

    def tensors(self, state: Chain) -> dict[str, Tensor]:
        sampler = state.sampler
        result: dict[str, Tensor] = {"U": sampler.U, "psi": sampler.psi, "n_steps": torch.tensor(sampler.n_steps)}
        for number, topics in enumerate((sampler.topics, *state.draws)):
            result |= {f"{number}.{name}": value for name, value in tensors_of(topics).items()}
        return result

    def restore(self, tensors: dict[str, Tensor]) -> Chain:
        device = self.data.design.X.device
        groups: dict[int, dict[str, Any]] = {}
        for key, value in tensors.items():
            number, dot, name = key.partition(".")
            if dot:
                groups.setdefault(int(number), {})[name] = value.to(device)
        topics = [restored_topics(groups[number]) for number in sorted(groups)]
        sampler = GibbsState(
            topics[0], tensors["U"].to(device), tensors["psi"].to(device), n_steps=int(tensors["n_steps"])
        )
        return Chain(sampler, tuple(topics[1:]))


def _info(run: Run, objective: float, n_rows: int) -> Info:
    if not np.isfinite(objective):
        raise breakdown(run, "the objective is not finite. Scale the rows, or lower weight_scale")
    return Info(objective / n_rows, 1)


TopicAlgorithm: TypeAlias = EM | OnlineEM | Gibbs


def train_topics(
    algorithm_of: Callable[[Run], TopicAlgorithm],
    topics: Topics,
    settings: Settings,
    *,
    hold: Callable[[list[Topics]], None],
    monitor: Monitor = Monitor(),
    calibrate: Callable[[], dict[str, Tensor]] | None = None,
) -> Run:
    """Fit a topic model from the topics where it starts.

    `algorithm_of(run)` makes the algorithm: first on the rows that are not held out and then, if `run.is_finishing`, on
    all. `hold` puts topics, or several draws of them, into the model: before it is validated or calibrated, and at the
    end.
    """
    saved = Checkpoint.of(monitor)
    run = Run() if saved is None else saved.run(settings)
    run.max_epochs = settings.max_epochs
    loop: Loop[Any] = Loop(
        algorithm_of, run, settings, monitor, calibrate=calibrate, hold=lambda state: hold(_found(state))
    )
    # The first state has no name here: if it is a large one, nothing may hold on to it.
    if saved is None:
        loop.drive(cast("TopicAlgorithm", loop.algorithm).start(topics))
    else:
        loop.drive(saved.restore(loop.algorithm.restore))
    return run


def _found(state: EMState | Chain) -> list[Topics]:
    """Return the topics of a state of EM, or the draws of a sampler that has kept some."""
    return [state.topics] if isinstance(state, EMState) else [*state.draws] or [state.sampler.topics]
