"""The numbers on the front page are those of the records."""

from benchmarks import tables
from benchmarks.record import ROOT
from benchmarks.run import BENCHMARKS

RECIPES = ROOT / "recipes"


def test_every_benchmark_has_a_record():
    assert set(tables._load()) == {*BENCHMARKS, *(recipe.stem for recipe in RECIPES.glob("*.toml"))}


def test_tables_are_made_from_the_records():
    records = tables._load()
    text = tables.README.read_text()
    assert "| what | measured |" in text
    assert "| eurlex-4k |" in text
    assert tables.front_page(text, records) == text, "run `make tables`"
    assert tables.page(records) == tables.PAGE.read_text(), "run `make tables`"
