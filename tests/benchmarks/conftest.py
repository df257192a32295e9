import io
import json
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import patch

import pytest

import labelfield
from benchmarks.__main__ import main
from benchmarks.suites.suite import read_suite
from labelfield import synth


@pytest.fixture
def run():
    """A function that runs `python -m benchmarks …` in this process, and checks its exit code."""

    def run(*arguments, check=0):
        stdout, stderr, code = io.StringIO(), io.StringIO(), 0
        with redirect_stdout(stdout), redirect_stderr(stderr), patch("sys.argv", ["benchmarks", *map(str, arguments)]):
            try:
                main()
            except SystemExit as stop:
                code = stop.code or 0
        assert code == check, stderr.getvalue()
        message = " ".join(stderr.getvalue().replace("│", " ").split())
        return SimpleNamespace(stdout=stdout.getvalue(), stderr=stderr.getvalue(), message=message)

    return run


@pytest.fixture
def quick(monkeypatch):
    """A model that starts at once; test_run.py runs a real one."""
    stand_in = [sys.executable, "-S", str(Path(__file__).with_name("stand_in.py"))]
    monkeypatch.setattr("benchmarks.suites.run._OURS", stand_in)


@pytest.fixture(scope="session")
def data(tmp_path_factory):
    """A folder with a small data set called toy."""
    folder = tmp_path_factory.mktemp("data")
    labelfield.write(synth.make_multilabel(160, 30, 6, labels_per_row=2.0, seed=0).split(0.25), folder / "toy")
    return folder


@pytest.fixture
def suite(tmp_path):
    """A function that writes rows on the toy data as mine.yaml, and reads that suite."""

    def suite(rows, **others):
        path = tmp_path / "mine.yaml"
        path.write_text(json.dumps({"title": "a test", "datasets": ["toy"], "rows": rows, **others}))
        return read_suite(path)

    return suite
