"""Inducing inputs: what they add up to, how they are described, how similar to a row they are."""

from unittest.mock import patch

import numpy as np
import pytest
import torch
from scipy import sparse

from labelfield import GPClassifier, MLGPFClassifier
from labelfield.estimators.classifier import hold
from labelfield.explain import explain_row, inducing_inputs
from labelfield.explain.inducing import contributions, count_inputs

POSTERIORS = ("whitened_diagonal", "whitened_shared", "whitened_full", "full", "parsimonious")
FACTORS = [
    *({"posterior": name} for name in POSTERIORS),
    {"inducing": "fixed"},
    {"inducing": "subspace", "rank": 8},
    {"inducing": "subspace_basis", "rank": 8, "posterior": "full"},
    {"kernel": "se_per_process", "posterior": "full"},
    {"kernel": "linear + white + matern32_ard"},
    {"label_linear": "point", "max_epochs": 4, "learning_rate": 0.2},  # fewer leave weights that are pruned
    {"label_linear": "mean_field"},
    {"row_transform": "unit+sqrt"},
    {"unit_norm": False},
]
CLASSES = [
    *({"posterior": name, "inducing": "per_class"} for name in POSTERIORS),
    {"inducing": "free"},
    {"inducing": "free", "kernel_per_class": True, "posterior": "full"},
    {"inducing": "fixed", "likelihood": "softmax"},
    {"inducing": "per_class", "likelihood": "robustmax", "kernel_per_class": False},
]


def name_of(options):
    return ", ".join(f"{name}={value}" for name, value in options.items())


@pytest.mark.parametrize("options", FACTORS, ids=name_of)
def test_parts_add_up_to_the_mean_utility(options, small):
    data = small.several()
    model = MLGPFClassifier(**{"n_latent": 4, "n_inducing": 10, **small.options, "max_epochs": 1, **options})
    model.fit(data.X, data.Y)
    x, labels = data.X[3:4], np.array([5, 0, 15])
    parts = contributions(model, x, labels)
    assert parts.inducing.shape == (3, 10)
    found = parts.inducing.sum(1) + parts.label_linear + parts.bias
    np.testing.assert_allclose(found, model.predict_latent(x).f_mean[0, labels], rtol=1e-4, atol=1e-5)
    assert np.abs(parts.inducing).max() > 1e-4
    assert parts.label_linear.any() == (options.get("label_linear", "off") != "off")
    explained = explain_row(model, x, n_inducing=10).labels
    utilities = model.predict_latent(x).f_mean[0]
    for label in explained:
        assert label.utility == pytest.approx(utilities[label.number], rel=1e-4, abs=1e-5)
        by_inputs = sum(effect for _, effect in label.inducing)
        assert by_inputs + label.label_linear + label.bias == pytest.approx(label.utility)
        assert sorted(source.number for source, _ in label.inducing) == list(range(10))


@pytest.mark.parametrize("options", CLASSES, ids=name_of)
def test_of_classes_too(options, small):
    X, y = small.classes()
    model = GPClassifier(**{"n_inducing": 5, **small.options, "max_epochs": 1, **options}).fit(X, y)
    labels = np.array([2, 0])
    parts = contributions(model, sparse.csr_array(X[:1]), labels)
    assert parts.inducing.shape == (2, 5)
    found = parts.inducing.sum(1) + parts.label_linear + parts.bias
    np.testing.assert_allclose(found, model.predict_latent(X[:1]).f_mean[0, labels], rtol=1e-4, atol=1e-5)
    for label in explain_row(model, X[0], k=3, n_inducing=5).labels:
        own = label.name if options["inducing"] == "per_class" else None
        assert {source.of_class for source, _ in label.inducing} == {own}
        assert label.utility == pytest.approx(model.predict_latent(X[:1]).f_mean[0, label.number], rel=1e-4, abs=1e-5)


def test_models_without_common_inputs(small):
    for kind in ("point", "svdkl", "svdkl of classes", "topics", "ensemble", "ensemble of classes"):
        model = small.model(kind)
        assert inducing_inputs(model, 3) is None
        assert count_inputs(model) == 0
        assert contributions(model, small.row(model), np.array([0])) is None
        assert all(label.inducing == [] and label.bias is None for label in explain_row(model, small.row(model)).labels)


def test_in_words(small):
    """Values are those of Z, the largest first; labels are those whose utility at Z is furthest above the bias."""
    model = small.model("mlgpf")
    found = inducing_inputs(model, 12, 5, feature_names=[f"word {d}" for d in range(60)])
    assert sorted(one.number for one in found) == list(range(12))
    weights = model.feature_relevance()
    with torch.no_grad():
        Z = model.model_.inducing.points().Z
    at_points = model.model_.latent(Z)[0].mean.detach() @ model.model_.Phi.detach().T
    for one in found:
        z = Z[one.number].numpy()
        expected = np.argsort(-np.where(z > 0, z**2 * weights, 0), kind="stable")[:5]
        assert [name for name, _ in one.features] == [f"word {d}" for d in expected]
        assert [value for _, value in one.features] == pytest.approx(z[expected].tolist())
        raised = at_points[one.number]
        expected = [value for value in raised.topk(3).values.tolist() if value > 0]
        assert [value for _, value in one.labels] == pytest.approx(expected, rel=1e-3, abs=1e-4)
    sizes = [float(at_points[one.number].square().sum()) for one in found]
    assert sizes == pytest.approx(sorted(sizes, reverse=True))
    assert inducing_inputs(model, 2, 5)[0].features[0][0].startswith("feature ")


