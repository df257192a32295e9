"""Pictures of training runs come from the records of runs."""

import re
from dataclasses import replace

import pytest

from benchmarks import paths
from benchmarks.figures.registry import FIGURES, draw
from benchmarks.recipes import read_recipe, recipe_names
from benchmarks.record import append_record
from labelfield.errors import LabelfieldError


@pytest.fixture
def recorded(tmp_path, monkeypatch):
    """A function that records the first starts of what a figure draws, and returns its recipe.

    Pictures go where the records are.
    """
    monkeypatch.setattr(paths, "RECORDS", tmp_path)
    monkeypatch.setattr(paths, "IMAGES", tmp_path)

    def write(name, history_of, n_starts=1, is_run=lambda row, dataset: True):
        recipe = read_recipe(name)
        for cell in recipe.suite.cells():
            if cell.seed < n_starts and is_run(cell.row, cell.dataset):
                head = dict(zip(("dataset", "row", "budget", "seed"), cell.key, strict=True))
                what = {"method": cell.method, "options": cell.options, "rank_by": cell.rank_by}
                what["history"] = history_of(cell.seed)
                append_record(tmp_path, recipe.suite.name, {**head, **what})
        return recipe

    return write


def test_curves_are_means_over_random_starts(recorded, tmp_path):
    history = lambda seed: {"bound": [-9.0, -8.0, -7.0, -6.0 - seed]}  # noqa: E731  # short
    recipe = recorded("journal-figure-5", history, n_starts=2, is_run=lambda row, _: "as written" not in row)
    found = draw(recipe, "cpu")
    assert found["bound at the end"] == {dataset: {"LR": -6.5, "SE": -6.5} for dataset in recipe.suite.datasets}
    picture = (tmp_path / recipe.options["picture"]).read_bytes()
    draw(recipe, "cpu")
    assert (tmp_path / recipe.options["picture"]).read_bytes() == picture
    (tmp_path / f"{recipe.suite.name}.jsonl").unlink()
    again = "`python -m benchmarks recipe run journal-table-7`"
    with pytest.raises(LabelfieldError, match=f"LR on bibtex was not run; use {again}"):
        draw(recipe, "cpu")


def test_rows_as_written_are_drawn_where_all_of_a_panel_were_run(recorded):
    def is_run(row, dataset):
        return "as written" not in row or dataset == "bibtex" or row == "LINEAR-PP, as written"

    recipe = recorded("thesis-figure-4.13", lambda _: {"bound": [-9.0, -8.0, -7.0]}, is_run=is_run)
    rows = recipe.options["rows"]
    found = draw(recipe, "cpu")["bound at the end"]
    assert {dataset: [*ends] for dataset, ends in found.items()} == {
        "bibtex": [f"{row}, as written" for row in rows],
        "delicious": rows,
        "eurlex-4k": rows,
    }


def test_no_two_curves_look_alike(recorded, tmp_path):
    """There are more curves in a panel than colours; each is drawn, in a colour or dash of its own."""
    recipe = recorded("thesis-figure-4.1", lambda _: {"bound": [-9.0, -8.0, -7.0], "P@1": [1.0, 2.0, 3.0]})
    rows = [row.name for row in recipe.suite.rows]
    assert len(rows) > 7
    found = draw(replace(recipe, options=recipe.options | {"rows": rows, "of": "bound"}), "cpu")
    assert [*found["bound at the end"]["bibtex"]] == rows
    picture = (tmp_path / recipe.options["picture"]).read_text()
    looks = re.findall(r'style="(fill: none;[^"]*stroke-width: 1.6[^"]*)"', picture)
    assert len(set(looks)) == len(rows)


def test_the_error_is_100_minus_p_at_1(recorded):
    history = {"bound": [-9.0, -8.0, -7.0], "P@1": [90.0, 95.0, 98.5]}
    found = draw(recorded("thesis-figure-4.24", lambda _: history), "cpu")
    assert {*found["error rate % at the end"]["mnist"].values()} == {1.5}
    assert {*found["bound at the end"]["mnist"].values()} == {-7.0}


FIGURE_RECIPES = [recipe for recipe in map(read_recipe, recipe_names()) if recipe.kind == "figure"]


@pytest.mark.parametrize("recipe", FIGURE_RECIPES, ids=lambda recipe: recipe.name)
def test_every_figure_can_be_drawn_and_its_rows_exist(recipe):
    assert recipe.figure in FIGURES
    if recipe.suite is not None:
        panels = recipe.options.get("panels", {})
        drawn = {*recipe.options.get("rows", []), *(row for rows in panels.values() for row in rows)}
        names = {row.name for row in recipe.suite.rows}
        assert all(name in names or f"{name}, as written" in names for name in drawn)
        assert recipe.options["of"] == "bound" or recipe.suite.by_epoch
