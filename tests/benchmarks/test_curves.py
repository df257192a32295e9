"""Pictures of training runs come from the records of runs."""

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

    def write(name, history_of, n_starts=1):
        recipe = read_recipe(name)
        for cell in recipe.suite.cells():
            if cell.seed < n_starts:
                head = dict(zip(("dataset", "row", "budget", "seed"), cell.key, strict=True))
                what = {"method": cell.method, "options": cell.options, "history": history_of(cell.seed)}
                append_record(tmp_path, recipe.suite.name, {**head, **what})
        return recipe

    return write


def test_curves_are_means_over_random_starts(recorded, tmp_path):
    recipe = recorded("journal-figure-5", lambda seed: {"bound": [-9.0, -8.0, -7.0, -6.0 - seed]}, n_starts=2)
    found = draw(recipe, "cpu")
    assert found["bound at the end"] == {dataset: {"LR": -6.5, "SE": -6.5} for dataset in recipe.suite.datasets}
    picture = (tmp_path / recipe.options["picture"]).read_bytes()
    draw(recipe, "cpu")
    assert (tmp_path / recipe.options["picture"]).read_bytes() == picture
    (tmp_path / f"{recipe.suite.name}.jsonl").unlink()
    again = "`python -m benchmarks recipe run journal-table-7`"
    with pytest.raises(LabelfieldError, match=f"LR on bibtex was not run; use {again}"):
        draw(recipe, "cpu")


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
        assert drawn <= {row.name for row in recipe.suite.rows}
        assert recipe.options["of"] == "bound" or recipe.suite.by_epoch
