"""Searches with an index: what they find is what a search of all labels finds, where they say so."""

import gc
import weakref

import drawn_models as drawn
import numpy as np
import pytest
import torch

from labelfield.errors import CannotAnswerError
from labelfield.estimators.searching import audited, directions_of
from labelfield.models import search
from labelfield.models.index import Audit, Directions, Index, least_weights
from labelfield.models.search import Guesses, turns_of

N_LABELS = 300
KINDS = {
    "factors": drawn.factors,
    "factors, without weights": lambda n, rng: drawn.factors(n, rng, "off"),
    "factors, probable": lambda n, rng: drawn.factors(n, rng, b=0.0),
    "machines": lambda n, rng: drawn.machines(n, rng, n_trees=0),
    "machines and trees": drawn.machines,
    "trees": lambda n, rng: drawn.machines(n, rng, n_levels=2, has_own=False),
    "mix": drawn.mix,
    "mean": drawn.mean,
    "mean of machines": drawn.mean_of_machines,
}


@pytest.fixture(params=KINDS)
def predictor(request):
    return KINDS[request.param](N_LABELS, np.random.default_rng(1))


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    """Labels and rows of several blocks."""
    monkeypatch.setattr(search, "_LABELS", 64)
    monkeypatch.setattr(search, "_ROWS", 50)


@pytest.fixture
def rows():
    return drawn.draw_rows(120, np.random.default_rng(2))


def indexed(predictor, rows, n_kept):
    return Index(directions_of(predictor.scorer(), rows), Audit(n_kept, 5, 1.0, 0.99, 0.95, 400))


def hostile(predictor, rows):
    """Return an index of nonsense, as a folder may have it."""
    rng, good = np.random.default_rng(7), directions_of(predictor.scorer(), rows)
    drawn_arrays = [rng.normal(0, 2, array.shape).astype(np.float32) for array in vars(good).values()]
    return Index(Directions(*drawn_arrays[:-1], abs(drawn_arrays[-1])), Audit(40, 5, 1.0, 0.99, 0.95, 400))


def lists(best, k):
    """Return the labels of rows, best first, and their probabilities."""
    labels, p = (part.reshape(-1, k) for part in (best.indices, best.data))
    order = np.lexsort((labels, -p), axis=1)
    return np.take_along_axis(labels, order, 1), np.take_along_axis(p, order, 1)


@pytest.mark.parametrize("calibrated", [True, False])
def test_a_search_that_keeps_all_labels_is_exact(predictor, rows, calibrated):
    index = indexed(predictor, rows, N_LABELS)
    found, exact = predictor.searched(rows, 7, index, calibrated), predictor.top_k(rows, 7, calibrated)
    assert found.is_certified.all()
    assert (found.n_scored == N_LABELS).all()
    np.testing.assert_allclose(*(lists(best, 7)[1] for best in (found.best, exact)), rtol=2e-5, atol=1e-9)
    same = np.mean(lists(found.best, 7)[0] == lists(exact, 7)[0])
    assert same > 0.99  # others are ties by rounding


@pytest.mark.parametrize("make", [lambda *given: indexed(*given, 40), hostile])
def test_probabilities_are_those_of_a_search_of_all_labels(predictor, rows, make):
    found = predictor.searched(rows, 5, make(predictor, rows), calibrated=False)
    P = predictor.separate_proba(rows, calibrated=False)
    row = np.repeat(np.arange(120), 5)
    np.testing.assert_allclose(found.best.data, P[row, found.best.indices], rtol=2e-5, atol=1e-9)
    assert (found.n_scored == 40).all()


@pytest.mark.parametrize("lowest", [0.1, -1])
@pytest.mark.parametrize("make", [lambda *given: indexed(*given, 40), hostile])
def test_no_label_that_is_left_out_is_above_the_bound(predictor, lowest, make):
    rows = drawn.draw_rows(120, np.random.default_rng(4), lowest=lowest)
    guesses = Guesses(predictor.scorer(), make(predictor, abs(rows)).directions)
    asked = guesses.scorer.ask(rows)
    kept = guesses.keep(asked, 40)
    P = predictor.separate_proba(rows, calibrated=False)
    np.put_along_axis(P, kept.labels, 0, 1)
    assert (P.max(1) <= asked.bound(kept.limit) * (1 + 1e-4)).all()


