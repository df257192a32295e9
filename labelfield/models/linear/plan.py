"""What linear machines choose from, most likely first.

Text differs most in how values are scaled: no transform is best everywhere. The cost matters less, and is near 1 for
rows of norm 1, smaller where labels are frequent.
"""

import numpy as np
from scipy import sparse

from labelfield.data.transform import choose_class_transform, choose_transform


def candidate_transforms(X: sparse.csr_array) -> list[str]:
    """Return the row transforms worth trying. Where all values are the same, most of them are."""
    likely = choose_class_transform(X)
    if likely not in ("unit", "sqrt"):
        return [likely, "unit"]  # measurements
    first = choose_transform(X)
    is_binary = X.nnz == 0 or float(X.data.min()) == float(X.data.max())
    names = ["unit", "tfidf"] if is_binary else [first, *{"unit": ["sqrt"], "sqrt": ["unit"]}[first], "log", "tfidf"]
    return names if np.min(X.data, initial=0) >= 0 else ["unit", "sqrt"]


def candidate_costs() -> list[float]:
    """Return the costs worth trying."""
    return [1.0, 0.3, 0.1, 3.0]
