"""evaluate: score predictions against the truth."""

from __future__ import annotations

import time
from dataclasses import replace
from functools import partial
from math import inf
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import typer
from scipy import sparse

from labelfield.cli.options import (
    AsJson,
    Classes,
    Device,
    LabelColumn,
    OneBased,
    OneBasedLabels,
    load,
    load_model,
    require_columns,
    require_features,
)
from labelfield.cli.output import Bar, print_json, print_table, say, shown
from labelfield.cli.prediction import by_number, class_numbers
from labelfield.csr import assemble
from labelfield.data import Dataset, align_classes, read_predictions
from labelfield.errors import DataError
from labelfield.metrics import ece_at_k, error_rate, nlpd, popularity, precision_at_k
from labelfield.metrics import evaluate as evaluate_scores
from labelfield.metrics.propensity import PROPENSITY_A, PROPENSITY_B, inverse_propensity_of

__all__ = ["evaluate"]

POPULARITY = "popularity"


def evaluate(
    predictions: Annotated[
        Path,
        typer.Argument(help="A model; lines `label:score label:score …` or .npz; or the word popularity."),
    ],
    truth: Annotated[Path, typer.Argument(help="The data set with the true labels; of two splits, the test rows.")],
    train: Annotated[
        Path | None,
        typer.Option(
            "--train", help="Training data, for propensities. Default: those beside the truth, or of the model."
        ),
    ] = None,
    k: Annotated[str, typer.Option("-k", help="Where to cut the lists.")] = "1,3,5",
    unlabelled: Annotated[
        Literal["miss", "drop"], typer.Option("--unlabelled", help="Whether rows without labels count as misses.")
    ] = "miss",
    a: Annotated[float, typer.Option("--propensity-a", help="Propensity exponent.")] = PROPENSITY_A,
    b: Annotated[float, typer.Option("--propensity-b", help="Propensity offset.")] = PROPENSITY_B,
    device: Device = "auto",
    one_based: OneBased = None,
    one_based_labels: OneBasedLabels = False,
    classes: Classes = False,
    label_column: LabelColumn = None,
    as_json: AsJson = False,
) -> None:
    """Score a model or predictions: P@k, nDCG@k, recall@k, ECE@k; with training data PSP@k and PSnDCG@k; in percent.

    A model of one class a row gets its error rate and the mean of -log p(class) too (nlpd, in nats).

    Example: labelfield evaluate predictions.txt data/bibtex/test.txt.gz --train data/bibtex/train.txt.gz
    """
    ks = parse_ks(k)
    if not (0 <= a < inf and 0 < b < inf):
        raise typer.BadParameter(f"--propensity-a {a:g} --propensity-b {b:g}; expected a >= 0 and b > 0")
    started = time.perf_counter()
    estimator = load_model(predictions, device) if predictions.is_dir() else None
    if estimator is not None and estimator.label_kind_ == "classes":
        n_features = estimator.n_features_in_
        reading = partial(load, classes=True, label_column=label_column, narrow=True)
        dataset = reading(truth, one_based, one_based_labels, n_features=n_features)
        result = _evaluate_classes(estimator, dataset, truth, ks)
        _print_result(f"{predictions} on {truth}", result, ks, unlabelled, as_json, started)
        return
    reading = partial(load, classes=classes, label_column=label_column)
    training = reading(train, one_based, one_based_labels).train if train is not None else None
    if classes and training is not None and train is not None:
        training = _by_class_number(training, train)
    n_labels = max(0 if training is None else training.n_labels, 0 if estimator is None else estimator.spec_.n_labels)
    if estimator is not None:
        reading = partial(reading, n_features=estimator.n_features_in_, narrow=True)
    dataset = reading(truth, one_based, one_based_labels, n_labels=n_labels)
    if classes:
        dataset = _by_class_number(dataset, truth, n_labels)
    rows = dataset if dataset.test is None else dataset.test
    if training is None and dataset.test is not None:
        training = dataset.train
    if training is not None:
        training = _as_wide(training, rows.n_labels, train, truth)
    inverse = None
    if str(predictions) == POPULARITY:
        if training is None:
            raise typer.BadParameter("popularity needs training data: pass --train")
        scores = popularity(training.Y, rows.n_rows, max(ks))
    elif estimator is not None:
        require_columns(rows, truth, estimator.n_features_in_, estimator.spec_.n_labels)
        require_features(rows, truth, estimator)
        with Bar("predicting"):
            scores = _widened(estimator.predict_topk(rows.X, max(ks)), rows.n_labels)
        counts = np.pad(estimator.label_counts_, (0, rows.n_labels - estimator.spec_.n_labels))
        inverse = inverse_propensity_of(counts, estimator.n_rows_, a, b)
    else:
        with Bar(f"reading {predictions.name}") as bar:
            scores = read_predictions(predictions, rows.n_rows, rows.n_labels, progress=bar)
    Y_train = None if training is None else training.Y
    with Bar("scoring"):
        result = evaluate_scores(rows.Y, scores, Y_train, k=ks, unlabelled=unlabelled, a=a, b=b, inverse=inverse)
        if estimator is not None and _has_baseline(estimator):
            plain = _widened(estimator.baseline_topk(rows.X, max(ks)), rows.n_labels)
            alone = evaluate_scores(rows.Y, plain, k=ks, unlabelled=unlabelled)
            result |= {f"network alone: {name}": alone[name] for name in alone if name.startswith(("P@", "ECE@"))}
    _print_result(f"{predictions} on {truth}", result, ks, unlabelled, as_json, started)


