"""The command line: suites, studies and recipes by name or path, their records, and tables."""

import json
import os
import re
import subprocess
import sys
import time

import pytest

from benchmarks import paths
from benchmarks.commands import chosen, command_line
from benchmarks.provenance import commit
from benchmarks.recipes import recipe_names
from benchmarks.record import Records, command_of
from benchmarks.studies import registry
from benchmarks.suites.suite import read_suite, suite_names
from benchmarks.tables import pages

SMALL = {"method": "mlgpf", "options": {"max_epochs": 2, "n_inducing": 5}}
BAD = {"method": "mlgpf", "options": {"max_epochs": 2, "kernel": "round"}}
BENCH, RECIPE = ("bench",), ("recipe", "run")
EITHER = pytest.mark.parametrize("command", [BENCH, RECIPE], ids=" ".join)


@pytest.fixture
def toy(suite):
    """A suite, which is a recipe too, of a row that runs and one whose data set is missing."""
    gone = {**SMALL, "datasets": ["nowhere"]}
    return suite({"small": {**SMALL, "paper": {"P@1": 99.5}}, "gone": gone}, scores=["P@1", "bound"]).path


@pytest.fixture
def unchanged(monkeypatch):
    """A commit without changes: nothing measured with changed code counts as done."""
    monkeypatch.setitem(os.environ, "LABELFIELD_COMMIT", "abc")
    commit.cache_clear()
    yield
    commit.cache_clear()


@EITHER
@pytest.mark.usefixtures("quick")
def test_a_file_is_run_recorded_and_shown(run, toy, data, tmp_path, command):
    done = run(*command, toy, "--data", data, "--records", tmp_path)
    assert "toy · small: " in done.stderr
    assert "nowhere · gone: skipped" in done.stderr
    assert "1 measured, 1 skipped" in done.stderr
    measured, skipped = map(json.loads, (tmp_path / "mine.jsonl").read_text().splitlines())
    assert measured["command"] == f"python -m benchmarks {' '.join(command)} {toy} --data {data}"
    assert measured["history"]["bound"][-1] == measured["bound"]
    assert "no data set nowhere" in skipped["skipped"]
    score = measured["scores"]["P@1"]
    assert (f"| small | {score:.2f} | " if command == BENCH else f"{score - 99.5:+.2f}") in done.stdout


@pytest.mark.usefixtures("unchanged", "quick")
def test_a_run_continues_where_it_stopped(run, suite, data, tmp_path):
    path = suite({"small": SMALL, "bad": BAD}).path
    asked = ("recipe", "run", path, "--data", data, "--records", tmp_path)
    for others, told in (((), "1 measured"), ((), "0 measured"), (("--again",), "1 measured")):
        assert told in run(*asked, "--only", "small", *others).stderr
    failed = run(*asked, check=1)
    assert "toy · bad: skipped, ended with 1: ValueError: kernel 'round'" in failed.stderr
    assert "error: 1 of the runs ended with an error" in failed.stderr
    shown = json.loads(run("recipe", "show", path, "--records", tmp_path, "--json").stdout)
    record = Records.load(tmp_path).runs["mine"][0]
    assert shown["rows"][0]["ours"]["P@1"]["mean"] == pytest.approx(record["scores"]["P@1"])
    assert shown["rows"][1]["ours"] == {}


@EITHER
@pytest.mark.usefixtures("quick")
def test_what_is_skipped_now_is_not_shown_as_measured_before(run, toy, data, tmp_path, command):
    asked = (*command, toy, "--records", tmp_path)
    run(*asked, "--data", data)
    for others in (("--only", "gone"), ("--data", tmp_path, "--again")):
        done = run(*asked, *others, check=1)
        assert done.stdout == ""
        assert "error: nothing was measured, for the reasons given above" in done.stderr
    (tmp_path / "nowhere").symlink_to(data / "toy")  # now this one is there, and the other is not
    if command == BENCH:
        done = run(*asked, "--data", tmp_path, "--again")
        assert "| gone | " in done.stdout
        assert "| small | " not in done.stdout
        assert "small was skipped: " in done.stdout
    else:
        rows = json.loads(run(*asked, "--data", tmp_path, "--again", "--json").stdout)["rows"]
        assert {row["row"]: bool(row["ours"]) for row in rows} == {"small": False, "gone": True}


