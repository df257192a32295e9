"""The ways to fit a topic model, as methods for the loop of `rounds`: EM, online EM and Gibbs sampling."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from labelfield.topics.em import EMOptions, EMState, Sums, em_step, is_settled, restored_em, tensors_of_em
from labelfield.topics.gibbs import GibbsOptions, GibbsState, gibbs_step, start_gibbs
from labelfield.topics.rows import TopicRows
from labelfield.topics.state import Priors, Topics, restored_topics, tensors_of

__all__ = ["EM", "Gibbs", "Kept", "OnlineEM", "exposed", "sums_behind"]


class EM:
    """All rows in each step."""

    n_batches = 1

    def __init__(self, data: TopicRows, options: EMOptions) -> None:
        self.data, self.options, self.n_rows = data, options, data.n_rows

    def step(self, state: EMState, epoch: int, number: int) -> tuple[EMState, float]:
        state, info = em_step(state, self.data, self.options)
        return state, info.objective

    def step_size(self, state: EMState) -> float:
        return 1.0

    def is_settled(self, state: EMState) -> bool:
        return is_settled(state, self.options)

    def left(self, state: EMState) -> EMState:
        return EMState(state.topics, n_steps=state.n_steps)

    def taken_up(self, state: EMState) -> EMState:
        return state

    def tensors(self, state: EMState) -> dict[str, Tensor]:
        return tensors_of_em(state)

    def restored(self, tensors: dict[str, Tensor]) -> EMState:
        return restored_em(tensors, self.data)


class OnlineEM:
    """Some rows in each step, which are made when they are needed; a step counts (t + offset)^-power.

    Those that `chosen` names stand for all n_rows, or for more where others come later.
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
        self.n_batches = -(-len(chosen) // batch_size)
        self.power, self.offset, self.seed = power, offset, seed

    def step(self, state: EMState, epoch: int, number: int) -> tuple[EMState, float]:
        order = np.random.default_rng((self.seed, epoch)).permutation(self.chosen)
        chosen = np.sort(np.array_split(order, self.n_batches)[number])
        data = self.rows(chosen)
        state, info = em_step(state, data, self.options, rate=self.step_size(state), n_data=self.n_rows)
        return EMState(state.topics, state.sums, n_steps=state.n_steps), info.objective

    def step_size(self, state: EMState) -> float:
        return float(min(1.0, (state.n_steps + self.offset) ** -self.power)) if state.n_steps else 1.0

    def is_settled(self, state: EMState) -> bool:
        return False  # objectives of different rows say little

    def left(self, state: EMState) -> EMState:
        return state

    def taken_up(self, state: EMState) -> EMState:
        return state  # what it remembers is of as many rows

    def tensors(self, state: EMState) -> dict[str, Tensor]:
        return tensors_of_em(state)

    def restored(self, tensors: dict[str, Tensor]) -> EMState:
        return restored_em(tensors, None)


def sums_behind(topics: Topics, data: TopicRows, priors: Priors, in_topics: Tensor, n_data: int) -> Sums:
    """What online EM would remember of n_data rows, alike to these, if they had led to these topics, in which every
    label has a place. `in_topics` (K,) is how many labels each topic gave."""
    counts = topics.V.double() * (in_topics + topics.n_labels * topics.eta) - topics.eta
    psi, strength = data.design.times(topics.W), priors.shape_strength * n_data
    softplus = torch.nn.functional.softplus(psi).sum(0, dtype=torch.float64) * (n_data / data.n_rows)
    tables = topics.r * (strength + softplus) - strength
    return Sums(counts.clamp_min_(0).to(topics.V.dtype), None, None, tables.clamp_min_(0), softplus)


def exposed(sums: Sums) -> Sums:
    """With exposures, where everything was observed: those of a topic are as large as its counts where W is best."""
    if sums.exposure is not None:
        return sums
    total = sums.counts.sum(0)
    return sums._replace(exposure=total.expand_as(sums.counts), exposure_rest=total)


@dataclass(frozen=True, eq=False)
class Kept:
    """A sampler and the draws that it has kept."""

    sampler: GibbsState
    draws: tuple[Topics, ...] = ()


class Gibbs:
    """Sweeps over all rows; of those in the second half of the epochs from `first` to `last`, n_draws are kept at equal
    distances."""

    n_batches = 1

    def __init__(
        self, data: TopicRows, options: GibbsOptions, *, first: int, last: int, n_draws: int, seed: int
    ) -> None:
        self.data, self.options, self.n_rows, self.seed = data, options, data.n_rows, seed
        middle = first + (last - first) // 2
        self.kept_at = {int(np.ceil(at)) for at in np.linspace(last, middle, n_draws, endpoint=False)}

    def step(self, state: Kept, epoch: int, number: int) -> tuple[Kept, float]:
        # A generator for each sweep: a resumed run draws as it would have.
        sampler, info = gibbs_step(state.sampler, self.data, self.options, np.random.default_rng((self.seed, epoch)))
        draws = (*state.draws, sampler.topics) if epoch + 1 in self.kept_at else state.draws
        return Kept(sampler, draws), info.objective

    def step_size(self, state: Kept) -> float:
        return 1.0

    def is_settled(self, state: Kept) -> bool:
        return False  # it never is

    def started(self, topics: Topics) -> Kept:
        """Before the first sweep from these topics."""
        # Not what the first sweep draws from, which is (seed, 0) and the same as the seed alone.
        return Kept(start_gibbs(topics, self.data, np.random.default_rng((self.seed, 1 << 31))))

    def left(self, state: Kept) -> Kept:
        return state

    def taken_up(self, state: Kept) -> Kept:
        return self.started(state.sampler.topics)

    def tensors(self, state: Kept) -> dict[str, Tensor]:
        sampler = state.sampler
        result: dict[str, Tensor] = {"U": sampler.U, "psi": sampler.psi, "n_steps": torch.tensor(sampler.n_steps)}
        for number, topics in enumerate((sampler.topics, *state.draws)):
            result |= {f"{number}.{name}": value for name, value in tensors_of(topics).items()}
        return result

    def restored(self, tensors: dict[str, Tensor]) -> Kept:
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
        return Kept(sampler, tuple(topics[1:]))
