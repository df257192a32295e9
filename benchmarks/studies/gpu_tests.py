"""The tests that need a GPU, run where there is one: how each went."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

from benchmarks.paths import ROOT

__all__ = ["files_with_gpu_tests", "run_on_gpu"]


def run_on_gpu() -> dict[str, Any]:
    """Run all tests with the marker `cuda`, slow ones too, and return by file how many passed, failed, were skipped."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        options = ["-m", "cuda", "-o", "addopts=--import-mode=importlib --strict-markers", f"--junitxml={report}"]
        # Only the files that have such tests: others may need packages that a machine with a GPU does not have.
        subprocess.run([sys.executable, "-m", "pytest", "-q", *options, *files_with_gpu_tests()], cwd=ROOT, check=False)
        return counted(ET.parse(report).getroot())


def files_with_gpu_tests() -> list[str]:
    """Return the files that have tests with a condition on a GPU."""
    found = sorted((ROOT / "tests").rglob("test_*.py"))
    return [str(path.relative_to(ROOT)) for path in found if re.search(r"needs a (CUDA|GPU)", path.read_text())]


def counted(report: ET.Element) -> dict[str, Any]:
    """Return how many tests of each file passed, failed and were skipped, and the names of those that failed."""
    files: dict[str, dict[str, int]] = {}
    failed = []
    for case in report.iter("testcase"):
        kinds = {part.tag for part in case}
        how = "failed" if kinds & {"failure", "error"} else "skipped" if "skipped" in kinds else "passed"
        where = case.get("classname", "").split(".Test")[0].replace(".", "/") + ".py"
        own = files.setdefault(where, {"passed": 0, "failed": 0, "skipped": 0})
        own[how] += 1
        if how == "failed":
            failed.append(f"{where}::{case.get('name')}")
    return {"files": files, "failed": failed}
