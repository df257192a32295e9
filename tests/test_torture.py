"""Trials of `python -m torture`: a few of each kind here, five minutes of all with the slow tests."""

import re
import subprocess
import sys
import time
from pathlib import Path
from random import Random

import pytest

from torture import record
from torture.__main__ import KINDS
from torture.files import make_trial
from torture.mutate import mutated
from torture.readers import READERS, Originals
from torture.running import run_trials
from torture.signals import jump_clock


def test_what_a_trial_changed_is_put_back(tmp_path):
    (tmp_path / "in").mkdir()
    for name in ("a", "b", "in/c"):
        (tmp_path / name).write_text(name)
    originals = Originals(tmp_path)
    (tmp_path / "a").write_text("A")  # of the same size
    (tmp_path / "b").unlink()
    (tmp_path / "b").mkdir()
    (tmp_path / "in" / "c").unlink()
    (tmp_path / "in" / "c").symlink_to("c")
    (tmp_path / "in" / "elsewhere").write_text("new")
    originals.restore()
    assert {path.name: path.read_text() for path in tmp_path.rglob("*") if path.is_file()} == {
        "a": "a",
        "b": "b",
        "c": "in/c",
    }


QUICK = ["xml-repository", "svmlight", "npz", "folder", "json lines", "vocabulary, tsv"]


@pytest.mark.parametrize("name", QUICK)
def test_a_few_hostile_files_of_each_reader(name, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    trial = make_trial(name)
    assert [found for seed in range(8) if (found := trial(seed)) is not None] == []


def test_a_seed_gives_the_same_change_again():
    changed = [mutated(b"1 2 3\n0 1:1\n", Random(f"a/{seed}")) for seed in range(50)]
    assert changed == [mutated(b"1 2 3\n0 1:1\n", Random(f"a/{seed}")) for seed in range(50)]
    assert len(set(changed)) > 40


def test_what_fails_hangs_or_crashes_is_told_with_its_seed():
    def make():
        def trial(seed):
            if seed == 2:
                raise KeyError("a")
            if seed == 3:
                import os

                os.kill(os.getpid(), 9)
            return "wrong" if seed == 5 else None

        return trial

    found, tried = run_trials(make, 0, 8, None, 5)
    assert tried == 8
    assert [failure.seed for failure in found] == [2, 3, 5]
    assert "KeyError" in found[0].what
    assert "signal 9" in found[1].what
    assert found[2].what == "wrong"


def test_a_run_goes_on_where_the_last_one_ended(tmp_path, monkeypatch):
    monkeypatch.setattr(record, "RECORDS", tmp_path / "records.jsonl")
    record.add_record("files", "npz", 0, 10, [], 1.0)
    record.add_record("files", "npz", 10, 5, [], 1.0)
    assert record.next_seed("files", "npz", tmp_path / "records.jsonl") == 15
    assert record.next_seed("files", "arff", tmp_path / "records.jsonl") == 0


def test_every_reader_was_tried_and_the_last_run_of_each_found_nothing():
    last = {(one["kind"], one["case"]): one for one in record.read_records()}
    assert {case for kind, case in last if kind == "files"} == set(READERS)
    assert [f"{kind}: {case}" for (kind, case), one in last.items() if one["failed"]] == []


def test_a_clock_that_jumps_is_seen_by_the_process(monkeypatch):
    monkeypatch.setattr(time, "time", time.time)
    before = time.time()
    jump_clock(1)
    assert max(abs(time.time() - before) for _ in range(50)) > 1e8


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_five_minutes_of_all_kinds(kind):
    command = [sys.executable, "-m", "torture", kind, "--seconds", str(300 / len(KINDS)), "--no-record"]
    done = subprocess.run(command, cwd=Path(record.ROOT), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert re.search(r"[1-9][0-9]* tried, 0 failed", done.stdout)
