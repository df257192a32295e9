"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from labelfield.cli.output import Bar, say
from labelfield.data import FORMATS, Dataset, read, verify, write
from labelfield.errors import DataError

__all__ = [
    "AsJson",
    "Classes",
    "Device",
    "Format",
    "LabelColumn",
    "OneBased",
    "OneBasedLabels",
    "Overwrite",
    "load",
    "load_model",
    "refuse_existing",
    "require_columns",
    "require_features",
    "require_file_name",
    "require_rows",
    "save",
]

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON on stdout and nothing else there.")]
OneBased = Annotated[
    bool | None,
    typer.Option("--one-based/--zero-based", help="How a text file numbers its features; found out if not given."),
]
OneBasedLabels = Annotated[bool, typer.Option("--one-based-labels", help="A text file numbers its labels from 1.")]
Classes = Annotated[
    bool, typer.Option("--classes", help="Each row has one class, in svmlight any word or number such as -1.")
]
LabelColumn = Annotated[
    str | None,
    typer.Option(
        "--label-column",
        help="Of a CSV file: the name of its label column, or its number from 0. If not given, the one called label, "
        "class, target or y, else the last.",
    ),
]
Device = Annotated[Literal["auto", "cpu", "cuda"], typer.Option("--device", help="Where to compute.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace what an earlier run has written there.")]
Format = Annotated[str, typer.Option("--format", help=f"How to write the splits: {', '.join(FORMATS)}.")]


def load(
    path: Path,
    one_based: bool | None = None,
    one_based_labels: bool = False,
    *,
    n_features: int = 0,
    n_labels: int = 0,
    classes: bool = False,
    unlabelled: bool = False,
    label_column: str | None = None,
    narrow: bool = False,
) -> Dataset:
    """Read and, where reading is lazy, verify a data set, with a progress bar.

    A file that does not state its widths, such as svmlight, gets at least those that are known from elsewhere, and with
    `narrow`, for a model, no more features. With `classes` each row has exactly one label, or with `unlabelled` at most
    one (`labelfield.read`).
    """
    with Bar(f"reading {path.name}") as bar:
        dataset = read(
            path,
            one_based=one_based,
            one_based_labels=one_based_labels,
            n_features=n_features,
            n_labels=n_labels,
            classes=classes,
            unlabelled=unlabelled,
            label_column=label_column,
            narrow=narrow,
            progress=bar,
        )
        verify(dataset, path)
    return dataset


def load_model(folder: Path, device: str) -> Any:
    """A saved model; a device that is not there is wrong usage."""
    from labelfield.estimators import load as load_estimator

    try:
        return load_estimator(folder, device=device)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def require_columns(dataset: Dataset, path: Path, n_features: int, n_labels: int | None = None) -> None:
    """Raise a DataError unless the rows have the features, and if asked at least the labels, that a model knows."""
    for found, known, what in ((dataset.n_features, n_features, "features"), (dataset.n_labels, n_labels, "labels")):
        if known is not None and (found < known or (found > known and what == "features")):
            raise DataError(
                f"{found} {what}",
                path=path,
                expected=f"{known} as the model has",
                fix="Use data with the same columns, or train on a folder with both files, as train.* and test.*.",
            )
    if n_labels is not None and dataset.n_labels > n_labels:
        n_unseen = int((dataset.Y.indices >= n_labels).sum())
        say(f"{path}: {n_unseen:,} labels that training had not; nobody can find them, and they count as missed")


def require_features(dataset: Dataset, path: Path, estimator: Any) -> None:
    """Raise a DataError unless the rows have the features that a model knows, in the same order if both name them."""
    require_columns(dataset, path, estimator.n_features_in_)
    names, known = dataset.feature_names, estimator.feature_names_digest_
    if names is not None and known is not None and len(names) == dataset.n_features and names.digest() != known:
        raise DataError(
            f"features named {', '.join(list(names)[:3])}, …",
            path=path,
            expected="the names of the training rows in their order",
            fix="Put the columns in the order of the training file.",
        )


def require_rows(dataset: Dataset, path: Path) -> None:
    """Raise a DataError for a file without rows, where some are needed."""
    if dataset.n_rows == 0:
        raise DataError("no rows", path=path, expected="at least one", fix="Check the file.")


def save(dataset: Dataset, path: Path, format: str | None) -> None:
    """Write a data set with a progress bar."""
    with Bar(f"writing {path.name}") as bar:
        write(dataset, path, format=format, progress=bar)


def refuse_existing(path: Path, overwrite: bool) -> None:
    """A usage error if the target exists and may not be replaced. Asked before any work is done."""
    if path.exists() and not overwrite:
        raise typer.BadParameter(f"{path} exists; pass --overwrite to replace it, or choose another name")


def require_file_name(path: Path, overwrite: bool) -> None:
    """The same of a target that is to be a file: neither a folder nor a device takes its place, nor lies on its way."""
    refuse_existing(path, overwrite)
    if path.exists() and not path.is_file():
        raise typer.BadParameter(f"{path} is {'a folder' if path.is_dir() else 'no file'}; choose the name of a file")
    for folder in path.parents:
        if folder.exists() and not folder.is_dir():
            raise typer.BadParameter(f"{folder} is a file; choose another folder")
