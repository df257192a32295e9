"""Both solvers of max-margin machines find the optimum that other packages find, and forget rows as if never seen."""

import numpy as np
import pytest
import torch
from scipy import sparse
from scipy.optimize import minimize
from sklearn.svm import LinearSVC

from labelfield.csr import gather_rows
from labelfield.inference import margin, margin_rows
from labelfield.inference.margin import (
    Problem,
    label_blocks,
    solve_compiled,
    solve_plain,
)
from labelfield.inference.margin_rows import INTERCEPT_DEVIATION, MarginRows
from labelfield.linalg.rows import to_tensor
from labelfield.models.linear.model import LinearMachines

CPU = torch.device("cpu")


def plain(rows, labels, problem, taking_part=None):
    return solve_plain(rows, labels, problem, CPU, taking_part)


def compiled(rows, labels, problem, taking_part=None):
    pytest.importorskip("numba")
    return solve_compiled(rows, labels, problem, taking_part)


def windowed(rows, labels, problem, taking_part=None):
    """The compiled solver as it goes over rows that are too many for a copy in memory."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(margin_rows, "COPIED_BYTES", 0)
        patch.setattr(margin_rows, "_WINDOW_ENTRIES", 150)
        patch.setattr(margin_rows, "_WINDOW_BLOCKS", 4)
        return compiled(rows, labels, problem, taking_part)


both = pytest.mark.parametrize("solve", [compiled, windowed, plain])


def drawn(n_rows=120, n_features=60, n_labels=5, seed=0):
    """Rows of norm 1, labels that depend on them, and a label that never holds."""
    rng = np.random.default_rng(seed)
    X = sparse.csr_array(sparse.random(n_rows, n_features, 0.1, format="csr", rng=seed, dtype=np.float32))
    norms = np.maximum(sparse.linalg.norm(X, axis=1), 1e-9)
    X.data /= np.repeat(norms, np.diff(X.indptr)).astype(np.float32)
    scores = X @ rng.normal(size=(n_features, n_labels)) + 0.2 * rng.normal(size=(n_rows, n_labels))
    Y = scores > np.quantile(scores, 0.9, axis=0)
    Y[:, -1] = False
    return X, sparse.csr_array(Y.astype(np.float32))


X, Y = drawn()
LABELS = np.arange(4)
SOLVED = {"n_passes": 3000, "tol": 1e-5}


def features_of(labels):
    return np.unique(gather_rows(X, np.flatnonzero(Y[:, labels].sum(1))).indices)


def objective(w, A, y, cost):
    beyond = np.maximum(1 - y * (A @ w - 1), 0)
    return 0.5 * w @ w + cost * (beyond**2).sum(), w - 2 * cost * A.T @ (y * beyond)


def optimum(A, y, cost):
    return minimize(objective, np.zeros(A.shape[1]), (A, y, cost), jac=True, options={"gtol": 1e-9}).x


def with_constant(rows):
    """Dense rows after the constant whose weight moves the intercept."""
    return np.insert(rows.toarray().astype(float), 0, INTERCEPT_DEVIATION, axis=1)


def weights(solved):
    """The weights of all labels on the constant and all features."""
    W = np.zeros((1 + X.shape[1], solved.W.shape[1]))
    W[0], W[1 + solved.features] = solved.intercepts / INTERCEPT_DEVIATION, solved.W
    return W


def used(W, own):
    """The weights of one label on the constant and the features that it may use."""
    return W[np.r_[0, 1 + own]]


def signs(label):
    return 2 * Y[:, [label]].toarray().ravel() - 1.0


@both
@pytest.mark.parametrize("cost", [0.1, 1.0, 10.0])
def test_the_optimum_is_that_of_a_general_minimiser(solve, cost):
    solved, own = solve(MarginRows(X, Y), LABELS, Problem(cost, **SOLVED)), features_of(LABELS)
    assert sorted(solved.features) == own.tolist()
    primal, W, A = 0.0, weights(solved), with_constant(X[:, own])
    for label in LABELS:
        w = optimum(A, signs(label), cost)
        np.testing.assert_allclose(used(W[:, label], own), w, atol=1e-3)
        primal += objective(w, A, signs(label), cost)[0]
    assert solved.objective == pytest.approx(primal, rel=1e-4)


@both
def test_the_optimum_is_that_of_liblinear(solve):
    """With f = wᵀx, the constant in x: (2 - f)₊² = 4 (1 - f / 2)₊², and (f)₊² is the limit of (1 + t f)₊² / t²."""
    solved, own, far = solve(MarginRows(X, Y), LABELS, Problem(1.0, **SOLVED)), features_of(LABELS), 3e3
    for label in LABELS:
        y, A = signs(label), with_constant(X[:, own])
        A *= np.where(y > 0, 0.5, far)[:, None]
        machine = LinearSVC(C=1.0, fit_intercept=False, dual=False, tol=1e-10, max_iter=10_000)
        machine.fit(A, y, sample_weight=np.where(y > 0, 4, far**-2))
        np.testing.assert_allclose(used(weights(solved)[:, label], own), machine.coef_[0], atol=1e-3)


@both
def test_the_dual_is_below_the_primal_and_rises(solve):
    A, before = with_constant(X), 0.0
    for n_passes in (1, 2, 4, 8, 200):
        solved = solve(MarginRows(X, Y), LABELS, Problem(1.0, n_passes, 0.0))
        W = weights(solved)
        primal = sum(objective(W[:, label], A, signs(label), 1.0)[0] for label in LABELS)
        assert before - 1e-3 <= solved.objective <= primal + 1e-3
        before = solved.objective
    assert primal - before < 1e-3 * primal


@both
def test_rows_of_folds_are_scored_as_if_they_were_never_seen(solve, monkeypatch):
    monkeypatch.setattr(margin, "FOLD_PASSES", 300)
    folds = [np.arange(0, 30), np.array([50, 70, 119])]
    solved, own = solve(MarginRows(X, Y, folds), LABELS, Problem(1.0, **SOLVED)), features_of(LABELS)
    A, start = with_constant(X[:, own]), 0
    for fold in folds:
        kept = np.setdiff1d(np.arange(120), fold)
        for label in LABELS:
            expected = A[fold] @ optimum(A[kept], signs(label)[kept], 1.0)
            np.testing.assert_allclose(solved.held_out[start : start + fold.size, label], expected, atol=2e-3)
        start += fold.size
    assert solved.held_out.shape == (start, 4)
    alone = solve(MarginRows(X, Y), LABELS, Problem(1.0, **SOLVED))
    np.testing.assert_array_equal(alone.W, solved.W)


@both
def test_where_every_row_is_in_a_fold_weights_are_the_mean_of_those_beside_each(solve, monkeypatch):
    """So that new rows get scores on the scale of those that probabilities and promises are learned from."""
    monkeypatch.setattr(margin, "FOLD_PASSES", 300)
    folds, own = [np.arange(0, 50), np.arange(50, 120)], features_of(LABELS)
    solved, A = solve(MarginRows(X, Y, folds), LABELS, Problem(1.0, **SOLVED)), with_constant(X[:, own])
    for place, label in enumerate(LABELS):
        beside = [np.setdiff1d(np.arange(120), fold) for fold in folds]
        expected = np.mean([optimum(A[kept], signs(label)[kept], 1.0) for kept in beside], 0)
        np.testing.assert_allclose(weights(solved)[np.r_[0, 1 + own], place], expected, atol=2e-3)


@both
def test_a_few_passes_forget_nearly_all(solve):
    """With the passes that there are, a row's own label moves its score by far less than training on it does."""
    fold, kept = np.arange(40), np.arange(40, 120)
    solved = solve(MarginRows(X, Y, [fold]), LABELS, Problem(1.0, 10))
    A, seen = with_constant(X[:, features_of(LABELS)]), with_constant(X[fold]) @ weights(solved)
    exact = np.stack([A[fold] @ optimum(A[kept], signs(label)[kept], 1.0) for label in LABELS], 1)
    assert np.abs(solved.held_out - exact).mean() < 0.15 * np.abs(seen - exact).mean()


