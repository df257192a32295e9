"""Which entries of a label matrix were observed."""

from __future__ import annotations

from hashlib import sha256
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from labelfield.csr import as_positives


class Mask(NamedTuple):
    """Places (N, L) that were observed or, with `is_missing`, that were not: whichever are fewer."""

    places: sparse.csr_array
    is_missing: bool

    def take(self, rows: Any) -> Mask:
        """Return the mask of these rows."""
        return Mask(self.places[rows], self.is_missing)

    def hides(self, Y: sparse.csr_array) -> sparse.csr_array:
        """Return Y without the entries that were not observed."""
        seen = Y.multiply(self.places).tocsr()
        return as_positives(Y - seen if self.is_missing else seen)

    def observes(self, labels: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return which of these labels (N, k) of each row were observed."""
        row = np.broadcast_to(np.arange(len(labels))[:, None], labels.shape)
        is_named = np.asarray(self.places[row.ravel(), labels.ravel()]).reshape(labels.shape) != 0
        return np.asarray(is_named != self.is_missing)

    def n_observed(self) -> int:
        """Return how many entries were observed."""
        n_rows, n_labels = self.places.shape
        return int(n_rows * n_labels - self.places.nnz if self.is_missing else self.places.nnz)

    def n_observed_of_labels(self) -> NDArray[np.int64]:
        """Return in how many rows each label (L,) was observed."""
        named = np.bincount(self.places.indices, minlength=self.places.shape[1])
        return np.asarray(self.places.shape[0] - named if self.is_missing else named, np.int64)

    def digest(self) -> str:
        """Return a fingerprint."""
        parts = (np.ascontiguousarray(part).tobytes() for part in (self.places.indptr, self.places.indices))
        return sha256(b"".join(parts)).hexdigest() + str(self.is_missing)
