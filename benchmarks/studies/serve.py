"""A server on loopback: time to start, latency of one document, throughput of 64 connections, and a soak.

The load is bounded by count and time. It comes from one process with plain sockets, so that two cores are enough for
both sides. The model is that of eurovoc-text with default options, trained once and kept under build/.
"""

from __future__ import annotations

import asyncio
import gzip
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from benchmarks.paths import DATA, ROOT
from benchmarks.peers.environments import SCRIPTS, python_of
from labelfield.errors import LabelfieldError

__all__ = ["run", "run_annif", "run_soak"]

N_ALONE, N_CONNECTIONS, LOAD_S, MOST_REQUESTS = 1000, 64, 15.0, 200_000
SOAK_S = float(os.environ.get("LABELFIELD_SOAK_SECONDS", "180"))
_MODEL = ROOT / "build" / "serve" / "eurovoc"
_FORM = "application/x-www-form-urlencoded"
_BROKEN = (b"{", b'{"text": 5}', b'{"model": "../x", "text": "y"}', b'{"text": "x", "k": -1}', b"\xff\xfe")


def _model() -> Path:
    if not (_MODEL / "config.json").exists():
        _MODEL.parent.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "labelfield", "train", str(DATA / "eurovoc-text"), "--out", str(_MODEL)]
        subprocess.run(command, check=True)
    return _MODEL


