"""docs/PAPERS.md, the papers' tables beside ours, and our numbers in the recipes themselves."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from labelfield.bench.comparison import Line, Measured, compare, is_shared, is_worse, table
from labelfield.bench.recipes import LeftOut, Recipe, find_recipe, left_out, read_recipe, recipe_names
from labelfield.bench.records import Record
from labelfield.tables import markdown_table

__all__ = ["behind", "papers_page", "papers_texts", "with_ours"]

_PAPERS = {
    "journal": ("Large scale multi-label learning using Gaussian processes", "journal paper, 2021"),
    "subspace": ("Fully scalable Gaussian processes using subspace inducing inputs", "subspace paper"),
    "thesis": ("Extreme multi-label learning with Gaussian processes", "thesis, 2019"),
    "svdkl": ("Stochastic variational deep kernel learning", "SV-DKL paper, 2016"),
    "topics": ("Large-scale Bayesian multi-label learning via topic-based label embeddings", "BMLPL paper"),
}
_BEGIN = "# ours: made by `labelfield bench table` from the records, not by hand"
_END = "# end of ours"
_BLOCK = re.compile(rf"\n*{re.escape(_BEGIN)}\n.*?{re.escape(_END)}\n", re.DOTALL)
_INTRODUCTION = """# The papers' tables beside ours

Made by `labelfield bench table` from the records in `benchmarks/records` and the recipes in `recipes/`, each a
commented file with the published numbers, the options of every row, and our numbers. `labelfield recipe list` shows
them, `labelfield recipe run NAME` runs one, on a GPU with `--device cuda`, and where it is not about times `--jobs 8`;
what is finished is not run again.

