"""How a topic model is trained: from which rows, in which steps, and how its probabilities are calibrated."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor

from labelfield.csr import gather_rows
from labelfield.data import Dataset
from labelfield.estimators.options import advising_on_memory
from labelfield.estimators.topic_answers import TopicAnswers
from labelfield.estimators.topic_inputs import Mask
from labelfield.inference.run import Run
from labelfield.inference.topics import EM, Gibbs, OnlineEM, TopicAlgorithm, train_topics
from labelfield.topics.em import EMOptions
from labelfield.topics.gibbs import GibbsOptions
from labelfield.topics.prediction import log_odds
from labelfield.topics.rows import TopicRows, active_labels, topic_rows
from labelfield.topics.state import Priors, Topics, start_topics

__all__ = ["SHARE_ROWS", "TopicTraining"]

# Rows by which shares of topics are found.
SHARE_ROWS = 20_000
# The last epochs, in which rows that were held out take part: a number, or a share of all. EM needs few, since it goes
# on from where it is; a sampler has to forget where it was.
_FINISHING = {"em": 4, "online_em": 1 / 3, "gibbs": 1 / 2}
# Rows times labels of the held-out rows that probabilities are calibrated on, at most.
_CALIBRATED_ENTRIES = 1 << 25


class TopicTraining(TopicAnswers):
    """The training half of a topic classifier."""

    algorithm: str
    n_gradient_steps: int
    tolerance: float
    step_power: float
    step_offset: float
    weight_scale: float
    shape_strength: float
    learn_hyper: bool
    _mask: Mask | None = None
    _labels: NDArray[np.int64]

    def _finishing_epochs(self, max_epochs: int) -> int:
        """How many of the epochs are on all rows, where some are held out before."""
        finishing = _FINISHING[self.algorithm]
        return min(int(finishing), max_epochs // 3) if finishing >= 1 else int(finishing * max_epochs)

    def _active(self, Y: sparse.csr_array) -> NDArray[np.int64]:
        return active_labels(Y, None if self._mask is None else self._mask.places)

    def _start(self, data: TopicRows) -> Topics:
        generator = torch.Generator().manual_seed(self.settings_.seed)
        return start_topics(data, self.spec_.n_topics, self.spec_.n_labels, self._priors(), generator)

    def _priors(self) -> Priors:
        return Priors(weight_scale=float(self.weight_scale), shape_strength=float(self.shape_strength))

    def _em_options(self) -> EMOptions:
        learns = bool(self.learn_hyper)
        return EMOptions(int(self.n_gradient_steps) or None, self._priors(), learns, learns, learns)

    def _topic_rows(self, data: Dataset, rows: NDArray[np.int64]) -> TopicRows:
        """These rows as the model takes them."""
        X, Y = gather_rows(data.X, rows), gather_rows(data.Y, rows)
        if self.algorithm == "online_em":
            X = self.row_transform_(X)
        mask = None if self._mask is None else self._mask.take(rows)
        places, is_missing = (None, False) if mask is None else (mask.places, mask.is_missing)
        return topic_rows(X, Y, self._labels, places, is_missing, self.model_.device)

    def _hold(self, draws: list[Topics]) -> None:
        """Put what was found into the model."""
        n = self.spec_.n_draws
        kept = draws[-n:]
        # Of a run that ended early there are fewer, each of which then counts several times.
        self.model_.hold([kept[number * len(kept) // n] for number in range(n)], self._labels)

    def _train(self, data: Dataset, checkpoint: Path | None, resume: bool, validate: Any, on_step: Any) -> Run:
        """On nine tenths of the rows, if the others are to calibrate probabilities, and then on all of them."""
        held_out = self._held_out(data.n_rows)
        with torch.no_grad(), advising_on_memory(self._lower):
            run = train_topics(
                lambda run: self._algorithm_of(data, run),
                self.model_.topics(),
                self.settings_,
                hold=self._hold,
                monitor=self._monitor(data, checkpoint, resume, validate, on_step),
                calibrate=(lambda: self._calibrate_on(data, held_out)) if len(held_out) else None,
            )
            if run.memory:
                self.model_.calibration.load_state_dict(run.memory)
            self._find_shares(data)
        self._mask = None
        self._remember(run)
        return run

    def _held_out(self, n_rows: int) -> NDArray[np.int64]:
        """The rows that calibrate probabilities."""
        return self.settings_.held_out_rows(n_rows)

    def _first_rows(self, n_rows: int) -> NDArray[np.int64]:
        """The others."""
        return np.setdiff1d(np.arange(n_rows), self._held_out(n_rows), assume_unique=True)

    def _algorithm_of(self, data: Dataset, run: Run) -> TopicAlgorithm:
        """The steps of a part of the run, on its rows."""
        settings, is_finishing = self.settings_, run.is_finishing
        chosen = np.arange(data.n_rows) if is_finishing else self._first_rows(data.n_rows)
        if self.algorithm == "online_em":
            return OnlineEM(
                lambda rows: self._topic_rows(data, rows),
                chosen,
                data.n_rows,
                settings.batch_size,
                self._em_options(),
                power=float(self.step_power),
                offset=float(self.step_offset),
                seed=settings.seed,
            )
        rows = self._topic_rows(data, chosen)
        if self.algorithm == "em":
            return EM(rows, self._em_options())
        learns = bool(self.learn_hyper)
        first = 0 if run.finishing_epoch is None else run.finishing_epoch
        return Gibbs(
            rows,
            # λ stays as EM found it: drawn along with the weights, both drift far beyond what predicts well.
            GibbsOptions(self._priors(), learns, False, learns),
            self._em_options(),
            first=first,
            last=first + settings.finishing_epochs if is_finishing else settings.max_epochs - settings.finishing_epochs,
            n_draws=self.spec_.n_draws,
            seed=settings.seed,
        )

    # Calibrating

    def _calibrate_on(self, data: Dataset, held_out: NDArray[np.int64]) -> dict[str, Tensor]:
        """Fit the map of probabilities to rows that the model has not seen; it is then to be remembered."""
        rows = held_out[: max(1, _CALIBRATED_ENTRIES // self.spec_.n_labels)]
        if self.spec_.is_exclusive:
            rows = rows[np.diff(data.Y.indptr)[rows] == 1]  # of which the class was observed
        X, Y = gather_rows(data.X, rows), gather_rows(data.Y, rows)
        X = self.row_transform_(X) if self.algorithm == "online_em" else X
        mask = None if self._mask is None else self._mask.take(rows)
        if len(rows):
            blocks = self._probabilities(X, calibrated=False)
            self._fit_calibration(self.model_.calibration, blocks, Y, None if mask is None else mask.observes)
        return {name: value.clone() for name, value in self.model_.calibration.state_dict().items()}

    def _find_shares(self, data: Dataset) -> None:
        """The share of each topic in the labels of rows, by some of them."""
        rows = np.unique(np.linspace(0, data.n_rows - 1, min(data.n_rows, SHARE_ROWS)).astype(np.int64))
        X = gather_rows(data.X, rows)
        X = self.row_transform_(X) if self.algorithm == "online_em" else X
        total = torch.zeros(self.spec_.n_topics, dtype=torch.float64, device=self.model_.device)
        for _, some in self._blocks(X):
            for W, r in zip(self.model_.W, self.model_.r, strict=True):
                total += (log_odds(some, W).clamp_(max=30.0).double().exp() * r).sum(0)
        self.model_.share.copy_(total / total.sum())
