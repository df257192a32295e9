"""The four routes that Label Studio asks of a machine-learning backend, under any prefix."""

from __future__ import annotations

import asyncio
from typing import Any
from xml.etree import ElementTree as ET

from starlette.requests import Request

from labelfield.serve.gate import read_body
from labelfield.serve.inputs import as_list, as_object, as_text, parse_object
from labelfield.serve.refusal import RefusedError
from labelfield.serve.routing import Route
from labelfield.serve.service import Service
from labelfield.serve.store import Served
from labelfield.serve.tagging import Question

_LEARNED = ("ANNOTATION_CREATED", "ANNOTATION_UPDATED")
_TRAIN = "START_TRAINING"


def _served(service: Service, request: Request) -> Served:
    """Return the model that the last part of a prefix names, by default the first."""
    name = request.path_params.get("prefix", "").strip("/").rpartition("/")[2]
    return service.store.find(name if name in service.store.folders else None)


async def health(service: Service, request: Request) -> Any:
    """Say whether the model answers."""
    served = _served(service, request)
    return {"status": "UP", "model_class": "labelfield", "model_version": served.version}


async def setup(service: Service, request: Request) -> Any:
    """Take note of a project."""
    served = _served(service, request)
    given = parse_object(await read_body(service, request))
    if given.get("schema"):
        _tags_of_config(as_text(given["schema"], "schema"))
    return {"model_version": served.version}


async def predict(service: Service, request: Request) -> Any:
    """Predict the choices of tasks."""
    served = _served(service, request)
    given = parse_object(await read_body(service, request))
    tasks = [as_object(one, f"tasks[{place}]") for place, one in enumerate(as_list(given.get("tasks"), "tasks"))]
    config = as_text(given.get("label_config") or "", "label_config")
    from_name, to_name, field, choices = _tags_of_config(config)
    items = [_document(served, task, field) for task in tasks]
    lines = await service.tag(request, served, items, Question(k=100 if choices else 20)) if items else []
    results = []
    for line in lines:
        tags = [tag for tag in line["tags"] if not choices or tag["label"] in choices]
        chosen = [tag for tag in tags if tag["probability"] >= 0.5] or tags[:1]
        value = {"choices": [tag["label"] for tag in chosen]}
        result = [{"from_name": from_name, "to_name": to_name, "type": "choices", "value": value}] if chosen else []
        score = min((tag["probability"] for tag in chosen), default=0.0)
        results.append(
            {
                "result": result,
                "score": score,
                "uncertainty": line["uncertainty"],
                "model_version": served.version,
            }
        )
    return {"results": results}


async def webhook(service: Service, request: Request) -> Any:
    """Store annotations as corrections, or start to learn from them; learning goes on in the background."""
    served = _served(service, request)
    given = parse_object(await read_body(service, request))
    action = as_text(given.get("action"), "action")
    if action == _TRAIN:
        return {"status": "started", **await service.learner.start(served.name)}
    if action not in _LEARNED:
        return {"status": "ignored"}
    task = as_object(given.get("task"), "task")
    annotation = as_object(given.get("annotation"), "annotation")
    labels = []
    for one in as_list(annotation.get("result"), "result of the annotation"):
        value = as_object(as_object(one, "a result").get("value") or {}, "a value")
        for key in ("choices", "taxonomy"):
            for own in as_list(value.get(key, []), key):
                labels.append(as_text(own[-1] if isinstance(own, list) and own else own, "a choice"))
    identifier = None if task.get("id") is None else f"label-studio-{task['id']}"
    texts = _document(served, task, None)
    await asyncio.to_thread(service.add_correction, served, "label studio", identifier, texts, [], labels)
    return {"status": "stored"}


def _document(served: Served, task: dict[str, Any], field: str | None) -> tuple[str, ...]:
    """Return the document of a task: the model's fields, else the field that the configuration shows, else any text."""
    data = as_object(task.get("data"), "data of a task")
    fields = served.fields
    if fields is None:
        raise RefusedError(422, f"the model {served.name!r} takes rows of numbers, not documents")
    if any(one in data for one in fields):
        return tuple(as_text(data.get(one) or "", f"{one} of a task") for one in fields)
    found = data.get(field) if field in data else next((one for one in data.values() if isinstance(one, str)), None)
    if found is None:
        raise RefusedError(422, "a task has no text")
    return (*("",) * (len(fields) - 1), as_text(found, "the text of a task"))


def _tags_of_config(config: str) -> tuple[str, str, str | None, set[str]]:
    """Return the names of the choices, of what they are about, its field, and the allowed choices."""
    if not config.strip():
        return "tags", "text", None, set()
    if "<!" in config:
        raise RefusedError(422, "the label configuration has a document type; leave it out")
    try:
        root = ET.fromstring(config)
    except ET.ParseError as error:
        raise RefusedError(422, f"the label configuration is not XML: {error}") from None
    tag = next((one for one in root.iter() if one.tag in ("Choices", "Taxonomy")), None)
    if tag is None:
        raise RefusedError(422, "the label configuration has no Choices; labelfield gives documents their tags")
    to_name = tag.get("toName") or "text"
    shown = next((one for one in root.iter() if one.get("name") == to_name), None)
    field = None if shown is None else (shown.get("value") or "").lstrip("$") or None
    choices = {one.get("alias") or one.get("value") or "" for one in tag.iter("Choice")}
    return tag.get("name") or "tags", to_name, field, choices


def routes() -> list[Route]:
    """Return the routes of this shape, at the root and under any prefix."""
    posted = (("POST", "setup", setup), ("POST", "predict", predict), ("POST", "webhook", webhook))
    return [
        Route(method, f"{prefix}/{name}", handler)
        for prefix in ("", "/{prefix:path}")
        for method, name, handler in (("GET", "health", health), *posted)
    ]