@EITHER
@pytest.mark.usefixtures("quick")
def test_records_of_other_files_go_to_the_current_folder(run, toy, data, tmp_path, monkeypatch, command):
    monkeypatch.chdir(tmp_path)
    toy.rename(tmp_path / "steps.yaml")  # which is the name of a study
    run(*command, "steps.yaml", "--only", "small", "--data", data)
    assert len((tmp_path / "records" / "steps.jsonl").read_text().splitlines()) == 1


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        ("bench best", 1, "no suite or study 'best'; `python -m benchmarks bench list` shows them"),
        ("recipe show best", 1, "no recipe 'best'; `python -m benchmarks recipe list` shows them"),
        ("bench TOY --only large", 2, "--only large; there are gone, nowhere, small, toy"),
        ("recipe run TOY --only large", 2, "--only large; there are gone, nowhere, small, toy"),
        ("bench reading --records DIR", 2, "--records is for a suite; reading takes no options"),
        ("bench list --again", 2, "--again is for a suite; list takes no options"),
        ("recipe run topics-table-3 --records DIR", 2, "--records is for recipes whose rows are run; this is a study"),
        ("recipe run topics-table-3 --seeds 3", 2, "--seeds is for recipes whose rows are run; this is a study"),
        ("recipe run svdkl-figure-3 --jobs 3", 2, "--jobs is for recipes whose rows are run; this is a figure"),
        ("bench TOY --records TOY", 2, "Invalid value for '--records'"),
        ("recipe run TOY --data TOY", 2, "Invalid value for '--data'"),
        ("bench BAD", 3, "bad.yaml:3: rows: a: method: 'trees'; expected one of"),
        ("recipe show BAD", 3, "bad.yaml:3: rows: a: method: 'trees'; expected one of"),
        (
            "bench NO --records DIR",
            3,
            "no.yaml:4: rows: a: options: n_induce: not an option of mlgpf; expected one of n",
        ),
        ("recipe run FIGURE", 3, "figure.yaml: figure relevance without datasets; expected a line `datasets: …`"),
    ],
)
def test_wrong_usage(run, toy, tmp_path, arguments, code, told):
    texts = {
        "bad": "title: mine\nrows:\n  a: {method: trees}\n",
        "no": "title: mine\ndatasets: [nowhere]\nrows:\n  a: {method: mlgpf, options: {n_induce: 5}}\n",
        "figure": "title: mine\nfigure: relevance\n",
    }
    names = {"TOY": toy, "DIR": tmp_path / "records"}
    for name, text in texts.items():
        names[name.upper()] = tmp_path / f"{name}.yaml"
        names[name.upper()].write_text(text)
    done = run(*(names.get(word, word) for word in arguments.split()), check=code)
    assert told in done.message
    assert done.stdout == ""
    assert not (tmp_path / "records").exists()


def test_lists_show_everything(run):
    shown = run("bench", "list").stdout
    assert all(f" {name} " in shown for name in (*suite_names(), *registry.STUDIES))
    shown = run("recipe", "list").stdout
    assert all(f" {name} " in shown for name in recipe_names())


def test_names_choose_cells_and_a_command_can_be_repeated(toy, data, monkeypatch):
    found = read_suite(toy)
    named = [["small"], ["toy"], ["toy/small"], ["toy", "small"], ["nowhere", "small"], ["toy", "nowhere"]]
    cells = [[cell.row for cell in found.cells() if chosen(only, found)(cell)] for only in named]
    assert cells == [["small"], ["small"], ["small"], ["small"], [], ["small", "gone"]]
    given = {"only": ["a b"], "device": "cuda", "jobs": 3, "seeds": 2, "data": data}
    line = command_line("recipe run", "my toy.yaml", **given)
    options = f"--only 'a b' --data {data} --seeds 2 --device cuda --jobs 3"
    assert line == f"python -m benchmarks recipe run 'my toy.yaml' {options}"
    monkeypatch.setattr(paths, "DATA", data)  # the usual folder differs from machine to machine
    assert line.replace(f"--data {data} ", "") == command_line("recipe run", "my toy.yaml", **given)


