"""The description of all routes, as OpenAPI 3.1 has it."""

from __future__ import annotations

from typing import Any

from labelfield.version import __version__

Schema = dict[str, Any]
_TEXT: Schema = {"type": "string"}
_NUMBER: Schema = {"type": "number"}
_SHARE: Schema = {"type": "number", "minimum": 0, "maximum": 1}
_TAG = {"label": _TEXT, "uri": {"type": ["string", "null"]}, "probability": _SHARE}


def _list(inner: Schema) -> Schema:
    return {"type": "array", "items": inner}


def _object(**properties: Schema) -> Schema:
    return {"type": "object", "properties": properties}


_DOCUMENT: Schema = {"oneOf": [_TEXT, {"type": "object", "additionalProperties": True}]}
_ROW: Schema = {
    "oneOf": [
        _list(_NUMBER),
        _object(indices=_list({"type": "integer"}), values=_list(_NUMBER)),
        {"type": "object", "additionalProperties": _NUMBER},
    ]
}
_ASKED = _object(
    model=_TEXT,
    text=_TEXT,
    documents=_list(_DOCUMENT),
    rows=_list(_ROW),
    k={"type": "integer", "minimum": 1, "maximum": 1000, "default": 5},
    threshold={**_SHARE, "default": 0},
    precision={**_SHARE, "description": "Only tags of a set that is guaranteed to have this precision."},
    review={**_SHARE, "default": 0.5, "description": "The uncertainty from which a person should look."},
    explain={"oneOf": [{"type": "boolean"}, {"type": "integer"}], "description": "Words per tag, or true."},
)
_LINE = _object(
    id=_TEXT, tags=_list(_object(**_TAG)), uncertainty=_SHARE, review={"type": "boolean"}, explanation=_list(_object())
)
_ANNIF_RESULTS = _list(_object(uri=_TEXT, label=_TEXT, notation={"type": ["string", "null"]}, score=_SHARE))
_TENSOR = _object(name=_TEXT, shape=_list({"type": "integer"}), datatype=_TEXT, data=_list({}))

