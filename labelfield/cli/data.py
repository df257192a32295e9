"""The commands info, convert, split and synth, which inspect and make data sets."""

import time
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from labelfield.atomic import replacing_folder
from labelfield.cli.documents import describe_documents
from labelfield.cli.options import AsJson, Overwrite, Reading, reads_files, refuse_existing
from labelfield.cli.output import Bar, named, print_facts, print_json, print_table, report_written, shown
from labelfield.data import FORMATS, Dataset, Names, describe, format_of, write
from labelfield.synth import make_multilabel, make_texts
from labelfield.text.documents import write_documents
from labelfield.text.reading import is_documents

Source = Annotated[
    Path, typer.Argument(help="A file (.txt, .svm, .csv, .arff, .npz; text also .gz, .bz2, .xz) or a folder.")
]
Out = Annotated[Path, typer.Option("--out", help="The folder to write the splits train and test to.")]
Share = Annotated[float, typer.Option("--test", help="Fraction of rows in the test split, between 0 and 1.")]
Format = Annotated[str, typer.Option("--format", help=f"The format of the splits: {', '.join(FORMATS)}.")]

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
_ROWS_PER_LABEL = {"median": "median rows per label", "max": "most rows per label", "seen_once": "labels seen once"}


@reads_files(classes=True, documents=True, model=False)
def info(reading: Reading, path: Source, as_json: AsJson = False) -> None:
    """Show the contents of a data set of rows or documents: sizes, empty rows, label frequencies.

    Example: labelfield info data/eurlex-4k
    """
    if is_documents(path):
        found = describe_documents(reading, path)
        if as_json:
            print_json({"path": str(path), "splits": found})
        for name, facts in {} if as_json else found.items():
            print_facts(f"{path}" if name == "all" else f"{path}: {name}", facts)
        return
    dataset = reading(path)
    with Bar("counting"):
        cards = {name: describe(split) for name, split in dataset.splits.items()}
    if as_json:
        print_json({"path": str(path), "splits": cards})
    else:
        _print_cards(str(path), list(cards.values()), list(cards), dataset.feature_names)


def _print_cards(title: str, cards: list[dict[str, Any]], names: list[str], features: Names | None) -> None:
    """Print the cards of all splits side by side, and the most frequent labels of the first."""
    rows = [[text, *(shown(card[key]) for card in cards)] for key, text in _CARD.items()]
    rows += [[text, *(shown(card["rows_per_label"][key]) for card in cards)] for key, text in _ROWS_PER_LABEL.items()]
    rows.append(["values", *("{:.4g} to {:.4g}".format(*card["value_range"]) for card in cards)])
    rows.append(["megabytes", *(shown(card["bytes"] / 1e6) for card in cards)])
    print_table(title, ["", *names], rows)
    most = ", ".join(f"{one['name'] or one['label']} ({shown(one['rows'])})" for one in cards[0]["most_frequent"])
    print(f"most frequent labels: {most}")
    if coded := cards[0]["coded_features"]:
        print(f"features whose values look like codes of categories: {named(coded, features)}")
        print("  models of classes treat them as codes; row_transform=scaled treats them as numbers")


