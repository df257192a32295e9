"""The numbers in README and docs are those of the records."""

import pytest
from benchmarks.run import STUDIES, study
from labelfield.bench import load_records

from benchmarks import sections, tables
from benchmarks.record import RECORDS, load_studies


def test_every_study_has_a_record():
    assert set(STUDIES) <= set(load_studies())


@pytest.mark.parametrize("name", STUDIES)
def test_every_study_is_a_function(name):
    assert callable(study(name))


PAGES = tables.pages()


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_pages_are_made_from_the_records(path):
    assert path.read_text() == PAGES[path], "run `labelfield bench table`"


def test_another_number_makes_another_page():
    """So that the test above can fail: every headline score of the front page comes from a record."""
    text, cells = tables.README.read_text(), load_records(RECORDS)
    assert tables.front_page(text, cells) == text
    for record in cells["scoreboard"]:
        if "skipped" not in record:
            record["scores"]["P@1"] += 1
    assert tables.front_page(text, cells) != text


def test_a_step_is_compared_with_every_peer_that_was_measured():
    step = {"full_q_seconds": 0.5, "full_q_peak_mb": 100.0, "default_q_seconds": 0.1}
    step |= {"gpytorch_seconds": 10.0, "gpytorch_peak_mb": 400.0, "gpflow_seconds": 5.0, "gpflow_peak_mb": 300.0}
    rows = sections._steps("P=2, M=3", step)
    assert [row[1] for row in rows] == ["20×", "4.0×", "100×", "10×", "3.0×", "50×"]
    left_out = {key: value for key, value in step.items() if not key.startswith("gpflow")}
    rows = sections._steps("P=2, M=3", left_out | {"gpflow_skipped": "no interpreter"})
    assert rows[-1] == ["a step of the papers' model, P=2, M=3: GPflow, compiled, over ours", "skipped: no interpreter"]
