"""Labels that were not observed count for nothing, in whichever form they are named."""

import numpy as np
import pytest
from scipy import sparse
from topic_cases import ALGORITHMS, N_LABELS, NAMES, assert_same_arrays, differ, small, tiny

from labelfield import DataError, EnsembleClassifier, load

FORMS = {
    "boolean": lambda mask: mask,
    "numbers": lambda mask: mask.astype(int),
    "nested booleans": lambda mask: mask.tolist(),
    "nested numbers": lambda mask: mask.astype(int).tolist(),
    "CSR": sparse.csr_array,
    "DOK": sparse.dok_array,
    "LIL": sparse.lil_array,
    "lists": lambda mask: [np.flatnonzero(row).tolist() for row in mask],
    "list of arrays": lambda mask: [np.flatnonzero(row) for row in mask],
    "array of lists": lambda mask: np.array([np.flatnonzero(row).tolist() for row in mask], dtype=object),
}


@pytest.fixture(scope="module")
def hidden(few):
    return np.random.default_rng(1).random(few[1].shape) < 0.3


@pytest.fixture(scope="module")
def masked(few, hidden):
    return {name: tiny(algorithm=name).fit(*few, missing=hidden) for name in ALGORITHMS}


@pytest.mark.parametrize("form", FORMS)
def test_all_forms_of_a_mask_say_the_same(form, few, hidden, masked):
    for options in ({"missing": FORMS[form](hidden)}, {"observed": FORMS[form](~hidden)}):
        assert_same_arrays(tiny().fit(*few, **options), masked["em"])


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_all_forms_of_a_gap_in_labels_say_the_same(algorithm, few, hidden, masked):
    gaps = np.where(hidden, np.nan, few[1])
    for Y in (gaps, gaps.tolist(), np.ma.masked_array(few[1], mask=hidden)):
        assert_same_arrays(tiny(algorithm=algorithm).fit(few[0], Y), masked[algorithm])


def test_few_that_were_observed(few):
    observed = np.random.default_rng(2).random(few[1].shape) < 0.2
    a, b = tiny().fit(*few, observed=observed), tiny().fit(*few, missing=~observed)
    assert_same_arrays(a, b)
    assert np.isfinite(a.predict_proba(few[0])).all()


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_labels_that_are_hidden_count_for_nothing(algorithm, few, hidden, masked):
    for value in (0, 1):
        Y = np.where(hidden, value, few[1])
        assert_same_arrays(tiny(algorithm=algorithm).fit(few[0], Y, missing=hidden), masked[algorithm])
    assert differ(masked[algorithm], tiny(algorithm=algorithm).fit(few[0], np.where(hidden, 0, few[1])))


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_mask_that_hides_nothing_changes_nothing(algorithm, few):
    plain, every = tiny(algorithm=algorithm).fit(*few), np.ones(few[1].shape, bool)
    for options in ({"observed": every}, {"missing": ~every}, {"missing": [[]] * 80}):
        assert_same_arrays(tiny(algorithm=algorithm).fit(*few, **options), plain)


def test_names_of_labels(few, hidden):
    known = few[1].any(0)
    lists = [NAMES[np.flatnonzero(row)].tolist() for row in few[1]]
    missing = [NAMES[np.flatnonzero(row)].tolist() for row in hidden & known]
    model = tiny().fit(few[0], lists, missing=missing)
    np.testing.assert_array_equal(model.classes_, NAMES[known])
    assert_same_arrays(model, tiny().fit(few[0], few[1][:, known], missing=hidden[:, known]))
    with pytest.raises(DataError, match="'poem'"):
        tiny().fit(few[0], lists, missing=[["poem"]] * 80)


def test_hiding_does_not_lower_probabilities_as_zeros_do(fitted, X, Y):
    dense = Y.toarray()
    hidden = (np.random.default_rng(3).random(dense.shape) < 0.5) & (dense > 0)
    told, untold = small().fit(X, dense, missing=hidden), small().fit(X, np.where(hidden, 0, dense))
    whole = fitted.predict_proba(X)
    errors = [np.abs(model.predict_proba(X)[hidden] - whole[hidden]).mean() for model in (told, untold)]
    assert errors[0] < errors[1]


EVERY = np.ones((80, N_LABELS), bool)
SHAPE = r"has the shape .*; expected \(80, 30\), like Y"