@pytest.mark.parametrize("make", [lambda *given: indexed(*given, 40), hostile])
def test_certified_lists_are_complete(predictor, rows, make):
    exact = predictor.top_k(rows, 2)
    found = predictor.searched(rows, 2, make(predictor, rows))
    complete = np.all(found.best.indices.reshape(-1, 2) == exact.indices.reshape(-1, 2), axis=1)
    assert complete[found.is_certified].all()


@pytest.mark.parametrize("has_own", [True, False])
def test_trees_whose_groups_are_not_nested_certify_nothing_wrong(has_own, rows):
    """No training makes lower groups whose labels are in several upper ones, but a folder from a stranger may."""
    predictor, rng = drawn.machines(N_LABELS, np.random.default_rng(3), 1, 2, has_own), np.random.default_rng(5)
    model = predictor.model
    model.groups[0] = int(model.groups[0].min()) + torch.from_numpy(rng.integers(5, size=N_LABELS))
    guesses = Guesses(predictor.scorer(), indexed(predictor, rows, 40).directions)
    asked = guesses.scorer.ask(rows)
    kept = guesses.keep(asked, 40)
    P = predictor.separate_proba(rows, calibrated=False)
    np.put_along_axis(P, kept.labels, 0, 1)
    assert (P.max(1) <= asked.bound(kept.limit) * (1 + 1e-4)).all()


@pytest.mark.parametrize(("kind", "share"), [("machines", 1), ("machines and trees", 0.2)])
def test_lists_are_certified(kind, share, rows):
    predictor = KINDS[kind](N_LABELS, np.random.default_rng(3))
    assert predictor.searched(rows, 1, indexed(predictor, rows, 100)).is_certified.mean() >= share


def test_bytes_are_nearly_exact(rows):
    predictor = KINDS["factors"](N_LABELS, np.random.default_rng(3))
    guesses = Guesses(predictor.scorer(), directions_of(predictor.scorer(), rows))
    kept = guesses.keep(guesses.scorer.ask(rows), 100)
    assert 0 < (kept.limit - kept.guesses.min(1)).max() < 0.02 * np.ptp(kept.guesses)


def test_guesses_for_machines_without_trees_are_exact(rows):
    predictor = KINDS["machines"](N_LABELS, np.random.default_rng(3))
    guesses = Guesses(predictor.scorer(), directions_of(predictor.scorer(), rows))
    kept = guesses.keep(guesses.scorer.ask(rows), N_LABELS)
    odds = predictor.log_odds(rows)
    chosen = abs(odds) < 10  # as float32 has them
    np.testing.assert_allclose(kept.guesses[chosen], odds[chosen], atol=1e-3)


def test_guesses_keep_the_best(predictor, rows):
    """In any number of blocks of labels the same labels are kept, those with the largest guesses."""
    guesses = Guesses(predictor.scorer(), indexed(predictor, rows, 1).directions)
    asked = guesses.scorer.ask(rows)
    every, kept = guesses.keep(asked, N_LABELS), guesses.keep(guesses.scorer.ask(rows), 40)
    least = np.sort(every.guesses, 1)[:, -40]
    np.testing.assert_array_equal(every.labels, np.tile(np.arange(N_LABELS), (120, 1)))
    np.testing.assert_array_equal(kept.guesses.min(1), least)
    np.testing.assert_array_equal(np.take_along_axis(every.guesses, kept.labels, 1), kept.guesses)


def test_products_of_bytes_and_of_floats_are_the_same(predictor, rows, monkeypatch):
    found = []
    for as_bytes in (True, False):
        monkeypatch.setattr(search, "multiplies_bytes", lambda as_bytes=as_bytes: as_bytes)
        guesses = Guesses(predictor.scorer(), indexed(predictor, rows, 1).directions)
        found.append(guesses.keep(guesses.scorer.ask(rows), 40))
    for one, other in zip(*found, strict=True):
        np.testing.assert_array_equal(one, other)


