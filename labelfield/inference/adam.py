"""Adam, with a step that costs no more than the rows of its gradient."""

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

_FIRST, _SECOND, _TINY = 0.9, 0.999, 1e-8
_FUSED: dict[str, Any] = {"beta1": _FIRST, "beta2": _SECOND, "eps": _TINY, "weight_decay": 0.0}
_FUSED |= {"amsgrad": False, "maximize": False}


class RowAdam:
    """Adam that reads and writes only those rows of a parameter that its sparse gradient has.

    Each row counts its own steps, so that its first one is as long as at the start of a run. (With one count for all
    rows, as in torch's SparseAdam, the first step of a row that waited long is three times too long.) A step whose
    tensor `is_bad` is 1 changes nothing; a GPU finds that out without being asked.

    Dense gradients go to torch's fused kernel, but not through torch.optim, whose first use imports torch's compiler
    and takes one to six seconds.
    """

    def __init__(self, parameters: Iterable[nn.Parameter], lr: float, scales: Iterable[float] | None = None) -> None:
        """Give each parameter its multiple of the common rate, if there are `scales`."""
        self.parameters = list(parameters)
        self.scales = [1.0] * len(self.parameters) if scales is None else list(scales)
        if len(self.scales) != len(self.parameters):
            raise ValueError(f"{len(self.scales)} scales for {len(self.parameters)} parameters")
        self.state: list[dict[str, Tensor]] = [{} for _ in self.parameters]
        self.device = self.parameters[0].device
        # On a GPU the rate is a tensor, so that a captured step sees it change.
        self._rate: float | Tensor = torch.tensor(lr, device=self.device) if self.device.type == "cuda" else lr

    @property
    def rate(self) -> float:
        return float(self._rate)

    @rate.setter
    def rate(self, value: float) -> None:
        if isinstance(self._rate, Tensor):
            self._rate.fill_(value)
        else:
            self._rate = value

    def zero_grad(self) -> None:
        """Forget all gradients."""
        for parameter in self.parameters:
            parameter.grad = None

    @torch.no_grad()
    def update(self, is_bad: Tensor) -> None:
        """Take a step, unless it is bad."""
        dense: dict[float, list[tuple[Tensor, Tensor, dict[str, Tensor]]]] = {}
        for parameter, state, scale in zip(self.parameters, self.state, self.scales, strict=True):
            if (gradient := parameter.grad) is None:
                continue
            if not state:
                shape = parameter.shape[:1] if gradient.is_sparse else ()
                state["step"] = torch.zeros(shape, device=parameter.device)
                state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(parameter), torch.zeros_like(parameter)
            if not gradient.is_sparse:
                dense.setdefault(scale, []).append((parameter, gradient, state))
            elif not is_bad:
                self._update_rows(parameter, gradient._indices()[0], gradient._values(), state, scale)
        for scale, parts in dense.items():
            self._update_whole(parts, is_bad, scale)
        self.mark_changed()

    def mark_changed(self) -> None:
        """Tell torch that the parameters have changed, which neither a fused nor a captured step does."""
        torch.autograd.graph.increment_version(self.parameters)

    def _update_whole(
        self, parts: Sequence[tuple[Tensor, Tensor, dict[str, Tensor]]], is_bad: Tensor, scale: float
    ) -> None:
        means, squares, steps = ([state[name] for *_, state in parts] for name in ("exp_avg", "exp_avg_sq", "step"))
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

    def tensors(self) -> dict[str, Tensor]:
        """Return everything that is needed to go on later."""
        return {f"{i}.{name}": value for i, state in enumerate(self.state) for name, value in state.items()}

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Go on from what `tensors` returned."""
        self.state = [{} for _ in self.parameters]
        for key, value in tensors.items():
            number, _, name = key.partition(".")
            self.state[int(number)][name] = value.to(self.parameters[int(number)].device)
        for parameter, state in zip(self.parameters, self.state, strict=True):
            shapes = {name: value.shape for name, value in state.items()}
            moments = {"exp_avg": parameter.shape, "exp_avg_sq": parameter.shape}
            allowed = [{}, *({**moments, "step": counted} for counted in (torch.Size(), parameter.shape[:1]))]
            if shapes not in allowed:
                raise ValueError("the optimiser state of a parameter has another shape")
