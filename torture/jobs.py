"""Small jobs of the command line, which trials kill, starve and interrupt; and what must be true of them afterwards."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import numpy as np

import labelfield.estimators  # before the first fork
from labelfield.cli.main import main

_TRAIN = ["--method", "mlgpf", "--seed", "0", "--device", "cpu", "--set", "max_epochs=6", "--set", "n_inducing=8"]


class Job(NamedTuple):
    """A command in a folder that `make` filled, the command that goes on after a kill, and what it leaves.

    `result` returns what is to be equal to that of an undisturbed run; `is_whole` says whether what an interrupted run
    left is usable: nothing at all, the old state, or the new one.
    """

    make: Callable[[Path], None]
    command: list[str]
    again: list[str]
    result: Callable[[Path], Any]
    is_whole: Callable[[Path], bool]


class Child:
    """A command in a process of its own, forked from this one, which has all modules in memory already."""

    def __init__(self, folder: Path, command: list[str], before: Callable[[], None] | None) -> None:
        self.said = tempfile.TemporaryFile("w+")  # noqa: SIM115  # closed by `wait`
        self.code: int | None = None
        self.pid = os.fork()
        if self.pid == 0:
            _run(folder, command, before, self.said.fileno())

    def is_running(self) -> bool:
        """Return whether the command has not ended."""
        if self.code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self.code = os.waitstatus_to_exitcode(status) if pid else None
        return self.code is None

    def send(self, number: int) -> None:
        """Send a signal, unless the command has ended."""
        if self.is_running():
            os.kill(self.pid, number)

    def wait(self) -> tuple[int, str]:
        """Return the exit code, negative for a signal, and what was said on stderr."""
        if self.code is None:
            self.code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        self.said.seek(0)
        text = self.said.read()
        self.said.close()
        return self.code, text


def _run(folder: Path, command: list[str], before: Callable[[], None] | None, said: int) -> NoReturn:
    """Run a command in a forked process, and end it."""
    code = 1
    try:
        signal.setitimer(signal.ITIMER_REAL, 0)
        os.chdir(folder)
        os.dup2(os.open(os.devnull, os.O_RDWR), 1)
        os.dup2(said, 2)
        sys.argv = ["labelfield", *command]
        if before is not None:
            before()
        main()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:  # as the interpreter would
        traceback.print_exc()
    finally:
        with contextlib.suppress(BaseException):
            sys.stderr.flush()
        os._exit(code)


def start(folder: Path, command: list[str], before: Callable[[], None] | None = None) -> Child:
    """Start a command in a folder, after something is done to its process."""
    return Child(folder, command, before)


def _make_rows(folder: Path) -> None:
    data = labelfield.synth.make_multilabel(300, 40, 6, seed=1)
    labelfield.write(data, folder / "rows.txt")


def _make_documents(folder: Path) -> None:
    lines = ["id,text,labels"]
    for i in range(80):
        words, label = ("cats sleep long", "animals") if i % 2 else ("green tea brews", "food")
        lines.append(f"{i},{words} {i % 7},{label}")
    (folder / "documents.csv").write_text("\n".join(lines) + "\n")
    (folder / "more.csv").write_text("id,text,labels\n3,dogs run fast,sport\n900,tea and cats,food|animals\n")


def _make_tagger(folder: Path) -> None:
    _make_documents(folder)
    command = ["train", "documents.csv", "--out", "model", "--method", "linear", "--seed", "0"]
    assert start(folder, command).wait()[0] == 0


def arrays(path: Path) -> dict[str, bytes]:
    """Return the arrays of a model by name."""
    from safetensors.numpy import load_file

    return {
        name: np.ascontiguousarray(array).tobytes() for name, array in load_file(path / "arrays.safetensors").items()
    }


def _model(folder: Path) -> Any:
    return arrays(folder / "model")


def _loads(folder: Path, *, may_be_missing: bool) -> bool:
    """Return whether the model loads, or, where it may be missing, has not ended."""
    from labelfield.models.artifact import ModelError

    if may_be_missing and not (folder / "model" / "config.json").exists():
        return True
    try:
        labelfield.load(folder / "model", device="cpu")
    except ModelError:
        return False
    return True


def _rows_are_whole(folder: Path) -> bool:
    return not (folder / "out").exists() or labelfield.read(folder / "out").n_rows == 300


def _file_is_whole(name: str, n_lines: int | None = None) -> Callable[[Path], bool]:
    def is_whole(folder: Path) -> bool:
        path = folder / name
        if not path.exists():
            return True
        text = path.read_text()
        return text.rstrip().endswith("</html>") if n_lines is None else text.count("\n") == n_lines

    return is_whole


JOBS = {
    "train": Job(
        _make_rows,
        ["train", "rows.txt", "--out", "model", *_TRAIN],
        ["train", "rows.txt", "--out", "model", *_TRAIN, "--resume"],
        _model,
        lambda folder: _loads(folder, may_be_missing=True),
    ),
    "learn": Job(
        _make_tagger,
        ["learn", "model", "more.csv", "--device", "cpu"],
        ["learn", "model", "more.csv", "--device", "cpu"],
        _model,
        lambda folder: _loads(folder, may_be_missing=False),
    ),
    "convert": Job(
        _make_rows,
        ["convert", "rows.txt", "out", "--overwrite"],
        ["convert", "rows.txt", "out", "--overwrite"],
        lambda folder: {path.name: path.read_bytes() for path in (folder / "out").iterdir()},
        _rows_are_whole,
    ),
    "tag": Job(
        _make_tagger,
        ["tag", "model", "documents.csv", "--out", "tags.jsonl", "--overwrite"],
        ["tag", "model", "documents.csv", "--out", "tags.jsonl", "--overwrite"],
        lambda folder: (folder / "tags.jsonl").read_bytes(),
        _file_is_whole("tags.jsonl", 80),
    ),
    "evaluate": Job(
        _make_tagger,
        ["evaluate", "model", "documents.csv", "--json"],
        ["evaluate", "model", "documents.csv", "--json"],
        lambda folder: None,
        lambda folder: _loads(folder, may_be_missing=False),
    ),
    "report": Job(
        _make_tagger,
        ["report", "model", "documents.csv", "--out", "report.html", "--overwrite"],
        ["report", "model", "documents.csv", "--out", "report.html", "--overwrite"],
        lambda folder: (folder / "report.html").stat().st_size > 0,
        _file_is_whole("report.html"),
    ),
}


def flaw_of(job: Job, folder: Path, child: Child, fault: str, *, may_leave: bool = False) -> str | None:
    """Return what is wrong after a command that something was done to: it ends as ever, or says why in one line.

    What it leaves is whole, and no temporary folder is among it, unless removing one was what failed.
    """
    code, said = child.wait()
    if "Traceback" in said:
        return f"{fault}: a traceback: {said.strip().splitlines()[-1][:120]}"
    if code < 0:
        return f"{fault}: ended by signal {-code}"
    if code != 0 and not said.strip():
        return f"{fault}: no message"
    if not job.is_whole(folder):
        return f"{fault}: what is left is neither the old state nor the new one ({said.strip()[-80:]})"
    left = [path.name for path in folder.rglob(".labelfield-*")]
    return f"{fault}: {left[0]} is left" if left and not may_leave else None


def copy_of(original: Path, work: Path) -> Path:
    """Return a fresh copy of the files of a job."""
    shutil.rmtree(work, ignore_errors=True)
    shutil.copytree(original, work)
    return work
