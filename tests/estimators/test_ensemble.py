"""Ensembles: the mean of unlike members, calibrated as one, saved and resumed as one."""

import numpy as np
import pytest
import torch
from labelfield.models.build import Spec, build

import labelfield
from labelfield import MLGPFClassifier, metrics
from labelfield.estimators.ensemble import MOST_MEMBERS, _mean, held_out_scores, members, top_k_of_mean
from labelfield.inference.trainer import Interrupted, Settings, held_out_rows
from labelfield.variational import Moments


def small(**options):
    options = {"n_latent": 8, "n_inducing": 30, "max_epochs": 6, "learning_rate": 0.05, "batch_size": 60} | options
    return MLGPFClassifier(**options)


@pytest.fixture(scope="module")
def fitted(data):
    return small(ensemble=3).fit(data.X, data.Y)


def test_members_are_unlike():
    for n_features in (100, 5000):
        first = Spec(n_features, 30, n_latent=10, n_inducing=20)
        options = members("auto", first, Settings(), n_features)
        assert len({repr(option) for option in options}) == len(options) == MOST_MEMBERS - 1
    assert members(None, first, Settings(), 100) == []


def test_what_each_member_adds_is_known(data, fitted, tmp_path):
    """On the rows that all members held out: alone, and together with those before it."""
    scores = [member.held_out_scores_ for member in (fitted, *fitted.others_)]
    assert scores[0]["alone"] == scores[0]["together"]
    held = held_out_rows(data.n_rows, fitted.settings_.held_out, 0)
    assert all(len(score["together"]) == 3 and 0 < score["alone"][0] <= 100 for score in scores)
    assert scores[2]["together"] != scores[2]["alone"]
    assert held.size == data.n_rows // 10
    fitted.save(tmp_path / "m")
    again = labelfield.load(tmp_path / "m")
    assert [member.held_out_scores_ for member in (again, *again.others_)] == scores


def test_no_member_is_trained_twice_and_choices_stay(data):
    model = small(ensemble=3, max_epochs=1, kernel="matern32_ard").fit(data.X, data.Y)
    assert len(model.others_) == 2
    made = [(m.spec_, m.row_transform_.name) for m in (model, *model.others_)]
    assert len(set(made)) == 3
    assert all(spec.kernel == "matern32_ard" for spec, _ in made)


def test_fewer_members_than_asked_for_are_said(data):
    """Where the user chose all in which members could differ."""
    chosen = {"kernel": "se_ard", "row_transform": "unit", "private": "off"}
    with pytest.warns(UserWarning, match="has 1 members, not 4"):
        model = small(ensemble=4, max_epochs=1, **chosen).fit(data.X, data.Y)
    assert model.others_ == []


def test_a_smaller_rate_goes_with_more_epochs(data):
    first = Spec(5000, 30, n_latent=10, n_inducing=20)
    longer = [options for options in members(4, first, Settings(max_epochs=9), 5000) if "learning_rate" in options]
    assert longer
    assert all(options["max_epochs"] == 18 for options in longer)
    model = MLGPFClassifier(n_latent=4, n_inducing=20, max_epochs=1, ensemble=3).fit(data.X, data.Y)
    assert {member.settings_.learning_rate for member in model.others_} == {model.settings_.learning_rate}


def test_means_of_memories_with_probabilities_of_0():
    """A probability may round to 0; the label is remembered all the same."""
    memory = {
        "labels": torch.tensor([[2, 0, 1], [1, 2, 0]]),
        "p": torch.tensor([[0.9, 0.0, 0.0], [0.5, 0.2, 0.0]]),
        "true_counts": torch.tensor([1, 1]),
        "true_labels": torch.tensor([2, 0], dtype=torch.int32),
    }
    other = {**memory, "p": torch.zeros(2, 3)}
    mean = _mean([memory, other], 3)
    np.testing.assert_allclose(mean.toarray(), [[0, 0, 0.45], [0, 0.25, 0.1]])
    assert mean.nnz == 6
    assert held_out_scores([memory, other], 3)[1]["together"][0] == 50


