"""recipe: run what the papers have published, and see ours beside it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from labelfield.bench import Choices, checkout, is_failure, records_folder, run_cells
from labelfield.bench.comparison import Measured, compare, long_table
from labelfield.bench.recipes import Recipe, find_recipe, read_recipe, recipe_names
from labelfield.bench.records import Record, cell_key
from labelfield.bench.studies import run_study
from labelfield.bench.suite import Suite
from labelfield.cli.bench import Data, Only, Records, chosen, command_line, refuse, require_some
from labelfield.cli.interrupt import interruptible
from labelfield.cli.options import AsJson
from labelfield.cli.output import print_json, print_table, say
from labelfield.errors import LabelfieldError

__all__ = ["recipe"]

recipe = typer.Typer(
    no_args_is_help=True,
    help="The papers' tables and figures: list them, show published numbers beside ours, run them again.",
)

Name = Annotated[str, typer.Argument(help="A recipe of `labelfield recipe list`, or the path of a .yaml file.")]


@recipe.command("list")
def list_recipes(as_json: AsJson = False) -> None:
    """List the recipes of the repository.

    Example: labelfield recipe list
    """
    found = [read_recipe(find_recipe(name)) for name in recipe_names()]
    if as_json:
        print_json({one.name: {"title": one.title, "kind": one.kind} for one in found})
        return
    print_table("recipes", ["name", "what was published"], [[one.name, one.title] for one in found])


@recipe.command()
def show(name: Name, records: Records = None, as_json: AsJson = False) -> None:
    """Print what was published beside what was measured, from the records.

    Example: labelfield recipe show thesis-table-4.5
    """
    found = read_recipe(find_recipe(name))
    say(f"{found.path}: {found.where}")
    _print(found, Measured.load(records or _folder(found)), as_json)


@recipe.command()
@interruptible
def run(
    name: Name,
    only: Only = None,
    seeds: Annotated[int | None, typer.Option("--seeds", min=1, help="Random starts, instead of the recipe's.")] = None,
    data: Data = None,
    records: Records = None,
    device: Annotated[Literal["auto", "cpu", "cuda"], typer.Option("--device", help="Where to compute.")] = "cpu",
    jobs: Annotated[int, typer.Option("--jobs", min=1, help="Rows at a time; more than one spoils the times.")] = 1,
    again: Annotated[
        bool, typer.Option("--again", help="Measure also what was measured at this commit on this machine.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Run a recipe, and print what was published beside ours. An interrupted run goes on where it stopped.

    Example: labelfield recipe run thesis-table-4.5 --device cuda --jobs 6
    """
    found = read_recipe(find_recipe(name))
    folder = records or _folder(found)
    if found.kind != "runs":
        given = {"--only": only, "--seeds": seeds, "--data": data, "--records": records, "--jobs": jobs > 1}
        given["--device"] = found.kind == "study" and device != "cpu"
        refuse(given, f"recipes whose rows are run; this is a {found.kind}")
    skipped: dict[tuple[Any, ...], Record] = {}
    if found.kind == "figure":
        _draw(found, folder, device)
    elif found.kind == "study":
        _run_studies(found, folder, again)
    else:
        assert found.suite is not None
        suite = found.suite
        if seeds is not None:
            suite = replace(suite, rows=tuple(replace(row, seeds=seeds) for row in suite.rows))
        found = replace(found, suite=suite)
        command = command_line("recipe run", name, only=only, data=data, device=device, jobs=jobs, seeds=seeds)
        choices = Choices(data, folder, device, jobs, again, chosen(only, suite), command)
        skipped = _run_rows(found, suite, choices, folder)
        require_some(suite, choices.wanted, skipped)
    _print(found, _without(Measured.load(folder), found, skipped), as_json)
    if n_failed := sum(map(is_failure, skipped.values())):
        raise LabelfieldError(f"{n_failed} of the rows ended with an error; their lines above say which")


def _folder(found: Recipe) -> Path:
    """Where its records are by default: of runs with those of their suite, of studies always in the repository."""
    if found.kind == "study":
        return records_folder()
    return records_folder(found.path if found.suite is None else found.suite.path)


def _without(measured: Measured, found: Recipe, skipped: Collection[tuple[Any, ...]]) -> Measured:
    """What was skipped now is not shown as it was measured once."""
    if found.suite is None or not skipped:
        return measured
    runs = measured.runs.get(found.suite.name, [])
    kept = [record for record in runs if cell_key(record) not in skipped]
    return replace(measured, runs={**measured.runs, found.suite.name: kept})


def _run_rows(found: Recipe, suite: Suite, choices: Choices, folder: Path) -> dict[tuple[Any, ...], Record]:
    """Run what was not; what was skipped."""
    n_measured, skipped_now = 0, dict[tuple[Any, ...], Record]()
    for cell, record in run_cells(suite, choices):
        called = f"{cell.dataset} · {cell.row}" + (f" · seed {cell.seed}" if suite.rows[0].seeds > 1 else "")
        if "skipped" in record:
            say(f"{called}: skipped, {record['skipped']}")
            skipped_now[cell.key] = record
            continue
        n_measured += 1
        shown = {**record, **record["scores"]}
        scores = ", ".join(f"{score} {shown[score]:.4g}" for score in found.scores if score in shown)
        say(f"{called}: {record['train_seconds']:.1f} s, {scores}")
    say(f"{n_measured} measured; records: {folder / f'{suite.name}.jsonl'}")
    return skipped_now


def _run_studies(found: Recipe, folder: Path, again: bool) -> None:
    """Run the studies that have no record; of the others say when they were run."""
    known = Measured.load(folder).studies
    for study in found.studies:
        if study in known and not again:
            record = known[study]
            say(f"{study}: measured at {record['commit']} by `{record['command']}`; --again measures it anew")
            continue
        if run_study(study):
            raise LabelfieldError(f"the study {study} was not measured, for the reason told above")


def _draw(found: Recipe, folder: Path, device: str) -> None:
    root = checkout()
    if root is None:
        raise LabelfieldError("figures are drawn by code of the repository, which is not around this package")
    # It is run elsewhere than here, so that paths must be whole.
    arguments = [str(found.path.resolve()), "--device", device, "--records", str(folder.resolve())]
    command = [sys.executable, "-m", "benchmarks.recipes", *arguments]
    if subprocess.run(command, cwd=root, check=False).returncode:  # noqa: S603  # our own module
        raise LabelfieldError("the figure was not drawn, for the reason told above")


def _print(found: Recipe, measured: Measured, as_json: bool) -> None:
    if found.kind == "figure":
        record = measured.studies.get(found.name)
        if as_json:
            print_json({"recipe": found.name, "title": found.title, "results": record and record["results"]})
        elif record is None:
            say("nothing was drawn yet")
        else:
            picture = record["results"].get("figure", "a table of words, in docs/TOPICS.md")
            say(f"{found.title}: {picture}, drawn at {record['commit']}")
        return
    lines = compare(found, measured)
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
