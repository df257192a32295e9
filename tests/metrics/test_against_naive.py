"""Every score equals its naive twin to 1e-10, from dense scores and from CSR lists, with all awkward cases."""

import naive
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy import sparse

from labelfield import metrics

K_VALUES = (1, 2, 3, 5, 11)


@st.composite
def cases(draw):
    """Truth and probabilities with ties, empty rows, full rows, short lists, stored zeros."""
    n, k = draw(st.integers(1, 6)), draw(st.integers(1, 8))
    label_sets = st.sets(st.integers(0, k - 1))
    truth = [draw(label_sets) for _ in range(n)]
    # Few distinct values make ties; eighths and fifteenths lie on bin edges.
    values = st.sampled_from([0.0, 0.125, 0.2, 1 / 3, 0.5, 2 / 3, 0.75, 1.0]) | st.floats(0, 1)
    is_dense = draw(st.booleans())
    lists = [{label: draw(values) for label in (range(k) if is_dense else sorted(draw(label_sets)))} for _ in range(n)]
    return truth, lists, k, is_dense


def to_csr(truth, k):
    indptr = np.cumsum([0, *map(len, truth)])
    indices = [label for row in truth for label in sorted(row)]
    return sparse.csr_array((np.ones(len(indices), np.float32), indices, indptr), shape=(len(truth), k))


def to_scores(lists, k, is_dense):
    if is_dense:
        return np.array([[row[label] for label in range(k)] for row in lists]).reshape(len(lists), k)
    indptr = np.cumsum([0, *map(len, lists)])
    indices = [label for row in lists for label in sorted(row)]
    data = [row[label] for row in lists for label in sorted(row)]
    return sparse.csr_array((np.array(data, np.float64), indices, indptr), shape=(len(lists), k))


def close(a, b):
    np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-10)


@settings(max_examples=30)
@given(cases())
@example(([set()], [{}], 1, False))
@example(([{0}, {0}], [{0: 0.5}, {0: 0.5}], 1, True))
def test_all_scores(case):
    truth, lists, n_labels, is_dense = case
    Y, scores = to_csr(truth, n_labels), to_scores(lists, n_labels, is_dense)
    weight = metrics.inverse_propensity(Y, 0.55, 1.5)
    close(weight, naive.inverse_propensity(truth, n_labels, 0.55, 1.5))
    for k in K_VALUES:
        for unlabelled in ("miss", "drop"):
            options = {"unlabelled": unlabelled}
            close(metrics.precision_at_k(Y, scores, k, **options), naive.precision(truth, lists, k, **options))
            close(metrics.recall_at_k(Y, scores, k, **options), naive.recall(truth, lists, k, **options))
            close(metrics.ndcg_at_k(Y, scores, k, **options), naive.ndcg(truth, lists, k, **options))
            close(metrics.ece_at_k(Y, scores, k, n_bins=8, **options), naive.ece(truth, lists, k, 8, **options))
        close(metrics.psp_at_k(Y, scores, weight, k), naive.psp(truth, lists, k, weight))
        close(metrics.psndcg_at_k(Y, scores, weight, k), naive.psndcg(truth, lists, k, weight))
        ranked = metrics.top_k(scores, k)
        for i, row in enumerate(lists):
            best = naive.order(row)[:k]
            assert ranked.labels[i].tolist() == best + [-1] * (k - len(best))
    for average in ("micro", "label", "row"):
        close(metrics.auc(Y, scores, average), naive.auc(truth, lists, n_labels, average))
    close(metrics.ranking_loss(Y, scores), naive.ranking_loss(truth, lists, n_labels))
    close(metrics.coverage_error(Y, scores), naive.coverage_error(truth, lists, n_labels))
    close(metrics.log_loss(Y, scores), naive.log_loss(truth, lists, n_labels))
    close(metrics.brier(Y, scores), naive.brier(truth, lists, n_labels))
    for threshold in (0.0, 0.5, 0.75):
        for average in ("micro", "macro"):
            close(metrics.f1(Y, scores, threshold, average), naive.f1(truth, lists, n_labels, threshold, average))


@given(cases().filter(lambda case: case[3]), st.data())
def test_multi_class_scores(case, data):
    _, lists, k, _ = case
    y = np.array([data.draw(st.integers(0, k - 1)) for _ in lists])
    P = to_scores(lists, k, True)
    close(metrics.error_rate(y, P), naive.error_rate(y, lists))
    close(metrics.nlpd(y, P), naive.nlpd(y, lists))
    one_hot = to_csr([{int(label)} for label in y], k)
    close(metrics.error_rate(one_hot, P), naive.error_rate(y, lists))
    close(metrics.nlpd(one_hot, sparse.csr_array(P)), naive.nlpd(y, lists))


def random_case(n=300, k=60, density=0.05, seed=0):
    rng = np.random.default_rng(seed)
    Y = sparse.csr_array((rng.random((n, k)) < density).astype(np.float32))
    return Y, rng.random((n, k)).round(2)


def test_blocks_do_not_change_anything(monkeypatch):
    Y, P = random_case()
    lists = sparse.csr_array(np.where(P > 0.7, P, 0))
    for scores in (P, lists):
        whole = metrics.evaluate(Y, scores, Y)
        monkeypatch.setattr("labelfield.metrics.inputs._BLOCK_ENTRIES", 100)
        for name, value in metrics.evaluate(Y, scores, Y).items():
            close(value, whole[name])
        monkeypatch.undo()


