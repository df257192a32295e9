"""Limits, tokens, origins, reloads and logs, each by the status that operators expect."""

import base64
import json
import shutil
import threading
import time
import weakref
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from unittest.mock import patch

import pytest
from application import serving

SECRET = "s3cret-täken"
TEXT = {"text": "a violin concert that nobody may log"}


@pytest.fixture
def slow(folder):
    """A client of a server whose model waits for an event before it answers; it has a queue of 4."""
    with serving({"topics": folder}, queue=4, batch_size=1, timeout=60) as client:
        real, client.go = client.service.batcher.answer, threading.Event()

        def answer(*asked):
            client.go.wait(60)
            return real(*asked)

        client.service.batcher.answer = answer
        yield client
        client.go.set()


def test_what_is_not_answered_in_time_is_a_504_and_leaves_the_queue(slow, monkeypatch):
    monkeypatch.setattr(slow.service, "settings", replace(slow.service.settings, timeout=0.2))
    answers = [slow.post("/tag", json=TEXT) for _ in range(2)]
    assert [one.status_code for one in answers] == [504, 504]
    assert "no answer within 0.2 s" in answers[0].json()["error"]
    assert len(slow.service.batcher.waiting) == 0
    slow.go.set()
    assert slow.post("/tag", json=TEXT).status_code == 200


def test_a_full_queue_is_a_503_that_says_when_to_come_back(slow):
    with ThreadPoolExecutor(12) as pool:
        asked = [pool.submit(slow.post, "/tag", json=TEXT) for _ in range(12)]
        while sum(one.done() for one in asked) < 7:  # one is being computed, four wait
            time.sleep(0.01)
        assert len(slow.service.batcher.waiting) == 4
        slow.go.set()
        answers = [one.result() for one in asked]
    codes = [one.status_code for one in answers]
    assert (codes.count(200), codes.count(503)) == (5, 7)
    full = next(one for one in answers if one.status_code == 503)
    assert full.headers["retry-after"] == "1"
    assert "queue is full" in full.json()["error"]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/tag", {"documents": [0] * 5}),
        ("/tag", {"model": "rows", "rows": [0] * 5}),
        ("/", {"inputs": [0] * 5}),
        ("/predict", {"tasks": [0] * 5}),
        ("/v2/models/topics/infer", {"inputs": [{"name": "text", "shape": [5], "datatype": "BYTES", "data": [0] * 5}]}),
        (
            "/v2/models/rows/infer",
            {"inputs": [{"name": "x", "shape": [5, 20], "datatype": "FP32", "data": ["x"] * 100}]},
        ),
    ],
)
def test_more_documents_than_may_wait_are_refused_before_they_are_looked_at(folder, rows_folder, path, body):
    """Nobody else is answered while millions of them are read; that they are none at all is not seen."""
    with serving({"topics": folder, "rows": rows_folder}, queue=4) as client:
        answer = client.post(path, json=body)
    assert (answer.status_code, answer.json()["error"]) == (413, "5 documents in one request; send at most 4")


def test_batches_are_no_larger_than_asked_and_answers_go_to_those_who_asked(folder):
    with serving({"topics": folder}, batch_size=8, batch_wait_ms=20) as client:
        sizes = []
        client.service.batcher.watch = sizes.append
        words = ["violin", "bread", "telescope", "boat"] * 10
        with ThreadPoolExecutor(40) as pool:
            found = list(pool.map(lambda word: client.post("/tag", json={"text": word}).json()["results"], words))
        alone = {word: client.post("/tag", json={"text": word}).json()["results"] for word in set(words)}
    assert found == [alone[word] for word in words]
    assert max(sizes) == 8


@pytest.mark.parametrize("declared", [True, False])
def test_large_bodies_are_refused(folder, declared):
    with serving({"topics": folder}, max_body=1000) as client:
        body = json.dumps({"text": "x" * 5000}).encode()
        content = body if declared else iter([body[:600], body[600:]])
        answer = client.post("/tag", content=content)
        assert (answer.status_code, answer.headers["connection"]) == (413, "close")
        assert "larger than 1,000 bytes" in answer.json()["error"]
        assert client.service._held == 0
        assert client.post("/tag", json=TEXT).status_code == 200


