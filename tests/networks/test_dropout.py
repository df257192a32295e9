"""Dropout leaves means as they are, draws the same masks from the same seed, and ends with training."""

import pickle
from copy import deepcopy

import pytest
import torch

from labelfield.networks import MLP, BagMLP, Dropout, NetworkSpec, build_network, draw_dropout_from


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_the_mean_is_kept(p):
    """Within five standard errors of the mean of n numbers that are 1 / (1 - p) with probability 1 - p, and 0
    otherwise."""
    dropout, n = Dropout(p), 100_000
    draw_dropout_from(dropout, torch.Generator().manual_seed(0))
    result = dropout(torch.ones(n, dtype=torch.float64))
    assert result.unique().tolist() == pytest.approx([0, 1 / (1 - p)])
    assert abs(result.mean() - 1) < 5 * (p / (1 - p) / n) ** 0.5


def test_a_seed_is_a_mask():
    network, X = MLP(20, (30, 30), 4, dropout=0.5), torch.ones(5, 20)
    network.start(torch.Generator().manual_seed(0))
    before = torch.get_rng_state()

    def outputs(seed):
        draw_dropout_from(network, torch.Generator().manual_seed(seed))
        return network(X), network(X)

    first, second = outputs(1)
    again = outputs(1)
    assert torch.equal(first, again[0])
    assert torch.equal(second, again[1])
    assert not torch.equal(first, second)
    assert not torch.equal(first, outputs(2)[0])
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("name", ["mlp", "bag", "cnn"])
def test_without_training_nothing_is_dropped(name):
    networks = []
    for p in (0.0, 0.5):
        network = build_network(NetworkSpec(name, 36, 3, (50, 50), channels=(2,), image_shape=(1, 6, 6), dropout=p))
        network.start(torch.Generator().manual_seed(0))
        networks.append(network)
    X = torch.ones(2, 36)
    without, dropping = networks
    draw_dropout_from(dropping, torch.Generator().manual_seed(0))
    assert not torch.equal(dropping(X), without(X))
    assert torch.equal(dropping.eval()(X), without(X))
    assert torch.equal(dropping(X), without.eval()(X))


def test_gradients_pass_what_was_kept():
    dropout, x = Dropout(0.5), torch.ones(100, requires_grad=True)
    draw_dropout_from(dropout, torch.Generator().manual_seed(0))
    result = dropout(x)
    result.sum().backward()
    assert torch.equal(x.grad, result.detach())


def test_unseeded_dropout_says_so():
    network = BagMLP(4, (3,), 2, dropout=0.5)
    with pytest.raises(RuntimeError, match="call draw_dropout_from first"):
        network(torch.ones(1, 4))


@pytest.mark.parametrize("copied", [deepcopy, lambda module: pickle.loads(pickle.dumps(module))])
def test_a_copy_is_seeded_anew(copied):
    dropout = Dropout(0.5)
    draw_dropout_from(dropout, torch.Generator().manual_seed(0))
    again = copied(dropout)
    assert dropout.generator is not None
    assert (again.p, again.generator) == (0.5, None)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
def test_a_gpu_draws_its_own_masks():
    dropout, x = Dropout(0.5), torch.ones(100, device="cuda")
    masks = []
    for seed in (0, 0, 1):
        draw_dropout_from(dropout, torch.Generator(x.device).manual_seed(seed))
        masks.append(dropout(x))
    assert torch.equal(masks[0], masks[1])
    assert not torch.equal(masks[0], masks[2])
    assert pickle.loads(pickle.dumps(dropout)).generator is None
