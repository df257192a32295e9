"""The command `check`: do new rows look like the training rows, and may promises be believed?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from labelfield.cli.options import AsJson, Device, Reading, load_model, reads_files
from labelfield.cli.output import Bar, counted, print_json, print_table, say
from labelfield.decide import Evidence, Policy
from labelfield.decide.drift import Drift, compare, judge_promises
from labelfield.errors import CannotAnswerError, DataError

if TYPE_CHECKING:
    from labelfield.data import Dataset
    from labelfield.estimators.protocol import FittedClassifier

# The promises to test: of each kind, the first that can be made.
_USUAL: dict[str, tuple[float, ...]] = {"precision": (0.95, 0.9, 0.8, 0.6, 0.4), "recall": (0.8, 0.6, 0.4)}


@reads_files(documents=True)
def check(
    reading: Reading,
    model: Annotated[Path, typer.Argument(help="The folder of a model.")],
    rows: Annotated[Path, typer.Argument(help="New rows or documents; for two splits, the test rows.")],
    precision: Annotated[
        float | None,
        typer.Option("--precision", help="The promise to test with labels. Default: 0.95 or less."),
    ] = None,
    recall: Annotated[
        float | None, typer.Option("--recall", help="The promise to test with labels. Default: 0.8 or less.")
    ] = None,
    confidence: Annotated[float, typer.Option("--confidence", help="The confidence of the promise.")] = 0.95,
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """Check whether new rows look like the training rows, and so whether the promises of `tag` can be trusted.

    Labels are not needed. If the rows have them, the promises are tested too.

    Example: labelfield check model new.csv
    """
    estimator = load_model(model, device)
    dataset = reading.for_model(estimator, rows, labelled=False)
    try:
        with Bar("predicting"):
            found = drift_of(estimator, dataset, {"precision": precision, "recall": recall}, confidence)
    except DataError as error:
        raise error.at(rows) from None
    except CannotAnswerError:
        raise
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    if as_json:
        tables = {name: [one._asdict() for one in getattr(found, name)] for name in ("comparisons", "promises")}
        print_json(
            {"is_new_kind": found.is_new_kind, "is_broken": found.is_broken, "said": found.said}
            | {"n_held_out": found.n_held_out, "n_new": found.n_new, **tables}
        )
        return
    _print(found)
    is_worth_a_warning = found.is_new_kind or found.is_broken
    say(f"warning: {found.said}" if is_worth_a_warning else found.said)


def drift_of(estimator: FittedClassifier, dataset: Dataset, aims: dict[str, float | None], confidence: float) -> Drift:
    """Compare a model's predictions for new rows with those for held-out rows; test promises if rows have labels."""
    known = estimator.held_out_evidence()
    best = estimator.predict_topk(dataset.X, known.n_listed)
    new = Evidence.of_scores(best, dataset.Y)
    promises = []
    if dataset.Y.nnz:
        policies = [_policy(estimator, name, value, confidence) for name, value in aims.items()]
        labelled = new
        if n_bare := int(np.count_nonzero(new.true_counts == 0)):
            # Of one class per row none is unknown; of several labels none may hold.
            are_left_out = estimator.label_kind_ == "classes"
            labelled = new.take(np.flatnonzero(new.true_counts)) if are_left_out else new
            treated = "are left out" if are_left_out else "count as rows with none of the labels"
            say(
                f"of {counted(new.n_rows, 'row')}, {n_bare:,} without labels; where promises are tested, they {treated}"
            )
        promises = judge_promises(labelled, [policy for policy in policies if policy is not None])
    return Drift(compare(known, new.labels, new.p), promises, known.n_rows, dataset.n_rows)


def _policy(estimator: FittedClassifier, name: str, value: float | None, confidence: float) -> Policy | None:
    """Return the policy that was asked for, or else the first usual one that can be promised."""
    if value is not None:
        return estimator.policy(**{name: value, "confidence": confidence})
    for usual in _USUAL[name]:
        try:
            return estimator.policy(**{name: usual, "confidence": confidence})
        except CannotAnswerError:
            continue
    return None


def _print(found: Drift) -> None:
    lines: list[list[Any]] = [
        [one.name, f"{one.held_out:.3f}", f"{one.new:.3f}", f"{one.distance:.4f}", f"{one.most:.4f}"]
        for one in found.comparisons
    ]
    title = f"{found.n_new:,} new rows beside {found.n_held_out:,} that were held out in training"
    print_table(title, ["what is compared", "held out", "new", "distance", "by chance"], lines)
    if found.promises:
        header = ["promise", "promised", "reached", "p-value that it is kept"]
        lines = [
            [
                one.name,
                f"{one.promised:.3f}",
                "–" if np.isnan(one.reached) else f"{one.reached:.3f}",
                f"{one.p_value:.3f}",
            ]
            for one in found.promises
        ]
        print_table("", header, lines)
