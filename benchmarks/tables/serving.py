"""The tables of the server and of what to label next."""

from __future__ import annotations

from benchmarks.record import Record
from benchmarks.tables.text import machine_shown, markdown_table

__all__ = ["labelling", "serving"]


def serving(records: dict[str, Record]) -> str:
    """Show start, latency and throughput of a server, a soak, and Annif's server beside it."""
    if "serve" not in records:
        return "Not measured yet: `python -m benchmarks bench serve`.\n"
    record = records["serve"]
    found = record["results"]
    alone, load, ready = found["alone"], found["connections_64"], found["ready_s"]
    rows = [
        ["start-up until ready, median of three", f"{sorted(ready)[len(ready) // 2]:.1f} s"],
        ["one title, median", f"{alone['p50_ms']:.1f} ms"],
        ["… 99th percentile", f"{alone['p99_ms']:.0f} ms"],
        ["… same tags as `labelfield tag`", "yes" if alone["same_as_tag"] else "no"],
        ["64 connections, one document per request", f"{load['per_second']:.0f} per second"],
        ["… answers by status", ", ".join(f"{code}: {n:,}" for code, n in load["answers"].items())],
    ]
    if "serve-annif" in records:
        both = records["serve-annif"]["results"]
        rows.append(["… in Annif's protocol", f"{both['labelfield']['per_second']:.0f} per second"])
        rows.append(["… Annif with omikuji Bonsai, two workers", f"{both['annif']['per_second']:.0f} per second"])
        cores = f", on {both['cores']} of the cores" if "cores" in both else ""
        rows.append([f"… ours over Annif's{cores}", f"{both['ratio']:.1f}×"])
        if "cpu_ratio" in both:
            rows.append(["… CPU time per answer, Annif's over ours", f"{both['cpu_ratio']:.1f}×"])
    if "serve-soak" in records:
        soak = records["serve-soak"]["results"]
        what = f"{soak['seconds']:.0f} s at full load, a reload every 10 s, 1 % of requests broken"
        rows.append([f"{what}: 5xx answers other than 503", f"{soak['bad']}"])
        if "reloads" in soak:
            rows.append(["… reloads", ", ".join(f"{n:,} {result}" for result, n in sorted(soak["reloads"].items()))])
        if "growth_of_high" in soak:
            grown = f"{100 * soak['growth']:+.1f} %, {100 * soak['growth_of_high']:+.1f} %"
            rows.append(
                ["… growth of the least and of the most memory per minute, medians of first and last fifth", grown]
            )
            low, n = soak["memory_mb"]["low"], max(1, len(soak["memory_mb"]["low"]) // 5)
            alone = f"{min(low[:n]):,.0f} MB, {min(low[-n:]):,.0f} MB"
            rows.append(["… the least memory of the first and of the last fifth: no reload under way", alone])
    where = machine_shown(record["machine"])
    return markdown_table(["eurovoc-text", "measured"], rows) + f"\nOn {where}; `python -m benchmarks bench serve`.\n"


def labelling(records: dict[str, Record]) -> str:
    """Show how many rows each strategy needs."""
    known = [name for name in ("active", "active-text") if name in records]
    if not known:
        return "Not measured yet: `python -m benchmarks bench active` and `active-text`.\n"
    rows = []
    for name in known:
        for data, found in records[name]["results"].items():
            for strategy, own in found["strategies"].items():
                mean, error = f"{own['mean']:,.0f} ± {own['standard_error']:,.0f}", 100 * own["saved_error"]
                saved = f"{100 * own['saved']:+.0f} ± {error:.0f} %" if strategy != "random" else ""
                pool = f"{data}, {found['pool']:,} rows, {found['starts']} starts"
                rows.append([pool, strategy, mean, saved])
    note = """
Rows to label to reach 95 % of the score with all rows (mean of P@1, P@3 and P@5), by linear machines of fixed cost, and
the share of rows that this saves beside random: means over starts, with standard errors. modAL (`max_loss`) and
small-text (category vector inconsistency and ranking) choose rows by logistic regression; the score is that of the same
machines on the rows that they chose. Of eurovoc-text the 300 most frequent labels take part.
"""
    return markdown_table(["pool", "strategy", "rows needed", "saved"], rows) + note
