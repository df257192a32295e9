"""Every published table or figure that the data allow has a recipe that can be run; mistakes are reported."""

import re
from datetime import date
from functools import cache

import pytest
import yaml

from benchmarks import recipes
from benchmarks.paths import DATA, RECIPES
from benchmarks.recipes import left_out, read_recipe, recipe_names
from benchmarks.yaml_file import YamlFile
from labelfield.errors import DataError, LabelfieldError
from labelfield.estimators.methods import new_estimator
from labelfield.estimators.options import check_parameters

RUNS = """\
title: Paper, table 1. Two rows
where: Paper, table 1
datasets: [here, there]
defaults:
  method: mlgpf
  options: {n_latent: 3, max_epochs: 2}
  options_of: {here: {n_latent: 4, batch_size: 50}}
scores: [P@1, bound]
rows:
  first: {options: {batch_size: 10}, paper: {here: {P@1: 50.0}}}
  bare: {plain: true}
"""
OTHER = """\
title: Paper, table 2. The same runs
runs_of: runs
scores: [train_seconds]
rows:
  bare: {paper: {there: {train_seconds: 5}}}
"""
STUDY = """\
title: Paper, table 3. A study
study: topics
scores: [AUC]
rows:
  here: {at: {AUC: [bibtex, 0]}, paper: {AUC: 0.9}}
"""
FIGURE = """\
title: Paper, figure 1. A picture
figure: curves
runs_of: runs
options: {of: bound}
"""
# Keys of names, such as those of scores, data sets and curves, and of lists.
NAMES = {"paper", "at", "options_of", "panels", "ways", "datasets", "model", "scores", "rows_of", "lower_is_better"}
TEXTS = {"runs": RUNS, "other": OTHER, "study": STUDY, "figure": FIGURE}


@pytest.fixture
def recipe_of(tmp_path):
    def read(name, old="", new=""):
        for stem, text in TEXTS.items():
            (tmp_path / f"{stem}.yaml").write_text(text.replace(old, new) if stem == name and old else text)
        return read_recipe(tmp_path / f"{name}.yaml")

    return read


def test_options_of_a_row_override_those_of_its_data_set(recipe_of):
    options = {cell.key[:2]: cell.options for cell in recipe_of("runs").suite.cells()}
    assert options["here", "first"] == {"n_latent": 4, "max_epochs": 2, "batch_size": 10}
    assert options["there", "first"] == {"n_latent": 3, "max_epochs": 2, "batch_size": 10}
    assert options["here", "bare"] == {}


def test_other_scores_of_the_same_runs(recipe_of):
    whole, other = recipe_of("runs"), recipe_of("other")
    cells = {cell.key: cell for cell in whole.suite.cells()}
    assert other.suite.name == whole.suite.name  # so that records are found
    assert other.scores == ("train_seconds",)
    assert [cell.row for cell in other.suite.cells()] == ["bare", "bare"]
    assert all(cells[cell.key].options == cell.options for cell in other.suite.cells())
    assert other.suite.rows[0].paper == {"there": {"train_seconds": 5}}


def test_kinds(recipe_of):
    assert [recipe_of(name).kind for name in TEXTS] == ["runs", "runs", "study", "figure"]
    assert recipe_of("study").study_rows[0].at == {"AUC": ("bibtex", 0)}
    assert recipe_of("study").studies == ("topics",)
    assert recipe_of("figure").suite == recipe_of("runs").suite


