"""Default sizes and rates follow their rules, at the sizes of known data sets and at the ends."""

import pytest

from labelfield.models.deep.plan import plan as deep_plan
from labelfield.models.mlgpf.plan import plan as mlgpf_plan
from labelfield.models.multiclass.plan import plan as class_plan

# Rows, features and labels (or classes).
EURLEX, BIBTEX, EMOTIONS = (15449, 5000, 3956), (4880, 1836, 159), (391, 72, 6)
DELICIOUS = (12920, 500, 983)
MNIST, AMAZON = (60000, 784, 10), (490_449, 135_909, 670_091)


@pytest.mark.parametrize(
    ("size", "chosen"),
    [
        (EURLEX, ("se_linear_ard", "point", 200, 400, 966, 9, 0.1, 0.25, None, 0.1)),
        (BIBTEX, ("se_linear_ard", "off", 159, 305, 305, 16, 0.04, 0.5, None, 1.0)),
        (DELICIOUS, ("matern32_ard", "off", 300, 400, 808, 32, 0.015, 1.0, None, 1.0)),
        (EMOTIONS, ("matern32_ard", "off", 6, 100, 50, 40, 0.01, 1.0, None, 1.0)),
        (AMAZON, ("se_linear_ard", "off", 300, 400, 1000, 3, 0.1, 0.25, 1000, 1.0)),
        ((1, 1, 1), ("matern32_ard", "off", 1, 1, 1, 40, 0.01, 1.0, None, 1.0)),
    ],
)
def test_multi_label(size, chosen):
    assert tuple(vars(mlgpf_plan(*size)).values()) == chosen


@pytest.mark.parametrize(
    ("size", "chosen"),
    [
        (MNIST, ("matern32_ard", False, "whitened_diagonal", "free", 400, 500, 10, 0.03, None)),
        ((400, 2, 3), ("matern32_ard", False, "whitened_full", "free", 100, 400, 200, 0.03, None)),
        ((16000, 42, 3), ("matern32_ard", False, "whitened_diagonal", "free", 400, 500, 38, 0.03, None)),
        ((200_000, 2000, 1000), ("se_linear_ard", False, "whitened_diagonal", "free", 800, 1000, 15, 0.02, 100)),
        ((*MNIST, "point"), ("matern32_ard", False, "whitened_diagonal", "free", 400, 500, 10, 0.03, None)),
        ((*MNIST, None, "per_class"), ("matern32_ard", True, "whitened_full", "free", 100, 500, 10, 0.03, None)),
    ],
)
def test_multi_class(size, chosen):
    assert tuple(vars(class_plan(*size)).values()) == chosen


@pytest.mark.parametrize(
    ("arguments", "chosen"),
    [
        ((*MNIST, False, "cnn", 1, None), {"n_processes": 10, "grid_size": 64, "batch_size": 250, "max_epochs": 13}),
        (
            (*MNIST, False, None, 2, None),
            {"network": "mlp", "hidden": (256, 128), "dropout": 0.2, "grid_size": 20, "max_epochs": 6},
        ),
        ((*EURLEX, True, None, 1, None), {"network": "bag", "n_processes": 512, "learning_rate": 3e-3}),
        ((*AMAZON, True, None, 1, None), {"n_negatives": 1000, "process_epochs": 1, "max_epochs": 4}),
        ((*MNIST, False, None, 1, 2000), {"posterior": "kronecker", "grid_size": 2000}),
    ],
)
def test_deep(arguments, chosen):
    plan = vars(deep_plan(*arguments))
    assert {name: plan[name] for name in chosen} == chosen
