"""Ensembles over every kind of classifier: the mean of unlike members, calibrated, saved and resumed as one."""

import pickle
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from method_cases import CASES, ENSEMBLES, N_FEATURES, N_LABELS, N_TEST, TEST, TRAIN, deep, ensemble, fitted, gp, mlgpf
from scipy import sparse
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV

import labelfield
from labelfield import CannotAnswerError, DataError, EnsembleClassifier, GPClassifier, MLGPFClassifier
from labelfield.estimators.ensemble import MOST_MEMBERS
from labelfield.inference.calibrating import N_REMEMBERED, _mean, calibrate_mean, held_out_scores
from labelfield.inference.run import Settings
from labelfield.inference.signals import Interrupted
from labelfield.models.calibration import Calibration, Temperature
from labelfield.models.mlgpf.condition import condition
from labelfield.models.mlgpf.spec import Spec, build
from labelfield.models.mlgpf.topk import top_k_of_mean
from labelfield.models.predictor import calibrated_probabilities
from labelfield.variational.families import Moments

X = TEST.X
every = pytest.mark.parametrize("name", ENSEMBLES)
GAUSSIAN = [name for name, case in ENSEMBLES.items() if case.has_latent]


def raw(model):
    """The raw probabilities of labels as the model has them, whether or not rows have one class each."""
    return model.predictor_.separate_proba(model.rows(X), calibrated=False)


class TestEveryKind:
    @every
    def test_probabilities_are_the_calibrated_mean_over_members(self, name):
        model = fitted(name)
        mean = np.mean([raw(member) for member in model.members()], axis=0)
        np.testing.assert_allclose(raw(model), mean, rtol=1e-5, atol=1e-7)
        calibrated = calibrated_probabilities(model.model_.calibration, torch.from_numpy(raw(model))).numpy()
        found = model.predictor_.separate_proba(model.rows(X))
        np.testing.assert_allclose(found, calibrated, rtol=1e-5, atol=1e-7)
        assert np.abs(found - raw(model)).max() > 1e-3

    @every
    def test_members_are_unlike_and_held_out_the_same_rows(self, name):
        members = fitted(name).members()
        assert len(members) == 2
        assert not np.allclose(raw(members[0]), raw(members[1]), atol=1e-4)
        first, other = (member.settings_.held_out_rows(320) for member in members)
        assert first.size == 32
        np.testing.assert_array_equal(first, other)

    @every
    def test_the_first_member_is_the_classifier_by_itself(self, name):
        alone = clone(ENSEMBLES[name].estimator.estimator).fit(TRAIN.X, ENSEMBLES[name].labels(TRAIN))
        np.testing.assert_array_equal(fitted(name).members()[0].predict_proba(X), alone.predict_proba(X))
        assert fitted(name).method == alone.method

    @every
    def test_uncertainty_is_of_the_whole(self, name):
        model = fitted(name)
        first = model.predict_topk(X, 1).max(axis=1).toarray().ravel()
        np.testing.assert_allclose(model.predict_uncertainty(X), 1 - first, atol=1e-6)

    @every
    def test_what_each_member_adds_is_known(self, name, tmp_path):
        """On the rows that all members held out: alone, and together with those before it."""
        scores = [member.held_out_scores_ for member in fitted(name).members()]
        assert scores[0]["alone"] == scores[0]["together"]
        assert all(0 <= value <= 100 for score in scores for value in score["alone"] + score["together"])
        assert all(len(score["together"]) == 3 for score in scores)
        fitted(name).save(tmp_path / "m")
        again = labelfield.load(tmp_path / "m")
        assert [member.held_out_scores_ for member in again.members()] == scores

    @every
    def test_clones_and_options(self, name):
        model, estimator = fitted(name), ENSEMBLES[name].estimator.estimator
        copy = clone(model)
        assert not hasattr(copy, "classes_")
        assert copy.estimator is not model.estimator
        assert copy.get_params()["estimator__max_epochs"] == estimator.max_epochs
        copy.set_params(n_members=3, estimator__max_epochs=7)
        assert (copy.n_members, copy.estimator.max_epochs) == (3, 7)
        assert model.estimator.max_epochs == estimator.max_epochs
        with pytest.raises(ValueError, match="Invalid parameter 'size'"):
            copy.set_params(size=3)

    @every
    def test_the_summary_says_how_many(self, name):
        model = fitted(name)
        assert model.summary() == f"an ensemble of 2; the first: {model.members()[0].summary()}"
        assert model.n_parameters() == sum(member.n_parameters() for member in model.members())