@pytest.mark.parametrize(
    ("name", "old", "new", "line", "told"),
    [
        ("runs", "where:", "were:", 2, "were: unknown key"),
        ("runs", "title:", "name:", 1, "no title"),
        ("runs", "plain: true", "plain: 1", 11, "rows: bare: plain: 1; expected true"),
        (
            "runs",
            "here: {n_latent",
            "her: {n_latent",
            7,
            "defaults: options_of: her: no row is run on this data set",
        ),
        ("other", "bare:", "best:", 5, "rows: best: unknown row; expected one of those of runs: first, bare"),
        ("other", "runs_of: runs", "runs_of: study", 2, "runs_of: 'study'; expected a recipe whose rows are run"),
        ("other", "runs_of: runs", "runs_of: figure", 2, "runs_of: 'figure'; expected a recipe whose rows are run"),
        ("other", "paper", "papers", 5, "rows: bare: papers: unknown key"),
        ("other", "there: {", "nowhere: {", 5, "no row is run on this data set"),
        ("study", "at: {AUC: [bibtex, 0]}, ", "", 5, "rows: here: at: None; expected a list of keys"),
        ("study", "paper: {AUC", "paper: {P@1", 5, "rows: here: paper: P@1: unknown key; expected one of AUC"),
        ("study", "[AUC]", "AUC", 3, "scores: 'AUC'; expected a list of scores"),
        ("figure", "options: {of: bound}", "options: bound", 4, "options: 'bound'; expected a mapping"),
        ("figure", "runs_of", "rows_of", 3, "rows_of: unknown key"),
        (
            "runs",
            "where:",
            "lower_is_better: [[P@1]]\nwhere:",
            2,
            "lower_is_better: [['P@1']]; expected a list of some",
        ),
        ("other", "runs_of: runs", "runs_of: ../runs", 2, "runs_of: '../runs'; expected the name of a recipe in"),
        ("other", "runs_of: runs", "runs_of: other", 2, "runs_of: 'other', which refers back"),
        ("other", "{paper", "{worse: 3, paper", 5, "rows: bare: worse: 3; expected a sentence"),
        ("figure", "runs_of: runs", "runs_of: table", 3, "runs_of: 'table'; expected the name of a recipe in"),
        ("study", "paper: {AUC: 0.9}", "paper: {AUC: high}", 5, "rows: here: paper: AUC: 'high'; expected a number"),
        ("study", "[bibtex, 0]", "[[bibtex]]", 5, "rows: here: at: {'AUC': [['bibtex']]}; expected a list of keys"),
    ],
)
def test_a_mistake_is_reported_with_its_line(recipe_of, name, old, new, line, told):
    with pytest.raises(DataError) as caught:
        recipe_of(name, old, new)
    assert told in str(caught.value)
    assert caught.value.line == line


def test_recipes_that_refer_to_each_other_are_refused(tmp_path):
    for one, other in (("a", "b"), ("b", "a")):
        (tmp_path / f"{one}.yaml").write_text(OTHER.replace("runs_of: runs", f"runs_of: {other}"))
    with pytest.raises(DataError, match=r"b.yaml:2: runs_of: 'a', which refers back to this file"):
        read_recipe(tmp_path / "a.yaml")


STRANGE = (None, [], ["x"], [["x"]], [{}], {}, {"x": 1}, {1: None}, 0, 3, -1.5, float("nan"), True, "", "x/y", date.min)
WHOLE = {
    "where": "here",
    "notes": "some",
    "lower_is_better": ["bound"],
    "budgets": {"full": {}},
    "seeds": 2,
    "reference": "first",
    "by_epoch": True,
}
LEFT = "title: left out\nleft-out:\n- {where: there, why: so}\n"


def changed(content):
    """Replace each value by everything else that YAML can hold, one at a time."""
    for key in content if isinstance(content, dict) else range(len(content)) if isinstance(content, list) else ():
        for value in (*STRANGE, *changed(content[key])):
            copy = content.copy()
            copy[key] = value
            yield copy


@pytest.mark.parametrize("name", [*TEXTS, "left-out"])
def test_any_content_is_read_or_refused_with_its_line(recipe_of, tmp_path, monkeypatch, name):
    if name != "left-out":
        recipe_of(name)
    monkeypatch.setattr(recipes, "RECIPES", tmp_path)
    content = yaml.safe_load({**TEXTS, "left-out": LEFT}[name]) | (WHOLE if name == "runs" else {})
    path, lines = tmp_path / f"{name}.yaml", []
    for other in changed(content):
        path.write_text(yaml.dump(other, Dumper=getattr(yaml, "CSafeDumper", yaml.SafeDumper)))
        try:
            left_out() if name == "left-out" else read_recipe(path)
        except DataError as error:
            lines.append(error.line)
    assert len(lines) > 20
    assert None not in lines


