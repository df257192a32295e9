"""What evidence for decisions costs in training: processor time with it over processor time without it."""

from __future__ import annotations

import time
from functools import partial
from statistics import median
from typing import Any

from benchmarks.measuring.isolated import isolated
from benchmarks.studies.decide import rows_of

# Data sets, qualities, and how many pairs of trainings.
TRAINED = (("bibtex", "fast", 7), ("bibtex", "good", 7), ("eurlex-4k", "fast", 2))


def _prepare() -> Any:
    import labelfield

    return labelfield


def _seconds(labelfield: Any, data: Any, quality: str) -> float:
    started = time.process_time()
    labelfield.AutoClassifier(device="cpu", quality=quality).fit(data.X, data.Y)
    return time.process_time() - started


def ratio(name: str, quality: str, n_pairs: int, labelfield: Any) -> dict[str, float]:
    """Train in turn with evidence and without, which is left out where it would be cross-fitted."""
    from unittest import mock

    data = rows_of(name)
    _seconds(labelfield, data.take(slice(0, 500)), quality)  # compiles, and warms up
    places = ("labelfield.inference.calibrating.cross_fitted", "labelfield.inference.linear.cross_fitted")
    pairs = []
    for _ in range(n_pairs):
        whole = _seconds(labelfield, data, quality)
        with mock.patch(places[0], return_value={}), mock.patch(places[1], return_value={}):
            pairs.append((whole, _seconds(labelfield, data, quality)))
    return {
        "with evidence over without": median(whole / without for whole, without in pairs),
        "seconds without": median(without for _, without in pairs),
    }


def run() -> dict[str, Any]:
    """Measure all of them."""
    return {
        f"{name}, {quality}": isolated(_prepare, partial(ratio, name, quality, n)).value for name, quality, n in TRAINED
    }
