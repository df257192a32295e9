"""Which function answers a path: by a look-up where a path is fixed, else by the first template that it matches."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from re import Pattern
from typing import TYPE_CHECKING, Any, NamedTuple

from starlette.convertors import Convertor
from starlette.requests import Request
from starlette.routing import compile_path

from labelfield.serve.refusal import RefusedError

if TYPE_CHECKING:
    from labelfield.serve.service import Service

# Returns a Response, or what becomes JSON, or raises a RefusedError.
Handler = Callable[["Service", Request], Awaitable[Any]]


class Route(NamedTuple):
    """A method, a path as Starlette writes templates, and the function that answers."""

    method: str
    template: str
    handler: Handler


class _Template(NamedTuple):
    pattern: Pattern[str]
    parts: dict[str, Convertor[Any]]
    routes: dict[str, Route]


class Router:
    """All routes by path. Fixed paths come before templates, and templates come in the order that they are given in."""

    def __init__(self, routes: Iterable[Route]) -> None:
        by_template: dict[str, dict[str, Route]] = {}
        for route in routes:
            by_template.setdefault(route.template, {})[route.method] = route
        self.fixed = {template: own for template, own in by_template.items() if "{" not in template}
        self.templates = [
            _Template(*compile_path(template)[::2], own) for template, own in by_template.items() if "{" in template
        ]

    def find(self, method: str, path: str) -> tuple[Route, dict[str, Any]]:
        """Return the route of a request and the parts of its path; 404 or 405 if there is none."""
        asked, allowed = "GET" if method == "HEAD" else method, set[str]()
        other = path[:-1] if path.endswith("/") else f"{path}/"
        for fixed in (path, other):  # with a slash at the end or without, as Annif's clients do it
            own = self.fixed.get(fixed, {})
            if asked in own:
                return own[asked], {}
            allowed.update(own)
        for template in self.templates:
            if (match := template.pattern.match(path)) is not None:
                if asked in template.routes:
                    try:
                        found = {name: template.parts[name].convert(text) for name, text in match.groupdict().items()}
                    except ValueError:  # a number of thousands of digits
                        continue
                    return template.routes[asked], found
                allowed.update(template.routes)
        if allowed:
            raise RefusedError(405, "this path takes another method", {"Allow": ", ".join(sorted(allowed))})
        raise RefusedError(404, "there is nothing here; /openapi.json lists what there is")
