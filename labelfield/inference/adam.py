"""Adam whose step costs as much as the gradient has rows."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

__all__ = ["RowAdam"]


class RowAdam(torch.optim.Adam):
    """Adam; of a parameter with a sparse gradient only the rows that the gradient has are read and written.

    Each row then counts its own steps, so that its first one is as long as it would be at the start of a run. (With one
    count for all rows, as torch's SparseAdam has, the first step of a row that waited long is three times too long.) A
    step whose `is_bad`, a tensor, is 1 changes nothing; a GPU finds that out by itself.
    """

    def __init__(self, parameters: Iterable[nn.Parameter], lr: float) -> None:
        parameters = list(parameters)
        on_gpu = parameters[0].device.type == "cuda"
        # On a GPU the rate is a tensor, so that a captured step sees it change.
        rate: Any = torch.tensor(lr, device=parameters[0].device) if on_gpu else lr
        super().__init__(parameters, lr=rate, fused=True, capturable=on_gpu)

    @property
    def rate(self) -> float:
        return float(self.param_groups[0]["lr"])

    @rate.setter
    def rate(self, value: float) -> None:
        for group in self.param_groups:
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(value)
            else:
                group["lr"] = value

    @torch.no_grad()
    def update(self, is_bad: Tensor) -> None:
        """A step, unless it is bad."""
        by_row = []
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None and parameter.grad.is_sparse:
                    by_row.append((group, parameter, parameter.grad))
                    parameter.grad = None
        self.found_inf = is_bad  # torch's name for it
        self.step()
        self.mark_changed()
        if by_row and not is_bad:
            for group, parameter, gradient in by_row:
                self._update_rows(group, parameter, gradient._indices()[0], gradient._values())

    def mark_changed(self) -> None:
        """Tell torch that the parameters are others now: neither a fused nor a captured step does."""
        torch.autograd.graph.increment_version([p for group in self.param_groups for p in group["params"]])

    def _update_rows(self, group: dict[str, Any], parameter: Tensor, rows: Tensor, gradient: Tensor) -> None:
        state = self.state[parameter]
        if not state:
            state["step"] = torch.zeros(len(parameter), device=parameter.device)
            state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(parameter), torch.zeros_like(parameter)
        (first, second), shape = group["betas"], (-1, *[1] * (gradient.dim() - 1))
        step = state["step"].index_select(0, rows) + 1
        mean = state["exp_avg"].index_select(0, rows).lerp_(gradient, 1 - first)
        square = state["exp_avg_sq"].index_select(0, rows).mul_(second).addcmul_(gradient, gradient, value=1 - second)
        for name, value in (("step", step), ("exp_avg", mean), ("exp_avg_sq", square)):
            state[name].index_copy_(0, rows, value)
        size = (square / (1 - second**step).view(shape)).sqrt_().add_(group["eps"])
        parameter.index_add_(0, rows, mean.div_((1 - first**step).view(shape)).div_(size).mul_(-group["lr"]))
