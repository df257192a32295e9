"""The optimum of max-margin machines, for a block of labels at a time (see `labelfield.models.linear.model`).

Both solvers go over the rows again and again and minimise the dual over the α of some rows, with w = Σ_i y_i α_i x_i up
to date. The compiled one takes one row at a time (`labelfield.compiled.descent`); two of three passes go over the rows
with an α above 0 alone, since most rows are beyond the margin of all labels of a block, and stay there. The plain one,
for GPUs and where numba is missing, takes a batch of rows at a time and improves their α by accelerated projected
gradients through the Gram matrix of the batch. Only features that occur in a row where a label of the block holds have
weights: all others can only be evidence against all of these labels, which the margin has little use for. Both solvers
put a constant before the features, whose weight moves the intercept.

Rows of a fold are scored by weights that have not seen them: their α are set to 0, and a few more passes over the other
rows correct the rest. Machines of all rows are surer of new rows than those are, and what is learned from the scores of
folds, probabilities and promises, would not hold for them. Where every row is in a fold, the weights are therefore the
mean of those beside each fold: on average the score of a new row is then distributed as that of a held-out one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor

from labelfield.cluster import Cluster
from labelfield.compiled import has_numba
from labelfield.csr import gather_rows
from labelfield.inference.label_groups import similar_labels
from labelfield.inference.margin_rows import BlockRows, MarginRows
from labelfield.linalg.rows import dot, some_rows, to_tensor, transposed

# Passes over the other rows, after the rows of a fold were taken out.
FOLD_PASSES = 3
# Squared norm up to which rows count as of norm 1, and how many times as many passes others get.
_UNIT, _SLOWER = 1.01, 5
# The plain solver: rows per batch at the most, batches at the least unless rows are very few, and steps on each batch.
# Larger batches take less time on a GPU, but more passes.
_BATCH_ROWS = {"cpu": 64, "cuda": 256}
_LEAST_BATCHES = 24
_BATCH_STEPS = {"cpu": 24, "cuda": 12}
# Steps of the power method, and by how much its result is enlarged: it comes from below.
_POWER_STEPS, _LARGER = 12, 1.05
# Rows times features up to which a GPU is given batches as dense arrays: of one batch, and of all, which are kept.
_DENSE_ENTRIES, _MOST_DENSE_ENTRIES = 1 << 23, 1 << 30
# Labels per block of the compiled solver: the weights of a feature for all of them fill a few registers.
_BLOCK_LABELS = 64
# What the arrays of a block may take with the plain solver, and how many bytes a row or feature takes per label.
_BLOCK_BYTES, _BYTES_EACH = {"cpu": 1 << 28, "cuda": 1 << 33}, 32


class Problem(NamedTuple):
    """The cost C of rows beyond the margin, how many passes at the most, when to stop, and a seed.

    Passes end when none of them changes a gradient by more than `tol`. The compiled solver goes over all rows in one of
    `whole_every` passes, and in the others over those with an α above 0.
    """

    cost: float
    n_passes: int
    tol: float = 0.1
    seed: int = 0
    whole_every: int = 3


class Solved(NamedTuple):
    """Weights W (features, labels) of a block of labels, by how much their intercepts differ from -1, the dual
    objective, and scores of the rows of all folds."""

    features: NDArray[np.int32]
    W: Tensor
    intercepts: Tensor
    objective: float
    held_out: NDArray[np.float32]


def _passes(rows: MarginRows, problem: Problem) -> tuple[int, int]:
    """Return the largest number of passes, on all rows and besides a fold.

    Rows of norm 1 are done after a few; others, such as measurements, need many, which are cheap where such data are
    small.
    """
    if rows.largest <= _UNIT:
        return problem.n_passes, FOLD_PASSES
    return _SLOWER * problem.n_passes, _SLOWER * problem.n_passes


def label_blocks(X: sparse.csr_array, Y: sparse.csr_array, device: torch.device, seed: int) -> list[NDArray[np.int64]]:
    """Return the labels that hold anywhere in blocks of similar ones, so that those of a block share features."""
    size = _BLOCK_LABELS
    if not is_compiled(device):
        size = max(1, _BLOCK_BYTES[device.type] // (_BYTES_EACH * max(X.shape)))
    return similar_labels(X, Y, size, seed)


def from_first(cluster: Cluster, produce: Callable[[], list[NDArray[np.int64]]]) -> list[NDArray[np.int64]]:
    """Return on all ranks the groups of labels that the first one has found: others may round differently."""

    def packed() -> dict[str, NDArray[Any]]:
        groups = produce()
        sizes = np.array([group.size for group in groups], np.int64)
        return {"sizes": sizes, "labels": np.concatenate([np.zeros(0, np.int64), *groups])}

    found = cluster.share("the search for similar labels", packed)
    return np.split(found["labels"], np.cumsum(found["sizes"]))[:-1]


def solve_compiled(
    rows: MarginRows, labels: NDArray[np.int64], problem: Problem, taking_part: NDArray[np.integer] | None = None
) -> Solved:
    """Return the weights of a block of labels, by steps on one row at a time. Threads can do this side by side."""
    from labelfield.compiled.descent import dense_scores, forget, sweep

    block, n_rows, ridge = BlockRows(rows, labels), rows.X.shape[0], 0.5 / problem.cost
    W = np.zeros((1 + block.features.size, labels.size), np.float32)
    every, rng = _among(n_rows, taking_part), np.random.default_rng((problem.seed, int(labels[0])))

    def improve(part_of: BlockRows, W: NDArray[np.float32], chosen: NDArray[np.bool_], n_passes: int) -> None:
        for number in range(n_passes):
            is_whole = number % problem.whole_every == 0
            parts = part_of.each(chosen if is_whole else chosen & part_of.support(), rng)
            changes = [sweep(*own.csr, own.squares, own.signs, W, own.alpha, own.order, ridge) for own in parts]
            if is_whole and max(changes, default=0.0) < problem.tol:
                break

    n_passes, n_beside = _passes(rows, problem)
    improve(block, W, every, n_passes)
    gain, loss = block.sums()
    objective = 2 * gain - 0.5 * float(np.vdot(W, W)) - 0.5 * ridge * loss
    found = [np.zeros((0, labels.size), np.float32)]
    beside = np.zeros_like(W) if rows.is_covered else W
    for number, fold in enumerate(rows.folds, 1):
        others, apart = W.copy(), block if number == len(rows.folds) else block.fork()
        is_held = _among(n_rows, fold)
        for own in apart.each(is_held):
            forget(*own.csr, own.signs, others, own.alpha, own.order)
        improve(apart, others, every & ~is_held, n_beside)
        for own in apart.each(is_held):
            found.append(np.empty((own.order.size, labels.size), np.float32))
            dense_scores(*own.csr, others, own.order, found[-1])
        if rows.is_covered:
            beside += others / len(rows.folds)
    return _solved(rows, block.features, torch.from_numpy(beside), objective, found)


def _among(n_rows: int, rows: NDArray[np.integer] | None) -> NDArray[np.bool_]:
    """Return which rows are among these; None are all."""
    found = np.full(n_rows, rows is None)
    if rows is not None:
        found[rows] = True
    return found


def _solved(
    rows: MarginRows, features: NDArray[np.int32], W: Tensor, objective: float, held_out: list[NDArray[np.float32]]
) -> Solved:
    """Return what was solved, with the weight of the constant apart."""
    return Solved(features, W[1:], rows.deviation * W[0], objective, np.concatenate(held_out))


def is_compiled(device: torch.device) -> bool:
    """Return whether blocks on this device are solved by the compiled solver, which threads can run side by side."""
    return device.type == "cpu" and has_numba()


def solve(
    rows: MarginRows,
    labels: NDArray[np.int64],
    problem: Problem,
    device: torch.device,
    taking_part: NDArray[np.integer] | None = None,
) -> Solved:
    """Return the weights of a block of labels by the solver that suits the device, from all rows or those taking part.

    The rows of folds are scored whether or not they take part.
    """
    if taking_part is not None:
        # Few rows of many: all others are left out at once, instead of being walked over.
        rows, taking_part = rows.part(labels, taking_part)
        labels = np.arange(labels.size)
    if is_compiled(device):
        return solve_compiled(rows, labels, problem, taking_part)
    return solve_plain(rows, labels, problem, device, taking_part)


class _Batch(NamedTuple):
    """A batch of rows: which, their features and these turned around, the matrix G of the dual, and an eigenvalue.

    That is the largest of the Gram matrix of the rows. G is the Gram matrix and the ridge, over the largest eigenvalue
    of both. On a GPU it is in bfloat16: it only carries changes of α from one step to the next, so that rounding slows
    steps down a little, but does not move the optimum.
    """

    rows: Tensor
    X: Tensor
    Xt: Tensor
    gram: Tensor
    largest: Tensor


def solve_plain(
    rows: MarginRows,
    labels: NDArray[np.int64],
    problem: Problem,
    device: torch.device,
    taking_part: NDArray[np.integer] | None = None,
) -> Solved:
    """Return the weights of a block of labels, by steps on a batch of rows at a time."""
    positive, place = (torch.from_numpy(part).to(device) for part in rows.positives(labels))
    is_used = np.zeros(rows.X.shape[1], np.bool_)
    is_used[gather_rows(rows.X, positive.cpu().numpy()).indices] = True
    features = np.flatnonzero(is_used).astype(np.int32)
    n_rows = rows.X.shape[0]
    constant = sparse.csr_array(np.full((n_rows, 1), rows.deviation, np.float32))
    X = sparse.csr_array(sparse.hstack([constant, rows.X[:, features]], format="csr"))
    rng = np.random.default_rng((problem.seed, int(labels[0])))
    ridge = 0.5 / problem.cost
    batches = list(_batches(X, np.arange(n_rows) if taking_part is None else taking_part, rng, device, ridge))
    signs = torch.full((n_rows, labels.size), -1.0, device=device)
    signs[positive, place] = 1
    W, alpha = torch.zeros(1 + features.size, labels.size, device=device), torch.zeros_like(signs)
    steps, (n_passes, n_beside) = _Steps(len(batches[0].rows) if batches else 0), _passes(rows, problem)
    for _ in range(n_passes if batches else 0):
        worst = [_improve(batches[at], signs, W, alpha, ridge, steps) for at in rng.permutation(len(batches))]
        if float(torch.stack(worst).max()) < problem.tol:
            break
    gain = 2 * alpha[positive, place].sum(dtype=torch.float64)
    objective = float(gain - 0.5 * W.double().square().sum() - 0.5 * ridge * alpha.double().square().sum())
    found, beside = [np.zeros((0, labels.size), np.float32)], torch.zeros_like(W)
    for fold in rows.folds:
        chosen = torch.from_numpy(fold).to(device)
        is_other = torch.ones(n_rows, 1, device=device)
        is_other[chosen] = 0
        theirs, own_rows = alpha * is_other, to_tensor(gather_rows(X, fold), device)
        own = W - dot(transposed(own_rows), alpha[chosen] * signs[chosen])
        for _ in range(n_beside):
            for at in rng.permutation(len(batches)):
                _improve(batches[at], signs, own, theirs, ridge, steps, is_other)
        found.append(dot(own_rows, own).cpu().numpy())
        beside += own / len(rows.folds)
    return _solved(rows, features, beside if rows.is_covered else W, objective, found)


def _batches(
    X: sparse.csr_array, rows: NDArray[np.integer], rng: np.random.Generator, device: torch.device, ridge: float
) -> Iterator[_Batch]:
    """Yield random batches of these rows."""
    order = rng.permutation(rows)
    size = min(_BATCH_ROWS[device.type], max(64, order.size // _LEAST_BATCHES))
    every, where = to_tensor(gather_rows(X, order), device), torch.from_numpy(order).to(device)
    is_dense = size * X.shape[1] <= _DENSE_ENTRIES and order.size * X.shape[1] <= _MOST_DENSE_ENTRIES
    for first in range(0, order.size, size):
        last = min(first + size, order.size)
        own: Any = some_rows(every, first, last)
        if device.type == "cuda" and is_dense:
            own = own.to_dense()
        turned = transposed(own)
        # A product of two sparse tensors has no fast path in torch: one of them becomes dense, a batch of rows at most.
        gram = dot(own, turned if turned.layout == torch.strided else turned.to_dense())
        largest = _largest_eigenvalue(gram)
        gram.diagonal().add_(ridge)
        gram /= largest + ridge
        yield _Batch(where[first:last], own, turned, gram.bfloat16() if device.type == "cuda" else gram, largest)


def _largest_eigenvalue(gram: Tensor) -> Tensor:
    """Return the largest eigenvalue of a matrix (B, B) of inner products, a little enlarged, by the power method."""
    vector = gram.new_ones(len(gram), 1)
    for _ in range(_POWER_STEPS):
        vector = gram @ vector
        vector /= vector.norm().clamp_min(1e-30)
    result: Tensor = _LARGER * (gram @ vector).norm()
    return result


class _Steps:
    """Accelerated projected gradient steps on the α of a batch.

    On a GPU those of batches of `n_rows` are recorded once, and then replayed: to launch them one by one takes several
    times as long as to carry them out.
    """

    def __init__(self, n_rows: int) -> None:
        self.n_rows, self.is_recordable = n_rows, True
        self.graph: Any = None  # a torch.cuda.CUDAGraph, untyped
        self.inputs: list[Tensor] = []
        self.result: Tensor | None = None

    def __call__(self, *inputs: Tensor) -> Tensor:
        """Return by how much to change β (B, K), given G (B, B), c, and its bounds (B, K): see `_descend`."""
        if inputs[0].device.type != "cuda" or len(inputs[0]) != self.n_rows or not self.is_recordable:
            return _descend(*inputs)
        if self.graph is None:
            result = _descend(*inputs)  # which also warms up what must not happen while it is recorded
            self._record(inputs)
            return result
        for own, given in zip(self.inputs, inputs, strict=True):
            own.copy_(given)
        self.graph.replay()
        assert self.result is not None
        return self.result

    def _record(self, inputs: tuple[Tensor, ...]) -> None:
        """Record the steps; where that fails, for want of memory say, they go on being launched one by one."""
        cuda: Any = torch.cuda  # untyped
        try:
            self.inputs, graph = [part.clone() for part in inputs], cuda.CUDAGraph()
            cuda.synchronize()
            # Not by torch.cuda.graph, which would first give all cached memory back to the device.
            with cuda.stream(cuda.Stream()):
                graph.capture_begin(capture_error_mode="thread_local")
                try:
                    self.result = _descend(*self.inputs)
                finally:
                    graph.capture_end()
            self.graph = graph
        except RuntimeError:
            self.inputs, self.result, self.is_recordable = [], None, False


def _descend(gram: Tensor, constant: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """Return the change δ between bounds that makes ½ δᵀGδ + cᵀδ small, if no eigenvalue of G is above 1.

    G may be rounded: it only carries changes from one step to the next.
    """
    ahead = last = torch.zeros_like(constant)
    momentum = 1.0
    for _ in range(_BATCH_STEPS[constant.device.type]):
        gradient = gram @ ahead.to(gram.dtype)
        new = torch.sub(ahead, constant).sub_(gradient).clamp_(low, high)
        before, momentum = momentum, 0.5 + (0.25 + momentum**2) ** 0.5
        last, ahead = new, torch.lerp(last, new, 1 + (before - 1) / momentum)
    return last


def _improve(
    batch: _Batch,
    signs: Tensor,
    W: Tensor,
    alpha: Tensor,
    ridge: float,
    steps: _Steps,
    is_open: Tensor | None = None,
) -> Tensor:
    """Improve the α of a batch, in place with W; rows that are not open keep theirs at 0. Return the largest change of
    a gradient."""
    # In terms of β = y α: the gradient by β is f - (1 + y) + β / 2C, and y β must not be negative.
    y, old = signs[batch.rows], alpha[batch.rows]
    start, rate = y * old, 1 / (batch.largest + ridge)
    constant = dot(batch.X, W).sub_(1 + y).add_(start, alpha=ridge).mul_(rate)
    low, high = torch.where(y > 0, -start, -torch.inf), torch.where(y > 0, torch.inf, -start)
    if is_open is not None:
        closed = is_open[batch.rows] == 0
        low, high = low.masked_fill_(closed, 0), high.masked_fill_(closed, 0)
    change = steps(batch.gram, constant, low, high)
    alpha[batch.rows] = (start + change).abs_()
    W += dot(batch.Xt, change)
    return change.abs().max() * (1 + ridge)
