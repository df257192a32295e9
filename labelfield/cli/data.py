"""The commands info, convert, split and synth, which inspect and make data sets."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from labelfield.cli.options import (
    AsJson,
    Classes,
    Format,
    LabelColumn,
    OneBased,
    OneBasedLabels,
    Overwrite,
    load,
    refuse_existing,
    save,
)
from labelfield.cli.output import Bar, print_json, print_table, say, shown
from labelfield.data import FORMATS, Dataset, describe, format_of
from labelfield.synth import make_multilabel

__all__ = ["convert", "info", "split", "synth"]

Source = Annotated[
    Path, typer.Argument(help="A file (.txt, .svm, .csv, .arff, .npz; text also .gz, .bz2, .xz) or a folder.")
]

_CARD = {
    "rows": "rows",
    "features": "features",
    "labels": "labels",
    "features_per_row": "features per row",
    "labels_per_row": "labels per row",
    "rows_without_features": "rows without features",
    "rows_without_labels": "rows without labels",
    "features_used": "features that occur",
    "labels_used": "labels that occur",
    "largest_label_set": "most labels in one row",
    "unit_rows": "rows of unit norm",
}


def info(
    path: Source,
    one_based: OneBased = None,
    one_based_labels: OneBasedLabels = False,
    classes: Classes = False,
    label_column: LabelColumn = None,
    as_json: AsJson = False,
) -> None:
    """Show the contents of a data set: sizes, densities, rows without labels, label frequencies.

    Example: labelfield info data/eurlex-4k
    """
    dataset = load(path, one_based, one_based_labels, classes=classes, label_column=label_column)
    with Bar("counting"):
        cards = {name: describe(split) for name, split in dataset.splits.items()}
    if as_json:
        print_json({"path": str(path), "splits": cards})
    else:
        print_cards(str(path), cards)


def print_cards(title: str, cards: dict[str, dict[str, Any]]) -> None:
    """Print the cards of all splits side by side, and the most frequent labels of the first."""
    rows = [[text, *(shown(card[key]) for card in cards.values())] for key, text in _CARD.items()]
    for key, text in (
        ("median", "median rows per label"),
        ("max", "most rows per label"),
        ("seen_once", "labels seen once"),
    ):
        rows.append([text, *(shown(card["rows_per_label"][key]) for card in cards.values())])
    rows.append(["values", *(f"{lo:.4g} to {hi:.4g}" for lo, hi in (card["value_range"] for card in cards.values()))])
    rows.append(["megabytes", *(shown(card["bytes"] / 1e6) for card in cards.values())])
    print_table(title, ["", *cards], rows)
    head = next(iter(cards.values()))["most_frequent"]
    most = ", ".join(f"{one['name'] or one['label']} ({shown(one['rows'])})" for one in head)
    print(f"most frequent labels: {most}")


def convert(
    source: Source,
    target: Annotated[Path, typer.Argument(help="A file name with a suffix, or a folder, which opens memory-mapped.")],
    format: Annotated[
        str | None, typer.Option("--format", help="Format, if not that of the suffix: " + ", ".join(FORMATS))
    ] = None,
    one_based: OneBased = None,
    one_based_labels: OneBasedLabels = False,
    classes: Classes = False,
    label_column: LabelColumn = None,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """Write a data set in another format; without a suffix, as a folder that opens at once at any size.

    Example: labelfield convert data/eurlex-4k eurlex
    """
    check_format(format)
    refuse_existing(target, overwrite)
    try:
        chosen = format or format_of(target)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    started = time.perf_counter()
    dataset = load(source, one_based, one_based_labels, classes=classes, label_column=label_column)
    if dataset.test is not None and format is None and chosen != "folder":
        raise typer.BadParameter(
            f"{source} has two splits: name a folder, and pass --format {chosen} to keep that format"
        )
    save(dataset, target, format)
    report(dataset, target, chosen, started, as_json)


def split(
    source: Source,
    out: Annotated[Path, typer.Option("--out", help="The folder to write the splits train and test to.")],
    test: Annotated[float, typer.Option("--test", help="Fraction of rows in the test split, between 0 and 1.")] = 0.2,
    seed: Annotated[int, typer.Option("--seed", help="The same seed gives the same split.", min=0)] = 0,
    format: Format = "folder",
    one_based: OneBased = None,
    one_based_labels: OneBasedLabels = False,
    classes: Classes = False,
    label_column: LabelColumn = None,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """Split a data set at random into train and test.

    Example: labelfield split all.txt.gz --test 0.2 --seed 0 --out mine
    """
    check_format(format)
    check_share(test)
    refuse_existing(out, overwrite)
    started = time.perf_counter()
    dataset = load(source, one_based, one_based_labels, classes=classes, label_column=label_column).split(test, seed)
    save(dataset, out, format)
    report(dataset, out, format, started, as_json)


def synth(
    out: Annotated[Path, typer.Option("--out", help="The folder to write the splits train and test to.")],
    rows: Annotated[int, typer.Option("--rows", min=1, help="Number of rows, both splits together.")] = 3000,
    features: Annotated[int, typer.Option("--features", min=1, help="Number of features.")] = 2000,
    labels: Annotated[int, typer.Option("--labels", min=1, help="Number of labels.")] = 200,
    nonzeros: Annotated[float | None, typer.Option("--nonzeros", help="Mean number of features per row.")] = None,
    labels_per_row: Annotated[
        float | None, typer.Option("--labels-per-row", help="Mean number of labels per row.")
    ] = None,
    factors: Annotated[int, typer.Option("--factors", min=1, help="Number of latent processes P.")] = 16,
    kernel: Annotated[Literal["se", "linear"], typer.Option("--kernel", help="Kernel of the latent processes.")] = "se",
    test: Annotated[float, typer.Option("--test", help="Fraction of rows in the test split, between 0 and 1.")] = 0.2,
    seed: Annotated[int, typer.Option("--seed", help="The same seed gives the same data.", min=0)] = 0,
    format: Format = "folder",
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """Draw a data set from the multi-label GP factor model.

    Example: labelfield synth --out toy --rows 3000 --labels 200
    """
    check_format(format)
    check_share(test)
    refuse_existing(out, overwrite)
    started = time.perf_counter()
    try:
        with Bar("drawing") as bar:
            dataset = make_multilabel(
                rows,
                features,
                labels,
                n_nonzeros=nonzeros,
                labels_per_row=labels_per_row,
                n_factors=factors,
                kernel=kernel,
                seed=seed,
                progress=bar,
            ).split(test, seed)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    save(dataset, out, format)
    report(dataset, out, format, started, as_json)


def check_format(format: str | None) -> None:
    if format is not None and format not in FORMATS:
        raise typer.BadParameter(f"format {format!r}; expected one of {', '.join(FORMATS)}")


def check_share(test: float) -> None:
    if not 0 < test < 1:
        raise typer.BadParameter(f"--test {test:g}; expected a fraction between 0 and 1")


def report(dataset: Dataset, path: Path, format: str, started: float, as_json: bool) -> None:
    """Report what was written, where, and how long it took."""
    rows = {name: split.n_rows for name, split in dataset.splits.items()}
    seconds = time.perf_counter() - started
    if as_json:
        print_json({"path": str(path), "format": format, "rows": rows, "seconds": seconds})
    else:
        counts = ", ".join(
            f"{shown(n)} {name} rows" if name != "all" else f"{shown(n)} rows" for name, n in rows.items()
        )
        say(f"wrote {path} ({format}): {counts}, in {seconds:.1f} s")
