"""The best labels of rows among those of a few cells, with a certificate where nothing can have been overlooked."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from labelfield.compiled import has_numba
from labelfield.csr import gather_rows
from labelfield.errors import CannotAnswerError
from labelfield.memory import FEWER_ROWS, advising_on_memory, row_blocks
from labelfield.models.cells import Layout
from labelfield.models.linear.scores import Weights

F4 = NDArray[np.float32]
# Scored labels of all rows that exist at once, and rows: cells are read once for all rows that visit them.
_BLOCK_ENTRIES, _MOST_ROWS = 1 << 24, 4000
# The largest wᵀx of a cell is guessed to be the mean, and this share of the sum of the largest parts. On a model of
# EUR-Lex, rows then visit a quarter fewer cells than by the bound.
_HOPE = np.float32(0.3)
# Probabilities that are less than this factor apart may be the other way round without rounding.
_MARGIN = 1 + 1e-4


class Searched(NamedTuple):
    """The best labels of rows as CSR (N, K), which lists are proven to be those of a search of all labels (N,), and how
    many labels of each row were scored (N,)."""

    best: sparse.csr_array
    is_certified: NDArray[np.bool_]
    n_scored: NDArray[np.int64]


class Visits:
    """The cells (rows, n) that rows visit, which rise in each row, and all labels there, one visit after another."""

    def __init__(self, layout: Layout, cells: NDArray[np.int32]) -> None:
        self.layout, self.cells = layout, cells
        self.starts = np.concatenate([[0], np.cumsum(layout.sizes[cells].ravel())])

    @property
    def row_starts(self) -> NDArray[np.int64]:
        """Where the labels of each row begin (rows + 1,)."""
        return np.ascontiguousarray(self.starts[:: self.cells.shape[1]])

    @cached_property
    def labels(self) -> NDArray[np.int32]:
        """The labels."""
        from labelfield.compiled.cells import list_labels

        found = np.empty(self.starts[-1], np.int32)
        list_labels(self.cells, self.layout.order, self.layout.starts, self.starts, found)
        return found

    @cached_property
    def rows(self) -> NDArray[np.int64]:
        """The row of each label."""
        return np.repeat(np.arange(len(self.cells)), np.diff(self.row_starts))

    def best(self, values: F4, k: int) -> tuple[NDArray[np.int64], F4]:
        """Return the places of the k largest values of each row (rows, k), best first, and these; of equals the smaller
        label first. A place is -1 where a row has fewer labels."""
        from labelfield.compiled.cells import best_of

        places, found = np.empty((len(self.cells), k), np.int64), np.full((len(self.cells), k), -np.inf, np.float32)
        best_of(values, self.labels, self.row_starts, places, found)
        return places, found


class Asked(ABC):
    """What a model says about the cells of some rows before it looks at labels.

    `likely` (rows, C) is larger for cells that are more likely to have the best labels, and no raw probability in a
    cell is above `most` (rows, C).
    """

    likely: F4
    most: F4

    @property
    @abstractmethod
    def likely_probability(self) -> F4:
        """About how probable the best label of each cell (rows, C) is: what `likely` means, in all models alike."""

    @abstractmethod
    def probabilities(self, visits: Visits) -> F4:
        """Return the raw probabilities of all visited labels."""

    @abstractmethod
    def take(self, rows: NDArray[np.int64]) -> Asked:
        """Return the same for some of the rows."""

    def best(self, visits: Visits, k: int) -> tuple[NDArray[np.int64], F4]:
        """Return the places of the k most probable visited labels of each row, and their raw probabilities."""
        return visits.best(self.probabilities(visits), k)


class CellScorer(ABC):
    """A model of labels in cells."""

    layout: Layout

    @abstractmethod
    def ask(self, rows: sparse.csr_array) -> Asked:
        """Return what is known about all cells of rows, as the model sees them."""


class WeightsByCell:
    """Sparse weights of labels by feature and cell: takes a little more memory than the weights themselves."""

    def __init__(self, weights: Weights, layout: Layout, n_features: int) -> None:
        from labelfield.compiled.cells import count_pairs, fill_pairs, lay_out_by_cell
        from labelfield.compiled.scores import count_features

        self.layout = layout
        features = np.ascontiguousarray(weights.features, np.int32)
        values = np.ascontiguousarray(weights.weights, np.float32)
        starts = np.concatenate([[0], np.cumsum(count_features(features, n_features))])
        self.places, self.values = np.empty(features.size, np.int32), np.empty(features.size, np.float32)
        pointers = np.ascontiguousarray(weights.pointers, np.int64)
        lay_out_by_cell(pointers, features, values, layout.order, starts[:-1].copy(), self.places, self.values)
        counts = count_pairs(starts, self.places, layout.cell_of_place)
        self.pair_starts = np.concatenate([[0], np.cumsum(counts)])
        n_pairs = int(self.pair_starts[-1])
        self.cells, self.begins = np.empty(n_pairs, np.int32), np.full(n_pairs + 1, features.size, np.int64)
        self.most, sums = np.empty(n_pairs, np.float32), np.empty(n_pairs, np.float32)
        own = self.places, self.values, layout.cell_of_place
        fill_pairs(starts, *own, self.cells, self.most, sums, self.begins)
        self.likely = sums
        self.likely /= np.maximum(layout.sizes, 1).astype(np.float32)[self.cells]
        self.likely += _HOPE * self.most

    def bounds(self, rows: sparse.csr_array) -> tuple[F4, F4]:
        """Return what wᵀx of a label of each cell (rows, C) is at the most, for rows without negative entries, and what
        the largest of them may be."""
        from labelfield.compiled.cells import add_pairs

        most, likely = (np.zeros((rows.shape[0], self.layout.n_cells), np.float32) for _ in range(2))
        add_pairs(*_arrays(rows), self.pair_starts, self.cells, self.most, self.likely, most, likely)
        return most, likely

    def products(self, rows: sparse.csr_array, visits: Visits) -> F4:
        """Return wᵀx of all visited labels, summed in the order of the features."""
        from labelfield.compiled.cells import add_products

        out = np.zeros(visits.starts[-1], np.float32)
        own = self.pair_starts, self.cells, self.begins, self.places, self.values
        add_products(*_arrays(rows), visits.cells, visits.starts, self.layout.starts, *own, out)
        return out


def _arrays(rows: sparse.csr_array) -> tuple[NDArray[np.int32], NDArray[np.int32], F4]:
    data = np.ascontiguousarray(rows.data, np.float32)
    return rows.indptr.astype(np.int32, copy=False), rows.indices.astype(np.int32, copy=False), data


def require_compiled() -> None:
    """Raise if there are no compiled loops, without which cells are slower than a search of all labels."""
    if not has_numba():
        raise CannotAnswerError("a search in cells needs numba, which is not installed; use search='exact'")


def search(
    scorer: CellScorer, rows: sparse.csr_array, k: int, n_visits: int
) -> Iterator[tuple[NDArray[np.int64], F4, NDArray[np.bool_], NDArray[np.int64]]]:
    """Yield for blocks of rows their k best labels, the raw probabilities, which lists are certified, and how many
    labels were scored. Each row visits the `n_visits` cells that are most likely to have its best labels."""
    layout = scorer.layout
    # However few labels a cell has, a row has to find k of them.
    fewest = int(np.searchsorted(np.cumsum(np.sort(layout.sizes)), k)) + 1
    n_visits = min(max(n_visits, fewest), layout.n_cells)
    mean = max(1, len(layout.order) * n_visits // layout.n_cells)
    for block in row_blocks(rows.shape[0], max(mean, layout.n_cells), entries=_BLOCK_ENTRIES, most=_MOST_ROWS):
        with advising_on_memory(FEWER_ROWS):
            yield _searched(scorer, gather_rows(rows, np.arange(block.start, block.stop)), k, n_visits)


def _searched(
    scorer: CellScorer, rows: sparse.csr_array, k: int, n_visits: int
) -> tuple[NDArray[np.int64], F4, NDArray[np.bool_], NDArray[np.int64]]:
    asked = scorer.ask(rows)
    visits = Visits(scorer.layout, _first(asked.likely, n_visits))
    places, p = asked.best(visits, k)
    labels = visits.labels[places].astype(np.int64)
    others = asked.most
    np.put_along_axis(others, visits.cells.astype(np.int64), -1.0, 1)
    # A cell without labels has nothing to overlook; a row with negative entries has no bounds.
    others[:, scorer.layout.sizes == 0] = -1.0
    is_bounded = np.ones(rows.shape[0], np.bool_)
    is_bounded[np.repeat(np.arange(rows.shape[0]), np.diff(rows.indptr))[rows.data < 0]] = False
    is_certified = is_bounded & (others.max(1, initial=-1.0) * _MARGIN < p[:, -1])
    return labels, p, is_certified, np.diff(visits.row_starts)


def _first(likely: F4, n_visits: int) -> NDArray[np.int32]:
    """Return the most likely cells of each row (rows, n), in the order of the cells."""
    n_cells = likely.shape[1]
    if n_visits == n_cells:
        return np.tile(np.arange(n_cells, dtype=np.int32), (len(likely), 1))
    chosen = np.argpartition(likely, n_cells - n_visits, axis=1)[:, n_cells - n_visits :]
    return np.sort(chosen, axis=1).astype(np.int32)


def turns_of(scorer: CellScorer, rows: sparse.csr_array, labels: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return as which of all cells each row would visit those of these labels (N, k), 0 for the first."""
    layout = scorer.layout
    of_label = np.empty(len(layout.order), np.int64)
    of_label[layout.order] = layout.cell_of_place
    found = np.empty(labels.shape, np.int64)
    for block in row_blocks(rows.shape[0], layout.n_cells, entries=_BLOCK_ENTRIES, most=_MOST_ROWS):
        likely = scorer.ask(gather_rows(rows, np.arange(block.start, block.stop))).likely
        for place in range(labels.shape[1]):
            own = np.take_along_axis(likely, of_label[labels[block, place]][:, None], 1)
            found[block, place] = np.count_nonzero(likely >= own, axis=1) - 1  # of equals, the last
    return found
