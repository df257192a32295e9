"""The four routes that Label Studio asks of a machine-learning backend, under any prefix."""

from __future__ import annotations

import asyncio
from collections.abc import Container, Iterator
from typing import Any, NamedTuple
from xml.etree import ElementTree as ET

from starlette.requests import Request

from labelfield.serve.gate import read_body
from labelfield.serve.inputs import MOST_TAGS, as_id, as_label, as_list, as_object, as_text, parse_object
from labelfield.serve.refusal import RefusedError, require_few
from labelfield.serve.routing import Route
from labelfield.serve.service import Service
from labelfield.serve.store import Served
from labelfield.serve.tagging import Question

_LEARNED = ("ANNOTATION_CREATED", "ANNOTATION_UPDATED")
_TRAIN = "START_TRAINING"
# The probability from which a tag is proposed; if none has it, the first one is.
_LIKELY = 0.5
# Levels of nested choices.
_MOST_LEVELS = 50


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
        controls_of(as_text(given["schema"], "schema"), served.known)
    return {"model_version": served.version}


async def predict(service: Service, request: Request) -> Any:
    """Predict the choices of tasks."""
    served = _served(service, request)
    given = parse_object(await read_body(service, request))
    listed = as_list(given.get("tasks"), "tasks")
    require_few(len(listed), service.settings.queue)
    tasks = [as_object(one, f"tasks[{place}]") for place, one in enumerate(listed)]
    controls = controls_of(as_text(given.get("label_config") or "", "label_config"), served.known)
    items = [_document(served, task, controls[0].field) for task in tasks]
    question = Question(k=100 if any(control.paths for control in controls) else 20)
    lines = await service.tag(request, served, items, question) if items else []
    results = []
    for line in lines:
        chosen = [control.chosen(line["tags"]) for control in controls]
        results.append(
            {
                "result": [control.result(own) for control, own in zip(controls, chosen, strict=True) if own],
                "score": min((tag["probability"] for own in chosen for tag in own), default=0.0),
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
    results = as_list(annotation.get("result"), "result of the annotation")
    if annotation.get("was_cancelled"):  # the task was skipped
        return {"status": "ignored"}
    config = as_object(given.get("project") or {}, "project").get("label_config")
    controls = controls_of(as_text(config, "label_config"), served.known) if config else []
    labels = _labels_of(results, {control.name: control for control in controls}, served.known)
    given_id = as_id(task.get("id"), "the id of the task")
    identifier = None if given_id is None else f"label-studio-{given_id}"
    texts = _document(served, task, controls[0].field if controls else None)
    await asyncio.to_thread(service.add_corrections, served, "label studio", [(identifier, texts, [], labels)])
    return {"status": "stored"}


def _labels_of(results: list[Any], controls: dict[str, Control], known: Container[str]) -> list[str]:
    """Return the labels that a person chose by these control tags, or by any if the configuration is not told."""
    labels = dict[str, None]()
    for one in results:
        result = as_object(one, "a result")
        value = as_object(result.get("value") or {}, "a value")
        control = controls.get(str(result.get("from_name")))
        if controls and control is None:  # about something else
            continue
        for kind in _KINDS:
            for chosen in as_list(value.get(kind) or [], kind, MOST_TAGS):
                path = [as_label(part, "a choice") for part in (chosen if isinstance(chosen, list) else [chosen])]
                if path:
                    labels[_label_of(path, control, known)] = None
    return list(labels)


def _label_of(path: list[str], control: Control | None, known: Container[str]) -> str:
    """Return what the model calls a choice: by all its levels, by its last one, or as people see it; else its last."""
    called = [_SEPARATOR.join(path), path[-1]]
    if control is not None:
        called += [label for label, own in control.paths.items() if own == path]
    return next((label for label in called if label in known), path[-1])


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


# Control tags that give a document labels, as results call them.
_KINDS = ("choices", "taxonomy")
_SEPARATOR = "/"


class Control(NamedTuple):
    """A control tag: what it is called, what it is about, and how it writes the labels that it offers.

    `paths` are the choices by label, each with those above it; it is empty where choices are not in the configuration.
    """

    kind: str
    name: str
    to_name: str
    field: str | None
    paths: dict[str, list[str]]
    is_nested: bool
    most: int | None

    def chosen(self, tags: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return the tags that this control would have: the likely ones, at least one, as many as it takes."""
        own = [tag for tag in tags if not self.paths or tag["label"] in self.paths]
        return ([tag for tag in own if tag["probability"] >= _LIKELY] or own[:1])[: self.most]

    def result(self, tags: list[dict[str, Any]]) -> dict[str, Any]:
        """Return tags as Label Studio writes what a person chose."""
        paths = [self.paths.get(tag["label"], [tag["label"]]) for tag in tags]
        value = {self.kind: paths if self.is_nested else [path[-1] for path in paths]}
        return {"from_name": self.name, "to_name": self.to_name, "type": self.kind, "value": value}


def controls_of(config: str, known: Container[str]) -> list[Control]:
    """Return the control tags that take labels of this model, or all that take labels of documents if none does."""
    if not config.strip():
        return [Control("choices", "tags", "text", None, {}, False, None)]
    if "<!DOCTYPE" in config:
        raise RefusedError(422, "the label configuration has a document type; leave it out")
    try:
        root = ET.fromstring(config)
    except ET.ParseError as error:
        raise RefusedError(422, f"the label configuration is not XML: {error}") from None
    fields = {_attribute(one, "name"): _attribute(one, "value").lstrip("$") or None for one in root.iter()}
    found = [
        _control(one, fields)
        for one in root.iter()
        if one.tag.lower() in _KINDS and _attribute(one, "perRegion").lower() != "true"
    ]
    if not found:
        raise RefusedError(422, "the label configuration has no Choices; labelfield gives documents their tags")
    return [one for one in found if any(label in known for label in one.paths)] or found


def _control(tag: ET.Element, fields: dict[str, str | None]) -> Control:
    kind, most = tag.tag.lower(), _attribute(tag, "maxUsages")
    to_name = _attribute(tag, "toName").partition(",")[0].strip() or "text"
    is_single = kind == "choices" and not _attribute(tag, "choice").startswith("multiple")
    return Control(
        kind,
        _attribute(tag, "name") or "tags",
        to_name,
        fields.get(to_name),
        _paths(tag),
        kind == "taxonomy" or _attribute(tag, "allowNested").lower() == "true",
        1 if is_single else int(most[:9]) or None if most.isdecimal() else None,
    )


def _paths(control: ET.Element) -> dict[str, list[str]]:
    """Return the choices by the labels that may be meant: by all levels, by the last one, or as people see it."""
    only_leaves = _attribute(control, "leafsOnly").lower() == "true"
    by_path, by_name, by_sight = {}, dict[str, list[str]](), dict[str, list[str]]()
    for choice, path in _choices(control):
        if only_leaves and any(one.tag.lower() == "choice" for one in choice):
            continue
        by_path[_SEPARATOR.join(path)] = path
        by_name.setdefault(path[-1], path)
        by_sight.setdefault(_attribute(choice, "value"), path)
    return by_sight | by_name | by_path


def _choices(control: ET.Element) -> Iterator[tuple[ET.Element, list[str]]]:
    """Yield the choices of a control tag in their order, each as results have it: its aliases, from the top down."""
    waiting: list[tuple[ET.Element, list[str]]] = [(one, []) for one in reversed(control)]
    while waiting:
        one, above = waiting.pop()
        path = above
        if one.tag.lower() == "choice":
            path = [*above, _attribute(one, "alias") or _attribute(one, "value")]
            yield one, path
        if len(path) > _MOST_LEVELS:
            raise RefusedError(422, f"the label configuration nests choices more than {_MOST_LEVELS} levels deep")
        waiting += [(inner, path) for inner in reversed(one)]


def _attribute(tag: ET.Element, name: str) -> str:
    """Return an attribute, in whatever case it is written, as Label Studio takes it; nothing if there is none."""
    return next((value for own, value in tag.items() if own.lower() == name.lower()), "")


def routes() -> list[Route]:
    """Return the routes of this shape, at the root and under any prefix."""
    posted = (("POST", "setup", setup), ("POST", "predict", predict), ("POST", "webhook", webhook))
    return [
        Route(method, f"{prefix}/{name}", handler)
        for prefix in ("", "/{prefix:path}")
        for method, name, handler in (("GET", "health", health), *posted)
    ]
