"""Small jobs of the command line, which trials kill, starve and interrupt; and what must be true of them afterwards."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

_ENVIRONMENT = {"OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"}
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


def start(folder: Path, command: list[str], prefix: list[str] | None = None) -> subprocess.Popen[str]:
    """Start a command in a folder; a session of its own has all its processes."""
    return subprocess.Popen(
        [*(prefix or [sys.executable, "-m", "labelfield"]), *command],
        cwd=folder,
        env=os.environ | _ENVIRONMENT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def _make_rows(folder: Path) -> None:
    import labelfield

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
    assert start(folder, command).wait() == 0


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
    import labelfield
    from labelfield.models.artifact import ModelError

    if may_be_missing and not (folder / "model" / "config.json").exists():
        return True
    try:
        labelfield.load(folder / "model", device="cpu")
    except ModelError:
        return False
    return True


def _rows_are_whole(folder: Path) -> bool:
    import labelfield

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
    "report": Job(
        _make_tagger,
        ["report", "model", "documents.csv", "--out", "report.html", "--overwrite"],
        ["report", "model", "documents.csv", "--out", "report.html", "--overwrite"],
        lambda folder: (folder / "report.html").stat().st_size > 0,
        _file_is_whole("report.html"),
    ),
}


def copy_of(original: Path, work: Path) -> Path:
    """Return a fresh copy of the files of a job."""
    shutil.rmtree(work, ignore_errors=True)
    shutil.copytree(original, work)
    return work