def _as_wide(training: Dataset, n_labels: int, path: Path | None, truth: Path) -> Dataset:
    """The training rows with as many labels as the truth has."""
    if training.n_labels > n_labels:
        raise DataError(
            f"{training.n_labels} labels",
            path=path,
            expected=f"{n_labels} as {truth} has",
            fix="Use one label set.",
        )
    if training.n_labels == n_labels:
        return training
    return replace(training, Y=_widened(training.Y, n_labels), label_names=None)


def _widened(matrix: sparse.csr_array, n_labels: int) -> sparse.csr_array:
    """The same entries, with columns for labels that training had not too."""
    return assemble(matrix.data, matrix.indices, matrix.indptr, (matrix.shape[0], n_labels))


def _has_baseline(estimator: Any) -> bool:
    """Whether a model has kept the plain network that it started from, to be compared with."""
    return bool(getattr(getattr(estimator, "spec_", None), "has_baseline", False))


def _by_class_number(dataset: Dataset, path: Path, n_labels: int = 0) -> Dataset:
    """The classes in the columns that `predict` writes them in."""
    numbers = class_numbers(dataset.label_names or ())
    if numbers is None:
        raise DataError(
            "classes that are no numbers",
            path=path,
            expected="numbers, as predictions have",
            fix="Evaluate the model itself.",
        )
    test = None if dataset.test is None else _by_class_number(dataset.test, path, n_labels)
    return replace(dataset, Y=by_number(dataset.Y, numbers, n_labels), label_names=None, test=test)


def _evaluate_classes(estimator: Any, dataset: Dataset, truth: Path, ks: list[int]) -> dict[str, Any]:
    """The scores of a model with one class a row. A class that it has not seen counts as an error, and not in nlpd."""
    dataset = align_classes(dataset, estimator.label_names_)
    rows = dataset if dataset.test is None else dataset.test
    require_features(rows, truth, estimator)
    n_classes = estimator.spec_.n_labels
    with Bar("predicting"):
        P = estimator.predict_proba(rows.X)
        plain = estimator.baseline_proba(rows.X) if _has_baseline(estimator) else None
    y = rows.Y.indices
    is_known = y < n_classes
    with Bar("scoring"):
        everything = np.pad(P, ((0, 0), (0, rows.n_labels - n_classes)))
        scores: dict[str, Any] = {"rows": rows.n_rows, "unlabelled_rows": 0}
        for k in [k for k in ks if k <= n_classes] or [1]:
            scores[f"P@{k}"] = 100 * precision_at_k(rows.Y, everything, k)
            scores[f"ECE@{k}"] = 100 * ece_at_k(rows.Y, everything, k)
        scores["error rate %"] = 100 * error_rate(y, everything)
        scores["nlpd"] = nlpd(y[is_known], P[is_known])
        if plain is not None:
            everything = np.pad(plain, ((0, 0), (0, rows.n_labels - n_classes)))
            scores["network alone: error rate %"] = 100 * error_rate(y, everything)
            scores["network alone: nlpd"] = nlpd(y[is_known], plain[is_known])
    if not is_known.all():
        unseen = sorted({rows.label_names[column] for column in y[~is_known]}) if rows.label_names else []
        say(f"{np.count_nonzero(~is_known)} rows are of classes that the model has not seen ({', '.join(unseen[:5])})")
        scores["rows of unseen classes"] = int(np.count_nonzero(~is_known))
    return scores


def _print_result(
    title: str, result: dict[str, Any], ks: list[int], unlabelled: str, as_json: bool, started: float
) -> None:
    if as_json:
        print_json({**result, "unlabelled": unlabelled, "seconds": time.perf_counter() - started})
    else:
        print_scores(title, result, [k for k in ks if f"P@{k}" in result], unlabelled)


def parse_ks(text: str) -> list[int]:
    parts = text.split(",")
    if not all(part.strip().isdecimal() and 0 < int(part) < 2**31 for part in parts):
        raise typer.BadParameter(f"-k {text}; expected positive integers such as 1,3,5")
    return sorted({int(part) for part in parts})


def print_scores(title: str, result: dict[str, Any], ks: list[int], unlabelled: str) -> None:
    """Scores at k as a table, the others below, and which rows they are over."""
    names = list(dict.fromkeys(name.partition("@")[0] for name in result if "@" in name))
    table = [[name, *(shown(result[f"{name}@{k}"]) for k in ks)] for name in names]
    print_table(title, ["%", *(f"@{k}" for k in ks)], table)
    others = {name: value for name, value in result.items() if "@" not in name and not name.endswith("rows")}
    if others:
        print_table("", ["score", ""], [[name, shown(value)] for name, value in others.items()])
    n_empty = shown(result["unlabelled_rows"])
    treated = "counted as misses" if unlabelled == "miss" else "left out"
    print(f"over {shown(result['rows'])} rows; {n_empty} rows without labels {treated}")
