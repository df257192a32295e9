"""Every network equals its torch counterpart, reads sparse rows like dense ones, and starts from its seed."""

import subprocess
import sys
from inspect import getmembers, isclass

import pytest
import torch
from torch import nn

import labelfield.networks
from labelfield.inference.adam import RowAdam
from labelfield.linalg.rows import gather
from labelfield.networks import CNN, MLP, BagMLP, Network, NetworkSpec, build_network

B, D, Q = 6, 12, 3
SPECS = {
    MLP: NetworkSpec("mlp", D, Q, (8, 5)),
    BagMLP: NetworkSpec("bag", D, Q, (8, 5)),
    CNN: NetworkSpec("cnn", 2 * 6 * 9, Q, (7,), channels=(4, 3), image_shape=(2, 6, 9)),
}
needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
any_spec = pytest.mark.parametrize("spec", SPECS.values(), ids=lambda spec: spec.name)


def started(spec, seed=0):
    """A network that has biases, in double precision."""
    network = build_network(spec).double()
    generator = torch.Generator().manual_seed(seed)
    network.start(generator)
    with torch.no_grad():
        for parameter in network.parameters():
            if parameter.dim() == 1:
                parameter.normal_(0, 0.1, generator=generator)
    return network


def some_rows(n_rows, n_features, seed=0):
    return torch.randn(n_rows, n_features, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def sparse_rows():
    """Dense rows, some of them empty, whose first and last features never occur, and the same as a CSR tensor."""
    dense = some_rows(B, D)
    dense[torch.rand(B, D, generator=torch.Generator().manual_seed(1)) < 0.6] = 0
    dense[[0, 3]], dense[:, [0, -1]] = 0, 0
    return dense, dense.to_sparse_csr()


def padded(X, n_more):
    """The same rows with some entries too many, of value 0, in the last one."""
    pointers, columns = X.crow_indices(), X.col_indices().int()
    return gather(pointers, columns, X.values(), torch.arange(X.shape[0]), columns.numel() + n_more, X.shape[1])


def linear(layer):
    result = nn.Linear(*layer.W.shape, dtype=layer.W.dtype)
    result.load_state_dict({"weight": layer.W.detach().T, "bias": layer.b.detach()})
    return result


def convolution(layer):
    n_outputs, n_inputs, *sides = layer.W.shape
    result = nn.Conv2d(n_inputs, n_outputs, sides, padding="same", dtype=layer.W.dtype)
    result.load_state_dict({"weight": layer.W.detach(), "bias": layer.b.detach()})
    return result


def torch_mlp(mlp):
    return nn.Sequential(*(part for layer in mlp.hidden for part in (linear(layer), nn.ReLU())), linear(mlp.last))


def with_gradients(network, X):
    """The outputs, and the gradients of an uneven sum of them, made dense."""
    network.zero_grad()
    result = network(X)
    (result * some_rows(*result.shape, seed=5).to(result.device)).sum().backward()
    gradients = [parameter.grad for parameter in network.parameters()]
    return result.detach(), [gradient.to_dense() if gradient.is_sparse else gradient for gradient in gradients]


def test_every_network_is_tested_here():
    found = {value for _, value in getmembers(labelfield.networks, isclass) if issubclass(value, Network)}
    assert found - {Network} == set(SPECS)
    assert all(type(build_network(spec)) is network for network, spec in SPECS.items())


@pytest.mark.parametrize("hidden", [(), (8,), (8, 5, 4)])
def test_mlp_is_torchs(hidden):
    network, X = started(NetworkSpec("mlp", D, Q, hidden)), some_rows(B, D)
    theirs = torch_mlp(network)
    torch.testing.assert_close(network(X), theirs(X))


def test_cnn_is_torchs():
    spec = SPECS[CNN]
    network, X = started(spec), some_rows(B, spec.n_features)
    first, second = (convolution(layer) for layer in network.convolutions)
    theirs = nn.Sequential(
        nn.Unflatten(1, spec.image_shape),
        *(first, nn.ReLU(), nn.MaxPool2d(2)),
        *(second, nn.ReLU(), nn.MaxPool2d(2)),
        nn.Flatten(),
        *torch_mlp(network.rest),
    )
    torch.testing.assert_close(network(X), theirs(X))


def test_images_may_be_too_small():
    assert CNN((1, 4, 9), (2, 3), (), Q)(torch.zeros(B, 36)).shape == (B, Q)
    with pytest.raises(ValueError, match=r"image_shape=.*expected sides of at least 8"):
        CNN((1, 4, 9), (2, 3, 4), (), Q)


@pytest.mark.parametrize("is_large", [False, True])
@pytest.mark.parametrize("make", ["as they are", "one row", "an empty row", "no rows with entries", "padded", "dense"])
def test_sparse_rows_are_read_like_dense_ones(make, is_large):
    dense, X = sparse_rows()
    if make in ("one row", "an empty row"):
        dense = dense[1:2] if make == "one row" else dense[:1]
    elif make == "no rows with entries":
        dense = torch.zeros_like(dense)
    X = {"padded": lambda: padded(X, 4), "dense": lambda: dense}.get(make, dense.to_sparse_csr)()
    mlp, bag = (started(SPECS[network]) for network in (MLP, BagMLP))
    bag.is_large = is_large
    torch.testing.assert_close(with_gradients(bag, X), with_gradients(mlp, dense))
    assert bag.bag.W.grad.is_sparse == (is_large and make != "dense")
    if bag.bag.W.grad.is_sparse:
        occurring = dense.any(0).nonzero().squeeze(1)
        assert torch.equal(bag.bag.W.grad._indices()[0], occurring)


@pytest.mark.parametrize("is_large", [False, True])
def test_gradient_of_embeddings(is_large):
    bag, (_, X) = started(SPECS[BagMLP]), sparse_rows()
    bag.is_large = is_large

    def features(W):
        # Sparse gradients end at leaves; this one goes on as a dense one.
        return torch.func.functional_call(bag, {"bag.W": _Dense.apply(W)}, X)

    assert torch.autograd.gradcheck(features, bag.bag.W.detach().clone().requires_grad_())


class _Dense(torch.autograd.Function):
    @staticmethod
    def forward(ctx, W):
        return W.clone()

    @staticmethod
    def backward(ctx, gradient):
        return gradient.to_dense() if gradient.is_sparse else gradient


def test_features_that_do_not_occur_stay():
    bag = BagMLP(1 << 20, (8,), Q)
    assert bag.is_large
    assert not bag.is_capturable
    entries = [0, 2, 4], [5, 900, 5, 1 << 19], [1.0, 2.0, 3.0, 4.0]
    X = torch.sparse_csr_tensor(*entries, size=(2, 1 << 20), check_invariants=True)
    with torch.no_grad():
        bag.bag.b.fill_(1)
        bag.rest.last.W.fill_(1)
    adam = RowAdam(bag.parameters(), lr=0.1)
    bag(X).sum().backward()
    adam.update(torch.tensor(0.0))
    assert bag.bag.W.detach().any(1).nonzero().squeeze(1).tolist() == [5, 900, 1 << 19]


@any_spec
def test_a_seed_is_a_start(spec):
    first, again, other = (build_network(spec) for _ in range(3))
    before = torch.get_rng_state()
    for network, seed in ((first, 3), (again, 3), (other, 4)):
        network.start(torch.Generator().manual_seed(seed))
    assert torch.equal(torch.get_rng_state(), before)
    assert all(torch.equal(*pair) for pair in zip(first.parameters(), again.parameters(), strict=True))
    for one, two in zip(first.parameters(), other.parameters(), strict=True):
        assert torch.equal(one, two) == (one.dim() == 1)


def test_features_start_at_the_size_of_rows():
    """He: ReLUs halve the squares that a gain of 2 doubled, and the last layer has gain 1. By five standard errors."""
    X, squares = some_rows(1, D), []
    for seed in range(300):
        network = build_network(NetworkSpec("mlp", D, Q, (64, 64))).double()
        network.start(torch.Generator().manual_seed(seed))
        squares.append(network(X).square().mean().item() / X.square().mean().item())
    squares = torch.tensor(squares)
    assert abs(squares.mean() - 1) < 5 * squares.std() / len(squares) ** 0.5


@any_spec
def test_weights_are_counted(spec):
    assert spec.n_weights == sum(parameter.numel() for parameter in build_network(spec).parameters())


@needs_cuda
@pytest.mark.parametrize("is_large", [False, True])
@any_spec
def test_devices_agree(spec, is_large):
    here = started(spec)
    there = started(spec).cuda()
    here.is_large = there.is_large = is_large
    X = some_rows(B, spec.n_features)
    for rows in [X, *([sparse_rows()[1], padded(sparse_rows()[1], 4)] if here.takes_sparse else [])]:
        results = with_gradients(there, rows.cuda())
        torch.testing.assert_close([part.cpu() for part in results[1]], with_gradients(here, rows)[1])
        torch.testing.assert_close(results[0].cpu(), here(rows))


@needs_cuda
def test_a_gpu_starts_like_a_cpu():
    here, there = (MLP(D, (4,), Q).to(device) for device in ("cpu", "cuda"))
    for network in (here, there):
        network.start(torch.Generator().manual_seed(0))
    assert torch.equal(here.last.W, there.last.W.cpu())


@pytest.mark.slow  # tests/estimators/test_mlgpf.py asks the same of a model
def test_neither_building_nor_loading_imports_the_compiler():
    """A network that is loaded is made without memory and given its arrays."""
    code = """
import sys, torch
from labelfield.networks import NetworkSpec, build_network
for spec in (NetworkSpec("mlp", 36, 3, (8,)), NetworkSpec("bag", 36, 3, (8,)),
             NetworkSpec("cnn", 36, 3, (8,), channels=(2,), image_shape=(1, 6, 6))):
    network = build_network(spec)
    network.start(torch.Generator().manual_seed(0))
    with torch.device("meta"):
        again = build_network(spec)
    assert all(parameter.is_meta for parameter in again.parameters())
    again.load_state_dict(network.state_dict(), assign=True)
    X = torch.ones(2, 36)
    assert torch.equal(again(X), network(X)) and network(X).any()
assert "torch._dynamo" not in sys.modules
"""
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True)