def test_bodies_under_way_are_bounded_together(folder):
    with serving({"topics": folder}, max_body=1000) as client:
        client.service.hold_bytes(7990)
        answer = client.post("/tag", json=TEXT)
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
        client.service.hold_bytes(-7990)
        assert client.service._held == 0


def basic(password, encoding="utf-8"):
    return "Basic " + base64.b64encode(f"anyone:{password}".encode(encoding)).decode()


@pytest.mark.parametrize(
    ("given", "status"),
    [
        (None, 401),
        (f"Bearer {SECRET}", 200),
        (f"bearer {SECRET}", 200),
        (basic(SECRET), 200),
        (basic(SECRET, "latin-1"), 200),  # as requests writes it
        (basic("wrong"), 401),
        ("Basic !!!", 401),
        ("Bearer wrong", 401),
        (f"Bearer {SECRET}x", 401),
        ("Bearer ", 401),
        (SECRET, 401),
    ],
)
def test_tokens(folder, given, status):
    with serving({"topics": folder}, token=SECRET) as client:
        headers = {} if given is None else {"Authorization": given.encode()}
        answer = client.post("/tag", json=TEXT, headers=headers)
        assert answer.status_code == status
        if status == 401:
            assert answer.headers["www-authenticate"].startswith("Basic realm=")
            assert client.get("/", headers=headers).status_code == 401
            assert client.get("/metrics", headers=headers).status_code == 401
        assert client.get("/healthz").status_code == client.get("/readyz").status_code == 200
        assert SECRET not in client.written.getvalue()