class TestTheWhole:
    """Against what each member says."""

    @pytest.mark.parametrize("name", GAUSSIAN)
    def test_latent_moments_are_those_of_the_mixture(self, name):
        model = fitted(name)
        found, parts = model.predict_latent(X), [member.predict_latent(X) for member in model.members()]
        means, squares = (
            np.mean(part, axis=0)
            for part in ([one.f_mean for one in parts], [one.f_var + one.f_mean.astype(float) ** 2 for one in parts])
        )
        np.testing.assert_allclose(found.f_mean, means, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(found.f_var, squares - means.astype(float) ** 2, rtol=1e-4, atol=1e-5)
        assert found.h_mean is found.h_var is None  # the processes of members are not the same ones

    def test_known_labels_condition_every_member(self):
        model = fitted("ensemble of mlgpf")
        known = sparse.csr_array(np.resize([[1.0, 0, 0, -1, 0], [0, 1, 0, 0, 0], [0] * 5], (N_TEST, N_LABELS)))
        parts = []
        for member in model.members():
            rows = torch.from_numpy(member.rows(X).toarray())
            with torch.no_grad():
                h = member.model_.latent(rows, member.model_.inducing_state())[0]
                given = torch.from_numpy(known.toarray().astype(np.float32)).to_sparse_csr()
                f = member.model_.utilities(condition(member.model_, h, rows, given), rows)
                parts.append(member.model_.likelihood.predict_proba(*f))
        P = calibrated_probabilities(model.model_.calibration, torch.stack(parts).mean(0)).numpy()
        P[known.toarray() != 0] = -1
        for k in (1, 3):
            found = model.condition(X, known, k)
            assert np.diff(found.indptr).tolist() == [k] * N_TEST
            best = np.argsort(-P, axis=1)[:, :k]
            expected = np.zeros_like(P)
            np.put_along_axis(expected, best, np.take_along_axis(P, best, 1), 1)
            np.testing.assert_allclose(found.toarray(), expected, rtol=1e-3, atol=1e-6)
        nothing = model.condition(X, sparse.csr_array((N_TEST, N_LABELS)), 3)
        np.testing.assert_allclose(nothing.toarray(), model.predict_topk(X, 3).toarray(), rtol=1e-4)

    def test_only_mlgpf_takes_up_known_labels(self):
        known = sparse.csr_array((N_TEST, N_LABELS))
        with pytest.raises(CannotAnswerError, match=r"only factor models .mlgpf. can use known labels"):
            fitted("ensemble of topics").condition(X, known)
        model = fitted("ensemble of mlgpf")
        for wrong, message in ((known[:3], "observed has shape"), (7 * sparse.csr_array(TEST.Y), "values other than")):
            with pytest.raises(DataError, match=message):
                model.condition(X, wrong)
        with pytest.raises(ValueError, match="k=0; expected an integer"):
            model.condition(X, known, 0)

    def test_what_members_learned_is_put_together(self):
        model = fitted("ensemble of mlgpf")
        relevance = np.mean([member.feature_relevance() for member in model.members()], axis=0)
        np.testing.assert_allclose(model.feature_relevance(), relevance, rtol=1e-5)
        loadings = model.predictor_.loadings()
        assert loadings.shape == (N_LABELS, sum(member.spec_.n_latent for member in model.members()))
        mixed = ensemble(mlgpf(kernel="se"), n_members=2).fit(TRAIN.X, TRAIN.Y)
        assert mixed.feature_relevance() is None

    def test_the_threshold_is_that_of_the_estimator(self):
        model = pickle.loads(pickle.dumps(fitted("ensemble of mlgpf")))
        model.set_params(estimator__threshold=0.2)
        np.testing.assert_array_equal(model.predict(X).toarray(), model.predict_proba(X) >= 0.2)

    def test_blocks_change_nothing(self, monkeypatch):
        names = ("ensemble of mlgpf", "ensemble of one_vs_each")
        whole = [(m.predict_proba(X), m.predict_topk(X, 3), m.predict_interval(X)) for m in map(fitted, names)]
        monkeypatch.setattr("labelfield.models.ensemble._MOST_ROWS", 7)
        for name, (P, top, ends) in zip(names, whole, strict=True):
            np.testing.assert_allclose(fitted(name).predict_proba(X), P, rtol=1e-5, atol=1e-6)
            np.testing.assert_allclose(fitted(name).predict_topk(X, 3).toarray(), top.toarray(), rtol=1e-5, atol=1e-6)
            np.testing.assert_allclose(fitted(name).predict_interval(X), ends, rtol=1e-4, atol=1e-5)


def test_searches_reach_into_the_estimator():
    search = GridSearchCV(ensemble(gp(max_epochs=1)), {"estimator__n_inducing": [2, 3]}, cv=2)
    search.fit(TRAIN.X, TRAIN.y)
    assert search.best_estimator_.members()[0].spec_.n_inducing in (2, 3)


class TestMembers:
    @pytest.mark.parametrize(("n_features", "of_text"), [(20, False), (5000, True)])
    def test_they_are_unlike(self, n_features, of_text):
        rows = sparse.random(30, n_features, 0.02, format="csr", rng=0, dtype=np.float32)
        first = mlgpf(max_epochs=9)
        first.prepare(rows, np.eye(3, dtype=int)[np.arange(30) % 3])
        options = first.blueprint.variants(first.fitted_, MOST_MEMBERS)
        assert len({repr(option) for option in options}) == len(options) == MOST_MEMBERS - 1
        longer = [option for option in options if "learning_rate" in option]
        assert bool(longer) == of_text
        assert all(option["max_epochs"] == 18 for option in longer)

    def test_other_kinds_differ_in_their_seeds(self):
        model = ensemble(gp(max_epochs=1, random_state=5), n_members="auto").fit(X, TEST.y)
        assert [member.settings_.seed for member in model.members()] == [5, 6, 7, 8]
        assert {member.settings_.held_out_seed for member in model.members()} == {None, 5}

    def test_none_is_trained_twice_and_choices_stay(self):
        model = ensemble(mlgpf(max_epochs=1, kernel="matern32_ard"), n_members=3).fit(TRAIN.X, TRAIN.Y)
        made = [(member.spec_, member.row_transform_.name) for member in model.members()]
        assert len(set(made)) == 3
        assert all(spec.kernel == "matern32_ard" for spec, _ in made)

    def test_fewer_than_asked_for_are_said(self, tmp_path):
        """Where the user chose everything in which members could differ."""
        chosen = {"kernel": "se_ard", "row_transform": "unit", "label_linear": "off"}
        with pytest.warns(UserWarning, match="has 1 members, not 4"):
            model = ensemble(mlgpf(max_epochs=1, **chosen), n_members=4).fit(TRAIN.X, TRAIN.Y)
        assert len(model.members()) == 1
        model.save(tmp_path / "m")
        np.testing.assert_array_equal(labelfield.load(tmp_path / "m").predict_proba(X), model.predict_proba(X))

    def test_a_smaller_rate_goes_with_more_epochs(self):
        model = ensemble(mlgpf(max_epochs=1, learning_rate=None), n_members=3).fit(TRAIN.X, TRAIN.Y)
        assert len({member.settings_.learning_rate for member in model.members()}) == 1

    def test_time_is_shared_by_those_that_wait_for_each_other(self, monkeypatch, tmp_path):
        for n_threads, share in ((1, 4.0), (2, 8.0)):
            monkeypatch.setattr("torch.get_num_threads", lambda n=n_threads: n)
            model = ensemble(gp(max_epochs=1, time_budget=16), n_members=4).set_params(estimator__device="cpu")
            model.prepare(X, TEST.y)
            assert {member.settings_.time_budget for member in model.members()} == {share}
        model.save(tmp_path / "m")
        assert labelfield.load(tmp_path / "m").estimator.time_budget == 16

    @pytest.mark.parametrize("wrong", [1, 9, "many", 2.5, True, None])
    def test_wrong_numbers(self, wrong):
        with pytest.raises(ValueError, match="n_members="):
            ensemble(gp(), n_members=wrong).fit(X, TEST.y)

    @pytest.mark.parametrize("wrong", [LogisticRegression(), GPClassifier, "mlgpf", EnsembleClassifier()])
    def test_what_is_no_classifier_is_named(self, wrong):
        with pytest.raises(
            ValueError, match=r"estimator=.*; expected a classifier of labelfield other than an ensemble"
        ):
            EnsembleClassifier(estimator=wrong).fit(X, TEST.y)

    def test_wrong_options_are_those_of_the_estimator(self):
        with pytest.raises(ValueError, match="likelihood='bernoulli'; expected one of"):
            ensemble(gp(likelihood="bernoulli")).fit(X, TEST.y)

    def test_mlgpf_is_the_default(self):
        model = EnsembleClassifier()
        assert model.method == "mlgpf"
        assert model.device == MLGPFClassifier().device
        data = model.prepare(X, TEST.Y)
        assert [type(member) for member in model.members()] == [MLGPFClassifier] * 4
        assert data.n_rows == N_TEST

    def test_networks_of_your_own(self, tmp_path):
        torch.manual_seed(0)
        network = torch.nn.Sequential(torch.nn.Linear(N_FEATURES, N_LABELS), torch.nn.Tanh())
        model = ensemble(deep(network=network, hidden=None, max_epochs=1)).fit(TRAIN.X, TRAIN.y)
        model.save(tmp_path / "m")
        with pytest.raises(labelfield.LabelfieldError, match="a network of your own"):
            labelfield.load(tmp_path / "m")
        again = labelfield.load(tmp_path / "m", network=network)
        np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))
        fitted("ensemble of mlgpf").save(tmp_path / "other")
        with pytest.raises(labelfield.LabelfieldError, match="which has no network"):
            labelfield.load(tmp_path / "other", network=network)


