"""Connections: how many there may be, and how long one may take to say what it wants."""

from __future__ import annotations

import asyncio
import json

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol


def _plain(status: str, message: str, *headers: str) -> bytes:
    """Return a whole response that ends its connection."""
    body = json.dumps({"error": message})
    lines = (f"HTTP/1.1 {status}", "content-type: application/json", f"content-length: {len(body)}", *headers)
    return ("\r\n".join((*lines, "connection: close")) + f"\r\n\r\n{body}").encode()


_FULL = _plain("503 Service Unavailable", "too many connections; try again later", "retry-after: 1")
_LONG = _plain("431 Request Header Fields Too Large", "the head of the request is too long")
# Bytes of the head of a request, as most servers have it at the most: nothing else bounds what is kept of it.
_MOST_HEAD = 64 << 10
_SLOW = _plain("408 Request Timeout", "the request did not arrive in time")


def limited(most: int, seconds: float) -> type[HttpToolsProtocol]:
    """Return uvicorn's protocol with at most so many connections, which have so long for the head of a request."""

    class LimitedProtocol(HttpToolsProtocol):
        """Refuses connections above the limit, and ends those that say nothing for too long."""

        _timer: asyncio.TimerHandle | None = None
        _has_begun = False
        _head = 0

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            if len(self.connections) > most:
                self._end(_FULL)
                return
            self._wait()

        def on_message_begin(self) -> None:
            self._has_begun, self._head = True, 0  # of the piece that it begins in, nothing is counted
            self._wait()
            super().on_message_begin()

        def on_headers_complete(self) -> None:
            self._stop_waiting()
            super().on_headers_complete()

        def connection_lost(self, exc: Exception | None) -> None:
            self._stop_waiting()
            super().connection_lost(exc)

        def data_received(self, data: bytes) -> None:
            if self.transport.is_closing():
                return
            self._head += len(data)
            super().data_received(data)
            if self._timer is not None and self._head > _MOST_HEAD:  # the timer stops with the head
                self._end(_LONG)

        def _wait(self) -> None:
            self._stop_waiting()
            self._timer = self.loop.call_later(seconds, lambda: self._end(_SLOW if self._has_begun else b""))

        def _stop_waiting(self) -> None:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None

        def _end(self, message: bytes) -> None:
            if not self.transport.is_closing():
                self.transport.write(message)
                self.transport.close()

    return LimitedProtocol
