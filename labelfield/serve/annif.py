"""Annif's interface (/v1), as annif-client and Annif's own http backend speak it. A project is a model."""

from __future__ import annotations

import asyncio
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from labelfield.serve.gate import read_body
from labelfield.serve.inputs import (
    MOST_TAGS,
    as_count,
    as_id,
    as_label,
    as_list,
    as_number,
    as_object,
    as_text,
    document_of,
    parse_form,
    parse_json,
    parse_object,
)
from labelfield.serve.refusal import RefusedError
from labelfield.serve.routing import Route
from labelfield.serve.service import Service
from labelfield.serve.store import Served
from labelfield.serve.tagging import Line, Question
from labelfield.version import __version__

_MOST_DOCUMENTS = 32


def _described(served: Served) -> dict[str, Any]:
    language = served.language or "und"
    return {
        "project_id": served.name,
        "name": served.name,
        "language": language,
        "backend": {"backend_id": "labelfield"},
        "vocab": {
            "vocab_id": served.name,
            "languages": [language],
            "size": len(served.names.names),
            "loaded": True,
        },
        "vocab_language": language,
        "is_trained": True,
        "modification_time": served.modified.isoformat(timespec="seconds"),
    }


async def about(service: Service, request: Request) -> Any:
    """Say what answers."""
    return {"title": "labelfield", "version": __version__}


async def projects(service: Service, request: Request) -> Any:
    """List the models as projects."""
    return {"projects": [_described(service.store.find(name)) for name in service.store.folders]}


async def project(service: Service, request: Request) -> Any:
    """Describe one model."""
    return _described(service.store.find(request.path_params["project"]))


def _question(given: dict[str, Any]) -> Question:
    limit = as_count(given.get("limit") or 10, "limit")
    threshold = given.get("threshold")
    return Question(k=limit, threshold=0.0 if threshold in (None, "") else as_number(threshold, "threshold", 0, 1))


def _results(served: Served, line: Line) -> list[dict[str, Any]]:
    text = served.text
    found = []
    for tag in line["tags"]:
        known = None if text is None else text.vocabulary.by_name.get(tag["label"])
        notation = None if known is None else known.notation
        uri = tag["uri"] or tag["label"]
        found.append({"uri": uri, "label": tag["label"], "notation": notation, "score": tag["probability"]})
    return found


async def suggest(service: Service, request: Request) -> Any:
    """Suggest subjects for one text, which comes as a form."""
    served = service.store.find(request.path_params["project"])
    body = await read_body(service, request)
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == "application/json":
        given = parse_object(body)
    elif kind == "multipart/form-data":
        raise RefusedError(415, "multipart forms are not read; send application/x-www-form-urlencoded")
    else:
        given = parse_form(body)
    if "text" not in given:
        raise RefusedError(400, "the form has no text")
    item = document_of(served, as_text(given["text"], "text"), "text")
    (line,) = await service.tag(request, served, [item], _question(given))
    return {"results": _results(served, line)}


async def suggest_batch(service: Service, request: Request) -> Any:
    """Suggest subjects for up to 32 documents."""
    served = service.store.find(request.path_params["project"])
    documents = as_list(parse_object(await read_body(service, request)).get("documents"), "documents")
    if not 1 <= len(documents) <= _MOST_DOCUMENTS:
        raise RefusedError(400, f"{len(documents)} documents; send 1 to {_MOST_DOCUMENTS}")
    given = [as_object(one, f"documents[{place}]") for place, one in enumerate(documents)]
    items = [document_of(served, one.get("text"), f"text of documents[{i}]") for i, one in enumerate(given)]
    ids = [as_id(one.get("document_id"), f"the document_id of documents[{i}]") for i, one in enumerate(given)]
    lines = await service.tag(request, served, items, _question(dict(request.query_params)))
    return [
        {"document_id": identifier, "results": _results(served, line)}
        for identifier, line in zip(ids, lines, strict=True)
    ]


def _label_of(served: Served, subject: dict[str, Any]) -> str:
    """Return the URI of a subject, or its label if the model knows that alone."""
    given = [subject[key] for key in ("uri", "label") if subject.get(key)] or [None]
    labels = [as_label(one, "the uri or label of a subject") for one in given]
    return next((one for one in labels if served.knows(one)), labels[0])


async def learn(service: Service, request: Request) -> Any:
    """Store documents with their subjects as corrections."""
    served = service.store.find(request.path_params["project"])
    documents = as_list(parse_json(await read_body(service, request)), "the body")
    kept = list[tuple[str | None, tuple[str, ...], tuple[()], list[str]]]()
    for place, one in enumerate(documents):
        given = as_object(one, f"document {place}")
        texts = document_of(served, given.get("text"), f"text of document {place}")
        subjects = [as_object(own, "a subject") for own in as_list(given.get("subjects"), "subjects", MOST_TAGS)]
        labels = [_label_of(served, own) for own in subjects]
        kept.append((as_id(given.get("document_id"), f"the document_id of document {place}"), texts, (), labels))
    await asyncio.to_thread(service.add_corrections, served, "annif", kept)
    return Response(status_code=204)


def routes() -> list[Route]:
    """Return the routes of this shape."""
    one = "/v1/projects/{project}"
    return [
        Route("POST", f"{one}/suggest", suggest),
        Route("POST", f"{one}/suggest-batch", suggest_batch),
        Route("GET", "/v1/", about),
        Route("GET", "/v1/projects", projects),
        Route("GET", one, project),
        Route("POST", f"{one}/learn", learn),
    ]
