"""Searches with an index, asked of classifiers: which way a search goes, what is saved, and what is refused."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from method_cases import CASES, TEST, draw_rows, fitted
from scipy import sparse
from sklearn.base import clone

import labelfield
from labelfield import CannotAnswerError
from labelfield.estimators import searching
from labelfield.models import artifact
from labelfield.models import index as index_module
from labelfield.models.artifact import ModelError
from labelfield.models.upgrade import upgraded

AUDITED = draw_rows(500, 3).X
WITH_INDEX = ("linear", "linear, trees", "mlgpf", "mlgpf, label linear", "mlgpf, hinge", "auto", "ensemble of mlgpf")


def indexed(name, tmp_path):
    """Return a copy of a classifier, so that others see no index, with its labels indexed."""
    fitted(name).save(tmp_path / "m")
    return labelfield.load(tmp_path / "m", device="cpu").index_labels(AUDITED)


def test_there_are_such_cases():
    assert set(WITH_INDEX) <= set(CASES)


@pytest.mark.parametrize("name", CASES)
def test_without_an_index_every_search_is_exact_or_refused(name):
    model = fitted(name)
    exact = model.predict_topk(TEST.X, 3, search="exact")
    assert (model.predict_topk(TEST.X, 3) != exact).nnz == 0
    with pytest.raises(CannotAnswerError, match="have no index"):
        model.predict_topk(TEST.X, 3, search="index")
    with pytest.raises(ValueError, match="search='all'"):
        model.predict_topk(TEST.X, 3, search="all")


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.has_classes])
def test_classes_have_no_index(name, tmp_path):
    fitted(name).save(tmp_path / "m")
    with pytest.raises(CannotAnswerError, match="indexed by"):
        labelfield.load(tmp_path / "m").index_labels(AUDITED)


@pytest.mark.parametrize("name", WITH_INDEX)
def test_lists_and_probabilities_are_those_of_all_labels(name, tmp_path):
    model = indexed(name, tmp_path)
    exact, found = model.predict_topk(TEST.X, 2, search="exact"), model.search_topk(TEST.X, 2)
    shared = exact.multiply(found.best > 0) - found.best.multiply(exact > 0)
    assert abs(shared).max() < 1e-6
    is_same = ~((found.best > 0) != (exact > 0)).toarray().any(1)
    assert is_same[found.is_certified].all()
    assert (model.predict_topk(TEST.X, 2, search="index") != found.best).nnz == 0


@pytest.mark.parametrize("name", WITH_INDEX)
def test_an_index_is_saved(name, tmp_path):
    model = indexed(name, tmp_path)
    model.save(tmp_path / "again")
    loaded = labelfield.load(tmp_path / "again", device="cpu")
    assert loaded.index_.describe() == model.index_.describe()
    assert (loaded.predict_topk(TEST.X, 2, search="index") != model.predict_topk(TEST.X, 2, search="index")).nnz == 0


def test_auto_uses_the_index_only_where_that_was_audited_and_pays(tmp_path, monkeypatch):
    model = indexed("linear", tmp_path)
    index = model.index_
    model.fitted_.index = replace(index, audit=replace(index.audit, k=5, n_kept=2))
    assert not model.uses_index(2, "probability", "auto")  # labels are few
    assert model.uses_index(2, "probability", "index")
    monkeypatch.setattr(index_module, "_FEWEST_LABELS", 1)
    monkeypatch.setattr(index_module, "_MOST_KEPT", 0.1)
    assert not model.uses_index(2, "probability", "auto")  # many of them are scored exactly
    monkeypatch.setattr(index_module, "_MOST_KEPT", 1)
    assert model.uses_index(5, "probability", "auto")
    assert not model.uses_index(6, "probability", "auto")
    assert not model.uses_index(5, "probability", "exact")
    with pytest.raises(CannotAnswerError, match="by probability"):
        model.predict_topk(TEST.X, 2, rank_by="propensity", search="index")
    assert not model.uses_index(2, "propensity", "auto")


def test_auto_ranks_all_labels_without_numba(tmp_path, monkeypatch):
    model = indexed("linear", tmp_path)
    monkeypatch.setattr(index_module, "_FEWEST_LABELS", 1)
    monkeypatch.setattr(index_module, "_MOST_KEPT", 1)
    exact = model.predict_topk(TEST.X, 2, search="exact")
    for module in ("estimators.searching", "models.search"):
        monkeypatch.setattr(f"labelfield.{module}.has_numba", lambda: False)
    assert (model.predict_topk(TEST.X, 2) != exact).nnz == 0
    with pytest.raises(CannotAnswerError, match="needs numba"):
        model.predict_topk(TEST.X, 2, search="index")


MACHINES = labelfield.LinearClassifier(row_transform="unit", cost=1.0, n_passes=2, calibrate=False, device="cpu")
FACTORS = labelfield.MLGPFClassifier(n_latent=2, n_inducing=4, max_epochs=2, row_transform="unit+log", device="cpu")


@pytest.mark.parametrize("model", [MACHINES, labelfield.EnsembleClassifier(estimator=FACTORS, n_members=2)])
def test_an_audit_takes_some_of_many_rows(model):
    rng = np.random.default_rng(0)
    X = sparse.random_array((4100, 40), density=0.2, rng=rng, format="csr", dtype=np.float32)
    Y = sparse.random_array((4100, 40), density=0.05, rng=rng, format="csr", dtype=np.float32)
    model = clone(model).fit(X, Y > 0)
    assert model.index_ is None  # it is made on request
    model.index_labels(X)
    assert (model.index_.audit.n_rows, model.index_.audit.target) == (4000, 0.99)  # no more are needed
    assert model.search_topk(X[:9], 3).best.nnz == 27


@pytest.mark.parametrize(("least", "share", "has_index"), [(40, 1.0, True), (40, 0.0, False), (41, 1.0, False)])
@pytest.mark.parametrize("model", [MACHINES, labelfield.EnsembleClassifier(estimator=FACTORS, n_members=2)])
def test_training_indexes_very_many_labels_where_that_pays(model, least, share, has_index, monkeypatch):
    monkeypatch.setattr(searching, "_MANY_LABELS", least)
    monkeypatch.setattr(index_module, "_FEWEST_LABELS", least)
    monkeypatch.setattr(index_module, "_MOST_KEPT", share)
    rng = np.random.default_rng(0)
    X = sparse.random_array((1200, 40), density=0.2, rng=rng, format="csr", dtype=np.float32)
    Y = sparse.random_array((1200, 40), density=0.05, rng=rng, format="csr", dtype=np.float32)
    model = clone(model).fit(X, Y > 0)
    assert (model.index_ is not None) == has_index
    assert model.uses_index(5, "probability", "auto") == has_index
    if has_index:
        assert model.index_.audit.n_rows == 1000
        assert all(member.index_ is None for member in model.members() if member is not model)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (lambda config: config["index"].update(n_kept=99), "99 labels"),
        (lambda config: config["index"].update(n_kept=-1), "whole numbers"),
        (lambda config: config["index"].update(recall=2), "between 0 and 1"),
        (lambda config: config["index"].update(other=2), "no model can be made"),
        (lambda config: config["index"].pop("recall"), "no model can be made"),
        (lambda config: config.pop("index"), "not described"),
        (lambda config: config.update(index=[]), "no model can be made"),
    ],
)
def test_an_index_from_strangers_is_refused(change, match, tmp_path):
    indexed("linear", tmp_path).save(tmp_path / "m")
    config = json.loads((tmp_path / "m" / "config.json").read_text())
    change(config)
    config["sha256"]["config.json"] = artifact._digest_of_config(config)
    (tmp_path / "m" / "config.json").write_text(json.dumps(config))
    with pytest.raises(ModelError, match=match):
        labelfield.load(tmp_path / "m")


def test_models_with_cells_load_as_if_they_had_none():
    config, arrays = {"version": 7, "method": "linear"}, {"weights": torch.zeros(3)}
    with_cells = config | {"cells": {"n_cells": 1}}, arrays | {"cells.of_label": torch.zeros(9)}
    assert upgraded(*with_cells) == (config, arrays)


def test_further_training_forgets_the_index(tmp_path):
    model = indexed("mlgpf", tmp_path)
    rows = draw_rows(40, 5)
    model.partial_fit(rows.X, rows.Y)
    assert model.index_ is None


def test_bad_arguments(tmp_path):
    fitted("linear").save(tmp_path / "m")
    model = labelfield.load(tmp_path / "m", device="cpu")
    for wrong in ({"target": 1.0}, {"confidence": 0}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            model.index_labels(AUDITED, **wrong)
    with pytest.raises(CannotAnswerError, match="at least 400"):
        model.index_labels(AUDITED[:399])
    with pytest.raises(CannotAnswerError, match="use more rows"):
        model.index_labels(AUDITED, target=0.999)
    assert model.index_ is None
