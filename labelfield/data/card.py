"""A summary of a data set."""

from __future__ import annotations

from typing import Any

import numpy as np

from labelfield.csr import row_norms
from labelfield.data.dataset import Dataset

__all__ = ["describe"]


def describe(dataset: Dataset) -> dict[str, Any]:
    """Summarise one split: sizes, densities, empty rows, label frequencies, value range, memory."""
    X, Y = dataset.X, dataset.Y
    features, labels = np.diff(X.indptr), np.diff(Y.indptr)
    seen, used = np.unique(Y.indices, return_counts=True)
    head = np.argsort(-used, kind="stable")[:5]
    names, norms = dataset.label_names, row_norms(X.data, features)
    n = max(dataset.n_rows, 1)
    return {
        "rows": dataset.n_rows,
        "features": dataset.n_features,
        "labels": dataset.n_labels,
        "features_per_row": X.indices.size / n,
        "labels_per_row": Y.indices.size / n,
        "rows_without_features": int(np.count_nonzero(features == 0)),
        "rows_without_labels": int(np.count_nonzero(labels == 0)),
        "features_used": int(np.unique(X.indices).size),
        "labels_used": int(used.size),
        "rows_per_label": {
            "median": float(np.median(used)) if used.size else 0.0,
            "mean": Y.indices.size / max(dataset.n_labels, 1),
            "max": int(used.max(initial=0)),
            "seen_once": int(np.count_nonzero(used == 1)),
        },
        "largest_label_set": int(labels.max(initial=0)),
        "value_range": [float(X.data.min()), float(X.data.max())] if X.data.size else [0.0, 0.0],
        "unit_rows": bool(norms.size and np.allclose(norms, 1, atol=1e-4)),
        "most_frequent": [
            {"label": int(seen[i]), "name": None if names is None else names[int(seen[i])], "rows": int(used[i])}
            for i in head
        ],
        "label_names": names is not None,
        "feature_names": dataset.feature_names is not None,
        "bytes": int(sum(a.nbytes for a in (X.data, X.indices, X.indptr, Y.indices, Y.indptr))),
    }
