"""One self-contained page about a model: assembled from its sections, and written whole or not at all."""

from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from scipy import sparse

from labelfield.atomic import replacing_file
from labelfield.estimators.inputs import as_rows
from labelfield.estimators.protocol import FittedClassifier
from labelfield.metrics.propensity import RankBy
from labelfield.progress import Progress, ignore
from labelfield.report import galleries, sections
from labelfield.report.facts import Facts, gather
from labelfield.report.markup import element, percent, text
from labelfield.version import __version__

_PARTS = (
    sections.trust,
    galleries.what_it_would_decide,
    sections.by_frequency,
    galleries.ten_rows,
    galleries.topics,
    galleries.neighbours,
    galleries.features,
    galleries.inputs,
    sections.how_it_learned,
)


def write_report(
    estimator: FittedClassifier,
    X: Any,
    Y: Any,
    out: str | Path,
    *,
    title: str = "",
    label_names: Sequence[str] | None = None,
    feature_names: Sequence[str] | None = None,
    rank_by: RankBy = "probability",
    progress: Progress = ignore,
) -> Path:
    """Write a page about a fitted model on test rows X with labels Y, in any form that `fit` takes; return its path.

    Labels are called as in `label_names`, else as the model knows them; features as the model knows them, else as in
    `feature_names`. `rank_by` orders labels as in `predict_topk`.
    """
    rows = as_rows(estimator, X, reset=False)
    truth = estimator.encode(Y, rows.shape[0])
    options: dict[str, Any] = {"label_names": label_names, "feature_names": feature_names, "rank_by": rank_by}
    return save_page(make_page(estimator, rows, truth, title=title, progress=progress, **options), Path(out))


def make_page(
    estimator: FittedClassifier, X: sparse.csr_array, Y: sparse.csr_array, *, title: str = "", **options: Any
) -> str:
    """Return the page for rows, labels and options as `labelfield.report.facts.gather` takes them.

    The same facts always give the same page.
    """
    facts = gather(estimator, X, Y, **options)
    title = title or f"A model of the method {facts.identity.method}"
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
    """Summarise the page in two sentences."""
    several, one = ("classes", "class") if facts.identity.has_classes else ("labels", "label")
    known, n_rows = facts.identity.facts, facts.predictions.judged.n_rows
    best = "most probable" if not facts.rank_power else "first"
    return (
        f"{known[several]} {several}, learned from {known['training rows']} rows and tested on {n_rows:,}. The "
        f"{best} {one} is right for {percent(1 - facts.errors.error)} of the test rows."
    )


def save_page(page: str, out: Path) -> Path:
    """Write a page and return its path; a failure leaves no file, or the old one."""
    with replacing_file(out) as new:
        new.write_text(page, encoding="utf-8", newline="\n")
    return out
