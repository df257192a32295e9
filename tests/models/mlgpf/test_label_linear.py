"""Linear processes of labels: the product over features that occur with a label, its gradient and its divergence."""

import numpy as np
import pytest
import torch

from labelfield import Batch, synth
from labelfield.models.mlgpf.cooccurrence import occurring_features
from labelfield.models.mlgpf.label_linear import LabelLinear
from labelfield.models.mlgpf.spec import Spec, build
from labelfield.models.mlgpf.start import start


@pytest.fixture(scope="module")
def data():
    return synth.make_multilabel(120, 60, 40, seed=1)


def make(data, kind="point", dtype=torch.float32):
    pattern = occurring_features(data.X, data.Y, 10**6)
    process = LabelLinear(40, 60, pattern.features.size, kind, 1.5)
    process.fill(pattern)
    with torch.no_grad():
        process.weights.normal_(generator=torch.Generator().manual_seed(0))
    return process.to(dtype)


def dense(process, values):
    W = torch.zeros(60, 40, dtype=values.dtype)
    pointers, features = process.pointers, process.features.long()
    for k in range(40):
        part = slice(int(pointers[k]), int(pointers[k + 1]))
        W[features[part], k] = values[part]
    return W


@pytest.mark.parametrize("labels", [None, slice(3, 17), torch.tensor([5, 2, 39, 7])])
@pytest.mark.parametrize("width", [5 << 16, 60])
def test_it_is_the_product_with_its_weights(labels, width, data, monkeypatch):
    monkeypatch.setattr("labelfield.models.mlgpf.label_linear._SCRATCH", {"cpu": width})
    process, X = make(data, "mean_field"), Batch.gather(data, slice(0, 30)).X
    part = process.select(labels)
    mean, var = part.means(X), part.variances(X)
    chosen = slice(None) if labels is None else labels
    x = X.to_dense()
    torch.testing.assert_close(mean, (x @ dense(process, process.weights))[:, chosen], rtol=1e-4, atol=1e-5)
    expected = (x.square() @ dense(process, process.log_var.exp()))[:, chosen]
    torch.testing.assert_close(var, expected, rtol=1e-4, atol=1e-6)


def test_gradients(data):
    process = make(data, "mean_field", torch.float64)
    X = Batch.gather(data, slice(0, 4)).X.to(torch.float64)
    labels = slice(5, 9)

    def value(weights, log_var, log_scale):
        for name, tensor in (("weights", weights), ("log_var", log_var), ("log_scale", log_scale)):
            delattr(process, name)
            setattr(process, name, tensor)
        part = process.select(labels)
        mean, var = part.means(X), part.variances(X)
        return mean.sin().sum() + var.sum() + process.select().kl()

    start = [process.weights, process.log_var, process.log_scale]
    inputs = [tensor.detach().clone().requires_grad_() for tensor in start]
    assert torch.autograd.gradcheck(value, inputs, fast_mode=True)


def test_labels_by_number_have_the_gradient_of_a_slice(data):
    process, X = make(data, "mean_field"), Batch.gather(data, slice(0, 20)).X
    found = []
    for labels in (slice(5, 9), torch.arange(5, 9)):
        process.zero_grad()
        part = process.select(labels)
        mean, var = part.means(X), part.variances(X)
        (mean.sin().sum() + var.sum() + part.kl(torch.arange(4.0))).backward()
        found.append([p.grad.to_dense() for p in (process.weights, process.log_var, process.log_scale)])
        assert process.weights.grad.is_sparse == isinstance(labels, torch.Tensor)
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)


def test_its_divergence(data):
    process = make(data, "mean_field")
    q = torch.distributions.Normal(process.weights, (0.5 * process.log_var).exp())
    p = torch.distributions.Normal(0.0, process.log_scale.exp())
    expected = torch.distributions.kl_divergence(q, p).double().sum()
    torch.testing.assert_close(process.select().kl(), expected, rtol=1e-5, atol=0)
    point = make(data)
    expected = 0.5 * point.weights.double().square().sum() / 1.5**2
    torch.testing.assert_close(point.select().kl(), expected, rtol=1e-5, atol=0)


