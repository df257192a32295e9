"""Searches for the best labels: which way, and the index of a fitted classifier."""

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from labelfield.compiled import has_numba
from labelfield.csr import column_counts, gather_rows
from labelfield.decide.bounds import betting_p_value
from labelfield.errors import CannotAnswerError
from labelfield.estimators.blueprint import Fitted
from labelfield.memory import FEWER_ROWS, advising_on_memory
from labelfield.models.index import Audit, Directions, Index, least_weights
from labelfield.models.search import Guesses, Scorer, Searched, blocks_of, turns_of

Search = Literal["auto", "exact", "index"]
# Labels per row that an audit compares.
_AUDITED = 5
# With fewer rows no audit can succeed: none may then be missed. More rows say little more, and each is ranked exactly.
_LEAST_ROWS, _MOST_ROWS = 400, 4000
# Training makes an index of so many labels, by fewer rows: with fewer labels it saves little.
_MANY_LABELS, _FEW_ROWS = 20_000, 1000
# The most labels that are scored exactly; their numbers that an audit looks at: each is larger by this factor.
_MOST_KEPT, _FINER = 4096, 1.1
# Labels, and weights of labels, that directions and least weights are found from.
_LABELS, _WEIGHTS = 1 << 16, 1 << 21
# A row meets about so many weights of labels that count before labels are scored exactly.
_MET = 10_000


def uses_index(fitted: Fitted, k: int, rank_by: Any, way: str) -> bool:
    """Return whether the best k labels are searched with an index; raise if that was asked for and cannot be."""
    if way not in ("auto", "exact", "index"):
        raise ValueError(f"search={way!r}; expected auto, exact or index")
    if way == "exact":
        return False
    is_plain = rank_by == "probability" or rank_by == 0
    if way == "index":
        if fitted.index is None:
            raise CannotAnswerError("the labels of this model have no index. Use index_labels(rows), or search='exact'")
        if not is_plain:
            raise CannotAnswerError(
                f"a search with an index ranks by probability, not by {rank_by}; use search='exact'"
            )
        return True
    is_on_cpu = next((part.device.type == "cpu" for part in fitted.model.parameters()), True)
    index = fitted.index
    if index is None or not index.pays(fitted.predictor.n_labels):
        return False
    return is_plain and is_on_cpu and has_numba() and k <= index.audit.k


def search_index(fitted: Fitted, rows: sparse.csr_array, k: int, calibrated: bool) -> Searched:
    """Return the best labels of rows as the model sees them, by the index of the fitted model."""
    assert fitted.index is not None
    found: Searched = fitted.predictor.searched(rows, k, fitted.index, calibrated)
    return found


def rows_for_index(rows: sparse.csr_array, n_labels: int) -> sparse.csr_array | None:
    """Return some rows for the index that training makes of very many labels; None if it makes none."""
    is_large = n_labels >= _MANY_LABELS and rows.shape[0] >= _LEAST_ROWS
    return _some_of(rows, _FEW_ROWS) if is_large else None


def index_where_it_pays(fitted: Fitted) -> Index | None:
    """Return an index from rows that were trained on; None where the audit finds that it does not pay, or where there
    can be none."""
    if fitted.rows_for_index is None:
        return None
    try:
        with advising_on_memory(FEWER_ROWS):
            index = index_of(fitted.predictor, fitted.row_transform(fitted.rows_for_index))
    except (CannotAnswerError, MemoryError):  # the model is whole without it
        return None
    return index if index.pays(fitted.predictor.n_labels) else None


def _some_of(rows: sparse.csr_array, most: int) -> sparse.csr_array:
    """Return rows evenly among all, so many at the most."""
    return gather_rows(rows, np.linspace(0, rows.shape[0] - 1, min(rows.shape[0], most)).astype(np.int64))


def index_of(predictor: Any, rows: sparse.csr_array, target: float = 0.99, confidence: float = 0.95) -> Index:
    """Index labels, and audit searches on rows that are like those to come."""
    require_rows(rows.shape[0])
    rows = _some_of(rows, _MOST_ROWS)
    scorer: Scorer = predictor.scorer()
    k, most = min(_AUDITED, predictor.n_labels), min(_MOST_KEPT, predictor.n_labels)
    directions = directions_of(scorer, rows)
    guesses = Guesses(scorer, directions)
    best = predictor.top_k(rows, k, calibrated=False).indices.reshape(-1, k).astype(np.int64)
    return Index(directions, audited(turns_of(guesses, rows, best, most), most, target, confidence))


def directions_of(scorer: Scorer, rows: sparse.csr_array) -> Directions:
    """Return the directions in which labels differ for such rows, and the weights that count at first."""
    of_rows, squares, counts = [], np.zeros(scorer.n_features), np.zeros(scorer.n_features, np.int64)
    for block in blocks_of(scorer, rows.shape[0], 0):
        asked = scorer.ask(gather_rows(rows, np.arange(block.start, block.stop)))
        of_rows.append(asked.vectors)
        np.add.at(squares, asked.rows.indices, np.square(asked.rows.data, dtype=np.float64))
        counts += column_counts(asked.rows)
    step = -(-scorer.n_labels // _LABELS)
    vectors = scorer.vectors(slice(0, scorer.n_labels, step))
    least = np.zeros(scorer.n_features, np.float32)
    if scorer.n_numbers and scorer.own:  # else guesses can be exact
        step = -(-sum(own.weights.weights.size for own in scorer.own) // _WEIGHTS)
        sizes, features = [], []
        for own in scorer.own:
            chosen = np.arange(0, own.weights.weights.size, max(step, 1))
            label = np.searchsorted(own.weights.pointers, chosen, side="right") - 1
            sizes.append(np.abs(own.weights.weights[chosen] * own.slopes[label]))
            features.append(own.weights.features[chosen] + own.first)
        every = np.concatenate(sizes), np.concatenate(features)
        least = least_weights(*every, 1 / max(step, 1), squares, counts, rows.shape[0], _MET)
    return Directions.of(np.concatenate(of_rows), vectors, least)


def audited(turns: NDArray[np.integer], most: int, target: float = 0.99, confidence: float = 0.95) -> Audit:
    """Return the smallest number of labels, `most` or fewer, with which `target` of the best are found, with this
    confidence.

    `turns` (n, k) says of the best labels of audited rows, found by a search of all, how many labels have better
    guesses. Numbers are tested from the largest on, until one fails: more labels never find less, so that no number is
    chosen by luck.
    """
    require_rows(len(turns))
    grid = np.unique(np.ceil(_FINER ** np.arange(0, 1 + np.log(most) / np.log(_FINER)))).astype(np.int64)
    chosen = None
    for n_kept in np.minimum(grid, most)[::-1].tolist():
        recall = np.mean(turns < n_kept, axis=1)
        if betting_p_value(recall - target, -target, 1 - confidence) > 1 - confidence:
            break
        chosen = Audit(n_kept, turns.shape[1], float(recall.mean()), target, confidence, len(turns))
    if chosen is None:
        raise CannotAnswerError(
            f"{len(turns)} rows do not make sure that {target:g} of the best labels are among the {most:,} with the "
            "best guesses; use more rows, or a smaller target or confidence"
        )
    return chosen


def require_rows(n_rows: int) -> None:
    """Raise if the rows are too few for an audit."""
    if n_rows < _LEAST_ROWS:
        raise CannotAnswerError(
            f"{n_rows} rows are too few to audit a search with an index; at least {_LEAST_ROWS} are needed"
        )
