"""The facts of a page are gathered from rows that can be compared."""

import numpy as np
import pytest
from scipy import sparse

from labelfield.errors import DataError
from labelfield.report.facts import gather


def test_nothing_to_compare_with_is_refused(fitted):
    case = fitted("mlgpf")
    with pytest.raises(DataError, match="no test row has a label"):
        gather(case.estimator, case.X, sparse.csr_array(case.Y.shape, dtype=np.float32))
    with pytest.raises(DataError, match="no test rows"):
        gather(case.estimator, case.X[:0], case.Y[:0])
