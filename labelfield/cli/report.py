"""report: one page about a model, for a browser."""

import time
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from labelfield.cli.options import AsJson, Device, Reading, load_model, reads_files, require_file_name, require_rows
from labelfield.cli.output import Bar, report_written
from labelfield.errors import DataError


@reads_files()
def report(
    reading: Reading,
    model: Annotated[Path, typer.Argument(help="The folder of a model.")],
    test: Annotated[Path, typer.Argument(help="Rows with true labels; for two splits, the test rows.")],
    out: Annotated[Path, typer.Option("--out", help="The page, such as report.html.")],
    train: Annotated[
        Path | None, typer.Option("--train", help="Training data to count labels in. Default: the model's counts.")
    ] = None,
    title: Annotated[str, typer.Option("--title", help="The heading of the page.")] = "",
    device: Device = "auto",
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an older page.")] = False,
    as_json: AsJson = False,
) -> None:
    """Write one self-contained page about a model: what it is, its scores, its calibration, and what it has learned.

    Example: labelfield report model data/bibtex --out report.html
    """
    require_file_name(out, overwrite)
    started = time.perf_counter()
    estimator = load_model(model, device)
    rows = reading.for_model(estimator, test, labelled=True)
    require_rows(rows, test)
    from labelfield.report import Counts, make_page, save_page

    counts = None
    if train is not None:
        training = reading.for_model(estimator, train, labelled=True, part="train")
        require_rows(training, train)
        counts = Counts(np.bincount(training.Y.indices, minlength=training.n_labels), training.n_rows)
    try:
        with Bar("predicting") as bar:
            page = make_page(
                estimator,
                rows.X,
                rows.Y,
                title=title or f"{model.resolve().name} on {_name(test)}",
                counts=counts,
                label_names=rows.label_names if rows.n_labels > estimator.spec_.n_labels else None,
                feature_names=rows.feature_names,
                progress=bar,
            )
    except DataError as error:
        raise error.at(test) from None
    save_page(page, out)
    facts = {"path": str(out), "rows": rows.n_rows, "bytes": (size := out.stat().st_size)}
    report_written(facts, started, as_json, f": {size / 1000:,.0f} kB", "; open it in a browser")


def _name(path: Path) -> str:
    """Return a short name for rows: a file called test says less than the folder that it is in."""
    path = path.resolve()
    stem = path.name.split(".")[0] or path.name
    return f"{path.parent.name}/{stem}" if stem in ("test", "valid", "train", "data") else stem
