"""What a model is, and how it learned."""

import pytest

from labelfield.inference.run import Epoch
from labelfield.report.identity import drops, identify, learning_curves


def test_an_ensemble_is_counted_as_a_whole(fitted):
    estimator = fitted("ensemble").estimator
    found = identify(estimator)
    assert found.facts["ensemble"] == "2 members"
    assert found.facts["parameters"] == f"{sum(own.n_parameters() for own in estimator.members()):,}"
    assert found.facts["inducing inputs"] == "8 (free)"
    assert "it averages the probabilities of 2 different models" in found.sentence
    assert len(learning_curves(estimator)) == 2


def test_processes_of_a_deep_kernel_are_named_once(fitted):
    facts = identify(fitted("svdkl labels").estimator).facts
    assert facts["processes"] == "4"
    assert "shared processes" not in facts


@pytest.mark.parametrize(
    ("end", "stage", "expected"),
    [
        ((-4.1, -4.0), "", False),
        ((-5.0, -4.5), "", True),
        ((-4.25, -4.2), "", False),
        ((-5.0, -4.5), "joint", False),
    ],
)
def test_a_curve_drops_where_rows_join(end, stage, expected):
    bounds = [-9.0, -7.0, -6.0, -5.0, -4.5, -4.2, *end]
    curve = [Epoch(i, bound, 0.1, float(i), stage=stage if i > 5 else "") for i, bound in enumerate(bounds)]
    assert drops(curve) == expected


def test_curves_are_the_epochs_of_the_history(fitted):
    (curve,) = learning_curves(fitted("svdkl").estimator)
    assert list(dict.fromkeys(epoch.stage for epoch in curve)) == ["network", "processes", "joint"]
    assert [epoch.bound for epoch in curve] == [epoch["bound"] for epoch in fitted("svdkl").estimator.history_]
