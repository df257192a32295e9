"""Corrections, learning from them, undoing both, and the dashboard."""

import asyncio
import csv
import errno
import json
import shutil
import sqlite3
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
from application import serving
from test_commands import run

from labelfield.errors import DataError
from labelfield.serve.corrections import Corrections
from labelfield.serve.learning import write_corrections
from labelfield.serve.store import read_version

FAST = ("--method", "linear", "--set", "row_transform=unit", "--set", "cost=1.0", "--device=cpu")


@pytest.fixture(scope="module")
def taught(documents, tmp_path_factory):
    """The folder of a model that keeps its documents."""
    path = tmp_path_factory.mktemp("taught")
    with open(path / "docs.csv", "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "title", "text", "labels"])
        for place, ((title, text), own) in enumerate(zip(*documents, strict=True)):
            if place < 150:
                writer.writerow([place, title, text, "|".join(own)])
    run("train", path / "docs.csv", "--out", path / "topics", *FAST)
    return path / "topics"


@pytest.fixture
def learning(taught, tmp_path):
    """A client of a model that keeps its documents."""
    shutil.copytree(taught, tmp_path / "topics")
    with serving({"topics": tmp_path / "topics"}, corrections=tmp_path / "c.sqlite") as client:
        yield client


def wait(client):
    for _ in range(1500):
        found = client.get("/learn").json()["learning"]
        if found["state"] != "running":
            return found
        time.sleep(0.02)
    raise AssertionError(found)


def wait_until(condition):
    for _ in range(1500):
        if condition():
            return
        time.sleep(0.02)
    raise AssertionError(condition)


def best(client, text):
    return client.post("/tag", json={"text": text, "k": 1}).json()["results"][0]["tags"][0]["label"]


def test_corrections_are_learned_and_undone(learning):
    client, wool = learning, "the wool and the yarn for knitting"
    before, was = client.get("/models").json()["models"][0]["version"], best(learning, wool)
    assert client.post("/learn", json={}).status_code == 409  # nothing to learn
    for place in range(12):
        body = {"document": {"title": "", "text": f"{wool} {place}"}, "labels": ["knitting"], "predicted": []}
        assert client.post("/corrections", json=body).json()["new"] == place + 1
    begun = client.post("/learn", json={})
    assert (begun.status_code, begun.json()["documents"]) == (200, 12)
    assert client.post("/learn", json={}).status_code == 409  # already under way
    done = wait(client)
    assert (done["state"], done["progress"]) == ("done", 1), done
    assert best(client, wool) == "knitting"
    assert client.get("/corrections").json()["new"] == 0
    assert client.delete("/corrections/1").status_code == 404  # learned already
    after = client.get("/models").json()["models"][0]["version"]
    undone = client.post("/learn/undo", json={}).json()
    assert undone["version"] == before != after
    assert best(client, wool) == was != "knitting"
    assert client.get("/corrections").json()["new"] == 12
    assert client.post("/learn/undo", json={}).status_code == 409
    assert client.delete("/corrections/1").json() == {"removed": 1}
    assert client.get("/corrections").json()["new"] == 11


def test_what_was_undone_never_comes_back(learning):
    """Two learnings, undone twice: one step back is kept, and the second must not bring the later model back."""
    client = learning
    learned(client)
    once = versions(client)
    learned(client)
    assert client.get("/learn").json()["can_undo"]
    with ThreadPoolExecutor(2) as together:  # as an impatient person clicks
        tries = [together.submit(client.post, "/learn/undo", json={}) for _ in range(2)]
    assert sorted(one.result().status_code for one in tries) == [200, 409]
    assert client.post("/learn/undo", json={}).status_code == 409
    assert versions(client) == once
    found = client.get("/learn").json()
    assert (found["learning"]["number"], found["can_undo"], found["new"], found["all"]) == (1, False, 1, 2)


def test_a_folder_that_cannot_be_written_is_said_without_its_path(learning, monkeypatch):
    def denied(folder, ours):
        raise OSError(errno.EROFS, "Read-only file system", f"{folder.parent}/.labelfield-x")

    monkeypatch.setattr("labelfield.serve.learning.replacing_folder", denied)
    found = learned(learning)
    assert (found["state"], found["message"]) == ("failed", "Read-only file system")


def test_documents_that_come_together_are_stored_all_or_none(learning):
    """So that who is told of a failure can send them again."""
    client, path = learning, learning.service.corrections.path
    learn, documents = "/v1/projects/topics/learn", [{"text": one, "subjects": []} for one in ("a", "b", "full")]
    assert client.post(learn, json=documents[:2]).status_code == 204
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(
            "CREATE TRIGGER full BEFORE INSERT ON correction WHEN NEW.document LIKE '%full%' "
            "BEGIN SELECT RAISE(ABORT, 'database or disk is full'); END"
        )
    assert client.post(learn, json=documents).status_code == 503
    assert client.get("/corrections").json()["all"] == 2


@pytest.fixture
def fails(learning, monkeypatch):
    """The client, where `labelfield learn` takes long until something ends it: it fails, and leaves a checkpoint."""
    from labelfield.models.artifact import LEARNING
    from labelfield.serve import learning as module

    real, left = module.asyncio.create_subprocess_exec, []

    async def start(*command, **options):
        left.append(Path(command[4]) / LEARNING)
        script = f"import time; open({str(left[0])!r}, 'w').close(); print('progress 0.5', flush=True)"
        return await real(command[0], "-c", f"import sys; sys.stdout = sys.stderr; {script}; time.sleep(60)", **options)

    monkeypatch.setattr(module.asyncio, "create_subprocess_exec", start)
    learning.post("/corrections", json={"document": "x", "labels": ["music"]})
    assert learning.post("/learn", json={}).status_code == 200
    for _ in range(500):
        if learning.get("/learn").json()["learning"]["progress"]:
            break
        time.sleep(0.01)
    assert left[0].exists()
    return learning, left[0]


def test_a_learning_that_fails_leaves_no_checkpoint(fails):
    client, left = fails
    (process,) = client.service.learner.processes.values()
    process.kill()
    assert wait(client)["state"] == "failed"
    assert not left.exists()
    assert client.get("/learn").json()["new"] == 1
    folder = client.service.store.find().folder
    assert not [path for path in folder.parent.iterdir() if path.is_dir() and path != folder]


def test_a_learning_that_a_stop_ends_has_failed_and_leaves_no_checkpoint(fails):
    client, left = fails
    client.portal.call(client.service.learner.stop)
    found = client.get("/learn").json()
    assert (found["learning"]["state"], found["new"]) == ("failed", 1)
    assert found["learning"]["message"] == "the server ended before it was done"
    assert not left.exists()


def learned(client):
    """Learn from one correction; return how that ended."""
    client.post("/corrections", json={"document": "the wool and the yarn", "labels": ["knitting"]})
    assert client.post("/learn", json={}).status_code == 200
    return wait(client)


def versions(client):
    """Return the version that answers, and the one that is in the folder."""
    served = client.service.store.find()
    return served.version, read_version(served.folder)[0]


def put(source, target):
    shutil.rmtree(target)
    shutil.copytree(source, target)


def fails_to_load(name):
    raise DataError("no room")


def test_a_learning_whose_model_does_not_load_has_failed_and_left_nothing(learning, monkeypatch):
    client, before = learning, versions(learning)
    with monkeypatch.context() as broken:
        broken.setattr(client.service.store, "reload", fails_to_load)
        found = learned(client)
    assert found["state"] == "failed"
    assert "could not be loaded again" in found["message"]
    assert versions(client) == before
    assert client.get("/corrections").json()["new"] == 1
    assert client.post("/learn", json={}).status_code == 200  # again


@pytest.mark.parametrize("moment", ["while it learns", "before it is loaded"])
def test_a_learning_that_another_model_comes_between_has_failed_and_that_model_stays(
    learning, folder, moment, monkeypatch
):
    client, own = learning, learning.service.store.find().folder
    owner, verb = (client.service.learner, "_learn") if moment == "while it learns" else (client.service, "reload")
    real = getattr(owner, verb)

    async def late(*given):
        put(folder, own)
        return await real(*given)

    monkeypatch.setattr(owner, verb, late)
    found = learned(client)
    assert (found["state"], "replaced by another one meanwhile" in found["message"]) == ("failed", True)
    assert read_version(own)[0] == read_version(folder)[0]
    assert client.get("/corrections").json()["new"] == 1


def test_a_learning_is_undone_only_where_its_model_answers(learning, folder, tmp_path, monkeypatch):
    client, own = learning, learning.service.store.find().folder
    before = versions(client)
    assert learned(client)["state"] == "done"
    after = versions(client)
    with monkeypatch.context() as broken:
        broken.setattr(client.service.store, "reload", fails_to_load)
        assert client.post("/learn/undo", json={}).status_code == 503
    assert versions(client) == after
    assert client.get("/learn").json()["learning"]["state"] == "done"
    shutil.copytree(own, tmp_path / "learned")
    put(folder, own)
    refused = client.post("/learn/undo", json={})
    assert (refused.status_code, "was replaced since it learned" in refused.text) == (409, True)
    assert read_version(own)[0] == read_version(folder)[0]
    put(tmp_path / "learned", own)
    assert client.post("/learn/undo", json={}).status_code == 200
    assert versions(client) == before


def test_a_learning_is_done_if_its_model_is_in_the_folder_though_its_server_was_killed(tmp_path):
    kept = Corrections(tmp_path / "c.sqlite")
    for version, state in (("its own", "done"), ("another", "failed")):
        kept.add("m", None, "page", [(None, {"text": "a"}, [], ["x"])])
        number, _ = kept.begin_learning("m")
        kept.set_version(number, "its own")
        kept._locks.pop(number).close()
        assert Corrections(kept.path, lambda model, found=version: found).last_learning("m")["state"] == state


def test_a_file_of_corrections_of_an_older_server_is_read(tmp_path):
    kept = Corrections(tmp_path / "c.sqlite")
    kept.add("m", None, "page", [(None, {"text": "a"}, [], ["x"])])
    with kept._open() as connection:
        connection.execute("ALTER TABLE learning DROP COLUMN version")
    number, _ = kept.begin_learning("m")
    kept.set_learning(number, "done", 1.0)
    assert kept.last_learning("m")["version"] is None


def test_a_learning_goes_on_as_long_as_the_process_that_writes_the_model(fails):
    """Even if the server was killed, which gives back only what it holds itself."""
    kept = fails[0].service.corrections
    for lock in kept._locks.values():
        lock.close()
    other = Corrections(kept.path)
    assert other.last_learning("topics")["state"] == "running"
    assert other.begin_learning("topics") is None
    (process,) = fails[0].service.learner.processes.values()
    process.kill()
    assert wait(fails[0])["state"] == "failed"
    number, _ = other.begin_learning("topics")
    other.set_learning(number, "failed", 0.0)


def test_a_progress_that_cannot_be_stored_ends_no_learning_and_an_end_gives_the_right_back(fails, monkeypatch):
    client, _ = fails
    kept = client.service.corrections

    def is_full(*given):
        raise sqlite3.OperationalError("database or disk is full")

    (process,), (task,) = client.service.learner.processes.values(), client.service.learner.tasks
    with monkeypatch.context() as broken:
        broken.setattr(kept, "_open", is_full)
        process.kill()
        wait_until(task.done)
    assert kept._locks == {}
    assert client.get("/learn").json()["learning"]["state"] == "failed"
    assert client.get("/learn").json()["new"] == 1


def test_learning_of_several_models_ends_with_the_server(folder, tmp_path, monkeypatch):
    real = asyncio.create_subprocess_exec

    async def start(*command, **options):
        return await real(command[0], "-c", "import time; time.sleep(60)", **options)

    models = {name: shutil.copytree(folder, tmp_path / name) for name in ("news", "books")}
    with serving(models, corrections=tmp_path / "c.sqlite") as client:
        monkeypatch.setattr("labelfield.serve.learning.asyncio.create_subprocess_exec", start)
        learner = client.service.learner
        for name in models:
            client.post("/corrections", json={"model": name, "document": "x", "labels": ["music"]})
            assert client.post("/learn", json={"model": name}).status_code == 200
        wait_until(lambda: len(learner.processes) == 2)
        processes = list(learner.processes.values())
    assert all(process.returncode is not None for process in processes)
    kept = Corrections(tmp_path / "c.sqlite")
    with kept._open() as connection:
        assert connection.execute("SELECT model, state, message FROM learning ORDER BY model").fetchall() == [
            (name, "failed", "the server ended before it was done") for name in ("books", "news")
        ]


@pytest.mark.slow
def test_a_learning_that_fails_keeps_the_model_and_shows_no_path(folder, tmp_path):
    """A model that does not keep its documents cannot learn without them."""
    shutil.copytree(folder, tmp_path / "topics")
    with serving({"topics": tmp_path / "topics"}, corrections=tmp_path / "c.sqlite") as client:
        before = client.get("/models").json()
        client.post("/corrections", json={"document": "x", "labels": ["music"]})
        assert client.post("/learn", json={}).status_code == 200
        found = wait(client)
        assert found["state"] == "failed"
        assert found["message"]
        assert str(tmp_path) not in json.dumps(client.get("/learn").json())
        assert client.get("/models").json() == before
        assert client.get("/corrections").json()["new"] == 1


def test_label_studio_tells_what_people_chose(client):
    config = [{"value": {"choices": ["music", "sailing"]}, "type": "choices"}]
    event = {
        "action": "ANNOTATION_CREATED",
        "task": {"id": 5, "data": {"text": "a song"}},
        "annotation": {"result": config},
    }
    assert client.post("/label-studio/webhook", json=event).json() == {"status": "stored"}
    event["action"] = "ANNOTATION_UPDATED"
    event["annotation"]["result"][0]["value"]["choices"] = ["music"]
    client.post("/label-studio/webhook", json=event)
    kept = [one for one in client.get("/corrections").json()["corrections"] if one["document_id"] == "label-studio-5"]
    assert [one["labels"] for one in kept] == [["music"]]  # the last word counts
    assert client.post("/webhook", json={"action": "PROJECT_UPDATED"}).json() == {"status": "ignored"}


@pytest.mark.parametrize(
    ("subject", "label"),
    [
        ({"uri": "http://x/9", "label": "what others call it"}, "music"),
        ({"uri": "http://elsewhere/1", "label": "music"}, "music"),
        ({"uri": "http://elsewhere/1", "label": "new"}, "http://elsewhere/1"),
        ({"label": "new"}, "new"),
    ],
)
def test_annif_tells_subjects_by_uri_or_by_a_label_that_the_model_knows(client, subject, label):
    document = {"text": "a song", "document_id": "annif-5", "subjects": [subject]}
    assert client.post("/v1/projects/topics/learn", json=[document]).status_code == 204
    kept = [one for one in client.get("/corrections").json()["corrections"] if one["document_id"] == "annif-5"]
    assert [one["labels"] for one in kept] == [[label]]


@pytest.mark.parametrize("is_told", [True, False])
def test_label_studio_tells_by_which_tag_people_chose(client, is_told):
    """Labels are those of the model where choices are other names of them, and other control tags have none."""
    from test_shapes import CONFIG

    chosen = {
        "mood": ("choices", ["glad"]),
        "some": ("choices", ["M"]),
        "tree": ("taxonomy", [["music", "sailing"], ["A", "new"]]),
        "nested": ("choices", [["Arts", "music"]]),
    }
    results = [
        {"from_name": name, "to_name": "t", "type": kind, "value": {kind: value}}
        for name, (kind, value) in chosen.items()
    ]
    results.append({"from_name": "words", "type": "textarea", "value": {"text": ["a remark"]}})
    event = {
        "action": "ANNOTATION_CREATED",
        "task": {"id": f"told {is_told}", "data": {"other": "x", "body": "a song"}},
        "annotation": {"result": results},
        "project": {"id": 1, "label_config": CONFIG if is_told else None},
    }
    skipped = {**event, "annotation": {"result": [], "was_cancelled": True}}
    assert client.post("/label-studio/webhook", json=event).json() == {"status": "stored"}
    assert client.post("/label-studio/webhook", json=skipped).json() == {"status": "ignored"}
    kept = client.get("/corrections").json()["corrections"][0]
    assert kept["document_id"] == f"label-studio-told {is_told}"
    assert kept["labels"] == (["music", "sailing", "new"] if is_told else ["glad", "M", "sailing", "new", "music"])
    assert kept["document"]["text"] == ("a song" if is_told else "x")


def test_precision_by_month_counts_what_people_were_shown(tmp_path):
    kept = Corrections(tmp_path / "c.sqlite")
    kept.add("m", "v", "page", [(None, {"text": "a"}, [("x", 0.9), ("y", 0.6)], ["x", "z"])])
    kept.add("m", "v", "page", [(None, {"text": "b"}, [("x", 0.9)], ["x"])])
    kept.add("m", "v", "annif", [(None, {"text": "c"}, [], ["x"])])  # nobody was shown anything
    kept.add("other", "v", "page", [(None, {"text": "d"}, [("x", 0.9)], [])])
    (month,) = kept.precision_by_month("m")
    assert (month["documents"], month["tags"], month["right"]) == (2, 3, 2)
    assert month["precision"] == pytest.approx(2 / 3)


def test_corrections_survive_any_text(tmp_path):
    kept = Corrections(tmp_path / "c.sqlite")
    text = "NUL \0, quotes ' \" ; DROP TABLE correction; -- <script> 😀"
    number = kept.add("m", None, "page", [(None, {"text": text}, [], [text])])
    (found,) = kept.listed("m")
    assert (found.number, found.document["text"], found.labels) == (number, text, [text])
    write_corrections(tmp_path / "out.jsonl", [found])
    assert json.loads((tmp_path / "out.jsonl").read_text())["text"] == text


def test_a_file_that_cannot_be_used_is_a_503(folder, tmp_path):
    with serving({"topics": folder}, corrections=tmp_path / "gone" / "c.sqlite") as client:
        correction = {"document": "x", "labels": ["music"]}
        asked = [client.get(path) for path in ("/corrections", "/learn", "/dashboard")]
        asked += [client.post("/corrections", json=correction), client.post("/learn", json={})]
        for found in (*asked, client.delete("/corrections/1")):
            assert found.status_code == 503
            assert found.json()["error"] == "the file of corrections cannot be used; see the log"
        assert "unable to open database file" in client.written.getvalue()


def test_a_lock_that_cannot_be_had_is_a_503_and_not_a_learning_under_way(folder, tmp_path, monkeypatch):
    with serving({"topics": folder}, corrections=tmp_path / "c.sqlite") as client:
        client.post("/corrections", json={"document": "x", "labels": ["music"]})
        lock = tmp_path / "c.sqlite.topics.lock"
        lock.mkdir()
        assert client.post("/learn", json={}).status_code == 503
        assert f"{lock} cannot be locked: Is a directory" in client.written.getvalue()
        lock.rmdir()

        def has_no_locks(*given):
            raise OSError(errno.ENOLCK, "No locks available")

        monkeypatch.setattr("labelfield.serve.corrections.fcntl.flock", has_no_locks)
        assert client.post("/learn", json={}).status_code == 503
        assert f"{lock} cannot be locked: No locks available" in client.written.getvalue()


def test_what_a_server_left_running_has_failed(tmp_path):
    kept = Corrections(tmp_path / "c.sqlite")
    kept.add("m", None, "page", [(None, {"text": "a"}, [], ["x"])])
    begin = "import sys; from pathlib import Path; from labelfield.serve.corrections import Corrections; "
    begin += (
        "kept = Corrections(Path(sys.argv[1])); assert kept.begin_learning('m'); print(flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", begin, str(kept.path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        other.stdout.readline()
        assert kept.begin_learning("m") is None
        assert not kept.abandon("m")  # as a second server does that starts on the same file
        assert kept.last_learning("m")["state"] == "running"
    assert kept.last_learning("m")["state"] == "failed"
    assert kept.counts("m") == {"all": 1, "new": 1}
    number, _ = kept.begin_learning("m")
    kept.set_learning(number, "done", 1.0)
    kept.add("m", None, "page", [(None, {"text": "b"}, [], ["x"])])
    again, _ = kept.begin_learning("m")  # the right to learn was given back
    kept.set_learning(again, "failed", 0.0)


def test_a_learning_that_cannot_begin_gives_the_right_back(tmp_path, monkeypatch):
    kept = Corrections(tmp_path / "c.sqlite")
    kept.add("m", None, "page", [(None, {"text": "a"}, [], ["x"])])

    def fails(*given, **options):
        raise sqlite3.OperationalError("disk I/O error")

    for part in ("labelfield.serve.corrections._listed", "labelfield.serve.corrections.Corrections._end_running"):
        with monkeypatch.context() as broken:
            broken.setattr(part, fails)
            with pytest.raises(sqlite3.OperationalError):
                kept.begin_learning("m")
        assert Corrections(kept.path).abandon("m")
    assert kept.last_learning("m") is None
    number, (found,) = kept.begin_learning("m")
    assert (found.learning, found.labels) == (number, ["x"])
    kept.set_learning(number, "failed", 0.0)


def test_the_dashboard_shows_requests_drift_and_precision(client, documents):
    texts = [text for _, text in documents[0][:40]]
    for text in texts:
        client.post("/tag", json={"text": text})
    client.post("/tag", content=b"{")
    predicted = [{"label": "music", "probability": 0.9}]
    client.post("/corrections", json={"document": "a song", "predicted": predicted, "labels": ["music"]})
    found = client.get("/dashboard").json()
    assert found["last_hour"]["requests"] >= 41
    assert found["last_hour"]["refused"] >= 1
    assert 0 < found["last_hour"]["p50_ms"] <= found["last_hour"]["p99_ms"]
    assert sum(one["requests"] for one in found["last_hour"]["by_minute"]) == found["last_hour"]["requests"]
    assert found["precision_by_month"][-1]["precision"] == 1
    assert found["drift"]["is_new_kind"] is False
    for _ in range(150):
        client.post("/tag", json={"text": "completely unknown things"})
    assert client.get("/dashboard").json()["drift"]["is_new_kind"] is True


def test_without_a_file_corrections_are_refused(folder):
    with serving({"topics": folder}) as client:
        assert client.post("/corrections", json={"document": "x", "labels": []}).status_code == 409
        assert client.get("/corrections").json()["kept"] is False
        assert client.post("/learn", json={}).status_code == 409
