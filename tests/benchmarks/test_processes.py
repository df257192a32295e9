"""The cost of a process is measured, and none of it outlives a run."""

import os
import signal
import subprocess
import sys
import time
from threading import Thread, main_thread

import pytest

from benchmarks.measuring.processes import run_process
from benchmarks.paths import ROOT


def python(*lines):
    return [sys.executable, "-S", "-c", "\n".join(lines)]


def test_seconds_cores_and_memory_are_those_of_the_command(tmp_path):
    idle = run_process(python("import time", "time.sleep(0.4)"), log=tmp_path / "log")
    busy = run_process(
        python("import time", "x = bytearray(b'1') * (200 * 2**20)", "while time.process_time() < 0.4: pass"),
        log=tmp_path / "log",
    )
    assert idle.code == busy.code == 0
    assert idle.seconds >= 0.4
    assert idle.cpu_seconds < 0.3
    assert busy.cpu_seconds >= 0.4
    assert busy.peak_mb - idle.peak_mb == pytest.approx(200, abs=20)


@pytest.mark.skipif(
    not os.path.exists("/proc/self/smaps_rollup"), reason="only Linux tells the memory of several processes"
)
def test_memory_of_children_is_added_up(tmp_path):
    child = "import time; x = bytearray(b'1') * (60 * 2**20); time.sleep(1.2)"
    command = python(
        "import subprocess, sys",
        f"children = [subprocess.Popen([sys.executable, '-S', '-c', {child!r}]) for _ in range(2)]",
        "[one.wait() for one in children]",
    )
    assert run_process(command, log=tmp_path / "log").peak_mb > 120


def test_a_failure_keeps_its_output(tmp_path):
    failed = run_process(python("raise SystemExit('out of luck')"), log=tmp_path / "log")
    assert failed.code == 1
    assert failed.errors.endswith("out of luck")


@pytest.fixture
def interrupts():
    """SIGINT raises KeyboardInterrupt, also where a shell started these tests in the background and ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interrupts")
def test_an_interrupt_ends_the_process_and_its_children(tmp_path):
    started = tmp_path / "pids"
    command = python(
        "import os, subprocess, sys",
        "child = subprocess.Popen(['sleep', '60'])",
        f"open({str(started)!r}, 'w').write(f'{{os.getpid()}} {{child.pid}} ')",
        "child.wait()",
    )

    def interrupt():
        wait_until(lambda: started.exists() and started.read_text().endswith(" "))
        signal.pthread_kill(main_thread().ident, signal.SIGINT)

    Thread(target=interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        run_process(command, log=tmp_path / "log")
    for pid in map(int, started.read_text().split()):
        wait_until(lambda pid=pid: not is_running(pid))


def test_a_process_ends_when_the_one_that_asked_for_it_is_killed(tmp_path):
    started = tmp_path / "pid"
    asked = python(
        f"open({str(started)!r}, 'w').write(str(__import__('os').getpid()) + ' ')", "__import__('time').sleep(60)"
    )
    asking = "from pathlib import Path; from benchmarks.measuring.processes import run_process; "
    asking += f"run_process({asked!r}, log=Path({str(tmp_path / 'log')!r}))"
    process = subprocess.Popen([sys.executable, "-c", asking], cwd=ROOT)
    wait_until(lambda: started.exists() and started.read_text().endswith(" "))
    process.kill()
    process.wait()
    pid = int(started.read_text())
    wait_until(lambda: not is_running(pid))


def wait_until(condition, seconds=20):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def is_running(pid):
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] not in ("Z", "X")
    except (FileNotFoundError, ProcessLookupError):  # it may end between opening and reading
        return False