A difference is ours less theirs, **bold** where ours is worse; a reason follows. Published times are of the authors'
machines. Where a recipe has the papers' sizes (P, M), batches, rates and epochs are still ours: the papers' numbers are
goals here, not settings to copy. Scores are over all test rows, on the standard splits; P@k and their kind in percent.
"""


def papers_texts(root: Path) -> dict[Path, str]:
    """What docs/PAPERS.md and every recipe of a checkout should be, by path, from its records."""
    measured = Measured.load(root / "benchmarks" / "records")
    recipes = [read_recipe(find_recipe(name)) for name in recipe_names()]
    texts = {recipe.path: with_ours(recipe.path.read_text(encoding="utf-8"), recipe, measured) for recipe in recipes}
    return texts | {root / "docs" / "PAPERS.md": papers_page(recipes, measured, left_out())}


def papers_page(recipes: Sequence[Recipe], measured: Measured, missing: Sequence[LeftOut] = ()) -> str:
    """The page: a section for each paper, in it each of its recipes."""
    parts = [_INTRODUCTION]
    for prefix, (title, short) in _PAPERS.items():
        parts.append(f"\n## {title} ({short})\n")
        own = sorted((recipe for recipe in recipes if recipe.name.split("-")[0] == prefix), key=_order)
        parts += [_section(recipe, measured) for recipe in own]
    parts.append("\n## Not reproduced\n\n")
    parts.append(markdown_table(["what", "why"], [[entry.where, entry.why] for entry in missing]))
    return "".join(parts)


def _order(recipe: Recipe) -> tuple[bool, list[float | str]]:
    """Tables before figures, each by its number."""
    parts = re.split(r"(\d+)", recipe.name)
    return "-figure-" in recipe.name, [float(part) if part.isdigit() else part for part in parts]


def _section(recipe: Recipe, measured: Measured) -> str:
    what = recipe.title.partition(", ")[2]  # what stands before is the paper, which the section is of
    head = f"\n### {what[:1].upper()}{what[1:]}\n\n{recipe.where}. `labelfield recipe run {recipe.name}`"
    if recipe.kind == "figure":
        return head + _figure(recipe, measured)
    lines = compare(recipe, measured)
    came_from = _provenance(lines)
    if not came_from:
        return f"{head}: nothing was measured yet.\n"
    shown = markdown_table(*table(recipe, lines, bold="**"))
    notes = f"\n{recipe.notes}\n" if recipe.notes else ""
    if is_shared(recipe, lines):
        notes += "\nOther rows ran at the same time, which can only have slowed ours.\n"
    return f"{head}; {came_from}.\n\n{shown}{notes}{_reasons(recipe, lines)}"


def _figure(recipe: Recipe, measured: Measured) -> str:
    record = measured.studies.get(recipe.name)
    if record is None:
        return ": nothing was drawn yet.\n"
    told = f"; {_drawn(recipe, record, measured)}.\n"
    picture = record["results"].get("figure")
    if picture is None:
        return f"{told}\nThe words are in [TOPICS.md](TOPICS.md).\n" if recipe.figure == "topic_names" else told
    return f"{told}\n![{recipe.title}]({picture.removeprefix('docs/')})\n"


def _drawn(recipe: Recipe, record: Record, measured: Measured) -> str:
    """Where a picture comes from: of runs of another recipe, where these were measured."""
    if recipe.runs_of is None:
        return _source(record)
    runs = compare(read_recipe(find_recipe(recipe.runs_of)), measured)
    return f"drawn at {record['commit']} from runs {_provenance(runs)}"


def _provenance(lines: Sequence[Line]) -> str:
    """Where numbers come from: commits and machines."""
    sources = dict.fromkeys(_source(record) for line in lines for record in line.records)
    return ", ".join(sources)


def _source(record: Record) -> str:
    machine = record["machine"]
    # On a machine with a GPU too, some rows may have been run on the CPU: the record of a run says so.
    is_gpu = "accelerator" in machine and record.get("device") != "cpu" and "peer" not in record
    where = machine["accelerator"] if is_gpu else f"{machine['cores']} cores"
    return f"at {record['commit']} on {where}"


def behind(recipe: Recipe, lines: Sequence[Line]) -> list[Line]:
    """The rows where ours is worse than what was published, in some score."""
    return [
        line
        for line in lines
        if any(
            score in line.ours and is_worse(score, paper, line.ours[score].mean, recipe.lower_is_better)
            for score, paper in line.paper.items()
            if score in recipe.scores
        )
    ]


def _reasons(recipe: Recipe, lines: Sequence[Line]) -> str:
    """Why ours is worse, where it is: a sentence for each row."""
    worse: dict[str, list[str]] = {}
    for line in behind(recipe, lines):
        reason = (line.worse or "no reason is known.").strip()
        worse.setdefault(f"{line.row}: {reason}", []).append(line.dataset or "")
    if not worse:
        return ""
    reasons = []
    for told, datasets in worse.items():
        row, _, why = told.partition(": ")
        on = " on " + ", ".join(datasets) if any(datasets) else ""
        reasons.append(f"- Worse: {row}{on}. {why}\n")
    return "\n" + "".join(reasons)


def with_ours(text: str, recipe: Recipe, measured: Measured) -> str:
    """The text of a recipe with our numbers at its end."""
    lines = compare(recipe, measured)
    told = [_BEGIN]
    if recipe.kind == "figure":
        record = measured.studies.get(recipe.name)
        told.append("# nothing was drawn yet" if record is None else f"# {_drawn(recipe, record, measured)}")
    elif not (came_from := _provenance(lines)):
        told.append("# nothing was measured yet")
    else:
        told.append(f"# measured {came_from}")
        told += [f"# {line}" for line in _columns(*table(recipe, lines))]
    told += [f"# run again: labelfield recipe run {recipe.name}", _END]
    return _BLOCK.sub("", text).rstrip("\n") + "\n\n" + "\n".join(told) + "\n"


def _columns(header: list[str], rows: list[list[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    padded = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in (header, *rows))
    return [line.rstrip() for line in padded]
