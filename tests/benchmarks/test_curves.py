"""Pictures of trainings come from the records of runs."""

import pytest
from labelfield.bench import append_record
from labelfield.bench.recipes import find_recipe, read_recipe, recipe_names

from benchmarks import curves, recipes


@pytest.fixture
def recorded(tmp_path, monkeypatch):
    """A function that records the first starts of what a figure draws; it returns its recipe and the suite of the runs.

    Pictures go where the records are.
    """
    monkeypatch.setattr(curves, "RECORDS", tmp_path)
    monkeypatch.setattr(curves, "_IMAGES", tmp_path)

    def write(name, history_of, n_starts=1):
        recipe = read_recipe(find_recipe(name))
        suite = read_recipe(find_recipe(recipe.runs_of)).suite
        for cell in suite.cells():
            if cell.seed < n_starts:
                head = dict(zip(("dataset", "row", "budget", "seed"), cell.key, strict=True))
                what = {"method": cell.method, "options": cell.options, "history": history_of(cell.seed)}
                append_record(tmp_path, suite.name, {**head, **what})
        return recipe, suite

    return write


def test_curves_are_means_over_random_starts(recorded, tmp_path):
    recipe, suite = recorded("journal-figure-5", lambda seed: {"bound": [-9.0, -8.0, -7.0, -6.0 - seed]}, n_starts=2)
    found = recipes.draw(recipe, "cpu")
    assert found["bound at the end"] == {dataset: {"LR": -6.5, "SE": -6.5} for dataset in suite.datasets}
    picture = (tmp_path / recipe.options["picture"]).read_bytes()
    recipes.draw(recipe, "cpu")
    assert (tmp_path / recipe.options["picture"]).read_bytes() == picture
    (tmp_path / f"{suite.name}.jsonl").unlink()
    with pytest.raises(SystemExit, match="LR on bibtex was not run; labelfield recipe run journal-table-7"):
        recipes.draw(recipe, "cpu")


def test_the_error_is_what_p_at_1_leaves(recorded):
    history = {"bound": [-9.0, -8.0, -7.0], "P@1": [90.0, 95.0, 98.5]}
    found = recipes.draw(recorded("thesis-figure-4.24", lambda _: history)[0], "cpu")
    assert {*found["error rate % at the end"]["mnist"].values()} == {1.5}
    assert {*found["bound at the end"]["mnist"].values()} == {-7.0}


def test_every_figure_can_be_drawn_and_its_rows_are_there():
    for name in recipe_names():
        recipe = read_recipe(find_recipe(name))
        if recipe.kind != "figure":
            continue
        assert recipe.figure in recipes.FIGURES, name
        if recipe.runs_of is not None:
            suite = read_recipe(find_recipe(recipe.runs_of)).suite
            panels = recipe.options.get("panels", {})
            drawn = {*recipe.options.get("rows", []), *(row for rows in panels.values() for row in rows)}
            assert drawn <= {row.name for row in suite.rows}, name
            assert recipe.options["of"] == "bound" or suite.by_epoch, name
