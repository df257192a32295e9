"""docs/PAPERS.md: the papers' tables beside ours."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from benchmarks.recipes import LeftOut, Recipe
from benchmarks.record import Record, Records
from benchmarks.tables.comparison import Line, behind, compare, is_shared, table
from benchmarks.tables.text import markdown_table

__all__ = ["papers_page"]

_PAPERS = {
    "journal": ("Large scale multi-label learning using Gaussian processes", "journal paper, 2021"),
    "subspace": ("Fully scalable Gaussian processes using subspace inducing inputs", "subspace paper"),
    "thesis": ("Extreme multi-label learning with Gaussian processes", "thesis, 2019"),
    "svdkl": ("Stochastic variational deep kernel learning", "SV-DKL paper, 2016"),
    "topics": ("Large-scale Bayesian multi-label learning via topic-based label embeddings", "BMLPL paper"),
}
_INTRODUCTION = """# The papers' tables beside ours

Made by `python -m benchmarks table` from the records in `benchmarks/records` and the recipes in `recipes/`. A recipe is
a commented file with the published numbers and the options of every row. `python -m benchmarks recipe list` lists them,
and `python -m benchmarks recipe run NAME` runs one: with `--device cuda` on a GPU, with `--jobs 8` several rows at once
(which distorts times). What is already measured is not run again.

A difference is ours minus theirs, **bold** where ours is worse, with the reason below the table. Published times are
those of the authors' machines. Scores are over all test rows of the standard splits; P@k and similar scores are in
percent.

Rows `as written` are the papers' models to the letter (`labelfield train --preset NAME`, `labelfield.preset`): the
evidence lower bound with its divergence once, ten quadrature points, a full or parsimonious q(u), all labels and all
features, ranked by mean utility. What a paper does not say, often batches and rates, `labelfield/presets.py` names.
Rows without these words have the papers' sizes (P, M) and our settings: a divergence of weight 0.25 or 0.5 for text,
three points, mostly a diagonal q(u), our batches, rates and epochs. What they maximise, shown as `bound` in tables and
figures, is then no bound of the evidence; a column `elbo` is that bound all the same, on all training rows and labels.
A dash is a row that has not been measured: most rows as written take a GPU, with the command above the table and
`--device cuda --only ROW`.
"""


def papers_page(recipes: Sequence[Recipe], records: Records, missing: Sequence[LeftOut] = ()) -> str:
    """Write the page: a section for each paper, with each of its recipes."""
    parts = [_INTRODUCTION]
    for prefix, (title, short) in _PAPERS.items():
        parts.append(f"\n## {title} ({short})\n")
        own = sorted((recipe for recipe in recipes if recipe.name.split("-")[0] == prefix), key=_order)
        parts += [_section(recipe, records) for recipe in own]
    parts.append("\n## Not reproduced\n\n")
    parts.append(markdown_table(["what", "why"], [[entry.where, entry.why] for entry in missing]))
    return "".join(parts)


def _order(recipe: Recipe) -> tuple[bool, list[float | str]]:
    """Sort tables before figures, each by its number."""
    parts = re.split(r"(\d+)", recipe.name)
    return "-figure-" in recipe.name, [float(part) if part.isdigit() else part for part in parts]


def _section(recipe: Recipe, records: Records) -> str:
    what = recipe.title.partition(", ")[2]  # the section of the page already names the paper
    head = f"\n### {what[:1].upper()}{what[1:]}\n\n{recipe.where}. `python -m benchmarks recipe run {recipe.name}`"
    if recipe.kind == "figure":
        return head + _figure(recipe, records)
    lines = compare(recipe, records)
    came_from = _provenance(lines)
    if not came_from:
        return f"{head}: nothing has been measured yet.\n"
    shown = markdown_table(*table(recipe, lines, bold="**"))
    notes = f"\n{recipe.notes}\n" if recipe.notes else ""
    if is_shared(recipe, lines):
        notes += "\nOther rows ran at the same time, which can only have slowed ours down.\n"
    return f"{head}; {came_from}.\n\n{shown}{notes}{_reasons(recipe, lines)}"


def _figure(recipe: Recipe, records: Records) -> str:
    record = records.studies.get(recipe.name)
    if record is None:
        return ": nothing has been drawn yet.\n"
    came_from = _source(record)
    if recipe.suite is not None:  # it shows runs of another recipe
        runs = compare(replace(recipe, kind="runs"), records)
        came_from = f"drawn at {record['commit']} from runs {_provenance(runs)}"
    picture = record["results"].get("figure")
    if picture is None:
        link = "\nThe words are in [TOPICS.md](TOPICS.md).\n" if recipe.figure == "topic_names" else ""
        return f"; {came_from}.\n{link}"
    return f"; {came_from}.\n\n![{recipe.title}]({picture.removeprefix('docs/')})\n"


def _provenance(lines: Sequence[Line]) -> str:
    """Say where numbers come from: commits and machines."""
    sources = dict.fromkeys(_source(record) for line in lines for record in line.records)
    return ", ".join(sources)


def _source(record: Record) -> str:
    machine = record["machine"]
    # On a machine with a GPU, some rows may have been run on the CPU: the record of a run says so.
    is_gpu = "accelerator" in machine and record.get("device") != "cpu" and "peer" not in record
    where = machine["accelerator"] if is_gpu else f"{machine['cores']} cores"
    return f"at {record['commit']} on {where}"


def _reasons(recipe: Recipe, lines: Sequence[Line]) -> str:
    """Say why ours is worse, where it is: one sentence for each row."""
    worse: dict[tuple[str, str], list[str]] = {}
    for line in behind(recipe, lines):
        reason = (line.worse or "The reason is not known.").strip()
        worse.setdefault((line.row, reason), []).append(line.dataset or "")
    reasons = []
    for (row, why), datasets in worse.items():
        on = " on " + ", ".join(datasets) if any(datasets) else ""
        reasons.append(f"- Worse: {row}{on}. {why}\n")
    return "\n" + "".join(reasons) if reasons else ""