@reads_files(classes=True)
def convert(
    reading: Reading,
    source: Source,
    target: Annotated[Path, typer.Argument(help="A file name with a suffix, or a folder, which opens memory-mapped.")],
    format: Annotated[
        str | None, typer.Option("--format", help="The format, if the suffix does not say: " + ", ".join(FORMATS))
    ] = None,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """Convert a data set to another format, or to a folder that opens at once at any size.

    Text, CSV and ARFF may be larger than the memory: what is read is kept on the disk of the target.

    Example: labelfield convert data/eurlex-4k eurlex
    """
    _check_target(target, overwrite, format)
    try:
        chosen = format or format_of(target)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    started = time.perf_counter()
    # What is read lies in files beside the target, and not in memory.
    beside = next(folder for folder in target.absolute().parents if folder.is_dir())
    dataset = reading(source, scratch=beside)
    if dataset.test is not None and format is None and chosen != "folder":
        raise typer.BadParameter(
            f"{source} has two splits: name a folder, and pass --format {chosen} to keep that format"
        )
    _write(dataset, target, format, started, as_json)


@reads_files(classes=True)
def split(
    reading: Reading,
    source: Source,
    out: Out,
    test: Share = 0.2,
    seed: Annotated[int, typer.Option("--seed", help="The same seed gives the same split.", min=0)] = 0,
    format: Format = "folder",
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """Split a data set at random into train and test.

    Example: labelfield split all.txt.gz --test 0.2 --seed 0 --out mine
    """
    _check_target(out, overwrite, format, test)
    started = time.perf_counter()
    _write(reading(source).split(test, seed), out, format, started, as_json)


def synth(
    out: Out,
    kind: Annotated[
        Literal["rows", "texts"], typer.Option("--kind", help="Rows of the factor model, or documents with labels.")
    ] = "rows",
    rows: Annotated[int, typer.Option("--rows", min=1, help="Number of rows, both splits together.")] = 3000,
    features: Annotated[int, typer.Option("--features", min=1, help="Number of features.")] = 2000,
    labels: Annotated[int, typer.Option("--labels", min=1, help="Number of labels.")] = 200,
    nonzeros: Annotated[float | None, typer.Option("--nonzeros", help="Mean number of features per row.")] = None,
    labels_per_row: Annotated[
        float | None, typer.Option("--labels-per-row", help="Mean number of labels per row.")
    ] = None,
    factors: Annotated[int, typer.Option("--factors", min=1, help="Number of latent processes P.")] = 16,
    kernel: Annotated[Literal["se", "linear"], typer.Option("--kernel", help="Kernel of the latent processes.")] = "se",
    test: Share = 0.2,
    seed: Annotated[int, typer.Option("--seed", help="The same seed gives the same data.", min=0)] = 0,
    format: Format = "folder",
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """Draw a data set from the multi-label GP factor model, or write small documents as CSV for a first try.

    Example: labelfield synth --out toy --rows 3000 --labels 200
    """
    _check_target(out, overwrite, format, test)
    started = time.perf_counter()
    if kind == "texts":
        _write_texts(out, rows, test, seed, started, as_json)
        return
    options: dict[str, Any] = {"n_nonzeros": nonzeros, "labels_per_row": labels_per_row, "n_factors": factors}
    try:
        with Bar("drawing") as bar:
            dataset = make_multilabel(rows, features, labels, kernel=kernel, seed=seed, progress=bar, **options)
            dataset = dataset.split(test, seed)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    _write(dataset, out, format, started, as_json)


def _write_texts(out: Path, n: int, test: float, seed: int, started: float, as_json: bool) -> None:
    """Draw documents and write them as train.csv and test.csv."""
    texts, lists = make_texts(n, seed=seed)
    n_test = max(1, round(test * n))
    parts = {"train": slice(0, n - n_test), "test": slice(n - n_test, n)}
    with replacing_folder(out, [f"{name}.csv" for name in parts]) as folder:
        for name, part in parts.items():
            write_documents(folder / f"{name}.csv", texts[part], lists[part], part.start)
    facts = {"path": str(out), "format": "csv", "rows": {"train": n - n_test, "test": n_test}}
    report_written(facts, started, as_json, f": {n - n_test} train and {n_test} test documents as CSV")


def _check_target(path: Path, overwrite: bool, format: str | None, test: float = 0.5) -> None:
    if format is not None and format not in FORMATS:
        raise typer.BadParameter(f"format {format!r}; expected one of {', '.join(FORMATS)}")
    if not 0 < test < 1:
        raise typer.BadParameter(f"--test {test:g}; expected a fraction between 0 and 1")
    refuse_existing(path, overwrite)


def _write(dataset: Dataset, path: Path, format: str | None, started: float, as_json: bool) -> None:
    """Write a data set with a progress bar; report what was written, where, and how long it took."""
    with Bar(f"writing {path.name}") as bar:
        write(dataset, path, format=format, progress=bar)
    rows, format = {name: split.n_rows for name, split in dataset.splits.items()}, format or format_of(path)
    counts = ", ".join(f"{shown(n)} rows" if name == "all" else f"{shown(n)} {name} rows" for name, n in rows.items())
    facts = {"path": str(path), "format": format, "rows": rows}
    report_written(facts, started, as_json, f" ({format}): {counts}")
