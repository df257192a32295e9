"""A real server on loopback: real clients, slow ones, too many of them, and signals."""

import json
import os
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from application import serving
from test_commands import message, run

from labelfield.serve.corrections import Corrections
from labelfield.serve.server import _why_unusable as why_unusable

TEXT = "A violin concert with the orchestra near the harbour"
OPTIONS = ("--port=0", "--timeout=2", "--connections=100", "--device=cpu")


class Process:
    """A server process: its address, and what it logged so far."""

    def __init__(self, *arguments):
        command = [sys.executable, "-m", "labelfield", "serve", *map(str, arguments)]
        self.process = subprocess.Popen(
            command, stderr=subprocess.PIPE, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"}
        )
        self.lines = []
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()
        try:
            self.url = self.wait_for("listening")["url"]
            self.wait_for("ready")
        except AssertionError:
            self.close()
            raise

    def _read(self):
        for line in self.process.stderr:
            self.lines.append(json.loads(line) if line.startswith("{") else {"event": line})

    def wait_for(self, event, after=0, seconds=30):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            found = [line for line in self.lines[after:] if line["event"] == event]
            if found:
                return found[0]
            time.sleep(0.01)
        raise AssertionError(f"no {event} in {self.lines}")

    def get(self, path):
        with urllib.request.urlopen(self.url + path, timeout=10) as answer:
            return json.load(answer)

    @contextmanager
    def connect(self, n=1):
        """Yield open connections, and close them."""
        address = urlsplit(self.url)
        with ExitStack() as stack:
            where = address.hostname, address.port
            yield [stack.enter_context(socket.create_connection(where, timeout=10)) for _ in range(n)]

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.reader.join()
        self.process.stderr.close()


@pytest.fixture(scope="module")
def server(folder, tmp_path_factory):
    own = tmp_path_factory.mktemp("process") / "topics"
    shutil.copytree(folder, own)
    found = Process(f"topics={own}", *OPTIONS)
    found.folder = own
    yield found
    found.close()


def expected(server):
    return json.loads(
        subprocess.run(
            ["curl", "-sS", f"{server.url}tag", "-d", json.dumps({"text": TEXT, "k": 3})],
            capture_output=True,
            check=True,
        ).stdout
    )["results"][0]["tags"]


def test_annif_client_and_curl_agree(server):
    from annif_client import AnnifClient

    tags = expected(server)
    client = AnnifClient(f"{server.url}v1/")
    assert client.api_info["title"] == "labelfield"
    assert [project["project_id"] for project in client.projects] == ["topics"]
    assert client.get_project("topics")["is_trained"] is True
    found = client.suggest("topics", TEXT, limit=3, threshold=0)
    assert [(one["label"], one["uri"], one["score"]) for one in found] == [
        (tag["label"], tag["uri"], tag["probability"]) for tag in tags
    ]
    batch = client.suggest_batch("topics", [{"text": TEXT, "document_id": "a"}], limit=3)
    assert batch == [{"document_id": "a", "results": found}]
    with pytest.raises(ValueError, match="there is no model 'other'"):
        client.get_project("other")
    done = client.learn("topics", [{"text": "wool and yarn", "subjects": [{"uri": found[0]["uri"]}]}])
    assert done.status_code == 204
    kept = server.get("corrections?model=topics")["corrections"]
    assert (kept[0]["labels"], kept[0]["document"]["text"]) == ([found[0]["label"]], "wool and yarn")


def test_a_body_of_100_mb_is_refused_and_costs_nothing(server, tmp_path):
    with open(tmp_path / "large", "wb") as file:
        file.truncate(100 << 20)
    command = [
        "curl",
        "-sS",
        "-o",
        "-",
        "-w",
        "%{http_code}",
        f"{server.url}tag",
        "--data-binary",
        f"@{tmp_path / 'large'}",
    ]
    for header in ([], ["-H", "Expect:"]):
        done = subprocess.run([*command, *header], capture_output=True, text=True, check=True)
        assert done.stdout.endswith("413"), done.stdout
        assert "larger than 20,971,520 bytes" in done.stdout
    status = Path(f"/proc/{server.process.pid}/status")
    if status.exists():
        held = dict(line.split(":") for line in status.read_text().splitlines())
        peak, now = (int(held[name].split()[0]) for name in ("VmHWM", "VmRSS"))
        assert peak - now < 60 << 10  # kB: a body is never held as a whole


