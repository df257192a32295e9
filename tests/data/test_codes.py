"""Codes of categories: which columns are taken for codes, and what becomes of them."""

import numpy as np
import pytest
from scipy import sparse

import labelfield
from labelfield.csr import as_features
from labelfield.data.codes import find_codes
from labelfield.data.transform import RowTransform, choose_class_transform

N = 2000
RNG = np.random.default_rng(0)
# A measurement, the same in integers with a long tail, a code without an order, and one that says nothing.
SIZE = RNG.normal(size=N)
COUNT = np.floor(np.exp(SIZE + 1))
CODE = RNG.integers(0, 6, N)
NOISE = RNG.integers(1, 5, N)
LOGITS = SIZE + np.array([2.0, -2, 2, -2, 2, -2])[CODE]
CLASS = (RNG.random(N) < 1 / (1 + np.exp(-LOGITS))).astype(int)
TABLE = np.column_stack([SIZE, COUNT, CODE, NOISE]).astype(np.float32)
LABELS = sparse.csr_array((np.ones(N, np.float32), CLASS, np.arange(N + 1)), shape=(N, 2))


def coded(X=TABLE, Y=LABELS):
    return RowTransform.fit("coded", as_features(X), Y)


def test_labels_show_which_integers_are_codes():
    found = find_codes(as_features(TABLE), LABELS)
    assert np.unique(found.columns).tolist() == [2]
    assert found.values.tolist() == [0, 1, 2, 3, 4, 5]
    # Without labels, every column of a few integers.
    assert np.unique(find_codes(as_features(TABLE[:, [0, 2, 3]])).columns).tolist() == [1, 2]


@pytest.mark.parametrize(
    "column",
    [
        CODE % 2,  # two categories are a measurement
        CODE + 0.5,
        1000 * CODE,  # far apart
        np.arange(N) % 500,  # four rows for each
        np.zeros(N),
        np.argsort(np.argsort(SIZE)) // 200,  # ten steps of a measurement
    ],
)
def test_other_columns_stay_as_they_are(column):
    rows = as_features(np.column_stack([SIZE, column]).astype(np.float32))
    assert find_codes(rows, LABELS) is None
    transform = RowTransform.fit("coded", rows, LABELS)
    assert transform.name == "scaled"
    assert transform.codes is None


def test_columns_with_the_same_values_are_judged_together():
    """A square of a board that says little is coded like the others."""
    board = np.column_stack([CODE, NOISE - 1, RNG.integers(0, 6, N)])
    board[:6, 1] = np.arange(6)
    found = find_codes(as_features(board.astype(np.float32)), LABELS)
    assert np.unique(found.columns).tolist() == [0, 1, 2]


def test_each_code_has_an_indicator_and_measurements_are_scaled():
    transform = coded()
    rows = transform(as_features(TABLE)).toarray()
    scaled = RowTransform.fit("scaled", as_features(TABLE))(as_features(TABLE)).toarray()
    np.testing.assert_allclose(rows[:, [0, 1, 3]], scaled[:, [0, 1, 3]], rtol=1e-6)
    np.testing.assert_array_equal(rows[:, 2], 0)
    np.testing.assert_array_equal(rows[:, 4:], np.eye(6)[CODE])
    assert rows.shape[1] == transform.n_columns(4) == 10
    assert transform(as_features(TABLE[:0])).shape == (0, 10)


def test_what_is_known_of_columns_is_told_of_features():
    transform = coded()
    assert transform.fold(np.arange(10, dtype=np.float32)).tolist() == [0, 1, 2 + 4 + 5 + 6 + 7 + 8 + 9, 3]
    rows = transform(as_features(TABLE)).toarray()
    for number in range(5):
        np.testing.assert_allclose(transform.original(rows[number]), TABLE[number], rtol=1e-5, atol=1e-6)
    absent = transform.absent()
    np.testing.assert_array_equal(transform(as_features(absent[None])).toarray(), 0)


def test_codes_that_are_not_known_have_no_indicator():
    strange = np.array([[0, 0, 7, 1], [0, 0, -3, 1], [0, 0, 2.5, 1], [0, 0, 1e9, 1]], np.float32)
    np.testing.assert_array_equal(coded()(as_features(strange)).toarray()[:, 4:], 0)


def test_images_and_words_hold_no_codes():
    assert choose_class_transform(as_features(TABLE)) == "coded"
    assert choose_class_transform(as_features(np.full((3, 60), 255, np.float32))) != "coded"
    assert choose_class_transform(as_features(sparse.csr_array((3, 1000)))) == "unit"


@pytest.mark.parametrize(
    "estimator",
    [
        labelfield.GPClassifier(n_inducing=30, max_epochs=10, learning_rate=0.1),
        labelfield.DeepKernelClassifier(
            hidden=(16,), learning_rate=0.02, network_epochs=8, process_epochs=3, max_epochs=3
        ),
    ],
)
def test_a_classifier_codes_by_itself_learns_from_it_and_saves_it(estimator, tmp_path):
    estimator.fit(TABLE, CLASS)
    assert estimator.row_transform_.name == "coded"
    assert np.mean(estimator.predict(TABLE) == CLASS) > 0.8
    estimator.save(tmp_path / "model")
    loaded = labelfield.load(tmp_path / "model")
    strange = TABLE[:20].copy()
    strange[:5, 2] = 99
    np.testing.assert_array_equal(loaded.predict_proba(strange), estimator.predict_proba(strange))
    assert np.isfinite(loaded.predict_proba(strange)).all()


def test_codes_help_where_the_order_misleads():
    options = {"n_inducing": 30, "max_epochs": 10, "learning_rate": 0.1}
    train, test = slice(0, 1500), slice(1500, N)
    scores = {}
    for name in ("coded", "scaled"):
        model = labelfield.GPClassifier(row_transform=name, **options).fit(TABLE[train], CLASS[train])
        scores[name] = labelfield.metrics.nlpd(CLASS[test], model.predict_proba(TABLE[test]))
    assert scores["coded"] < scores["scaled"] - 0.02


@pytest.mark.parametrize(
    "damage",
    [
        lambda codes: codes[:, ::-1],
        lambda codes: codes[:, :0],
        lambda codes: codes + np.array([[9], [0]]),
        lambda codes: codes[:1],
        lambda codes: codes.astype(np.float32),
    ],
)
def test_a_damaged_folder_is_refused(tmp_path, damage):
    from safetensors.numpy import load_file, save_file

    model = labelfield.GPClassifier(n_inducing=5, max_epochs=1).fit(TABLE, CLASS)
    model.save(tmp_path / "model")
    path = tmp_path / "model" / "arrays.safetensors"
    arrays = load_file(path)
    arrays["rows.codes"] = np.ascontiguousarray(damage(arrays["rows.codes"]))
    if arrays["rows.codes"].dtype == np.int64:
        arrays["rows.codes"] = arrays["rows.codes"].astype(np.int32)
    save_file(arrays, path)
    with pytest.raises(labelfield.models.artifact.ModelError):
        labelfield.load(tmp_path / "model")
