"""Searches in cells, asked of classifiers: which way a search goes, what is saved, and what is refused."""

import json
from dataclasses import replace

import numpy as np
import pytest
from method_cases import CASES, TEST, draw_rows, fitted
from scipy import sparse
from sklearn.base import clone

import labelfield
from labelfield import CannotAnswerError
from labelfield.models import artifact
from labelfield.models.artifact import ModelError

AUDITED = draw_rows(500, 3).X
WITH_CELLS = ("linear", "linear, trees", "mlgpf", "mlgpf, label linear", "mlgpf, hinge", "auto", "ensemble of mlgpf")


def in_cells(name, tmp_path):
    """Return a copy of a classifier, so that others see no cells, with its labels in cells."""
    fitted(name).save(tmp_path / "m")
    return labelfield.load(tmp_path / "m", device="cpu").put_in_cells(AUDITED, n_cells=3)


def test_there_are_such_cases():
    assert set(WITH_CELLS) <= set(CASES)


@pytest.mark.parametrize("name", CASES)
def test_without_cells_every_search_is_exact_or_refused(name):
    model = fitted(name)
    exact = model.predict_topk(TEST.X, 3, search="exact")
    assert (model.predict_topk(TEST.X, 3) != exact).nnz == 0
    with pytest.raises(CannotAnswerError, match="not in cells"):
        model.predict_topk(TEST.X, 3, search="cells")
    with pytest.raises(ValueError, match="search='all'"):
        model.predict_topk(TEST.X, 3, search="all")


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.has_classes])
def test_classes_have_no_cells(name, tmp_path):
    fitted(name).save(tmp_path / "m")
    with pytest.raises(CannotAnswerError, match="searched in cells by"):
        labelfield.load(tmp_path / "m").put_in_cells(AUDITED)


@pytest.mark.parametrize("name", WITH_CELLS)
def test_lists_and_probabilities_are_those_of_all_labels(name, tmp_path):
    model = in_cells(name, tmp_path)
    exact, found = model.predict_topk(TEST.X, 2, search="exact"), model.search_topk(TEST.X, 2)
    shared = exact.multiply(found.best > 0) - found.best.multiply(exact > 0)
    assert abs(shared).max() < 1e-6
    is_same = ~((found.best > 0) != (exact > 0)).toarray().any(1)
    assert is_same[found.is_certified].all()
    assert (model.predict_topk(TEST.X, 2, search="cells") != found.best).nnz == 0


@pytest.mark.parametrize("name", WITH_CELLS)
def test_cells_are_saved(name, tmp_path):
    model = in_cells(name, tmp_path)
    model.save(tmp_path / "again")
    loaded = labelfield.load(tmp_path / "again", device="cpu")
    assert loaded.cells_.describe() == model.cells_.describe()
    assert (loaded.predict_topk(TEST.X, 2, search="cells") != model.predict_topk(TEST.X, 2, search="cells")).nnz == 0


def test_auto_searches_in_cells_only_where_that_was_audited_and_pays(tmp_path):
    model = in_cells("linear", tmp_path)
    cells = model.cells_
    assert not model.searches_cells(2, "probability", "auto")  # three cells are too few to pay
    assert model.searches_cells(2, "probability", "cells")
    model.fitted_.cells = replace(cells, n_cells=100, audit=replace(cells.audit, n_visits=3))
    assert model.searches_cells(5, "probability", "auto")
    assert not model.searches_cells(6, "probability", "auto")
    assert not model.searches_cells(5, "probability", "exact")
    with pytest.raises(CannotAnswerError, match="by probability"):
        model.predict_topk(TEST.X, 2, rank_by="propensity", search="cells")
    assert not model.searches_cells(2, "propensity", "auto")


MACHINES = labelfield.LinearClassifier(row_transform="unit", cost=1.0, n_passes=2, calibrate=False, device="cpu")
FACTORS = labelfield.MLGPFClassifier(n_latent=2, n_inducing=4, max_epochs=2, row_transform="unit+log", device="cpu")


@pytest.mark.parametrize("model", [MACHINES, labelfield.EnsembleClassifier(estimator=FACTORS, n_members=2)])
def test_an_audit_takes_some_of_many_rows(model):
    rng = np.random.default_rng(0)
    X = sparse.random_array((4100, 40), density=0.2, rng=rng, format="csr", dtype=np.float32)
    Y = sparse.random_array((4100, 40), density=0.05, rng=rng, format="csr", dtype=np.float32)
    model = clone(model).fit(X, Y > 0)
    assert model.cells_ is None  # they are made on request
    model.put_in_cells(X)
    assert (model.cells_.audit.n_rows, model.cells_.audit.target) == (4000, 0.99)  # no more are needed
    assert model.search_topk(X[:9], 3).best.nnz == 27


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (lambda config: config["cells"].update(n_cells=99), "99 cells"),
        (lambda config: config["cells"]["audit"].update(n_visits=-1), "whole numbers"),
        (lambda config: config["cells"]["audit"].update(recall=2), "between 0 and 1"),
        (lambda config: config["cells"]["audit"].update(other=2), "no model can be made"),
        (lambda config: config["cells"].pop("audit"), "audit"),
        (lambda config: config.pop("cells"), "not described"),
        (lambda config: config.update(cells=[]), "no model can be made"),
    ],
)
def test_cells_from_strangers_are_refused(change, match, tmp_path):
    in_cells("linear", tmp_path).save(tmp_path / "m")
    config = json.loads((tmp_path / "m" / "config.json").read_text())
    change(config)
    config["sha256"]["config.json"] = artifact._digest_of_config(config)
    (tmp_path / "m" / "config.json").write_text(json.dumps(config))
    with pytest.raises(ModelError, match=match):
        labelfield.load(tmp_path / "m")


def test_further_training_forgets_cells(tmp_path):
    model = in_cells("mlgpf", tmp_path)
    rows = draw_rows(40, 5)
    model.partial_fit(rows.X, rows.Y)
    assert model.cells_ is None


def test_bad_arguments(tmp_path):
    fitted("linear").save(tmp_path / "m")
    model = labelfield.load(tmp_path / "m", device="cpu")
    for wrong in ({"target": 1.0}, {"confidence": 0}, {"n_cells": 0}, {"n_cells": 6}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            model.put_in_cells(AUDITED, **wrong)
    with pytest.raises(CannotAnswerError, match="at least 400"):
        model.put_in_cells(AUDITED[:399])
    with pytest.raises(CannotAnswerError, match="use more rows"):
        model.put_in_cells(AUDITED, target=0.999)
    assert model.cells_ is None