@pytest.mark.parametrize("kind", ["point", "mean_field"])
def test_sampled_negatives_stay_unbiased(kind, data):
    """The bound of a model with linear processes of labels, from some labels, on average that from all."""
    pattern = occurring_features(data.X, data.Y, 10**6)
    spec = Spec(60, 40, n_latent=4, n_inducing=10, label_linear=kind, n_label_linear=pattern.features.size)
    model = build(spec)
    model.label_linear.fill(pattern)
    start(model, spec, data.X, data.Y, seed=0)
    torch.nn.init.normal_(model.label_linear.weights, generator=torch.Generator().manual_seed(1))
    batch = Batch.gather(data, slice(0, 5))
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        exact = model.elbo(batch.X, batch.Y, 120).bound().item()
        values = [
            model.elbo(batch.X, batch.Y, 120, n_negatives=3, generator=generator).bound().item() for _ in range(400)
        ]
    assert abs(np.mean(values) - exact) < 4 * np.std(values) / np.sqrt(400)


def test_pruning_changes_no_utility_by_more_than_it_may(data):
    process = make(data)
    X = Batch.gather(data, slice(0, 50)).X
    norms = X.to_dense().norm(dim=1, keepdim=True)
    before = process.select().means(X) / norms
    for tolerance in (0.0, 0.5, 2.0):
        pruned = process.pruned(tolerance)
        assert (pruned.select().means(X) / norms - before).abs().max() <= tolerance + 1e-5
        dropped = dense(process, process.weights) - dense(pruned, pruned.weights)
        assert dropped.norm(dim=0).max() <= tolerance
        assert pruned.weights.numel() < process.weights.numel() or tolerance == 0
        # Nothing more could be dropped.
        left = dense(pruned, pruned.weights).abs()
        smallest = left.masked_fill(left == 0, torch.inf).amin(0)
        assert (dropped.norm(dim=0).square() + smallest.square() > tolerance**2).all()


def test_weights_of_held_out_rows_wait(data):
    """Weights of features that occur only in held-out rows learn nothing until these rows join, for calibration's
    sake."""
    pattern = occurring_features(data.X, data.Y, 10**6, np.arange(100, 120))
    waiting = pattern.waiting
    kept = data.take(slice(0, 100))
    seen = dense_pattern(occurring_features(kept.X, kept.Y, 10**6))
    label = np.repeat(np.arange(40), np.diff(pattern.pointers))
    np.testing.assert_array_equal(waiting, ~seen[label, pattern.features])
    process = LabelLinear(40, 60, pattern.features.size, "point", 1.0)
    process.fill(pattern)
    X = Batch.gather(data, slice(None)).X
    process.select().means(X).sum().backward()
    assert not process.weights.grad[torch.from_numpy(waiting)].any()
    assert process.weights.grad[torch.from_numpy(~waiting)].all()
    unsure = make(data, "mean_field")
    unsure.get_buffer("waiting").copy_(torch.from_numpy(waiting))
    part, seen_by_all = unsure.select(), make(data, "mean_field").select()
    silent = torch.from_numpy(dense_pattern(pattern) & ~seen).T.float()
    gap = seen_by_all.variances(X) - part.variances(X)
    torch.testing.assert_close(gap, X.to_dense().square() @ (silent * 0.1**2), rtol=1e-3, atol=1e-7)
    assert part.kl() < seen_by_all.kl()
    process.release()
    process.weights.grad = None
    process.select().means(X).sum().backward()
    assert process.weights.grad.all()


def dense_pattern(pattern):
    result = np.zeros((40, 60), bool)
    result[np.repeat(np.arange(40), np.diff(pattern.pointers)), pattern.features] = True
    return result