class TestMemories:
    """What members remember of the rows that were held out, from which their mean is calibrated."""

    MEMORY = SimpleNamespace(
        labels=[[2, 0, 1], [1, 2, 0]], p=[[0.9, 0.0, 0.0], [0.5, 0.2, 0.0]], true_counts=[1, 1], true_labels=[2, 0]
    )

    def memory(self, **others):
        values = {name: torch.tensor(value) for name, value in (vars(self.MEMORY) | others).items()}
        return values | {"true_labels": values["true_labels"].int()}

    def test_a_probability_of_0_is_remembered_all_the_same(self):
        memories = [self.memory(), self.memory(p=np.zeros((2, 3)).tolist())]
        mean = _mean(memories, 3)
        np.testing.assert_allclose(mean.toarray(), [[0, 0, 0.45], [0, 0.25, 0.1]])
        assert mean.nnz == 6
        assert held_out_scores(memories, 3)[1]["together"][0] == 50

    def test_without_held_out_rows_there_is_nothing_to_learn(self):
        model = ensemble(gp(max_epochs=1)).fit(X, TEST.y)
        assert float(model.model_.calibration.power) == 1
        assert [member.held_out_scores_ for member in model.members()] == [{}, {}]

    def test_labels_that_were_not_observed_count_for_nothing(self):
        rng = np.random.default_rng(0)
        ranked = np.argsort(rng.random((200, 6)), axis=1)
        p = -np.sort(-rng.random((200, 6)).astype(np.float32), axis=1)
        known, holds = rng.random((200, 6)) < 0.5, rng.random((200, 6)) < p

        def learn(is_true, **mask):
            Y = sparse.csr_array(np.take_along_axis(is_true, ranked.argsort(1), axis=1))
            truth = {"true_counts": np.diff(Y.indptr).tolist(), "true_labels": Y.indices.tolist()}
            memory = self.memory(labels=ranked.tolist(), p=p.tolist(), **truth, **mask)
            calibrate_mean(calibration := Calibration(), [memory, memory], 6)
            return calibration(torch.from_numpy(p), torch.arange(6)).detach().numpy(), held_out_scores([memory], 6)[0]

        (a, scores), (b, others) = (learn(np.where(known, holds, v), is_known=known.tolist()) for v in (False, True))
        np.testing.assert_array_equal(a, b)
        assert scores == others
        first = np.where(known.any(1), holds[np.arange(200), known.argmax(1)], False)
        assert scores["alone"][0] == pytest.approx(100 * first.mean())
        assert np.abs(a - p).mean() < 0.1
        assert learn(np.where(known, holds, False))[0].mean() < 0.7 * a.mean()

    def test_classes_that_no_member_remembers_are_not_impossible(self):
        """Of 200 classes, all as likely as any other, probabilities are as they should be: no power is needed."""
        rng, n_rows, n_classes = np.random.default_rng(0), 400, 200
        labels = np.argsort(rng.random((n_rows, n_classes)), axis=1)[:, :N_REMEMBERED]
        memory = self.memory(
            labels=labels.tolist(),
            p=np.full((n_rows, N_REMEMBERED), 1 / n_classes).tolist(),
            true_counts=[1] * n_rows,
            true_labels=rng.integers(n_classes, size=n_rows).tolist(),
        )
        memory["p"][:, 0] = 0.05
        memory["true_labels"][:20] = memory["labels"][:20, 0].int()
        calibration = Temperature()
        calibrate_mean(calibration, [memory, memory], n_classes)
        assert 0.8 < float(calibration.power) < 1.25


