"""Schedules of the learning rate: a factor as a function of the share of the run that is done."""

from __future__ import annotations

from math import cos, pi

__all__ = ["SCHEDULES", "rate_factor"]

SCHEDULES = ("one_cycle", "cosine", "linear", "constant")
_RISE = 0.3  # the share of a one-cycle run in which the rate rises
_START, _END = 1 / 25, 1e-4


def rate_factor(schedule: str, share: float) -> float:
    """Return the factor on the learning rate when `share` (0 to 1) of the run is done."""
    share = min(max(share, 0.0), 1.0)
    if schedule == "one_cycle":
        if share < _RISE:
            return _between(_START, 1.0, share / _RISE)
        return _between(1.0, _END, (share - _RISE) / (1 - _RISE))
    if schedule == "cosine":
        return _between(1.0, _END, share)
    if schedule == "linear":
        return 1.0 + (_END - 1.0) * share
    if schedule == "constant":
        return 1.0
    raise ValueError(f"schedule={schedule!r}; expected one of {', '.join(SCHEDULES)}")


def _between(start: float, end: float, share: float) -> float:
    """Interpolate from start to end along half a cosine."""
    return end + (start - end) * 0.5 * (1 + cos(pi * share))
