"""bench: suites by name or path, their records, and tables."""

import json
import os
import subprocess
import sys
import time

import pytest
from test_commands import run

import labelfield
from labelfield import synth
from labelfield.bench import read_suite, suite_names
from labelfield.bench.studies import studies
from labelfield.cli.bench import chosen, command_line


def message(done):
    return " ".join(done.stderr.replace("│", " ").split())


@pytest.fixture(scope="module")
def toy(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bench")
    labelfield.write(synth.make_multilabel(120, 30, 6, seed=0).split(0.25), folder / "data" / "toy")
    rows = {"small": {"method": "mlgpf", "options": {"max_epochs": 1, "n_inducing": 5}}, "gone": {"method": "topics"}}
    rows["gone"]["datasets"] = ["nowhere"]
    (folder / "toy.yaml").write_text(json.dumps({"title": "toy", "datasets": ["toy"], "rows": rows}))
    return folder


@pytest.mark.usefixtures("quick")
def test_a_suite_of_ones_own_is_run_recorded_and_shown(toy, tmp_path):
    done = run("bench", toy / "toy.yaml", "--data", toy / "data", "--records", tmp_path)
    assert "toy · small: " in done.stderr
    assert "nowhere · gone: skipped" in done.stderr
    assert "1 measured, 1 skipped" in done.stderr
    (measured, skipped) = map(json.loads, (tmp_path / "toy.jsonl").read_text().splitlines())
    assert measured["command"] == f"labelfield bench {toy / 'toy.yaml'} --data {toy / 'data'}"
    assert f"| small | {measured['scores']['P@1']:.1f} / " in done.stdout
    assert "no data set nowhere" in skipped["skipped"]


@pytest.mark.usefixtures("quick")
def test_what_was_skipped_now_is_not_shown_as_it_was_once(toy, tmp_path):
    asked = ("bench", toy / "toy.yaml", "--records", tmp_path)
    run(*asked, "--data", toy / "data")
    for others in (("--only", "gone"), ("--data", tmp_path, "--again")):
        done = run(*asked, *others, check=1)
        assert done.stdout == ""
        assert "error: nothing was measured, for the reasons told above" in done.stderr
    (tmp_path / "nowhere").symlink_to(toy / "data" / "toy")  # one is there, the other is not any more
    (tmp_path / "toy.yaml").write_text(
        (toy / "toy.yaml").read_text().replace('"topics"', '"topics", "options": {"max_epochs": 1}')
    )
    done = run("bench", tmp_path / "toy.yaml", "--records", tmp_path, "--data", tmp_path, "--again")
    assert "| gone | " in done.stdout
    assert "| small | " not in done.stdout
    assert "small was skipped: " in done.stdout


@pytest.mark.parametrize("command", [("bench",), ("recipe", "run")])
@pytest.mark.parametrize("option", ["--records", "--data"])
def test_a_file_is_no_folder(toy, command, option):
    done = run(*command, toy / "toy.yaml", option, toy / "toy.yaml", check=2)
    assert f"Invalid value for '{option}'" in message(done)
    assert "is a file" in message(done)


def test_names_that_mean_nothing(toy, tmp_path):
    done = run("bench", "best", check=1)
    assert "no suite 'best'; there are budgets, quick" in message(done)
    done = run("bench", toy / "toy.yaml", "--only", "large", "--records", tmp_path, check=2)
    assert "--only large; there are gone, nowhere, small, toy" in message(done)
    assert not (tmp_path / "toy.jsonl").exists()


def test_a_suite_with_a_mistake_is_told_with_its_line(tmp_path):
    (tmp_path / "mine.yaml").write_text("title: mine\nrows:\n  a: {method: trees}\n")
    done = run("bench", tmp_path / "mine.yaml", check=3)
    assert "mine.yaml:3: rows: a: method: method 'trees'" in message(done)
    rows = "  a: {method: mlgpf, options: {n_induce: 5}}"
    (tmp_path / "mine.yaml").write_text(f"title: mine\ndatasets: [nowhere]\nrows:\n{rows}\n")
    done = run("bench", tmp_path / "mine.yaml", "--records", tmp_path / "records", check=3)
    assert "mine.yaml:4: rows: a: options: n_induce: no option of mlgpf; expected one of n_inducing" in message(done)
    assert not (tmp_path / "records").exists()


def test_list_shows_every_suite_and_study():
    shown = run("bench", "list").stdout
    assert all(f" {name} " in shown for name in (*suite_names(), *studies()))


def test_a_study_takes_no_options_that_would_do_nothing(tmp_path):
    done = run("bench", "reading", "--records", tmp_path, check=2)
    assert "--records is for a suite; reading is a study" in message(done)


def test_names_choose_cells_and_a_command_can_be_typed_again(toy, monkeypatch):
    found = read_suite(toy / "toy.yaml")
    named = [["small"], ["toy"], ["toy/small"], ["toy", "small"], ["nowhere", "small"], ["toy", "nowhere"]]
    cells = [[cell.row for cell in found.cells() if chosen(only, found)(cell)] for only in named]
    assert cells == [["small"], ["small"], ["small"], ["small"], [], ["small", "gone"]]
    given = {"only": ["a b"], "device": "cuda", "jobs": 3, "seeds": 2}
    line = command_line("recipe run", "my toy.yaml", **given, data=toy / "data")
    at = f"--data {toy / 'data'}"
    assert line == f"labelfield recipe run 'my toy.yaml' --only 'a b' {at} --seeds 2 --device cuda --jobs 3"
    monkeypatch.setenv("LABELFIELD_DATA", str(toy / "data"))  # where that is differs from machine to machine
    assert line.replace(f"{at} ", "") == command_line("recipe run", "my toy.yaml", **given, data=toy / "data")


def test_termination_clears_up(toy, tmp_path):
    rows = {"long": {"method": "mlgpf", "options": {"max_epochs": 1_000_000, "calibrated": False}}}
    (tmp_path / "long.yaml").write_text(json.dumps({"title": "long", "datasets": ["toy"], "rows": rows}))
    (tmp_path / "scratch").mkdir()
    arguments = ("bench", tmp_path / "long.yaml", "--data", toy / "data", "--records", tmp_path / "records")
    process = subprocess.Popen(
        [sys.executable, "-m", "labelfield", *map(str, arguments)],
        env={**os.environ, "TMPDIR": str(tmp_path / "scratch")},
        stderr=subprocess.PIPE,
    )
    deadline = time.monotonic() + 60
    while not list(tmp_path.glob("scratch/*/*/task.json")):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.terminate()
    assert b"interrupted" in process.communicate(timeout=30)[1]
    assert process.returncode == 143
    assert not list((tmp_path / "scratch").iterdir())
    assert not (tmp_path / "records").exists()