def test_a_recipe_that_is_not_there():
    for name in ("table", "../recipes/journal-table-4"):
        with pytest.raises(LabelfieldError, match=f"no recipe '{name}'; `python -m benchmarks recipe list`"):
            read_recipe(name)


# Those of the repository


@pytest.mark.parametrize("name", recipe_names())
def test_every_row_is_a_model_that_can_be_made(name):
    recipe = read_recipe(name)
    assert recipe.title
    assert recipe.where
    for cell in recipe.suite.cells() if recipe.kind == "runs" else ():
        if cell.method is not None:
            check_parameters(new_estimator(cell.method, cell.options))


@pytest.mark.parametrize("name", recipe_names())
def test_what_was_published_is_shown(name):
    recipe = read_recipe(name)
    for row in recipe.suite.rows if recipe.kind == "runs" else ():
        for scores in row.paper.values():
            assert set(scores) <= set(recipe.scores)


# Numbers that the paper does not print as such: how they follow from what it prints is said beside them.
DERIVED = {"svdkl-figure-2": {"1.44"}}  # 0.39 s / 0.27 s
# What recipes call papers, and the file of each.
PAPERS = {"subspace": "000", "journal": "001", "thesis": "002", "svdkl": "003", "topics": "004"}


@cache
def paper_text(prefix):
    folder = DATA.parent / "papers"
    found = [*folder.glob(f"{PAPERS[prefix]}_*.txt")]
    if not found:
        pytest.skip(f"the papers are not at {folder}")
    return found[0].read_text(encoding="utf-8")


def published_numbers(recipe):
    """Yield the published numbers of a recipe as it writes them, with all digits."""
    for line in recipe.path.read_text(encoding="utf-8").splitlines():
        if line.lstrip().startswith("#") or "seconds" in line:  # seconds are those of hours or minutes there
            continue
        if "paper:" in line or re.match(r" {6}[\w-]+: \{", line):
            body = line.partition("paper:")[2] or line.partition(": ")[2]
            yield from re.findall(r"(?:[\w@%]): (\d+\.\d+)", body.partition("#")[0])


@pytest.mark.parametrize("name", recipe_names())
def test_published_numbers_are_printed_in_the_paper(name):
    """A number that was mistyped is in no table of the paper."""
    text, recipe = paper_text(name.split("-")[0]), read_recipe(name)
    numbers = set(re.findall(r"(?<![\d.])\d*\.\d+", text))
    known = {number.rstrip("0").rstrip(".").lstrip("0") for number in numbers}
    for number in published_numbers(recipe):
        plain = number.rstrip("0").rstrip(".").lstrip("0")
        others = 100 * float(number), 100 - float(number)  # shares that are printed in percent, and errors
        found = plain in known or any(f"{other:.6g}" in known for other in others)
        assert found or number in DERIVED.get(name, ()), number


@pytest.mark.parametrize("name", recipe_names())
def test_every_key_has_a_comment_where_it_is_first_used(name):
    file = YamlFile.read(RECIPES / f"{name}.yaml")
    lines = file.path.read_text().splitlines()
    seen = set()
    for where, number in file.lines.items():
        is_name = len(where) == 2 and where[0] == "rows"
        if not where or is_name or where[-1] in {*seen, "worse"} or set(where[:-1]) & NAMES:
            continue
        seen.add(where[-1])
        # Beside it, or above it if several are on a line.
        near = lines[max(0, number - 2) : number]
        assert any("#" in line for line in near), f"{name}.yaml:{number}: {where[-1]} has no comment"
    assert "title" in seen


def test_what_is_left_out_has_a_reason():
    assert len(left_out()) > 10
    assert all(entry.where and entry.why for entry in left_out())
