"""Refusals of the server that no other test asks for."""

import asyncio
import gzip
import sqlite3
from types import SimpleNamespace

import pytest
from application import serving

from labelfield.errors import LabelfieldError, no_numbers
from labelfield.serve import server
from labelfield.serve.gate import RefusedError
from labelfield.serve.store import Served

NUMBERS = {"name": "x", "shape": [1, 3], "datatype": "FP32", "data": [1, 2, 3]}
TEXT = {"name": "text", "shape": [1], "datatype": "BYTES", "data": ["a"]}
STUDIO = {"tasks": [{"id": 1, "data": {"text": "a"}}], "params": {}}


@pytest.mark.parametrize(
    ("path", "body", "status", "words"),
    [
        ("/v2/models/topics/infer", {"inputs": [TEXT, TEXT | {"name": "z"}]}, 400, "'z' is not known"),
        (
            "/v2/models/topics/infer",
            {"inputs": [TEXT, {"name": "title", "shape": [2], "datatype": "BYTES", "data": ["a", "b"]}]},
            400,
            "different lengths",
        ),
        ("/v2/models/rows/infer", {"inputs": [TEXT]}, 400, "one input of numbers"),
        ("/v2/models/rows/infer", {"inputs": [NUMBERS]}, 400, "the shape is [1, 3]"),
        ("/tag", {"model": "rows", "rows": [{"indices": [0, 1], "values": [1.0]}]}, 422, "2 indices and 1 values"),
        ("/tag", {"model": "rows", "rows": [{"height": 1.0}]}, 422, "by number only"),
        ("/tag", {"model": "rows", "rows": [[1e31] * 20]}, 422, "too large"),
        ("/rows/predict", STUDIO, 422, "takes rows of numbers"),
        ("/topics/predict", STUDIO | {"label_config": "<View/>"}, 422, "no Choices"),
        ("/learn", {"model": "rows"}, 409, "corrections are for models of doc"),
        ("/rows/webhook", {"action": "START_TRAINING"}, 409, "only models of documents learn"),
        ("/corrections", {"model": "rows", "document": {}, "labels": []}, 409, "corrections are for models of doc"),
        (
            "/corrections",
            {"model": "topics", "document": {"title": "", "text": "a"}, "labels": ["a"], "predicted": [3]},
            422,
            "no tag",
        ),
    ],
)
def test_refusals(client, path, body, status, words):
    answer = client.post(path, json=body)
    assert (answer.status_code, words in answer.text) == (status, True), answer.text


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        ('{"text": "a", "k": ' + "1" * 5000 + "}", 400, "a number that is too long"),
        ('{"text": "a", "k": ' + "1" * 400 + "}", 422, "k is out of range"),
        ('{"model": "rows", "rows": [[' + "1" * 400 + ",0" * 19 + "]]}", 422, "too large"),
    ],
)
def test_numbers_that_python_cannot_convert(client, body, status, words):
    answer = client.post("/tag", content=body.encode(), headers={"Content-Type": "application/json"})
    assert (answer.status_code, words in answer.text) == (status, True), answer.text


@pytest.mark.parametrize("number", ["9" * 20, "9" * 5000], ids=["beyond SQLite", "beyond Python"])
def test_corrections_of_huge_numbers_are_not_there(client, number):
    assert client.delete(f"/corrections/{number}").status_code == 404


@pytest.mark.parametrize("origin", ["http://[", "null", "file://", "http://localhost:99999"])
def test_odd_origins_are_refused(client, origin):
    assert client.post("/tag", json={"text": "a"}, headers={"Origin": origin}).status_code == 403


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200),
        ("localhost:8000", 200),
        ("127.0.0.1:8000", 200),
        ("[::1]:8000", 200),
        ("a.localhost", 200),
        ("rebound.example:8000", 403),
        ("localhost.example", 403),
        ("127.0.0.1.example", 403),
        ("[", 403),
        ("[::1].example", 403),
    ],
)
def test_a_page_whose_name_leads_here_gets_nothing(client, host, status):
    """DNS rebinding: such a page is of the same origin for its browser, reads answers and sends corrections."""
    same = {"Host": host, "Origin": f"http://{host}", "Sec-Fetch-Site": "same-origin"}
    assert client.get("/models", headers=same).status_code == status
    assert client.get("/healthz", headers=same).status_code == 200  # as with a token: probes may come in
    assert client.post("/tag", json={"text": "a"}, headers=same).status_code == status