def test_a_study_is_run_shown_from_its_record_or_refused(run, tmp_path, monkeypatch):
    done = run("recipe", "run", "topics-table-3")
    assert "`python -m benchmarks bench topics`; --again measures it again" in done.stderr
    assert "0.8420" in done.stdout
    monkeypatch.setattr(registry, "RECORDS", tmp_path)
    monkeypatch.setattr(registry.Study, "load", lambda study: lambda: {"module": study.module})
    run("bench", "scores")
    record = Records.load(tmp_path).studies["scores"]
    assert record["results"] == {"module": "scores"}
    assert record["command"] == command_of(record) == "python -m benchmarks bench scores"
    monkeypatch.setattr(registry, "DATA", tmp_path)
    for command, study, missing in (
        (("bench", "topics"), "topics", "eurlex-4k"),
        (("recipe", "run", "topics-table-3", "--again"), "topics-few-written", "bibtex"),
    ):
        done = run(*command, check=1)
        reason = f"error: {study}: not measured, {missing} is not at {tmp_path}; set LABELFIELD_DATA"
        assert (reason in done.stderr, done.stdout) == (True, "")


def test_a_figure_of_an_own_file_is_drawn_and_recorded(run, tmp_path, monkeypatch):
    (tmp_path / "steps.yaml").write_text("title: mine\nfigure: relevance\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("benchmarks.figures.registry.draw", lambda *_: print("drawing") or {"figure": "there"})
    done = run("recipe", "run", "steps.yaml", "--json")
    assert json.loads(done.stdout)["results"] == {"figure": "there"}  # and progress is on stderr
    record = Records.load(tmp_path / "records").studies["steps"]
    assert record["command"] == "python -m benchmarks recipe run steps.yaml"


def test_table_checks_or_writes_the_pages(run, tmp_path, monkeypatch):
    page = tmp_path / "page.md"
    monkeypatch.setattr(paths, "ROOT", tmp_path)
    monkeypatch.setattr(pages, "pages", lambda: {page: "new"})
    assert "not up to date: page.md" in run("table", "--check", check=1).message
    assert not page.exists()
    assert "wrote page.md" in run("table").message
    assert page.read_text() == "new"
    assert run("table", "--check").message == run("table").message == ""


PAGES = [*paths.ROOT.glob("*.md"), *paths.ROOT.glob("docs/*.md"), *paths.SUITES.glob("*.yaml"), paths.ROOT / "Makefile"]


def test_commands_that_pages_name_exist():
    known = {"bench": {*suite_names(), *registry.STUDIES}, "recipe run": {*recipe_names()}, "recipe": {"run"}}
    found = set()
    for path in PAGES:
        text = re.sub(r"\s+", " ", path.read_text())
        assert not re.search(r"labelfield (bench|recipe)\b", text), path.name
        for command, name in re.findall(
            r"python -m benchmarks (bench|recipe run|recipe|table|plots)(?: ([\w.-]+))?", text
        ):
            found.add(command)
            if command in known and name not in ("", "NAME", "list"):
                assert name.rstrip(".") in known[command], f"{path.name}: {command} {name}"
    assert found == {"bench", "recipe run", "recipe", "table", "plots"}


@pytest.mark.slow
def test_termination_clears_up(suite, data, tmp_path):
    path = suite({"long": {"method": "mlgpf", "options": {"max_epochs": 1_000_000, "calibrate": False}}}).path
    (tmp_path / "scratch").mkdir()
    arguments = ("bench", path, "--data", data, "--records", tmp_path / "records")
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks", *map(str, arguments)],
        cwd=paths.ROOT,
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
