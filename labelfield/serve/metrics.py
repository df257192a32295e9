"""Counts for operators (Prometheus), and the last hour of requests for the page. Never a series per label."""

from __future__ import annotations

import os
import time
from collections import deque
from typing import Any, NamedTuple

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
_MOST_KEPT, _WINDOW_S = 50_000, 3600.0
INFO = "labelfield_model_info"


class _Request(NamedTuple):
    at: float
    status: int
    seconds: float
    n_documents: int


class Metrics:
    """What is counted, in a registry of its own."""

    def __init__(self) -> None:
        self.registry = own = CollectorRegistry()
        self.requests = Counter("labelfield_requests", "Requests.", ["route", "code"], registry=own)
        self.duration = Histogram(
            "labelfield_request_duration_seconds", "Time until the answer.", ["route"], buckets=_SECONDS, registry=own
        )
        self.documents = Counter("labelfield_documents", "Documents or rows answered.", ["model"], registry=own)
        self.batch_size = Histogram("labelfield_batch_size", "Documents per batch.", buckets=_SIZES, registry=own)
        self.queue = Gauge("labelfield_queue_length", "Documents that wait.", registry=own, multiprocess_mode="livesum")
        self.reloads = Counter("labelfield_reloads", "Models loaded again.", ["model", "result"], registry=own)
        self.info = Gauge(
            INFO,
            "1 for the version that answers.",
            ["model", "version", "method"],
            registry=own,
            multiprocess_mode="livemax",
        )
        self.recent: deque[_Request] = deque(maxlen=_MOST_KEPT)
        self._found: dict[tuple[str, int], tuple[Counter, Histogram]] = {}

    def count(self, route: str, status: int, seconds: float, n_documents: int) -> None:
        """Count a request that was answered."""
        requests, duration = self._series(route, status)
        requests.inc()
        duration.observe(seconds)
        if n_documents or status >= 400:
            self.recent.append(_Request(time.time(), status, seconds, n_documents))

    def _series(self, route: str, status: int) -> tuple[Counter, Histogram]:
        """Return the count and the times of a route, which are looked up once: there are few of them."""
        found = self._found.get((route, status))
        if found is None:
            found = self.requests.labels(route, str(status)), self.duration.labels(route)
            self._found[route, status] = found
        return found

    def show_model(self, name: str, version: str, method: str, old: tuple[str, str] | None = None) -> None:
        """Say which version of a model answers, in place of an old version and its method."""
        if old is not None and old != (version, method):
            self.info.labels(name, *old).set(0)
            if "PROMETHEUS_MULTIPROC_DIR" not in os.environ:  # where series cannot be removed
                self.info.remove(name, *old)
        self.info.labels(name, version, method).set(1)

    def text(self) -> bytes:
        """Return everything as Prometheus reads it: of all workers, if there are several."""
        return generate_latest(self._together())

    def versions(self, name: str) -> set[str]:
        """Return the versions of a model that answer: several, if some workers have not loaded the last one yet."""
        shown = (one for metric in self._together().collect() if metric.name == INFO for one in metric.samples)
        return {one.labels["version"] for one in shown if one.labels["model"] == name and one.value}

    def _together(self) -> CollectorRegistry:
        if "PROMETHEUS_MULTIPROC_DIR" not in os.environ:
            return self.registry
        together = CollectorRegistry()
        MultiProcessCollector(together)  # type: ignore[no-untyped-call]
        return together

    def last_hour(self, n_points: int = 60) -> dict[str, Any]:
        """Return requests, errors and latency by minute, for the page."""
        now = time.time()
        kept = [one for one in list(self.recent) if now - one.at < _WINDOW_S]
        width = _WINDOW_S / n_points
        points: list[list[_Request]] = [[] for _ in range(n_points)]
        for one in kept:
            points[min(n_points - 1, int((one.at - (now - _WINDOW_S)) / width))].append(one)
        return {
            "requests": len(kept),
            "documents": sum(one.n_documents for one in kept if one.status < 400),
            "errors": sum(one.status >= 500 and one.status != 503 for one in kept),
            "refused": sum(400 <= one.status < 500 or one.status == 503 for one in kept),
            "p50_ms": _quantile([one.seconds for one in kept if one.status < 400], 0.5),
            "p99_ms": _quantile([one.seconds for one in kept if one.status < 400], 0.99),
            "by_minute": [
                {"requests": len(own), "p50_ms": _quantile([one.seconds for one in own], 0.5)} for own in points
            ],
        }


def _quantile(seconds: list[float], level: float) -> float | None:
    if not seconds:
        return None
    return round(1000 * sorted(seconds)[min(len(seconds) - 1, int(level * len(seconds)))], 2)