def answer_of(connection):
    """Read until the other side closes, or a whole answer is there."""
    found = b""
    while part := connection.recv(10_000):
        found += part
        head, _, body = found.partition(b"\r\n\r\n")
        length = next((line for line in head.lower().splitlines() if line.startswith(b"content-length:")), None)
        if length is not None and len(body) >= int(length.split(b":")[1]):
            break
    return found


def test_slow_senders_are_told_and_do_not_hold_others_up(server):
    with server.connect(3) as (head, body, silent):
        head.sendall(b"POST /tag HTTP/1.1\r\nHost: localhost\r\n")
        body.sendall(b"POST /tag HTTP/1.1\r\nHost: localhost\r\nContent-Length: 50\r\n\r\n{")
        assert expected(server)
        for connection in (head, body):
            answer = answer_of(connection)
            assert b" 408 " in answer.splitlines()[0]
            assert b"did not arrive" in answer
        assert answer_of(silent) == b""  # closed without a word


def test_who_takes_nothing_of_a_long_answer_is_left_and_who_takes_it_slowly_is_not(server):
    n_asked = 2000
    with server.connect(2) as (deaf, slow):
        for one in (deaf, slow):
            one.sendall(b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n" * n_asked)
        first = b""
        for _ in range(20):  # twice as long as the server waits
            first += slow.recv(1 << 20)
            time.sleep(0.2)
        server.get("healthz")
        taken = {"deaf": b"", "slow": first}
        for name, one in (("deaf", deaf), ("slow", slow)):
            with suppress(ConnectionError):
                while taken[name].count(b"HTTP/1.1 200") < n_asked and (part := one.recv(1 << 20)):
                    taken[name] += part
    counts = {name: content.count(b"HTTP/1.1 200") for name, content in taken.items()}
    assert counts["deaf"] < n_asked == counts["slow"]


def test_too_many_connections_get_a_503_and_others_go_on(server):
    with server.connect(150) as connections:
        answers = [answer_of(connection) for connection in connections[100:]]
        assert all(b" 503 " in answer and b"retry-after: 1" in answer for answer in answers)
        connections[0].sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert b" 200 " in answer_of(connections[0])
    time.sleep(0.2)
    assert expected(server)


def test_nonsense_instead_of_http_is_refused(server):
    with server.connect() as (connection,):
        connection.sendall(b"\x00\x01 nonsense\r\n\r\n")
        assert b" 400 " in answer_of(connection)
    assert expected(server)


def request_of(body=b"", *, length=None, more=(), path="tag"):
    lines = [f"POST /{path} HTTP/1.1", "Host: localhost", *more]
    lines += [] if length is False else [f"Content-Length: {len(body) if length is None else length}"]
    return "\r\n".join((*lines, "", "")).encode() + body


def all_of(connection):
    """Read until the other side closes; return all status codes and everything."""
    found = b""
    with suppress(ConnectionResetError):
        while part := connection.recv(100_000):
            found += part
    return [int(code) for code in re.findall(rb"HTTP/1\.1 (\d+)", found)], found


CHUNKED = ("Transfer-Encoding: chunked",)
REFUSED = {
    "no HTTP": (b"\x00 nonsense\r\n\r\n", 400),
    "no length": (request_of(length="many"), 400),
    "no chunk": (request_of(b"violin\r\n", length=False, more=CHUNKED), 400),
    "a long head": (b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 200_000, 431),
    "a slow head": (b"GET / HTTP/1.1\r\nHost: localhost\r\n", 408),
    "a slow body": (request_of(b"{", length=50), 408),
    "a large body": (request_of(length=30 << 20, more=("Expect: 100-continue",)), 413),
}


@pytest.mark.parametrize("refused", REFUSED)
def test_answers_come_in_the_order_of_the_requests(server, refused):
    """A refusal waits for the answers to the requests that came before it on a connection."""
    text = {"documents": [TEXT] * 100, "k": 3, "explain": 3}
    sent, status = REFUSED[refused]
    with server.connect() as (connection,), suppress(ConnectionResetError):
        connection.sendall(request_of(json.dumps(text).encode()) + request_of(b"{") + sent)
        codes, found = all_of(connection)
    assert codes == [200, 400, status]
    assert list(json.loads(found.splitlines()[-1])) == ["error"]


def test_who_says_no_more_is_answered(server):
    """As `nc -N` does it; a body that is cut off gets no answer."""
    body = json.dumps({"documents": [TEXT] * 20, "explain": 1}).encode()
    with server.connect() as (connection,):
        connection.sendall(request_of(body) + request_of(body) + request_of(b"{", length=50))
        connection.shutdown(socket.SHUT_WR)
        codes, found = all_of(connection)
    assert codes == [200, 200]
    assert found.endswith(b"}")


def test_an_answer_to_head_is_a_head(server):
    with server.connect() as (connection,):
        connection.sendall(b"HEAD /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        codes, found = all_of(connection)
    assert (codes, found[-4:]) == ([200], b"\r\n\r\n")


def test_an_offer_of_another_protocol_is_not_taken(server):
    """Java's client makes one with every request; a parser that expects another protocol after it reads no body."""
    body = json.dumps({"text": TEXT, "k": 3}).encode()
    seen, tags = len(server.lines), expected(server)
    with server.connect() as (connection,):
        for offer in ("h2c", "websocket"):
            offered = request_of(body, more=("Connection: Upgrade, HTTP2-Settings", f"Upgrade: {offer}"))
            connection.sendall(offered + request_of(body))
            for _ in range(2):
                head, _, rest = answer_of(connection).partition(b"\r\n\r\n")
                assert b" 200 " in head.splitlines()[0]
                assert json.loads(rest)["results"][0]["tags"] == tags
    time.sleep(0.1)  # the log waits a little
    assert {line["event"] for line in server.lines[seen:]} == {"request"}


def test_a_head_without_an_end_is_refused_and_a_long_body_is_not_a_head(server):
    with server.connect(2) as (endless, long):
        endless.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nX: ")
        with suppress(OSError):  # it may be closed before all is sent
            for _ in range(100):
                endless.sendall(b"a" * 10_000)
                time.sleep(0.001)
        assert b" 431 " in answer_of(endless)
        body = json.dumps({"text": "violin " * 100_000}).encode()
        head = f"POST /tag HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n".encode()
        for _ in range(2):
            long.sendall(head + body)
            assert b" 200 " in answer_of(long)
    assert expected(server)


def test_hangup_loads_again_and_a_broken_folder_changes_nothing(server):
    before, seen = expected(server), len(server.lines)
    server.process.send_signal(signal.SIGHUP)
    server.wait_for("reloaded", seen)
    (server.folder / "config.json").rename(server.folder / "hidden")
    server.process.send_signal(signal.SIGHUP)
    server.wait_for("reload failed", seen)
    (server.folder / "hidden").rename(server.folder / "config.json")
    assert expected(server) == before


def test_nothing_private_was_logged(server):
    assert "violin" not in json.dumps(server.lines)


def test_termination_answers_what_is_under_way(server):
    """A request whose body is half sent when the signal comes is answered; new connections are not taken."""
    body = json.dumps({"text": TEXT}).encode()
    with server.connect() as (late,):
        late.sendall(b"POST /tag HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body[:5]))
        time.sleep(0.2)
        server.process.send_signal(signal.SIGTERM)
        server.wait_for("stopping")
        time.sleep(0.3)
        with pytest.raises(OSError):
            server.get("healthz")
        late.sendall(body[5:])
        answer = answer_of(late)
    assert b" 200 " in answer.splitlines()[0]
    assert b'"label"' in answer
    assert server.process.wait(20) == 0
    assert server.lines[-1]["event"] == "stopped"


@pytest.mark.slow
def test_ten_thousand_open_connections_leave_room_for_those_that_ask(folder):
    resource = pytest.importorskip("resource", reason="this system has no limits to raise")
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most < 10_500:
        pytest.skip(f"a process may have {most} open files here; 10,500 are needed")
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    server = Process(f"topics={folder}", "--port=0", "--timeout=30", "--connections=20000", "--device=cpu")
    try:
        started = time.monotonic()
        with server.connect(10_000) as idle:
            body = json.dumps({"text": TEXT}).encode()
            for _ in range(20):
                with urllib.request.urlopen(server.url + "tag", body, timeout=10) as answer:
                    assert answer.status == 200
            for one in idle[-20:]:  # the last ones, since those that say nothing for ten seconds are closed
                one.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
                assert b" 200 " in one.recv(1000).splitlines()[0]
        assert time.monotonic() - started < 60
        assert server.get("healthz") == {"status": "alive"}
        assert all(line.get("status", 200) < 500 for line in server.lines)
    finally:
        server.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.slow
def test_workers_share_a_port_and_end_together(folder):
    server = Process(folder, *OPTIONS, "--workers", 2)
    try:
        for _ in range(50):
            expected(server)
        with urllib.request.urlopen(f"{server.url}metrics") as answer:
            assert b'labelfield_requests_total{code="200",route="/tag"} 50.0' in answer.read()
        seen = len(server.lines)
        server.process.send_signal(signal.SIGHUP)
        end = time.monotonic() + 20
        while sum(line["event"] == "reloaded" for line in server.lines[seen:]) < 2:
            assert time.monotonic() < end, server.lines[seen:]
            time.sleep(0.05)
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(20) == 0
    finally:
        server.close()


@pytest.mark.slow
def test_the_queues_of_all_workers_are_counted(folder):
    server = Process(folder, *OPTIONS, "--timeout", 20, "--workers", 2, "--batch-size", 1)

    def waiting():
        with urllib.request.urlopen(f"{server.url}metrics", timeout=10) as answer:
            (found,) = re.findall(rb"^labelfield_queue_length (\S+)$", answer.read(), re.MULTILINE)
        return float(found)

    try:
        body = json.dumps({"documents": [TEXT] * 1000, "explain": 5}).encode()
        with server.connect() as (connection,):
            connection.sendall(request_of(body))
            seen = []
            while not select.select([connection], [], [], 0)[0]:
                seen.append((waiting(), server.get("dashboard")["queue"]["waiting"]))
            assert answer_of(connection).startswith(b"HTTP/1.1 200")
        # Some were asked of the other worker, which has nothing to do.
        assert any(0 < total < 1000 and own == 0 for total, own in seen)
        assert waiting() == 0
    finally:
        server.close()


@pytest.mark.slow
def test_a_learning_is_done_when_all_workers_answer_by_its_model(folder, documents, tmp_path):
    own = shutil.copytree(folder, tmp_path / "topics")
    given = zip(*documents, strict=True)
    lines = [json.dumps({"title": title, "text": text, "labels": labels}) for (title, text), labels in given]
    (tmp_path / "kept.jsonl").write_text("\n".join(lines[:150]))
    server = Process(own, *OPTIONS, "--timeout", 20, "--workers", 2, "--data", tmp_path / "kept.jsonl")

    def post(path, body):
        with urllib.request.urlopen(server.url + path, json.dumps(body).encode(), timeout=30) as answer:
            return json.load(answer)

    def versions():
        return {server.get("models")["models"][0]["version"] for _ in range(30)}

    try:
        before = versions()
        post("corrections", {"document": "wool and yarn", "labels": ["knitting"]})
        post("learn", {})
        while (last := server.get("learn")["learning"])["state"] == "running":
            time.sleep(0.02)
        assert last["state"] == "done"
        assert versions() == {last["version"]} != before
        post("learn/undo", {})
        assert versions() == before
    finally:
        server.close()


def test_a_server_that_cannot_write_corrections_says_so_and_tags(folder, tmp_path):
    server = Process(folder, *OPTIONS, "--corrections", tmp_path / "gone" / "c.sqlite")
    try:
        said = server.wait_for("corrections are not kept")
        assert said["level"] == "warning"
        assert "pass --corrections FILE" in said["message"]
        assert server.get("corrections")["kept"] is False
        assert expected(server)
    finally:
        server.close()


@pytest.mark.parametrize("content", [b"violin\n", b"notes about many things\n" * 100, None])
def test_a_file_that_has_no_corrections_is_left_as_it_is(tmp_path, content):
    file = tmp_path / "notes.txt"
    file.mkdir() if content is None else file.write_bytes(content)
    assert why_unusable(file, ["m"]) == (
        "is not a file" if content is None else "cannot be used as a file of corrections (file is not a database)"
    )
    assert list(tmp_path.iterdir()) == [file]
    assert content is None or file.read_bytes() == content


def test_a_server_whose_lock_cannot_be_opened_keeps_no_corrections(folder, tmp_path):
    """As after a learning of another user, whose server was killed."""
    kept = Corrections(tmp_path / "c.sqlite")
    kept.add("m", None, "page", [(None, {"text": "a"}, [], ["x"])])
    number, _ = kept.begin_learning("m")
    lock = tmp_path / "c.sqlite.m.lock"
    lock.unlink()
    lock.mkdir()
    server = Process(f"m={folder}", *OPTIONS, "--corrections", kept.path)
    try:
        said = server.wait_for("corrections are not kept")["message"]
        assert f"{lock} cannot be locked: Is a directory" in said
        assert expected(server)
    finally:
        server.close()
        kept.set_learning(number, "failed", 0.0)


@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_hangup_while_models_load_is_answered_later(folder, workers):
    command = [sys.executable, "-m", "labelfield", "serve", str(folder), *OPTIONS, f"--workers={workers}"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert json.loads(process.stderr.readline())["event"] == "listening"
            time.sleep(0.2)
            process.send_signal(signal.SIGHUP)
            events = [json.loads(process.stderr.readline())["event"] for _ in range(3 * workers)]
            assert sorted(events) == sorted(["loaded", "ready", "reloaded"] * workers)
        finally:
            process.terminate()
        process.stderr.read()
        assert process.wait(20) == 0


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["nowhere"], 3, "the model 'nowhere' is not there"),
        (["a=x", "a=y"], 3, "two models named 'a'"),
        (["../=x"], 3, "the model name '../'"),
        (["FOLDER", "--max-body", "lots"], 3, "the size 'lots'"),
        (["FOLDER", "--token-env", "NOT_SET_ANYWHERE"], 2, "there is no such variable"),
        (["FOLDER", "--token", " "], 2, "the token is empty"),
        (["FOLDER", "--data", "nowhere.csv"], 2, "there is no such file or folder"),
        (["FOLDER", "--cors-origin", "name.example"], 2, "such as https://name.example"),
        (["FOLDER", "--cors-origin", "https://name.example/page"], 2, "such as https://name.example"),
        (["FOLDER", "--port", "PORT"], 3, "cannot listen at 127.0.0.1"),
    ],
)
def test_wrong_usage_is_one_line(folder, arguments, code, said):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        names = {"FOLDER": folder, "PORT": taken.getsockname()[1]}
        assert said in message(run("serve", *(names.get(one, one) for one in arguments), check=code))


def test_only_loopback_goes_without_a_warning(folder, capsys):
    from labelfield.serve.log import Log
    from labelfield.serve.server import _say_address
    from labelfield.serve.settings import Settings

    with socket.create_server(("127.0.0.1", 0)) as listening:
        _say_address(Settings({"a": folder}), listening, Log())
        assert "warning" not in capsys.readouterr().err
        _say_address(Settings({"a": folder}, host="0.0.0.0"), listening, Log())
        said = capsys.readouterr().err
    assert '"level": "warning"' in said
    assert "without a token" in said


def test_a_model_that_does_not_load_ends_the_server(folder, tmp_path):
    shutil.copytree(folder, tmp_path / "bad")
    (tmp_path / "bad" / "labels.txt").write_text("x\n")
    with serving({"bad": tmp_path / "bad"}) as client:
        assert client.service.failure is not None
        assert client.get("/readyz").status_code == 503
