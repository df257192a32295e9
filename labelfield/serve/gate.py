"""What stands before all routes: token, origin, body limit, log and counts; and how refusals are worded."""

from __future__ import annotations

import asyncio
import base64
import binascii
import hmac
import ipaddress
import json
import random
import sqlite3
import time
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from labelfield.serve.refusal import RefusedError, busy
from labelfield.serve.routing import Router

if TYPE_CHECKING:
    from labelfield.serve.service import Service

# Probes of orchestrators have no token.
_OPEN = ("/healthz", "/readyz", "/v2/health/live", "/v2/health/ready")
_SAFE_METHODS = ("GET", "HEAD", "OPTIONS")
_DRAINED = 10
_DRAIN_S = 5.0
_SHARES = 8


def worded(path: str, refusal: RefusedError) -> Response:
    """Return a refusal as the protocol of its path words it."""
    if path.startswith("/v1"):
        content = {"title": _TITLES.get(refusal.status, "Error"), "status": refusal.status, "detail": refusal.message}
        return JSONResponse(content, refusal.status, refusal.headers, media_type="application/problem+json")
    return JSONResponse({"error": refusal.message}, refusal.status, refusal.headers)


_TITLES = {
    400: "Bad Request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    408: "Request Timeout",
    409: "Conflict",
    413: "Content Too Large",
    415: "Unsupported Media Type",
    422: "Unprocessable Content",
    500: "Internal Server Error",
    503: "Service Unavailable",
    504: "Gateway Timeout",
}


class Gate:
    """Lets requests in that may come in, has them answered, and says afterwards how they went."""

    def __init__(self, service: Service, router: Router) -> None:
        self.service, self.router = service, router

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        if scope["type"] != "http":  # the server is started without others
            return
        started, status = time.perf_counter(), 499
        facts: dict[str, Any] = {"route": "other", "documents": 0, "id": f"{random.getrandbits(48):012x}"}
        scope["labelfield"] = facts
        try:
            response = await self._response(scope, receive)
            response.raw_headers += [*_HEADERS, (b"x-request-id", facts["id"].encode())]
            status = response.status_code
            await response(scope, receive, send)
        except ClientDisconnect:
            pass
        finally:
            self._tell(scope["method"], facts, status, time.perf_counter() - started)

    async def _live(self, receive: Receive, send: Send) -> None:
        """Start and stop the service with the server."""
        await receive()
        self.service.start()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await self.service.stop()
        await send({"type": "lifespan.shutdown.complete"})

    async def _response(self, scope: Scope, receive: Receive) -> Response:
        try:
            self._require_entry(scope)
            route, scope["path_params"] = self.router.find(scope["method"], scope["path"])
            scope["labelfield"]["route"] = route.template
            found = await route.handler(self.service, Request(scope, receive))
            return found if isinstance(found, Response) else Response(_JSON(found), media_type="application/json")
        except RefusedError as refusal:
            return worded(scope["path"], refusal)
        except ClientDisconnect:
            raise
        except sqlite3.Error as error:
            self.service.log.failure("corrections", error, reason=str(error))
            unusable = RefusedError(503, "the file of corrections cannot be used; see the log", {"Retry-After": "5"})
            return worded(scope["path"], unusable)
        except Exception as error:
            return self.service.failed(scope, error)

    def _tell(self, method: str, facts: dict[str, Any], status: int, seconds: float) -> None:
        self.service.metrics.count(facts["route"], status, seconds, facts["documents"])
        if facts["route"] in _QUIET and status < 400:
            return
        shown = {"method": method, "status": status, "ms": round(1000 * seconds, 2), **facts}
        text = shown.pop("text", None)
        self.service.log("request", "info" if status < 500 else "error", text=text, **shown)

    def _require_entry(self, scope: Scope) -> None:
        """Refuse a request that may not come in, by its headers alone."""
        headers, token = dict(scope["headers"]), self.service.settings.token
        given = headers.get(b"authorization", b"").decode("latin-1")
        if token is not None and scope["path"] not in _OPEN and not is_known(given, token):
            challenge = {"WWW-Authenticate": 'Basic realm="labelfield", charset="UTF-8", Bearer realm="labelfield"'}
            raise RefusedError(
                401, "a token is needed: Authorization: Bearer TOKEN, or Basic with it as password", challenge
            )
        is_open = scope["path"] in _OPEN or token is not None or not self.service.settings.is_local
        if not is_open and not self._is_own_name(headers):
            raise RefusedError(403, "this is not a name of the server; start it with a token, or --cors-origin for it")
        if scope["method"] not in _SAFE_METHODS and not self._is_own_origin(headers):
            raise RefusedError(
                403, "a page of another origin may not do this; start the server with --cors-origin for it"
            )

    def _is_own_name(self, headers: dict[bytes, bytes]) -> bool:
        """Return whether a request is meant for this machine. A page of another site can let its own name lead to this
        machine, and would then be of the same origin (DNS rebinding); addresses and localhost are nobody else's."""
        host = headers.get(b"host", b"").decode("latin-1").lower()
        if host in map(_netloc, self.service.settings.cors_origins):
            return True
        name = host.rpartition(":")[0] if host.rpartition(":")[2].isdecimal() and not host.endswith("]") else host
        name = name.rstrip(".")
        return name in ("", "localhost") or name.endswith(".localhost") or _is_address(name.strip("[]"))

    def _is_own_origin(self, headers: dict[bytes, bytes]) -> bool:
        if b"origin" not in headers or headers.get(b"sec-fetch-site") in (b"same-origin", b"none"):
            return True
        origin, host = (headers.get(name, b"").decode("latin-1") for name in (b"origin", b"host"))
        return origin in self.service.settings.cors_origins or _netloc(origin) == host


