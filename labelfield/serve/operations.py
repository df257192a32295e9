"""Routes for operators: alive, ready, metrics, and the description of all routes."""

from __future__ import annotations

from typing import Any

from prometheus_client import CONTENT_TYPE_LATEST
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from labelfield.serve.openapi import description
from labelfield.serve.routing import Route
from labelfield.serve.service import Service


async def alive(service: Service, request: Request) -> Any:
    """Say that the process answers."""
    return {"status": "alive"}


async def ready(service: Service, request: Request) -> Any:
    """Say whether all models are loaded and warm."""
    is_ready = service.store.is_ready
    content = {"ready": is_ready, "models": {name: name in service.store.models for name in service.store.folders}}
    return JSONResponse(content, 200 if is_ready else 503, None if is_ready else {"Retry-After": "1"})


async def metrics(service: Service, request: Request) -> Any:
    """Show counts as Prometheus reads them."""
    return Response(service.metrics.text(), media_type=CONTENT_TYPE_LATEST)


async def openapi(service: Service, request: Request) -> Any:
    """Describe all routes."""
    return description(has_token=service.settings.token is not None)


def routes() -> list[Route]:
    """Return the routes for operators."""
    return [
        Route("GET", "/healthz", alive),
        Route("GET", "/readyz", ready),
        Route("GET", "/metrics", metrics),
        Route("GET", "/openapi.json", openapi),
    ]
