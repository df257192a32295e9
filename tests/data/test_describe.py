"""What is said of a data set costs memory by its entries, not by the width that a file claims."""

import tracemalloc

import numpy as np
from scipy import sparse

import labelfield
from labelfield.csr import used_columns


def test_columns_that_are_used_are_counted_by_entries():
    rng = np.random.default_rng(0)
    for width in (5, 10_000):
        array = sparse.random_array((40, width), density=20 / width / 10, format="csr", rng=rng)
        counts = np.bincount(array.indices, minlength=width)
        columns, used = used_columns(array)
        np.testing.assert_array_equal(columns, np.flatnonzero(counts))
        np.testing.assert_array_equal(used, counts[counts > 0])


def test_a_file_that_claims_many_columns_is_described_in_little_memory(tmp_path):
    (tmp_path / "wide.txt").write_text("1 30000000 3\n0 7:1\n")
    data = labelfield.read(tmp_path / "wide.txt")
    tracemalloc.start()
    assert labelfield.describe(data)["features_used"] == 1
    assert tracemalloc.get_traced_memory()[1] < 1 << 20
    tracemalloc.stop()
