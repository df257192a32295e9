"""The trainer of topic models: from which rows, in which steps, and how probabilities are calibrated."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor

from labelfield.csr import gather_rows
from labelfield.data import Dataset
from labelfield.data.mask import Mask
from labelfield.inference.calibrating import fit_calibration, remember
from labelfield.inference.checkpoint import under
from labelfield.inference.fitting import Past
from labelfield.inference.loop import TrainingError
from labelfield.inference.run import Epoch, Monitor, Run, Settings
from labelfield.inference.topics import EM, Gibbs, OnlineEM, TopicAlgorithm, exposed, sums_behind, train_topics
from labelfield.topics.density import log_odds
from labelfield.topics.em import EMOptions, EMState, em_step, start_em
from labelfield.topics.gibbs import GibbsOptions, gibbs_step, start_gibbs
from labelfield.topics.model import TopicModel
from labelfield.topics.predict import TopicPredictor
from labelfield.topics.rows import TopicRows, topic_rows
from labelfield.topics.spec import TopicSpec
from labelfield.topics.start import start_topics
from labelfield.topics.state import Priors, Topics

__all__ = ["TopicOptions", "TopicTrainer"]

# Rows from which the shares of topics are found.
SHARE_ROWS = 20_000
# Rows by which a step is timed.
_TIMED_ROWS = 5_000
# Rows times labels of the held-out rows that probabilities are calibrated on, at most.
_CALIBRATED_ENTRIES = 1 << 25
_CALIBRATION = "calibration."


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

    @property
    def priors(self) -> Priors:
        """The priors of weights and shapes."""
        return Priors(weight_scale=float(self.weight_scale), shape_strength=float(self.shape_strength))

    @property
    def em(self) -> EMOptions:
        """The options of a step of EM."""
        learns = bool(self.learn_hyper)
        return EMOptions(int(self.n_gradient_steps) or None, self.priors, learns, learns, learns)


class _Rows(NamedTuple):
    """Training rows, what was observed of their labels, and what is still to be done to them."""

    data: Dataset
    mask: Mask | None
    transform: Callable[[sparse.csr_array], sparse.csr_array]

    def features(self, rows: NDArray[np.int64]) -> sparse.csr_array:
        """Return these rows as the model sees them."""
        return self.transform(gather_rows(self.data.X, rows))

    def mask_of(self, rows: NDArray[np.int64]) -> Mask | None:
        """Return what was observed of these rows; None for everything."""
        return None if self.mask is None else self.mask.take(rows)


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
    ) -> None:
        self.model, self.spec, self.settings, self.options = model, spec, settings, options
        self.transform = transform if options.algorithm == "online_em" else _as_it_is
        self.mask: Mask | None = None
        self._online: EMState | None = None

    def start(self, data: Dataset, labels: NDArray[np.int64]) -> None:
        """Put random topics of these labels into the model."""
        self.model.labels.copy_(torch.from_numpy(labels))
        rows = self._topic_rows(self._rows(data), self._first_rows(data.n_rows)[:SHARE_ROWS])
        generator = torch.Generator().manual_seed(self.settings.seed)
        topics = start_topics(rows, self.spec.n_topics, self.spec.n_labels, self.options.priors, generator)
        self._hold([topics])

    def train(self, data: Dataset, monitor: Monitor) -> Run:
        """Train on the rows that are not held out for calibration, and then on all."""
        held_out = self.settings.held_out_rows(data.n_rows)
        rows = self._rows(data)
        with torch.no_grad():
            run = train_topics(
                lambda run: self._algorithm(rows, run),
                self.model.topics(),
                self.settings,
                hold=self._hold,
                monitor=monitor,
                calibrate=(lambda: self._calibrate(rows, held_out)) if len(held_out) else None,
            )
            learned = under(_CALIBRATION, run.memory)
            if learned:
                self.model.calibration.load_state_dict(learned)
            self._find_shares(rows)
        self.mask = None
        return run

    def train_more(self, data: Dataset, past: Past) -> Run:
        """Take a step of online EM on these rows, which are as the model sees them."""
        started, n_rows = time.monotonic(), past.n_rows + data.n_rows
        with torch.no_grad():
            state, some = self._go_on(data, past)
            power, offset = float(self.options.step_power), float(self.options.step_offset)
            rate = (state.n_steps + offset) ** -power if state.n_steps else 1.0
            state, info = em_step(state, some, self.options.em, rate=rate, n_data=n_rows)
            if not np.isfinite(info.objective) or not bool(torch.isfinite(state.topics.W).all()):
                raise TrainingError("the objective is not finite. Scale the rows, or lower weight_scale")
            self._hold([state.topics])
            self._find_shares(_Rows(data, None, _as_it_is))
        self.mask, self._online = None, EMState(state.topics, state.sums, n_steps=state.n_steps)
        seconds = (past.history[-1]["seconds"] if past.history else 0.0) + time.monotonic() - started
        epoch = Epoch(len(past.history), info.objective / n_rows, rate, seconds)
        return Run(history=[*past.epochs(), epoch])

    def is_online(self) -> bool:
        """Whether online EM is under way, rather than about to start from a fitted model."""
        return self._online is not None

    def stage_settings(self) -> dict[str, Settings]:
        return {"": self.settings}

    def n_whole_epochs(self) -> float:
        return self.settings.max_epochs

    def seconds_per_step(self, data: Dataset) -> float:
        n_rows = min(data.n_rows, _TIMED_ROWS, self.settings.batch_size)
        with torch.no_grad():
            rows, topics = self._topic_rows(self._rows(data), np.arange(n_rows)), self.model.topics()
            rng = np.random.default_rng(self.settings.seed)
            sampler = start_gibbs(topics, rows, rng) if self.options.algorithm == "gibbs" else None
            started = time.perf_counter()
            if sampler is None:
                em_step(start_em(topics), rows, self.options.em)
            else:
                gibbs_step(sampler, rows, GibbsOptions(self.options.priors), rng)
        return (time.perf_counter() - started) * self.settings.batch_size / n_rows

    def fingerprint(self) -> tuple[Any, ...]:
        return self.options, "" if self.mask is None else self.mask.digest()

    # Steps

    def _rows(self, data: Dataset) -> _Rows:
        return _Rows(data, self.mask, self.transform)

    def _topic_rows(self, rows: _Rows, chosen: NDArray[np.int64]) -> TopicRows:
        """Return these rows as steps take them."""
        mask = rows.mask_of(chosen)
        places, is_missing = (None, False) if mask is None else (mask.places, mask.is_missing)
        Y, labels = gather_rows(rows.data.Y, chosen), self.model.labels.cpu().numpy()
        return topic_rows(rows.features(chosen), Y, labels, places, is_missing, self.model.device)

    def _algorithm(self, rows: _Rows, run: Run) -> TopicAlgorithm:
        """Return the steps of a part of the run, on its rows."""
        settings, options, is_finishing = self.settings, self.options, run.is_finishing
        n_rows = rows.data.n_rows
        chosen = np.arange(n_rows) if is_finishing else self._first_rows(n_rows)
        if options.algorithm == "online_em":
            return OnlineEM(
                lambda some: self._topic_rows(rows, some),
                chosen,
                n_rows,
                settings.batch_size,
                options.em,
                power=float(options.step_power),
                offset=float(options.step_offset),
                seed=settings.seed,
            )
        data = self._topic_rows(rows, chosen)
        if options.algorithm == "em":
            return EM(data, options.em)
        learns, first = bool(options.learn_hyper), run.finishing_epoch or 0
        return Gibbs(
            data,
            # λ stays as EM found it: drawn along with the weights, both drift far beyond what predicts well.
            GibbsOptions(options.priors, learns, False, learns),
            options.em,
            first=first,
            last=first + settings.finishing_epochs if is_finishing else settings.max_epochs - settings.finishing_epochs,
            n_draws=self.spec.n_draws,
            seed=settings.seed,
        )

    def _first_rows(self, n_rows: int) -> NDArray[np.int64]:
        """Return the rows that are not held out."""
        return np.setdiff1d(np.arange(n_rows), self.settings.held_out_rows(n_rows), assume_unique=True)

    def _hold(self, draws: list[Topics]) -> None:
        """Put what was found into the model."""
        n = self.spec.n_draws
        kept = draws[-n:]
        # A run that ended early has fewer draws, each of which then counts several times.
        self.model.hold([kept[number * len(kept) // n] for number in range(n)])

    def _go_on(self, data: Dataset, past: Past) -> tuple[EMState, TopicRows]:
        """Return where online EM stands, and the next rows.

        A model that was fitted or loaded stands where online EM would have come to what it is.
        """
        topics = self.model.topics() if self._online is None else self._online.topics
        n_steps = len(past.history) if self._online is None else self._online.n_steps
        sums = None if self._online is None else self._online.sums
        mask = self.mask
        if mask is None and sums is not None and sums.exposure is not None:
            mask = Mask(sparse.csr_array(data.Y.shape, dtype=np.float32), is_missing=True)  # nothing is
        some = self._topic_rows(_Rows(data, mask, _as_it_is), np.arange(data.n_rows))
        if sums is None and n_steps:
            in_topics = self.model.share.double() * float(past.label_counts.sum())
            sums = sums_behind(topics, some, self.options.priors, in_topics, past.n_rows)
        if sums is not None and mask is not None:
            sums = exposed(sums)
        return EMState(topics, sums, n_steps=n_steps), some

    # After the steps

    def _calibrate(self, rows: _Rows, held_out: NDArray[np.int64]) -> dict[str, Tensor]:
        """Fit the map of probabilities to held-out rows, and return it with what was said of them."""
        chosen = held_out[: max(1, _CALIBRATED_ENTRIES // self.spec.n_labels)]
        if self.spec.is_exclusive:
            chosen = chosen[np.diff(rows.data.Y.indptr)[chosen] == 1]  # rows whose class was observed
        said: dict[str, Tensor] = {}
        if len(chosen):
            predictor, mask = TopicPredictor(self.model, self.spec), rows.mask_of(chosen)
            X, Y = rows.features(chosen), gather_rows(rows.data.Y, chosen)
            fit_calibration(predictor, X, Y, None if mask is None else mask.observes)
            said = remember(predictor, X, Y)
        learned = self.model.calibration.state_dict()
        return said | {f"{_CALIBRATION}{name}": value.clone() for name, value in learned.items()}

    def _find_shares(self, rows: _Rows) -> None:
        """Find the share of each topic in the labels of rows, from some of them."""
        n_rows = rows.data.n_rows
        chosen = np.unique(np.linspace(0, n_rows - 1, min(n_rows, SHARE_ROWS)).astype(np.int64))
        total = torch.zeros(self.spec.n_topics, dtype=torch.float64, device=self.model.device)
        for _, some in TopicPredictor(self.model, self.spec).blocks(rows.features(chosen)):
            for W, r in zip(self.model.W, self.model.r, strict=True):
                total += (log_odds(some, W).clamp_(max=30.0).double().exp() * r).sum(0)
        self.model.share.copy_(total / total.sum())


def _as_it_is(rows: sparse.csr_array) -> sparse.csr_array:
    return rows
