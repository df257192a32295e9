"""`labelfield bench table`: write the generated parts of README.md and docs/ from the records, or check them."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

from benchmarks.record import RECORDS, ROOT, load_studies
from benchmarks.sections import SECTIONS
from labelfield.atomic import replacing_file
from labelfield.bench import Suite, find_suite, latest_of, load_records, read_suite
from labelfield.bench.papers import papers_texts
from labelfield.bench.scoreboard import scoreboard
from labelfield.tables import markdown_table

README = ROOT / "README.md"
PAGE = ROOT / "docs" / "BENCHMARKS.md"
TOPICS = ROOT / "docs" / "TOPICS.md"
_BLOCK = re.compile(r"(<!-- [^\n]*made by `labelfield bench table` -->\n).*?(<!-- end -->)", re.DOTALL)
# Suites whose tables docs/BENCHMARKS.md shows; the first is on the front page too.
_SUITES = ("scoreboard", "random-starts", "budgets")

Studies = dict[str, dict[str, Any]]
Cells = dict[str, list[dict[str, Any]]]


def _in_block(text: str, content: str) -> str:
    """A page with what is between its marks made anew."""
    return _BLOCK.sub(lambda match: f"{match[1]}\n{content}\n{match[2]}", text)


def _suite(name: str, cells: Cells) -> tuple[Suite, str]:
    """A suite and its tables, with where and how they were measured below."""
    suite = read_suite(find_suite(name))
    found = cells.get(name, [])
    return suite, scoreboard(suite, latest_of(suite, found)) + "\n" + _measured_at(suite, found)


def _measured_at(suite: Suite, found: list[dict[str, Any]]) -> str:
    latest = [record for record in latest_of(suite, found).values() if "skipped" not in record]
    if not latest:
        return ""
    machines = sorted({_machine(record["machine"]) for record in latest})
    commits = sorted({record["commit"] for record in latest})
    return f"{suite.notes} On {'; '.join(machines)}; at {', '.join(commits)}; `labelfield bench {suite.name}`.\n"


def _machine(machine: dict[str, Any]) -> str:
    return f"{machine['cpu']}, {machine['cores']} cores, {machine['memory_gib']:.0f} GiB"


def front_page(text: str, cells: Cells) -> str:
    """README with its scoreboard made anew."""
    return _in_block(text, _suite(_SUITES[0], cells)[1])


def topic_page(text: str, records: Studies) -> str:
    """docs/TOPICS.md with the topics of EUR-Lex made anew."""
    found = records["topics-table-4"]["results"]
    rows = [
        [f"{100 * one['share']:.1f}", ", ".join(name.removeprefix("tag ") for name in one["labels"])]
        for one in found["topics"].values()
    ]
    table = markdown_table(["share %", "labels, the most frequent first"], rows)
    note = (
        f"All {len(rows)} topics of EUR-Lex-4K, by `{records['topics-table-4']['command']}` in "
        f"{found['seconds of training']:.0f} s; the share is that of the labels of all training rows.\n\n"
    )
    return _in_block(text, f"{note}{table}")


def page(records: Studies, cells: Cells) -> str:
    """Every suite, every study as a table, and every number of every study."""
    parts = ["# Benchmarks\n\nMade by `labelfield bench table` from the records in `benchmarks/records`.\n"]
    for name in _SUITES:
        suite, tables = _suite(name, cells)
        parts.append(f"\n## {suite.title}\n\n{tables}")
    for title, section in SECTIONS.items():
        parts.append(f"\n## {title}\n\n{section(records)}")
    parts.append("\n## All numbers of all studies\n")
    for name, record in records.items():
        packages = ", ".join(f"{package} {version}" for package, version in record["packages"].items())
        parts.append(
            f"\n### {name}\n\n`{record['command']}` at {record['commit']}, seed {record['seed']}; "
            f"{_machine(record['machine'])}; Python {record['python']}, {packages}.\n\n"
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


def pages() -> dict[Path, str]:
    """Every page that has something generated in it, and what it should be."""
    studies, cells = load_studies(), load_records(RECORDS)
    return {
        README: front_page(README.read_text(), cells),
        PAGE: page(studies, cells),
        TOPICS: topic_page(TOPICS.read_text(), studies),
        **papers_texts(ROOT),
    }


def main() -> None:
    made = pages()
    stale = [path for path, text in made.items() if not path.exists() or path.read_text() != text]
    if "--check" in sys.argv[1:]:
        sys.exit("".join(f"{path.relative_to(ROOT)} is not up to date\n" for path in stale).rstrip() or 0)
    for path in stale:
        with replacing_file(path) as new:
            new.write_text(made[path], encoding="utf-8")
        print(f"wrote {path.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
