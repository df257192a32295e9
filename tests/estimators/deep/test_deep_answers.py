"""What a fitted deep kernel classifier answers, alone and among other estimators."""

from unittest.mock import patch

import numpy as np
import pytest
import torch
from deep_cases import ALONE, WORDS, Own, arrays, assert_same_arrays, small, tiny
from scipy import sparse
from scipy.special import expit
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import labelfield
from labelfield import DataError, synth


class TestAnswers:
    def test_the_many_ways_to_predict_agree(self, rings, fitted):
        X = rings.test.X
        P, raw = (fitted.predict_proba(X, calibrated=c) for c in (True, False))
        np.testing.assert_allclose(P.sum(1), 1, rtol=1e-5)
        assert fitted.classes_.tolist() == WORDS.tolist()
        np.testing.assert_array_equal(fitted.predict(X), WORDS[P.argmax(1)])
        lists = fitted.predict_topk(X, 2)
        assert np.diff(lists.indptr).tolist() == [2] * 100
        np.testing.assert_array_equal(lists.max(1).toarray().ravel(), P.max(1))
        np.testing.assert_array_equal(fitted.predict_topk(X, 99).toarray(), P)
        np.testing.assert_array_equal(fitted.predict_topk(X, 99, calibrated=False).toarray(), raw)
        np.testing.assert_allclose(np.exp(fitted.decision_function(X)), raw, rtol=1e-4, atol=1e-30)

    def test_several_labels(self, data, several):
        X = data.test.X
        P, raw = (several.predict_proba(X, calibrated=c) for c in (True, False))
        assert ((P >= 0) & (P <= 1)).all()
        np.testing.assert_array_equal(several.predict(X).toarray(), P >= 0.5)
        assert 0 < several.predict(X).nnz < P.size
        with patch.object(several, "threshold", 0.2):
            np.testing.assert_array_equal(several.predict(X).toarray(), P >= 0.2)
        best = several.predict(X, k=3)
        assert best.sum(1).tolist() == [3] * data.test.n_rows
        np.testing.assert_array_equal(best.toarray() > 0, several.predict_topk(X, 3).toarray() > 0)
        assert (np.where(best.toarray(), P, 1).min(1) >= np.where(best.toarray(), 0, P).max(1)).all()
        np.testing.assert_allclose(expit(several.decision_function(X)), raw, rtol=1e-3, atol=1e-6)
        np.testing.assert_array_equal(several.predict_topk(X, 99).toarray(), P)

    def test_calibration_keeps_the_ranking(self, rings, fitted, data, several):
        for model, X in ((fitted, rings.test.X), (several, data.test.X)):
            assert model.settings_.held_out == model.n_rows_ // 10
            raw, P = (model.predict_proba(X, calibrated=c) for c in (False, True))
            assert not np.array_equal(raw, P)
            lists = [model.predict_topk(X, 5, calibrated=c) for c in (False, True)]
            np.testing.assert_array_equal(*(np.sort(found.indices.reshape(len(P), -1), 1) for found in lists))

    def test_without_calibration_probabilities_are_raw(self, rings):
        model = small(calibrate=False, network_epochs=2).fit(rings.X, rings.Y.indices)
        assert model.settings_.held_out == 0
        raw, P = (model.predict_proba(rings.test.X, calibrated=c) for c in (False, True))
        np.testing.assert_allclose(raw, P, rtol=1e-5, atol=1e-7)

    def test_latent(self, rings, fitted):
        latent = fitted.predict_latent(rings.test.X)
        assert latent.h_mean.shape == latent.h_var.shape == latent.f_mean.shape == latent.f_var.shape == (100, 3)
        assert (latent.h_var > 0).all()
        A, b = (getattr(fitted.model_, name).detach().numpy() for name in "Ab")
        np.testing.assert_allclose(latent.f_mean, latent.h_mean @ A.T + b, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(latent.f_var, latent.h_var @ np.square(A).T, rtol=1e-4)
        raw = fitted.predict_proba(rings.test.X, calibrated=False)
        is_sure = raw.max(1) > 0.9
        assert is_sure.sum() > 50
        np.testing.assert_array_equal(latent.f_mean.argmax(1)[is_sure], raw.argmax(1)[is_sure])

    def test_uncertainty(self, rings, fitted):
        U = fitted.predict_uncertainty(rings.test.X)
        assert U.shape == (100,)
        assert ((U >= 0) & (U <= 1)).all()
        p = fitted.predict_proba(rings.test.X).max(1)
        assert (1 - p <= U + 1e-6).all()
        # On the border of two rings it knows less than on a ring.
        angle = np.linspace(0, 6, 40)
        radii = np.linalg.norm(rings.X.toarray(), axis=1)
        border = (np.median(radii[rings.Y.indices == 0]) + np.median(radii[rings.Y.indices == 1])) / 2
        between = border * np.c_[np.cos(angle), np.sin(angle)]
        assert fitted.predict_uncertainty(between).mean() > 2 * U.mean()

    def test_the_bound(self, rings, fitted):
        y = WORDS[rings.Y.indices]
        bound = fitted.bound(rings.X, y)
        assert bound["bound"] == pytest.approx(bound["fit"] - bound["kl"])
        assert bound["fit"] < 0 < bound["kl"]
        assert bound == fitted.bound(rings.X, y.tolist())
        assert bound["bound"] > tiny().fit(rings.X, y).bound(rings.X, y)["bound"]

    def test_features(self, rings, fitted):
        h = fitted.transform(rings.test.X)
        assert h.shape == (100, 3)
        rows = torch.from_numpy(fitted.row_transform_(rings.test.X).toarray())
        with torch.no_grad():
            np.testing.assert_allclose(h, fitted.model_.features.network.eval()(rows), rtol=1e-5, atol=1e-6)

    @pytest.mark.parametrize(("name", "size"), [("_MOST_ROWS", 7), ("BLOCK_ENTRIES", 90)])
    def test_blocks_change_nothing(self, name, size, rings, fitted, data, several, monkeypatch):
        few = data.test.take(slice(30))
        cases = (fitted, rings.test.X[:40]), (several, few.X)
        asked = ("predict_proba", "baseline_proba", "transform", "predict_uncertainty", "decision_function")
        whole = [{ask: getattr(model, ask)(X) for ask in asked} for model, X in cases]
        lists = [model.predict_topk(X, 3) for model, X in cases]
        latent = [model.predict_latent(X) for model, X in cases]
        bound = several.bound(few.X, few.Y)
        monkeypatch.setattr(f"labelfield.models.deep.predict.{name}", size)
        assert len(list(fitted.predictor_.probabilities(fitted.rows(cases[0][1])))) > 1
        for (model, X), once, best, f in zip(cases, whole, lists, latent, strict=True):
            for ask, expected in once.items():
                np.testing.assert_allclose(getattr(model, ask)(X), expected, rtol=1e-4, atol=1e-5, err_msg=ask)
            np.testing.assert_allclose(model.predict_topk(X, 3).toarray(), best.toarray(), rtol=1e-4, atol=1e-5)
            for part, expected in zip(model.predict_latent(X), f, strict=True):
                np.testing.assert_allclose(part, expected, rtol=1e-4, atol=1e-4)
        assert several.bound(few.X, few.Y) == pytest.approx(bound, rel=1e-5)

    def test_dense_and_sparse_rows_agree(self, rings, fitted):
        X = rings.test.X
        for other in (X.toarray(), X.toarray().astype(np.float64), sparse.csc_matrix(X), sparse.coo_array(X)):
            np.testing.assert_allclose(fitted.predict_proba(other), fitted.predict_proba(X), rtol=1e-5, atol=1e-6)

    @pytest.mark.parametrize("names", [["b", "a", "c"], [100, 3, 7], [1, -1], [True, False], [2.0, 1.0]])
    def test_whatever_classes_are_called(self, names, tmp_path):
        names = np.array(names)
        rows = synth.make_rings(120, len(names), noise=0.05, seed=3)
        y = names[rows.Y.indices]
        model = small(network_epochs=15, process_epochs=1, max_epochs=1, batch_size=30).fit(rows.X, y)
        assert model.classes_.tolist() == sorted(names.tolist())
        assert model.score(rows.X, y) > 0.6
        model.save(tmp_path / "m")
        again = labelfield.load(tmp_path / "m", device="cpu")
        assert again.predict(rows.X).tolist() == model.predict(rows.X).tolist()
        scores = model.decision_function(rows.X)
        assert scores.shape == ((120,) if len(names) == 2 else (120, 3))
        if len(names) == 2:
            raw = model.predict_proba(rows.X, calibrated=False)
            np.testing.assert_array_equal(scores > 0, raw[:, 1] > raw[:, 0])


class TestWithScikitLearn:
    def test_clone_and_parameters(self, few):
        network = Own()
        model = tiny(network=network, subsets=[[0, 1], [1, 2]], grid_size=6)
        other = clone(model)
        assert other.get_params().keys() == model.get_params().keys()
        assert other.get_params()["grid_size"] == 6
        assert isinstance(other.network, Own)
        assert other.network is not network
        np.testing.assert_array_equal(
            other.fit(few.X, few.Y.indices).predict_proba(few.X), model.fit(few.X, few.Y.indices).predict_proba(few.X)
        )
        assert "Own" in repr(model)
        assert other.set_params(network="mlp", hidden=(4,), subsets=None).fit(few.X, few.Y.indices).spec_.network.hidden
        assert clone(other).hidden == (4,)

    def test_in_a_pipeline_and_across_folds(self, rings):
        X, y = rings.X.toarray(), WORDS[rings.Y.indices]
        model = small(network_epochs=40, process_epochs=1, max_epochs=1)
        pipeline = make_pipeline(StandardScaler(), model).fit(X, y)
        assert pipeline.score(rings.test.X.toarray(), WORDS[rings.test.Y.indices]) > 0.9
        assert cross_val_score(model, X, y, cv=2).mean() > 0.85

    def test_its_features_go_to_another_model(self, rings):
        """Rings are apart for a linear model that sees them as the network does."""
        X, y = rings.X.toarray(), WORDS[rings.Y.indices]
        np.testing.assert_array_equal(tiny().fit_transform(X, y), tiny().fit(X, y).transform(X))
        pipeline = make_pipeline(small(process_epochs=0), LogisticRegression()).fit(X, y)
        assert pipeline.score(rings.test.X.toarray(), WORDS[rings.test.Y.indices]) > 0.9

    def test_fitting_twice_is_like_fitting_once(self, few, data):
        model = tiny().fit(data.X, data.Y)
        model.fit(few.X, WORDS[few.Y.indices])
        other = tiny().fit(few.X, WORDS[few.Y.indices])
        assert_same_arrays(arrays(model), arrays(other))
        assert model.label_kind_ == "classes"
        assert model.n_iter_ == 3
        np.testing.assert_array_equal(model.predict(few.X), other.predict(few.X))

    def test_validation(self, rings):
        X, y = rings.X, WORDS[rings.Y.indices]
        validation = (rings.test.X, WORDS[rings.test.Y.indices])
        epochs = {"network_epochs": 12, "process_epochs": 2, "max_epochs": 2, "calibrate": False}
        model = small(**epochs).fit(X, y, validation=validation)
        scores = [epoch["scores"]["P@1"] for epoch in model.history_]
        assert scores[-1] == pytest.approx(100 * model.score(*validation))
        # While the network trains alone, it is the network that is scored.
        alone = small(**epochs | ALONE).fit(X, y, validation=validation)
        assert scores[:12] == [epoch["scores"]["P@1"] for epoch in alone.history_]
        plain = 100 * np.mean(WORDS[model.baseline_proba(validation[0]).argmax(1)] == validation[1])
        assert scores[11] == pytest.approx(plain)
        with pytest.raises(DataError, match="the label 'fox'; expected labels of the first fit"):
            tiny().fit(X, y, validation=(X[:2], ["cat", "fox"]))

    def test_scores_leave_the_training_alone(self, few):
        y = few.Y.indices
        watched = tiny(dropout=0.5).fit(few.X, y, validation=(few.X, y))
        assert_same_arrays(arrays(watched), arrays(tiny(dropout=0.5).fit(few.X, y)))