def test_names_behind_a_proxy_are_told_to_the_server(folder):
    with serving({"topics": folder}, cors_origins=("https://tags.example",)) as client:
        assert client.get("/models", headers={"Host": "tags.example"}).status_code == 200
        assert client.get("/models", headers={"Host": "other.example"}).status_code == 403
    with serving({"topics": folder}, token="secret") as client:
        head = {"Host": "other.example", "Authorization": "Bearer secret"}
        assert client.get("/models", headers=head).status_code == 200


def test_bodies_that_are_not_what_they_seem(client):
    packed = client.post("/tag", content=gzip.compress(b'{"text": "a"}'), headers={"Content-Encoding": "gzip"})
    assert (packed.status_code, "compressed bodies are not read" in packed.text) == (415, True)
    plain = client.post("/tag", content="café".encode("latin-1"), headers={"Content-Type": "text/plain"})
    assert (plain.status_code, "not UTF-8" in plain.text) == (400, True)


def test_forms_in_parts(client):
    head = {"Content-Type": "multipart/form-data; boundary=x"}
    answer = client.post("/v1/projects/topics/suggest", content=b"--x--", headers=head)
    assert (answer.status_code, "multipart forms are not read" in answer.text) == (415, True)


def test_features_that_the_model_does_not_know(client):
    served = client.service.store.find("rows")
    served.__dict__["columns"] = {"width": 0}
    try:
        answer = client.post("/tag", json={"model": "rows", "rows": [{"height": 1.0}]})
    finally:
        del served.__dict__["columns"]
    assert (answer.status_code, "'height', which the model does not know" in answer.text) == (422, True)


@pytest.mark.parametrize(
    ("error", "status", "words"), [(MemoryError(), 503, "out of memory"), (no_numbers(), 422, "not numbers")]
)
def test_answers_that_fail(client, monkeypatch, error, status, words):
    async def fails(*given):
        raise error

    monkeypatch.setattr(client.service.batcher, "ask", fails)
    answer = client.post("/tag", json={"text": "a"})
    assert (answer.status_code, words in answer.text) == (status, True)


def test_a_correction_that_cannot_be_stored(client, monkeypatch):
    def fails(*given):
        raise sqlite3.OperationalError("database is locked")

    monkeypatch.setattr(client.service.corrections, "add", fails)
    body = {"model": "topics", "document": {"title": "", "text": "a"}, "labels": ["a"], "predicted": []}
    answer = client.post("/corrections", json=body)
    assert (answer.status_code, "the file of corrections cannot be used" in answer.text) == (503, True)
    assert answer.headers["Retry-After"] == "5"


def test_a_model_that_is_replaced_while_it_is_loaded(folder, monkeypatch):
    served = Served("topics", folder, "cpu")
    served.version = "another"
    with pytest.raises(RefusedError, match="being replaced"):
        served.estimator()


def test_a_learning_that_fails_says_why(folder, tmp_path, monkeypatch):
    with serving({"topics": folder}, corrections=tmp_path / "c.sqlite") as client:

        async def fails(*given):
            return 1, "no room on the disk"

        monkeypatch.setattr(client.service.learner, "_learn", fails)
        monkeypatch.setattr("labelfield.serve.learning.keep_before", lambda folder: None)
        body = {"model": "topics", "document": {"title": "", "text": "a"}, "labels": ["a"], "predicted": []}
        client.post("/corrections", json=body)
        client.post("/learn", json={})
        for _ in range(200):
            found = client.get("/learn").json()["learning"]
            if found["state"] != "running":
                break
            asyncio.run(asyncio.sleep(0.01))
        assert (found["state"], found["message"]) == ("failed", "no room on the disk")


def test_workers_that_end_at_once(monkeypatch, capsys):
    def fails(*given):
        raise LabelfieldError("no such model")

    monkeypatch.setattr(server, "run_worker", fails)
    with pytest.raises(SystemExit) as stop:
        server._worker(SimpleNamespace(log_text=False), None, 0)
    assert stop.value.code == 1


def test_a_worker_that_ends_soon_ends_the_server(tmp_path):
    ended, logged = SimpleNamespace(is_alive=lambda: False, exitcode=3, pid=17), []
    queues = [tmp_path / f"gauge_livesum_{pid}.db" for pid in (17, 18)]
    for one in queues:
        one.touch()

    def log(*words, **facts):
        logged.append((words, facts))

    with pytest.raises(LabelfieldError, match="a worker ended as soon as it began"):
        server._watch_over([(ended, server.time.monotonic())], [], None, log, tmp_path)
    assert logged == [(("worker ended", "error"), {"code": 3})]
    assert list(tmp_path.iterdir()) == queues[1:]  # its queue is not counted any more