def test_threads_find_the_same(predictor, rows):
    index, n_threads = indexed(predictor, rows, 40), torch.get_num_threads()
    found = []
    try:
        for n in (1, 3):
            torch.set_num_threads(n)
            guesses = Guesses(predictor.scorer(), index.directions)
            found.append(guesses.keep(guesses.scorer.ask(rows), 40).labels)
    finally:
        torch.set_num_threads(n_threads)
    assert np.mean(found[0] == found[1]) > 0.99  # products of floats may round differently


def test_few_labels_and_no_rows(predictor, rows):
    index = indexed(predictor, rows, 1)
    assert predictor.searched(rows, 9, index).best.nnz == 9 * rows.shape[0]
    assert predictor.searched(rows[:0], 3, index).best.shape == (0, N_LABELS)
    assert predictor.searched(rows[:1], N_LABELS, index).best.nnz == N_LABELS


def test_of_equal_labels_the_first_are_found(rows):
    predictor = KINDS["machines"](N_LABELS, np.random.default_rng(3))
    predictor.model.weights.data.zero_()
    predictor.model.intercepts.zero_()
    exact, found = predictor.top_k(rows, 5), predictor.searched(rows, 5, indexed(predictor, rows, 40)).best
    np.testing.assert_array_equal(found.indices, exact.indices)


@pytest.mark.parametrize("kind", ["factors", "machines", "mix"])
@pytest.mark.parametrize("name", ["weights", "bias"])
def test_what_is_no_number_is_not_passed_over(kind, name, rows):
    """A label whose probability is no number has no place in a list: no list is complete without it."""
    predictor = KINDS[kind](N_LABELS, np.random.default_rng(3))
    index = indexed(predictor, rows, 40)
    model = predictor.members[0].predictor.model if kind == "mix" else predictor.model
    if name == "weights":
        (model.weights if hasattr(model, "weights") else model.label_linear.weights).data[8 * 150] = torch.nan
    else:
        (model.intercepts if hasattr(model, "intercepts") else model.b.data)[150] = torch.nan
    with pytest.raises(CannotAnswerError, match="not numbers"):
        predictor.searched(rows, 5, index)


@pytest.mark.parametrize("kind", ["factors", "machines", "trees"])
def test_rows_of_what_is_no_number_are_refused(kind, rows):
    predictor = KINDS[kind](N_LABELS, np.random.default_rng(3))
    index = indexed(predictor, rows, 40)
    rows.data[:50] = np.nan
    with pytest.raises(CannotAnswerError, match="not numbers"), np.errstate(invalid="ignore"):
        predictor.searched(rows, 5, index)


def test_scores_of_groups_take_little_memory(rows, monkeypatch):
    """Rows are few at a time where label trees have many groups: 40 scores for each row, beside 80 kept labels."""
    predictor = KINDS["machines and trees"](N_LABELS, np.random.default_rng(3))
    index = indexed(predictor, rows, 40)
    at_once = predictor.searched(rows, 5, index)
    monkeypatch.setattr(search, "_ENTRIES", 10 * (2 * 40 + 40))
    assert [block.stop - block.start for block in search.blocks_of(predictor.scorer(), 25, 40)] == [10, 10, 5]
    assert (predictor.searched(rows, 5, index).best != at_once.best).nnz == 0
    for name, found in indexed(predictor, rows, 40).arrays().items():
        np.testing.assert_array_equal(found, index.arrays()[name])


@pytest.mark.parametrize("kind", KINDS)
def test_a_predictor_that_searched_leaves_no_garbage(kind, rows):
    """Its memory is free at once: training searches nothing that was there before for garbage."""
    predictor = KINDS[kind](N_LABELS, np.random.default_rng(3))
    predictor.searched(rows, 5, indexed(predictor, rows, 40))
    gone, was_on = weakref.ref(predictor), gc.isenabled()
    gc.disable()
    try:
        del predictor
        assert gone() is None
    finally:
        if was_on:
            gc.enable()


