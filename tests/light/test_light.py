"""The light model answers as the estimators do, without importing them."""

import json
import subprocess
import sys

import numpy as np
import pytest

import labelfield
from labelfield import AutoClassifier, LinearClassifier, MLGPFClassifier, TextClassifier, TopicClassifier
from labelfield.light.model import load_light
from labelfield.models.artifact import DOCUMENTS
from labelfield.models.linear import scores
from labelfield.models.linear.scores import Weights
from labelfield.synth import make_texts

TEXTS, LABELS = make_texts(340, seed=0)
NEW, _ = make_texts(90, seed=1)


def saved(folder, model):
    found = TextClassifier(model=model).fit(TEXTS, LABELS)
    found.save(folder)
    return found


@pytest.mark.parametrize(
    "model",
    [
        LinearClassifier(row_transform="log", cost=1.0),
        LinearClassifier(row_transform="scaled", cost=0.1),
        LinearClassifier(row_transform="tfidf", cost=1.0, n_trees=2),
        AutoClassifier(quality="fast", random_state=0),
        AutoClassifier(time_budget=2.0, random_state=0),
    ],
    ids=["machines", "scaled", "trees", "fast", "mix"],
)
def test_it_says_what_the_estimator_says(tmp_path, model):
    full = saved(tmp_path / "model", model)
    light = load_light(tmp_path / "model")
    assert light is not None
    for n in (1, 90):
        rows = light.text_.rows(NEW[:n])
        best, expected = light.predict_topk(rows, 12), full.predict_topk(rows, 12)
        np.testing.assert_array_equal(best.indices, expected.indices)
        np.testing.assert_allclose(best.data, expected.data, atol=2e-5)
        np.testing.assert_allclose(light.predict_uncertainty(rows), full.predict_uncertainty(rows), atol=2e-5)
        assert light.predict_topk(rows, 3).nnz == 3 * n
    assert light.label_names() == list(full.classes_)


def test_one_document_is_tagged_as_among_many(tmp_path):
    saved(tmp_path / "model", LinearClassifier(row_transform="unit", cost=1.0))
    light, other = load_light(tmp_path / "model"), load_light(tmp_path / "model")
    many = light.predict_topk(light.text_.rows(NEW), 12)
    alone = other.predict_topk(other.text_.rows(NEW[:1]), 12)
    np.testing.assert_array_equal(alone.toarray(), many[:1].toarray())


def test_scores_are_the_same_bits_for_few_and_many_rows():
    rng = np.random.default_rng(0)
    from scipy import sparse

    W = sparse.random_array((40, 300), density=0.2, rng=rng, format="csr", dtype=np.float32)
    X = sparse.random_array((70, 300), density=0.05, rng=rng, format="csr", dtype=np.float32)
    W.sort_indices()
    machines = scores.Weights(W.data, W.indices, W.indptr.astype(np.int64))
    whole = scores.products(X, machines, 2)
    for part in (X[:3], X[:1], X[:0]):
        np.testing.assert_array_equal(scores.products(part, machines, 1), whole[: part.shape[0]])
    np.testing.assert_array_equal(scores.products(X, machines, 3), whole)
    for part in (X, X[:1], X[:0]):
        np.testing.assert_array_equal(scores.ByFeature(machines, 300).scores(part), whole[: part.shape[0]])
    np.testing.assert_allclose(whole, (X @ W.T).toarray(), rtol=1e-5)


@pytest.mark.parametrize("share", [0.0, 0.2, 0.5, 2.0], ids=["all dense", "most dense", "some dense", "none dense"])
@pytest.mark.parametrize("is_compiled", [True, False], ids=["compiled", "plain"])
def test_scores_by_feature_are_the_same_bits_wherever_weights_are_dense(monkeypatch, share, is_compiled):
    from scipy import sparse

    rng = np.random.default_rng(1)
    density = rng.random(60) ** 2
    W = (rng.random((50, 60)) < density) * rng.standard_normal((50, 60)).astype(np.float32)
    W, X = sparse.csr_array(W), sparse.random_array((40, 60), density=0.3, rng=rng, format="csr", dtype=np.float32)
    machines = scores.Weights(W.data, W.indices.astype(np.int32), W.indptr.astype(np.int64))
    monkeypatch.setattr(scores, "_DENSE", share)
    monkeypatch.setattr(scores, "has_numba", lambda: is_compiled)
    np.testing.assert_array_equal(scores.ByFeature(machines, 60).scores(X), scores.products(X, machines, 1))


