"""How the server and a model are doing: requests, latency, drift, and precision by month."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import sparse

from labelfield.decide import Evidence
from labelfield.decide.drift import LEAST_NEW_ROWS, Drift, compare
from labelfield.errors import CannotAnswerError
from labelfield.serve.store import Served

# Recent rows that are compared.
_MOST_ROWS = 300

if TYPE_CHECKING:
    from labelfield.serve.service import Service


async def dashboard(service: Service, served: Served) -> dict[str, Any]:
    """Return all that the page's dashboard shows."""
    kept = service.corrections
    await service.whole(served)
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
    """Compare what the model says of recent rows with what it said of held-out ones; None where nothing can be said."""
    estimator = served.estimator()
    kept = [rows for rows in list(service.recent[served.name]) if rows.shape[1] == estimator.n_features_in_]
    if sum(rows.shape[0] for rows in kept) < LEAST_NEW_ROWS:
        return None
    recent = sparse.csr_array(sparse.vstack(kept[-_MOST_ROWS:], format="csr"))[-_MOST_ROWS:]
    try:
        known = estimator.held_out_evidence()
    except CannotAnswerError:
        return None
    best = estimator.predict_topk(recent, known.n_listed)
    nothing = sparse.csr_array((recent.shape[0], best.shape[1]), dtype=np.float32)
    new = Evidence.of_scores(best, nothing)
    found = Drift(compare(known, new.labels, new.p), [], known.n_rows, recent.shape[0])
    return {
        "message": found.said,
        "is_new_kind": found.is_new_kind,
        "columns": ["in training", "now", "distance", "by chance"],
        "rows": [
            [one.name, f"{one.held_out:.3f}", f"{one.new:.3f}", f"{one.distance:.4f}", f"{one.most:.4f}"]
            for one in found.comparisons
        ],
    }
