"""The page and what it asks beside tags: corrections, learning, and a dashboard."""

from __future__ import annotations

import asyncio
from functools import cache
from importlib.resources import files
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from labelfield.serve.dashboard import dashboard
from labelfield.serve.gate import read_body
from labelfield.serve.inputs import (
    MOST_TAGS,
    as_id,
    as_label,
    as_list,
    as_number,
    as_text,
    document_of,
    parse_object,
    require_known,
)
from labelfield.serve.learning import why_not_undone
from labelfield.serve.refusal import RefusedError
from labelfield.serve.routing import Route
from labelfield.serve.service import Service
from labelfield.serve.store import Served

_FILES = {"page.html": "text/html", "page.css": "text/css", "page.js": "text/javascript", "icon.svg": "image/svg+xml"}
_FILES |= dict.fromkeys(("dom.js", "review.js", "dashboard.js", "api.js"), "text/javascript")
# Nothing from elsewhere, and nothing inline: what a document or a label says can never become code.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'none'; frame-ancestors 'none'; base-uri 'none'; require-trusted-types-for 'script'"
)
_MOST_LISTED = 200


@cache
def _content(name: str) -> bytes:
    return (files("labelfield.serve") / "page" / name).read_bytes()


def _file(name: str) -> Response:
    headers = {"Content-Security-Policy": POLICY, "Cache-Control": "no-cache", "X-Frame-Options": "DENY"}
    return Response(_content(name), media_type=_FILES[name], headers=headers)


async def page(service: Service, request: Request) -> Any:
    """Show the page."""
    return _file("page.html")


async def part(service: Service, request: Request) -> Any:
    """Serve a file of the page."""
    name = request.path_params["name"]
    if name not in _FILES:
        raise RefusedError(404, "the page has no such file")
    return _file(name)


def _documents_model(service: Service, name: Any) -> Served:
    served = service.store.find(None if name is None else as_text(name, "model"))
    if served.fields is None:
        raise RefusedError(409, f"the model {served.name!r} takes rows; corrections are for models of documents")
    return served


async def add(service: Service, request: Request) -> Any:
    """Store a correction."""
    given = parse_object(await read_body(service, request))
    require_known(given, ("model", "id", "document", "predicted", "labels"))
    served = _documents_model(service, given.get("model"))
    texts = document_of(served, given.get("document"), "document")
    labels = [as_label(one, "a label") for one in as_list(given.get("labels"), "labels", MOST_TAGS)]
    predicted = []
    for one in as_list(given.get("predicted", []), "predicted", MOST_TAGS):
        if not isinstance(one, dict):
            raise RefusedError(422, "predicted has something that is no tag")
        predicted.append((as_text(one.get("label"), "a label"), as_number(one.get("probability"), "probability", 0, 1)))
    corrected = as_id(given.get("id"), "id"), texts, predicted, labels
    number = await asyncio.to_thread(service.add_corrections, served, "page", [corrected])
    return {"correction": number, **await _counts(service, served)}


async def _counts(service: Service, served: Served) -> dict[str, int]:
    if service.corrections is None:
        return {"new": 0, "all": 0}
    return await asyncio.to_thread(service.corrections.counts, served.name)


async def listed(service: Service, request: Request) -> Any:
    """List the corrections of a model, the last first."""
    served = _documents_model(service, request.query_params.get("model"))
    if service.corrections is None:
        return {"kept": False, "corrections": [], "new": 0, "all": 0}
    found = await asyncio.to_thread(service.corrections.listed, served.name, most=_MOST_LISTED)
    return {"kept": True, "corrections": [one._asdict() for one in found], **await _counts(service, served)}


async def remove(service: Service, request: Request) -> Any:
    """Undo a correction."""
    number = request.path_params["number"]
    if service.corrections is None or not await asyncio.to_thread(service.corrections.remove, number):
        raise RefusedError(404, "there is no such correction, or it was learned already; undo the learning first")
    return {"removed": number}


async def learning(service: Service, request: Request) -> Any:
    """Say how far the last learning of a model is."""
    served = _documents_model(service, request.query_params.get("model"))
    last = None
    if service.corrections is not None:
        last = await asyncio.to_thread(service.corrections.last_learning, served.name)
    can_undo = last is not None and why_not_undone(last, served.folder) is None
    return {"learning": last, "can_undo": can_undo, **await _counts(service, served)}


async def _learning_model(service: Service, request: Request) -> str:
    given = parse_object(await read_body(service, request))
    require_known(given, ("model",))
    return _documents_model(service, given.get("model")).name


async def learn(service: Service, request: Request) -> Any:
    """Start to learn."""
    return await service.learner.start(await _learning_model(service, request))


async def undo(service: Service, request: Request) -> Any:
    """Undo the last learning."""
    return await service.learner.undo(await _learning_model(service, request))


async def show_dashboard(service: Service, request: Request) -> Any:
    """Show how the server and a model are doing."""
    return await dashboard(service, service.store.find(request.query_params.get("model")))


def routes() -> list[Route]:
    """Return the routes of the page."""
    return [
        Route("GET", "/", page),
        Route("GET", "/page/{name}", part),
        Route("GET", "/corrections", listed),
        Route("POST", "/corrections", add),
        Route("DELETE", "/corrections/{number:int}", remove),
        Route("GET", "/learn", learning),
        Route("POST", "/learn", learn),
        Route("POST", "/learn/undo", undo),
        Route("GET", "/dashboard", show_dashboard),
    ]
