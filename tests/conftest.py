import os
import signal
from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("default", deadline=None, derandomize=True, max_examples=20)
settings.load_profile("default")

DATA = Path(os.environ.get("LABELFIELD_DATA", Path(__file__).parents[2] / "shared" / "data"))


def pytest_collection_modifyitems(items):
    """Mark tests that need a GPU, so that they can be run alone where there is one."""
    for item in items:
        reasons = [mark.kwargs.get("reason", "") for mark in item.iter_markers("skipif")]
        if any(reason.startswith(("needs a CUDA", "needs a GPU")) for reason in reasons):
            item.add_marker("cuda")


@pytest.fixture
def real_data():
    """A function from the name of a real data set to its folder; skips the test where the data are missing."""

    def find(name: str) -> Path:
        folder = DATA / name
        if not folder.is_dir():
            pytest.skip(f"the real data set {name} is not at {folder}; set LABELFIELD_DATA to the folder that holds it")
        return folder

    return find


@pytest.fixture
def interrupt_after():
    """A callback for training that sends this process a signal after so many steps; it counts them in `steps`."""

    class Interrupt:
        def __init__(self, n_steps, number=signal.SIGTERM):
            self.n_steps, self.number, self.steps = n_steps, number, 0

        def __call__(self, run, n_steps):
            self.steps += 1
            if self.steps == self.n_steps:
                os.kill(os.getpid(), self.number)

    return Interrupt


@pytest.fixture
def in_double():
    """float64 as torch's default type, with torch's generator seeded."""
    import torch

    torch.set_default_dtype(torch.float64)
    torch.manual_seed(0)
    yield
    torch.set_default_dtype(torch.float32)
