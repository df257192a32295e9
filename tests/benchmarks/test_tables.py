"""The numbers in README and docs are those of the records."""

import pytest

from benchmarks.paths import RECORDS
from benchmarks.record import Records
from benchmarks.studies.registry import STUDIES
from benchmarks.tables import pages, studies
from benchmarks.tables.text import markdown_table


@pytest.mark.parametrize("name", STUDIES)
def test_every_study_is_a_function_and_has_a_record(name):
    assert callable(STUDIES[name].load())
    unmeasured = (
        "gpu-tests",
        "gpu-revealed",
        "gpu-deep-written",
        "gpu-mnist-written",
        "topics-few-written",
        "active-text",
        "beyond",
    )
    if name not in unmeasured:  # whose pages say that nothing was measured
        assert (RECORDS / f"{name}.jsonl").is_file()


PAGES = pages.pages()


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_pages_are_made_from_the_records(path):
    assert path.read_text() == PAGES[path], "run `python -m benchmarks table`"


def test_another_number_makes_another_page():
    """The test above can fail: every headline score of the front page comes from a record."""
    text, records = pages.README.read_text(), Records.load(RECORDS)
    assert pages.front_page(text, records) == text
    for record in records.runs["scoreboard"]:
        if "skipped" not in record:
            record["scores"]["P@1"] += 1
    assert pages.front_page(text, records) != text


def test_a_step_is_compared_with_every_peer_that_was_measured():
    step = {"full_q_seconds": 0.5, "full_q_peak_mb": 100.0, "default_q_seconds": 0.1}
    step |= {"gpytorch_seconds": 10.0, "gpytorch_peak_mb": 400.0, "gpflow_seconds": 5.0, "gpflow_peak_mb": 300.0}
    rows = studies._steps("P=2, M=3", step)
    assert [row[1] for row in rows] == ["20×", "4.0×", "100×", "10×", "3.0×", "50×"]
    left_out = {key: value for key, value in step.items() if not key.startswith("gpflow")}
    rows = studies._steps("P=2, M=3", left_out | {"gpflow_skipped": "no interpreter"})
    assert rows[-1] == ["a step of the papers' model, P=2, M=3: GPflow, compiled, over ours", "skipped: no interpreter"]


def test_markdown():
    assert markdown_table(["row", "data", "P@1"], [["ours", "bibtex", "65.8"]]) == (
        "| row | data | P@1 |\n| --- | --- | --: |\n| ours | bibtex | 65.8 |\n"
    )
    assert markdown_table(["a|b"], [["c|d"]]) == "| a\\|b |\n| --- |\n| c\\|d |\n"
    assert markdown_table(["what", "why"], []) == "| what | why |\n| --- | --- |\n"
