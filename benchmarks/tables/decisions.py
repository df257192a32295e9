"""The tables of studies about decisions: promises beside omikuji's Bonsai, and which rows to distrust."""

from __future__ import annotations

from math import isnan
from typing import Any

from benchmarks.record import Record
from benchmarks.tables.text import machine_shown, markdown_table

__all__ = ["distrust", "promises"]

_AIMS = ("precision 0.95", "precision 0.9", "precision 0.8")


def promises(records: dict[str, Record]) -> str:
    """Show how often promises of a precision are made and missed, and the share of rows that are tagged."""
    rows = []
    for study in ("decide", "decide-large"):
        for data, found in records[study]["results"].items():
            rows += [_promise(data, aim, found[aim], found.get(f"omikuji Bonsai, {aim}", {})) for aim in _AIMS]
    where = machine_shown(records["decide"]["machine"])
    note = (
        "All rows in quarters, each predicted by models of the other three; means over them, with the smallest and the "
        "largest in brackets. Random splits of a quarter: a policy of one half is judged on the other. Splits without "
        "a promise count as kept, and as no rows tagged. False: over draws with replacement from a quarter, whose "
        "truth is then "
        f"known. On {where}; `python -m benchmarks bench decide`, and the same for `decide-large`."
    )
    head = ["data", "promise", "made, % of splits", "missed, %", "false, %", "rows tagged, %", "by Bonsai's scores, %"]
    return markdown_table(head, rows) + f"\n{note}\n\n" + _retrained(records["decide-retrained"]["results"])


def _retrained(results: dict[str, Any]) -> str:
    """Show the same of models that are trained anew on random splits, with the evidence that each of them saves."""
    rows = []
    for data, found in results.items():
        for aim in _AIMS:
            own, n = found[aim], found["splits"]
            shares = [f"{100 * own[name] / n:.1f}" for name in ("promised", "missed")]
            reached = [f"{own[name]:.1f}" if name in own else "" for name in ("rows tagged, %", "mean precision, %")]
            rows.append([data, aim, f"{n}", *shares, *reached])
    note = (
        "Models trained anew on random splits (`fast`), with promises from the evidence that each saves, judged on the "
        "test rows; rows tagged and precision are means over splits with a promise. "
        "`python -m benchmarks bench decide-retrained`."
    )
    head = ["data", "promise", "splits", "made, %", "missed, %", "rows tagged, %", "precision, %"]
    return markdown_table(head, rows) + f"\n{note}\n"


def _promise(data: str, aim: str, own: dict[str, Any], peer: dict[str, Any]) -> list[str]:
    names = ("promised, % of splits", "missed, % of splits", "false, % of draws")
    return [data, aim, *(f"{own[name]:.1f}" for name in names), _tagged(own), _tagged(peer) if peer else ""]


def _tagged(found: dict[str, Any]) -> str:
    """Show the mean share of rows that are tagged, and the range of it over quarters."""
    each = sorted(float(share) for share in found["rows tagged in each quarter, %"].split(", "))
    return f"{found['rows tagged, %']:.1f} ({each[0]:.1f} to {each[-1]:.1f})"


def distrust(records: dict[str, Record]) -> str:
    """Show which measure of a row finds what, as the mean AUROC over data sets."""
    results: dict[str, Any] = records["uncertainty"]["results"]
    kinds = [name for name, found in next(iter(results.values())).items() if isinstance(found, dict)]
    measures = {measure: None for found in results.values() for kind in kinds for measure in found[kind]}

    def mean(measure: str, kind: str) -> str:
        known = [found[kind][measure] for found in results.values() if measure in found[kind]]
        known = [value for value in known if not isnan(value)]
        return f"{sum(known) / len(known):.2f}"

    rows = [[measure, *(mean(measure, kind) for kind in kinds)] for measure in measures]
    note = (
        f"AUROC, the mean over {', '.join(results)}; chance is 0.5. Novelty is the share of the prior variance that "
        "inducing inputs leave open. `python -m benchmarks bench uncertainty`."
    )
    return markdown_table(["measure", *kinds], rows) + f"\n{note}\n"
