"""Optimisers whose steps cost no more than the rows of their gradient: Adam is in `adam.py`, the others are here."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn


class RowOptimiser(ABC):
    """An optimiser that reads and writes only those rows of a parameter that its sparse gradient has.

    A step whose tensor `is_bad` is 1 changes nothing; a GPU checks this without synchronising. Each optimiser keeps
    `moments` for each parameter, of its shape, and how many steps it, or each of its rows, has taken.
    """

    moments: tuple[str, ...]

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
        """Discard all gradients."""
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
                state |= {name: torch.zeros_like(parameter) for name in self.moments}
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

    @abstractmethod
    def _update_whole(
        self, parts: Sequence[tuple[Tensor, Tensor, dict[str, Tensor]]], is_bad: Tensor, scale: float
    ) -> None:
        """Move parameters along dense gradients, unless the step is bad."""

    @abstractmethod
    def _update_rows(
        self, parameter: Tensor, rows: Tensor, gradient: Tensor, state: dict[str, Tensor], scale: float
    ) -> None:
        """Move some rows of a parameter along their gradient."""

    def tensors(self) -> dict[str, Tensor]:
        """Return everything that is needed to continue later."""
        return {f"{i}.{name}": value for i, state in enumerate(self.state) for name, value in state.items()}

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Continue from what `tensors` returned."""
        self.state = [{} for _ in self.parameters]
        for key, value in tensors.items():
            number, _, name = key.partition(".")
            self.state[int(number)][name] = value.to(self.parameters[int(number)].device)
        for parameter, state in zip(self.parameters, self.state, strict=True):
            shapes = {name: value.shape for name, value in state.items()}
            moments = dict.fromkeys(self.moments, parameter.shape)
            allowed = [{}, *({**moments, "step": counted} for counted in (torch.Size(), parameter.shape[:1]))]
            if shapes not in allowed:
                raise ValueError("the optimiser state of a parameter has another shape")


class Rule(NamedTuple):
    """How a gradient becomes a step: the statistics it keeps, and the step at a rate of 1, which updates them."""

    moments: tuple[str, ...]
    step: Callable[..., Tensor]


def _adagrad(gradient: Tensor, total: Tensor) -> Tensor:
    """Divide by the root of the sum of all squares so far (Duchi et al. 2011)."""
    total.addcmul_(gradient, gradient)
    return gradient / total.sqrt().add_(1e-10)


def _rmsprop(gradient: Tensor, square: Tensor) -> Tensor:
    """Divide by the root of the recent mean square (Hinton et al. 2012)."""
    square.mul_(0.99).addcmul_(gradient, gradient, value=0.01)
    return gradient / square.sqrt().add_(1e-8)


def _adadelta(gradient: Tensor, square: Tensor, moved: Tensor) -> Tensor:
    """Multiply by the ratio of the recent sizes of steps and gradients (Zeiler 2012)."""
    square.mul_(0.9).addcmul_(gradient, gradient, value=0.1)
    step = (moved + 1e-6).sqrt_().div_((square + 1e-6).sqrt_()).mul_(gradient)
    moved.mul_(0.9).addcmul_(step, step, value=0.1)
    return step


RULES = {
    "adagrad": Rule(("sum_sq",), _adagrad),
    "adadelta": Rule(("avg_sq", "avg_step_sq"), _adadelta),
    "rmsprop": Rule(("avg_sq",), _rmsprop),
}


class RowRule(RowOptimiser):
    """AdaGrad, AdaDelta or RMSProp [TH table 3.6], as in torch.optim with its defaults; rows that wait keep theirs."""

    def __init__(
        self, rule: Rule, parameters: Iterable[nn.Parameter], lr: float, scales: Iterable[float] | None = None
    ) -> None:
        super().__init__(parameters, lr, scales)
        self.rule, self.moments = rule, rule.moments

    def _update_whole(
        self, parts: Sequence[tuple[Tensor, Tensor, dict[str, Tensor]]], is_bad: Tensor, scale: float
    ) -> None:
        skipped = is_bad > 0
        for parameter, gradient, state in parts:
            moved = [state[name].clone() for name in self.moments]
            step = self.rule.step(gradient, *moved)
            for name, now in zip(self.moments, moved, strict=True):
                state[name].copy_(torch.where(skipped, state[name], now))
            parameter.sub_(torch.where(skipped, 0.0, step * (self._rate * scale)))
            state["step"].add_(1 - is_bad)

    def _update_rows(
        self, parameter: Tensor, rows: Tensor, gradient: Tensor, state: dict[str, Tensor], scale: float
    ) -> None:
        moved = [state[name].index_select(0, rows) for name in self.moments]
        step = self.rule.step(gradient, *moved)
        for name, now in zip(self.moments, moved, strict=True):
            state[name].index_copy_(0, rows, now)
        state["step"].index_add_(0, rows, torch.ones(len(rows), device=rows.device))
        parameter.index_add_(0, rows, step.mul_(-self._rate * scale))