def test_the_report_holds_the_single_scores():
    Y, P = random_case()
    report = metrics.evaluate(Y, P, Y, k=(1, 4))
    weight = metrics.inverse_propensity(Y)
    for k in (1, 4):
        close(report[f"P@{k}"], 100 * metrics.precision_at_k(Y, P, k))
        close(report[f"nDCG@{k}"], 100 * metrics.ndcg_at_k(Y, P, k))
        close(report[f"R@{k}"], 100 * metrics.recall_at_k(Y, P, k))
        close(report[f"PSP@{k}"], 100 * metrics.psp_at_k(Y, P, weight, k))
        close(report[f"PSnDCG@{k}"], 100 * metrics.psndcg_at_k(Y, P, weight, k))
        close(report[f"ECE@{k}"], 100 * metrics.ece_at_k(Y, P, k))
    close(report["AUC_label"], metrics.auc(Y, P, "label"))
    assert "PSP@1" not in metrics.evaluate(Y, P)
    assert "ECE@1" not in metrics.evaluate(Y, P - 3)
    assert metrics.evaluate(Y, P, unlabelled="drop")["rows"] == 300 - report["unlabelled_rows"]


def test_a_perfect_ranking_scores_one():
    Y, _ = random_case()
    P = Y.toarray() * 0.9 + 0.05
    for k in (1, 3, 5):
        close(metrics.ndcg_at_k(Y, P, k, unlabelled="drop"), 1)
        # Of equal scores the smaller label comes first, so break ties by propensity to reach the best.
        weight = metrics.inverse_propensity(Y)
        close(metrics.psp_at_k(Y, P + 1e-6 * weight, weight, k), 1)
        close(metrics.psndcg_at_k(Y, P + 1e-6 * weight, weight, k), 1)
    for average in ("micro", "label", "row"):
        close(metrics.auc(Y, P, average), 1)
    close(metrics.ranking_loss(Y, P), 0)


def test_counts_do_not_overflow():
    n, k = 200_000, 2**31 - 2
    Y = sparse.csr_array((np.ones(n), np.zeros(n, int), np.arange(n + 1)), shape=(n, k))
    close(metrics.auc(Y, Y, "micro"), 1.0)


def test_lists_may_be_cut_far_behind_their_end():
    Y, P = random_case(20, 5, 0.5)
    close(metrics.precision_at_k(Y, P, 10**9), Y.nnz / 20 / 10**9)
    close(metrics.recall_at_k(Y, P, 10**9, unlabelled="drop"), 1)
    with pytest.raises(ValueError, match="ranked only up to k=2"):
        metrics.score_ranking(Y, P, 2).ndcg(3)


def test_popularity_ranks_by_training_frequency():
    Y_train = np.array([[1, 0, 1, 0], [1, 0, 0, 0], [0, 0, 1, 0], [0, 1, 0, 0]])
    predictions = metrics.popularity(Y_train, 3, k=2)
    assert predictions.toarray().tolist() == [[0.5, 0, 0.5, 0]] * 3
    assert metrics.popularity(Y_train, 2, k=9).nnz == 8


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda Y, P: metrics.precision_at_k(Y, P[:2], 1), "scores of 2 rows"),
        (lambda Y, P: metrics.precision_at_k(Y, P[:, :2], 1), "2 labels"),
        (lambda Y, P: metrics.precision_at_k(Y, P * np.nan, 1), "nan"),
        (lambda Y, P: metrics.precision_at_k(Y, P, 0), "k=0"),
        (lambda Y, P: metrics.precision_at_k(Y, P, 1, unlabelled="ignore"), "unlabelled"),
        (lambda Y, P: metrics.precision_at_k(-Y, P, 1), r"Y\["),
        (lambda Y, P: metrics.log_loss(Y, P + 1), "probabilities"),
        (lambda Y, P: metrics.ece_at_k(Y, P - 1, 1), "probabilities"),
        (lambda Y, P: metrics.auc(Y, P, "weighted"), "average"),
        (lambda Y, P: metrics.f1(Y, P, 0.5, "weighted"), "average"),
        (lambda Y, P: metrics.psp_at_k(Y, P, np.ones(2), 1), "propensities of 2 labels"),
        (metrics.error_rate, "exactly one class"),
        (lambda Y, P: metrics.nlpd(np.zeros(2, int), P), "classes of shape"),
        (lambda Y, P: metrics.precision_at_k(Y, P.ravel(), 1), "a matrix"),
        (lambda Y, P: metrics.evaluate(Y, P, k=()), "k is empty"),
        (lambda Y, P: metrics.inverse_propensity(Y, b=-5), "b > 0"),
        (lambda Y, P: metrics.inverse_propensity(Y[:0]), "no training rows"),
        (lambda Y, P: metrics.error_rate(np.ones((20, 1)), P), "Pass a vector"),
    ],
)
def test_bad_input(call, message):
    Y, P = random_case(20, 5, 0.5)
    with pytest.raises(ValueError, match=message):
        call(Y, P)
