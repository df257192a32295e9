"""The papers' numbers beside ours come from the records, and where ours are worse a reason is given."""

import re
from dataclasses import replace

import pytest

from benchmarks.paths import RECORDS
from benchmarks.recipes import left_out, read_recipe, recipe_names
from benchmarks.record import Records
from benchmarks.tables.comparison import behind, compare, difference, is_worse, long_table, table
from benchmarks.tables.papers import papers_page
from labelfield.errors import DataError

TEXT = """\
title: Journal paper, table 1. Two rows
where: Journal paper, table 1
datasets: [here]
defaults: {method: mlgpf}
seeds: 2
scores: [P@1, nlpd]
rows:
  first: {paper: {P@1: 50.0, nlpd: 0.1}, worse: Fewer epochs.}
  second: {}
"""
MACHINE = {"cpu": "a CPU", "cores": 2}


def record(row, seed, scores, **others):
    head = {"dataset": "here", "row": row, "budget": "full", "seed": seed, "commit": "abc", "machine": MACHINE}
    return {**head, "method": "mlgpf", "options": {}, "scores": scores, **others}


MEASURED = Records.of(
    {
        "journal-table-1": [
            record("first", 0, {"P@1": 1.0, "nlpd": 9.0}),  # measured again below
            record("first", 0, {"P@1": 51.0, "nlpd": 0.3}),
            record("first", 1, {"P@1": 53.0, "nlpd": 0.3}),
            record("first", 2, {"P@1": 0.0, "nlpd": 0.0}),  # more starts than the recipe has
            record("second", 0, {"P@1": 40.0}),
        ],
        "numbers": [{"study": "numbers", "results": {"a": [{"b": 0.25}]}, "commit": "abc", "machine": MACHINE}],
    }
)


@pytest.fixture
def recipe(tmp_path):
    path = tmp_path / "journal-table-1.yaml"
    path.write_text(TEXT)
    return read_recipe(path)


def test_the_last_record_of_each_start_counts(recipe):
    first, second = compare(recipe, MEASURED)
    assert first.ours["P@1"].mean == pytest.approx(52.0)
    assert first.ours["P@1"].sd == pytest.approx(2**0.5)
    assert second.ours["P@1"].sd is None
    header, rows = table(recipe, [first, second], bold="**")
    assert header == ["row", "data", "paper: P@1 / nlpd", "ours", "difference"]
    assert rows[0] == ["first", "here", "50.00 / 0.1000", "52.00 ± 1.41 / 0.3000 ± 0.0000", "+2.00 / **+0.2000**"]
    assert rows[1] == ["second (1 of 2 starts)", "here", "", "40.00 / –", ""]
    header, rows = long_table(recipe, [first, second])
    assert header == ["row", "data", "score", "paper", "ours", "difference"]
    assert rows[:2] == [
        ["first", "here", "P@1", "50.00", "52.00 ± 1.41", "+2.00"],
        ["", "", "nlpd", "0.1000", "0.3000 ± 0.0000", "+0.2000"],
    ]


def test_a_study_is_read_by_its_path(tmp_path):
    text = "title: A\nstudy: numbers\nscores: [value]\nlower_is_better: [value]\nrows:\n  x: {at: {value: [a, 0, b]}}\n"
    path = tmp_path / "study.yaml"
    path.write_text(text)
    (line,) = compare(read_recipe(path), MEASURED)
    assert line.ours["value"].mean == 0.25
    path.write_text(text.replace("[a, 0, b]", "[a, 0, c]"))
    with pytest.raises(DataError, match="row 'x': no 'c' in the record numbers; expected one of b"):
        compare(read_recipe(path), MEASURED)


@pytest.mark.parametrize(
    ("score", "paper", "ours", "worse", "shown"),
    [
        ("P@1", 50.0, 49.0, True, "-1.00"),
        ("P@1", 50.0, 49.996, False, "-0.00"),
        ("error rate %", 3.0, 3.5, True, "+0.50"),
        ("nlpd", 0.1, 0.05, False, "-0.0500"),
        ("AUC", 0.9, 0.95, False, "+0.0500"),
        ("train_seconds", 3600.0, 36.0, False, "100× faster"),
        ("epoch_seconds", 10.0, 15.0, True, "1.5× slower"),
    ],
)
def test_what_worse_means(score, paper, ours, worse, shown):
    assert is_worse(score, paper, ours) is worse
    assert difference(score, paper, ours) == shown


def test_the_page_says_why_ours_is_worse_and_what_is_missing(recipe):
    page = papers_page([recipe], MEASURED, left_out())
    command = "`python -m benchmarks recipe run journal-table-1`"
    assert f"### Table 1. Two rows\n\nJournal paper, table 1. {command}; at abc on 2" in page
    assert "| first | here | 50.00 / 0.1000 |" in page
    assert "- Worse: first on here. Fewer epochs." in page
    assert left_out()[0].why in page
    assert "nothing has been measured yet" in papers_page([recipe], Records.of({}))


@pytest.mark.parametrize(
    ("threads", "score", "is_said"), [(1, "train_seconds", True), (2, "train_seconds", False), (1, "P@1", False)]
)
def test_times_of_simultaneous_runs_are_marked(recipe, threads, score, is_said):
    measured = Records.of({"journal-table-1": [record("first", 0, {}, threads=threads, train_seconds=3.0)]})
    page = papers_page([replace(recipe, scores=(score,))], measured)
    assert ("Other rows ran at the same time" in page) == is_said


def test_a_picture_of_runs_says_where_these_were_measured():
    recipe = read_recipe("journal-figure-3")
    cell = next(recipe.suite.cells())
    head = dict(zip(("dataset", "row", "budget", "seed"), cell.key, strict=True))
    gpu = record(cell.row, 0, {"P@1": 1.0}, machine={**MACHINE, "accelerator": "H"})
    gpu |= {**head, "options": cell.options}
    drawn = {"study": recipe.name, "results": {"figure": "docs/images/a.svg"}, "commit": "def", "machine": MACHINE}
    page = papers_page([recipe], Records.of({recipe.suite.name: [gpu], recipe.name: [drawn]}))
    assert "drawn at def from runs at abc on H." in page


ALL_RECORDS = Records.load(RECORDS)


@pytest.mark.parametrize("name", recipe_names())
def test_wherever_ours_is_worse_a_recipe_says_why(name):
    recipe = read_recipe(name)
    for line in behind(recipe, compare(recipe, ALL_RECORDS)):
        assert line.worse, f"{name}.yaml: {line.row}: ours is worse on {line.dataset}; add `worse: …`"
        # A reason is something that was measured: it has a number, or names a row or the page of the experiment.
        assert re.search(r"\d|`|docs/LAB\.md", line.worse), f"{name}.yaml: {line.row}: `worse` names no measurement"
