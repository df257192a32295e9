"""Where a topic model could go wrong without a word: halves of steps, many labels, masks in odd forms."""

import numpy as np
import pytest
from scipy import sparse

import labelfield.estimators.topics as module
from labelfield import TopicClassifier, metrics, synth
from labelfield.linalg.rows import to_tensor


@pytest.fixture(scope="module")
def data():
    return synth.make_topics(300, 40, 20, 4, seed=2)


def small(**options):
    return TopicClassifier(**{"n_topics": 4, "max_epochs": 8, "device": "cpu", **options})


class TestPartialFit:
    def test_a_step_that_fails_changes_nothing(self, data, monkeypatch):
        model = small().fit(data.X, data.Y)
        before = model.predict_proba(data.X)

        def fail(*_, **__):
            raise KeyboardInterrupt

        monkeypatch.setattr(module, "em_step", fail)
        with pytest.raises(KeyboardInterrupt):
            model.partial_fit(data.X[:50], data.Y[:50])
        monkeypatch.undo()
        assert np.array_equal(model.predict_proba(data.X), before)
        assert (model.n_rows_, model.n_iter_) == (300, 8)
        with pytest.raises(ValueError, match="step_power=7"):
            model.set_params(step_power=7).partial_fit(data.X[:50], data.Y[:50])
        assert np.array_equal(model.predict_proba(data.X), before)

    def test_topics_part_when_the_first_rows_have_no_labels(self, data):
        model = small().partial_fit(data.X[:5], data.Y[:5] * 0)
        for _ in range(20):
            model.partial_fit(data.X, data.Y)
        V = model.model_.V[0]
        assert float((V - V[:, :1]).abs().max()) > 0.1

    def test_its_history_is_of_all_rows(self, data):
        whole = small(max_epochs=1).fit(data.X, data.Y).history_[0]["bound"]
        part = small().partial_fit(data.X[:150], data.Y[:150]).history_[0]["bound"]
        assert part == pytest.approx(whole, rel=0.2)


@pytest.mark.parametrize("n_labels", [2_000, 1_000_000])
def test_labels_that_never_hold_change_little(data, n_labels):
    """Neither what topics are, nor when EM ends."""
    wide = sparse.csr_array((data.Y.data, data.Y.indices, data.Y.indptr), shape=(300, n_labels))
    few, many = (small(max_epochs=60).fit(data.X, Y) for Y in (data.Y, wide))
    assert abs(few.n_iter_ - many.n_iter_) < 15
    placed = many.model_.labels.numpy()
    P = many.model_.predict_proba(to_tensor(many._rows(data.X)))[:, placed].numpy()
    ours, theirs = metrics.auc(data.Y, few.predict_proba(data.X)), metrics.auc(data.Y[:, placed], P)
    assert theirs > ours - 0.02
    assert float(many.model_.V[0].sum(0).min()) > 0.8, "topics are of labels that hold"


class TestMasks:
    @pytest.fixture
    def seen(self, data):
        return np.random.default_rng(0).random(data.Y.shape) < 0.6

    @pytest.mark.parametrize(
        "form",
        [
            lambda seen: seen.astype(int).tolist(),
            sparse.dok_array,
            sparse.lil_array,
            lambda seen: [np.flatnonzero(row) for row in seen],
            lambda seen: np.array([np.flatnonzero(row).tolist() for row in seen], dtype=object),
        ],
    )
    def test_forms_of_the_same_mask_agree(self, data, seen, form):
        known = small().fit(data.X, data.Y, observed=seen).predict_proba(data.X)
        assert np.array_equal(small().fit(data.X, data.Y, observed=form(seen)).predict_proba(data.X), known)

    def test_a_masked_array_hides_what_it_masks(self, data, seen):
        known = small().fit(data.X, data.Y, observed=seen).predict_proba(data.X)
        masked = np.ma.masked_array(data.Y.toarray(), mask=~seen)
        assert np.array_equal(small().fit(data.X, masked).predict_proba(data.X), known)


def test_what_names_nothing_is_refused(data):
    model = small().fit(data.X, data.Y)
    with pytest.raises(ValueError, match="topic=True; expected a number from 0 to 3"):
        model.top_features(True)
    with pytest.raises(ValueError, match="1 feature names; expected 40"):
        model.top_features(0, feature_names=["a"])
    with pytest.raises(ValueError, match="2 label names; expected 20"):
        model.topics(3, label_names=["a", "b"])
    with pytest.raises(ValueError, match="n=0; expected an integer of at least 1"):
        model.topics(0)
