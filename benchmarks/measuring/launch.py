"""`python launch.py USAGE.json COMMAND …`: run a command and write what it cost. Needs only the standard library.

A process inherits the peak memory of the process that started it. This one is small, so that the measured peak is the
command's own.
"""

import json
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path
from threading import Thread

__all__: list[str] = []


def _end_with(parent: int) -> None:
    """Kill this process group once its parent is gone, even if that was killed."""
    while os.getppid() == parent:
        time.sleep(0.5)
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    started = time.perf_counter()
    Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    code = subprocess.call(sys.argv[2:])
    seconds = time.perf_counter() - started
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    unit = 2**20 if sys.platform == "darwin" else 2**10  # ru_maxrss is in bytes there, in kilobytes elsewhere
    spent = {"code": code, "seconds": seconds, "cpu_seconds": usage.ru_utime + usage.ru_stime}
    Path(sys.argv[1]).write_text(json.dumps({**spent, "peak_mb": usage.ru_maxrss / unit}), encoding="utf-8")