@pytest.mark.parametrize("n_machines", [1, 16, 20, 40])
@pytest.mark.parametrize("power", [0, -90, 90])
def test_weights_of_16_bits_are_kept_so_for_the_same_bits(power, n_machines, monkeypatch):
    from scipy import sparse

    monkeypatch.setattr(scores, "_DENSE", 0.2)
    rng = np.random.default_rng(3)
    W = rng.integers(-32767, 32768, (n_machines, 60)) * (rng.random((n_machines, 60)) < rng.random(60))
    W = sparse.csr_array((W * 2.0 ** (power + rng.integers(-15, 0, (n_machines, 1)))).astype(np.float32))
    X = sparse.random_array((30, 60), density=0.3, rng=rng, format="csr", dtype=np.float32)
    machines = scores.Weights(W.data, W.indices.astype(np.int32), W.indptr.astype(np.int64))
    by_feature = scores.ByFeature(machines, 60)
    assert by_feature.dense.dtype == by_feature.values.dtype == np.int16
    assert len(by_feature.dense) > 0
    assert len(by_feature.values) > 0 or n_machines == 1
    np.testing.assert_array_equal(by_feature.scores(X), scores.products(X, machines, 1))


@pytest.mark.parametrize("largest", [1, 32766.4, 32766.6, 32767.4, 32768])
def test_weights_as_rounded_in_training_have_16_bits_wherever_the_largest_lies(largest):
    import torch

    from labelfield.inference.machines import rounded

    W = rounded(torch.tensor([[largest, 3.3]]), 10.0).numpy()[0]
    by_feature = scores.ByFeature(scores.Weights(W, np.int32([0, 1]), np.int64([0, 2])), 2)
    assert by_feature.dense.dtype == np.int16
    np.testing.assert_array_equal(by_feature.dense[by_feature.place, 0] * by_feature.steps, W)


def test_dense_weights_of_a_few_machines_take_no_more_memory_than_these():
    machines = scores.Weights(np.ones(1000, np.float32), np.arange(1000, dtype=np.int32), np.int64([0, 1000]))
    assert scores.ByFeature(machines, 1000).dense.nbytes == 2000


@pytest.mark.parametrize("odd", [np.inf, 0.1])
def test_other_weights_are_kept_as_they_are(odd):
    machines = scores.Weights(np.float32([1, odd, 3]), np.int32([0, 1, 1]), np.int64([0, 2, 3]))
    assert scores.ByFeature(machines, 2).dense.dtype == np.float32


@pytest.mark.parametrize("seed", range(8))
def test_averages_for_labels_that_can_be_best_give_the_best_of_all(seed):
    from labelfield.compiled.mixing import best_of_mix

    rng = np.random.default_rng(seed)
    n, n_labels, n_latent, k = 20, 60, 7, 6
    others, mean = (rng.normal(size=(n, n_labels), scale=4).astype(np.float32) for _ in range(2))
    mean -= 6 * (seed % 3)
    var = (10.0 ** rng.uniform(-3, seed % 4 - 1, (n, n_latent))).astype(np.float32)
    squares = rng.normal(size=(n_labels, n_latent)).astype(np.float32) ** 2
    slopes = rng.normal(size=n_labels, loc=0.5).astype(np.float32)
    slopes[:5], others[:, :3], others[:, 50:] = 0, -30, others[:, 40:50]  # with equals
    mean[:, 50:], squares[50:], slopes[50:] = mean[:, 40:50], squares[40:50], slopes[40:50]
    least = np.where(rng.random(n_labels) < 0.2, -1, -25).astype(np.float32)
    nodes, shares = np.polynomial.hermite_e.hermegauss(10)
    shares /= shares.sum()
    labels, odds = np.empty((n, k), np.int64), np.empty((n, k), np.float32)
    sure = np.array([1e-7, 1 - 1e-7])
    best_of_mix(others, mean, var, squares, squares.sum(1), slopes, least, nodes, shares, sure, labels, odds)
    s = np.sqrt(var @ squares.T).astype(float)
    p = np.clip((shares / (1 + np.exp(-(mean[..., None] + s[..., None] * nodes)))).sum(-1), *sure)
    every = np.maximum(others + slopes * np.log(p / (1 - p)), least).round(5)
    expected = np.argsort(-every, axis=1, kind="stable")[:, :k]
    np.testing.assert_array_equal(labels, expected)
    np.testing.assert_allclose(odds, np.take_along_axis(every, expected, 1), atol=1e-4)


