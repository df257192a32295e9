"""Searches for the best labels: which way, and the cells of a fitted classifier."""

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from labelfield.csr import gather_rows
from labelfield.decide.bounds import betting_p_value
from labelfield.errors import CannotAnswerError
from labelfield.estimators.blueprint import Fitted
from labelfield.models.cells import Audit, Cells, Layout, default_cells, similar
from labelfield.models.search import Searched, turns_of

Search = Literal["auto", "exact", "cells"]
# Labels per row that an audit compares.
_AUDITED = 5
# With fewer rows no audit can succeed: none may then be missed. More rows say little more, and each is ranked exactly.
_LEAST_ROWS, _MOST_ROWS = 400, 4000
# Numbers of visits that an audit looks at: each is larger by this factor.
_FINER = 1.1


def uses_cells(fitted: Fitted, k: int, rank_by: Any, search: str) -> bool:
    """Return whether the best k labels are searched in cells; raise if that was asked for and cannot be."""
    if search not in ("auto", "exact", "cells"):
        raise ValueError(f"search={search!r}; expected auto, exact or cells")
    if search == "exact":
        return False
    is_plain = rank_by == "probability" or rank_by == 0
    if search == "cells":
        if fitted.cells is None:
            raise CannotAnswerError(
                "the labels of this model are not in cells. Use put_in_cells(rows), or search='exact'"
            )
        if not is_plain:
            raise CannotAnswerError(f"a search in cells ranks by probability, not by {rank_by}; use search='exact'")
        return True
    is_on_cpu = next((part.device.type == "cpu" for part in fitted.model.parameters()), True)
    return fitted.cells is not None and fitted.cells.pays and is_plain and is_on_cpu and k <= fitted.cells.audit.k


def search_cells(fitted: Fitted, rows: sparse.csr_array, k: int, calibrated: bool) -> Searched:
    """Return the best labels of rows as the model sees them, from the cells of the fitted model."""
    assert fitted.cells is not None
    found: Searched = fitted.predictor.searched(rows, k, fitted.cells, calibrated)
    return found


def cells_of(
    predictor: Any,
    rows: sparse.csr_array,
    n_cells: int | None = None,
    target: float = 0.99,
    confidence: float = 0.95,
    *,
    seed: int,
) -> Cells:
    """Put labels into cells, and audit searches in them on rows that are like those to come."""
    require_rows(rows.shape[0])
    rows = gather_rows(rows, np.linspace(0, rows.shape[0] - 1, min(rows.shape[0], _MOST_ROWS)).astype(np.int64))
    of_label = predictor.natural_cells() if n_cells is None else None
    if of_label is None:
        n_cells = default_cells(predictor.n_labels) if n_cells is None else n_cells
        of_label = similar(predictor.label_vectors(rows), predictor.n_labels, n_cells, seed)
    n_cells = int(of_label.max()) + 1
    k = min(_AUDITED, predictor.n_labels)
    best = predictor.top_k(rows, k, calibrated=False).indices.reshape(-1, k).astype(np.int64)
    scorer = predictor.scorer(Layout.of(of_label, n_cells))
    return Cells(of_label, n_cells, audited(turns_of(scorer, rows, best), n_cells, target, confidence))


def audited(turns: NDArray[np.integer], n_cells: int, target: float = 0.99, confidence: float = 0.95) -> Audit:
    """Return the smallest number of visits with which `target` of the best labels are found, with this confidence.

    `turns` (n, k) says of the best labels of audited rows, found by a search of all, as which of all cells their row
    would visit theirs (0 for the first). Numbers of visits are tested from the largest on, until one fails: more visits
    never find less, so that no number is chosen by luck.
    """
    require_rows(len(turns))
    grid = np.unique(np.ceil(_FINER ** np.arange(0, 1 + np.log(n_cells) / np.log(_FINER)))).astype(np.int64)
    chosen = None
    for n_visits in np.minimum(grid, n_cells)[::-1].tolist():
        recall = np.mean(turns < n_visits, axis=1)
        if betting_p_value(recall - target, -target, 1 - confidence) > 1 - confidence:
            break
        chosen = Audit(n_visits, turns.shape[1], float(recall.mean()), target, confidence, len(turns))
    if chosen is None:  # although all cells hold all labels
        raise CannotAnswerError(
            f"{len(turns)} rows are too few to be sure that {target:g} of the best labels are found; "
            "use more rows, or a smaller target or confidence"
        )
    return chosen


def require_rows(n_rows: int) -> None:
    """Raise if the rows are too few for an audit."""
    if n_rows < _LEAST_ROWS:
        raise CannotAnswerError(
            f"{n_rows} rows are too few to audit a search in cells; at least {_LEAST_ROWS} are needed"
        )
