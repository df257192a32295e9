"""The rows that are shown, and what is predicted for them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from labelfield.decide import Evidence
from labelfield.report.examples import choose_rows, examples
from labelfield.report.predictions import predict_rows


@given(st.integers(0, 40), st.integers(1, 60))
def test_kinds_are_right(made_up, seed, n):
    predictions, _, _ = made_up.labels(seed, n=n)
    chosen = choose_rows(predictions)
    rows = [row for row, _ in chosen]
    assert len(rows) == len(set(rows)) == min(10, n)
    for row, kind in chosen:
        assert kind.endswith("wrong") == predictions.is_wrong[row]


def test_the_surest_and_the_least_sure(made_up):
    predictions, _, _ = made_up.labels(n=400)
    sure = predictions.uncertainty
    labelled = predictions.judged.n_true > 0
    by_kind = {}
    for row, kind in choose_rows(predictions):
        by_kind.setdefault(kind, []).append(row)
    assert {kind: len(own) for kind, own in by_kind.items()} == {
        "sure and right": 3,
        "sure and wrong": 3,
        "unsure and right": 2,
        "unsure and wrong": 2,
    }
    for kind, own in by_kind.items():
        among = labelled & (predictions.is_wrong == kind.endswith("wrong"))
        end = sure[among].min() if kind.startswith("sure") else sure[among].max()
        assert sure[own[0]] == end
        firsts = predictions.judged.ranked.labels[own, 0]
        assert len(set(firsts)) == len(own)


def test_guesses_are_those_of_the_model(fitted, monkeypatch):
    case = fitted("mlgpf")
    predictions = predict_rows(case.estimator, case.X, case.Y)
    evidence = Evidence.of_scores(case.estimator.predict_topk(case.X, 8), case.Y)
    monkeypatch.setattr(case.estimator.fitted_, "evidence", evidence)  # it has too few rows to hold any out
    low, high = case.estimator.predict_interval(case.X, 0.9)
    P = case.estimator.predict_proba(case.X)
    for example in examples(case.estimator, case.X, predictions):
        true = set(case.Y[[example.row]].indices.tolist())
        named = [guess.label for guess in example.guesses]
        assert len(named) == 5
        assert set(example.missed) == true - set(named)
        for guess in example.guesses:
            assert guess.is_right == (guess.label in true)
            assert guess.p == pytest.approx(float(P[example.row, guess.label]), abs=1e-5)
            np.testing.assert_allclose(
                guess.interval, (low[example.row, guess.label], high[example.row, guess.label]), atol=1e-5
            )
