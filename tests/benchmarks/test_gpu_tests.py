"""The page of tests on a GPU says what was run, and nothing where nothing was."""

from xml.etree import ElementTree as ET

from benchmarks.record import Records
from benchmarks.studies.gpu_tests import counted
from benchmarks.tables.gpu_tests import gpu_tests_page

REPORT = """<testsuites><testsuite>
<testcase classname="tests.inference.test_stepper" name="test_a"/>
<testcase classname="tests.inference.test_stepper.TestGraph" name="test_b"><failure>no</failure></testcase>
<testcase classname="tests.data.test_batch" name="test_c[cuda]"><skipped/></testcase>
</testsuite></testsuites>"""


def test_the_page_says_where_they_were_run():
    results = counted(ET.fromstring(REPORT))
    assert results["files"]["tests/inference/test_stepper.py"] == {"passed": 1, "failed": 1, "skipped": 0}
    machine = {"cpu": "a CPU", "cores": 2, "accelerator": "a GPU", "memory_gib": 4.0}
    record = {
        "study": "gpu-tests",
        "command": "python -m benchmarks bench gpu-tests",
        "commit": "abc",
        "machine": machine,
    }
    page = gpu_tests_page(Records.of({"gpu-tests": [{**record, "results": results}]}))
    assert "Last run at abc on a GPU, a CPU, 2 cores, 4 GiB" in page
    assert "| `tests/inference/test_stepper.py` | 1 | 1 | 0 |" in page
    assert "- `tests/inference/test_stepper.py::test_b` failed" in page
    assert "| `tests/topics/test_devices.py` | never |" in page


def test_without_a_record_it_says_so():
    page = gpu_tests_page(Records.of({}))
    assert "No run has been recorded" in page
    assert "- `tests/inference/test_stepper.py`" in page


def test_tests_that_need_a_gpu_can_be_run_alone(pytestconfig, request):
    marked = {item.path.name for item in request.session.items if item.get_closest_marker("cuda")}
    skipped = {
        item.path.name
        for item in request.session.items
        for mark in item.iter_markers("skipif")
        if "CUDA" in mark.kwargs.get("reason", "")
    }
    assert skipped <= marked
