"""bench: suites by name or path, their records, and tables."""

import json

import pytest
from test_commands import run

import labelfield
from labelfield import synth
from labelfield.bench import suite_names
from labelfield.bench.studies import studies


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


def test_a_suite_of_ones_own_is_run_recorded_and_shown(toy, tmp_path):
    done = run("bench", toy / "toy.yaml", "--data", toy / "data", "--records", tmp_path)
    assert "toy · small: " in done.stderr
    assert "nowhere · gone: skipped" in done.stderr
    assert "1 measured, 1 skipped" in done.stderr
    (measured, skipped) = map(json.loads, (tmp_path / "toy.jsonl").read_text().splitlines())
    assert measured["command"].startswith("labelfield bench ")
    assert f"| small | {measured['scores']['P@1']:.1f} / " in done.stdout
    assert "no data set nowhere" in skipped["skipped"]


def test_names_that_mean_nothing(toy, tmp_path):
    done = run("bench", "best", check=1)
    assert "no suite 'best'; there are budgets, quick" in message(done)
    done = run("bench", toy / "toy.yaml", "--only", "large", "--records", tmp_path, check=2)
    assert "--only large; there are gone, small" in message(done)
    assert not (tmp_path / "toy.jsonl").exists()


def test_a_suite_with_a_mistake_is_told_with_its_line(tmp_path):
    (tmp_path / "mine.yaml").write_text("title: mine\nrows:\n  a: {method: trees}\n")
    done = run("bench", tmp_path / "mine.yaml", check=3)
    assert "mine.yaml:3: rows: a: method: method 'trees'" in message(done)


def test_list_shows_every_suite_and_study():
    shown = run("bench", "list").stdout
    assert all(f" {name} " in shown for name in (*suite_names(), *studies()))
