"""Topics of rows that come in parts: online EM, and partial_fit."""

import pickle

import numpy as np
import pytest
from topic_cases import ALGORITHMS, N_LABELS, assert_same_arrays, auc, small, tiny, wider

import labelfield
from labelfield import DataError, synth
from labelfield.inference import topics


def test_a_store_in_mapped_memory_gives_the_same(data, tmp_path):
    labelfield.write(labelfield.Dataset(data.X, data.Y), tmp_path / "store")
    mapped = labelfield.read(tmp_path / "store")
    assert isinstance(mapped.X.data, np.memmap) or isinstance(mapped.X.data.base, np.memmap)
    models = [tiny(algorithm="online_em").fit(rows.X, rows.Y) for rows in (data, mapped)]
    assert_same_arrays(*models)
    np.testing.assert_array_equal(models[1].predict_proba(mapped.X), models[0].predict_proba(data.X))


def test_no_batch_is_larger_than_asked_for(few):
    steps = []
    tiny(algorithm="online_em", batch_size=50, max_epochs=1).fit(*few, on_step=lambda run, n: steps.append(n))
    assert steps == [2, 2]


class TestPartialFit:
    def test_it_learns(self, X, Y, data):
        model, alone = small(), small()
        for _ in range(3):
            for first in range(0, 400, 100):
                model.partial_fit(X[first : first + 100], Y[first : first + 100])
        alone.partial_fit(X[:100], Y[:100])
        truth = wider(data.test.Y)
        assert auc(model, data.test.X, truth) > auc(alone, data.test.X, truth)
        assert model.n_iter_ == len(model.history_) == 12
        assert model.n_rows_ == 1200
        np.testing.assert_array_equal(model.label_counts_, 3 * Y.sum(0))
        rates = [epoch["learning_rate"] for epoch in model.history_]
        assert rates == sorted(rates, reverse=True)
        seconds = [epoch["seconds"] for epoch in model.history_]
        assert seconds == sorted(seconds)

    @pytest.mark.parametrize("algorithm", ALGORITHMS)
    @pytest.mark.parametrize("is_loaded", [False, True])
    def test_few_rows_make_it_forget_little(self, algorithm, is_loaded, models, X, Y, tmp_path):
        before = models[algorithm]
        if is_loaded:
            before.save(tmp_path / "m")
            model = labelfield.load(tmp_path / "m", device="cpu")
        else:
            model = pickle.loads(pickle.dumps(before))
        last = model.model_.V[-1].numpy().copy()
        model.partial_fit(X[:20], Y[:20])
        V = model.model_.V[0].numpy()
        assert V.shape == (N_LABELS, 5)
        np.testing.assert_allclose(V.sum(0), 1, rtol=1e-4)
        assert 0 < np.abs(V[:25] - last).sum(0).max() < 0.3
        assert model.n_rows_ == 420
        assert auc(model, X, Y) > auc(before, X, Y) - 0.04
        model.save(tmp_path / "n")
        np.testing.assert_array_equal(labelfield.load(tmp_path / "n").predict_proba(X), model.predict_proba(X))

    def test_labels_that_come_later(self, X):
        y = np.array(["b", "a"])[np.arange(400) % 2]
        model = tiny().partial_fit(X[:50], np.full(50, "b"), classes=["a", "b", "c"])
        for _ in range(3):
            model.partial_fit(X, y)
        np.testing.assert_array_equal(model.classes_, ["a", "b", "c"])
        P = model.predict_proba(X)
        assert (P[:, 2] < P[:, :2].min(1)).all()
        with pytest.raises(DataError, match="classes differ"):
            model.partial_fit(X, y, classes=["a", "b"])
        with pytest.raises(DataError, match="has the label 'd'"):
            model.partial_fit(X[:2], ["a", "d"])

    def test_lists(self, few):
        lists = [[f"l{number}" for number in np.flatnonzero(row)] for row in few[1]]
        names = [f"l{number}" for number in range(N_LABELS)]
        model = tiny().partial_fit(few[0][:40], lists[:40], classes=names).partial_fit(few[0][40:], lists[40:])
        assert model.classes_.tolist() == sorted(names)
        ragged = tiny().partial_fit(few[0], lists)
        assert ragged.label_kind_ == "lists"
        single = tiny(n_topics=2).partial_fit(few[0][:4], [["u"], ["v"], ["u"], ["w"]])
        assert single.classes_.tolist() == ["u", "v", "w"]

    def test_a_first_part_without_any_label(self, X, Y):
        model = tiny().partial_fit(X[:10], Y[:10] * 0).partial_fit(X, Y)
        assert np.isfinite(model.predict_proba(X)).all()
        for _ in range(19):
            model.partial_fit(X, Y)
        V = model.model_.V[0]
        assert float((V - V[:, :1]).abs().max()) > 0.1, "topics part"

    def test_missing_labels(self, X, Y):
        """What is not a number counts for nothing, whether or not other parts have such entries."""
        Y = Y.toarray()
        holes = Y.copy()
        holes[:, :3] = np.nan
        model = tiny()
        for part, labels in ((slice(0, 200), Y), (slice(200, 300), holes), (slice(300, 400), Y)):
            model.partial_fit(X[part], labels[part])
            np.testing.assert_allclose(model.model_.V.sum(1), 1, rtol=1e-4)
        seen = np.r_[0:200, 300:400]
        np.testing.assert_array_equal(model.label_counts_[:3], Y[seen, :3].sum(0))
        zeros = tiny()
        for part, labels in ((slice(0, 200), Y), (slice(200, 300), np.nan_to_num(holes)), (slice(300, 400), Y)):
            zeros.partial_fit(X[part], labels[part])
        means = [m.predict_proba(X)[:, :3].mean() for m in (model, zeros)]
        assert means[0] > 1.05 * means[1]  # what is missing is no zero
        first = tiny().partial_fit(X, holes)
        assert (first.label_counts_[:3] == 0).all()

    def test_a_step_that_fails_changes_nothing(self, few, monkeypatch):
        model = tiny().fit(*few)
        before = model.predict_proba(few[0])

        def fail(*_, **__):
            raise KeyboardInterrupt

        monkeypatch.setattr(topics, "em_step", fail)
        with pytest.raises(KeyboardInterrupt):
            model.partial_fit(few[0][:50], few[1][:50])
        monkeypatch.undo()
        np.testing.assert_array_equal(model.predict_proba(few[0]), before)
        assert (model.n_rows_, model.n_iter_) == (80, 4)
        with pytest.raises(ValueError, match="step_power=7"):
            model.set_params(step_power=7).partial_fit(few[0][:50], few[1][:50])
        np.testing.assert_array_equal(model.predict_proba(few[0]), before)
        model.set_params(step_power=0.6).partial_fit(*few)
        with pytest.raises(ValueError, match="99 features"):
            model.partial_fit(few[0][:, :99], few[1])
        undisturbed = tiny().fit(*few).partial_fit(*few).partial_fit(*few)
        assert_same_arrays(model.partial_fit(*few), undisturbed)

    def test_options_may_change_between_steps(self, few):
        model = tiny().fit(*few).set_params(step_power=0.9)
        rates = [model.partial_fit(*few).set_params(step_power=0.6).history_[-1]["learning_rate"] for _ in range(2)]
        assert rates == pytest.approx([6**-0.9, 7**-0.6])

    def test_its_history_is_of_all_rows(self):
        data = synth.make_topics(300, 40, 20, 4, seed=2)
        whole = tiny(n_topics=4, max_epochs=1).fit(data.X, data.Y).history_[0]["bound"]
        part = tiny(n_topics=4).partial_fit(data.X[:150], data.Y[:150]).history_[0]["bound"]
        assert part == pytest.approx(whole, rel=0.2)
