"""report: one page about a model, to be looked at in a browser."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from labelfield.cli.options import (
    AsJson,
    Device,
    LabelColumn,
    OneBased,
    OneBasedLabels,
    load,
    load_model,
    require_columns,
    require_features,
    require_file_name,
    require_rows,
)
from labelfield.cli.output import Bar, print_json, say
from labelfield.data import Dataset, align_classes
from labelfield.errors import DataError

__all__ = ["report"]


def report(
    model: Annotated[Path, typer.Argument(help="The folder of a model.")],
    test: Annotated[Path, typer.Argument(help="Rows with their true labels; of two splits, the test rows.")],
    out: Annotated[Path, typer.Option("--out", help="The page, such as report.html.")],
    train: Annotated[
        Path | None,
        typer.Option("--train", help="Training data, to count labels in. Default: the counts that the model keeps."),
    ] = None,
    title: Annotated[str, typer.Option("--title", help="The heading of the page.")] = "",
    device: Device = "auto",
    one_based: OneBased = None,
    one_based_labels: OneBasedLabels = False,
    label_column: LabelColumn = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an older page.")] = False,
    as_json: AsJson = False,
) -> None:
    """Write one self-contained page about a model: what it is, how good, how far to be believed, what it has learned.

    Example: labelfield report model data/bibtex --out report.html
    """
    require_file_name(out, overwrite)
    started = time.perf_counter()
    estimator = load_model(model, device)
    reading = partial(load, one_based=one_based, one_based_labels=one_based_labels, label_column=label_column)
    rows = _read(reading, test, estimator)
    rows = rows if rows.test is None else rows.test
    require_rows(rows, test)
    require_features(rows, test, estimator)
    counts = None if train is None else _counts(_read(reading, train, estimator).train, train)
    from labelfield.report import make_page, save_page

    names = rows.label_names if rows.n_labels > estimator.spec_.n_labels else None
    try:
        with Bar("predicting") as bar:
            page = make_page(
                estimator,
                rows.X,
                rows.Y,
                title=title or f"{model.resolve().name} on {_name(test)}",
                counts=counts,
                label_names=names,
                feature_names=rows.feature_names,
                progress=bar,
            )
    except DataError as error:
        raise error.at(test) from None
    save_page(page, out)
    seconds, size = time.perf_counter() - started, out.stat().st_size
    if as_json:
        print_json({"path": str(out), "rows": rows.n_rows, "bytes": size, "seconds": seconds})
    else:
        say(f"wrote {out}: {size / 1000:,.0f} kB, in {seconds:.1f} s; open it in a browser")


def _read(reading: Any, path: Path, estimator: Any) -> Dataset:
    """A data set with the columns of the model; classes that it has not seen come after its own."""
    has_classes = estimator.label_kind_ == "classes"
    n_labels = 0 if has_classes else estimator.spec_.n_labels
    dataset: Dataset = reading(
        path, n_features=estimator.n_features_in_, n_labels=n_labels, classes=has_classes, narrow=True
    )
    if has_classes:
        return align_classes(dataset, estimator.label_names_)
    require_columns(dataset, path, estimator.n_features_in_, n_labels)
    return dataset


def _counts(training: Dataset, path: Path) -> Any:
    from labelfield.report import Counts

    require_rows(training, path)
    return Counts(np.bincount(training.Y.indices, minlength=training.n_labels), training.n_rows)


def _name(path: Path) -> str:
    """What rows are called: a file called test says less than the folder it is in."""
    path = path.resolve()
    stem = path.name.split(".")[0] or path.name
    return f"{path.parent.name}/{stem}" if stem in ("test", "valid", "train", "data") else stem
