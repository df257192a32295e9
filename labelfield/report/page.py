"""One self-contained page about a model: put together from its sections, and written whole or not at all."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from scipy import sparse

from labelfield.atomic import replacing_file
from labelfield.estimators.inputs import as_rows
from labelfield.progress import Progress, ignore
from labelfield.report import sections, showing
from labelfield.report.facts import Facts, gather
from labelfield.report.markup import element, text
from labelfield.report.scores import Counts
from labelfield.version import __version__

__all__ = ["make_page", "save_page", "write_report"]

_PARTS = (
    sections.trust,
    sections.by_frequency,
    showing.ten_rows,
    showing.topics,
    showing.neighbours,
    showing.features,
    showing.inputs,
    sections.how_it_learned,
)


def write_report(
    estimator: Any,
    X: Any,
    Y: Any,
    out: str | Path,
    *,
    title: str = "",
    label_names: Sequence[str] | None = None,
    feature_names: Sequence[str] | None = None,
    progress: Progress = ignore,
) -> Path:
    """Write a page about a fitted model on test rows X with labels Y, in any form that its `fit` takes; gives its path.

    Names of labels and features are those that the model knows, unless given.
    """
    rows = as_rows(estimator, X, reset=False)
    truth = estimator._encode(Y, rows.shape[0])
    page = make_page(
        estimator,
        rows,
        truth,
        title=title,
        label_names=label_names,
        feature_names=feature_names,
        progress=progress,
    )
    return save_page(page, Path(out))


def make_page(
    estimator: Any,
    X: sparse.csr_array,
    Y: sparse.csr_array,
    *,
    title: str = "",
    counts: Counts | None = None,
    label_names: Sequence[str] | None = None,
    feature_names: Sequence[str] | None = None,
    progress: Progress = ignore,
) -> str:
    """The page, for rows and labels as `labelfield.report.facts.gather` takes them. Same facts, same page."""
    facts = gather(
        estimator,
        X,
        Y,
        counts=counts,
        label_names=label_names,
        feature_names=feature_names,
        progress=progress,
    )
    return render(facts, title or f"A model of the method {facts.identity.method}")


def render(facts: Facts, title: str) -> str:
    """Facts as a page."""
    first = element("div", f"{sections.what_it_is(facts)}\n{sections.scoreboard(facts)}", class_="duo")
    parts = [first, *(found for found in (make(facts) for make in _PARTS) if found)]
    style = files("labelfield.report").joinpath("style.css").read_text(encoding="utf-8")
    head = (
        '<meta charset="utf-8">\n<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<meta name="color-scheme" content="light dark">\n<title>{text(title)}</title>\n<style>\n{style}</style>'
    )
    top = (
        f'<header class="top"><p class="eyebrow">labelfield report</p><h1>{text(title)}</h1>'
        f"<p>{text(_opening(facts))}</p>{sections.headline(facts)}</header>"
    )
    foot = element("footer", f"<p>Made by labelfield {text(__version__)}.</p>")
    body = f"{top}\n<main>\n" + "\n".join(parts) + f"\n</main>\n{foot}"
    return f'<!DOCTYPE html>\n<html lang="en">\n<head>\n{head}\n</head>\n<body>\n{body}\n</body>\n</html>\n'


def _opening(facts: Facts) -> str:
    """The page in a sentence."""
    identity, doubt = facts.identity, facts.doubt
    what = "classes" if identity.has_classes else "labels"
    right = f"{100 * (1 - doubt.error):.1f} %"
    return (
        f"{identity.facts[what]} {what}, learned from {identity.facts['training rows']} rows and tried on "
        f"{facts.n_rows:,}. The first {'class' if identity.has_classes else 'label'} it names is right for "
        f"{right} of these."
    )


def save_page(page: str, out: Path) -> Path:
    """Write a page; a failure leaves nothing, or what was there before."""
    with replacing_file(out) as new:
        new.write_text(page, encoding="utf-8", newline="\n")
    return out
