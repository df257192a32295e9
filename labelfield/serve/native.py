"""Our own routes: tagging, models and labels."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request

from labelfield.serve.gate import read_body
from labelfield.serve.inputs import as_count, as_text, items_of, parse_object, parse_text, question_of, require_known
from labelfield.serve.routing import Route
from labelfield.serve.service import Service

_KNOWN = ("model", "text", "documents", "rows", "k", "threshold", "precision", "review", "explain")


async def tag(service: Service, request: Request) -> Any:
    """Tag one or many documents or rows."""
    body = await read_body(service, request)
    is_plain = request.headers.get("content-type", "").lower().startswith("text/plain")
    own = {"text": parse_text(body)} if is_plain else parse_object(body)
    given: dict[str, Any] = {**request.query_params, **own}
    require_known(given, _KNOWN)
    served = service.store.find(None if given.get("model") is None else as_text(given["model"], "model"))
    items, ids = items_of(served, given, service.settings.queue)
    lines = await service.tag(request, served, items, question_of(given))
    results = [line if id is None else {"id": id, **line} for id, line in zip(ids, lines, strict=True)]
    return {"model": served.name, "version": served.version, "results": results}


async def models(service: Service, request: Request) -> Any:
    """List the models."""
    found = [service.store.find(name).facts() for name in service.store.folders]
    return {"models": found}


async def labels(service: Service, request: Request) -> Any:
    """Find labels by a part of their name, those that begin with it first."""
    given = request.query_params
    served = service.store.find(given.get("model"))
    wanted, most = given.get("q", "").casefold(), as_count(given.get("n", "20"), "n", 1, 1000)
    found = [name for name in served.names.names if wanted in name.casefold()]
    found.sort(key=lambda name: (not name.casefold().startswith(wanted), len(name), name))
    return {"labels": found[:most], "total": len(found)}


def routes() -> list[Route]:
    """Return the routes of this shape."""
    return [
        Route("POST", "/tag", tag),
        Route("GET", "/models", models),
        Route("GET", "/labels", labels),
    ]
