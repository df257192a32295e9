"""How the server and a model are doing: requests, latency, drift, and precision by month."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from labelfield.serve.store import Served

if TYPE_CHECKING:
    from labelfield.serve.service import Service


async def dashboard(service: Service, served: Served) -> dict[str, Any]:
    """Return all that the page's dashboard shows."""
    kept = service.corrections
    months = [] if kept is None else await asyncio.to_thread(kept.precision_by_month, served.name)
    return {
        "model": served.facts(),
        "workers": service.settings.workers,
        "queue": {"waiting": len(service.batcher.waiting), "capacity": service.settings.queue},
        "last_hour": service.metrics.last_hour(),
        "drift": await asyncio.to_thread(drift, service, served),
        "precision_by_month": months,
    }


def drift(service: Service, served: Served) -> dict[str, Any] | None:
    """Compare recent rows with those of training; None where nothing can be said."""
    return None
