"""Studies: measurements of the repository that are no grid of methods, such as the cost of a step or of reading."""

from __future__ import annotations

import ast
import subprocess
import sys

from labelfield.bench.places import checkout

__all__ = ["run_study", "studies"]


def studies() -> dict[str, str]:
    """What studies the repository around this package has, and what each is; none where there is no repository."""
    root = checkout()
    if root is None:
        return {}
    for node in ast.parse((root / "benchmarks" / "run.py").read_text(encoding="utf-8")).body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id == "STUDIES":
            assert node.value is not None
            return dict(ast.literal_eval(node.value))
    return {}


def run_study(name: str) -> int:
    """Run one in a process of its own; its exit code."""
    command = [sys.executable, "-m", "benchmarks.run", name]
    return subprocess.run(command, cwd=checkout(), check=False).returncode  # noqa: S603  # our own module
