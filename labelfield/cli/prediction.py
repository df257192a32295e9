"""predict: the most probable labels of new rows."""

from __future__ import annotations

import time
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from numpy.typing import NDArray
from scipy import sparse

from labelfield.cli.options import (
    AsJson,
    Device,
    LabelColumn,
    OneBased,
    OneBasedLabels,
    load,
    load_for_model,
    load_model,
    require_file_name,
)
from labelfield.cli.output import Bar, print_json, say
from labelfield.csr import MAX_COLUMNS
from labelfield.data import write_predictions

__all__ = ["by_number", "class_numbers", "predict"]


def predict(
    model: Annotated[Path, typer.Argument(help="The folder of a model.")],
    rows: Annotated[Path, typer.Argument(help="Rows to label; for two splits, the test rows.")],
    out: Annotated[Path, typer.Option("--out", help="Lines `label:probability …` (.txt, .txt.gz), or .npz.")],
    k: Annotated[int, typer.Option("-k", min=1, help="Labels per row.")] = 5,
    device: Device = "auto",
    one_based: OneBased = None,
    one_based_labels: OneBasedLabels = False,
    label_column: LabelColumn = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an older file.")] = False,
    as_json: AsJson = False,
) -> None:
    """Write the k most probable labels of each row with their probabilities.

    Example: labelfield predict model data/bibtex -k 5 --out predictions.txt
    """
    require_file_name(out, overwrite)
    started = time.perf_counter()
    estimator = load_model(model, device)
    reading = partial(load, one_based=one_based, one_based_labels=one_based_labels, label_column=label_column)
    dataset = load_for_model(estimator, rows, reading, labelled=False)
    with Bar("predicting"):
        predictions = estimator.predict_topk(dataset.X, k)
    has_classes = estimator.label_kind_ == "classes"
    numbers = class_numbers(estimator.label_names()) if has_classes else None
    write_predictions(predictions if numbers is None else by_number(predictions, numbers), out)
    seconds = time.perf_counter() - started
    if as_json:
        print_json({"path": str(out), "rows": dataset.n_rows, "k": k, "seconds": seconds})
    else:
        say(f"wrote {out}: {dataset.n_rows} rows, in {seconds:.1f} s")
        if has_classes:
            say("labels are " + (f"lines of {model / 'labels.txt'}, from 0" if numbers is None else "class numbers"))


def class_numbers(names: Iterable[str]) -> NDArray[np.int32] | None:
    """Return classes as the numbers that they are; None where some are not numbers, or are too large for columns."""
    names = list(names)
    if not all(name.isdecimal() and name == str(int(name)) and int(name) < MAX_COLUMNS for name in names):
        return None
    return np.array([int(name) for name in names], np.int32)


def by_number(matrix: sparse.csr_array, number: NDArray[np.int32], n_columns: int = 0) -> sparse.csr_array:
    """Return the same entries with the columns moved to these numbers, and at least `n_columns` columns."""
    renumbered = sparse.csr_array(
        (matrix.data, number[matrix.indices], matrix.indptr),
        shape=(matrix.shape[0], max(n_columns, int(number.max(initial=-1)) + 1)),
    )
    renumbered.sort_indices()
    return renumbered
