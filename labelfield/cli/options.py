"""Options that several commands share, and reading and checking of the files that they name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from inspect import Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
import typer
from scipy import sparse

from labelfield.cli.output import Bar, say
from labelfield.data import Dataset, align_classes, read, read_predictions, verify
from labelfield.errors import DataError
from labelfield.text.reading import is_documents

if TYPE_CHECKING:
    from labelfield.estimators.protocol import FittedClassifier

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, and nothing else, on stdout.")]
Device = Annotated[Literal["auto", "cpu", "cuda"], typer.Option("--device", help="Where to compute.")]
Trust = Annotated[
    bool, typer.Option("--trust", help="Import the encoder that a model names, even if labelfield does not provide it.")
]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace what an earlier run wrote there.")]


_OF_DOCUMENTS = ("text", "labels", "label_sep", "id", "vocabulary", "encoding", "trust")


@dataclass(frozen=True)
class Reading:
    """The options of a command that say how to read files; a call reads a data set with them."""

    one_based: Annotated[
        bool | None,
        typer.Option("--one-based/--zero-based", help="How a text file numbers its features. Default: detected."),
    ] = None
    one_based_labels: Annotated[
        bool, typer.Option("--one-based-labels", help="A text file numbers its labels from 1.")
    ] = False
    classes: Annotated[
        bool, typer.Option("--classes", help="Each row has one class: in svmlight, any word or number, such as -1.")
    ] = False
    label_column: Annotated[
        str | None,
        typer.Option(
            "--label-column",
            help="The label column of a CSV file, by its name or its number from 0. Default: the one called label, "
            "class, target or y, else the last.",
        ),
    ] = None

    text: Annotated[
        str | None, typer.Option("--text", help="Columns of text, such as title,abstract. Default: guessed.")
    ] = None
    labels: Annotated[str | None, typer.Option("--labels", help="The column of labels. Default: guessed.")] = None
    label_sep: Annotated[
        str | None, typer.Option("--label-sep", help="What separates labels in one cell, such as |. Default: guessed.")
    ] = None
    id: Annotated[str | None, typer.Option("--id", help="The column of ids. Default: guessed.")] = None
    vocabulary: Annotated[
        Path | None,
        typer.Option(
            "--vocabulary", help="Labels with URIs and names: TSV, CSV or SKOS. Default: vocabulary.* beside the data."
        ),
    ] = None
    encoding: Annotated[str, typer.Option("--encoding", help="The encoding of text files.")] = "utf-8"
    trust: Trust = False

    def __call__(self, path: Path, **options: Any) -> Dataset:
        """Read a data set as `labelfield.read` does, with a progress bar, and verify it where reading is lazy."""
        own = {name: getattr(self, name) for name in ("one_based", "one_based_labels", "classes", "label_column")}
        if path == Path("-"):
            fix = "Write the rows to a file first, with the ending of their format."
            raise DataError("rows of numbers from stdin", path=path, expected="a file", fix=fix)
        if is_documents(path):
            fix = "Pass documents to labelfield train, or to a model that was trained on documents."
            raise DataError("documents", path=path, expected="rows of numbers", fix=fix)
        with Bar(f"reading {path.name}") as bar:
            dataset = read(path, **(own | options), progress=bar)
            verify(dataset, path)
        return dataset

    def for_model(self, estimator: FittedClassifier, path: Path, *, labelled: bool, part: str = "test") -> Dataset:
        """Read the training or test rows of a data set in the columns of a model.

        Classes that the model has not seen come after its own. Unless rows must be `labelled`, they may lack a class.
        """
        if estimator.text_ is not None:
            from labelfield.cli.documents import read_rows

            return read_rows(estimator.label_names(), estimator.text_, self, path, part, labelled)
        has_classes, n_labels = estimator.label_kind_ == "classes", estimator.spec_.n_labels
        dataset = self(
            path,
            n_features=estimator.n_features_in_,
            n_labels=0 if has_classes else n_labels,
            classes=has_classes,
            unlabelled=has_classes and not labelled,
            narrow=True,
        )
        if has_classes:
            dataset = align_classes(dataset, estimator.label_names())
        rows = dataset.train if part == "train" or dataset.test is None else dataset.test
        require_features(rows, path, estimator, n_labels if labelled and not has_classes else None)
        return rows


def reads_files(
    *, classes: bool = False, rows: bool = True, documents: bool = False, model: bool = True
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the options of `Reading` for its parameter `reading`: those of rows, and those of documents.

    A command that loads no `model` has none to trust.
    """
    offered = dict(signature(Reading, eval_str=True).parameters)
    for name in offered.keys() - {"classes"}:
        if not (documents if name in _OF_DOCUMENTS else rows):
            del offered[name]
    if not classes:
        del offered["classes"]
    if not model:
        offered.pop("trust", None)

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @wraps(command)
        def wrapped(**options: Any) -> None:
            command(reading=Reading(**{name: options.pop(name) for name in offered}), **options)

        known = [own for own in signature(command, eval_str=True).parameters.values() if own.name != "reading"]
        place = next(i for i, own in enumerate(known) if own.name in ("overwrite", "as_json"))
        parameters = [*known[:place], *offered.values(), *known[place:]]
        wrapped.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
        return wrapped

    return decorate


