"""Connections: how many there may be, how long one may take to say what it wants, and the order of what it is told."""

from __future__ import annotations

import asyncio
import json
from collections import deque

from httptools import HttpParserError, HttpParserUpgrade
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle


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
_WRONG = _plain("400 Bad Request", "this is not a request of HTTP/1.1")
_CONTINUE = b"HTTP/1.1 100 "


class _HeadWithBody:
    """Sends the head of a response together with what follows it: one call of the system instead of two at each end."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport, self._head = transport, b""
        self._has_head = False
        self.close, self.is_closing = transport.close, transport.is_closing

    def write(self, data: bytes) -> None:
        """Hold on to the head, and send everything else at once."""
        if self._has_head or data.startswith(_CONTINUE):
            self._transport.write(self._head + data)
            self._head = b""
        else:
            self._head, self._has_head = data, True


def limited(most: int, head_s: float, answer_s: float) -> type[HttpToolsProtocol]:
    """Return uvicorn's protocol with at most so many connections, which have so long for the head of a request, and
    for each part of an answer that has to wait for them."""

    class LimitedProtocol(HttpToolsProtocol):
        """Refuses connections above the limit, and ends those that say or take nothing for too long.

        A request may come before those ahead of it are answered. One that is refused for its head, or for how its body
        is sent, is told so in its turn. An offer to speak another protocol (Upgrade) is not taken, and the request is
        answered as if it had none.
        """

        _timer: asyncio.TimerHandle | None = None
        _reader_timer: asyncio.TimerHandle | None = None
        _has_begun = False
        _head = 0
        _has_offer = False
        # The last words of the connection, once the answers before them are given.
        _farewell: bytes | None = None
        # The request whose body is under way.
        _sending: RequestResponseCycle | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self._unanswered = deque[RequestResponseCycle]()
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
            self._has_offer = self.parser.should_upgrade() and self.parser.get_method() != b"CONNECT"
            if self._has_offer:  # after which the parser reads no body
                return
            super().on_headers_complete()
            self._sending = self.cycle
            self._unanswered.append(self.cycle)
            if self.parser.get_method() != b"HEAD":  # whose answer has nothing after its head
                self.cycle.transport = _HeadWithBody(self.transport)  # type: ignore[assignment]

        def on_message_complete(self) -> None:
            if not self._has_offer:
                self._sending = None
                super().on_message_complete()

        def on_response_complete(self) -> None:
            self._unanswered.popleft()
            super().on_response_complete()
            self._part()

        def pause_writing(self) -> None:
            super().pause_writing()
            self._watch_reader(None)

        def resume_writing(self) -> None:
            self._leave_reader()
            super().resume_writing()

        def _watch_reader(self, left_before: int | None) -> None:
            """End the connection with one who has taken nothing of the answer since the last look."""
            left = self.transport.get_write_buffer_size()
            if left_before is not None and left >= left_before:
                self.transport.abort()
            else:
                self._reader_timer = self.loop.call_later(answer_s, self._watch_reader, left)

        def _leave_reader(self) -> None:
            if self._reader_timer is not None:
                self._reader_timer.cancel()
                self._reader_timer = None

        def connection_lost(self, exc: Exception | None) -> None:
            self._stop_waiting()
            self._leave_reader()
            for cycle in self._unanswered:  # uvicorn tells the last one alone
                _give_up(cycle)
            super().connection_lost(exc)

        def eof_received(self) -> bool:  # type: ignore[override]
            """Answer what was asked by one who says no more, but may listen."""
            self._end(b"")
            return bool(self._unanswered)

        def data_received(self, data: bytes) -> None:
            if self.transport.is_closing() or self._farewell is not None:
                return
            self._head += len(data)
            self._unset_keepalive_if_required()
            while data:
                try:
                    self.parser.feed_data(data)
                    break
                except HttpParserUpgrade as offer:
                    data = self._head_without_offer() + data[offer.args[0] :]
                except HttpParserError:
                    self.logger.warning("Invalid HTTP request received.")
                    self._end(_WRONG)
                    return
            if self._timer is not None and self._head > _MOST_HEAD:  # the timer stops with the head
                self._end(_LONG)

        def _head_without_offer(self) -> bytes:
            version = self.parser.get_http_version().encode()
            lines = [self.parser.get_method() + b" " + self.url + b" HTTP/" + version]
            lines += [name + b": " + value for name, value in self.headers if name != b"upgrade"]
            return b"\r\n".join((*lines, b"", b""))

        def _wait(self) -> None:
            self._stop_waiting()
            self._timer = self.loop.call_later(head_s, self._lose_patience)

        def _lose_patience(self) -> None:
            if self._unanswered:  # until then, nothing may have been read
                self._wait()
            else:
                self._end(_SLOW if self._has_begun else b"")

        def _stop_waiting(self) -> None:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None

        def _end(self, message: bytes) -> None:
            """End the connection with a message, once the requests before the one that it is about are answered."""
            self._stop_waiting()
            about, self._sending = self._sending, None
            if about is not None:
                if about.response_started:  # there is an answer already
                    message = b""
                if about in self._unanswered:
                    self._unanswered.remove(about)
                    if self.pipeline and self.pipeline[0][0] is about:
                        self.pipeline.popleft()
                    _give_up(about)
            self._farewell = message
            self._part()

        def _part(self) -> None:
            if self._farewell is not None and not self._unanswered and not self.transport.is_closing():
                self.transport.write(self._farewell)
                self.transport.close()

    return LimitedProtocol


def _give_up(cycle: RequestResponseCycle) -> None:
    """Tell who answers a request that nobody waits for it."""
    cycle.disconnected = True
    cycle.message_event.set()
