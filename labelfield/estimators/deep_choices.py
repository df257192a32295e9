"""What is decided about a deep kernel model from its options and the rows, or refused."""

from __future__ import annotations

from typing import Any

from scipy import sparse
from torch import nn

from labelfield.errors import DataError
from labelfield.estimators.inputs import require_one_class
from labelfield.estimators.options import given
from labelfield.models.build_deep import (
    MOST_DIMENSIONS,
    DeepSpec,
)
from labelfield.models.defaults import DeepPlan

__all__ = ["choose_subsets", "is_dense", "n_dimensions", "n_weights", "require_dense", "require_labels", "stage_epochs"]

# A dense network is given rows this wide in batches that are made dense; wider ones need one that takes sparse rows.
_MOST_DENSE = 8192


def require_labels(Y: sparse.csr_array, likelihood: str) -> None:
    """There must be labels; for a softmax two classes at least, and one in each row."""
    if Y.shape[1] == 0:
        raise DataError("Y has no labels", expected="at least one")
    if likelihood != "softmax":
        return
    require_one_class(Y, "Use likelihood='bernoulli'.")
    if Y.shape[1] < 2:
        raise DataError("y has one class", expected="at least two classes", fix="Check the labels.")


def is_dense(X: sparse.csr_array) -> bool:
    """Whether rows are dense in fact, in whatever form they came: an eighth of their numbers at least is not 0."""
    return bool(8 * X.nnz >= X.shape[0] * X.shape[1])


def require_dense(network: str, X: sparse.csr_array) -> None:
    """Wide sparse rows are not for a network of dense rows, which would make them dense."""
    n_features = X.shape[1]
    if n_features > _MOST_DENSE and not is_dense(X):
        whose = "your network takes" if network == "own" else f"network={network!r} takes"
        fix = "set takes_sparse = True on one that takes sparse CSR tensors, or " if network == "own" else ""
        raise DataError(
            f"sparse rows of {n_features} features, and {whose} dense rows",
            expected=f"at most {_MOST_DENSE} for a network of dense rows",
            fix=f"For sparse rows {fix}use network='bag'.",
        )


def stage_epochs(option: Any, chosen: DeepPlan) -> dict[str, int]:
    """Epochs of each stage; not all may be left out."""
    epochs = {
        "network": given(option.network_epochs, chosen.network_epochs),
        "processes": given(option.process_epochs, chosen.process_epochs),
        "joint": given(option.max_epochs, chosen.max_epochs),
    }
    if not any(epochs.values()):
        raise ValueError("network_epochs, process_epochs and max_epochs are all 0; expected something to train")
    return epochs


def n_dimensions(option: Any) -> int:
    """How many features a process is on, as far as that can be told; what is wrong with subsets is said later."""
    try:
        return min(max(len(option.subsets[0]), 1), MOST_DIMENSIONS)
    except (TypeError, IndexError, KeyError):
        return int(option.subset_size)


def choose_subsets(option: Any, chosen: DeepPlan, n_outputs: int, is_own: bool) -> tuple[tuple[int, ...], ...]:
    """Which features each process is on: as the user says, or one after the other."""
    size = option.subset_size
    if option.subsets is not None:
        subsets = option.subsets
        if not are_subsets(subsets):
            raise ValueError(f"subsets={subsets!r}; expected a list for each process of the numbers of its features")
        if option.n_processes is not None and option.n_processes != len(subsets):
            raise ValueError(f"n_processes={option.n_processes} with {len(subsets)} subsets; expected as many")
        return tuple(tuple(subset) for subset in subsets)
    n_processes = given(option.n_processes, n_outputs // size if is_own and n_outputs >= size else chosen.n_processes)
    if is_own and n_processes * size != n_outputs:
        raise ValueError(
            f"the network gives {n_outputs} features; {n_processes} processes on {size} each need "
            f"{n_processes * size}. Change n_processes, subset_size or the network's last layer"
        )
    return tuple(tuple(range(j * size, (j + 1) * size)) for j in range(n_processes))


def are_subsets(subsets: Any) -> bool:
    """Whether they are lists of numbers from 0 on; what else is wrong with them, the spec says."""
    if not isinstance(subsets, list | tuple) or not subsets:
        return False
    if not all(isinstance(subset, list | tuple) and subset for subset in subsets):
        return False
    return all(type(feature) is int and feature >= 0 for subset in subsets for feature in subset)


def n_weights(spec: DeepSpec, network: nn.Module | None) -> int:
    """Numbers in the network, built in or the user's own."""
    if spec.network is not None:
        return spec.network.n_weights
    assert network is not None
    return sum(weight.numel() for weight in network.parameters())
