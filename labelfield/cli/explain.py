"""explain and topics: why one row gets its labels, and the topics of a model."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text
from scipy import sparse

from labelfield.cli.documents import read_for
from labelfield.cli.options import AsJson, Device, Reading, Trust, load_model, reads_files
from labelfield.cli.output import Bar, print_json, print_table, printable
from labelfield.data import Dataset
from labelfield.errors import LabelfieldError
from labelfield.text.documents import whole

if TYPE_CHECKING:
    from labelfield.estimators.protocol import FittedClassifier
    from labelfield.explain import InducingInput, LabelExplanation, RowExplanation

# True labels listed below those that are explained.
_N_TRUE = 10
# Width of the column of names, with its margins.
_MARGIN = 12
# A topic with a smaller share is not shown: it would read 0 %.
_LEAST_SHARE = 0.005
# Styles of words for a label, against it, and others.
_STYLES = {1: "bold green", -1: "red", 0: ""}
# Features shown per inducing input.
_N_OF_INPUT = 5


@reads_files()
def explain(
    reading: Reading,
    model: Annotated[Path, typer.Argument(help="The folder of a model.")],
    rows: Annotated[
        Path | None, typer.Argument(help="Rows or documents; for two splits, the test ones. Not needed with --text.")
    ] = None,
    row: Annotated[int | None, typer.Option("--row", min=0, help="The row to explain, counted from 0.")] = None,
    text: Annotated[str | None, typer.Option("--text", help="A text to explain, for a model of documents.")] = None,
    k: Annotated[int, typer.Option("-k", min=1, help="Labels to explain, the most probable first.")] = 5,
    n_features: Annotated[int, typer.Option("--features", min=0, help="Features, or words, shown per label.")] = 8,
    n_inducing: Annotated[int, typer.Option("--inputs", min=0, help="Inducing inputs, or topics, per label.")] = 3,
    trust: Trust = False,
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """Explain why a row gets its most probable labels: which features, inducing inputs or topics are behind them.

    If the file has the true labels of the row, they are marked. For a document, or a --text, the words behind each
    label are listed and highlighted.

    Example: labelfield explain model data/bibtex --row 3
    """
    estimator = load_model(model, device, trust)
    if (text is None) == (rows is None or row is None):
        raise typer.BadParameter("pass a file and --row, or --text for a model of documents")
    if estimator.text_ is not None:
        _explain_document(estimator, reading, rows, row, text, k, n_features, as_json)
        return
    if rows is None or row is None:
        raise typer.BadParameter(f"--text is for a model of documents; {model} was trained on rows")
    dataset = reading.for_model(estimator, rows, labelled=False)
    _require_row(row, dataset.n_rows, rows)
    one, names = dataset.take([row]), dataset.feature_names
    true = _true_labels(one, estimator)
    from labelfield.explain import explain_row

    with Bar("explaining"):
        found = explain_row(estimator, one.X, k=k, n_features=n_features, n_inducing=n_inducing, feature_names=names)
    if as_json:
        print_json({"path": str(model), "rows": str(rows), "row": row, **_as_dict(found, true)})
    else:
        has_names = estimator.feature_names() is not None or names is not None
        _print(f"row {row} of {rows}: {found.n_features} features, {estimator.method}", found, true, has_names)


def _require_row(row: int, n_rows: int, path: Path) -> None:
    if row >= n_rows:
        last = f"its rows are 0 to {n_rows - 1}" if n_rows else "it has no rows"
        raise typer.BadParameter(f"--row {row}: {path} has no such row; {last}")


def _explain_document(
    estimator: FittedClassifier,
    reading: Reading,
    path: Path | None,
    row: int | None,
    text: str | None,
    k: int,
    n_words: int,
    as_json: bool,
) -> None:
    """Print the words that carried each label of a text, or of a document of a file."""
    from labelfield.estimators.text import explain_text
    from labelfield.explain.excerpt import excerpt

    document: Any = None if text is None else whole(text)
    true: list[str] = []
    parts = estimator.text_
    if path is not None and row is not None and parts is not None:
        documents = read_for(parts, reading, path, labelled=False)
        _require_row(row, len(documents), path)
        document = documents.texts[row]
        if documents.labels is not None:
            true = parts.vocabulary.named(documents.labels)[row]
    with Bar("explaining"):
        found = explain_text(estimator, document, k, n_words)
    if as_json:
        labels = [
            {
                **one.tag._asdict(),
                "is_true": one.tag.label in true if true else None,
                "words": [{"word": own.word, "effect": own.effect, "places": own.places} for own in one.words],
            }
            for one in found
        ]
        print_json({"text": found[0].text if found else text, "true": true, "labels": labels})
        return
    console = Console(highlight=False, markup=False)
    if not any(one.words for one in found):
        console.print("the model knows no word of this text: these are the labels of a document without words")
    for one in found:
        mark = ("✓ ", "bold green") if one.tag.label in true else ("✗ ", "bold red") if true else ""
        console.print(Text.assemble(mark, (printable(one.tag.label), "bold"), f"   {100 * one.tag.probability:.1f} %"))
        if one.tag.uri:
            console.print(Text(printable(f"  {one.tag.uri}"), style="dim"))
        words = [Text.assemble(own.word, " ", _signed(own.effect)) for own in one.words]
        console.print(Padding(Text(",  ").join(words), (0, 0, 0, 2)))
        pieces = [(printable(piece.text), _STYLES[(piece.effect > 0) - (piece.effect < 0)]) for piece in excerpt(one)]
        console.print(Padding(Text.assemble(*pieces), (0, 0, 1, 2)))
    others = [name for name in true if name not in {one.tag.label for one in found}]
    if others:
        console.print(printable(f"true as well: {', '.join(others[:_N_TRUE])}"))
    console.print(Text("words: how much the label's log-odds fall if the word is removed from the text", style="dim"))


def _true_labels(one: Dataset, estimator: FittedClassifier) -> list[str]:
    """Return the names of the labels that the row has, as the model calls them; none where they are not known."""
    columns = one.Y.indices.tolist()
    if estimator.label_kind_ == "classes":  # the file has its own columns for classes
        return [one.label_names[column] for column in columns] if one.label_names is not None else []
    names = estimator.label_names()
    return [names[column] if column < len(names) else str(column) for column in columns]


def _as_dict(found: RowExplanation, true: list[str]) -> dict[str, Any]:
    labels = []
    for label in found.labels:
        own = label._asdict()
        own["features"] = [{"feature": name, "value": value, "effect": part} for name, value, part in label.features]
        own["inducing"] = [
            {
                "number": source.number,
                **({} if source.of_class is None else {"of_class": source.of_class}),
                "effect": effect,
                "similarity": source.similarity,
                "shared": [name for name, _ in source.shared],
                "features": [{"feature": name, "value": value} for name, value in source.features],
                "labels": [{"label": name, "raised": value} for name, value in source.labels],
            }
            for source, effect in label.inducing
        ]
        own["topics"] = [topic._asdict() for topic in label.topics]
        labels.append({"label": own.pop("name"), "is_true": label.name in true if true else None, **own})
    return {"n_features": found.n_features, "level": found.level, "true": true, "labels": labels}


def _print(title: str, found: RowExplanation, true: list[str], has_names: bool) -> None:
    console = Console(highlight=False, markup=False)
    console.print(Text(title, style="bold"))
    for label in found.labels:
        console.print()
        console.print(_heading(label, true, found.level))
        lines = Table.grid(padding=(0, 2))
        lines.add_column(style="dim", no_wrap=True)
        lines.add_column()
        for name, parts in _lines(label, console.width - _MARGIN):
            for place, part in enumerate(parts):
                lines.add_row("" if place else name, part)
        console.print(Padding(lines, (0, 0, 0, 2)))
    others = [name for name in true if name not in {label.name for label in found.labels}]
    console.print()
    if others:
        more = "" if len(others) <= _N_TRUE else f" and {len(others) - _N_TRUE} more"
        also = " as well" if len(others) < len(true) else ""
        console.print(f"true{also}: {', '.join(others[:_N_TRUE])}{more}")
    for line in _legend(found, bool(true), has_names):
        console.print(Text(line, style="dim"))


def _heading(label: LabelExplanation, true: list[str], level: float) -> Text:
    mark = ("✓ ", "bold green") if label.name in true else ("✗ ", "bold red") if true else ""
    interval = ""
    if label.interval is not None:
        low, high = (100 * end for end in label.interval)
        interval = f"   {100 * level:.0f} % between {low:.1f} and {high:.1f}"
    return Text.assemble(mark, (label.name, "bold"), f"   {100 * label.probability:.1f} %", (interval, "dim"))


def _lines(label: LabelExplanation, width: int) -> Iterator[tuple[str, list[Text]]]:
    """Yield the lines about a label, each group with its name."""
    yield "features", _features(label, width)
    yield "inputs", [_input(source, effect) for source, effect in label.inducing]
    if label.inducing and label.utility is not None:
        listed, own = sum(effect for _, effect in label.inducing), label.label_linear or 0
        rest = label.utility - listed - own - (label.bias or 0)
        parts = f"{_number(label.utility)}: these {_number(listed)}, all others {_number(rest)}"
        linear = f", linear process {_number(own)}" if own else ""
        yield "utility", [Text(f"{parts}{linear}, bias {_number(label.bias)}", style="dim")]
    yield (
        "topics",
        [
            Text.assemble((f"{100 * own.share:3.0f} % ", "bold"), f"topic {own.number}: {', '.join(own.labels)}")
            for own in label.topics
            if own.share >= _LEAST_SHARE
        ],
    )


def _features(label: LabelExplanation, width: int) -> list[Text]:
    """Return features with their effects, several per line; with their values, unless these are all 1."""
    lines: list[Text] = []
    has_values = any(value != 1 for _, value, _ in label.features)
    seen = [feature for feature in label.features if _number(feature[2]) != "0.00"]
    if label.features and not seen:
        return [Text("none changes the log-odds by as much as 0.01", style="dim")]
    for name, value, effect in seen:
        part = Text.assemble(f"{name} = {_value(value, 4)}" if has_values else name, " ", _signed(effect))
        if lines and lines[-1].cell_len + 3 + part.cell_len <= width:
            lines[-1] = Text.assemble(lines[-1], ",  ", part)
        else:
            lines.append(part)
    return lines


def _input(source: InducingInput, effect: float) -> Text:
    """Return what an input adds, how similar to the row it is, by which features, and which labels it stands for."""
    labels = ", ".join(name for name, _ in source.labels)
    whose = "" if source.of_class is None else f" of {source.of_class}"
    alike = "" if source.similarity is None else f", {100 * source.similarity:.0f} % alike"
    if source.shared:
        features = " by " + ", ".join(name for name, _ in source.shared[:_N_OF_INPUT])
    else:
        features = ": " + ", ".join(f"{name} = {_value(value, 3)}" for name, value in source.features[:_N_OF_INPUT])
    stands_for = f" → {labels}" if source.of_class is None and labels else ""
    return Text.assemble(_signed(effect), f"  #{source.number}{whose}{alike}{features}", (stands_for, "italic"))


def _signed(effect: float) -> tuple[str, str]:
    return _number(effect), "green" if effect > 0 else "red"


def _number(value: float | None) -> str:
    return "0.00" if value is None or round(abs(value), 2) == 0 else f"{value:+.2f}".replace("-", "−")


def _value(value: float, digits: int) -> str:
    return f"{value:.{digits}g}".replace("-", "−")


def _legend(found: RowExplanation, has_truth: bool, has_names: bool) -> list[str]:
    """Return lines that say what the numbers mean."""
    lines = ["features: how much the label's log-odds fall if the feature is removed from the row"]
    if not has_names:
        lines.append("  features are counted from 0; put features.txt beside the rows to name them")
    if any(label.inducing for label in found.labels):
        lines.append("inputs: what inducing inputs (learned points) add to the label's utility,")
        lines.append("  how similar they are to the row and why, → the labels that they stand for")
        lines.append("utility: the sum that becomes the probability, before calibration")
    if any(label.topics for label in found.labels):
        lines.append("topics: the share of each topic in the rate at which such a row gets the label")
    if has_truth:
        lines.append("✓ the row has this label, ✗ it does not")
    return lines


@reads_files()
def topics(
    reading: Reading,
    model: Annotated[Path, typer.Argument(help="The folder of a model of the method topics.")],
    n: Annotated[int, typer.Option("-n", min=1, help="Labels shown per topic.")] = 10,
    n_features: Annotated[int, typer.Option("--features", min=0, help="Features shown per topic.")] = 0,
    n_sampled: Annotated[int, typer.Option("--sample", min=0, help="Draw this many sets of labels instead.")] = 0,
    rows: Annotated[
        Path | None, typer.Option("--rows", help="Rows for which --sample draws labels; for two splits, the test rows.")
    ] = None,
    seed: Annotated[int, typer.Option("--seed", min=0, help="The same seed draws the same labels.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Print the topics of a model: their share of the labels of the training rows, and their first labels.

    With --sample, print sets of labels drawn from the model, for the first of --rows or, without --rows, for rows about
    which nothing is known.

    Example: labelfield topics model -n 5
    """
    from labelfield.explain.features import topic_features

    estimator = load_model(model, "cpu")
    if rows is not None and not n_sampled:
        raise typer.BadParameter("--rows is for --sample")
    known, names = estimator.topics(n), estimator.feature_names()
    if known is None:
        kind = "an ensemble" if len(estimator.members()) > 1 else "a model"
        raise LabelfieldError(f"{model}: {kind} of the method {estimator.method!r} has no topics")
    if n_sampled:
        _print_sample(estimator, reading, model, rows, n_sampled, seed, as_json)
        return
    found, lines = [], []
    for topic in known:
        found.append({"topic": topic.number, "share": topic.share, "labels": dict(topic.labels)})
        labels = ", ".join(f"{name} ({100 * weight:.0f})" for name, weight in topic.labels)
        lines.append([str(topic.number), f"{100 * topic.share:.1f}", labels])
        if n_features:
            raising = topic_features(estimator, topic.number, n_features)
            found[-1]["features"] = {d if names is None else names[d]: weight for d, weight in raising}
            lines[-1].append(", ".join(map(str, found[-1]["features"])))
    if as_json:
        print_json({"path": str(model), "topics": found})
    else:
        header = ["topic", "share %", "labels (weight %)", "features"]
        print_table(str(model), header if n_features else header[:3], lines)


def _print_sample(
    estimator: Any, reading: Reading, model: Path, path: Path | None, n: int, seed: int, as_json: bool
) -> None:
    """Print labels drawn from a topic model, beside the true ones where rows are given."""
    labels, X, Y = estimator.label_names(), sparse.csr_array((n, estimator.n_features_in_), dtype=np.float32), None
    if path is not None:
        dataset = reading.for_model(estimator, path, labelled=False)
        X, Y = dataset.X[:n], dataset.Y[:n]
    drawn = estimator.sample(X, seed)

    def named(labels_of: sparse.csr_array) -> list[str]:
        return [labels[label] if label < len(labels) else str(label) for label in labels_of.indices]

    sets = [[named(part[[number]]) for part in (drawn, Y) if part is not None] for number in range(drawn.shape[0])]
    names = ("drawn", "true")
    if as_json:
        found = [{"row": number} | dict(zip(names, own, strict=False)) for number, own in enumerate(sets)]
        print_json({"path": str(model), "seed": seed, "rows": found})
        return
    shown = [[str(number), *map(", ".join, own)] for number, own in enumerate(sets)]
    print_table(f"{model}, drawn", ["row", *names[: 1 if Y is None else 2]], shown)
