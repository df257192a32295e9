"""Where another package computes the same score, both agree."""

import napkinxc.metrics as napkin
import numpy as np
import pytest
from scipy import sparse
from sklearn import metrics as sk
from sklearn.calibration import calibration_curve

from labelfield import metrics


@pytest.fixture(scope="module")
def case():
    rng = np.random.default_rng(7)
    dense = rng.random((200, 40)) < rng.random(40) * 0.3
    dense[rng.integers(200, size=40), np.arange(40)] = True
    dense[np.flatnonzero(dense.sum(axis=1) == 0), 0] = True
    dense[0] = False
    dense[1] = True
    Y = sparse.csr_array(dense.astype(np.float32))
    return Y, dense.astype(int), rng.random((200, 40))


def close(a, b):
    np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-10)


def labels_and_lists(Y, P):
    truth = [Y.indices[a:b].tolist() for a, b in zip(Y.indptr[:-1], Y.indptr[1:], strict=True)]
    return truth, [np.argsort(-row).tolist() for row in P]


def test_napkinxc(case):
    Y, _, P = case
    truth, lists = labels_and_lists(Y, P)
    weight = metrics.inverse_propensity(Y)
    theirs = napkin.Jain_et_al_inverse_propensity(sparse.csr_matrix(Y), A=0.55, B=1.5)
    np.testing.assert_allclose(weight, theirs, rtol=1e-6)  # theirs is float32
    for k, p in enumerate(napkin.precision_at_k(truth, lists, k=5), 1):
        close(metrics.precision_at_k(Y, P, k), p)
    for k, p in enumerate(napkin.psprecision_at_k(truth, lists, weight, k=5), 1):
        close(metrics.psp_at_k(Y, P, weight, k), p)
    for k, p in enumerate(napkin.psndcg_at_k(truth, lists, weight, k=5), 1):
        close(metrics.psndcg_at_k(Y, P, weight, k), p)


def test_napkinxc_on_rows_with_labels(case):
    """Its nDCG and recall leave rows without labels undefined."""
    Y, _, P = case
    Y, P = Y[1:], P[1:]
    truth, lists = labels_and_lists(Y, P)
    for k, p in enumerate(napkin.ndcg_at_k(truth, lists, k=5), 1):
        close(metrics.ndcg_at_k(Y, P, k), p)
    for k, p in enumerate(napkin.recall_at_k(truth, lists, k=5), 1):
        close(metrics.recall_at_k(Y, P, k), p)


def test_scikit_learn_pairs(case):
    Y, dense, P = case
    P = P.round(1)  # ties
    close(metrics.auc(Y, P, "micro"), sk.roc_auc_score(dense, P, average="micro"))
    close(metrics.auc(Y, P, "label"), sk.roc_auc_score(dense, P, average="macro"))
    close(metrics.auc(Y[2:], P[2:], "row"), sk.roc_auc_score(dense[2:], P[2:], average="samples"))
    close(metrics.coverage_error(Y, P), sk.coverage_error(dense, P))
    close(metrics.ranking_loss(Y, P), sk.label_ranking_loss(dense, P))


def test_scikit_learn_ndcg(case):
    Y, dense, P = case
    for k in (1, 3, 5):
        close(metrics.ndcg_at_k(Y, P, k), sk.ndcg_score(dense, P, k=k))


def test_scikit_learn_probabilities(case):
    Y, dense, P = case
    predicted = (P >= 0.6).astype(int)
    close(metrics.f1(Y, P, 0.6, "micro"), sk.f1_score(dense, predicted, average="micro"))
    close(metrics.f1(Y, P, 0.6, "macro"), sk.f1_score(dense, predicted, average="macro", zero_division=0))
    close(metrics.log_loss(Y, P), np.mean([sk.log_loss(dense[:, k], P[:, k], labels=[0, 1]) for k in range(40)]))
    close(metrics.brier(Y, P), np.mean([sk.brier_score_loss(dense[:, k], P[:, k]) for k in range(40)]))


def test_scikit_learn_classes(case):
    _, _, P = case
    P = P / P.sum(axis=1, keepdims=True)
    y = np.random.default_rng(0).integers(40, size=200)
    close(metrics.error_rate(y, P), 1 - sk.accuracy_score(y, P.argmax(axis=1)))
    close(metrics.nlpd(y, P), sk.log_loss(y, P, labels=range(40)))


def test_scikit_learn_reliability(case):
    Y, dense, P = case
    curve = metrics.reliability_curve(Y, P, k=40, n_bins=10)
    frequency, confidence = calibration_curve(dense.ravel(), P.ravel(), n_bins=10)
    close(curve.frequency, frequency)
    close(curve.confidence, confidence)
    assert curve.count.sum() == 8000