Search = Annotated[
    Literal["auto", "exact", "index"],
    typer.Option(
        "--search",
        help="exact scores all labels; index those with the best guesses, if the model has one; auto decides.",
    ),
]


def load_model(folder: Path, device: str, trust: bool = False) -> FittedClassifier:
    """Load the classifier of a saved model; a device that is not there is wrong usage."""
    from labelfield.estimators.persistence import load_classifier

    try:
        estimator: FittedClassifier = load_classifier(folder, device=device, trust=trust)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    return estimator


def require_columns(dataset: Dataset, path: Path, n_features: int, n_labels: int | None = None) -> None:
    """Raise a DataError unless the rows have exactly these features and, if asked, at least these labels."""
    for found, known, what in ((dataset.n_features, n_features, "features"), (dataset.n_labels, n_labels, "labels")):
        if known is not None and (found < known or (found > known and what == "features")):
            raise DataError(
                f"{found} {what}",
                path=path,
                expected=f"{known}, like the model",
                fix="Use data with the same columns, or train on a folder with both files, as train.* and test.*.",
            )
    if n_labels is not None and dataset.n_labels > n_labels:
        n_unseen = int((dataset.Y.indices >= n_labels).sum())
        say(f"{path}: {n_unseen:,} labels were not in the training data; they count as missed")


def require_features(dataset: Dataset, path: Path, estimator: FittedClassifier, n_labels: int | None = None) -> None:
    """Check the columns, and raise a DataError also for features that are not named as the model knows them."""
    require_columns(dataset, path, estimator.n_features_in_, n_labels)
    names, known = dataset.feature_names, estimator.feature_names_digest_
    if names is not None and known is not None and len(names) == dataset.n_features and names.digest() != known:
        raise DataError(
            f"features named {', '.join(list(names)[:3])}, …",
            path=path,
            expected="the names of the training rows, in the same order",
            fix="Put the columns in the order of the training file.",
        )


def require_rows(dataset: Dataset, path: Path) -> None:
    """Raise a DataError for a data set without rows."""
    if dataset.n_rows == 0:
        raise DataError("no rows", path=path, expected="at least one", fix="Check the file.")


def read_entries(path: Path, n_rows: int, n_labels: int, allowed: tuple[int, ...], what: str) -> sparse.csr_array:
    """Read values of some entries of a label matrix, from lines `label:value …` or .npz.

    Values that are not allowed are refused; `what` says what each means.
    """
    found = sparse.csr_array(read_predictions(path, n_rows, n_labels, like="the data have"))
    wrong = ~np.isin(found.data, allowed)
    if wrong.any():
        entry = int(np.flatnonzero(wrong)[0])
        row = int(np.searchsorted(found.indptr, entry, side="right"))
        raise DataError(f"row {row}: the value {found.data[entry]:g} of label {found.indices[entry]}", what, path=path)
    return found


def refuse_existing(path: Path, overwrite: bool) -> None:
    """Raise a usage error if the target exists and may not be replaced; called before any work is done."""
    if path.exists() and not overwrite:
        raise typer.BadParameter(f"{path} exists; pass --overwrite to replace it, or choose another name")


def require_file_name(path: Path, overwrite: bool) -> None:
    """Raise a usage error unless a file can be written there: no folder or device, and no file among its parents."""
    refuse_existing(path, overwrite)
    if path.exists() and not path.is_file():
        raise typer.BadParameter(f"{path} is {'a folder' if path.is_dir() else 'not a file'}; choose another name")
    for folder in path.parents:
        if folder.exists() and not folder.is_dir():
            raise typer.BadParameter(f"{folder} is a file; choose another folder")
