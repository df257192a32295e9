"""explain: what carried the labels of one row."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from labelfield.cli.options import (
    AsJson,
    Device,
    LabelColumn,
    OneBased,
    OneBasedLabels,
    load,
    load_model,
    require_features,
)
from labelfield.cli.output import Bar, print_json
from labelfield.data import Dataset

if TYPE_CHECKING:
    from labelfield.explain import InducingInput, LabelExplanation, RowExplanation

__all__ = ["explain"]

_N_TRUE = 10
# What stands to the left of what is said.
_MARGIN = 12
# A topic with a smaller share is not shown: it would be 0 %.
_LEAST_SHARE = 0.005
# Features that say what an inducing input is.
_N_OF_INPUT = 5


def explain(
    model: Annotated[Path, typer.Argument(help="The folder of a model.")],
    rows: Annotated[Path, typer.Argument(help="Rows, of which one is explained; of two splits, the test rows.")],
    row: Annotated[int, typer.Option("--row", min=0, help="Which row, from 0.")],
    k: Annotated[int, typer.Option("-k", min=1, help="How many labels.")] = 5,
    n_features: Annotated[int, typer.Option("--features", min=0, help="Features shown of each label.")] = 8,
    n_inducing: Annotated[
        int, typer.Option("--inputs", min=0, help="Inducing inputs, or topics, shown of each label.")
    ] = 3,
    device: Device = "auto",
    one_based: OneBased = None,
    one_based_labels: OneBasedLabels = False,
    label_column: LabelColumn = None,
    as_json: AsJson = False,
) -> None:
    """Say why a row gets its labels: for the most probable ones, which features and inducing inputs or topics carried
    them. Labels that the row has are marked, where the file says.

    Example: labelfield explain model data/bibtex --row 3
    """
    estimator = load_model(model, device)
    dataset = _read(estimator, rows, one_based, one_based_labels, label_column)
    if row >= dataset.n_rows:
        last = f"its rows are 0 to {dataset.n_rows - 1}" if dataset.n_rows else "it has no rows"
        raise typer.BadParameter(f"--row {row}: {rows} has no such row; {last}")
    one = dataset.take([row])
    true = _true_labels(one, estimator)
    from labelfield.explain import explain_row

    with Bar("explaining"):
        found = explain_row(
            estimator,
            one.X,
            k=k,
            n_features=n_features,
            n_inducing=n_inducing,
            feature_names=dataset.feature_names,
        )
    if as_json:
        print_json({"path": str(model), "rows": str(rows), "row": row, **_as_dict(found, true)})
    else:
        has_names = estimator.feature_names() is not None or dataset.feature_names is not None
        _print(f"row {row} of {rows}", estimator, found, true, has_names)


def _read(
    estimator: Any, path: Path, one_based: bool | None, one_based_labels: bool, label_column: str | None
) -> Dataset:
    """The rows, as the model wants them."""
    has_classes = estimator.label_kind_ == "classes"
    dataset = load(
        path,
        one_based,
        one_based_labels,
        n_features=estimator.n_features_in_,
        n_labels=0 if has_classes else estimator.spec_.n_labels,
        classes=has_classes,
        unlabelled=has_classes,
        label_column=label_column,
        narrow=True,
    )
    dataset = dataset if dataset.test is None else dataset.test
    require_features(dataset, path, estimator)
    return dataset


def _true_labels(one: Dataset, estimator: Any) -> list[str]:
    """The names of the labels that the row has, as the model calls them; none where nothing is known of them."""
    columns = one.Y.indices.tolist()
    if estimator.label_kind_ == "classes":  # a column for each class that the file has
        return [one.label_names[column] for column in columns] if one.label_names is not None else []
    names = estimator._names()
    return [names[column] if column < len(names) else str(column) for column in columns]


def _as_dict(found: RowExplanation, true: list[str]) -> dict[str, Any]:
    return {
        "n_features": found.n_features,
        "level": found.level,
        "true": true,
        "labels": [
            {
                "label": label.name,
                "number": label.number,
                "probability": label.probability,
                "interval": label.interval,
                "is_true": label.name in true if true else None,
                "features": [
                    {"feature": name, "value": value, "effect": effect} for name, value, effect in label.features
                ],
                "utility": label.utility,
                "bias": label.bias,
                "private": label.private,
                "inducing": [
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
                ],
                "topics": [topic._asdict() for topic in label.topics],
            }
            for label in found.labels
        ],
    }


def _print(title: str, estimator: Any, found: RowExplanation, true: list[str], has_names: bool) -> None:
    console = Console(highlight=False, markup=False)
    console.print(Text(f"{title}: {found.n_features} features, {estimator._method()}", style="bold"))
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


def _lines(label: LabelExplanation, width: int) -> Iterator[tuple[str, list[Text]]]:
    """What is said of a label, under which name."""
    yield "features", _features(label, width)
    yield "inputs", [_input(source, effect) for source, effect in label.inducing]
    if label.inducing and label.utility is not None:
        shown = sum(effect for _, effect in label.inducing)
        own = f", its own process {_number(label.private)}" if label.private else ""
        rest = label.utility - shown - (label.private or 0) - (label.bias or 0)
        said = f"{_number(label.utility)}: these {_number(shown)}, all others {_number(rest)}{own}"
        yield "utility", [Text(f"{said}, bias {_number(label.bias)}", style="dim")]
    yield (
        "topics",
        [
            Text.assemble((f"{100 * topic.share:3.0f} % ", "bold"), f"topic {topic.number}: {', '.join(topic.labels)}")
            for topic in label.topics
            if topic.share >= _LEAST_SHARE
        ],
    )


def _heading(label: LabelExplanation, true: list[str], level: float) -> Text:
    is_true = label.name in true
    mark = ("✓ ", "bold green") if is_true else ("✗ ", "bold red") if true else ""
    interval = ""
    if label.interval is not None:
        low, high = (100 * end for end in label.interval)
        interval = f"   {100 * level:.0f} % between {low:.1f} and {high:.1f}"
    return Text.assemble(mark, (label.name, "bold"), f"   {100 * label.probability:.1f} %", (interval, "dim"))


def _features(label: LabelExplanation, width: int) -> list[Text]:
    """Each feature with its value, unless all are merely there, and its effect; as many a line as fit there whole."""
    lines: list[Text] = []
    has_values = any(value != 1 for _, value, _ in label.features)
    seen = [feature for feature in label.features if _is_seen(feature[2])]
    if label.features and not seen:
        return [Text("none changes the log-odds by as much as 0.01", style="dim")]
    for name, value, effect in seen:
        part = Text.assemble(f"{name} = {_value(value, 4)}" if has_values else name, " ", _signed(effect))
        if lines and lines[-1].cell_len + 3 + part.cell_len <= width:
            lines[-1] = Text.assemble(lines[-1], ",  ", part)
        else:
            lines.append(part)
    return lines


def _is_seen(effect: float) -> bool:
    return round(abs(effect), 2) > 0


def _input(source: InducingInput, effect: float) -> Text:
    """What an input adds, how like the row it is, by which features, and which labels it speaks for."""
    labels = ", ".join(name for name, _ in source.labels)
    whose = "" if source.of_class is None else f" of {source.of_class}"
    alike = "" if source.similarity is None else f", {100 * source.similarity:.0f} % alike"
    if source.shared:
        features = " by " + ", ".join(name for name, _ in source.shared[:_N_OF_INPUT])
    else:
        features = ": " + ", ".join(f"{name} = {_value(value, 3)}" for name, value in source.features[:_N_OF_INPUT])
    speaks = f" → {labels}" if source.of_class is None and labels else ""
    return Text.assemble(_signed(effect), f"  #{source.number}{whose}{alike}{features}", (speaks, "italic"))


def _signed(effect: float) -> tuple[str, str]:
    return _number(effect), "green" if effect > 0 else "red"


def _number(value: float | None) -> str:
    return f"{value:+.2f}".replace("-", "−") if value is not None and _is_seen(value) else "0.00"


def _value(value: float, digits: int) -> str:
    return f"{value:.{digits}g}".replace("-", "−")


def _legend(found: RowExplanation, has_truth: bool, has_names: bool) -> list[str]:
    """What the numbers mean, each in a line."""
    parts = ["features: by how much the label's log-odds fall when one is taken out of the row"]
    if not has_names:
        parts.append("  they have no names and are counted from 0; features.txt beside the rows names them")
    if any(label.inducing for label in found.labels):
        parts.append("inputs: what places that the model has learned add to the label's utility,")
        parts.append("  how like the row they are and by what, → the labels that they speak for")
        parts.append("utility: what the probability is made of, before it is calibrated")
    if any(label.topics for label in found.labels):
        parts.append("topics: the share of each in the rate at which such a row gets the label")
    if has_truth:
        parts.append("✓ the row has this label, ✗ it has not")
    return parts
