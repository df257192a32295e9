"""`python -m benchmarks`: the entry to suites, studies, recipes and tables."""

from __future__ import annotations

from typer.main import get_command

from benchmarks.commands import app
from labelfield.cli.main import run_command

__all__ = ["main"]


def main() -> None:
    """Run a command; every expected failure is one line on stderr."""
    run_command(get_command(app))


if __name__ == "__main__":
    main()
