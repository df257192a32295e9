"""Messages of commands that no other test asks for."""

import json
import sys

import numpy as np
import pytest
from test_commands import message, run

import labelfield
from labelfield.cli.main import run_command

FAST = ("--method", "linear", "--set", "row_transform=unit", "--set", "cost=1.0", "--device=cpu")


@pytest.fixture(scope="module")
def room(tmp_path_factory):
    """Rows, documents and a model of each."""
    folder = tmp_path_factory.mktemp("messages")
    labelfield.write(labelfield.synth.make_multilabel(120, 20, 4, seed=0), folder / "rows.txt")
    lines = [{"text": f"{'cat' if i % 2 else 'tea'} {i % 7}", "labels": ["ab"[i % 2]]} for i in range(60)]
    (folder / "docs.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    run("train", folder / "rows.txt", "--out", folder / "rows", *FAST)
    run("train", folder / "docs.jsonl", "--out", folder / "docs", *FAST)
    rng = np.random.default_rng(0)
    X, y = rng.random((60, 4)), np.arange(60) % 3
    (folder / "classes.csv").write_text("".join(f"{','.join(map(str, x))},c{c}\n" for x, c in zip(X, y, strict=True)))
    run("train", folder / "classes.csv", "--out", folder / "classes", *FAST)
    return folder


@pytest.mark.parametrize(
    ("command", "code", "words"),
    [
        ("train rows.txt --out new --encoder wordllama", 2, "is for documents"),
        ("train docs.jsonl --out new --encoder words,,", 2, "--encoder words,,; expected"),
        ("learn rows rows.txt", 2, "was trained on rows, not on documents"),
        ("report classes classes.csv --out r.html --rank-by propensity", 2, "is for several labels per row"),
        ("check rows rows.txt --precision 2", 2, "precision"),
        ("check rows few.txt", 3, "few.txt: 2 rows; expected"),
        ("tag docs two.csv --text title,text", 3, "expected fields text as in training"),
        ("evaluate scores.txt few.txt --train rows.txt", 3, "4 labels; expected 2, as in"),
    ],
)
def test_messages(room, monkeypatch, command, code, words):
    monkeypatch.chdir(room)
    (room / "two.csv").write_text("title,text\na,b\n")
    (room / "few.txt").write_text("2 20 2\n0 1:1\n1 2:1\n")
    (room / "scores.txt").write_text("0:1\n1:1\n")
    done = run(*command.split(), check=code)
    assert words in message(done), message(done)


def test_serving_without_its_packages(room, monkeypatch):
    monkeypatch.setitem(sys.modules, "labelfield.serve.server", None)
    assert "pip install 'labelfield[serve]'" in message(run("serve", room / "docs", check=2))


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (KeyboardInterrupt(), 130, "interrupted"),
        (MemoryError(), 1, "error: out of memory"),
        (RuntimeError("[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: not enough memory"), 1, "out of memory"),
        (ImportError("a.so: failed to map segment from shared object"), 1, "error: out of memory"),
        (RuntimeError("can't start new thread"), 1, "error: out of memory"),
    ],
)
def test_memory_and_interruptions_outside_of_commands(capsys, error, code, words):
    def fails():
        raise error

    with pytest.raises(SystemExit) as stop:
        run_command(fails)
    assert (stop.value.code, capsys.readouterr().err.strip().endswith(words)) == (code, True)


def test_errors_that_nobody_expects_are_shown_whole():
    def fails():
        raise RuntimeError("a mistake of ours")

    with pytest.raises(RuntimeError, match="a mistake of ours"):
        run_command(fails)
