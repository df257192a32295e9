"""bench: run a suite of methods on data sets, record it, and make tables of the records."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from typer.core import TyperGroup

from labelfield.bench import (
    Cell,
    Choices,
    checkout,
    find_suite,
    latest_cells,
    load_records,
    read_suite,
    records_folder,
    run_cells,
    suite_names,
)
from labelfield.bench.scoreboard import scoreboard
from labelfield.bench.studies import run_study, studies
from labelfield.cli.interrupt import interruptible
from labelfield.cli.output import print_table, say
from labelfield.errors import LabelfieldError

__all__ = ["bench"]


class _SuiteGroup(TyperGroup):
    """`bench NAME` is `bench run NAME`, unless the name is a command of its own."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        is_suite = bool(args) and not args[0].startswith("-") and args[0] not in self.commands
        return super().resolve_command(ctx, ["run", *args] if is_suite else args)


bench = typer.Typer(
    cls=_SuiteGroup,
    no_args_is_help=True,
    help="Run a suite (`labelfield bench SUITE`), list suites, or make tables of what was recorded.",
)

Records = Annotated[
    Path | None, typer.Option("--records", help="The folder of records. Default: the repository's, or ./records.")
]


@bench.command()
@interruptible
def run(
    suite: Annotated[str, typer.Argument(help="A suite of `labelfield bench list`, or the path of a .yaml file.")],
    only: Annotated[
        list[str] | None, typer.Option("--only", help="A data set, a row, or DATA SET/ROW; again and again.")
    ] = None,
    data: Annotated[
        Path | None, typer.Option("--data", help="The folder of data sets. Default: LABELFIELD_DATA.")
    ] = None,
    records: Records = None,
    device: Annotated[
        Literal["auto", "cpu", "cuda"] | None, typer.Option("--device", help="Where our models compute.")
    ] = "cpu",
    jobs: Annotated[int, typer.Option("--jobs", min=1, help="Cells at a time; more than one spoils the times.")] = 1,
    again: Annotated[
        bool, typer.Option("--again", help="Measure also what was measured at this commit on this machine.")
    ] = False,
) -> None:
    """Measure every data set × row × budget × seed of a suite in a fresh process, and append a record of each.

    An interrupted run goes on where it stopped. Peers are installed on first use, each in an environment of its own.

    Example: labelfield bench quick
    """
    if suite in studies():
        raise typer.Exit(run_study(suite))
    found = read_suite(find_suite(suite))
    parts = [f"--only {shlex.quote(name)}" for name in only or []]
    command = " ".join(["labelfield bench", suite, *parts, *([f"--device {device}"] if device != "cpu" else [])])
    wanted = _chosen(only, list(found.cells()))
    n_measured = n_skipped = 0
    choices = Choices(data, records, device, jobs, again, wanted, command)
    for cell, record in run_cells(found, choices):
        if "skipped" in record:
            n_skipped += 1
            say(f"{_called(cell)}: skipped, {record['skipped']}")
            continue
        n_measured += 1
        scores = ", ".join(f"{name} {record['scores'][name]:.4g}" for name in found.scores if name in record["scores"])
        say(f"{_called(cell)}: {record['train_seconds']:.1f} s, {record['peak_mb']:.0f} MB, {scores}")
    folder = records or records_folder()
    say(f"{n_measured} measured, {n_skipped} skipped; records: {folder / f'{found.name}.jsonl'}")
    print(scoreboard(found, latest_cells(load_records(folder).get(found.name, []))), end="")


def _called(cell: Cell) -> str:
    parts = [cell.dataset, cell.row, *([cell.budget] if cell.budget != "full" else [])]
    return " · ".join([*parts, *([f"seed {cell.seed}"] if cell.seed else [])])


def _chosen(only: list[str] | None, cells: list[Cell]) -> Any:
    """Which cells are meant; a name that means none is wrong usage."""
    if not only:
        return None
    names = set(only)
    known = {name for cell in cells for name in _names(cell)}
    if unknown := names - known:
        raise typer.BadParameter(f"--only {min(unknown)}; there are {', '.join(sorted({c.row for c in cells}))}")
    return lambda cell: bool(names & _names(cell))


def _names(cell: Cell) -> set[str]:
    return {cell.dataset, cell.row, f"{cell.dataset}/{cell.row}"}


@bench.command("list")
def list_suites() -> None:
    """List the suites that come with the package, and in its repository the studies."""
    rows = [[name, read_suite(find_suite(name)).title] for name in suite_names()]
    rows += [[name, what] for name, what in studies().items()]
    print_table("suites", ["name", "what it measures"], rows)


@bench.command()
def table(
    check: Annotated[
        bool, typer.Option("--check", help="Write nothing; exit with 1 where a page is not up to date.")
    ] = False,
) -> None:
    """Make the tables of README.md and docs/ from the records, in the repository.

    Example: labelfield bench table
    """
    root = checkout()
    if root is None:
        raise LabelfieldError("there is no repository around this package whose pages could be made")
    command = [sys.executable, "-m", "benchmarks.tables", *(["--check"] if check else [])]
    raise typer.Exit(subprocess.run(command, cwd=root, check=False).returncode)  # noqa: S603  # our own module
