"""Partly observed labels: which entries of a batch to ignore."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from labelfield.linalg.rows import entry_rows

# A utility at which a label is practically impossible. Where a label was not observed, the mean is set to it and the
# variance to 0: then not having the label costs nothing, and neither has a gradient.
_IMPOSSIBLE = -1e4


class PartialLabels(NamedTuple):
    """Labels Y (CSR) of a batch, and the places (CSR) that were observed or, with `is_missing`, those that were not."""

    Y: Tensor
    places: Tensor
    is_missing: bool

    def hidden(self, labels: Tensor | None) -> Hidden:
        """Return the unobserved entries of these labels, or of all labels."""
        column = self.places.col_indices().long()
        row = entry_rows(self.places.crow_indices(), column.numel())
        if labels is None:
            return Hidden(row, column, self.is_missing)
        ordered, order = labels.sort()
        place = torch.searchsorted(ordered, column).clamp_max_(len(ordered) - 1)
        is_chosen = ordered[place] == column
        return Hidden(row[is_chosen], order[place[is_chosen]], self.is_missing)


class Hidden(NamedTuple):
    """Rows and columns of a batch that were observed or, with `is_missing`, that were not."""

    row: Tensor
    column: Tensor
    is_missing: bool

    def take_out(self, mean: Tensor, var: Tensor, first: int = 0) -> None:
        """Make unobserved entries count for nothing, in moments (B, C) of the labels from `first` on."""
        is_here = (self.column >= first) & (self.column < first + mean.shape[1])
        gone = torch.full(mean.shape, not self.is_missing, device=mean.device)
        gone[self.row[is_here], self.column[is_here] - first] = self.is_missing
        mean.masked_fill_(gone, _IMPOSSIBLE)
        var.masked_fill_(gone, 0.0)
