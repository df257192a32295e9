"""How far a run is, by epochs or by the clock, whichever is further; hence its rate, and when it finishes and ends."""

from __future__ import annotations

from dataclasses import dataclass

from labelfield.inference.run import Run, Settings
from labelfield.inference.schedule import rate_factor

__all__ = ["Clock"]


@dataclass(frozen=True)
class Clock:
    """The time of a run, whose settings say how long it may take.

    The schedule takes the first epochs; in the last `finishing_epochs` all rows take part.
    """

    run: Run
    settings: Settings

    def rate(self) -> float:
        """Return the learning rate of the next step."""
        if self.run.is_finishing:
            return self.settings.learning_rate * (1 - self._share_finished())
        share = min(self._share_done() / self._schedule_share(), 1.0)
        return self.settings.learning_rate * rate_factor(self.settings.schedule, share)

    def is_finishing_due(self) -> bool:
        """Return whether the schedule is over, or was ended early, and finishing is still to come."""
        if self.settings.finishing_epochs == 0 or self.run.is_finishing:
            return False
        return self.run.is_stopped_early or self._share_done() >= self._schedule_share() - 1e-9

    def is_over(self) -> bool:
        """Return whether the run ends here, even if epochs are left."""
        budget = self.settings.time_budget
        if budget is not None and self.run.seconds >= budget:
            return True
        if self.run.is_finishing and self._share_finished() >= 1:
            return True
        return self.run.is_stopped_early and not self.is_finishing_due()

    def _n_epochs(self) -> float:
        return self.run.epoch + self.run.step / self.run.n_steps

    def _share_done(self) -> float:
        done, budget = self._n_epochs() / self.settings.max_epochs, self.settings.time_budget
        return done if budget is None else max(done, self.run.seconds / budget)

    def _schedule_share(self) -> float:
        """Return the share of the run that the schedule takes; the rest is finishing."""
        return 1 - self.settings.finishing_epochs / self.settings.max_epochs

    def _share_finished(self) -> float:
        assert self.run.finishing_epoch is not None
        n_epochs, budget = self._n_epochs() - self.run.finishing_epoch, self.settings.time_budget
        share = n_epochs / max(self.settings.finishing_epochs, 1)
        if budget is not None:
            left = max(budget - self.run.finishing_seconds, 1e-9)
            share = max(share, (self.run.seconds - self.run.finishing_seconds) / left)
        return min(share, 1.0)
