"""Ten test rows worth looking at, with the model's predictions."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from labelfield.csr import gather_rows
from labelfield.estimators.protocol import FittedClassifier
from labelfield.estimators.text import explain_text
from labelfield.explain import explain_row, intervals
from labelfield.explain.excerpt import Piece, excerpt
from labelfield.report.learned import as_image
from labelfield.report.predictions import Predictions

LEVEL = 0.9
# How many rows of each kind are wanted.
_WANTED = {"sure and right": 3, "sure and wrong": 3, "unsure and right": 2, "unsure and wrong": 2}
_N_ROWS = sum(_WANTED.values())
_N_STRONGEST = 6
# Letters of a document that are shown.
_EXCERPT = 400
# Each feature of an example is left out once, which predicts all labels: more probabilities than this take minutes.
_MOST_PROBABILITIES = 200_000_000


class Guess(NamedTuple):
    """A label that the model predicts: its number, probability, interval if any, and whether it is right."""

    label: int
    p: float
    interval: tuple[float, float] | None
    is_right: bool


class Example(NamedTuple):
    """A test row: its number from 0, why it was chosen, what the model predicts, and which true labels it missed.

    It is called by its number, a document by its id.

    Where rows are images, `image` is the row as a picture. Else, where features have names, `carried` are the features
    that did most for or against its first label: name, value, and by how much the log-odds fall without it. Where rows
    are documents, `pieces` is a part of the text with the words that did most for or against its first label.
    """

    row: int
    name: str
    kind: str
    uncertainty: float
    guesses: list[Guess]
    missed: list[int]
    image: NDArray[np.float64] | None
    carried: list[tuple[str, float, float]]
    pieces: list[Piece]


def choose_rows(predictions: Predictions) -> list[tuple[int, str]]:
    """Choose instructive rows: the surest and the least sure, right and wrong.

    First labels differ within a kind where possible; rows without labels come last. Where a kind has too few rows, the
    least sure of the others fill up.
    """
    order = np.argsort(predictions.uncertainty, kind="stable")
    has_labels = predictions.judged.n_true > 0
    order = np.concatenate([order[has_labels[order]], order[~has_labels[order]]])
    first = predictions.judged.ranked.labels[:, 0]
    chosen: dict[int, str] = {}
    for kind, n in _WANTED.items():
        asked = order[(predictions.is_wrong[order] == kind.endswith("wrong")) & has_labels[order]]
        _take(chosen, asked if kind.startswith("sure") else asked[::-1], first, kind, n)
    rest = np.array([row for row in order[::-1] if row not in chosen], np.int64)
    for row in rest[: max(0, _N_ROWS - len(chosen))]:
        chosen[int(row)] = "unsure and wrong" if predictions.is_wrong[row] else "unsure and right"
    return sorted(chosen.items(), key=lambda item: list(_WANTED).index(item[1]))


def _take(chosen: dict[int, str], asked: NDArray[np.int64], first: NDArray[np.int64], kind: str, n: int) -> None:
    """Add the first n of the given rows that are not chosen yet, with different first labels where possible."""
    free = [int(row) for row in asked if int(row) not in chosen]
    _, where = np.unique(first[free], return_index=True) if free else (None, np.zeros(0, np.int64))
    unlike = [free[i] for i in np.sort(where)][:n]
    others = [row for row in free if row not in set(unlike)]
    chosen.update(dict.fromkeys((unlike + others)[:n], kind))


def examples(
    estimator: FittedClassifier,
    X: sparse.csr_array,
    predictions: Predictions,
    side: int | None = None,
    feature_names: Sequence[str] | None = None,
    texts: Sequence[Sequence[str]] | None = None,
    ids: Sequence[str] | None = None,
) -> list[Example]:
    """Return the predictions for the chosen rows; intervals are computed only for these rows."""
    chosen = choose_rows(predictions)
    rows = gather_rows(X, np.array([row for row, _ in chosen], np.int64))
    ends = intervals(estimator, rows, LEVEL)
    ranked, hit, Y = predictions.judged.ranked, predictions.judged.hit, predictions.Y
    has_names = feature_names is not None or estimator.feature_names() is not None
    is_explained = (
        side is None and has_names and texts is None and rows.nnz * estimator.predictor_.n_labels <= _MOST_PROBABILITIES
    )
    result = []
    for place, (row, kind) in enumerate(chosen):
        x, carried, pieces = gather_rows(rows, np.array([place])), [], []
        if texts is not None:
            pieces = excerpt(explain_text(estimator, texts[row], 1, _N_STRONGEST)[0], _EXCERPT)
        if is_explained:
            found = explain_row(
                estimator,
                x,
                labels=ranked.labels[row, :1],
                n_features=_N_STRONGEST,
                n_inducing=0,
                feature_names=feature_names,
            )
            carried = found.labels[0].features
        image = None if side is None else as_image(x.toarray(), side)
        guesses = []
        for label, p, is_right in zip(ranked.labels[row].tolist(), ranked.scores[row], hit[row], strict=True):
            if label >= 0:
                own = None if ends is None else (float(ends[0][place, label]), float(ends[1][place, label]))
                guesses.append(Guess(label, float(p), own, bool(is_right)))
        named = {guess.label for guess in guesses}
        missed = [label for label in Y.indices[Y.indptr[row] : Y.indptr[row + 1]].tolist() if label not in named]
        name = f"row {row:,}" if ids is None else f"document {ids[row]}"
        unsure = float(predictions.uncertainty[row])
        result.append(Example(row, name, kind, unsure, guesses, missed, image, carried, pieces))
    return result
