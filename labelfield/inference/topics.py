"""Training a topic model by EM, online EM or Gibbs sampling: the algorithms for the training loop, and the trainer.

The trainer decides from which rows topics are learned, and calibrates probabilities.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor

from labelfield.cluster import ALONE, Cluster
from labelfield.csr import gather_rows
from labelfield.data import Dataset
from labelfield.data.mask import Mask
from labelfield.inference.calibrating import calibrate_predictor
from labelfield.inference.checkpoint import Checkpoint, under
from labelfield.inference.fitting import Past, within_budget
from labelfield.inference.loop import Algorithm, Info, Loop, TrainingError, breakdown
from labelfield.inference.run import Epoch, Monitor, Run, Settings
from labelfield.inference.team import NO_TEAM, Team, own_rows
from labelfield.topics.density import log_odds
from labelfield.topics.em import EMOptions, EMState, RowState, Sums, em_step, is_settled
from labelfield.topics.gibbs import GibbsOptions, GibbsState, gibbs_step, start_gibbs
from labelfield.topics.model import TopicModel
from labelfield.topics.predict import TopicPredictor
from labelfield.topics.rows import TopicRows, topic_rows
from labelfield.topics.spec import TopicSpec
from labelfield.topics.start import start_topics
from labelfield.topics.state import Priors, Topics, restored_topics, tensors_of

# Steps of EM before the first sweep of the sampler, which would take long to find the topics by itself.
_EM_BEFORE_GIBBS = 20
# Rows from which the shares of topics are found.
SHARE_ROWS = 20_000
# Rows by which a step is timed.
_TIMED_ROWS = 5_000
# Rows times labels of the held-out rows that probabilities are calibrated on, at most.
_CALIBRATED_ENTRIES = 1 << 25
_CALIBRATION = "calibration."
# What the names of arrays begin with that have a row for each row of the data.
_OF_ROWS = "rows."
_NOT_FINITE = "the objective is not finite. Scale the rows, or lower weight_scale"


@dataclass(frozen=True)
class TopicOptions:
    """How a topic model is fitted: the options of `TopicClassifier` of these names."""

    algorithm: str
    n_gradient_steps: int
    step_power: float
    step_offset: float
    weight_scale: float
    shape_strength: float
    learn_hyper: bool
    online_weights: str = "interpolate"
    precision_by: str = "mode"

    @property
    def priors(self) -> Priors:
        """The priors of weights and shapes."""
        return Priors(weight_scale=float(self.weight_scale), shape_strength=float(self.shape_strength))

    @property
    def em(self) -> EMOptions:
        """The options of a step of EM."""
        learns = bool(self.learn_hyper)
        how = self.online_weights, self.precision_by
        return EMOptions(int(self.n_gradient_steps) or None, self.priors, learns, learns, learns, *how)

    def rate(self, n_steps: int) -> float:
        """Return how much the step of online EM after n_steps others counts."""
        return float((n_steps + float(self.step_offset)) ** -float(self.step_power)) if n_steps else 1.0


class EM(Algorithm[EMState]):
    """EM on the rows that `chosen` names, which stand for all n_rows: each step on all of them or, online, on a batch
    of rows that are made when they are needed.

    Bounds of different batches say little about convergence, so that online EM never settles.
    """

    def __init__(
        self,
        rows: Callable[[NDArray[np.int64]], TopicRows],
        chosen: NDArray[np.int64],
        n_rows: int,
        settings: Settings,
        options: TopicOptions,
        team: Team = NO_TEAM,
    ) -> None:
        self.rows, self.chosen, self.n_rows, self.settings, self.options = rows, chosen, n_rows, settings, options
        self.team, is_online = team, options.algorithm == "online_em"
        self.data = None if is_online else rows(chosen)
        self.n_steps = -(-len(chosen) // settings.batch_size) if is_online else 1

    def start(self, topics: Topics) -> EMState:
        return EMState(topics)

    def step(self, state: EMState, run: Run) -> tuple[EMState, Info]:
        if self.data is not None:
            state, objective = em_step(state, self.data, self.options.em)
            return state, _info(run, objective, self.data.n_rows)
        order = np.random.default_rng((self.settings.seed, run.epoch)).permutation(self.chosen)
        data = self.rows(np.sort(np.array_split(order, self.n_steps)[run.step]))
        rate = self.step_size(state, run)
        state, objective = em_step(state, data, self.options.em, rate=rate, n_data=self.n_rows)
        return EMState(state.topics, state.sums, n_steps=state.n_steps), _info(run, objective, self.n_rows)

    def step_size(self, state: EMState, run: Run) -> float:
        return self.options.rate(state.n_steps) if self.data is None else 1.0

    def is_settled(self, state: EMState) -> bool:
        return self.data is not None and is_settled(state, self.options.em)

    def detach(self, state: EMState) -> EMState:
        return state if self.data is None else EMState(state.topics, n_steps=state.n_steps)

    def tensors(self, state: EMState) -> dict[str, Tensor]:
        tensors = tensors_of(state.topics) | {"n_steps": torch.tensor(state.n_steps)}
        for group, part in (("sums", state.sums), ("rows", state.rows)):
            named = {} if part is None else part._asdict()
            tensors |= {f"{group}.{name}": value for name, value in named.items() if value is not None}
        if self.team.cluster.size == 1:
            return tensors
        parts = {name: value for name, value in tensors.items() if name.startswith(_OF_ROWS)}
        return tensors | self.team.collect("the saving of a checkpoint", parts)

    def restore(self, tensors: dict[str, Tensor]) -> EMState:
        if self.data is not None:
            tensors = {name: value.to(self.data.design.X.device) for name, value in tensors.items()}
        sums, rows = under("sums.", tensors), under("rows.", tensors)
        if rows and self.data is not None and rows["psi"].shape != (len(self.chosen), tensors["r"].numel()):
            raise ValueError("the saved state of EM belongs to other rows")
        return EMState(
            restored_topics(tensors),
            Sums(**sums) if sums else None,
            RowState(**rows) if rows else None,
            self.data if rows else None,
            int(tensors["n_steps"]),
        )


@dataclass(frozen=True, eq=False)
class Chain:
    """A sampler and the draws that were kept."""

    sampler: GibbsState
    draws: tuple[Topics, ...] = ()


class Gibbs(Algorithm[Chain]):
    """Sweeps over all rows; n_draws are kept, at equal distances in the second half of a part of the run."""

    n_steps = 1

    def __init__(self, data: TopicRows, run: Run, settings: Settings, options: TopicOptions, n_draws: int) -> None:
        self.data, self.seed, self.em_options = data, settings.seed, options.em
        learns = bool(options.learn_hyper)
        # λ stays as EM found it: drawn along with the weights, both drift far beyond what predicts well.
        self.options = GibbsOptions(options.priors, learns, False, learns)
        first, last = 0, settings.max_epochs - settings.finishing_epochs
        if run.finishing_epoch is not None:
            first, last = run.finishing_epoch, run.finishing_epoch + settings.finishing_epochs
        middle = first + (last - first) // 2
        self.kept_at = {int(np.ceil(at)) for at in np.linspace(last, middle, n_draws, endpoint=False)}

    def start(self, topics: Topics) -> Chain:
        """Return the state before the first sweep, a few steps of EM after these topics."""
        state = EMState(topics)
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
        sampler, objective = gibbs_step(state.sampler, self.data, self.options, rng)
        draws = (*state.draws, sampler.topics) if run.epoch + 1 in self.kept_at else state.draws
        return Chain(sampler, draws), _info(run, objective, self.data.n_rows)

    def tensors(self, state: Chain) -> dict[str, Tensor]:
        result = {"U": state.sampler.U, "psi": state.sampler.psi}
        for number, topics in enumerate((state.sampler.topics, *state.draws)):
            result |= {f"{number}.{name}": value for name, value in tensors_of(topics).items()}
        return result

    def restore(self, tensors: dict[str, Tensor]) -> Chain:
        tensors = {name: value.to(self.data.design.X.device) for name, value in tensors.items()}
        n_topics = sum(name.endswith(".eta") for name in tensors)
        now, *draws = (restored_topics(under(f"{number}.", tensors)) for number in range(n_topics))
        return Chain(GibbsState(now, tensors["U"], tensors["psi"]), tuple(draws))


def _info(run: Run, objective: float, n_rows: int) -> Info:
    if not np.isfinite(objective):
        raise breakdown(run, _NOT_FINITE)
    return Info(objective / n_rows, 1)


class _Rows(NamedTuple):
    """Training rows, the observed entries of their labels (None for all), and the transform still to be applied."""

    data: Dataset
    mask: Mask | None
    transform: Callable[[sparse.csr_array], sparse.csr_array] = lambda rows: rows

    def take(self, rows: NDArray[np.int64]) -> tuple[sparse.csr_array, sparse.csr_array, Mask | None]:
        """Return these rows as the model sees them, their labels, and what was observed of these."""
        mask = None if self.mask is None else self.mask.take(rows)
        return self.transform(gather_rows(self.data.X, rows)), gather_rows(self.data.Y, rows), mask


class TopicTrainer:
    """Trains a topic model by EM, online EM or Gibbs sampling.

    Online, rows come as they were given and are transformed when they are needed: they may be larger than memory. A
    `mask` says what was observed of the labels of the next rows.
    """

    def __init__(
        self,
        model: TopicModel,
        spec: TopicSpec,
        settings: Settings,
        options: TopicOptions,
        transform: Callable[[sparse.csr_array], sparse.csr_array],
        mask: Mask | None = None,
    ) -> None:
        self.model, self.spec, self.settings, self.options = model, spec, settings, options
        self.transform = transform if options.algorithm == "online_em" else lambda rows: rows
        self.mask = mask
        self._online: EMState | None = None

    def start(self, data: Dataset, labels: NDArray[np.int64]) -> None:
        """Put random topics of these labels into the model."""
        self.model.labels.copy_(torch.from_numpy(labels))
        rows = self._topic_rows(self._rows(data), self._first_rows(data.n_rows)[:SHARE_ROWS])
        generator = torch.Generator().manual_seed(self.settings.seed)
        self._hold([start_topics(rows, self.spec.n_topics, self.spec.n_labels, self.options.priors, generator)])

    def train(self, data: Dataset, monitor: Monitor) -> Run:
        """Train on the rows that are not held out for calibration, and then on all."""
        held_out, rows, team = self.settings.held_out_rows(data.n_rows), self._rows(data), Team(monitor.cluster)
        team.keep_beside(monitor.checkpoint)

        def own(name: str, n: int) -> slice | None:
            return own_rows(team.cluster, n) if name.startswith(_OF_ROWS) else None

        saved = Checkpoint.of_team(monitor, own)
        run = Run() if saved is None else saved.run(self.settings)
        run.max_epochs = self.settings.max_epochs
        with torch.no_grad():
            loop: Any = Loop(
                lambda run: self.algorithm(rows, run, team),
                run,
                self.settings,
                monitor,
                calibrate=(lambda: self._calibrate(rows, held_out)) if len(held_out) else None,
                hold=lambda state: self._hold(_found(state)),
                together=team.cluster,
            )
            # The first state has no name here: if it is a large one, nothing may hold on to it.
            if saved is None:
                loop.drive(loop.algorithm.start(self.model.topics()))
            else:
                loop.drive(saved.restore(loop.algorithm.restore))
            if learned := under(_CALIBRATION, run.memory):
                self.model.calibration.load_state_dict(learned)
            self._find_shares(rows)
        self.mask = None
        return run

    def train_more(self, data: Dataset, past: Past) -> Run:
        """Take a step of online EM on these rows, which are as the model sees them."""
        started, n_rows = time.monotonic(), past.n_rows + data.n_rows
        with torch.no_grad():
            state, some = self._go_on(data, past)
            rate = self.options.rate(state.n_steps)
            state, objective = em_step(state, some, self.options.em, rate=rate, n_data=n_rows)
            if not np.isfinite(objective) or not bool(torch.isfinite(state.topics.W).all()):
                raise TrainingError(_NOT_FINITE)
            self._hold([state.topics])
            self._find_shares(_Rows(data, None))
        self.mask, self._online = None, EMState(state.topics, state.sums, n_steps=state.n_steps)
        seconds = (past.history[-1]["seconds"] if past.history else 0.0) + time.monotonic() - started
        return Run(history=[*past.epochs(), Epoch(len(past.history), objective / n_rows, rate, seconds)])

    def is_online(self) -> bool:
        """Whether online EM is under way, rather than about to start from a fitted model."""
        return self._online is not None

    def stage_settings(self) -> dict[str, Settings]:
        return {"": self.settings}

    def expected_seconds(self, data: Dataset) -> float:
        n_rows = min(data.n_rows, _TIMED_ROWS, self.settings.batch_size)
        with torch.no_grad():
            rows, topics = self._topic_rows(self._rows(data), np.arange(n_rows)), self.model.topics()
            rng = np.random.default_rng(self.settings.seed)
            sampler = start_gibbs(topics, rows, rng) if self.options.algorithm == "gibbs" else None
            started = time.perf_counter()
            if sampler is None:
                em_step(EMState(topics), rows, self.options.em)
            else:
                gibbs_step(sampler, rows, GibbsOptions(self.options.priors), rng)
        step = (time.perf_counter() - started) * self.settings.batch_size / n_rows
        return within_budget(self.settings.n_steps(data.n_rows) * step, [self.settings])

    def fingerprint(self) -> tuple[Any, ...]:
        return self.options, "" if self.mask is None else self.mask.digest()

    # Steps

    def _rows(self, data: Dataset) -> _Rows:
        return _Rows(data, self.mask, self.transform)

    def _topic_rows(self, rows: _Rows, chosen: NDArray[np.int64], cluster: Cluster = ALONE) -> TopicRows:
        """Return these rows as steps take them."""
        X, Y, mask = rows.take(chosen)
        places, is_missing = mask or (None, False)
        return topic_rows(X, Y, self.model.labels.cpu().numpy(), places, is_missing, self.model.device, cluster)

    def algorithm(self, rows: _Rows, run: Run, team: Team = NO_TEAM) -> EM | Gibbs:
        """Return the steps of a part of the run, on its rows; of several processes each has a share of them."""
        n_rows = rows.data.n_rows
        chosen = np.arange(n_rows) if run.is_finishing else self._first_rows(n_rows)
        chosen = chosen[own_rows(team.cluster, len(chosen))]
        if self.options.algorithm == "gibbs":
            return Gibbs(self._topic_rows(rows, chosen), run, self.settings, self.options, self.spec.n_draws)
        make = lambda some: self._topic_rows(rows, some, team.cluster)  # noqa: E731
        return EM(make, chosen, n_rows, self.settings, self.options, team)

    def _first_rows(self, n_rows: int) -> NDArray[np.int64]:
        """Return the rows that are not held out."""
        return np.setdiff1d(np.arange(n_rows), self.settings.held_out_rows(n_rows), assume_unique=True)

    def _hold(self, draws: list[Topics]) -> None:
        """Put the result into the model."""
        n = self.spec.n_draws
        kept = draws[-n:]
        # A run that ended early has fewer draws, each of which then counts several times.
        self.model.hold([kept[number * len(kept) // n] for number in range(n)])

    def _go_on(self, data: Dataset, past: Past) -> tuple[EMState, TopicRows]:
        """Return the state of online EM, and the next rows.

        A fitted or loaded model gets the state from which online EM would have reached it.
        """
        state = self._online or EMState(self.model.topics(), n_steps=len(past.history))
        topics, sums, mask = state.topics, state.sums, self.mask
        if mask is None and sums is not None and sums.exposure is not None:
            mask = Mask(sparse.csr_array(data.Y.shape, dtype=np.float32), is_missing=True)  # nothing is
        some = self._topic_rows(_Rows(data, mask), np.arange(data.n_rows))
        if sums is None and state.n_steps:
            in_topics = self.model.share.double() * float(past.label_counts.sum())
            sums = _sums_behind(topics, some, self.options.priors, in_topics, past.n_rows)
        if sums is not None and sums.exposure is None and mask is not None:
            # For rows without missing labels: where W is best, the exposures of a topic are as large as its counts.
            total = sums.counts.sum(0)
            sums = sums._replace(exposure=total.expand_as(sums.counts), exposure_rest=total)
        return EMState(topics, sums, n_steps=state.n_steps), some

    # After the steps

    def _calibrate(self, rows: _Rows, held_out: NDArray[np.int64]) -> dict[str, Tensor]:
        """Fit the map of probabilities to held-out rows, and return it with the predictions for them."""
        chosen = held_out[: max(1, _CALIBRATED_ENTRIES // self.spec.n_labels)]
        if self.spec.is_exclusive:
            chosen = chosen[np.diff(rows.data.Y.indptr)[chosen] == 1]  # rows whose class was observed
        said: dict[str, Tensor] = {}
        if len(chosen):
            predictor, (X, Y, mask) = TopicPredictor(self.model, self.spec), rows.take(chosen)
            said = calibrate_predictor(predictor, X, Y, None if mask is None else mask.observes)
        learned = self.model.calibration.state_dict()
        return said | {f"{_CALIBRATION}{name}": value.clone() for name, value in learned.items()}

    def _find_shares(self, rows: _Rows) -> None:
        """Find the share of each topic in the labels of rows, from some of them."""
        n_rows = rows.data.n_rows
        chosen = np.unique(np.linspace(0, n_rows - 1, min(n_rows, SHARE_ROWS)).astype(np.int64))
        total = torch.zeros(self.spec.n_topics, dtype=torch.float64, device=self.model.device)
        for _, some in TopicPredictor(self.model, self.spec).blocks(rows.take(chosen)[0]):
            for W, r in zip(self.model.W, self.model.r, strict=True):
                total += (log_odds(some, W).clamp_(max=30.0).double().exp() * r).sum(0)
        self.model.share.copy_(total / total.sum())


def _found(state: EMState | Chain) -> list[Topics]:
    """Return the topics of a state of EM, or the draws of a sampler that has kept some."""
    return [state.topics] if isinstance(state, EMState) else [*state.draws] or [state.sampler.topics]


def _sums_behind(topics: Topics, data: TopicRows, priors: Priors, in_topics: Tensor, n_data: int) -> Sums:
    """Return what online EM would remember of n_data rows like these if they had led to these topics, in which every
    label has a place. `in_topics` (K,) is the number of labels that each topic gave."""
    counts = topics.V.double() * (in_topics + topics.n_labels * topics.eta) - topics.eta
    psi, strength = data.design.times(topics.W), priors.shape_strength * n_data
    softplus = torch.nn.functional.softplus(psi).sum(0, dtype=torch.float64) * (n_data / data.n_rows)
    tables = topics.r * (strength + softplus) - strength
    return Sums(counts.clamp_min_(0).to(topics.V.dtype), tables.clamp_min_(0), softplus)
