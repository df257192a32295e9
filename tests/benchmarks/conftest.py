import sys
from pathlib import Path

import pytest


@pytest.fixture
def quick(monkeypatch):
    """A model that starts at once; tests/bench/test_run.py runs a real one."""
    monkeypatch.setattr(
        "labelfield.bench.run._OURS", [sys.executable, "-S", str(Path(__file__).with_name("stand_in.py"))]
    )