def _documents() -> list[dict[str, str]]:
    with gzip.open(DATA / "eurovoc-text" / "test.jsonl.gz", "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


@contextmanager
def serving(*options: str) -> Iterator[tuple[int, int, float]]:
    """Start a server; yield its port, its process id, and the seconds until it was ready."""
    started = time.perf_counter()
    command = [sys.executable, "-m", "labelfield", "serve", str(_model()), "--port", "0", *options]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        port = int(json.loads(process.stderr.readline())["url"].rstrip("/").rpartition(":")[2])
        seconds = 0.0
        for line in process.stderr:
            if json.loads(line)["event"] == "ready":
                seconds = time.perf_counter() - started
                break
        reader = _Drain(process.stderr)
        try:
            yield port, process.pid, seconds
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(60)
            reader.join()


class _Drain:
    """Reads a log to its end, so that its pipe never fills."""

    def __init__(self, file: Any) -> None:
        import threading

        self.thread = threading.Thread(target=lambda: [None for _ in file], daemon=True)
        self.thread.start()

    def join(self) -> None:
        self.thread.join(10)


def _alone(port: int, documents: list[dict[str, str]]) -> dict[str, Any]:
    """Ask for one title after another on one connection."""
    connection = http.client.HTTPConnection("127.0.0.1", port)
    seconds, lines = [], []
    for place in range(N_ALONE + 50):
        body = json.dumps({"documents": [{"title": documents[place % len(documents)]["title"]}]})
        started = time.perf_counter()
        connection.request("POST", "/tag", body, {"Content-Type": "application/json"})
        answer = connection.getresponse().read()
        seconds.append(time.perf_counter() - started)
        lines.append(json.loads(answer)["results"][0])
    seconds = sorted(seconds[50:])
    p50, p99 = (1000 * seconds[int(level * len(seconds))] for level in (0.5, 0.99))
    return {"n": N_ALONE, "p50_ms": p50, "p99_ms": p99, "same_as_tag": _agree(lines[:200], documents)}


def _agree(lines: list[dict[str, Any]], documents: list[dict[str, str]]) -> bool:
    """Return whether `labelfield tag` writes the same tags with probabilities that differ by rounding at the most."""
    given = "".join(json.dumps({"title": one["title"], "text": ""}) + "\n" for one in documents[: len(lines)])
    command = [sys.executable, "-m", "labelfield", "tag", str(_model()), "-"]
    done = subprocess.run(command, input=given, capture_output=True, text=True, check=True)
    for own, line in zip(lines, done.stdout.splitlines(), strict=True):
        expected = json.loads(line)["tags"]
        pairs = zip(own["tags"], expected, strict=True)
        if any(abs(a["probability"] - b["probability"]) > 1.5e-4 for a, b in pairs):
            return False
    return True


async def _load(
    port: int, path: str, bodies: list[bytes], kind: str, seconds: float, *, broken: float = 0.0, reload_s: float = 0.0
) -> dict[str, Any]:
    """Ask from 64 connections for some seconds; return statuses, documents per second and latencies."""
    codes, times, end = Counter[int](), list[float](), time.monotonic() + seconds
    queue_lengths, n_sent = list[int](), 0

    async def ask(reader: Any, writer: Any, path: str, body: bytes, kind: str) -> int:
        head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body)
        answer = await reader.readuntil(b"\r\n\r\n")
        length = next(line for line in answer.lower().split(b"\r\n") if line.startswith(b"content-length:"))
        await reader.readexactly(int(length.split(b":")[1]))
        return int(answer.split(b" ", 2)[1])

    async def client(number: int) -> None:
        nonlocal n_sent
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        while time.monotonic() < end and n_sent < MOST_REQUESTS:
            n_sent += 1
            is_broken = broken and n_sent % int(1 / broken) == 0
            body = _BROKEN[n_sent % len(_BROKEN)] if is_broken else bodies[n_sent % len(bodies)]
            started = time.monotonic()
            try:
                code = await ask(reader, writer, path, body, kind)
            except (OSError, asyncio.IncompleteReadError):
                codes[0] += 1
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                continue
            codes[code] += 1
            times.append(time.monotonic() - started)
        writer.close()

    async def reloads() -> None:
        while reload_s and time.monotonic() + reload_s < end:
            await asyncio.sleep(reload_s)
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            codes[await ask(reader, writer, "/v2/repository/models/eurovoc/load", b"", kind)] += 1
            writer.close()

    started = time.monotonic()
    await asyncio.gather(*(client(number) for number in range(N_CONNECTIONS)), reloads())
    took, times = time.monotonic() - started, sorted(times)
    return {
        "seconds": took,
        "answers": {str(code): n for code, n in sorted(codes.items())},
        "per_second": codes[200] / took,
        "p50_ms": 1000 * times[len(times) // 2],
        "p99_ms": 1000 * times[int(0.99 * len(times))],
        "queue": max(queue_lengths, default=None),
    }


def _bodies(documents: list[dict[str, str]]) -> list[bytes]:
    return [
        json.dumps({"documents": [{"title": one["title"], "text": one["text"]}]}).encode() for one in documents[:500]
    ]


@contextmanager
def annif_serving() -> Iterator[int]:
    """Start Annif's server as its pages advise, with two workers and an omikuji Bonsai project; yield its port."""
    folder, python = ROOT / "build" / "serve" / "annif", python_of("annif")
    folder.mkdir(parents=True, exist_ok=True)
    own = {"ANNIF_PROJECTS": str(folder / "projects.cfg"), "ANNIF_DATADIR": str(folder / "data")}
    environment = os.environ | own | {"PYTHONPATH": str(SCRIPTS)}
    if not (folder / "ready").exists():
        settings = ["name=p", "language=en", "backend=omikuji", "analyzer=snowball(english)", "vocab=v", "limit=5"]
        settings += ["cluster_balanced=False", "cluster_k=100", "max_depth=3"]
        (folder / "projects.cfg").write_text("\n".join(["[p]", *settings]) + "\n")
        _write_annif(folder / "train.tsv")
        script = [str(python), str(SCRIPTS / "annif_server.py")]
        vocabulary = DATA / "eurovoc-text" / "vocabulary.tsv"
        subprocess.run([*script, str(vocabulary), str(folder / "train.tsv")], env=environment, check=True)
        (folder / "ready").touch()
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [str(python), "-m", "gunicorn", "annif_server:create()", "-k", "uvicorn.workers.UvicornWorker"]
    command += ["-w", "2", "-b", f"127.0.0.1:{port}", "--log-level", "error"]
    with subprocess.Popen(command, env=environment) as process:
        try:
            _wait_for_annif(port)
            yield port
        finally:
            process.terminate()
            process.wait(30)


def _write_annif(path: Path) -> None:
    """Write the training documents as Annif reads them."""
    with gzip.open(DATA / "eurovoc-text" / "train.jsonl.gz", "rt", encoding="utf-8") as file:
        records = [json.loads(line) for line in file]
    lines = (DATA / "eurovoc-text" / "vocabulary.tsv").read_text(encoding="utf-8").splitlines()
    uris = {name: uri for uri, _, name in (line.partition("\t") for line in lines)}
    with open(path, "w", encoding="utf-8") as out:
        for one in records:
            text = " ".join(f"{one['title']} {one['text']}".split())
            out.write(f"{text}\t{' '.join(uris[name] for name in one['labels'] if name in uris)}\n")


def _wait_for_annif(port: int) -> None:
    for _ in range(300):
        try:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
            connection.request("POST", "/v1/projects/p/suggest", "text=oil", {"Content-Type": _FORM})
            if connection.getresponse().status == 200:
                return
        except OSError:
            pass
        time.sleep(0.2)
    raise LabelfieldError("Annif's server does not answer")


def run_annif() -> dict[str, Any]:
    """Ask Annif's server and ours the same, in Annif's protocol, one after the other."""
    documents = _documents()[:500]
    forms = [urlencode({"text": f"{one['title']} {one['text']}", "limit": 5}).encode() for one in documents]
    with annif_serving() as port:
        asyncio.run(_load(port, "/v1/projects/p/suggest", forms, _FORM, 3))
        theirs = asyncio.run(_load(port, "/v1/projects/p/suggest", forms, _FORM, LOAD_S))
    with serving() as (port, _, _):
        asyncio.run(_load(port, "/v1/projects/eurovoc/suggest", forms, _FORM, 3))
        ours = asyncio.run(_load(port, "/v1/projects/eurovoc/suggest", forms, _FORM, LOAD_S))
    results = {"annif": theirs, "labelfield": ours, "ratio": ours["per_second"] / theirs["per_second"]}
    print(json.dumps(results), flush=True)
    return results


def _rss_mb(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmRSS")).split()[1]) / 1024


def run() -> dict[str, Any]:
    documents = _documents()
    ready = []
    for _ in range(3):
        with serving() as (_, _, seconds):
            ready.append(seconds)
    with serving() as (port, pid, _):
        alone = _alone(port, documents)
        load = asyncio.run(_load(port, "/tag", _bodies(documents), "application/json", LOAD_S))
        memory = _rss_mb(pid)
    results = {"ready_s": sorted(ready), "alone": alone, "connections_64": load, "memory_mb": memory}
    print(json.dumps(results), flush=True)
    return results


def run_soak() -> dict[str, Any]:
    """Full load with reloads every 10 s and 1 % broken requests; memory after the second and after the last reload."""
    bodies = _bodies(_documents())
    with serving() as (port, pid, _):
        first = asyncio.run(
            _load(port, "/tag", bodies, "application/json", min(45, SOAK_S / 2), broken=0.01, reload_s=10)
        )
        before, series, rest = _rss_mb(pid), list[float](), SOAK_S - first["seconds"]
        answers = Counter(first["answers"])
        while rest > 0:
            part = asyncio.run(_load(port, "/tag", bodies, "application/json", min(30, rest), broken=0.01, reload_s=10))
            rest -= part["seconds"]
            answers.update(part["answers"])
            series.append(_rss_mb(pid))
    bad = sum(n for code, n in answers.items() if int(code) >= 500 and code != "503") + answers.get("0", 0)
    results = {
        "seconds": SOAK_S,
        "answers": dict(answers),
        "bad": bad,
        "memory_mb": [before, *series],
        "growth": series[-1] / before - 1,
    }
    print(json.dumps(results), flush=True)
    return results