@pytest.mark.parametrize(
    ("mask", "message"),
    [
        ({"observed": EVERY, "missing": ~EVERY}, "pass observed or missing, not both"),
        *(
            ({"missing": mask}, "no label of any row was observed")
            for mask in (EVERY, sparse.csr_array(EVERY), [list(range(N_LABELS))] * 80)
        ),
        ({"observed": ~EVERY}, "no label of any row was observed"),
        *(
            ({name: mask}, f"{name} {SHAPE}")
            for name in ("observed", "missing")
            for mask in (EVERY[1:], EVERY[:, 1:], EVERY[0], sparse.csr_array(EVERY[:, 1:]), EVERY.tolist()[1:])
        ),
        ({"observed": [[0]] * 79}, "observed has 79 rows; expected 80"),
        ({"observed": [[99]] * 80}, "observed as labels of Y: Y has the label '99'"),
        ({"observed": 3}, "observed is int; expected a matrix of 0 and 1, or a list of labels"),
        *(
            ({"observed": mask}, "observed is not binary")
            for mask in (EVERY * 2, -EVERY.astype(int), np.where(EVERY, np.nan, 0))
        ),
    ],
)
def test_what_is_wrong_with_a_mask(mask, message, few):
    with pytest.raises(ValueError, match=message):
        tiny().fit(*few, **mask)


@pytest.mark.parametrize("mask", [{"observed": EVERY}, {"missing": ~EVERY}])
def test_labels_with_gaps_take_no_mask(mask, few):
    with pytest.raises(ValueError, match="Y already marks missing entries"):
        tiny().fit(few[0], np.where(np.eye(80, N_LABELS) > 0, np.nan, few[1]), **mask)


def test_something_must_be_observed(few):
    X, Y = few
    with pytest.raises(DataError, match="no label of any row was observed"):
        tiny().fit(X, np.full(Y.shape, np.nan))
    with pytest.raises(DataError, match="no row has a label that was observed"):
        tiny().fit(X, Y, missing=Y > 0)


def ensemble(**options):
    return EnsembleClassifier(estimator=small(**{"max_epochs": 8} | options), n_members=2)


@pytest.fixture(scope="module")
def most(Y):
    """Four fifths of all entries."""
    return np.random.default_rng(4).random(Y.shape) < 0.8


@pytest.fixture(scope="module")
def trained(X, Y, most):
    return ensemble().fit(X, np.where(most, np.nan, Y.toarray()))


class TestEnsembles:
    """An ensemble reads missing labels as its members do."""

    def test_it_is_the_mean_of_its_members(self, trained, X, Y, most):
        members = trained.members()
        mean = np.mean([member.predict_proba(X, calibrated=False) for member in members], axis=0)
        np.testing.assert_allclose(trained.predict_proba(X, calibrated=False), mean, rtol=1e-5)
        assert_same_arrays(members[0], small(max_epochs=8).fit(X, Y.toarray(), missing=most))
        assert differ(*members)

    @pytest.mark.parametrize("algorithm", ALGORITHMS)
    def test_hidden_labels_count_for_nothing(self, algorithm, X, Y, most):
        found = []
        for value in (0, 1):
            labels = np.where(most, value, Y.toarray())
            found.append(ensemble(algorithm=algorithm).fit(X, labels, observed=~most))
        assert_same_arrays(*found)
        assert found[0].held_out_scores_ == found[1].held_out_scores_
        assert not np.array_equal(
            found[0].predict_proba(X), ensemble(algorithm=algorithm).fit(X, labels).predict_proba(X)
        )

    def test_probabilities_are_calibrated_on_what_was_observed(self, trained, X, Y, most):
        dense = Y.toarray()
        untold = ensemble().fit(X, np.where(most, 0, dense))
        stated = [model.predict_proba(X).mean() / dense.mean() for model in (trained, untold)]
        assert stated[0] == pytest.approx(1, abs=0.35)  # forty rows with six observed labels each
        assert stated[1] < 0.4

    def test_it_is_resumed_saved_and_loaded(self, trained, X, Y, most, tmp_path):
        again = ensemble().fit(X, Y.toarray(), missing=most, checkpoint=tmp_path / "state.safetensors")
        resumed = ensemble().fit(X, Y.toarray(), missing=most, checkpoint=tmp_path / "state.safetensors", resume=True)
        trained.save(tmp_path / "model")
        for other in (again, resumed, load(tmp_path / "model", device="cpu")):
            np.testing.assert_array_equal(other.predict_proba(X), trained.predict_proba(X))
