"""Rows and labels of odd shapes: probabilities are finite, and a label that never held is never ranked first."""

import numpy as np
import pytest
import torch
from scipy import sparse

from labelfield import (
    AutoClassifier,
    Dataset,
    DeepKernelClassifier,
    GPClassifier,
    LinearClassifier,
    MLGPFClassifier,
    TopicClassifier,
)
from labelfield.errors import DataError
from labelfield.inference.source import ResidentSource

needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
N = 120
SMALL = {"n_inducing": 10, "max_epochs": 3, "learning_rate": 0.05}


def full(rng, n=N, width=30):
    return np.abs(rng.normal(size=(n, width))).astype(np.float32) + 0.1


def nearly_full(rng):
    rows = full(rng)
    rows[rng.random(rows.shape) < 0.02] = 0
    return rows


def with_empty_rows(rng):
    rows = full(rng)
    rows[rng.random(rows.shape) < 0.8] = 0
    rows[::3] = 0
    return rows


ROWS = {
    "full": full,
    "nearly full": nearly_full,
    "one feature": lambda rng: full(rng, width=1),
    "empty rows": with_empty_rows,
    "all empty": lambda rng: np.zeros((N, 5), np.float32),
}


def drawn(kind, n_labels=20):
    """Rows of this kind, labels of which the last five never hold, and one of three classes per row."""
    rng = np.random.default_rng(0)
    X = sparse.csr_array(ROWS[kind](rng))
    Y = rng.random((N, n_labels)) < 0.2
    Y[:, -5:] = False
    return X, sparse.csr_array(Y.astype(np.float32)), np.arange(N) % 3


def require_sound(model, X, Y):
    """Finite probabilities, and no label first that never held."""
    P = model.predict_proba(X)
    assert np.isfinite(P).all()
    assert (P >= 0).all()
    assert (P <= 1).all()
    held = np.asarray(Y.sum(0)).ravel() > 0
    first = model.predict_topk(X, 1)
    assert held[first.indices].all()


@pytest.mark.parametrize("kind", ROWS)
@pytest.mark.parametrize("options", [{}, {"kernel": "se_linear_ard", "label_linear": "point"}], ids=["as is", "words"])
def test_rows_of_any_density(kind, options):
    X, Y, _ = drawn(kind)
    require_sound(MLGPFClassifier(**SMALL, **options).fit(X, Y), X, Y)


@pytest.mark.parametrize("kind", ROWS)
@pytest.mark.parametrize("model", [LinearClassifier(), AutoClassifier()], ids=repr)
def test_machines_and_mixes_take_rows_of_any_density(kind, model):
    X, Y, _ = drawn(kind)
    require_sound(model.fit(X, Y), X, Y)


@pytest.mark.parametrize("model", [LinearClassifier(), AutoClassifier(quality="fast")], ids=repr)
@pytest.mark.parametrize(("n_rows", "n_labels"), [(1, 1), (1, 20), (2, 2), (99, 20), (N, 1), (N, 2)])
def test_machines_and_mixes_of_any_size(model, n_rows, n_labels):
    X, Y, _ = drawn("full")
    Y = Y[:n_rows, :n_labels].tolil()
    Y[0, 0] = 1
    Y, same = sparse.csr_array(Y), np.ones((n_rows, 3))
    require_sound(model.fit(X[:n_rows], Y), X, Y)
    require_sound(model.fit(same, Y), same, Y)


@pytest.mark.parametrize("n_labels", [N - 1, N, 2 * N])
def test_about_as_many_labels_as_rows(n_labels):
    X, _, _ = drawn("empty rows")
    Y = sparse.csr_array(np.eye(N, n_labels, dtype=np.float32))
    require_sound(MLGPFClassifier(**SMALL).fit(X, Y), X, Y)