def test_an_older_run_is_not_in_the_way(data, tmp_path):
    path = tmp_path / "mine.safetensors"
    small(ensemble=2, max_epochs=1).fit(data.X, data.Y, checkpoint=path)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["mine-1.safetensors", "mine.safetensors"]
    small(ensemble=2, max_epochs=1, learning_rate=0.01).fit(data.X, data.Y, checkpoint=path)
    small(ensemble=2, max_epochs=1, learning_rate=0.01).fit(data.X, data.Y, checkpoint=path, resume=True)


def test_probabilities_are_the_mean_over_members(data, fitted):
    X = data.test.X
    parts = [member.predict_proba(X, calibrated=False) for member in fitted.others_]
    single = small().fit(data.X, data.Y)
    parts.append(single.predict_proba(X, calibrated=False))
    P = fitted.predict_proba(X, calibrated=False)
    np.testing.assert_allclose(P, np.mean(parts, axis=0), rtol=1e-4, atol=1e-6)
    ranked = fitted.predict_topk(X, 7, calibrated=False)
    expected = metrics.top_k(P, 7)
    np.testing.assert_array_equal(np.sort(expected.labels, axis=1), ranked.indices.reshape(-1, 7))
    calibrated = fitted.predict_topk(X, 7)
    np.testing.assert_array_equal(ranked.indices, calibrated.indices)
    rows = np.repeat(np.arange(X.shape[0]), 7)
    np.testing.assert_allclose(fitted.predict_proba(X)[rows, calibrated.indices], calibrated.data, rtol=1e-4)
    np.testing.assert_array_equal(fitted.predict(X).toarray(), fitted.predict_proba(X) >= 0.5)


def test_nothing_is_overlooked(monkeypatch):
    """Members that disagree: the best mean may be on nobody's short list."""
    monkeypatch.setattr("labelfield.estimators.ensemble._FIRST_CANDIDATES", 4)
    generator = torch.Generator().manual_seed(0)
    model = build(Spec(3, 300, n_latent=2, n_inducing=2))
    f = [
        Moments(4 * torch.randn(40, 300, generator=generator), 5 * torch.rand(40, 300, generator=generator))
        for _ in range(3)
    ]
    best, values = top_k_of_mean([model] * 3, f, 1)
    p = torch.stack([model.likelihood.predict_proba(*member) for member in f]).mean(0)
    torch.testing.assert_close(values, p.max(1, keepdim=True).values)
    torch.testing.assert_close(p.gather(1, best), values)


def test_it_is_saved_whole(data, fitted, tmp_path):
    fitted.save(tmp_path / "m")
    again = labelfield.load(tmp_path / "m", device=fitted.model_.b.device.type)
    assert [other.spec_ for other in again.others_] == [other.spec_ for other in fitted.others_]
    np.testing.assert_array_equal(again.predict_proba(data.test.X), fitted.predict_proba(data.test.X))
    np.testing.assert_array_equal(again.predict_topk(data.test.X).data, fitted.predict_topk(data.test.X).data)


@pytest.mark.parametrize("stop_after", [3, 100])
def test_an_interrupted_ensemble_resumes(stop_after, data, fitted, tmp_path, interrupt_after):
    path = tmp_path / "checkpoint.safetensors"
    with pytest.raises(Interrupted):
        small(ensemble=3).fit(data.X, data.Y, checkpoint=path, on_step=interrupt_after(stop_after))
    resumed = small(ensemble=3).fit(data.X, data.Y, checkpoint=path, resume=True)
    np.testing.assert_array_equal(resumed.predict_proba(data.test.X), fitted.predict_proba(data.test.X))


def test_wrong_numbers_of_members(data):
    for wrong in (1, 9, "many", 2.5, True):
        with pytest.raises(ValueError, match="ensemble="):
            small(ensemble=wrong).fit(data.X, data.Y)
    with pytest.raises(ValueError, match="ensemble"):
        small(ensemble=2).partial_fit(data.X, data.Y)
