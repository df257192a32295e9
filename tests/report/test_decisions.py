"""The section on decisions shows what policies do to the rows of the page."""

import re

import numpy as np
import pytest

from labelfield import LinearClassifier, synth
from labelfield.report import make_page, plots
from labelfield.report.decisions import decisions


@pytest.fixture(scope="module")
def data():
    return synth.make_multilabel(1200, 60, 8, seed=2).split(0.25)


@pytest.fixture(scope="module")
def model(data):
    return LinearClassifier(row_transform="unit", cost=1.0).fit(data.X, data.Y)


def test_numbers_are_those_of_the_decisions(model, data):
    found = decisions(model, data.test.X, data.test.Y)
    assert found.policies
    for policy, reached in found.policies:
        own = model.decide(data.test.X, **{policy.kind: policy.target})
        assert reached["automatic"] == pytest.approx(1 - own.review.mean())
        hits = own.tags.astype(bool).multiply(data.test.Y).sum()
        assert reached["precision"] == pytest.approx(hits / own.tags.nnz)
    first = model.decide(data.test.X, **{found.policies[0][0].kind: found.policies[0][0].target})
    for cost in found.costs:
        assert cost.n_tags == first.tags[:, [cost.label]].nnz
        assert cost.n_right + cost.n_left == data.test.Y[:, [cost.label]].nnz
    assert (np.diff(found.automatic) <= 0).all()


def test_the_page_says_what_it_would_decide(model, data, monkeypatch):
    monkeypatch.setattr("labelfield.report.plots.to_svg", lambda figure, name, label: f"<svg>{name}</svg>")
    page = make_page(model, data.test.X, data.test.Y)
    assert "What it would decide" in page
    assert "<svg>decide</svg>" in page
    assert "The mark shows the rule that comes with a promise: With confidence 0.95" in page


def test_without_held_out_rows_the_page_says_why_nothing_is_promised(data, monkeypatch):
    monkeypatch.setattr("labelfield.report.plots.to_svg", lambda figure, name, label: f"<svg>{name}</svg>")
    plain = LinearClassifier(row_transform="unit", cost=1.0, calibrate=False).fit(data.X, data.Y)
    why = "no promise can be made: the model was trained with calibrate=False"
    assert decisions(plain, data.test.X, data.test.Y).startswith(why)
    page = make_page(plain, data.test.X, data.test.Y)
    assert f"it can promise nothing about its tags: {why}" in page
    assert "<svg>decide</svg>" not in page


@pytest.mark.parametrize(("least", "mark"), [(0.985, 0.99), (0.4, 0.8), (1.0, 1.0), (0.9, float("nan"))])
def test_no_share_above_100_percent_is_on_the_axis(least, mark):
    automatic = np.linspace(1, 0.5, 5)
    drawing = plots.decision_plot(automatic, np.linspace(least, 1, 5), {"automatic": 0.9, "precision": mark})
    shares = [float(one) for one in re.findall(r">([\d.]+) %<", drawing)]
    assert shares.count(100) == 2  # one for each axis
    assert max(shares) == 100
