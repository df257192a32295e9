"""The task and the answer of a script in a peer's environment. Needs only the standard library.

`python SCRIPT TASK.json`: the task names text files of training and test rows (header `rows features labels`, then
`label,label index:value …`), the number of labels wanted per row, threads, a seed and options. The script writes lines
`label:score …` and, as JSON, seconds and the size of its saved model. Training includes reading its rows, which some
packages do in the same call; prediction is from rows in memory to lists of labels.
"""

import json
import sys
import time
from contextlib import contextmanager
from pathlib import Path

__all__ = ["Clock", "finish", "folder_bytes", "pairs", "task"]


def task():
    """Read the task."""
    return json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))


class Clock(dict):
    """Seconds of named blocks."""

    @contextmanager
    def __call__(self, name):
        """Time a block."""
        started = time.perf_counter()
        yield
        self[f"{name}_seconds"] = time.perf_counter() - started


def pairs(path):
    """Yield each row of a text file as a list of (index, value)."""
    with Path(path).open(encoding="utf-8") as lines:
        next(lines)
        for line in lines:
            entries = (part.split(":") for part in line.split() if ":" in part)
            yield [(int(index), float(value)) for index, value in entries]


def folder_bytes(path):
    """Return the size of a file, or of all files of a folder."""
    path = Path(path)
    return sum(file.stat().st_size for file in ([path] if path.is_file() else path.rglob("*")) if file.is_file())


def finish(asked, clock, ranked, model_bytes):
    """Write the ranked labels, as (label, score) with the best first, and the rest of the answer."""
    with Path(asked["predictions"]).open("w", encoding="utf-8") as lines:
        for row in ranked:
            lines.write(" ".join(f"{label}:{score!r}" for label, score in row) + "\n")
    Path(asked["answer"]).write_text(json.dumps({**clock, "model_bytes": model_bytes}), encoding="utf-8")
