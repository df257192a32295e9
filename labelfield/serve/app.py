"""The application: all shapes behind one gate."""

from __future__ import annotations

from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp

from labelfield.serve import annif, hugging_face, inference_protocol, label_studio, native, operations, page_routes
from labelfield.serve.gate import Gate
from labelfield.serve.routing import Router
from labelfield.serve.service import Service


def build_app(service: Service) -> ASGIApp:
    """Return the application of a service; it starts and stops the service."""
    # What is asked most often comes first, and Label Studio's routes, which take any prefix, come last.
    shapes = (native, annif, inference_protocol, hugging_face, operations, page_routes, label_studio)
    app: ASGIApp = Gate(service, Router(one for shape in shapes for one in shape.routes()))
    if service.settings.cors_origins:
        app = CORSMiddleware(
            app,
            allow_origins=service.settings.cors_origins,
            allow_methods=["GET", "POST", "DELETE"],
            allow_headers=["Authorization", "Content-Type"],
        )
    return app
