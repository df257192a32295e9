"""Adam, with a step that costs no more than the rows of its gradient."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from labelfield.inference.optimisers import RowOptimiser

_FIRST, _SECOND, _TINY = 0.9, 0.999, 1e-8
_FUSED: dict[str, Any] = {"beta1": _FIRST, "beta2": _SECOND, "eps": _TINY, "weight_decay": 0.0}
_FUSED |= {"amsgrad": False, "maximize": False}


class RowAdam(RowOptimiser):
    """Adam that reads and writes only those rows of a parameter that its sparse gradient has.

    Each row counts its own steps, so that its first one is as long as at the start of a run. (With one count for all
    rows, as in torch's SparseAdam, the first step of a row that waited long is three times too long.)

    Dense gradients go to torch's fused kernel, but not through torch.optim, whose first use imports torch's compiler
    and takes one to six seconds.
    """

    moments = ("exp_avg", "exp_avg_sq")

    def _update_whole(
        self, parts: Sequence[tuple[Tensor, Tensor, dict[str, Tensor]]], is_bad: Tensor, scale: float
    ) -> None:
        means, squares, steps = ([state[name] for *_, state in parts] for name in (*self.moments, "step"))
        torch._foreach_add_(steps, 1)
        parameters, gradients = [parameter for parameter, *_ in parts], [gradient for _, gradient, _ in parts]
        rate = self._rate if scale == 1 else self._rate * scale
        torch._fused_adam_(parameters, gradients, means, squares, [], steps, lr=rate, found_inf=is_bad, **_FUSED)
        torch._foreach_sub_(steps, [is_bad] * len(steps))  # a bad step does not count

    def _update_rows(
        self, parameter: Tensor, rows: Tensor, gradient: Tensor, state: dict[str, Tensor], scale: float
    ) -> None:
        shape = (-1, *[1] * (gradient.dim() - 1))
        step = state["step"].index_select(0, rows) + 1
        mean = state["exp_avg"].index_select(0, rows).lerp_(gradient, 1 - _FIRST)
        square = state["exp_avg_sq"].index_select(0, rows).mul_(_SECOND).addcmul_(gradient, gradient, value=1 - _SECOND)
        for name, value in (("step", step), ("exp_avg", mean), ("exp_avg_sq", square)):
            state[name].index_copy_(0, rows, value)
        size = (square / (1 - _SECOND**step).view(shape)).sqrt_().add_(_TINY)
        parameter.index_add_(0, rows, mean.div_((1 - _FIRST**step).view(shape)).div_(size).mul_(-self._rate * scale))
