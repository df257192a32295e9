"""The commands bench, recipe, table and plots."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from benchmarks import paths
from benchmarks.recipes import Recipe, read_recipe, recipe_names
from benchmarks.record import Key, Record, Records, append_study, command_of
from benchmarks.studies.registry import STUDIES, run_study
from benchmarks.suites.run import Choices, is_failure, run_cells
from benchmarks.suites.suite import FULL, Cell, Suite, read_suite, suite_names
from benchmarks.tables.comparison import compare, long_table
from benchmarks.tables.scoreboard import scoreboard
from labelfield.cli.main import interruptible
from labelfield.cli.options import AsJson, Device
from labelfield.cli.output import print_json, print_table, say
from labelfield.errors import LabelfieldError

__all__ = ["app"]

app = typer.Typer(
    name="python -m benchmarks",
    help="Measure our models beside other packages and beside the papers, and make tables of the records.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
recipe = typer.Typer(
    no_args_is_help=True,
    help="The papers' tables and figures: list them, show published numbers beside ours, run them again.",
)
app.add_typer(recipe, name="recipe")

Name = Annotated[str, typer.Argument(help="A recipe of `recipe list`, or the path of a .yaml file.")]
Only = Annotated[
    list[str] | None,
    typer.Option(
        "--only", help="A data set, a row (with both, these rows on these data sets), or DATA SET/ROW; may be repeated."
    ),
]
Data = Annotated[
    Path | None, typer.Option("--data", file_okay=False, help="The folder of data sets. Default: LABELFIELD_DATA.")
]
RecordsFolder = Annotated[
    Path | None,
    typer.Option(
        "--records", file_okay=False, help="The folder of records. Default: the repository's; else ./records."
    ),
]
Jobs = Annotated[int, typer.Option("--jobs", min=1, help="Runs at a time; more than one distorts the times.")]
Again = Annotated[bool, typer.Option("--again", help="Measure again what was measured at this commit on this machine.")]


@app.command()
@interruptible
def bench(
    name: Annotated[
        str, typer.Argument(help="A suite or study, the path of a .yaml file, or `list` to list suites and studies.")
    ],
    only: Only = None,
    data: Data = None,
    records: RecordsFolder = None,
    device: Device = "cpu",
    jobs: Jobs = 1,
    again: Again = False,
) -> None:
    """Measure every data set × row × budget × seed of a suite in a fresh process, and append a record of each.

    An interrupted run continues where it stopped. Peers are installed on first use, each in an environment of its own.

    Example: python -m benchmarks bench quick
    """
    if name in ("list", *STUDIES):
        given = {"--only": only, "--data": data, "--records": records, "--jobs": jobs > 1, "--again": again}
        _refuse({**given, "--device": device != "cpu"}, "a suite", f"{name} takes no options")
    if name == "list":
        rows = [[name, read_suite(name).title] for name in suite_names()]
        print_table("suites", ["name", "what it measures"], rows + [[name, STUDIES[name].about] for name in STUDIES])
    elif name in STUDIES:
        _run_study(name)
    else:
        suite = read_suite(name)
        command = command_line("bench", name, only=only, data=data, device=device, jobs=jobs)
        folder = records or paths.records_folder(suite.path)
        choices = Choices(data or paths.DATA, folder, device, jobs, again, chosen(only, suite), command)
        _run_suite(
            suite,
            choices,
            lambda found: print(scoreboard(suite, found.latest(suite), found.runs.get(suite.name, [])), end=""),
        )


@recipe.command("list")
def list_recipes(as_json: AsJson = False) -> None:
    """List the recipes of the repository.

    Example: python -m benchmarks recipe list
    """
    found = [read_recipe(name) for name in recipe_names()]
    if as_json:
        print_json({one.name: {"title": one.title, "kind": one.kind} for one in found})
        return
    print_table("recipes", ["name", "what was published"], [[one.name, one.title] for one in found])


@recipe.command()
def show(name: Name, records: RecordsFolder = None, as_json: AsJson = False) -> None:
    """Print published numbers beside ours, from the records.

    Example: python -m benchmarks recipe show thesis-table-4.5
    """
    found = read_recipe(name)
    say(f"{found.path}: {found.where}")
    _print_recipe(found, Records.load(records or found.records), as_json)


@recipe.command("run")
@interruptible
def run_recipe(
    name: Name,
    only: Only = None,
    seeds: Annotated[int | None, typer.Option("--seeds", min=1, help="Random starts, instead of the recipe's.")] = None,
    data: Data = None,
    records: RecordsFolder = None,
    device: Device = "cpu",
    jobs: Jobs = 1,
    again: Again = False,
    as_json: AsJson = False,
) -> None:
    """Run a recipe, and print published numbers beside ours. An interrupted run continues where it stopped.

    Example: python -m benchmarks recipe run thesis-table-4.5 --device cuda --jobs 6
    """
    found = read_recipe(name)
    folder = records or found.records
    if found.kind != "runs":
        given = {"--only": only, "--seeds": seeds, "--data": data, "--records": records, "--jobs": jobs > 1}
        given["--device"] = found.kind == "study" and device != "cpu"
        _refuse(given, "recipes whose rows are run", f"this is a {found.kind}")
        if found.kind == "figure":
            _draw(found, name, device)
        else:
            _run_studies(found, again)
        _print_recipe(found, Records.load(folder), as_json)
        return
    assert found.suite is not None
    suite = found.suite
    if seeds is not None:
        suite = replace(suite, rows=tuple(replace(row, seeds=seeds) for row in suite.rows))
    found = replace(found, suite=suite)
    command = command_line("recipe run", name, only=only, data=data, device=device, jobs=jobs, seeds=seeds)
    choices = Choices(data or paths.DATA, folder, device, jobs, again, chosen(only, suite), command)
    _run_suite(suite, choices, lambda measured: _print_recipe(found, measured, as_json))


@app.command()
def table(
    check: Annotated[bool, typer.Option("--check", help="Write nothing; fail if a page is not up to date.")] = False,
) -> None:
    """Make the tables of README.md and docs/ from the records.

    Example: python -m benchmarks table
    """
    from benchmarks.tables.pages import stale_pages, write_pages

    if check:
        stale = [str(path.relative_to(paths.ROOT)) for path in stale_pages()]
        if stale:
            raise LabelfieldError(f"not up to date: {', '.join(stale)}; use `python -m benchmarks table`")
        return
    for path in write_pages():
        say(f"wrote {path.relative_to(paths.ROOT)}")


@app.command()
def plots() -> None:
    """Draw the pictures of docs/BENCHMARKS.md and the guides from the records of studies.

    Example: python -m benchmarks plots
    """
    from benchmarks.figures.scaling import draw_scaling

    for path in draw_scaling(Records.load(paths.RECORDS).studies):
        say(f"wrote {path}")


def _refuse(given: dict[str, Any], what_for: str, but: str) -> None:
    """Refuse options that would have no effect."""
    for option, value in given.items():
        if value:
            raise typer.BadParameter(f"{option} is for {what_for}; {but}")


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
    """Return the command that measures the same again, without the usual data folder, which differs by machine."""
    given = [part for one in only or [] for part in ("--only", one)]
    given += [] if data is None or data.resolve() == paths.DATA.resolve() else ["--data", str(data)]
    given += [] if seeds is None else ["--seeds", str(seeds)]
    given += [] if device == "cpu" else ["--device", device]
    given += [] if jobs == 1 else ["--jobs", str(jobs)]
    return shlex.join(["python", "-m", "benchmarks", *command.split(), name, *given])


def chosen(only: list[str] | None, suite: Suite) -> Callable[[Cell], bool]:
    """Return which cells --only selects; refuse a name that selects none."""
    if not only:
        return lambda _: True
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


def _run_suite(suite: Suite, choices: Choices, show_records: Callable[[Records], None]) -> None:
    """Run cells with a message for each, then show the records; fail if nothing was measured or something failed."""
    n_measured, skipped = 0, dict[Key, Record]()
    for cell, record in run_cells(suite, choices):
        if "skipped" in record:
            skipped[cell.key] = record
            say(f"{_called(cell)}: skipped, {record['skipped']}")
            continue
        n_measured += 1
        shown = {**record, **record["scores"]}
        scores = ", ".join(f"{name} {shown[name]:.4g}" for name in suite.scores if name in shown)
        say(f"{_called(cell)}: {record['train_seconds']:.1f} s, {record['peak_mb']:.0f} MB, {scores}")
    say(f"{n_measured} measured, {len(skipped)} skipped; records: {choices.records / f'{suite.name}.jsonl'}")
    wanted = [cell.key for cell in filter(choices.wanted, suite.cells())]
    if wanted and all(key in skipped for key in wanted):
        raise LabelfieldError("nothing was measured, for the reasons given above")
    # Earlier measurements of what was skipped now are not shown.
    show_records(Records.load(choices.records).without_measured(suite.name, skipped))
    if n_failed := sum(map(is_failure, skipped.values())):
        raise LabelfieldError(f"{n_failed} of the runs ended with an error; the lines above say which")


def _called(cell: Cell) -> str:
    parts = [cell.dataset, cell.row, *([cell.budget] if cell.budget != FULL else [])]
    return " · ".join([*parts, *([f"seed {cell.seed}"] if cell.seed else [])])


def _run_study(name: str) -> None:
    say(f"{name} …")
    with redirect_stdout(sys.stderr):
        path = run_study(name)
    say(f"{name}: {path}")


def _run_studies(found: Recipe, again: bool) -> None:
    """Run the studies that have no record, and say when the others were run."""
    known = Records.load(paths.RECORDS).studies
    for study in found.studies:
        if study in known and not again:
            record = known[study]
            say(f"{study}: measured at {record['commit']} by `{command_of(record)}`; --again measures it again")
        else:
            _run_study(study)


def _draw(found: Recipe, name: str, device: str) -> None:
    """Draw the figure of a recipe, and append its record."""
    from benchmarks.figures.registry import draw

    with redirect_stdout(sys.stderr):
        results = draw(found, device)
    command = command_line("recipe run", name, only=None, data=None, device=device, jobs=1)
    append_study(found.records, found.name, results, command)


def _print_recipe(found: Recipe, records: Records, as_json: bool) -> None:
    if found.kind == "figure":
        record = records.studies.get(found.name)
        if as_json:
            print_json({"recipe": found.name, "title": found.title, "results": record and record["results"]})
        elif record is None:
            say("nothing was drawn yet")
        else:
            picture = record["results"].get("figure", "a table of words, in docs/TOPICS.md")
            say(f"{found.title}: {picture}, drawn at {record['commit']}")
        return
    lines = compare(found, records)
    if as_json:
        rows = [
            {
                "row": line.row,
                **({"dataset": line.dataset} if line.dataset else {}),
                "paper": line.paper,
                "ours": {score: {"mean": ours.mean, "sd": ours.sd} for score, ours in line.ours.items()},
            }
            for line in lines
        ]
        print_json({"recipe": found.name, "title": found.title, "rows": rows})
        return
    print_table(found.title, *long_table(found, lines))