# Method, path, summary, body, answer.
ROUTES: list[tuple[str, str, str, Schema | None, Schema]] = [
    ("post", "/tag", "Tag documents or rows", _ASKED, _object(model=_TEXT, version=_TEXT, results=_list(_LINE))),
    ("get", "/models", "List the models", None, _object(models=_list(_object()))),
    ("get", "/labels", "Find labels by a part of their name", None, _object(labels=_list(_TEXT))),
    ("get", "/corrections", "List corrections", None, _object(corrections=_list(_object()))),
    ("post", "/corrections", "Store a correction", _object(document=_DOCUMENT, labels=_list(_TEXT)), _object()),
    ("delete", "/corrections/{number}", "Undo a correction", None, _object()),
    ("get", "/learn", "Say how far learning is", None, _object()),
    ("post", "/learn", "Learn from corrections in the background", _object(model=_TEXT), _object()),
    ("post", "/learn/undo", "Put the model before the last learning back", _object(model=_TEXT), _object()),
    ("get", "/dashboard", "Requests, latency, drift, precision by month", None, _object()),
    ("get", "/v1/projects", "Annif: list projects", None, _object(projects=_list(_object()))),
    ("get", "/v1/projects/{project}", "Annif: describe a project", None, _object()),
    (
        "post",
        "/v1/projects/{project}/suggest",
        "Annif: suggest subjects",
        _object(text=_TEXT, limit={"type": "integer"}, threshold=_SHARE),
        _object(results=_ANNIF_RESULTS),
    ),
    (
        "post",
        "/v1/projects/{project}/suggest-batch",
        "Annif: suggest subjects for up to 32 documents",
        _object(documents=_list(_object(text=_TEXT, document_id=_TEXT))),
        _list(_object(document_id=_TEXT, results=_ANNIF_RESULTS)),
    ),
    ("post", "/v1/projects/{project}/learn", "Annif: store documents with subjects", _list(_object()), {}),
    ("get", "/v2", "Open Inference Protocol: about the server", None, _object()),
    ("get", "/v2/health/live", "Open Inference Protocol: alive", None, _object()),
    ("get", "/v2/health/ready", "Open Inference Protocol: ready", None, _object()),
    ("get", "/v2/models/{model}", "Open Inference Protocol: describe a model", None, _object()),
    ("get", "/v2/models/{model}/ready", "Open Inference Protocol: a model is ready", None, _object()),
    (
        "post",
        "/v2/models/{model}/infer",
        "Open Inference Protocol: tag",
        _object(id=_TEXT, parameters=_object(), inputs=_list(_TENSOR)),
        _object(model_name=_TEXT, outputs=_list(_TENSOR)),
    ),
    ("post", "/v2/repository/index", "Open Inference Protocol: list models", None, _list(_object())),
    ("post", "/v2/repository/models/{model}/load", "Open Inference Protocol: load a model again", None, _object()),
    ("post", "/", "Hugging Face: classify texts", _object(inputs=_TEXT, parameters=_object()), _list(_object())),
    ("post", "/models/{model}", "Hugging Face: classify texts by a model", _object(inputs=_TEXT), _list(_object())),
    ("get", "/health", "Label Studio: health, also under any prefix", None, _object()),
    ("post", "/setup", "Label Studio: set up, also under any prefix", _object(), _object(model_version=_TEXT)),
    ("post", "/predict", "Label Studio: predict, also under any prefix", _object(tasks=_list(_object())), _object()),
    ("post", "/webhook", "Label Studio: events, also under any prefix", _object(action=_TEXT), _object()),
    ("get", "/healthz", "Alive", None, _object()),
    ("get", "/readyz", "Ready: all models are loaded and warm", None, _object()),
    ("get", "/metrics", "Counts for Prometheus", None, {}),
    ("get", "/openapi.json", "This description", None, _object()),
]
_FORM = "/v1/projects/{project}/suggest"
# What some routes take in the address, by method and path.
_OF_MODEL: Schema = {"model": _TEXT}
_QUERIES: dict[tuple[str, str], Schema] = {
    ("get", "/labels"): {"q": _TEXT, "n": {"type": "integer", "minimum": 1, "maximum": 1000}, **_OF_MODEL},
    ("get", "/corrections"): _OF_MODEL,
    ("get", "/learn"): _OF_MODEL,
    ("get", "/dashboard"): _OF_MODEL,
    ("post", "/v1/projects/{project}/suggest-batch"): {"limit": {"type": "integer"}, "threshold": _SHARE},
}
# Answers that are no JSON.
_OTHER_ANSWERS: dict[str, Schema] = {
    "/metrics": {"200": {"description": "The counts", "content": {"text/plain": {"schema": _TEXT}}}},
    "/v1/projects/{project}/learn": {"204": {"description": "They are stored"}},
}
_ERRORS = {
    "400": "not JSON",
    "401": "no or a wrong token",
    "403": "a page of another origin, or another name of the server",
    "404": "unknown model",
    "408": "the request came too slowly",
    "409": "not possible now: nothing to learn, nothing to undo, or no corrections are kept",
    "413": "too large",
    "415": "compressed, or a form in parts",
    "422": "a wrong type or value",
    "503": "the queue is full; see Retry-After",
    "504": "no answer in time",
}


def description(*, has_token: bool) -> Schema:
    """Return the whole description."""
    paths: Schema = {}
    for method, path, summary, body, answer in ROUTES:
        answers = {"200": {"description": "The answer", "content": {"application/json": {"schema": answer}}}}
        errors = {code: {"description": meaning} for code, meaning in _ERRORS.items()}
        operation: Schema = {"summary": summary, "responses": _OTHER_ANSWERS.get(path, answers) | errors}
        names = [part[1:-1] for part in path.split("/") if part.startswith("{")]
        parameters = [{"name": one, "in": "path", "required": True, "schema": _TEXT} for one in names]
        query = _QUERIES.get((method, path), {})
        parameters += [{"name": one, "in": "query", "schema": schema} for one, schema in query.items()]
        if parameters:
            operation["parameters"] = parameters
        if body is not None:
            kind = "application/x-www-form-urlencoded" if path == _FORM else "application/json"
            operation["requestBody"] = {"required": True, "content": {kind: {"schema": body}}}
        paths.setdefault(path, {})[method] = operation
    found: Schema = {
        "openapi": "3.1.0",
        "info": {"title": "labelfield", "version": __version__, "description": "Tags with calibrated probabilities."},
        "paths": paths,
    }
    if has_token:
        found["components"] = {
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "basic": {"type": "http", "scheme": "basic"},
            }
        }
        found["security"] = [{"bearer": []}, {"basic": []}]
    return found
