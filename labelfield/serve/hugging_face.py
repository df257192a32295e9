"""The shape of Hugging Face's text classification: `inputs` in, lists of `label` and `score` out."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request

from labelfield.serve.gate import read_body
from labelfield.serve.inputs import as_count, as_object, document_of, kind_of, parse_object
from labelfield.serve.refusal import RefusedError, require_few
from labelfield.serve.routing import Route
from labelfield.serve.service import Service
from labelfield.serve.tagging import Question


async def classify(service: Service, request: Request) -> Any:
    """Classify one text, or a list of them."""
    served = service.store.find(request.path_params.get("model"))
    body = parse_object(await read_body(service, request))
    inputs = body.get("inputs")
    if not isinstance(inputs, str | list) or not len(inputs):
        raise RefusedError(422, f"inputs is {kind_of(inputs) if inputs is None or inputs else 'empty'}; expected texts")
    listed = [inputs] if isinstance(inputs, str) else inputs
    require_few(len(listed), service.settings.queue)
    top_k = as_object(body.get("parameters") or {}, "parameters").get("top_k")
    question = Question(k=5 if top_k is None else as_count(top_k, "top_k"))
    items = [document_of(served, one, f"inputs[{place}]") for place, one in enumerate(listed)]
    lines = await service.tag(request, served, items, question)
    found = [[{"label": tag["label"], "score": tag["probability"]} for tag in line["tags"]] for line in lines]
    return found[0] if isinstance(inputs, str) else found


def routes() -> list[Route]:
    """Return the routes of this shape: the root, as endpoints have it, and one for each model."""
    return [Route("POST", "/", classify), Route("POST", "/models/{model}", classify)]