def test_other_origins_come_in_only_on_request(folder):
    origin = {"Origin": "https://other.example"}
    with serving({"topics": folder}) as client:
        assert client.post("/tag", json=TEXT, headers=origin).status_code == 403
        assert "access-control-allow-origin" not in client.get("/models", headers=origin).headers
        assert client.post("/tag", json=TEXT, headers={"Origin": "http://localhost"}).status_code == 200
    with serving({"topics": folder}, cors_origins=("https://other.example",), token=SECRET) as client:
        asked = origin | {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization"}
        before = client.options("/tag", headers=asked)
        assert (before.status_code, before.headers["access-control-allow-origin"]) == (200, "https://other.example")
        answer = client.post("/tag", json=TEXT, headers=origin | {"Authorization": basic(SECRET)})
        assert answer.headers["access-control-allow-origin"] == "https://other.example"
        stranger = {"Origin": "https://evil.example", "Authorization": basic(SECRET)}
        assert client.post("/tag", json=TEXT, headers=stranger).status_code == 403


@pytest.fixture
def changing(folder, tmp_path):
    """A copy of the model, which may be changed, and a client that watches it."""
    shutil.copytree(folder, tmp_path / "topics")
    with serving({"topics": tmp_path / "topics"}, watch=True) as client:
        yield client, tmp_path / "topics"


def version(client):
    return client.get("/models").json()["models"][0]["version"]


def test_a_reload_that_fails_keeps_the_old_model_and_shows_no_path(changing):
    client, folder = changing
    before, answer = version(client), client.post("/tag", json=TEXT).json()
    labels = folder / "labels.txt"
    kept = labels.read_bytes()
    labels.write_bytes(b"broken\n")
    failed = client.post("/v2/repository/models/topics/load")
    assert (failed.status_code, failed.headers["retry-after"]) == (503, "10")
    assert str(folder) not in failed.text
    assert str(folder.parent) not in failed.text
    assert "the one before goes on answering" in failed.json()["error"]
    assert client.post("/tag", json=TEXT).json() == answer
    assert str(folder) in client.written.getvalue()  # the operator needs it
    shutil.rmtree(folder)
    assert client.post("/v2/repository/models/topics/load").status_code == 503
    assert client.post("/tag", json=TEXT).json() == answer
    folder.mkdir()
    labels.write_bytes(kept)
    metrics = client.get("/metrics").text
    assert 'labelfield_reloads_total{model="topics",result="failed"} 2.0' in metrics
    assert version(client) == before


def test_files_that_are_written_over_change_no_answer(folder, rows_folder, tmp_path):
    models = {
        "topics": shutil.copytree(folder, tmp_path / "topics"),
        "rows": shutil.copytree(rows_folder, tmp_path / "r"),
    }
    asked = {**TEXT, "explain": True}, {"model": "rows", "rows": [[1.0] * 20], "k": 6}
    with serving(models) as client:
        before = [client.post("/tag", json=one).json() for one in asked]
        for path in models.values():
            file = path / "arrays.safetensors"
            with open(file, "r+b") as over:  # what cp does: the same file with other bytes
                over.write(bytes(file.stat().st_size))
        assert [client.post("/tag", json=one).json() for one in asked] == before


def test_a_watched_folder_is_loaded_again(changing, documents):
    import labelfield

    client, folder = changing
    before = version(client)
    texts, labels = documents
    model = labelfield.LinearClassifier(row_transform="unit", cost=0.1, device="cpu")
    labelfield.TextClassifier(model=model).fit([b for _, b in texts[:200]], labels[:200]).save(folder)
    for _ in range(100):
        time.sleep(0.05)
        if version(client) != before:
            break
    assert version(client) != before
    time.sleep(0.1)
    metrics = client.get("/metrics").text
    assert f'version="{version(client)}"}} 1.0' in metrics
    assert before not in metrics  # versions that are gone leave no series behind


def test_a_watched_folder_is_loaded_when_the_last_of_its_files_is_there(changing, documents, tmp_path):
    """As they come when a model is copied into the folder: config.json before the names of labels."""
    import labelfield

    client, folder = changing
    before, (texts, labels) = version(client), documents
    model = labelfield.LinearClassifier(row_transform="unit", cost=0.1, device="cpu")
    other = [["other", *own] for own in labels[:200]]
    labelfield.TextClassifier(model=model).fit([b for _, b in texts[:200]], other).save(tmp_path / "new")
    files = sorted(one.name for one in (tmp_path / "new").iterdir())
    assert files[-1] == "labels.txt"
    folder.joinpath("vocabulary.jsonl").unlink()  # the new model has none
    for name in files[:-1]:
        shutil.copyfile(tmp_path / "new" / name, folder / name)
    wait_for(lambda: "reload failed" in client.written.getvalue())
    time.sleep(0.1)
    assert version(client) == before
    shutil.copyfile(tmp_path / "new" / "labels.txt", folder / "labels.txt")
    wait_for(lambda: version(client) != before)


def test_a_folder_that_changes_while_other_models_still_load_is_loaded_again_after_them(changing):
    client, folder = changing
    before, file = version(client), folder / "config.json"
    with patch("labelfield.serve.store.ModelStore.is_ready", False):
        file.write_text(json.dumps(json.loads(file.read_text()), indent=3))
        time.sleep(1.3)  # it is looked at every second
        assert version(client) == before
    wait_for(lambda: version(client) != before)


def test_a_watched_folder_that_is_loaded_already_is_not_loaded_again(changing):
    """As after learning, or a reload that was asked for."""
    client, folder = changing
    folder.joinpath("config.json").touch()
    seen = client.service.store._seen["topics"]
    wait_for(lambda: client.service.store._seen["topics"] != seen)
    time.sleep(0.3)
    assert "reloaded" not in client.written.getvalue()


def test_reloads_that_come_faster_than_they_are_done_do_not_queue(changing, monkeypatch):
    import asyncio

    client, _ = changing
    store, n_loaded = client.service.store, 0
    load = store.reload

    def slowly(name):
        nonlocal n_loaded
        n_loaded += 1
        time.sleep(0.3)
        return load(name)

    monkeypatch.setattr(store, "reload", slowly)

    async def ask():
        return await asyncio.gather(*(client.service.reload("topics") for _ in range(20)))

    found = client.portal.call(ask)
    assert n_loaded == 1
    assert all(one is found[0] for one in found)
    assert store.find("topics") is found[0]


def test_a_model_that_was_replaced_is_gone_before_the_next_reload(folder):
    """Nothing of an idle server holds on to it; while somebody is answered by it, the next reload waits."""
    with serving({"topics": folder}) as client:
        service = client.service
        assert client.post("/tag", json=TEXT).status_code == 200
        replaced = weakref.ref(service.store.find("topics"))
        assert client.post("/v2/repository/models/topics/load").status_code == 200
        wait_for(lambda: replaced() is None)
        wait_for(service._settling.done)
        assert service.store.find("topics").is_complete  # the rest of the successor is loaded when the model is gone
        held = service.store.find("topics")
        client.portal.call(service.reload, "topics")
        asked = client.portal.start_task_soon(service.reload, "topics")
        time.sleep(0.3)
        assert not asked.done()
        assert not service.store.find("topics").is_complete
        del held
        assert asked.result(10) is service.store.find("topics")
        metrics = client.get("/metrics").text  # the last one found the folder as it was loaded
        for result, n in (("done", 2), ("unchanged", 1)):
            assert f'labelfield_reloads_total{{model="topics",result="{result}"}} {n}.0' in metrics


def test_who_asks_while_a_reload_runs_gets_a_folder_that_was_changed_meanwhile(changing, documents, monkeypatch):
    import labelfield

    client, folder = changing
    store, load = client.service.store, client.service.store.reload
    texts, labels = documents
    model = labelfield.LinearClassifier(row_transform="unit", cost=0.1, device="cpu")
    other = labelfield.TextClassifier(model=model).fit([b for _, b in texts[:200]], labels[:200])

    def late(name):
        found = load(name)
        if not (folder / "changed").exists():
            other.save(folder)
            (folder / "changed").touch()
            asked.append(client.portal.start_task_soon(client.service.reload, name))
            time.sleep(0.2)
        return found

    asked = []
    before = version(client)
    monkeypatch.setattr(store, "reload", late)
    assert client.post("/v2/repository/models/topics/load").json()["version"] == before
    assert asked[0].result(10).version != before


def wait_for(condition, seconds=10):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_a_model_answers_until_its_successor_does(folder):
    """Whoever came before a reload is answered by the old model, though the new one is there already."""
    with serving({"topics": folder}) as client:
        real, seen, go = client.service.batcher.answer, [], threading.Event()

        def answer(served, items, questions):
            seen.append(served)
            go.wait(5)
            return real(served, items, questions)

        client.service.batcher.answer = answer
        with ThreadPoolExecutor(1) as pool:
            asked = pool.submit(client.post, "/tag", json=TEXT)
            while not seen:
                time.sleep(0.01)
            assert client.post("/v2/repository/models/topics/load").status_code == 200
            assert client.service.store.find("topics") is not seen[0]
            go.set()
            assert asked.result().status_code == 200


def test_logs_have_a_line_per_request_and_no_text(folder):
    with serving({"topics": folder}) as client:
        client.post("/tag", json=TEXT)
        client.post("/tag", content=b'{"text": "broken and private')
        client.post("/tag", json={"documents": [{"private words": 1}]})
        client.get("/labels?q=private")
        lines = [json.loads(line) for line in client.written.getvalue().splitlines()]
    requests = [line for line in lines if line["event"] == "request"]
    assert [(line["route"], line["status"], line["documents"]) for line in requests] == [
        ("/tag", 200, 1),
        ("/tag", 400, 0),
        ("/tag", 422, 0),
        ("/labels", 200, 0),
    ]
    assert requests[0]["model"] == "topics"
    assert requests[0]["ms"] > 0
    everything = client.written.getvalue()
    assert "violin" not in everything
    assert "private" not in everything


def test_texts_are_logged_if_asked_for(folder):
    with serving({"topics": folder}, log_text=True) as client:
        client.post("/tag", json=TEXT)
        assert "nobody may log" in client.written.getvalue()


def test_an_error_of_ours_is_a_500_without_details(folder):
    with serving({"topics": folder}) as client:

        def answer(*asked):
            raise RuntimeError("/secret/path and a private text")

        client.service.batcher.answer = answer
        found = client.post("/tag", json=TEXT)
        lines = [json.loads(line) for line in client.written.getvalue().splitlines()]
    assert found.status_code == 500
    assert "secret" not in found.text
    failed = next(line for line in lines if line["event"] == "failed")
    assert failed["error"] == "RuntimeError"
    assert failed["id"] in found.json()["error"]
    assert "private" not in json.dumps(lines)


def test_what_needs_the_whole_model_is_a_503_without_a_path_if_its_folder_is_gone(folder, tmp_path, monkeypatch):
    from labelfield.serve.service import Service

    async def later(self, name):
        return None

    monkeypatch.setattr(Service, "_complete", later)
    shutil.copytree(folder, tmp_path / "topics")
    with serving({"topics": tmp_path / "topics"}) as client:
        shutil.rmtree(tmp_path / "topics")
        assert client.post("/tag", json=TEXT).status_code == 200
        asked = [client.post("/tag", json=TEXT | more) for more in ({"explain": 1}, {"precision": 0.8})]
        for found in (*asked, client.get("/dashboard")):
            assert (found.status_code, found.headers["retry-after"]) == (503, "10")
            assert str(tmp_path) not in found.text
            assert "cannot be read" in found.json()["error"]
        assert str(tmp_path) in client.written.getvalue()


def test_metrics_are_those_that_operators_expect(folder):
    with serving({"topics": folder}) as client:
        client.post("/tag", json={"documents": ["a violin", "a boat"]})
        client.get("/nothing/here")
        for _ in range(200):  # a request is counted after its answer has been sent
            text = client.get("/metrics").text
            if 'code="404",route="other"' in text and 'code="200",route="/tag"' in text:
                break
            threading.Event().wait(0.01)
    assert 'labelfield_requests_total{code="200",route="/tag"} 1.0' in text
    assert 'labelfield_requests_total{code="404",route="other"} 1.0' in text
    assert 'labelfield_request_duration_seconds_count{route="/tag"} 1.0' in text
    assert "labelfield_batch_size_sum 2.0" in text
    assert "labelfield_queue_length 0.0" in text
    assert 'labelfield_documents_total{model="topics"} 2.0' in text
    assert "labelfield_model_info{" in text
    assert "violin" not in text
    assert "music" not in text


def test_readiness_waits_for_the_models(folder, monkeypatch):
    go = threading.Event()
    from labelfield.serve import store

    real = store.Served
    monkeypatch.setattr(store, "Served", lambda *given: (go.wait(5), real(*given))[1])
    monkeypatch.setattr("application.time.sleep", lambda _: None)
    with serving({"topics": folder}) as client:
        assert client.get("/healthz").status_code == 200
        assert client.get("/readyz").status_code == client.get("/v2/health/ready").status_code == 503
        early = client.post("/tag", json=TEXT)
        assert (early.status_code, early.headers["retry-after"]) == (503, "1")
        go.set()
        for _ in range(200):
            if client.get("/readyz").status_code == 200:
                break
            threading.Event().wait(0.01)
        assert client.get("/readyz").status_code == 200


def test_loading_what_explanations_need_holds_nobody_up(folder, monkeypatch):
    """A server tags from the light model; while the whole one is being loaded, tags do not wait for it."""
    go = threading.Event()
    from labelfield.serve import store

    class Slow(store.Served):
        def estimator(self):
            go.wait(10)
            return super().estimator()

    monkeypatch.setattr(store, "Served", Slow)
    with serving({"topics": folder}) as client, ThreadPoolExecutor(1) as pool:
        explained = pool.submit(client.post, "/tag", json=TEXT | {"explain": 1})
        time.sleep(0.1)
        assert client.post("/tag", json=TEXT).status_code == 200
        assert not explained.done()
        go.set()
        assert explained.result().json()["results"][0]["explanation"]
