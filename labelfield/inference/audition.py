"""Decide on held-out rows, partway through its training, whether a further member of a mix is worth finishing."""

from collections.abc import Callable
from copy import deepcopy

from torch import Tensor

from labelfield.inference.calibrating import fit_stack
from labelfield.inference.run import Callback, Run, Settings
from labelfield.models.calibration import Calibration
from labelfield.models.stack import Stack

# A member must add more than this to the mean of P@1, 3 and 5 of the one before it, in percent: a half-trained member
# adds less than it will, and held-out rows tell a few tenths from nothing only by chance.
_LEAST_GAIN = 0.0
# Rows times labels from which a member has to audition: with fewer, its training takes no longer than its audition.
_LARGE = 1 << 23


class LeftOutError(Exception):
    """A member adds nothing. `scores` are P@1, 3 and 5 on held-out rows, without it and with it."""

    def __init__(self, scores: dict[str, list[float]]) -> None:
        super().__init__("a member of a mix adds nothing on held-out rows")
        self.scores = scores


def is_worth_asking(n_rows: int, n_labels: int, memory: dict[str, Tensor]) -> bool:
    """Return whether a member should audition, given the first member's predictions for the held-out rows."""
    return n_rows * n_labels >= _LARGE and "p" in memory and bool(memory["p"].numel())


def auditioning(
    settings: Settings,
    stack: Stack,
    before: dict[str, Tensor],
    ask: Callable[[], dict[str, Tensor]],
    on_step: Callback | None,
) -> Callback:
    """Return a callback for each step of a member: halfway through its schedule it may raise a LeftOutError.

    `before` has the first member's predictions for the held-out rows, and `ask` returns those of this one. The
    stack of the two members is not changed.
    """
    last = max(1, (settings.max_epochs - settings.finishing_epochs) // 2) - 1

    def after_step(run: Run, n_steps: int) -> None:
        if on_step is not None:
            on_step(run, n_steps)
        if run.epoch != last or run.step != n_steps or run.is_finishing:
            return
        found, _ = fit_stack(deepcopy(stack), Calibration(), [before, ask()], len(stack.places))
        alone, together = found[0]["alone"], found[1]["together"]
        if sum(together) - sum(alone) <= len(alone) * _LEAST_GAIN:
            raise LeftOutError({"alone": alone, "together": together})

    return after_step
