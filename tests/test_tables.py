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
    text = tables.TOPICS.read_text()
    assert "| share % |" in text
    assert tables.topic_page(text, records) == text, "run `make tables`"


def test_a_step_is_compared_with_every_peer_that_was_measured():
    step = {"full_q_seconds": 0.5, "full_q_peak_mb": 100.0, "default_q_seconds": 0.1}
    step |= {"gpytorch_seconds": 10.0, "gpytorch_peak_mb": 400.0, "gpflow_seconds": 5.0, "gpflow_peak_mb": 300.0}
    rows = tables._steps("P=2, M=3", step)
    assert [row[1] for row in rows] == ["20×", "4.0×", "100×", "10×", "3.0×", "50×"]
    left_out = {key: value for key, value in step.items() if not key.startswith("gpflow")}
    assert len(tables._steps("P=2, M=3", left_out | {"gpflow_skipped": "no interpreter"})) == 3
