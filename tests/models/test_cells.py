"""Searches in cells: what they find is what a search of all labels finds, where they say so."""

from dataclasses import replace

import drawn_models as drawn
import numpy as np
import pytest

from labelfield.errors import CannotAnswerError
from labelfield.estimators.searching import audited
from labelfield.models.cells import Audit, Cells, Layout, default_cells, similar
from labelfield.models.search import turns_of

N_LABELS = 300
KINDS = {
    "factors": drawn.factors,
    "factors, without weights": lambda n, rng: drawn.factors(n, rng, "off"),
    "factors, probable": lambda n, rng: drawn.factors(n, rng, b=0.0),
    "machines": lambda n, rng: drawn.machines(n, rng, n_trees=0),
    "machines and trees": drawn.machines,
    "mix": drawn.mix,
    "mean": drawn.mean,
}


@pytest.fixture(params=KINDS)
def predictor(request):
    return KINDS[request.param](N_LABELS, np.random.default_rng(1))


@pytest.fixture
def rows():
    return drawn.draw_rows(120, np.random.default_rng(2))


def in_cells(predictor, rows, n_cells, n_visits):
    of_label = similar(predictor.label_vectors(rows), predictor.n_labels, n_cells, 0)
    return Cells(of_label, n_cells, Audit(n_visits, 5, 1.0, 0.99, 0.95, 400))


def lists(best, k):
    """Return the labels of rows, best first, and their probabilities."""
    labels, p = (part.reshape(-1, k) for part in (best.indices, best.data))
    order = np.lexsort((labels, -p), axis=1)
    return np.take_along_axis(labels, order, 1), np.take_along_axis(p, order, 1)


@pytest.mark.parametrize("calibrated", [True, False])
def test_all_cells_are_a_search_of_all_labels(predictor, rows, calibrated):
    cells = in_cells(predictor, rows, 20, 20)
    found, exact = predictor.searched(rows, 7, cells, calibrated), predictor.top_k(rows, 7, calibrated)
    assert found.is_certified.all()
    assert (found.n_scored == N_LABELS).all()
    np.testing.assert_allclose(*(lists(best, 7)[1] for best in (found.best, exact)), rtol=2e-5, atol=1e-9)
    same = np.mean(lists(found.best, 7)[0] == lists(exact, 7)[0])
    assert same > 0.99  # others are ties by rounding


def test_probabilities_are_those_of_a_search_of_all_labels(predictor, rows):
    found = predictor.searched(rows, 5, in_cells(predictor, rows, 20, 4), calibrated=False)
    P = predictor.separate_proba(rows, calibrated=False)
    row = np.repeat(np.arange(120), 5)
    np.testing.assert_allclose(found.best.data, P[row, found.best.indices], rtol=2e-5, atol=1e-9)
    assert (found.n_scored < N_LABELS).all()


def test_no_label_is_above_the_bound_of_its_cell(predictor, rows):
    cells = in_cells(predictor, rows, 40, 1)
    asked = predictor.scorer(cells.layout()).ask(rows)
    P = predictor.separate_proba(rows, calibrated=False)
    assert (asked.most[:, cells.of_label] * (1 + 1e-4) >= P).all()


def test_certified_lists_are_complete(predictor, rows):
    cells, exact = in_cells(predictor, rows, 60, 30), predictor.top_k(rows, 2)
    found = predictor.searched(rows, 2, cells)
    complete = np.all(found.best.indices.reshape(-1, 2) == exact.indices.reshape(-1, 2), axis=1)
    assert complete[found.is_certified].all()


@pytest.mark.parametrize("kind", ["machines", "machines and trees", "factors"])
def test_some_lists_are_certified(kind, rows):
    # Labels of a cell are alike: bounds are then close.
    rng = np.random.default_rng(3)
    predictor = KINDS[kind](N_LABELS, rng)
    cells = in_cells(predictor, rows, N_LABELS, 150)
    assert predictor.searched(rows, 1, cells).is_certified.mean() > 0.2


def test_rows_with_negative_entries_are_never_certified(predictor):
    rows = drawn.draw_rows(30, np.random.default_rng(4), lowest=-1)
    found = predictor.searched(rows, 3, in_cells(predictor, abs(rows), 20, 6))
    assert not found.is_certified.any()


def test_fewer_labels_in_cells_than_asked_for(predictor, rows):
    cells = Cells(np.arange(N_LABELS, dtype=np.int32), N_LABELS, Audit(1, 5, 1.0, 0.99, 0.95, 400))
    found = predictor.searched(rows, 9, cells)
    assert found.best.nnz == 9 * rows.shape[0]
    assert predictor.searched(rows[:0], 3, cells).best.shape == (0, N_LABELS)


def test_turns_say_what_visits_find(predictor, rows):
    cells = in_cells(predictor, rows, 30, 8)
    exact = predictor.top_k(rows, 5, calibrated=False).indices.reshape(-1, 5).astype(np.int64)
    turns = turns_of(predictor.scorer(cells.layout()), rows, exact)
    found = predictor.searched(rows, 5, cells, calibrated=False).best.indices.reshape(-1, 5)
    hits = np.mean([np.isin(own, theirs).mean() for own, theirs in zip(exact, found, strict=True)])
    assert hits == pytest.approx(np.mean(turns < 8), abs=0.005)


def test_natural_cells_are_groups_of_the_first_tree():
    predictor = drawn.machines(N_LABELS, np.random.default_rng(5))
    cells, groups = predictor.natural_cells(), predictor.model.groups[0].numpy()
    unseen = predictor.model.stack.unseen.numpy() < 0
    assert len(np.unique(cells[unseen])) == 1
    assert not np.isin(cells[~unseen], cells[unseen]).any()
    for cell in np.unique(cells[~unseen]):
        assert len(np.unique(groups[cells == cell])) == 1


