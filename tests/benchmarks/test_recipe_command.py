"""recipe: published numbers beside ours, from runs that go on where they stopped."""

import json
import os
import subprocess
import sys

import pytest
from test_commands import run

import labelfield
from benchmarks import recipes as drawing
from benchmarks import run as measuring
from labelfield import synth
from labelfield.bench import load_records
from labelfield.bench.provenance import commit
from labelfield.bench.recipes import recipe_names


def message(done):
    return " ".join(done.stderr.replace("│", " ").split())


@pytest.fixture(scope="module")
def toy(tmp_path_factory):
    folder = tmp_path_factory.mktemp("recipe")
    labelfield.write(synth.make_multilabel(120, 30, 6, seed=0).split(0.25), folder / "data" / "toy")
    small = {"options": {"max_epochs": 2, "n_inducing": 5}, "paper": {"P@1": 99.5}}
    bad = {"options": {"max_epochs": 2, "kernel": "round"}}
    content = {"title": "A toy", "datasets": ["toy"], "defaults": {"method": "mlgpf"}, "scores": ["P@1", "bound"]}
    (folder / "toy.yaml").write_text(json.dumps({**content, "rows": {"small": small, "bad": bad}}))
    return folder


@pytest.fixture
def unchanged(monkeypatch):
    """Of changed code nothing counts as done, and what is tested may just be changing."""
    monkeypatch.setitem(os.environ, "LABELFIELD_COMMIT", "abc")
    commit.cache_clear()
    yield
    commit.cache_clear()


@pytest.mark.usefixtures("unchanged", "quick")
def test_a_run_goes_on_where_it_stopped(toy, tmp_path):
    asked = ("recipe", "run", toy / "toy.yaml", "--data", toy / "data", "--records", tmp_path)
    done = run(*asked, "--only", "small")
    (record,) = map(json.loads, (tmp_path / "toy.jsonl").read_text().splitlines())
    assert f"{record['scores']['P@1'] - 99.5:+.2f}" in done.stdout
    assert len(record["history"]["bound"]) == 2
    assert record["history"]["bound"][-1] == pytest.approx(record["bound"], rel=1e-5)
    assert "1 measured" in done.stderr
    assert "0 measured" in run(*asked, "--only", "small").stderr
    assert "1 measured" in run(*asked, "--only", "small", "--again").stderr
    failed = run(*asked, check=1)
    assert "toy · bad: skipped, ended with 1: ValueError: kernel 'round'" in failed.stderr
    assert "error: 1 of the rows ended with an error" in failed.stderr
    shown = json.loads(run("recipe", "show", toy / "toy.yaml", "--records", tmp_path, "--json").stdout)
    assert shown["rows"][0]["ours"]["P@1"]["mean"] == pytest.approx(record["scores"]["P@1"])
    assert shown["rows"][1]["ours"] == {}


@pytest.mark.usefixtures("quick")
def test_what_was_skipped_now_is_not_shown_as_it_was_once(toy, tmp_path):
    (tmp_path / "other").symlink_to(toy / "data" / "toy")
    rows = {name: {"method": "mlgpf", "options": {"max_epochs": 1}, "datasets": [name]} for name in ("toy", "other")}
    (tmp_path / "two.yaml").write_text(json.dumps({"title": "two", "rows": rows}))
    asked = ("recipe", "run", tmp_path / "two.yaml", "--records", tmp_path / "records", "--json", "--again")
    run(*asked, "--only", "toy", "--data", toy / "data")
    done = run(*asked, "--only", "toy", "--data", tmp_path, check=1)
    assert done.stdout == ""
    assert "error: nothing was measured, for the reasons told above" in done.stderr
    shown = json.loads(run(*asked, "--data", tmp_path).stdout)["rows"]
    assert [bool(row["ours"]) for row in shown] == [False, True]


def test_wrong_usage(toy, tmp_path):
    assert "no recipe 'best'" in message(run("recipe", "show", "best", check=1))
    done = run("recipe", "run", toy / "toy.yaml", "--only", "large", "--records", tmp_path, check=2)
    assert "--only large; there are bad, small, toy" in message(done)
    done = run("recipe", "run", "topics-table-2", "--records", tmp_path, check=2)
    assert "--records is for recipes whose rows are run; this is a study" in message(done)
    done = run("recipe", "run", "topics-table-2", "--seeds", "3", check=2)
    assert "--seeds is for recipes whose rows are run; this is a study" in message(done)
    (tmp_path / "mine.yaml").write_text("title: mine\nrows:\n  a: {method: trees}\n")
    assert "mine.yaml:3: " in message(run("recipe", "show", tmp_path / "mine.yaml", check=3))


def test_a_study_is_shown_from_its_record():
    done = run("recipe", "run", "topics-table-3")
    assert "--again measures it anew" in done.stderr
    assert "0.8420" in done.stdout


@pytest.mark.parametrize("command", [("bench",), ("recipe", "run")])
@pytest.mark.usefixtures("quick")
def test_files_of_ones_own_are_recorded_where_one_is(toy, tmp_path, monkeypatch, command):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("labelfield.bench.places.checkout", lambda: tmp_path / "repository")
    (tmp_path / "steps.yaml").write_text((toy / "toy.yaml").read_text())  # which is the name of a study
    run(*command, "steps.yaml", "--only", "small", "--data", toy / "data")
    assert len((tmp_path / "records" / "steps.jsonl").read_text().splitlines()) == 1


def test_a_figure_of_ones_own_is_drawn_from_any_folder(tmp_path, monkeypatch):
    (tmp_path / "steps.yaml").write_text("title: mine\nfigure: relevance\n")
    monkeypatch.chdir(tmp_path)
    asked = []

    def drawn(command, **options):
        asked.append((command[1:], options["cwd"]))
        return subprocess.CompletedProcess(command, 1)

    monkeypatch.setattr(subprocess, "run", drawn)
    assert "the figure was not drawn, for the reason told above" in run("recipe", "run", "steps.yaml", check=1).stderr
    ((command, folder),) = asked
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "argv", command[1:])
    monkeypatch.setattr(drawing, "DATA", tmp_path)
    with pytest.raises(
        SystemExit, match=rf"^{tmp_path}/steps.yaml: a figure relevance without datasets; expected a li"
    ):
        drawing.main()
    monkeypatch.setattr(drawing, "draw", lambda *_: {"figure": "there"})
    drawing.main()
    (record,) = load_records(tmp_path / "records")["steps"]
    assert record["results"] == {"figure": "there"}


def test_a_study_that_cannot_be_measured_is_an_error(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(measuring, "DATA", tmp_path)
    monkeypatch.setattr(measuring, "study", lambda _: dict)
    monkeypatch.setattr(measuring, "write_record", lambda name, _: tmp_path / "benchmarks" / "records" / name)
    monkeypatch.setattr(sys, "argv", ["run", "reading", "scores"])
    with pytest.raises(
        SystemExit, match=f"^reading: not measured, eurlex-4k is not at {tmp_path}; set LABELFIELD_DATA$"
    ):
        measuring.main()
    assert "scores: benchmarks/records/scores" in capsys.readouterr().out  # the other one was
    monkeypatch.setattr("labelfield.cli.recipes.run_study", lambda _: 1)
    done = run("recipe", "run", "topics-table-2", "--again", check=1)
    assert done.stdout == ""
    assert "the study topics was not measured, for the reason told above" in done.stderr


def test_list_shows_every_recipe():
    shown = run("recipe", "list").stdout
    assert all(f" {name} " in shown for name in recipe_names())