def _netloc(origin: str) -> str:
    try:
        return urlsplit(origin).netloc
    except ValueError:  # such as http://[
        return ""


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


_QUIET = ("/healthz", "/readyz", "/metrics", "/v2/health/live", "/v2/health/ready", "/page/{name}", "/dashboard")
# Made once: Starlette's own response makes an encoder for each.
_JSON = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode
_HEADERS = [(b"x-content-type-options", b"nosniff"), (b"referrer-policy", b"no-referrer")]


def is_known(authorization: str, token: str) -> bool:
    """Return whether a header has the token, as Bearer or as the password of Basic; takes the same time for all."""
    scheme, _, rest = authorization.partition(" ")
    given = rest.strip().encode("latin-1", "replace")  # headers are read as Latin-1, whatever they were written in
    if scheme.lower() == "basic":
        try:
            given = base64.b64decode(given, validate=True).partition(b":")[2]
        except binascii.Error:
            given = b""
    elif scheme.lower() != "bearer":
        given = b""
    known = token.encode()
    try:
        older = token.encode("latin-1")  # as some clients, such as requests, write Basic
    except UnicodeEncodeError:
        older = known
    return hmac.compare_digest(given, known) | hmac.compare_digest(given, older)


async def read_body(service: Service, request: Request) -> bytes:
    """Return the body of a request: 413 if it is too large, 408 if it comes too slowly, 503 if there are too many, 415
    if it is compressed.

    Some more of a body that is too large is thrown away first: many senders look for an answer only when they have sent
    all of it.
    """
    limit, timeout = service.settings.max_body, service.settings.timeout
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise RefusedError(415, "compressed bodies are not read; send it as it is", {"Connection": "close"})
    declared, expected = (request.headers.get(name, "") for name in ("content-length", "expect"))
    size, parts = 0, list[bytes]()
    is_too_large = declared.isdecimal() and int(declared) > limit
    if is_too_large and "100-continue" in expected.lower():
        raise _too_large(limit)  # the sender waits for our word
    try:
        async with asyncio.timeout(min(timeout, _DRAIN_S) if is_too_large else timeout):
            has_more = True
            while has_more and size <= _DRAINED * limit:
                message = await request.receive()
                if message["type"] == "http.disconnect":
                    raise ClientDisconnect
                part, has_more = message.get("body", b""), message.get("more_body", False)
                size += len(part)
                is_too_large = is_too_large or size > limit
                if not is_too_large:
                    service.hold_bytes(len(part))
                    parts.append(part)
    except TimeoutError:
        if not is_too_large:
            late = f"the body did not arrive within {timeout:g} s"
            raise RefusedError(408, late, {"Connection": "close"}) from None
    finally:
        service.hold_bytes(-sum(map(len, parts)))
    if is_too_large:
        raise _too_large(limit)
    return b"".join(parts)


def _too_large(limit: int) -> RefusedError:
    return RefusedError(413, f"the body is larger than {limit:,} bytes; send fewer documents", {"Connection": "close"})


def require_room(held: int, limit: int) -> None:
    """Refuse a request if those under way hold too many bytes together."""
    if held > _SHARES * limit:
        raise busy("too many large requests at once; try again later")