@both
def test_rows_that_do_not_take_part_are_scored_and_change_nothing(solve):
    chosen, fold = np.flatnonzero(np.arange(120) % 3), np.array([0, 60])
    found = solve(MarginRows(X, Y, [fold]), LABELS, Problem(1.0, **SOLVED), chosen)
    for label in LABELS:
        A, own = with_constant(X), features_of(LABELS)
        A = A[:, np.r_[0, 1 + own]]
        w = optimum(A[chosen], signs(label)[chosen], 1.0)
        np.testing.assert_allclose(used(weights(found)[:, label], own), w, atol=1e-3)
    np.testing.assert_allclose(found.held_out, with_constant(X[fold]) @ weights(found), atol=1e-3)


@both
def test_the_order_of_rows_and_labels_hardly_matters_at_the_optimum(solve):
    expected = weights(solve(MarginRows(X, Y), LABELS, Problem(1.0, **SOLVED)))
    turned = weights(solve(MarginRows(X, Y), LABELS[::-1].copy(), Problem(1.0, **SOLVED, seed=5)))
    np.testing.assert_allclose(turned[:, ::-1], expected, atol=1e-3)
    mixed = np.random.default_rng(0).permutation(120)
    found = weights(solve(MarginRows(gather_rows(X, mixed), gather_rows(Y, mixed)), LABELS, Problem(1.0, **SOLVED)))
    np.testing.assert_allclose(found, expected, atol=1e-3)


