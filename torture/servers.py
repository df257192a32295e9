"""A server as a job: what trials do to other commands is done to it while it answers."""

from __future__ import annotations

import json
import signal
import socket
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

from torture.jobs import JOBS, Child, copy_of, start
from torture.running import Trial


def free_port() -> int:
    """Return a port of this machine that nobody listens at."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def get(address: str) -> bytes:
    """Return the answer to a request."""
    with urllib.request.urlopen(address, timeout=10) as answer:
        return bytes(answer.read())


def post(address: str, body: Any) -> bytes:
    """Return the answer to a request with a body of JSON."""
    head = {"Content-Type": "application/json"}
    with urllib.request.urlopen(urllib.request.Request(address, json.dumps(body).encode(), head), timeout=20) as answer:
        return bytes(answer.read())


def waits_for(address: str, server: Child | None = None) -> bool:
    """Wait until a server is ready; return whether it is, and has not ended instead."""
    for _ in range(600):
        try:
            get(address)
        except OSError:
            time.sleep(0.05)
        else:
            return True
        if server is not None and not server.is_running():
            return False
    return False


def make_trial(disturb: Callable[[Random], tuple[Callable[[], None] | None, list[int]]]) -> Trial:
    """Return the trials of a server.

    `disturb` gives what is done to its process before it starts, and the signals that it gets once it has answered.
    It starts and answers, or says why not; a request that it cannot answer gets a refusal; in the end it stops.
    """
    base = Path(tempfile.mkdtemp())
    (base / "original").mkdir()
    JOBS["tag"].make(base / "original")

    def trial(seed: int) -> str | None:
        rng = Random(f"serve/{seed}")
        before, signals = disturb(rng)
        folder, port = copy_of(base / "original", base / "work"), free_port()
        server = start(folder, ["serve", "model", "--port", str(port)], before)
        flaw = None
        try:
            if waits_for(f"http://127.0.0.1:{port}/readyz", server):
                flaw = _asked(port, rng)
            for number in signals:
                server.send(number)
                time.sleep(rng.uniform(0, 0.05))
        finally:
            server.send(signal.SIGTERM)
            code, said = server.wait()
        if flaw is None and ("Traceback" in said or code < 0 or (code and not said.strip())):
            flaw = f"code {code}: {said.strip()[-150:]}"
        return flaw

    return trial


def _asked(port: int, rng: Random) -> str | None:
    """Ask for the tags of a few documents or many; return what is wrong with the answer."""
    documents = [{"text": "green tea brews " * rng.choice((1, 2000))} for _ in range(rng.choice((1, 50)))]
    try:
        found = json.loads(post(f"http://127.0.0.1:{port}/tag", {"documents": documents}))["results"]
    except urllib.error.HTTPError as error:
        return None if error.code in (422, 503, 504) else f"a refusal with {error.code}"
    except OSError as error:
        return f"no answer: {error}"
    return None if len(found) == len(documents) else f"{len(found)} answers"