def test_nothing_is_overlooked(monkeypatch):
    """Members that disagree: the best mean may be on no member's short list."""
    monkeypatch.setattr("labelfield.models.mlgpf.topk._FIRST_CANDIDATES", 4)
    generator = torch.Generator().manual_seed(0)
    model = build(Spec(3, 120, n_latent=2, n_inducing=2))
    f = [
        Moments(4 * torch.randn(15, 120, generator=generator), 5 * torch.rand(15, 120, generator=generator))
        for _ in range(3)
    ]
    best, values = top_k_of_mean([model] * 3, f, 1)
    p = torch.stack([model.likelihood.predict_proba(*member) for member in f]).mean(0)
    torch.testing.assert_close(values, p.max(1, keepdim=True).values)
    torch.testing.assert_close(p.gather(1, best), values)


class TestCheckpoints:
    def test_an_older_run_is_not_in_the_way(self, tmp_path):
        path = tmp_path / "mine.safetensors"
        model = ensemble(mlgpf(max_epochs=1))
        model.fit(X, TEST.Y, checkpoint=path)
        assert sorted(file.name for file in tmp_path.iterdir()) == ["mine-1.safetensors", "mine.safetensors"]
        other = clone(model).set_params(estimator__learning_rate=0.01)
        other.fit(X, TEST.Y, checkpoint=path)
        other.fit(X, TEST.Y, checkpoint=path, resume=True)

    @pytest.mark.parametrize(("name", "stop_after"), [("mlgpf", 1), ("mlgpf", 5), ("one_vs_each", 20), ("topics", 8)])
    def test_an_interrupted_ensemble_resumes(self, name, stop_after, tmp_path, interrupt_after):
        name, path = f"ensemble of {name}", tmp_path / "checkpoint.safetensors"
        model, labels = clone(CASES[name].estimator), CASES[name].labels(TRAIN)
        with pytest.raises(Interrupted):
            model.fit(TRAIN.X, labels, checkpoint=path, on_step=interrupt_after(stop_after))
        resumed = clone(model).fit(TRAIN.X, labels, checkpoint=path, resume=True)
        np.testing.assert_array_equal(resumed.predict_proba(X), fitted(name).predict_proba(X))
        assert [m.held_out_scores_ for m in resumed.members()] == [m.held_out_scores_ for m in fitted(name).members()]

    def test_members_have_settings_of_their_own(self):
        assert Settings(seed=3, held_out=4, held_out_seed=1).held_out_rows(40).tolist() == (
            Settings(seed=1, held_out=4).held_out_rows(40).tolist()
        )
