"""docs/GPU_TESTS.md: which tests need a GPU, and where they were last run."""

from __future__ import annotations

from benchmarks.record import Records, command_of
from benchmarks.studies.gpu_tests import files_with_gpu_tests
from benchmarks.tables.text import machine_shown, markdown_table

__all__ = ["gpu_tests_page"]

_NAME = "gpu-tests"
_HEAD = f"""# Tests on a GPU

Made by `python -m benchmarks table`. Tests that need a GPU are skipped where there is none; most numbers of
[PAPERS.md](PAPERS.md) come from one. `python -m benchmarks bench {_NAME}` runs all of them on a machine with a GPU
(those with the pytest marker `cuda`) and records how each file went.

"""


def gpu_tests_page(records: Records) -> str:
    """Write the page, from the last record of the tests, or saying that there is none."""
    record, files = records.studies.get(_NAME), files_with_gpu_tests()
    if record is None:
        listed = "".join(f"- `{name}`\n" for name in files)
        return f"{_HEAD}No run has been recorded. These files have such tests:\n\n{listed}"
    results = record["results"]
    rows = [
        [f"`{name}`", *(str(own[how]) for how in ("passed", "failed", "skipped"))]
        for name, own in results["files"].items()
    ]
    rows += [[f"`{name}`", "never", "", ""] for name in files if name not in results["files"]]
    failed = "".join(f"- `{name}` failed\n" for name in results["failed"])
    machine = f"{record['machine']['accelerator']}, {machine_shown(record['machine'])}"
    came = f"Last run at {record['commit']} on {machine}, by `{command_of(record)}`.\n\n"
    return f"{_HEAD}{came}{markdown_table(['file', 'passed', 'failed', 'skipped'], rows)}{failed and chr(10) + failed}"
