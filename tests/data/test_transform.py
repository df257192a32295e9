"""Views of rows: what they do to values, their norms, and which one the rule picks."""

import numpy as np
import pytest
from scipy import sparse

import labelfield
from labelfield import MLGPFClassifier
from labelfield.csr import as_features
from labelfield.data.transform import RowTransform, candidate_transforms, choose_transform, deskew

ROWS = np.array([[4.0, 0, -9, 0], [0, 0, 0, 0], [1, 1, 0, 0], [0, 45781, 1, 3]], np.float32)


def views(name):
    return RowTransform.fit(name, as_features(ROWS))(as_features(ROWS)).toarray()


def unit(values):
    norms = np.linalg.norm(values, axis=1, keepdims=True)
    return values / np.where(norms > 0, norms, 1)


def test_each_view():
    log = np.sign(ROWS) * np.log1p(np.abs(ROWS))
    idf = np.log(5 / (1 + (ROWS != 0).sum(0))) + 1
    for name, expected in (
        ("unit", ROWS),
        ("sqrt", np.sign(ROWS) * np.sqrt(np.abs(ROWS))),
        ("log", log),
        ("tfidf", log * idf),
    ):
        np.testing.assert_allclose(views(name), unit(expected), rtol=1e-5, atol=1e-7)
    np.testing.assert_array_equal(views("none"), ROWS)


def test_views_side_by_side():
    both = views("unit + log")
    np.testing.assert_allclose(both, np.hstack([views("unit"), views("log")]) / np.sqrt(2), rtol=1e-5, atol=1e-8)
    np.testing.assert_allclose(np.linalg.norm(both, axis=1), [1, 0, 1, 1], rtol=1e-5)
    relevance = np.arange(8, dtype=np.float32)
    assert RowTransform("unit+log").fold(relevance).tolist() == [4, 6, 8, 10]


def test_the_rule():
    assert choose_transform(as_features(ROWS)) == "unit"
    counts = np.ones((3, 40), np.float32)
    counts[:, 0] = 500
    assert choose_transform(as_features(counts)) == "sqrt"
    assert choose_transform(as_features(sparse.csr_array((3, 4)))) == "unit"


def test_scaled_by_the_deviation_over_all_rows():
    rows = np.column_stack([ROWS, np.full(4, 0.1, np.float32)])  # the last feature is the same in all rows
    deviation = rows.astype(np.float64).std(0)
    deviation[4] = 1
    scaled = RowTransform.fit("scaled", as_features(rows))
    np.testing.assert_allclose(scaled(as_features(rows)).toarray(), rows / deviation, rtol=1e-5)
    assert scaled(as_features(rows)).nnz == np.count_nonzero(rows)
    assert not scaled.has_unit_norm
    relevance = np.arange(5, dtype=np.float32)
    np.testing.assert_array_equal(scaled.fold(relevance), relevance)
    np.testing.assert_array_equal(RowTransform.fit("scaled", as_features(sparse.csr_array((3, 4)))).weights, 1)
    far = np.array([[1e7], [1e7 + 1], [1e7 + 2]], np.float32)  # the square of the mean would swallow the variance
    np.testing.assert_allclose(RowTransform.fit("scaled", as_features(far)).weights, 1.5**0.5, rtol=1e-4)


def test_deskew_takes_rows_as_square_images(monkeypatch):
    images = np.zeros((5, 6, 6), np.float32)
    images[:4, 1:4, 1] = np.arange(1, 5)[:, None]
    rows = as_features(images.reshape(5, 36))
    transform = RowTransform.fit("deskew", rows)
    expected = deskew(images / 4).reshape(5, 36)
    np.testing.assert_allclose(transform(rows).toarray(), expected, atol=1e-6)
    monkeypatch.setattr("labelfield.data.transform._BLOCK_ENTRIES", 80)
    np.testing.assert_allclose(transform(rows).toarray(), expected, atol=1e-6)
    assert transform(rows[:0]).shape == (0, 36)
    assert not transform.has_unit_norm
    assert transform.weights.shape == transform.fold(np.ones(36, np.float32)).shape == (36,)
    with pytest.raises(ValueError, match="5 is not a square number"):
        RowTransform.fit("deskew", as_features(np.ones((2, 5))))
    with pytest.raises(ValueError, match="one weight per feature"):
        RowTransform("deskew")


@pytest.mark.parametrize(
    "name", ["cube", "unit+unit", "unit+none", "", "unit+", "scaled+unit", "tfidf+scaled", "deskew+log"]
)
def test_unknown_names(name):
    with pytest.raises(ValueError, match=r"row_transform.*expected one of"):
        RowTransform(name)
    with pytest.raises(ValueError, match=r"row_transform.*expected one of"):
        RowTransform.fit(name, as_features(ROWS))


def test_candidates_can_be_fitted_and_the_first_is_the_choice():
    rng = np.random.default_rng(0)
    words = (rng.random((40, 1200)) < 0.02) * rng.integers(1, 4, (40, 1200))
    heavy = words * np.where(rng.random((40, 1200)) < 0.1, 50, 1)
    for rows, expected in (
        (words, ["unit", "sqrt", "log", "tfidf"]),
        (heavy, ["sqrt", "unit", "log", "tfidf"]),
        (words > 0, ["unit", "tfidf"]),
        (-words, ["unit", "sqrt"]),  # neither has meaning for counts below 0
        (rng.normal(size=(40, 6)), ["scaled", "unit"]),
        (np.zeros((40, 1200)), ["unit", "tfidf"]),
    ):
        X = as_features(np.asarray(rows, np.float32))
        names = candidate_transforms(X)
        assert names == expected
        for name in names:
            assert RowTransform.fit(name, X)(X).shape == X.shape


def test_a_model_keeps_its_views(tmp_path):
    data = labelfield.synth.make_multilabel(80, 30, 6, seed=0)
    model = MLGPFClassifier(row_transform="sqrt+tfidf", n_latent=2, n_inducing=5, max_epochs=2).fit(data.X, data.Y)
    assert model.n_features_in_ == 30
    assert model.spec_.n_features == 60
    assert model.feature_relevance().shape == (30,)
    model.save(tmp_path / "m")
    again = labelfield.load(tmp_path / "m", device=model.model_.b.device.type)
    np.testing.assert_array_equal(again.predict_proba(data.X), model.predict_proba(data.X))