@pytest.mark.parametrize("k", [1, 5, 11, 12])
def test_the_best_labels_are_those_of_a_stable_sort(k):
    from labelfield.light.model import _compiled_best, _plain_best

    P = np.random.default_rng(2).integers(0, 9, (200, 12)).astype(np.float32)  # with many equals
    expected = np.argsort(-P, axis=1, kind="stable")[:, :k]
    np.testing.assert_array_equal(_compiled_best(P, k), expected)
    np.testing.assert_array_equal(_plain_best(P, k), expected)


def test_a_prepared_model_says_the_same_and_forgets_the_other_order_of_its_weights(tmp_path):
    saved(tmp_path / "model", LinearClassifier(row_transform="unit", cost=1.0))
    light, prepared = load_light(tmp_path / "model"), load_light(tmp_path / "model")
    prepared.prepare()
    rows = light.text_.rows(NEW)
    np.testing.assert_array_equal(prepared.predict_topk(rows, 12).toarray(), light.predict_topk(rows, 12).toarray())
    assert all(member.machines is None for _, member in prepared._members)
    assert all(member.by_feature.dense.dtype == np.int16 for _, member in prepared._members)


@pytest.mark.parametrize("k", [1, 3, 12])
def test_a_prepared_mix_says_the_same(tmp_path, k):
    saved(tmp_path / "model", AutoClassifier(time_budget=2.0, random_state=0))
    light, prepared = load_light(tmp_path / "model"), load_light(tmp_path / "model")
    prepared.prepare()
    assert prepared._bounded is not None
    rows = light.text_.rows(NEW)
    found, expected = prepared.predict_topk(rows, k), light.predict_topk(rows, k)
    np.testing.assert_array_equal(found.indices, expected.indices)
    np.testing.assert_allclose(found.data, expected.data, atol=2e-6)


@pytest.mark.parametrize(
    "model",
    [
        MLGPFClassifier(max_epochs=3),
        TopicClassifier(max_epochs=3),
    ],
    ids=["factors alone", "topics"],
)
def test_other_models_are_left_to_the_estimators(tmp_path, model):
    saved(tmp_path / "model", model)
    assert load_light(tmp_path / "model") is None


def test_what_the_estimators_would_refuse_is_left_to_them(tmp_path):
    saved(tmp_path / "model", LinearClassifier(row_transform="unit", cost=1.0))
    assert load_light(tmp_path / "nowhere") is None
    with open(tmp_path / "model" / "arrays.safetensors", "ab") as file:
        file.write(b"more")
    assert load_light(tmp_path / "model") is None


def test_the_command_imports_nothing_that_is_slow_to_import(tmp_path):
    saved(tmp_path / "model", LinearClassifier(row_transform="unit", cost=1.0))
    (tmp_path / "new.jsonl").write_text(json.dumps({"title": "", "text": "A violin concert"}), encoding="utf-8")
    code = (
        "import sys; from labelfield.cli.main import main\n"
        f"sys.argv = ['labelfield', 'tag', {str(tmp_path / 'model')!r}, {str(tmp_path / 'new.jsonl')!r}, '-k', '1']\n"
        "try: main()\nexcept SystemExit: pass\n"
        "print(sorted({'torch', 'sklearn', 'numba', 'matplotlib', 'scipy.stats', 'scipy.optimize'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    first, imported = done.stdout.splitlines()
    assert json.loads(first)["tags"][0]["label"] == "music"
    assert imported == "[]"


def test_a_model_of_python_keeps_no_documents(tmp_path):
    saved(tmp_path / "model", LinearClassifier(row_transform="unit", cost=1.0))
    assert not (tmp_path / "model" / DOCUMENTS).exists()
    assert isinstance(labelfield.load(tmp_path / "model"), TextClassifier)


@pytest.mark.parametrize("feature", [-1, 2_000_000_000])
def test_weights_outside_the_features_never_reach_compiled_loops(feature):
    weights = Weights(np.ones(2, np.float32), np.array([0, feature], np.int32), np.array([0, 1, 2]))
    with pytest.raises(ValueError, match="outside the features"):
        weights.require_inside(5)
    for pointers in ([0, 1, 3], [1, 1, 2], [0, 2, 1], []):
        with pytest.raises(ValueError, match="do not fit together"):
            weights._replace(pointers=np.array(pointers, np.int64)).require_inside(5)