@both
def test_labels_of_empty_rows_have_an_intercept_and_no_weights(solve):
    nothing = sparse.csr_array((60, 4), dtype=np.float32)
    held = sparse.csr_array((np.arange(60)[:, None] < [3, 50]).astype(np.float32))
    solved = solve(MarginRows(nothing, held, [np.array([1, 2])]), np.arange(2), Problem(1.0, 500, 1e-6))
    assert solved.W.shape == (0, 2)
    A = np.full((60, 1), INTERCEPT_DEVIATION)
    expected = [optimum(A, 2.0 * held[:, [k]].toarray().ravel() - 1, 1.0)[0] * INTERCEPT_DEVIATION for k in (0, 1)]
    np.testing.assert_allclose(solved.intercepts, expected, atol=1e-3)
    np.testing.assert_allclose(solved.held_out, np.tile(solved.intercepts, (2, 1)), atol=0.1)
    assert solved.intercepts[0] < 0.2
    assert solved.intercepts[1] > 1  # a label that most rows have is assumed to hold


@pytest.mark.parametrize("is_compiled", [True, False])
def test_blocks_part_the_labels_that_hold_somewhere(is_compiled, monkeypatch):
    monkeypatch.setattr(margin, "is_compiled", lambda device: is_compiled)
    monkeypatch.setattr(margin, "_BLOCK_LABELS", 4)
    monkeypatch.setitem(margin._BLOCK_BYTES, "cpu", 4 * 32 * 300)
    rng = np.random.default_rng(0)
    rows = sparse.csr_array(sparse.random(300, 20, 0.3, format="csr", rng=0, dtype=np.float32))
    held = sparse.csr_array((rng.random((300, 41)) < 0.02).astype(np.float32))
    blocks = label_blocks(rows, held, CPU, 0)
    assert max(len(block) for block in blocks) <= 4
    assert sorted(np.concatenate(blocks)) == np.unique(held.indices).tolist()
    assert [block.tolist() for block in label_blocks(rows, held, CPU, 0)] == [block.tolist() for block in blocks]
    assert label_blocks(rows, sparse.csr_array((300, 41), dtype=np.float32), CPU, 0) == []


def test_blocks_are_of_labels_that_share_features(monkeypatch):
    """Labels of two vocabularies, numbered in turn, come apart."""
    monkeypatch.setattr(margin, "_BLOCK_LABELS", 8)
    monkeypatch.setattr(margin, "is_compiled", lambda device: True)
    rng, topic = np.random.default_rng(0), np.arange(400) % 2
    dense = rng.random((400, 40)) * (rng.random((400, 40)) < 0.3)
    dense[:, :20] *= topic[:, None] == 0
    dense[:, 20:] *= topic[:, None] == 1
    held = (rng.random((400, 16)) < 0.2) * (np.arange(16) % 2 == topic[:, None])
    blocks = label_blocks(*(sparse.csr_array(part.astype(np.float32)) for part in (dense, held)), CPU, 0)
    assert sorted(sorted(block % 2) for block in blocks) == [[0] * 8, [1] * 8]


def test_scores_on_a_device_are_products_with_the_weights(monkeypatch):
    """A few labels are laid out at a time."""
    W = sparse.csr_array(sparse.random(7, 60, 0.3, format="csr", rng=2, dtype=np.float32))
    model = LinearMachines(60, 7)
    intercepts = np.linspace(-1, 1, 7, dtype=np.float32)
    model.fill(*(torch.from_numpy(part) for part in (W.indptr.astype(np.int64), W.indices, W.data, intercepts)))
    expected = (X @ W.T).toarray() + intercepts
    for scratch in (1, 180, 1 << 25):
        monkeypatch.setattr("labelfield.models.linear.model._SCRATCH", scratch)
        np.testing.assert_allclose(model.scores(to_tensor(X, CPU)).numpy(), expected, atol=1e-5)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_gpu_finds_the_same_optimum():
    # 700 rows are batches of 64, recorded and replayed, and one of 60, which is not.
    X, Y = drawn(n_rows=700)
    rows, problem = MarginRows(X, Y, [np.arange(70)]), Problem(1.0, 300, 1e-4)
    theirs, ours = plain(rows, LABELS, problem), solve_plain(rows, LABELS, problem, torch.device("cuda"))
    assert ours.objective == pytest.approx(theirs.objective, rel=1e-5)
    assert ours.W.cpu().numpy() == pytest.approx(theirs.W.numpy(), abs=2e-3)
    assert ours.held_out == pytest.approx(theirs.held_out, abs=0.02)
