"""The application: all shapes behind one gate."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp

from labelfield.serve import annif, hugging_face, inference_protocol, label_studio, native, operations, page_routes
from labelfield.serve.gate import Gate
from labelfield.serve.service import Service, refuse


def build_app(service: Service) -> ASGIApp:
    """Return the application of a service; it starts and stops the service."""

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        service.start()
        yield
        await service.stop()

    # What is asked most often comes first, and Label Studio's routes, which take any prefix, come last.
    shapes = (native, annif, inference_protocol, hugging_face, operations, page_routes, label_studio)
    routes = [one for shape in shapes for one in shape.routes(service)]
    app = Starlette(routes=routes, lifespan=lifespan, exception_handlers={HTTPException: refuse})
    guarded: ASGIApp = Gate(app, service)
    if service.settings.cors_origins:
        guarded = CORSMiddleware(
            guarded,
            allow_origins=service.settings.cors_origins,
            allow_methods=["GET", "POST", "DELETE"],
            allow_headers=["Authorization", "Content-Type"],
        )
    return guarded
