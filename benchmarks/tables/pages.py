"""The generated parts of README.md and docs/, from the records."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.paths import RECORDS, ROOT
from benchmarks.recipes import left_out, read_recipe, recipe_names
from benchmarks.record import Record, Records, command_of
from benchmarks.suites.suite import Suite, read_suite
from benchmarks.tables.gpu_tests import gpu_tests_page
from benchmarks.tables.papers import papers_page
from benchmarks.tables.ranks import ranks
from benchmarks.tables.scoreboard import scoreboard
from benchmarks.tables.studies import SECTIONS
from benchmarks.tables.text import machine_shown, markdown_table
from labelfield.atomic import replacing_file

__all__ = ["front_page", "pages", "stale_pages", "write_pages"]

README = ROOT / "README.md"
_DOCS = ROOT / "docs"
_BLOCK = re.compile(r"(<!-- [^\n]*made by `python -m benchmarks table` -->\n).*?(<!-- end -->)", re.DOTALL)
_SUITES = ("scoreboard", "random-starts", "default-starts", "budgets")
# The one data set of the front page: the largest, and the one on which most methods are compared.
_FRONT = "eurlex-4k"


def pages() -> dict[Path, str]:
    """Return every page that has generated parts, with the text it should have."""
    records = Records.load(RECORDS)
    recipes = [read_recipe(name) for name in recipe_names()]
    topics = _DOCS / "TOPICS.md"
    return {
        README: front_page(README.read_text(), records),
        _DOCS / "BENCHMARKS.md": _benchmarks_page(records),
        topics: _topics_page(topics.read_text(), records),
        _DOCS / "GPU_TESTS.md": gpu_tests_page(records),
        _DOCS / "PAPERS.md": papers_page(recipes, records, left_out()),
    }


def stale_pages() -> dict[Path, str]:
    """Return the pages that are not up to date, with the text they should have."""
    return {path: text for path, text in pages().items() if not path.exists() or path.read_text() != text}


def write_pages() -> list[Path]:
    """Write the pages that are not up to date; return which."""
    stale = stale_pages()
    for path, text in stale.items():
        with replacing_file(path) as new:
            new.write_text(text, encoding="utf-8")
    return list(stale)


def front_page(text: str, records: Records) -> str:
    """Return README with a new scoreboard."""
    return _in_block(text, _suite(_SUITES[0], records, only=_FRONT)[1])


def _in_block(text: str, content: str) -> str:
    """Replace what is between the marks of a page."""
    return _BLOCK.sub(lambda match: f"{match[1]}\n{content}\n{match[2]}", text)


def _suite(name: str, records: Records, only: str | None = None) -> tuple[Suite, str]:
    """Return a suite and its tables, of all data sets or one, with where and how they were measured."""
    suite = read_suite(name)
    if only is not None:
        rows = (replace(row, datasets=(only,)) for row in suite.rows if only in row.datasets)
        suite = replace(suite, rows=tuple(rows))
    latest = records.latest(suite)
    return suite, scoreboard(suite, latest, records.runs.get(suite.name, [])) + "\n" + _measured_at(
        suite, list(latest.values())
    )


def _measured_at(suite: Suite, latest: list[Record]) -> str:
    measured = [record for record in latest if "skipped" not in record]
    if not measured:
        return ""
    machines = sorted({machine_shown(record["machine"]) for record in measured})
    commits = sorted({record["commit"] for record in measured})
    command = f"python -m benchmarks bench {suite.name}"
    return f"{suite.notes} On {'; '.join(machines)}; commits {', '.join(commits)}; `{command}`.\n"


def _topics_page(text: str, records: Records) -> str:
    """Return docs/TOPICS.md with a new table of the topics of EUR-Lex."""
    record = records.studies["topics-table-4"]
    found = record["results"]
    rows = [
        [f"{100 * one['share']:.1f}", ", ".join(name.removeprefix("tag ") for name in one["labels"])]
        for one in found["topics"].values()
    ]
    table = markdown_table(["share %", "labels, the most frequent first"], rows)
    note = (
        f"All {len(rows)} topics of EUR-Lex-4K, by `{command_of(record)}` in {found['seconds of training']:.0f} s; the "
        "share is that of the labels of all training rows.\n\n"
    )
    return _in_block(text, f"{note}{table}")


def _benchmarks_page(records: Records) -> str:
    """Write docs/BENCHMARKS.md: every suite, every study as a table, and every number of every study."""
    parts = ["# Benchmarks\n\nMade by `python -m benchmarks table` from the records in `benchmarks/records`.\n"]
    for name in _SUITES:
        suite, tables = _suite(name, records)
        if tables.strip():  # else nothing was measured yet
            parts.append(f"\n## {suite.title}\n\n{tables}")
    suite = read_suite("ranks")
    latest = records.latest(suite)
    if latest:
        parts.append(f"\n## {suite.title}\n\n{ranks(suite, latest)}\n{_measured_at(suite, list(latest.values()))}")
    for title, section in SECTIONS.items():
        parts.append(f"\n## {title}\n\n{section(records.studies)}")
    parts.append("\n## All numbers of all studies\n")
    for name, record in records.studies.items():
        packages = ", ".join(f"{package} {version}" for package, version in record["packages"].items())
        parts.append(
            f"\n### {name}\n\n`{command_of(record)}` at {record['commit']}, seed {record['seed']}; "
            f"{machine_shown(record['machine'])}; Python {record['python']}, {packages}.\n\n"
        )
        rows = [[key, _shown(value)] for key, value in _flat(record["results"])]
        parts.append(markdown_table(["measure", "value"], rows))
    return "".join(parts)


def _flat(results: dict[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    pairs: list[tuple[str, Any]] = []
    for key, value in results.items():
        name = f"{prefix}{key}".replace("_", " ")
        pairs += _flat(value, f"{name}: ") if isinstance(value, dict) else [(name, value)]
    return pairs


def _shown(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    return ", ".join(map(_shown, value)) if isinstance(value, list) else str(value)
