"""The Open Inference Protocol (/v2), as KServe, Triton and MLServer speak it over HTTP."""

from __future__ import annotations

import math
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse

from labelfield.serve.gate import read_body
from labelfield.serve.inputs import as_count, as_list, as_number, as_object, as_text, document_of, parse_object, row_of
from labelfield.serve.refusal import RefusedError, require_few
from labelfield.serve.routing import Route
from labelfield.serve.service import Service
from labelfield.serve.store import Served
from labelfield.serve.tagging import Line, Question
from labelfield.version import __version__

_MOST_AXES, _LONGEST_AXIS = 8, (1 << 31) - 1
_NUMBERS = ("FP16", "FP32", "FP64", "INT8", "INT16", "INT32", "INT64", "UINT8", "UINT16", "UINT32", "UINT64")


async def about(service: Service, request: Request) -> Any:
    """Say what answers."""
    return {"name": "labelfield", "version": __version__, "extensions": ["model_repository"]}


async def live(service: Service, request: Request) -> Any:
    """Say that the process answers."""
    return {"live": True}


async def ready(service: Service, request: Request) -> Any:
    """Say whether all models answer."""
    is_ready = service.store.is_ready
    return JSONResponse({"ready": is_ready}, 200 if is_ready else 503)


async def model(service: Service, request: Request) -> Any:
    """Describe the inputs and outputs of a model."""
    served = service.store.find(request.path_params["model"])
    if served.fields is None:
        inputs = [{"name": "rows", "datatype": "FP32", "shape": [-1, served.n_features]}]
    else:
        inputs = [{"name": field, "datatype": "BYTES", "shape": [-1]} for field in served.fields]
    outputs = [
        {"name": "label", "datatype": "BYTES", "shape": [-1, -1]},
        {"name": "probability", "datatype": "FP32", "shape": [-1, -1]},
    ]
    return {
        "name": served.name,
        "versions": [served.version],
        "platform": "labelfield",
        "inputs": inputs,
        "outputs": outputs,
    }


async def model_ready(service: Service, request: Request) -> Any:
    """Say whether a model answers."""
    served = service.store.find(request.path_params["model"])
    return {"name": served.name, "ready": True}


async def infer(service: Service, request: Request) -> Any:
    """Tag what the inputs hold."""
    served = service.store.find(request.path_params["model"])
    body = parse_object(await read_body(service, request))
    inputs = [as_object(one, f"inputs[{place}]") for place, one in enumerate(as_list(body.get("inputs"), "inputs"))]
    if not inputs:
        raise RefusedError(400, "inputs is empty; expected at least one")
    items = (_rows if served.fields is None else _documents)(served, inputs, service.settings.queue)
    lines = await service.tag(request, served, items, _question(as_object(body.get("parameters") or {}, "parameters")))
    answer = {"model_name": served.name, "model_version": served.version, "outputs": _outputs(lines)}
    return answer if body.get("id") is None else {"id": as_text(body["id"], "id"), **answer}


def _question(given: dict[str, Any]) -> Question:
    limit = as_count(given.get("limit", 5), "limit")
    return Question(k=limit, threshold=as_number(given.get("threshold", 0.0), "threshold", 0, 1))


def _tensor(given: dict[str, Any], what: str) -> tuple[list[int], list[Any]]:
    """Return the shape and the flat data of an input; data may be nested as the shape says."""
    shape = [
        as_count(n, f"the shape of {what}", 0, _LONGEST_AXIS)
        for n in as_list(given.get("shape"), f"shape of {what}", _MOST_AXES)
    ]
    data = as_list(given.get("data"), f"data of {what}")
    while data and all(isinstance(one, list) for one in data):
        data = [inner for one in data for inner in one]
    if not shape or not data:
        raise RefusedError(400, f"{what} is empty, or its shape is; expected at least one value")
    if math.prod(shape) != len(data):
        raise RefusedError(400, f"{what} has {len(data)} values; its shape {shape} says {math.prod(shape)}")
    return shape, data


def _documents(served: Served, inputs: list[dict[str, Any]], most: int) -> list[Any]:
    """Return documents from BYTES inputs: one for each field by its name, or a single one of any name."""
    fields = served.fields or ()
    found: dict[str, list[Any]] = {}
    for one in inputs:
        name = as_text(one.get("name"), "the name of an input")
        if (kind := as_text(one.get("datatype"), "the datatype of an input")) != "BYTES":
            raise RefusedError(400, f"the input {name[:100]!r} is {kind[:100]!r}; expected BYTES")
        found[name] = _tensor(one, f"the input {name!r}")[1]
        require_few(len(found[name]), most)
    if len(found) == 1 and not set(found) & set(fields):
        return [document_of(served, text, "data") for text in next(iter(found.values()))]
    unknown = [name for name in found if name not in fields]
    if unknown:
        raise RefusedError(400, f"the input {unknown[0][:100]!r} is not known; known are {', '.join(fields)}")
    lengths = {len(data) for data in found.values()}
    if len(lengths) > 1:
        raise RefusedError(400, "the inputs have different lengths")
    empty = [""] * lengths.pop()
    columns = [[as_text(text, "data") for text in found.get(field, empty)] for field in fields]
    return list(zip(*columns, strict=True))


def _rows(served: Served, inputs: list[dict[str, Any]], most: int) -> list[Any]:
    if len(inputs) != 1 or inputs[0].get("datatype") not in _NUMBERS:
        raise RefusedError(400, "expected one input of numbers, such as FP32, with a row for each item")
    shape, data = _tensor(inputs[0], "the input")
    if len(shape) != 2 or shape[1] != served.n_features:
        raise RefusedError(400, f"the shape is {shape}; expected [rows, {served.n_features}]")
    require_few(shape[0], most)
    width = shape[1]
    return [row_of(served, data[at : at + width], "a row") for at in range(0, len(data), width)]


def _outputs(lines: list[Line]) -> list[dict[str, Any]]:
    """Return labels and probabilities as two arrays; shorter rows are filled with "" and 0."""
    width = max(len(line["tags"]) for line in lines)
    labels, probabilities = list[str](), list[float]()
    for line in lines:
        left = width - len(line["tags"])
        labels += [tag["label"] for tag in line["tags"]] + [""] * left
        probabilities += [tag["probability"] for tag in line["tags"]] + [0.0] * left
    shape = [len(lines), width]
    return [
        {"name": "label", "datatype": "BYTES", "shape": shape, "data": labels},
        {"name": "probability", "datatype": "FP32", "shape": shape, "data": probabilities},
    ]


async def index(service: Service, request: Request) -> Any:
    """List the models of the repository."""
    store = service.store
    return [
        {"name": name, "version": store.models[name].version, "state": "READY", "reason": ""}
        if name in store.models
        else {"name": name, "version": "", "state": "UNAVAILABLE", "reason": "still loading"}
        for name in store.folders
    ]


async def load(service: Service, request: Request) -> Any:
    """Load a model again from its folder."""
    new = await service.reload(request.path_params["model"])
    return {"name": new.name, "version": new.version}


def routes() -> list[Route]:
    """Return the routes of this shape."""
    one = "/v2/models/{model}"
    return [
        Route("GET", "/v2", about),
        Route("GET", "/v2/health/live", live),
        Route("GET", "/v2/health/ready", ready),
        Route("GET", one, model),
        Route("GET", f"{one}/ready", model_ready),
        Route("POST", f"{one}/infer", infer),
        Route("POST", "/v2/repository/index", index),
        Route("POST", "/v2/repository/models/{model}/load", load),
    ]
