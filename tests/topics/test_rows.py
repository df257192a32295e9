"""Operations of the topic model on rows equal dense algebra, and inactive labels can be left out."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from labelfield.linalg.rows import to_tensor
from labelfield.topics.rows import DesignMatrix, SparsePattern, active_labels, topic_rows

SHAPES = (st.integers(1, 10), st.integers(1, 8), st.integers(1, 4), st.integers(0, 1000))


def random_places(n_rows, n_columns, seed, density=0.4):
    return sparse.csr_array((np.random.default_rng(seed).random((n_rows, n_columns)) < density).astype(np.float32))


def uniform(*shape, seed=0, dtype=torch.float64):
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def assert_near(ours, dense):
    # Sums of up to ten numbers below one.
    np.testing.assert_allclose(ours, dense, rtol=1e-13, atol=1e-14)


@given(*SHAPES)
@settings(max_examples=15)
def test_products_of_features_are_dense_ones(n_rows, n_features, n_topics, seed):
    """The dense features have a column of ones appended."""
    rng = np.random.default_rng(seed)
    X = random_places(n_rows, n_features, seed).astype(np.float64)
    X.data *= rng.normal(size=X.nnz)
    dense = np.concatenate([X.toarray(), np.ones((n_rows, 1))], axis=1)
    design = DesignMatrix(to_tensor(X))
    assert (design.n_rows, design.n_weights) == dense.shape
    W, G = uniform(n_features + 1, n_topics, seed=seed), uniform(n_rows, n_topics, seed=seed)
    np.testing.assert_allclose(design.times(W), dense @ W.numpy(), rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(design.transposed_times(G), dense.T @ G.numpy(), rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(design.squares, np.square(dense).sum(axis=0), rtol=1e-12)


def test_products_do_not_change_what_they_are_given():
    design = DesignMatrix(to_tensor(random_places(4, 3, 0).astype(np.float64)))
    W, G = uniform(4, 2), uniform(4, 2)
    before = W.clone(), G.clone()
    design.times(W)
    design.transposed_times(G)
    assert W.equal(before[0])
    assert G.equal(before[1])


@given(*SHAPES)
@settings(max_examples=15)
def test_sums_over_places_are_dense_ones(n_rows, n_labels, n_topics, seed):
    places = random_places(n_rows, n_labels, seed)
    pattern = SparsePattern(places, "cpu")
    assert pattern.shape == places.shape
    assert pattern.n_entries == places.nnz
    entry = np.zeros(places.shape)
    values = uniform(places.nnz, seed=seed)
    entry[pattern.row, pattern.label] = values
    V, U = uniform(n_labels, n_topics, seed=1), uniform(n_rows, n_topics, seed=2)
    assert_near(pattern.sum_of_labels(values, V), entry @ V.numpy())
    assert_near(pattern.sum_of_rows(values, U), entry.T @ U.numpy())
    assert_near(pattern.sum_of_labels(None, V), places.toarray() @ V.numpy())
    assert_near(pattern.sum_of_rows(None, U), places.toarray().T @ U.numpy())


def test_places_are_none_or_all():
    V, U = uniform(3, 2), uniform(4, 2)
    empty, full = (
        SparsePattern(sparse.csr_array((4, 3)), "cpu"),
        SparsePattern(sparse.csr_array(np.ones((4, 3))), "cpu"),
    )
    assert not empty.sum_of_labels(None, V).any()
    assert not empty.sum_of_rows(None, U).any()
    assert_near(full.sum_of_labels(None, V), np.tile(V.sum(0), (4, 1)))
    assert_near(full.sum_of_rows(None, U), np.tile(U.sum(0), (3, 1)))


@given(*SHAPES, st.booleans())
@settings(max_examples=20)
def test_what_was_observed_is_the_same_in_both_forms(n_rows, n_labels, n_topics, seed, names_all):
    """c_kn = Σ_{l observed} v_lk and e_lk = Σ_{n observed} u_kn, whether a mask stores what was observed or the others.

    The form of missing ones has more to say: labels that it does not name were observed everywhere.
    """
    is_observed = random_places(n_rows, n_labels, seed, 0.6).toarray() > 0
    n_all = n_labels + (0 if names_all else 3)  # three more labels, known in all rows or in none
    labels = np.arange(n_labels)
    X, Y = sparse.csr_array(np.ones((n_rows, 1))), sparse.csr_array((n_rows, n_labels), dtype=np.float32)
    V = uniform(n_all, n_topics, seed=seed)
    V /= V.sum(0)
    V, rest = V[:n_labels], V[n_labels:].sum(0).numpy()
    U = uniform(n_rows, n_topics, seed=seed + 1)
    for is_missing in (False, True):
        mask = sparse.csr_array((~is_observed if is_missing else is_observed).astype(np.float32))
        data = topic_rows(X, Y, labels, mask, is_missing)
        weight = is_observed @ V.numpy() + (rest if is_missing else 0)
        np.testing.assert_allclose(data.observed_weight(V), np.maximum(weight, 1e-6), rtol=1e-9)
        of_labels, of_rest = data.exposure(U)
        np.testing.assert_allclose(of_labels, is_observed.T @ U.numpy(), rtol=1e-12, atol=1e-14)
        np.testing.assert_allclose(of_rest, U.sum(0) if is_missing else np.zeros(n_topics), rtol=1e-12)


def test_without_a_mask_there_is_nothing_to_say():
    data = topic_rows(sparse.csr_array(np.ones((2, 1))), sparse.csr_array(np.eye(2)), np.arange(2))
    assert data.observed_weight(uniform(2, 1)) is None
    assert data.exposure(uniform(2, 1)) is None


@pytest.mark.parametrize("is_missing", [False, True])
def test_a_row_of_which_nothing_was_observed_has_next_to_no_weight(is_missing):
    """But some, so that it has a logarithm, also in single precision, where the difference from one may be negative."""
    n_labels = 1000
    mask = np.full((2, n_labels), is_missing)
    mask[1] = ~mask[0]
    X, Y = sparse.csr_array(np.ones((2, 1))), sparse.csr_array((2, n_labels), dtype=np.float32)
    data = topic_rows(X, Y, np.arange(n_labels), sparse.csr_array(mask.astype(np.float32)), is_missing)
    V = uniform(n_labels, 50, dtype=torch.float32)
    V /= V.sum(0)
    weight, U = data.observed_weight(V), uniform(2, 50, dtype=torch.float32)
    assert (weight[0] > 0).all()
    assert (weight[0] < 2e-6).all()
    torch.testing.assert_close(weight[1], torch.ones(50))
    of_labels, _ = data.exposure(U)
    torch.testing.assert_close(of_labels, U[1].expand(n_labels, 50), rtol=0, atol=1e-6)


def test_labels_with_a_place_hold_somewhere_or_are_in_the_mask():
    Y = sparse.csr_array(([1.0, 1, 1], ([0, 1, 2], [7, 3, 7])), shape=(3, 1_000_000))
    mask = sparse.csr_array(([1.0, 1], ([0, 1], [3, 999_999])), shape=(3, 1_000_000))
    np.testing.assert_array_equal(active_labels(Y, None), [3, 7])
    np.testing.assert_array_equal(active_labels(Y, mask), [3, 7, 999_999])
    assert active_labels(Y, None).dtype == np.int64
    assert active_labels(sparse.csr_array((3, 5)), None).size == 0


def test_rows_know_their_labels_by_place():
    """Of a million labels three have a place."""
    Y = sparse.csr_array(([1.0, 1, 1], ([0, 1, 2], [7, 3, 7])), shape=(3, 1_000_000))
    mask = sparse.csr_array(([1.0, 1], ([0, 1], [3, 999_999])), shape=(3, 1_000_000))
    labels = active_labels(Y, mask)
    data = topic_rows(sparse.csr_array(np.ones((3, 2))), Y, labels, mask, is_missing=True)
    assert data.n_rows == 3
    assert data.positives.shape == data.mask.shape == (3, 3)
    np.testing.assert_array_equal(labels[data.positives.label], [7, 3, 7])
    np.testing.assert_array_equal(data.positives.row, [0, 1, 2])
    np.testing.assert_array_equal(labels[data.mask.label], [3, 999_999])
    some = topic_rows(sparse.csr_array(np.ones((1, 2))), Y[2:], labels)  # labels may be those of other rows as well
    np.testing.assert_array_equal(labels[some.positives.label], [7])
