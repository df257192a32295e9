"""The features that occur with each label: only these have weights in the linear processes of labels."""

from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor

from labelfield.csr import gather_rows
from labelfield.linalg.rows import entry_rows

# The most pairs (label, feature) that are counted at once, and the most entries that are counted in them.
_BLOCK_PAIRS = 1 << 23
_BLOCK_ENTRIES = 1 << 22


class LabelFeatures(NamedTuple):
    """The features that occur with each label: pointers (K + 1,), and features sorted within each label.

    `waiting` marks those that occur with the label only in held-out rows.
    """

    pointers: NDArray[np.int64]
    features: NDArray[np.int32]
    waiting: NDArray[np.bool_]


def occurring_features(
    X: sparse.csr_array,
    Y: sparse.csr_array,
    most: int,
    held_out: NDArray[np.int64] | None = None,
    device: torch.device | str = "cpu",
) -> LabelFeatures:
    """Return the features that occur with each label in these rows, at most `most`: those most frequent with it."""
    is_held = np.zeros(X.shape[0], np.int64)
    is_held[[] if held_out is None else held_out] = 1
    indices, pointers, held = (torch.from_numpy(np.array(part)).to(device) for part in (X.indices, X.indptr, is_held))
    rows_of = sparse.csr_array(Y.T.tocsr())
    blocks = [
        _count(indices, pointers, held, gather_rows(rows_of, np.arange(first, last)), X.shape[1], most)
        for first, last in pairwise(_cuts(X, rows_of))
    ]
    sizes, features, waiting = (torch.cat(part).cpu().numpy() for part in zip(*blocks, strict=True))
    return LabelFeatures(np.concatenate([[0], np.cumsum(sizes)]), features, waiting)


def _cuts(X: sparse.csr_array, rows_of: sparse.csr_array) -> NDArray[np.int64]:
    """Return where to cut the labels, so that the entries and the pairs of each block fit in memory."""
    n_labels = rows_of.shape[0]
    work = np.cumsum(np.diff(X.indptr)[rows_of.indices], dtype=np.int64)
    ends = np.searchsorted(work, np.arange(_BLOCK_ENTRIES, int(work[-1]) if work.size else 0, _BLOCK_ENTRIES))
    by_pairs = np.arange(0, n_labels, max(1, _BLOCK_PAIRS // max(X.shape[1], 1)))
    return np.unique(np.r_[by_pairs, np.searchsorted(rows_of.indptr, ends), n_labels])


def _count(
    indices: Tensor, pointers: Tensor, is_held: Tensor, rows_of: sparse.csr_array, n_features: int, most: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Return, for some labels, their numbers of features, these features, and which occur only in held-out rows."""
    device, n_labels = indices.device, rows_of.shape[0]
    row = torch.from_numpy(rows_of.indices.astype(np.int64)).to(device)
    label = entry_rows(torch.from_numpy(rows_of.indptr.astype(np.int64)).to(device), row.numel())
    first, counts = pointers[row].long(), (pointers[row + 1] - pointers[row]).long()
    # For each entry of each row of each label: the number of its triple (label, feature, held out).
    pair = torch.repeat_interleave(torch.arange(row.numel(), device=device), counts)
    entry = torch.arange(pair.numel(), device=device) + (first - counts.cumsum(0) + counts)[pair]
    cell = 2 * (label[pair] * n_features + indices[entry]) + is_held[row][pair]
    found = torch.bincount(cell, minlength=2 * n_labels * n_features).view(-1, 2)
    total = found.sum(1)
    cells = total.nonzero().squeeze(1)
    sizes = torch.bincount(cells // n_features, minlength=n_labels)
    if int(sizes.max()) > most:
        # Most frequent first within each label; the smaller feature first if equally frequent.
        order = (-total[cells]).sort(stable=True).indices
        order = order[(cells[order] // n_features).sort(stable=True).indices]
        place = torch.arange(cells.numel(), device=device) - (sizes.cumsum(0) - sizes)[cells[order] // n_features]
        cells = cells[order[place < most].sort().values]
        sizes = sizes.clamp_max(most)
    return sizes, (cells % n_features).int(), found[cells, 0] == 0
