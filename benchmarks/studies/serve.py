"""A server on loopback: time to start, latency of one document, throughput of 64 connections, and a soak.

The load is bounded by count and time. It comes from one process with requests that are ready to be sent, which leaves
nearly all of two cores to the server. CPU seconds are those of all processes of a server; where other work slows the
machine down, they say more than seconds do. The model is that of eurovoc-text with default options, trained once and
kept under build/. Texts are the first 500 test documents, each with its title and its text.
"""

from __future__ import annotations

import asyncio
import gzip
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from statistics import median
from typing import IO, Any
from urllib.parse import urlencode

import uvloop

from benchmarks.paths import DATA, ROOT
from benchmarks.peers.environments import SCRIPTS, python_of
from labelfield.errors import LabelfieldError

__all__ = ["run", "run_annif", "run_soak"]

N_ALONE, N_CONNECTIONS, LOAD_S, MOST_REQUESTS = 1000, 64, 15.0, 10_000_000
N_TURNS, TURN_S = 6, 3.0
# Half an hour: LABELFIELD_SOAK_SECONDS=1800 python -m benchmarks bench serve-soak
SOAK_S = float(os.environ.get("LABELFIELD_SOAK_SECONDS", "180"))
_MODEL = ROOT / "build" / "serve" / "eurovoc"
_FORM = "application/x-www-form-urlencoded"
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)\r\n", re.IGNORECASE)
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
    command = [sys.executable, "-m", "labelfield", "serve", str(_model()), "--port", "0", *options]
    started = time.perf_counter()
    with subprocess.Popen(command, stderr=subprocess.PIPE) as process:
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
    """Reads a log to its end in large pieces, so that its pipe never fills and the load has the processor."""

    def __init__(self, file: IO[bytes]) -> None:
        self.thread = threading.Thread(target=self._read, args=(file.fileno(),), daemon=True)
        self.thread.start()

    def _read(self, number: int) -> None:
        while os.read(number, 1 << 20):
            pass

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
    """Return whether `labelfield tag` writes the same: labels, URIs, review, and numbers to one in the fourth digit.

    Products of matrices round differently for one row than for many, which a number halfway between two shows.
    """
    given = "".join(json.dumps({"title": one["title"], "text": ""}) + "\n" for one in documents[: len(lines)])
    command = [sys.executable, "-m", "labelfield", "tag", str(_model()), "-"]
    done = subprocess.run(command, input=given, capture_output=True, text=True, check=True)
    expected = [json.loads(line) for line in done.stdout.splitlines()]
    return all(map(_is_same, lines, [{key: one[key] for key in one if key != "id"} for one in expected]))


def _is_same(one: Any, other: Any) -> bool:
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_is_same(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(_is_same, one, other))
    return abs(one - other) < 1.5e-4 if isinstance(one, float) else bool(one == other)


class _Client(asyncio.Protocol):
    """One connection, which sends the next request as soon as the last one is answered."""

    def __init__(self, load: _Load) -> None:
        self.load, self.buffer, self.missing, self.code = load, b"", -1, 0

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self._send()

    def _send(self) -> None:
        request = self.load.next_request()
        if request is None:
            self.transport.close()
            return
        self.buffer, self.missing, self.started = b"", -1, time.monotonic()
        self.transport.write(request)

    def data_received(self, data: bytes) -> None:
        self.buffer = data = self.buffer + data if self.buffer else data
        if self.missing < 0:
            end = data.find(b"\r\n\r\n")
            if end < 0:
                return
            found = _LENGTH.search(data, 0, end + 2)
            if found is None:
                raise LabelfieldError("an answer does not say how long it is")
            self.code, self.missing = int(data[9:12]), end + 4 + int(found[1])
        if len(data) >= self.missing:
            self.load.codes[self.code] += 1
            self.load.times.append(time.monotonic() - self.started)
            self._send()

    def connection_lost(self, exc: Exception | None) -> None:
        if self.load.next_request(looks=True):  # the server closed it
            self.load.codes[0] += 1
            self.load.spawn(self.load.connect())
        else:
            self.load.n_open -= 1
            if not self.load.n_open:
                self.load.done.set()