def test_turns_say_what_is_kept(predictor, rows):
    index = indexed(predictor, rows, 40)
    exact = predictor.top_k(rows, 5, calibrated=False).indices.reshape(-1, 5).astype(np.int64)
    turns = turns_of(Guesses(predictor.scorer(), index.directions), rows, exact, 200)
    found = predictor.searched(rows, 5, index, calibrated=False).best.indices.reshape(-1, 5)
    hits = np.mean([np.isin(own, theirs).mean() for own, theirs in zip(exact, found, strict=True)])
    assert hits == pytest.approx(np.mean(turns < 40), abs=0.005)


@pytest.mark.parametrize("kind", ["factors", "mix"])
def test_audits_hold_on_other_rows(kind):
    rng = np.random.default_rng(0)
    predictor = KINDS[kind](2000, rng)
    rows, others = (drawn.draw_rows(1000, rng) for _ in range(2))
    guesses = Guesses(predictor.scorer(), directions_of(predictor.scorer(), rows))

    def turns(some):
        best = predictor.top_k(some, 5, calibrated=False).indices.reshape(-1, 5).astype(np.int64)
        return turns_of(guesses, some, best, 2000)

    audit = audited(turns(rows), 2000)
    assert audit.n_kept < 200
    assert np.mean(turns(others) < audit.n_kept) > audit.target - 0.003


def test_directions_lose_least():
    """Of all projections on as few directions, ours is nearest to the products; with all of them nothing is lost."""
    rng = np.random.default_rng(0)
    rows, labels = (rng.normal(size=(n, 40)) * 0.8 ** rng.permutation(40) for n in (500, 900))
    rows, labels = (part.astype(np.float32) for part in (rows, labels))
    found = Directions.of(rows, labels, np.zeros(0, np.float32))
    n, centred = found.of_rows.shape[1], rows - found.centre
    exact = centred @ (labels - labels.mean(0)).T

    def error(of_rows, of_labels):
        return np.square(centred @ of_rows @ of_labels.T @ (labels - labels.mean(0)).T - exact).sum()

    values = np.linalg.svd(exact, compute_uv=False)
    assert n < 40
    assert error(found.of_rows, found.of_labels) == pytest.approx(np.square(values[n:]).sum(), rel=0.05)
    assert error(found.of_rows, found.of_labels) < 0.01 * np.square(exact).sum()


def test_rows_meet_as_many_weights_as_asked_for():
    rng = np.random.default_rng(0)
    sizes, features = abs(rng.normal(size=20_000)).astype(np.float32), rng.integers(50, size=20_000).astype(np.int32)
    squares, counts = rng.random(50) * 100, np.arange(50)
    least = least_weights(sizes, features, 1.0, squares, counts, 100, 60)
    met = (counts[features] / 100)[sizes >= least[features]].sum()
    assert met == pytest.approx(60, abs=1)
    assert not least_weights(sizes, features, 1.0, squares, counts, 100, 1e9).any()


def test_weights_with_variances_have_no_index():
    predictor = drawn.factors(N_LABELS, np.random.default_rng(6), "mean_field")
    with pytest.raises(CannotAnswerError, match="mean_field"):
        predictor.scorer()


def drawn_turns(n_rows, late, rng):
    """Draw turns of which a share `late` is after ten labels, those of a row together or not at all."""
    turns = rng.integers(10, size=(n_rows, 5))
    is_late = rng.random(n_rows) < late
    turns[is_late] = rng.integers(10, 90, size=(is_late.sum(), 5))
    return turns


def test_audits_choose_too_few_labels_rarely():
    rng, n_wrong = np.random.default_rng(0), 0
    for _ in range(200):
        # With ten labels just less than 0.99 are found: whoever chooses ten or fewer is wrong.
        n_wrong += audited(drawn_turns(1000, 0.0105, rng), 100).n_kept <= 10
    assert n_wrong <= 18  # of 200, at a level of 5 %: the chance of more is 1 %


def test_audits_choose_the_fewest_labels_that_are_enough():
    audit = audited(drawn_turns(4000, 0.0, np.random.default_rng(0)), 100)
    assert audit.n_kept == 10
    assert audit.recall == 1
    assert audited(np.zeros((400, 5), np.int64), 100).n_kept == 1
    with pytest.raises(CannotAnswerError, match="at least 400"):
        audited(np.zeros((399, 5), np.int64), 100)
    with pytest.raises(CannotAnswerError, match="the best guesses"):
        audited(np.full((4000, 5), 100), 100)


