"""The tables of the benchmarks are those that their sources describe, and folds keep test rows apart."""

import numpy as np
import pytest

from benchmarks.studies import tabular

ROWS = {
    "adult": ((48842, 108), [37155, 11687]),
    "connect4": ((67557, 126), [6449, 16635, 44473]),
    "covertype": ((581012, 54), [211840, 283301, 35754, 2747, 9493, 17367, 20510]),
    "diabetes130": ((101766, 801), [54864, 35545, 11357]),
}


@pytest.mark.parametrize("name", ROWS)
def test_tables_are_as_their_sources_say(real_data, name):
    real_data(name)
    table = tabular.read(name)
    shape, counts = ROWS[name]
    assert table.X.shape == shape == (len(table.y), len(table.columns))
    assert (table.X.dtype, table.y.dtype) == (np.float32, np.int64)
    assert np.bincount(table.y).tolist() == counts
    variables = [column.partition("=")[0] for column in table.columns]
    encoded = sorted({variable for variable, column in zip(variables, table.columns, strict=True) if "=" in column})
    belongs = np.array([[variable == name for name in encoded] for variable in variables], np.float32)
    some = table.X[::7]
    assert np.all(some @ belongs == 1)
    hot = some[:, belongs.any(1)]
    assert np.all((hot == 0) | (hot == 1))


def test_a_patient_is_on_one_side(real_data):
    real_data("diabetes130")
    table = tabular.read("diabetes130-30days")
    assert np.bincount(table.y).tolist() == [90409, 11357]
    assert len(np.unique(table.groups)) == 71518
    assert not {"encounter_id", "patient_nbr"} & set(table.columns)
    counts = dict(zip(table.columns, table.X.sum(0), strict=True))
    assert min(n for name, n in counts.items() if "=" in name and not name.endswith("=other")) >= 50
    few = table.groups < np.quantile(table.groups, 0.02)  # scikit-learn places the patients one at a time
    part = tabular.Table(table.X[few], table.y[few], table.groups[few])
    assert len(np.unique(part.groups)) < few.sum()
    for train, test in tabular.folds(part):
        assert not set(part.groups[train]) & set(part.groups[test])


@pytest.mark.parametrize("groups", [None, np.arange(300) // 3])
def test_folds_partition_the_rows(groups):
    y = np.random.default_rng(0).permutation(300) % 3
    table = tabular.Table(np.zeros((300, 1), np.float32), y, groups)
    found, again, other = tabular.folds(table), tabular.folds(table), tabular.folds(table, seed=1)
    assert len(found) == 5
    assert np.array_equal(np.sort(np.concatenate([test for _, test in found])), np.arange(300))
    for train, test in found:
        assert np.array_equal(np.sort(np.concatenate([train, test])), np.arange(300))
        assert np.all(abs(np.bincount(y[test], minlength=3) - 20) <= 3)
    assert all(np.array_equal(a, b) for (_, a), (_, b) in zip(found, again, strict=True))
    assert not all(np.array_equal(a, b) for (_, a), (_, b) in zip(found, other, strict=True))


def test_columns_are_scaled_by_the_training_rows():
    X = np.random.default_rng(0).normal(3000, 500, (1000, 3)).astype(np.float32)
    X[:, 2] = 0.1
    train, test = tabular.scaled(X[:800], np.vstack([X[800:], [[0, 0, 7]]]).astype(np.float32))
    np.testing.assert_allclose(train[:, :2].mean(0), 0, atol=1e-4)
    np.testing.assert_allclose(train[:, :2].std(0), 1, rtol=1e-4)
    assert not train[:, 2].any()
    assert not test[:, 2].any()
    expected = (X[800:, 0] - X[:800, 0].mean()) / X[:800, 0].std()
    np.testing.assert_allclose(test[:-1, 0], expected, rtol=1e-3, atol=1e-4)
    assert (train.dtype, test.dtype) == (np.float32, np.float32)
