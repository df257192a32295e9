"""The best labels of rows: guesses for all labels choose a few, which are then scored exactly.

A guess is a log-odds, or nearly one: the product of a vector of the row with one of the label, both in bytes, a bias,
the label's sparse weights on the features of the row, and what label trees say of its groups. Guesses for a block of
labels are made, compared with the best so far and forgotten while they are in cache. A bound of how wrong they are
often proves that no label was overlooked.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import pairwise
from math import exp
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor

from labelfield.compiled import has_numba
from labelfield.csr import gather_rows
from labelfield.errors import CannotAnswerError, no_numbers
from labelfield.memory import FEWER_ROWS, advising_on_memory, row_blocks
from labelfield.models.index import Directions
from labelfield.models.linear.scores import Weights

F4 = NDArray[np.float32]
# Labels and rows whose guesses exist at once; rows that go through all labels together, and how many kept labels and
# scores of groups these have at the most.
_LABELS, _ROWS, _MOST_ROWS, _ENTRIES = 4096, 256, 4096, 1 << 24
# The least number of labels that are scored exactly, and for each one that is asked for.
_LEAST_KEPT, _KEPT_PER_LABEL = 32, 4
# Probabilities that are less than this factor apart may be the other way round without rounding.
_MARGIN = 1 + 1e-4
# The rounding of a sum of n float32 numbers, for each of them.
_ROUNDING = 1.2e-7
# The largest byte.
_BYTE = 127
# log p of a label within a group below which the group counts as if it had this: t ≤ log(e^least + Σ e^ρ / trees).
LEAST_IN_TREES = -2.0


class Searched(NamedTuple):
    """The best labels of rows as CSR (N, K), which lists are proven to be those of a search of all labels (N,), and how
    many labels of each row were scored exactly (N,)."""

    best: sparse.csr_array
    is_certified: NDArray[np.bool_]
    n_scored: NDArray[np.int64]


class Own(NamedTuple):
    """Sparse weights of all labels, multiplied by slopes (K,), on features from `first` on."""

    weights: Weights
    slopes: F4
    first: int = 0


class Trees(NamedTuple):
    """The group of each label in some trees (trees, K), of `n_groups` in all of them together, and what t adds (K,)."""

    groups: NDArray[np.int64]
    slopes: F4
    n_groups: int


class Scorer(ABC):
    """A model of labels as a search sees it: what guesses are made of, and exact probabilities.

    `bias` (K,) is the guess for a row of zeros; vectors of rows and labels have `n_numbers` each.
    """

    n_labels: int
    n_numbers: int
    n_features: int
    bias: F4
    own: Sequence[Own] = ()
    trees: Trees | None = None

    @abstractmethod
    def vectors(self, labels: slice) -> F4:
        """Return the vectors of some labels (n, numbers)."""

    @abstractmethod
    def ask(self, rows: sparse.csr_array) -> Asked:
        """Return what is known about rows, as the model sees them."""


class Asked(ABC):
    """What a model says about some rows before it looks at labels: their vectors (B, numbers), their entries for the
    sparse weights of labels (B, features), and e^ρ / trees of their best groups (B, groups)."""

    vectors: F4
    rows: sparse.csr_array
    groups: sparse.csr_array | None = None

    def bound(self, guess: F4) -> F4:
        """Return how probable a label is at the most whose guess, without rounding, is at most this (B,)."""
        return np.ones_like(guess)

    @abstractmethod
    def probabilities(self, labels: NDArray[np.int64]) -> F4:
        """Return the raw probabilities of some labels (B, n) of each row."""


class Postings:
    """The labels of each feature, with their weights, and a limit of what the weights add that are left out."""

    def __init__(self, own: Sequence[Own], least: F4, n_features: int) -> None:
        from labelfield.compiled.search import count_postings, fill_postings

        counts = np.zeros(n_features, np.int64)
        self.most, self.left_out = (np.zeros(n_features, np.float32) for _ in range(2))
        each = []
        for weights, slopes, first in own:
            some = slice(first, n_features)
            plain = (
                np.ascontiguousarray(weights.pointers, np.int64),
                np.ascontiguousarray(weights.features, np.int32),
                np.ascontiguousarray(weights.weights, np.float32),
                slopes,
            )
            count_postings(*plain, least[some], counts[some], self.most[some], self.left_out[some])
            each.append((plain, some))
        self.starts = np.concatenate([[0], np.cumsum(counts)])
        self.labels = np.empty(self.starts[-1], np.int32)
        self.values = np.empty(self.starts[-1], np.float32)
        ends = self.starts[:-1].copy()
        for plain, some in each:
            fill_postings(*plain, least[some], ends[some], self.labels, self.values)

    def error(self, rows: sparse.csr_array) -> tuple[F4, F4]:
        """Return how much the weights that are left out add to a guess at the most, and the others (B,)."""
        size = abs(rows)
        return np.asarray(size @ self.left_out, np.float32), np.asarray(size @ self.most, np.float32)


class Read(NamedTuple):
    """The entries of rows, with cursors in the postings of each: where its next label is, where they end, and which
    label that is."""

    indptr: NDArray[np.int32]
    data: F4
    cursors: NDArray[np.int64]
    ends: NDArray[np.int64]
    following: NDArray[np.int32]

    @classmethod
    def of(cls, rows: sparse.csr_array, starts: NDArray[np.int64], labels: NDArray[np.int32]) -> Read:
        """Begin to read."""
        from labelfield.compiled.search import begin

        indptr, indices, data = _entries(rows)
        cursors, ends = (np.empty(indices.size, np.int64) for _ in range(2))
        following = np.empty(indices.size, np.int32)
        begin(indices, starts, labels, cursors, ends, following)
        return cls(indptr, data, cursors, ends, following)

    def of_rows(self, rows: slice) -> Read:
        """Return some rows of the same."""
        return self._replace(indptr=self.indptr[rows.start : rows.stop + 1])


def _entries(rows: sparse.csr_array) -> tuple[NDArray[np.int32], NDArray[np.int32], F4]:
    indptr, indices = (part.astype(np.int32, copy=False) for part in (rows.indptr, rows.indices))
    return indptr, indices, np.ascontiguousarray(rows.data, np.float32)


class Kept(NamedTuple):
    """The labels that are scored exactly (B, n), which rise in each row, their guesses, and a limit (B,) that no guess
    for another label is above, however wrong guesses are."""

    labels: NDArray[np.int64]
    guesses: F4
    limit: F4


class Guesses:
    """Guesses for all labels of a model."""

    def __init__(self, scorer: Scorer, directions: Directions) -> None:
        require_compiled()
        self.scorer, self.directions, n_labels = scorer, directions, scorer.n_labels
        self.bytes = torch.zeros(n_labels, directions.of_rows.shape[1], dtype=torch.int8)
        self.scale, self.bias = np.zeros(n_labels, np.float32), scorer.bias.astype(np.float32)
        # The largest norms of vectors, of their projections, and of what these and the rounding to bytes leave of them.
        self.norm = self.length = self.left = self.rounding = 0.0
        for first in range(0, n_labels if scorer.n_numbers else 0, _LABELS):
            some = slice(first, min(first + _LABELS, n_labels))
            vectors = scorer.vectors(some)
            self.bias[some] += vectors @ directions.centre
            projected = np.asarray(vectors @ directions.of_labels, np.float32)
            whole, self.scale[some] = _in_bytes(projected)
            self.bytes[some] = torch.from_numpy(whole)
            left, rounding = vectors - projected @ directions.of_rows.T, projected - whole * self.scale[some, None]
            norms = [_norms(part).max() for part in (vectors, projected, left, rounding)]
            # What is too large stays so, and certifies nothing.
            largest = np.maximum([self.norm, self.length, self.left, self.rounding], norms)
            self.norm, self.length, self.left, self.rounding = largest.tolist()
        self.largest_bias = float(np.abs(self.bias).max())
        self.postings = Postings(scorer.own, directions.least, scorer.n_features)
        if np.isnan(self.bias).any() or np.isnan(self.postings.most).any():  # such labels would never be kept
            raise no_numbers()
        self.tree_starts, self.tree_labels = np.zeros(1, np.int64), np.zeros(0, np.int32)
        if scorer.trees is not None:
            groups, _, n_groups = scorer.trees
            flat = groups.ravel()
            label = np.tile(np.arange(n_labels, dtype=np.int32), len(groups))
            self.tree_labels = label[np.lexsort((label, flat))]
            self.tree_starts = np.concatenate([[0], np.cumsum(np.bincount(flat, minlength=n_groups))])

    def keep(self, asked: Asked, n_kept: int) -> Kept:
        """Return the n labels of each row with the best guesses."""
        from labelfield.compiled.search import finish, keep_best

        n_rows = asked.rows.shape[0]
        projected = np.asarray((asked.vectors - self.directions.centre) @ self.directions.of_rows, np.float32)
        whole, scale = _in_bytes(projected)
        own = Read.of(asked.rows, self.postings.starts, self.postings.labels)
        groups = sparse.csr_array((n_rows, 0), dtype=np.float32) if asked.groups is None else asked.groups
        trees = Read.of(groups, self.tree_starts, self.tree_labels)
        tree_slopes = self.bias if self.scorer.trees is None else self.scorer.trees.slopes
        limits, sizes = np.full(n_rows, -np.inf, np.float32), np.zeros(n_rows, np.int64)
        labels, guesses = np.empty((n_rows, 2 * n_kept), np.int32), np.empty((n_rows, 2 * n_kept), np.float32)
        product, n_threads = _Product(self.bytes, torch.from_numpy(whole)), torch.get_num_threads()
        with ThreadPoolExecutor(n_threads) as pool:
            for first in range(0, self.scorer.n_labels, _LABELS):
                block = slice(first, min(first + _LABELS, self.scorer.n_labels))
                for some in row_blocks(n_rows, 1, entries=_ROWS, most=_ROWS):
                    found = product(some, block)

                    def compare(
                        begin: int, end: int, start: int = some.start, found: NDArray[np.generic] = found
                    ) -> None:
                        rows = slice(start + begin, start + end)
                        keep_best(
                            block.start,  # noqa: B023  # used before the next one
                            found[begin:end],
                            scale[rows],
                            self.scale,
                            self.bias,
                            *own.of_rows(rows),
                            self.postings.labels,
                            self.postings.values,
                            tree_slopes,
                            exp(LEAST_IN_TREES),
                            *trees.of_rows(rows),
                            self.tree_labels,
                            n_kept,
                            limits[rows],
                            sizes[rows],
                            labels[rows],
                            guesses[rows],
                        )

                    if n_threads == 1:
                        compare(0, len(found))
                    else:
                        cuts = [len(found) * number // n_threads for number in range(n_threads + 1)]
                        list(pool.map(lambda ends: compare(*ends), pairwise(cuts)))
        if (sizes < n_kept).any():  # nothing is above what is no number
            raise no_numbers()
        finish(n_kept, limits, sizes, labels, guesses)
        error = self._error(asked, projected, whole * scale[:, None])
        return Kept(labels[:, :n_kept].astype(np.int64), guesses[:, :n_kept], limits + error)

    def _error(self, asked: Asked, projected: F4, rounded: F4) -> F4:
        """Return how far a guess may be below what it stands for (B,), by the Cauchy-Schwarz inequality.

        With d = m - c, φ = B a + ψ for a = Aᵀφ, and e = d - A Bᵀd: d·φ - (Bᵀd)·a = e·φ = (Bᵀe)·a + e·ψ. In directions
        that fit together Bᵀe = 0.
        """
        left = asked.vectors - self.directions.centre - projected @ self.directions.of_labels.T
        left_out, most = self.postings.error(asked.rows)
        length = _norms(rounded)
        error = _norms(left @ self.directions.of_rows) * self.length + _norms(left) * self.left
        error += _norms(projected - rounded) * self.length + length * self.rounding + left_out
        vectors = _norms(asked.vectors) + _norms(self.directions.centre[None])
        size = most + self.largest_bias + length * self.length + vectors * self.norm
        n_terms = np.diff(asked.rows.indptr) + asked.vectors.shape[1] + 16
        return np.asarray(error + _ROUNDING * n_terms * size, np.float32)


def _norms(rows: F4) -> F4:
    return np.asarray(np.sqrt(np.einsum("np,np->n", rows, rows)))


def _in_bytes(rows: F4) -> tuple[NDArray[np.int8], F4]:
    """Return rows as whole numbers from -127 to 127, and what one of them stands for in each row."""
    scale = np.abs(rows).max(1, initial=0) / _BYTE
    if not np.isfinite(scale).all():
        raise no_numbers()
    safe = np.where(scale > 0, scale, 1)[:, None]
    return np.rint(rows / safe).astype(np.int8), scale.astype(np.float32)


class _Product:
    """The products of the bytes of rows and labels, in whole numbers: as bytes, or in float32, which is exact too."""

    def __init__(self, labels: Tensor, rows: Tensor, as_bytes: bool | None = None) -> None:
        self.labels, self.rows = labels, rows
        self.as_bytes = multiplies_bytes() if as_bytes is None else as_bytes
        if not self.as_bytes:
            self.rows = rows.float()
        self.room = torch.zeros(_ROWS * _LABELS, dtype=torch.int32 if self.as_bytes else torch.float32)
        self.block: tuple[slice, Tensor] | None = None

    def __call__(self, rows: slice, labels: slice) -> NDArray[np.generic]:
        shape = rows.stop - rows.start, labels.stop - labels.start
        out = self.room[: shape[0] * shape[1]].view(shape)
        if self.labels.shape[1]:
            if self.block is None or self.block[0] != labels:
                own = self.labels[labels]
                self.block = labels, own.T if self.as_bytes else own.float().T
            (torch._int_mm if self.as_bytes else torch.mm)(self.rows[rows], self.block[1], out=out)
        return out.numpy()


@cache
def multiplies_bytes() -> bool:
    """Return whether torch multiplies bytes faster here than in float32, and rightly; results are the same."""
    labels, rows = (torch.arange(n * 128).remainder(255).sub(127).to(torch.int8).view(n, 128) for n in (_LABELS, 128))
    blocks, seconds, found = (slice(0, 128), slice(0, _LABELS)), [], []
    try:
        for as_bytes in (True, False):
            product = _Product(labels, rows, as_bytes)
            found.append(product(*blocks).astype(np.float32))
            tries = []
            for _ in range(3):
                began = time.perf_counter()
                product(*blocks)
                tries.append(time.perf_counter() - began)
            seconds.append(min(tries))
    except (AttributeError, RuntimeError, NotImplementedError):  # another torch, or another processor
        return False
    return seconds[0] < seconds[1] and np.array_equal(found[0], found[1])


def own_products(rows: sparse.csr_array, weights: Weights, labels: NDArray[np.int64], first: int = 0) -> F4:
    """Return wᵀx of the machines `first` + label (B, n), each summed in the order of its features."""
    from labelfield.compiled import search as compiled

    entries = _entries(rows)
    own = weights.pointers, weights.features, weights.weights
    out = np.zeros(labels.shape, np.float32)
    compiled.own_products(*entries, *own, first, np.zeros(rows.shape[1], np.float32), labels, out)
    return out


def require_compiled() -> None:
    """Raise if there are no compiled loops, without which guesses are slower than exact scores."""
    if not has_numba():
        raise CannotAnswerError("a search with an index needs numba, which is not installed; use search='exact'")


def blocks_of(scorer: Scorer, n_rows: int, n_kept: int) -> Iterator[slice]:
    """Yield blocks of rows that go through all labels together."""
    n_groups = 0 if scorer.trees is None else scorer.trees.n_groups
    return row_blocks(n_rows, 2 * n_kept + n_groups, entries=_ENTRIES, most=_MOST_ROWS)


def search(
    guesses: Guesses, rows: sparse.csr_array, k: int, n_kept: int
) -> Iterator[tuple[NDArray[np.int64], F4, NDArray[np.bool_], NDArray[np.int64]]]:
    """Yield for blocks of rows their k best labels, the raw probabilities, which lists are certified, and how many
    labels were scored exactly."""
    n_labels = guesses.scorer.n_labels
    n_kept = min(n_labels, max(n_kept, _LEAST_KEPT, _KEPT_PER_LABEL * k))
    for block in blocks_of(guesses.scorer, rows.shape[0], n_kept):
        with advising_on_memory(FEWER_ROWS):
            asked = guesses.scorer.ask(gather_rows(rows, np.arange(block.start, block.stop)))
            kept = guesses.keep(asked, n_kept)
            p = asked.probabilities(kept.labels)
            if np.isnan(p).any():
                raise no_numbers()
            best = np.argsort(-p, axis=1, kind="stable")[:, :k]  # of equals the smaller label first
            labels, p = np.take_along_axis(kept.labels, best, 1), np.take_along_axis(p, best, 1)
            is_certified = asked.bound(kept.limit) * _MARGIN < p[:, -1]
            if n_kept == n_labels:
                is_certified[:] = True
        yield labels, p, is_certified, np.full(len(labels), n_kept)


def turns_of(guesses: Guesses, rows: sparse.csr_array, labels: NDArray[np.int64], most: int) -> NDArray[np.int64]:
    """Return how many labels of each row have better guesses than these (N, k): `most`, or fewer."""
    found = np.full(labels.shape, most, np.int64)
    for block in blocks_of(guesses.scorer, rows.shape[0], most):
        asked = guesses.scorer.ask(gather_rows(rows, np.arange(block.start, block.stop)))
        kept = guesses.keep(asked, most)
        ranks = np.empty_like(kept.labels)
        np.put_along_axis(ranks, np.argsort(-kept.guesses, axis=1, kind="stable"), np.arange(most)[None], 1)
        row, place, at = np.nonzero(labels[block][:, :, None] == kept.labels[:, None, :])
        found[block.start + row, place] = ranks[row, at]
    return found