@pytest.mark.parametrize("n_negatives", [None, 50])
def test_most_labels_have_no_row_or_one(n_negatives):
    rng = np.random.default_rng(0)
    X = sparse.csr_array(sparse.random(2000, 300, 0.05, format="csr", rng=1, dtype=np.float32))
    rare = rng.choice(np.arange(20, 4000), 1500, replace=False)
    row, label = np.append(rng.integers(0, 2000, 1500), np.arange(2000)), np.append(rare, rng.integers(0, 20, 2000))
    Y = sparse.csr_array((np.ones(3500, np.float32), (row, label)), shape=(2000, 4000))
    Y.data[:] = 1
    model = MLGPFClassifier(n_latent=10, **SMALL, n_negatives=n_negatives).fit(X, Y)
    require_sound(model, X[:200], Y)
    if n_negatives is None:
        require_sound(LinearClassifier().fit(X, Y), X[:200], Y)
    P = model.predict_proba(X[:200])
    counts = np.asarray(Y.sum(0)).ravel()
    assert P[:, counts == 0].mean() < P[:, counts == 1].mean() < P[:, counts > 1].mean()


@pytest.mark.parametrize("model", [MLGPFClassifier(**SMALL), LinearClassifier(), AutoClassifier()], ids=repr)
@pytest.mark.parametrize("n_labels", [1, 20])
def test_a_training_without_any_positive_gives_small_probabilities(model, n_labels):
    X = sparse.vstack([drawn("full")[0]] * 3, format="csr")  # enough to hold some out
    P = model.fit(X, sparse.csr_array((3 * N, n_labels), dtype=np.float32)).predict_proba(X)
    assert np.isfinite(P).all()
    assert P.max() < 0.1


@pytest.mark.parametrize(
    ("X", "Y", "message"),
    [
        (np.ones((5, 2)), np.zeros((5, 0)), "no labels"),
        (np.ones((5, 2)), np.ones((4, 3)), "5 rows and Y has 4"),
    ],
)
def test_what_cannot_be_learned_from_is_one_clear_error(X, Y, message):
    with pytest.raises(DataError, match=message):
        MLGPFClassifier(**SMALL).fit(X, Y)


@pytest.mark.parametrize("kind", ROWS)
def test_fixed_sizes_have_room_for_any_batch_that_has_as_many_entries(kind):
    """Sizes of a captured step are never above those of a full matrix, and rows gathered at them are the rows."""
    X, Y, _ = drawn(kind)
    source = ResidentSource(Dataset(X, Y), torch.device("cpu"))
    for n_rows in (1, 7, N):
        sizes = source.fixed_sizes(n_rows)
        assert all(size <= n_rows * part.shape[1] for size, part in zip(sizes, (X, Y), strict=True))
        chosen = np.random.default_rng(n_rows).choice(N, n_rows, replace=False)
        if not source.fits(chosen, sizes):
            assert n_rows < N, "all rows together have no other number of entries"
            continue
        found, labels = source.gather(torch.from_numpy(chosen), sizes)
        np.testing.assert_array_equal(found.to_dense().numpy(), X.toarray()[chosen])
        np.testing.assert_array_equal(labels.to_dense().numpy(), Y.toarray()[chosen])


def classifiers(device):
    epochs = {"network_epochs": 4, "process_epochs": 4, "max_epochs": 4}
    steps = {"device": device, "batch_size": 40}
    return {
        "mlgpf": MLGPFClassifier(**SMALL, **steps),
        "gp": GPClassifier(**SMALL, **steps),
        "deep": DeepKernelClassifier(hidden=(8,), grid_size=8, **epochs, **steps),
        "topics": TopicClassifier(n_topics=3, max_epochs=4, device=device),
        "linear": LinearClassifier(device=device),
    }


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=needs_cuda)])
@pytest.mark.parametrize("kind", [kind for kind in ROWS if kind != "all empty"])
@pytest.mark.parametrize("name", ["mlgpf", "gp", "deep", "topics", "linear"])
def test_every_classifier_takes_rows_of_any_density(name, kind, device):
    """On a GPU steps are captured with fixed sizes, which dense rows fill to the last entry."""
    X, Y, y = drawn(kind)
    model = classifiers(device)[name].fit(X, y if name in ("gp", "deep") else Y)
    P = model.predict_proba(X)
    assert np.isfinite(P).all()
    assert (P >= 0).all()
    assert (P <= 1).all()
