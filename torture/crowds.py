"""Crowds: several at once, in processes, threads and forks, get what each would get alone, or one clear error."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

import labelfield
from labelfield.models.artifact import ModelError
from torture.jobs import JOBS, copy_of, start
from torture.running import Trial
from torture.servers import free_port, get, post, waits_for


def _two_trainings(base: Path) -> Trial:
    """Two trainings into one folder: what is there in the end is a whole model, that of either."""
    job = JOBS["train"]
    (base / "original").mkdir()
    job.make(base / "original")
    alone = copy_of(base / "original", base / "alone")
    assert start(alone, job.command).wait()[0] == 0
    expected = job.result(alone)

    def trial(seed: int) -> str | None:
        rng = Random(f"two trainings/{seed}")
        folder = copy_of(base / "original", base / "work")
        both = []
        for _ in range(2):
            both.append(start(folder, job.command))
            time.sleep(rng.uniform(0, 0.5))
        ends = [child.wait() for child in both]
        for code, said in ends:
            if "Traceback" in said or code < 0 or (code and not said.strip()):
                return f"code {code}: {said.strip()[-150:]}"
        if all(code for code, _ in ends):
            return f"neither has ended: {ends[0][1].strip()[-80:]!r}, {ends[1][1].strip()[-80:]!r}"
        return None if job.is_whole(folder) and job.result(folder) == expected else "what is left is not the model"

    return trial


def _reading_while_writing(base: Path) -> Trial:
    """A model that is read while another process replaces it is the old one, the new one, or refused as changed."""
    job = JOBS["learn"]
    (base / "original").mkdir()
    job.make(base / "original")
    texts = ["cats sleep", "green tea", "dogs run fast"]
    old = labelfield.load(base / "original" / "model", device="cpu").predict_proba(texts)
    new_folder = copy_of(base / "original", base / "new")
    assert start(new_folder, job.command).wait()[0] == 0
    new = labelfield.load(new_folder / "model", device="cpu").predict_proba(texts)

    def trial(seed: int) -> str | None:
        folder = copy_of(base / "original", base / "work")
        child = start(folder, job.command)
        n_read = 0
        while child.is_running() or n_read == 0:
            try:
                found = labelfield.load(folder / "model", device="cpu").predict_proba(texts)
            except ModelError:
                continue
            n_read += 1
            if not any(found.shape == one.shape and np.array_equal(found, one) for one in (old, new)):
                return "probabilities of neither the old model nor the new one"
        code, said = child.wait()
        return None if code == 0 else f"code {code}: {said.strip()[-150:]}"

    return trial


def _two_servers(base: Path) -> Trial:
    """Two servers that share a file of corrections: none is lost, and each server counts those of both."""
    (base / "original").mkdir()
    JOBS["tag"].make(base / "original")

    def trial(seed: int) -> str | None:
        folder = copy_of(base / "original", base / "work")
        ports = [free_port() for _ in range(2)]
        command = ["serve", "model", "--corrections", "corrections.sqlite", "--port"]
        servers = [start(folder, [*command, str(port)]) for port in ports]
        try:
            if not all(waits_for(f"http://127.0.0.1:{port}/readyz") for port in ports):
                return "a server does not start"
            failures: list[str] = []

            def correct(port: int, first: int) -> None:
                for number in range(first, first + 15):
                    body = {"document": {"text": f"tea {number}"}, "labels": ["food"], "predicted": []}
                    try:
                        post(f"http://127.0.0.1:{port}/corrections", body)
                    except OSError as error:
                        failures.append(str(error))

            _at_once([lambda p=port, f=100 * place: correct(p, f) for place, port in enumerate(ports * 2)])  # type: ignore[misc]
            counts = [json.loads(get(f"http://127.0.0.1:{port}/corrections"))["new"] for port in ports]
            if failures or counts != [60, 60]:
                return f"{counts} corrections of 60, {failures[:1]}"
        finally:
            for server in servers:
                server.send(signal.SIGTERM)
            ends = [server.wait() for server in servers]
        bad = [said.strip()[-150:] for code, said in ends if code not in (0, 143) or "Traceback" in said]
        return bad[0] if bad else None

    return trial


def _killed_server(base: Path) -> Trial:
    """A server that is killed while it stores corrections has all that it said it had stored."""
    (base / "original").mkdir()
    JOBS["tag"].make(base / "original")

    def trial(seed: int) -> str | None:
        rng = Random(f"killed server/{seed}")
        folder, n_stored = copy_of(base / "original", base / "work"), 0
        for _ in range(3):
            port = free_port()
            server = start(folder, ["serve", "model", "--corrections", "corrections.sqlite", "--port", str(port)])
            address = f"http://127.0.0.1:{port}"
            try:
                if not waits_for(f"{address}/readyz"):
                    return "the server does not start"
                found = json.loads(get(f"{address}/corrections"))["new"]
                if not n_stored <= found <= n_stored + 1:  # the last one may have been stored without an answer
                    return f"{found} corrections of {n_stored}"
                n_stored = found
                killer = threading.Timer(rng.uniform(0, 0.3), server.send, [signal.SIGKILL])
                killer.start()
                with contextlib.suppress(OSError, http.client.HTTPException):
                    while True:
                        body = {"document": {"text": f"tea {n_stored}"}, "labels": ["food"], "predicted": []}
                        post(f"{address}/corrections", body)
                        n_stored += 1
                killer.join()
            finally:
                server.send(signal.SIGKILL)
                server.wait()
        return None

    return trial


def _threads(base: Path) -> Trial:
    """Threads that ask one estimator at once get what one alone gets."""
    models, X = _models()
    expected = [model.predict_proba(X) for model in models]

    def trial(seed: int) -> str | None:
        wrong: list[str] = []

        def ask(first: int) -> None:
            for place in range(first, first + 4):
                number = place % len(models)
                size = 1 + (seed + place) % X.shape[0]
                found = models[number].predict_proba(X[:size])
                if not np.allclose(found, expected[number][:size], atol=1e-5):
                    wrong.append(f"another answer of {type(models[number]).__name__}")

        _at_once([lambda first=first: ask(first) for first in range(6)])  # type: ignore[misc]
        return wrong[0] if wrong else None

    return trial


def _forks(base: Path) -> Trial:
    """A process that was forked after torch had started answers as its parent does, and does not hang."""
    models, X = _models()
    expected = [model.predict_proba(X) for model in models]

    def trial(seed: int) -> str | None:
        number = seed % len(models)
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                code = int(not np.allclose(models[number].predict_proba(X), expected[number], atol=1e-5))
                if seed % 3 == 0:
                    models[number].fit(X, np.eye(3, dtype=int)[np.arange(X.shape[0]) % 3])
            finally:
                os._exit(code)
        ends = time.monotonic() + 30
        while time.monotonic() < ends:
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                return None if status == 0 else f"status {status} of {type(models[number]).__name__}"
            time.sleep(0.005)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        return f"a forked {type(models[number]).__name__} hangs"

    return trial


def _models() -> tuple[list[Any], Any]:
    data = labelfield.synth.make_multilabel(200, 30, 3, seed=1)
    X, Y = data.X, np.eye(3, dtype=int)[np.arange(200) % 3]
    small: dict[str, Any] = {"n_inducing": 6, "max_epochs": 1, "device": "cpu"}
    models = [
        labelfield.LinearClassifier(row_transform="unit", cost=1.0, device="cpu"),
        labelfield.MLGPFClassifier(n_latent=2, **small),
        labelfield.TopicClassifier(n_topics=2, max_epochs=2, device="cpu"),
    ]
    return [model.fit(X, Y) for model in models], X


def _at_once(acts: list[Callable[[], None]]) -> None:
    threads = [threading.Thread(target=act) for act in acts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


CROWDS: dict[str, Callable[[Path], Trial]] = {
    "two trainings": _two_trainings,
    "reading while writing": _reading_while_writing,
    "two servers": _two_servers,
    "killed server": _killed_server,
    "threads": _threads,
    "forks": _forks,
}


def make_trial(name: str) -> Trial:
    """Return the trials of a crowd."""
    return CROWDS[name](Path(tempfile.mkdtemp()))