@pytest.mark.parametrize(
    ("described", "arrays"),
    [
        ({"n_kept": 10}, {}),
        ({"n_kept": 0}, {}),
        ({"n_kept": True}, {}),
        ({"recall": float("nan")}, {}),
        ({"recall": "1"}, {}),
        ({}, {"centre": np.zeros(4, np.float32)}),
        ({}, {"centre": np.full(3, np.nan, np.float32)}),
        ({}, {"of_rows": np.zeros((3, 3), np.float32)}),
        ({}, {"of_rows": np.zeros((3, 2), np.float64)}),
        ({}, {"of_rows": np.float32(1)}),
        ({}, {"of_labels": np.full((3, 2), np.inf, np.float32)}),
        ({}, {"of_rows": np.zeros((3, 4), np.float32), "of_labels": np.zeros((3, 4), np.float32)}),
        ({}, {"least": np.full(5, -1, np.float32)}),
        ({}, {"least": np.zeros(6, np.float32)}),
    ],
)
def test_an_index_from_strangers_is_checked(described, arrays):
    sizes = {"centre": (3,), "of_rows": (3, 2), "of_labels": (3, 2), "least": (5,)}
    directions = Directions(*(np.ones(shape, np.float32) for shape in sizes.values()))
    good = Index(directions, Audit(2, 5, 1.0, 0.99, 0.95, 400))
    assert Index.restore(good.describe(), good.arrays(), 9, 3, 5).describe() == good.describe()
    with pytest.raises(ValueError):
        Index.restore(good.describe() | described, good.arrays() | arrays, 9, 3, 5)


@pytest.mark.slow
def test_faiss_agrees(monkeypatch):
    """faiss finds the same best products, and no more of them with vectors in bytes than we do; it has no weights."""
    faiss = pytest.importorskip("faiss", reason="faiss-cpu is not installed")
    monkeypatch.undo()
    rng, n_labels = np.random.default_rng(0), 20_000
    predictor = drawn.factors(n_labels, rng, "off")
    predictor.model.b.data.fill_(-3)
    rows = drawn.draw_rows(500, rng)
    scorer = predictor.scorer()
    mean = np.concatenate([h.mean.detach().numpy() for _, _, h in predictor.given(rows)])
    exact = faiss.IndexFlatIP(mean.shape[1])
    exact.add(scorer.Phi)
    best = exact.search(mean, 5)[1]
    ours = predictor.top_k_by_utility(rows, 5).indices.reshape(-1, 5)
    assert np.mean(np.sort(best, 1) == ours) > 0.999
    in_bytes = faiss.IndexScalarQuantizer(mean.shape[1], faiss.ScalarQuantizer.QT_8bit, faiss.METRIC_INNER_PRODUCT)
    in_bytes.train(scorer.Phi)
    in_bytes.add(scorer.Phi)

    def recall(lists):
        return np.mean([np.isin(own, some).mean() for own, some in zip(best, lists, strict=True)])

    theirs = recall(in_bytes.search(mean, 32)[1])
    kept = Guesses(scorer, indexed(predictor, rows, 32).directions).keep(scorer.ask(rows), 32).labels
    assert recall(kept) > theirs - 0.01
    assert recall(kept) > 0.99


def test_a_search_without_compiled_loops_is_refused(rows, monkeypatch):
    predictor = drawn.factors(N_LABELS, np.random.default_rng(1))
    index = indexed(predictor, rows, 40)
    monkeypatch.setattr(search, "has_numba", lambda: False)
    with pytest.raises(CannotAnswerError, match=r"needs numba, which is not installed; use search='exact'"):
        predictor.searched(rows, 3, index)


@pytest.mark.parametrize("kind", ["factors", "trees"])
def test_models_on_other_devices_have_no_index(kind):
    predictor = KINDS[kind](N_LABELS, np.random.default_rng(1))
    predictor.model.to("meta")
    with pytest.raises(CannotAnswerError, match="is for the CPU; on a GPU all labels are ranked as fast"):
        predictor.scorer()