class _Load:
    """Requests from 64 connections for some seconds, of which a share is broken."""

    def __init__(self, port: int, path: str, bodies: list[bytes], kind: str, seconds: float, broken: float) -> None:
        self.port, self.every = port, int(1 / broken) if broken else 0
        self.requests = [_request(path, body, kind) for body in bodies]
        self.broken = [_request(path, body, kind) for body in _BROKEN]
        self.end, self.n_sent, self.n_open = time.monotonic() + seconds, 0, N_CONNECTIONS
        self.codes, self.times, self.tasks = Counter[int](), list[float](), set[Any]()
        self.done = asyncio.Event()

    def next_request(self, looks: bool = False) -> bytes | None:
        """Return the next request, None when it is enough."""
        if time.monotonic() > self.end or self.n_sent >= MOST_REQUESTS:
            return None
        self.n_sent += not looks
        if self.every and self.n_sent % self.every == 0:
            return self.broken[self.n_sent // self.every % len(self.broken)]
        return self.requests[self.n_sent % len(self.requests)]

    async def connect(self) -> None:
        await asyncio.get_running_loop().create_connection(lambda: _Client(self), "127.0.0.1", self.port)

    def spawn(self, work: Any) -> None:
        """Run something beside, and hold on to it until it is done."""
        task = asyncio.ensure_future(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)


def _request(path: str, body: bytes, kind: str) -> bytes:
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def _load(
    port: int,
    path: str,
    bodies: list[bytes],
    kind: str,
    seconds: float,
    *,
    pid: int,
    broken: float = 0.0,
    reload_s: float = 0.0,
) -> dict[str, Any]:
    """Ask from 64 connections; return statuses, documents per second, latencies, CPU seconds, memory by the second."""

    async def run() -> dict[str, Any]:
        load, memory = _Load(port, path, bodies, kind, seconds, broken), list[float]()
        before, started = _cpu_s(pid), time.monotonic()
        for _ in range(N_CONNECTIONS):
            await load.connect()
        next_reload = started + reload_s
        while not load.done.is_set():
            with suppress(TimeoutError):
                await asyncio.wait_for(load.done.wait(), 1.0)
            memory.append(_rss_mb(pid))
            if reload_s and next_reload <= time.monotonic() < load.end:
                next_reload += reload_s
                load.spawn(asyncio.to_thread(_reload, port, load.codes))
        while load.tasks:
            await asyncio.sleep(0.1)
        took, times, n = time.monotonic() - started, sorted(load.times), load.codes[200]
        return {
            "seconds": took,
            "answers": {str(code): n for code, n in sorted(load.codes.items())},
            "per_second": n / took,
            "cpu_ms_per_answer": 1000 * (_cpu_s(pid) - before) / max(n, 1),
            "p50_ms": 1000 * times[len(times) // 2],
            "p99_ms": 1000 * times[int(0.99 * len(times))],
            "memory_mb": memory,
        }

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(run())


def _reload(port: int, codes: Counter[int]) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("POST", "/v2/repository/models/eurovoc/load", b"")
    codes[connection.getresponse().status] += 1


def _reloads(port: int) -> dict[str, int]:
    """Return how many reloads were done, failed, or found nothing to do."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("GET", "/metrics")
    found = re.findall(r'labelfield_reloads_total\{.*result="(\w+)"\} (\d+)', connection.getresponse().read().decode())
    return {result: int(n) for result, n in found}


def _processes(pid: int) -> list[int]:
    """Return a process and all that it started."""
    found = [pid]
    for own in Path(f"/proc/{pid}/task").iterdir():
        with suppress(OSError):
            for child in (own / "children").read_text().split():
                found += _processes(int(child))
    return found


def _cpu_s(pid: int) -> float:
    """Return the CPU seconds of a server, user and system."""
    ticks = 0
    for one in _processes(pid):
        fields = Path(f"/proc/{one}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def _settle(pid: int, most_s: float = 60.0) -> None:
    """Wait until a server has nothing to do: workers load what explanations need after they are ready."""
    end, before = time.monotonic() + most_s, -1.0
    while time.monotonic() < end and (now := _cpu_s(pid)) - before > 0.02:
        before = now
        time.sleep(1.0)


def _rss_mb(pid: int) -> float:
    """Return the resident memory of a server."""
    total = 0
    for one in _processes(pid):
        lines = Path(f"/proc/{one}/status").read_text().splitlines()
        total += int(next((line for line in lines if line.startswith("VmRSS")), "x 0").split()[1])
    return total / 1024


def _bodies(documents: list[dict[str, str]]) -> list[bytes]:
    return [
        json.dumps({"documents": [{"title": one["title"], "text": one["text"]}]}).encode() for one in documents[:500]
    ]


@contextmanager
def annif_serving() -> Iterator[tuple[int, int]]:
    """Start Annif's server as its pages advise, with two workers and an omikuji Bonsai project.

    Yield its port and its process id.
    """
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
            yield port, process.pid
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
    """Ask Annif's server and ours the same, in Annif's protocol, in turns; both with two workers.

    Both servers are up all the time and take turns of a few seconds, so that other work on the machine slows both down.
    """
    documents = _documents()[:500]
    forms = [urlencode({"text": f"{one['title']} {one['text']}", "limit": 5}).encode() for one in documents]
    with annif_serving() as (their_port, their_pid), serving("--workers", "2") as (port, pid, _):
        turns = {
            "annif": (their_port, "/v1/projects/p/suggest", their_pid),
            "labelfield": (port, "/v1/projects/eurovoc/suggest", pid),
        }
        found: dict[str, list[dict[str, Any]]] = {name: [] for name in turns}
        for number in (their_pid, pid):
            _settle(number)
        for turn in range(1 + N_TURNS):  # the first one warms up
            for name, (own_port, path, number) in turns.items():
                load = _load(own_port, path, forms, _FORM, TURN_S, pid=number)
                found[name] += [load] if turn else []
    ratios = [
        ours["per_second"] / theirs["per_second"]
        for theirs, ours in zip(found["annif"], found["labelfield"], strict=True)
    ]
    results: dict[str, Any] = {name: _together(loads) for name, loads in found.items()}
    theirs, ours = results["annif"], results["labelfield"]
    results |= {
        "ratio": ours["per_second"] / theirs["per_second"],
        "ratios": ratios,
        "cores": len(os.sched_getaffinity(0)),  # of the machine's, for servers and load together
        "cpu_ratio": theirs["cpu_ms_per_answer"] / ours["cpu_ms_per_answer"],
    }
    print(json.dumps(results), flush=True)
    return results


def _together(loads: list[dict[str, Any]]) -> dict[str, Any]:
    """Return what several turns of a server come to."""
    answers = sum((Counter(load["answers"]) for load in loads), Counter[str]())
    seconds, n = sum(load["seconds"] for load in loads), answers["200"]
    cpu_ms = sum(load["cpu_ms_per_answer"] * load["answers"]["200"] for load in loads)
    return {
        "seconds": seconds,
        "answers": dict(answers),
        "per_second": n / seconds,
        "cpu_ms_per_answer": cpu_ms / n,
        "p50_ms": median(load["p50_ms"] for load in loads),
        "p99_ms": max(load["p99_ms"] for load in loads),
        "memory_mb": max(max(load["memory_mb"]) for load in loads),
    }


def run() -> dict[str, Any]:
    documents = _documents()
    ready, ready_cpu = [], []
    for _ in range(3):
        with serving() as (_, pid, seconds):
            ready_cpu.append(_cpu_s(pid))
            ready.append(seconds)
    with serving() as (port, pid, _):
        _settle(pid)
        alone = _alone(port, documents)
        load = _load(port, "/tag", _bodies(documents), "application/json", LOAD_S, pid=pid)
        load["memory_mb"] = max(load["memory_mb"])
    results = {"ready_s": sorted(ready), "ready_cpu_s": sorted(ready_cpu), "alone": alone, "connections_64": load}
    print(json.dumps(results), flush=True)
    return results


def run_soak() -> dict[str, Any]:
    """Full load with reloads every 10 s and 1 % broken requests; memory by the minute, after one minute of warming up.

    A reload has two models in memory for a while, so that memory has a low and a high of each minute; growth is that of
    the median of the last fifth of all minutes over that of the first fifth, for both. Where a reload takes longer than
    10 s, one that is asked for meanwhile finds nothing to do; `reloads` says how many were done.
    """
    bodies = _bodies(_documents())
    with serving() as (port, pid, _):
        found = _load(port, "/tag", bodies, "application/json", SOAK_S, pid=pid, broken=0.01, reload_s=10)
        reloads = _reloads(port)
    seconds, answers = found.pop("memory_mb"), found["answers"]
    minutes = [sorted(seconds[at : at + 60]) for at in range(60, len(seconds) - 59, 60)]
    fifth = max(1, len(minutes) // 5)

    def growth(place: int) -> float:
        first, last = ([own[place] for own in some] for some in (minutes[:fifth], minutes[-fifth:]))
        return float(median(last) / median(first) - 1)

    bad = sum(n for code, n in answers.items() if int(code) >= 500 and code != "503") + answers.get("0", 0)
    results = found | {
        "bad": bad,
        "reloads": reloads,
        "memory_mb": {"low": [own[0] for own in minutes], "high": [own[-1] for own in minutes]},
        "growth": growth(0),
        "growth_of_high": growth(-1),
    }
    print(json.dumps(results), flush=True)
    return results
