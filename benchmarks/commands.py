"""bench: run a suite of methods on data sets, record it, and make tables of the records."""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from typer.core import TyperGroup

from labelfield.bench import (
    Cell,
    Choices,
    Suite,
    checkout,
    data_folder,
    find_suite,
    is_failure,
    latest_of,
    load_records,
    read_suite,
    records_folder,
    run_cells,
    suite_names,
)
from labelfield.bench.records import Record
from labelfield.bench.scoreboard import scoreboard
from labelfield.bench.studies import run_study, studies
from labelfield.bench.suite import FULL
from labelfield.cli.interrupt import interruptible
from labelfield.cli.output import print_table, say
from labelfield.errors import LabelfieldError

__all__ = ["Data", "Only", "Records", "bench", "chosen", "command_line", "refuse", "require_some"]


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
    Path | None,
    typer.Option(
        "--records",
        file_okay=False,
        help="The folder of records. Default: the repository's; of files of one's own ./records.",
    ),
]
Data = Annotated[
    Path | None, typer.Option("--data", file_okay=False, help="The folder of data sets. Default: LABELFIELD_DATA.")
]
Only = Annotated[
    list[str] | None,
    typer.Option("--only", help="A data set, a row (with both, the rows on the data sets), or DATA SET/ROW; again."),
]


@bench.command()
@interruptible
def run(
    suite: Annotated[str, typer.Argument(help="A suite of `labelfield bench list`, or the path of a .yaml file.")],
    only: Only = None,
    data: Data = None,
    records: Records = None,
    device: Annotated[
        Literal["auto", "cpu", "cuda"], typer.Option("--device", help="Where our models compute.")
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
        given = {"--only": only, "--data": data, "--records": records, "--jobs": jobs > 1, "--again": again}
        refuse({**given, "--device": device != "cpu"}, f"a suite; {suite} is a study, which is always run as it is")
        raise typer.Exit(run_study(suite))
    found = read_suite(find_suite(suite))
    command = command_line("bench", suite, only=only, data=data, device=device, jobs=jobs)
    wanted, folder = chosen(only, found), records or records_folder(found.path)
    n_measured, skipped = 0, dict[tuple[Any, ...], Record]()
    choices = Choices(data, folder, device, jobs, again, wanted, command)
    for cell, record in run_cells(found, choices):
        if "skipped" in record:
            skipped[cell.key] = record
            say(f"{_called(cell)}: skipped, {record['skipped']}")
            continue
        n_measured += 1
        shown = {**record, **record["scores"]}
        scores = ", ".join(f"{name} {shown[name]:.4g}" for name in found.scores if name in shown)
        say(f"{_called(cell)}: {record['train_seconds']:.1f} s, {record['peak_mb']:.0f} MB, {scores}")
    say(f"{n_measured} measured, {len(skipped)} skipped; records: {folder / f'{found.name}.jsonl'}")
    require_some(found, wanted, skipped)
    # What was skipped now is not shown as it was measured once.
    latest = {**latest_of(found, load_records(folder).get(found.name, [])), **skipped}
    print(scoreboard(found, latest), end="")
    if n_failed := sum(map(is_failure, skipped.values())):
        raise LabelfieldError(f"{n_failed} ended with an error; their lines above say which")


def require_some(suite: Suite, wanted: Callable[[Cell], bool] | None, skipped: Collection[tuple[Any, ...]]) -> None:
    """It is an error where every cell that is meant was skipped: nothing of it was measured, now or before."""
    meant = [cell.key for cell in suite.cells() if wanted is None or wanted(cell)]
    if meant and all(key in skipped for key in meant):
        raise LabelfieldError("nothing was measured, for the reasons told above")


def _called(cell: Cell) -> str:
    parts = [cell.dataset, cell.row, *([cell.budget] if cell.budget != FULL else [])]
    return " · ".join([*parts, *([f"seed {cell.seed}"] if cell.seed else [])])


def chosen(only: list[str] | None, suite: Suite) -> Callable[[Cell], bool] | None:
    """Which cells are meant; a name that means none is wrong usage."""
    if not only:
        return None
    rows, datasets = ({getattr(cell, part) for cell in suite.cells()} for part in ("row", "dataset"))
    pairs = {_pair(cell) for cell in suite.cells()}
    if unknown := set(only) - rows - datasets - pairs:
        there = ", ".join(sorted(rows | datasets))
        raise typer.BadParameter(f"--only {min(unknown)}; there are {there}, and DATA SET/ROW")
    of_rows, on_datasets, exactly = (set(only) & names for names in (rows, datasets, pairs))

    def is_meant(cell: Cell) -> bool:
        if _pair(cell) in exactly:
            return True
        is_row, is_on = cell.row in of_rows, cell.dataset in on_datasets
        return is_row and is_on if of_rows and on_datasets else is_row or is_on

    return is_meant


def _pair(cell: Cell) -> str:
    return f"{cell.dataset}/{cell.row}"


def command_line(
    command: str,
    name: str,
    *,
    only: list[str] | None,
    data: Path | None,
    device: str,
    jobs: int,
    seeds: int | None = None,
) -> str:
    """What measures the same again. The usual folder of data is left out: that differs from machine to machine."""
    given = [part for one in only or [] for part in ("--only", one)]
    given += [] if data is None or data.resolve() == data_folder().resolve() else ["--data", str(data)]
    given += [] if seeds is None else ["--seeds", str(seeds)]
    given += [] if device == "cpu" else ["--device", device]
    given += [] if jobs == 1 else ["--jobs", str(jobs)]
    return shlex.join(["labelfield", *command.split(), name, *given])


def refuse(given: Mapping[str, Any], what_for: str) -> None:
    """Options that would have no effect are wrong usage."""
    for option, value in given.items():
        if value:
            raise typer.BadParameter(f"{option} is for {what_for}")


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