def test_features_of_a_support_and_of_views(small):
    data = small.several()
    model = MLGPFClassifier(n_latent=2, n_inducing=8, inducing="fixed", row_transform="unit+sqrt", **small.options)
    model.fit(data.X, data.Y)
    for one in inducing_inputs(model, 8, 60):
        numbers = [int(name.split()[1]) for name, _ in one.features]
        assert max(numbers) < 60
        assert len(set(numbers)) == len(numbers)


def test_the_support_of_wide_rows(small):
    """Inducing inputs that have values on some features alone are described by these features."""
    rng = np.random.default_rng(0)
    X = sparse.random_array((60, 12_000), density=0.002, rng=rng, dtype=np.float32).tocsr()
    Y = (rng.random((60, 3)) < 0.4).astype(int)
    model = MLGPFClassifier(n_latent=2, n_inducing=5, label_linear="off", **small.options).fit(X, Y)
    assert 0 < model.spec_.n_support < 12_000
    support = model.model_.inducing.support.tolist()
    for one in inducing_inputs(model, 5):
        assert {int(name.split()[1]) for name, _ in one.features} <= set(support)


def test_values_of_measurements_are_in_their_units(small):
    """Centres of rows lie between the smallest and the largest value of each feature."""
    X, y = small.classes()
    model = GPClassifier(n_inducing=6, inducing="fixed", unit_norm=False, **small.options).fit(X, y)
    for one in inducing_inputs(model, 6):
        assert len(one.features) == 4
        for name, value in one.features:
            d = int(name.split()[1])
            assert X[:, d].min() - 1e-3 <= value <= X[:, d].max() + 1e-3


def test_classes_with_inputs_of_their_own(small):
    model = GPClassifier(n_inducing=6, inducing="per_class", **small.options).fit(*small.classes())
    assert count_inputs(model) == 18
    found = inducing_inputs(model, 18)
    assert {(one.of_class, one.number) for one in found} == {(name, number) for name in "012" for number in range(6)}
    assert all([name for name, _ in one.labels] == [one.of_class] for one in found)
    heights = [one.labels[0][1] for one in found]
    assert heights == sorted(heights, reverse=True)
    assert count_inputs(small.model("mlgpf")) == 12


def test_blocks_of_classes_change_nothing(small):
    """The processes of all classes may not fit in memory together."""
    for options in ({"inducing": "per_class"}, {"inducing": "free", "kernel_per_class": True}):
        model = GPClassifier(n_inducing=5, **options, **small.options).fit(*small.classes())
        whole = inducing_inputs(model, 15)
        with patch("labelfield.models.multiclass.predict._SUBSET_ENTRIES", 1):
            assert len(list(model.predictor_.process_blocks())) == 3
            parts = inducing_inputs(model, 15)
        assert [(one.number, one.of_class) for one in parts] == [(one.number, one.of_class) for one in whole]
        assert [one.labels[0][0] for one in parts if one.labels] == [one.labels[0][0] for one in whole if one.labels]


def test_similarity_to_a_row(small):
    """A row at an inducing input has similarity 1 with it, by the features that it has."""
    data = small.several()
    model = MLGPFClassifier(n_latent=2, n_inducing=6, kernel="se", **small.options).fit(data.X, data.Y)
    rows = model.rows(data.X[:6]).toarray()
    model.model_.inducing.fill(torch.from_numpy(rows))
    hold(model, model.fitted_)  # a predictor keeps what it has formed
    for number in range(2):
        found = {
            s.number: s for s, _ in explain_row(model, data.X[number : number + 1], k=1, n_inducing=6).labels[0][5]
        }
        assert found[number].similarity == pytest.approx(1, abs=1e-5)
        assert all(0 < one.similarity < 0.999 for other, one in found.items() if other != number)
        assert {name for name, _ in found[number].shared} <= {f"feature {d}" for d in np.flatnonzero(rows[number])}
        products = [part for _, part in found[number].shared]
        assert products == pytest.approx(sorted(np.square(rows[number]), reverse=True)[:8], rel=1e-4)


def test_no_part_is_larger_than_it_must_be(small):
    """‖s(x)‖² ≤ k(x, x), so that by Cauchy–Schwarz no part is above √k(x, x) ‖v‖, however similar the inputs are."""
    data = small.several()
    model = MLGPFClassifier(n_latent=2, n_inducing=6, kernel="se", label_linear="off", **small.options)
    model.fit(data.X, data.Y)
    rows = model.rows(data.X[:6]).toarray()
    rows[3:] = rows[:3] + 1e-3 * rows[3:]  # each is there almost twice
    model.model_.inducing.fill(torch.from_numpy(rows))
    model.model_.jitter = 1e-9
    hold(model, model.fitted_)  # as above
    parts = contributions(model, data.X[:1], np.arange(14))
    points, prior = model.model_.inducing_state()
    alpha = model.model_.family.coefficients(prior)
    Phi = model.model_.Phi.detach().double()[:14]
    lengths = torch.einsum("lp,pm,mn,lq,qn->l", Phi, alpha, prior.K, Phi, alpha).detach().sqrt().numpy()  # ‖K^½ α φ‖
    assert (np.abs(parts.inducing).max(1) <= 1.01 * lengths).all()
    plain = model.model_.kernel.cross(torch.from_numpy(rows[:1]), points).detach().double()
    cancelling = (plain * (Phi @ alpha)).abs().max(1).values.detach().numpy()
    assert (cancelling > 3 * np.abs(parts.inducing).max(1)).all()