def test_weights_with_variances_have_no_cells(rows):
    predictor = drawn.factors(N_LABELS, np.random.default_rng(6), "mean_field")
    with pytest.raises(CannotAnswerError, match="mean_field"):
        predictor.scorer(Layout.of(np.zeros(N_LABELS, np.int32), 1))


def test_k_means_finds_clusters():
    rng = np.random.default_rng(0)
    centres, of_label = 10 * rng.normal(size=(6, 4)), rng.integers(6, size=500)
    vectors = (centres[of_label] + rng.normal(size=(500, 4))).astype(np.float32)
    cells = similar(lambda labels: vectors[labels], 500, 30, 0)
    # A cell has labels of one cluster.
    assert all(len(np.unique(of_label[cells == cell])) == 1 for cell in np.unique(cells))
    assert default_cells(1_000_000) < 1_000_000


def drawn_turns(n_rows, late, rng):
    """Draw turns of which a share `late` is after ten visits, the labels of a row together or not at all."""
    turns = rng.integers(10, size=(n_rows, 5))
    is_late = rng.random(n_rows) < late
    turns[is_late] = rng.integers(10, 90, size=(is_late.sum(), 5))
    return turns


def test_audits_choose_too_few_visits_rarely():
    rng, n_wrong = np.random.default_rng(0), 0
    for _ in range(200):
        # With ten visits just less than 0.99 are found: whoever chooses ten or fewer is wrong.
        n_wrong += audited(drawn_turns(1000, 0.0105, rng), 100).n_visits <= 10
    assert n_wrong <= 18  # of 200, at a level of 5 %: the chance of more is 1 %


def test_audits_choose_the_fewest_visits_that_are_enough():
    audit = audited(drawn_turns(4000, 0.0, np.random.default_rng(0)), 100)
    assert audit.n_visits == 10
    assert audit.recall == 1
    assert audited(np.zeros((400, 5), np.int64), 100).n_visits == 1
    with pytest.raises(CannotAnswerError, match="at least 400"):
        audited(np.zeros((399, 5), np.int64), 100)


@pytest.mark.parametrize(
    ("described", "of_label"),
    [
        ({"n_cells": 0}, np.zeros(9, np.int32)),
        ({"n_cells": 10}, np.zeros(9, np.int32)),
        ({"n_cells": True}, np.zeros(9, np.int32)),
        ({}, np.full(9, 3, np.int32)),
        ({}, np.full(9, -1, np.int32)),
        ({}, np.zeros(8, np.int32)),
        ({}, np.zeros(9, np.int64)),
        ({"audit": {"n_visits": 4}}, np.zeros(9, np.int32)),
        ({"audit": {"recall": float("nan")}}, np.zeros(9, np.int32)),
        ({"audit": {"recall": "1"}}, np.zeros(9, np.int32)),
        ({"audit": {"n_visits": 0}}, np.zeros(9, np.int32)),
    ],
)
def test_cells_from_strangers_are_checked(described, of_label):
    good = Cells(np.zeros(9, np.int32), 3, Audit(2, 5, 1.0, 0.99, 0.95, 400))
    assert Cells.restore(good.describe(), good.of_label, 9).describe() == good.describe()
    bad = good.describe() | described
    bad["audit"] = good.describe()["audit"] | described.get("audit", {})
    with pytest.raises(ValueError):
        Cells.restore(bad, of_label, 9)


def test_a_new_audit_is_used(rows):
    predictor = drawn.machines(N_LABELS, np.random.default_rng(1))
    cells = in_cells(predictor, rows, 20, 2)
    fewer = predictor.searched(rows, 3, cells).n_scored
    more = predictor.searched(rows, 3, replace(cells, audit=replace(cells.audit, n_visits=9))).n_scored
    assert (more > fewer).all()


@pytest.mark.slow
def test_faiss_agrees():
    """faiss, with its own cells over the same centres and as many visits, finds what we find; it has no weights."""
    faiss = pytest.importorskip("faiss", reason="faiss-cpu is not installed")
    rng, n_labels = np.random.default_rng(0), 20_000
    predictor = drawn.factors(n_labels, rng, "off")
    predictor.model.family.log_var.data.fill_(-20)
    predictor.model.b.data.fill_(-3)
    rows = drawn.draw_rows(500, rng)
    cells = in_cells(predictor, rows, 128, 8)
    scorer = predictor.scorer(cells.layout())
    mean = np.concatenate([h.mean.detach().numpy() for _, _, h in predictor.given(rows)])
    exact = faiss.IndexFlatIP(mean.shape[1])
    exact.add(scorer.Phi)
    best = exact.search(mean, 5)[1]
    ours = predictor.top_k_by_utility(rows, 5).indices.reshape(-1, 5)
    assert np.mean(np.sort(best, 1) == ours) > 0.999
    quantiser = faiss.IndexFlatIP(mean.shape[1])
    index = faiss.IndexIVFFlat(quantiser, mean.shape[1], 128, faiss.METRIC_INNER_PRODUCT)
    index.train(scorer.Phi)
    index.add(scorer.Phi)
    index.nprobe = 8
    theirs = index.search(mean, 5)[1]
    found = predictor.searched(rows, 5, cells).best.indices.reshape(-1, 5)

    def recall(lists):
        return np.mean([np.isin(own, some).mean() for own, some in zip(best, lists, strict=True)])

    assert recall(found) > recall(theirs) - 0.02
    assert recall(found) > 0.9
