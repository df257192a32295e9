"""What stands before all routes: token, origin, body limit, log and counts; and how refusals are worded."""

from __future__ import annotations

import asyncio
import base64
import binascii
import hmac
import ipaddress
import random
import time
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from labelfield.serve.refusal import RefusedError, busy

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
    """Lets requests in that may come in, and says afterwards how they went."""

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self.app, self.service = app, service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started, status = time.perf_counter(), 500
        facts: dict[str, Any] = {"route": "other", "documents": 0, "id": f"{random.getrandbits(48):012x}"}
        scope["labelfield"], has_begun = facts, False

        async def watched(message: Message) -> None:
            nonlocal status, has_begun
            if message["type"] == "http.response.start":
                status, has_begun = message["status"], True
                message.setdefault("headers", [])
                message["headers"] = [*message["headers"], *_HEADERS, (b"x-request-id", facts["id"].encode())]
            await send(message)

        try:
            if (refusal := self._refusal(scope)) is not None:
                await worded(scope["path"], refusal)(scope, receive, watched)
            else:
                await self.app(scope, receive, watched)
        except ClientDisconnect:
            status = 499
        except Exception as error:
            if has_begun:
                raise
            await self.service.failed(scope, error)(scope, receive, watched)
        finally:
            self._tell(scope["method"], facts, status, time.perf_counter() - started)

    def _tell(self, method: str, facts: dict[str, Any], status: int, seconds: float) -> None:
        self.service.metrics.count(facts["route"], status, seconds, facts["documents"])
        if facts["route"] in _QUIET and status < 400:
            return
        shown = {"method": method, "status": status, "ms": round(1000 * seconds, 2), **facts}
        text = shown.pop("text", None)
        self.service.log("request", "info" if status < 500 else "error", text=text, **shown)

    def _refusal(self, scope: Scope) -> RefusedError | None:
        """Return why a request may not come in, by its headers alone."""
        headers, token = dict(scope["headers"]), self.service.settings.token
        given = headers.get(b"authorization", b"").decode("latin-1")
        if token is not None and scope["path"] not in _OPEN and not is_known(given, token):
            challenge = {"WWW-Authenticate": 'Basic realm="labelfield", charset="UTF-8", Bearer realm="labelfield"'}
            return RefusedError(
                401, "a token is needed: Authorization: Bearer TOKEN, or Basic with it as password", challenge
            )
        is_ours_alone = token is None and self.service.settings.is_local and scope["path"] not in _OPEN
        if is_ours_alone and not self._is_own_name(headers):
            return RefusedError(403, "this is not a name of the server; start it with a token, or --cors-origin for it")
        if scope["method"] not in _SAFE_METHODS and not self._is_own_origin(headers):
            return RefusedError(
                403, "a page of another origin may not do this; start the server with --cors-origin for it"
            )
        return None

    def _is_own_name(self, headers: dict[bytes, bytes]) -> bool:
        """Return whether a request is meant for this machine. A page of another site can let its own name lead to this
        machine, and would then be of the same origin (DNS rebinding); addresses and localhost are nobody else's."""
        host = headers.get(b"host", b"").decode("latin-1")
        if host in map(_netloc, self.service.settings.cors_origins):
            return True
        name = host.rpartition(":")[0] if host.rpartition(":")[2].isdecimal() and not host.endswith("]") else host
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
    return hmac.compare_digest(given, token.encode())


async def read_body(service: Service, request: Request) -> bytes:
    """Return the body of a request: 413 if it is too large, 408 if it comes too slowly, 503 if there are too many.

    Some more of a body that is too large is thrown away first: many senders look for an answer only when they have sent
    all of it.
    """
    limit, timeout = service.settings.max_body, service.settings.timeout
    declared = request.headers.get("content-length", "")
    size, parts = 0, list[bytes]()
    is_too_large = declared.isdecimal() and int(declared) > limit
    if is_too_large and "100-continue" in request.headers.get("expect", "").lower():
        raise _too_large(limit)  # the sender waits for our word
    try:
        async with asyncio.timeout(min(timeout, _DRAIN_S) if is_too_large else timeout):
            async for part in request.stream():
                size += len(part)
                is_too_large = is_too_large or size > limit
                if size > _DRAINED * limit:
                    break
                if not is_too_large:
                    service.hold_bytes(len(part))
                    parts.append(part)
    except TimeoutError:
        if not is_too_large:
            message = f"the body did not arrive within {timeout:g} s"
            raise RefusedError(408, message, {"Connection": "close"}) from None
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
