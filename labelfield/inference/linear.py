"""Training linear machines: one block of labels after another, each to its optimum, and then what scores mean."""

import time
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from math import ceil
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from labelfield.csr import from_counts, gather_rows, row_of_entries
from labelfield.data import Dataset
from labelfield.errors import CannotAnswerError
from labelfield.inference.calibrating import N_RANKED, N_REMEMBERED, as_memory, by_rank, cross_fitted, holds
from labelfield.inference.checkpoint import Checkpoint
from labelfield.inference.fitting import Past
from labelfield.inference.log_odds import ScoredRows
from labelfield.inference.loop import Algorithm, Info, Loop
from labelfield.inference.margin import (
    FOLD_PASSES,
    MarginRows,
    Problem,
    Solved,
    is_compiled,
    label_blocks,
    similar_labels,
    solve,
)
from labelfield.inference.parallel import at_most_threads, single_threads
from labelfield.inference.run import Monitor, Run, Settings
from labelfield.linalg.rows import device_of
from labelfield.models.calibration import Calibration
from labelfield.models.linear.model import LinearMachines
from labelfield.models.linear.plan import TREE_COST, group_size, most_held_out
from labelfield.models.stack import Stack

NOT_IN_PARTS = "linear machines are solved on all rows at once and cannot be fitted in parts"
# By how much the score of a row of norm 1 may change when the smallest weights of a label are dropped.
_PRUNED = 0.05
# The same for the machines of label trees, which are many: a third of the weights, and the same scores on trial.
_TREE_PRUNED = 2.0
# With fewer rows, all of them are held out in turn.
_FEW_ROWS, _N_FOLDS = 5000, 5
# Passes that also a short time budget leaves.
_LEAST_PASSES = 2
# Blocks of labels per step, for any number of threads.
_BLOCKS_PER_STEP = 4


class Block(NamedTuple):
    """Labels that are solved together, in rows and labels of their own where these are groups, and the numbers of their
    machines. Machines within a group see the rows of the group alone."""

    rows: MarginRows
    labels: NDArray[np.int64]
    machines: NDArray[np.int64]
    cost: float
    tolerance: float
    taking_part: NDArray[np.int64] | None = None

    @property
    def work(self) -> float:
        """About how long a pass takes, relative to one over all rows."""
        return 1.0 if self.taking_part is None else self.taking_part.size / max(self.rows.X.shape[0], 1)


class Machines(NamedTuple):
    """The weights of some machines, one after another, how many each has, intercepts, scores of held-out rows."""

    labels: NDArray[np.int64]
    sizes: NDArray[np.int64]
    intercepts: NDArray[np.float32]
    features: NDArray[np.int32]
    weights: NDArray[np.float32]
    held_out: NDArray[np.float32]


def _machines(labels: NDArray[np.int64], solved: Solved, tolerance: float = _PRUNED) -> Machines:
    """Return the weights of a solved block by the numbers of its machines, without those that are too small to matter.

    All that are dropped from a machine together have a norm of `tolerance` at most, so that by the Cauchy-Schwarz
    inequality no score of a row of norm 1 changes by more.
    """
    order = np.argsort(solved.features)
    W = solved.W[torch.from_numpy(order).to(solved.W.device)].T.contiguous()  # features rise within each label
    label, place = (W.abs() > tolerance / max(W.shape[1], 1) ** 0.5).nonzero(as_tuple=True)
    weights, sizes = W[label, place].cpu().numpy(), torch.bincount(label, minlength=labels.size).cpu().numpy()
    features, intercepts = solved.features[order][place.cpu().numpy()], solved.intercepts.cpu().numpy()
    return Machines(labels, sizes, intercepts, features, weights, solved.held_out)


def _joined(parts: list[Machines], n_held_out: int) -> Machines:
    """Return the labels of several parts in one."""
    kinds = np.int64, np.int64, np.float32, np.int32, np.float32
    columns: Any = [np.concatenate([np.zeros(0, kind), *(part[at] for part in parts)]) for at, kind in enumerate(kinds)]
    scores = np.concatenate([np.zeros((n_held_out, 0), np.float32), *(part.held_out for part in parts)], 1)
    return Machines(columns[0], columns[1], columns[2], columns[3], columns[4], scores)


class Blocks(Algorithm[list[Machines]]):
    """Steps over a few blocks of labels, which threads solve side by side; the state is the machines so far.

    What a step does is the same for any number of threads, so that a run can be resumed with another.
    """

    def __init__(
        self,
        blocks: list[Block],
        n_threads: int,
        solve: Callable[[Block], Solved],
        n_rows: int,
        n_held_out: int,
    ) -> None:
        self.blocks, self.n_threads, self.solve = blocks, n_threads, solve
        self.n_rows, self.n_held_out = n_rows, n_held_out
        self.n_steps = max(1, ceil(len(blocks) / _BLOCKS_PER_STEP))

    def step(self, state: list[Machines], run: Run) -> tuple[list[Machines], Info]:
        some = self.blocks[run.step * _BLOCKS_PER_STEP :][:_BLOCKS_PER_STEP]
        with single_threads(self.n_threads) as pool:
            solved = list(pool.map(self.solve, some))
        found = [_machines(block.machines, one, block.tolerance) for block, one in zip(some, solved, strict=True)]
        # An epoch shows the mean over its steps, and the objective is the sum over all labels.
        bound = -sum(one.objective for one in solved) * self.n_steps / self.n_rows
        return [*state, *found], Info(bound, 1)

    def tensors(self, state: list[Machines]) -> dict[str, Tensor]:
        whole = _joined(state, self.n_held_out)._asdict()
        return {name: torch.from_numpy(np.ascontiguousarray(part)) for name, part in whole.items()}

    def restore(self, tensors: dict[str, Tensor]) -> list[Machines]:
        return [Machines(**{name: part.numpy() for name, part in tensors.items()})]


class _Pace:
    """Decides how many passes each block gets, so that all of them fit into a time budget."""

    def __init__(self, problem: Problem, budget: float | None, work: float, n_at_once: int, n_folds: int) -> None:
        self.problem, self.budget, self.work_left, self.n_at_once = problem, budget, work, n_at_once
        self.n_beside = FOLD_PASSES * n_folds
        self.started, self.spent, self.n_passes = time.perf_counter(), 0.0, 0.0

    def next(self) -> Problem:
        """Return the problem for the next block."""
        if self.budget is None or not self.n_passes:
            return self.problem
        left = self.budget - (time.perf_counter() - self.started)
        fitting = left * self.n_at_once / max(self.work_left, 1e-9) / (self.spent / self.n_passes) - self.n_beside
        n_passes = int(np.clip(fitting, _LEAST_PASSES, self.problem.n_passes))
        return self.problem._replace(n_passes=n_passes)

    def note(self, seconds: float, problem: Problem, work: float = 1.0) -> None:
        """Take note of a block of this much work that is done."""
        self.spent, self.n_passes = self.spent + seconds, self.n_passes + work * (problem.n_passes + self.n_beside)
        self.work_left -= work


class LinearTrainer:
    """Solves the machines of all labels and learns on held-out rows what their scores mean; then it calls `finish`."""

    def __init__(
        self, model: LinearMachines, settings: Settings, problem: Problem, finish: Callable[[], None] = lambda: None
    ) -> None:
        self.model, self.settings, self.problem, self.finish = model, settings, problem, finish

    def train(self, data: Dataset, monitor: Monitor) -> Run:
        saved, folds = Checkpoint.of(monitor), self.folds(data.n_rows)
        settings = replace(self.settings, time_budget=None)  # which shortens passes instead of leaving labels out
        run = Run() if saved is None else saved.run(settings)
        run.max_epochs = 1
        algorithm = self._algorithm(data, folds)
        loop: Any = Loop(lambda run: algorithm, run, settings, replace(monitor, validate=None))
        found = _joined(loop.drive([] if saved is None else saved.restore(algorithm.restore)), algorithm.n_held_out)
        self._hold(found, np.bincount(data.Y.indices, minlength=data.n_labels))
        if folds:
            with at_most_threads(1):
                run.memory = self._learn(found, data, folds)
        self.finish()
        if monitor.validate is not None:  # now that the model holds its weights
            run.history[-1] = replace(run.history[-1], scores=monitor.validate())
        return run

    def train_more(self, data: Dataset, past: Past) -> Run:
        raise CannotAnswerError(NOT_IN_PARTS)

    def stage_settings(self) -> dict[str, Settings]:
        return {"": self.settings}

    def n_whole_epochs(self) -> float:
        return 1.0

    def seconds_per_step(self, data: Dataset) -> float:
        """Return how long all labels take, by trying a pass on one block."""
        algorithm = self._algorithm(data, [], self.problem._replace(n_passes=1))
        if not algorithm.blocks:
            return 0.0
        first, work = algorithm.blocks[0], sum(block.work for block in algorithm.blocks)
        algorithm.solve(first._replace(labels=first.labels[:1]))  # compiles, or warms up
        started = time.perf_counter()
        algorithm.solve(first)
        n_passes = self.problem.n_passes + FOLD_PASSES * len(self.folds(data.n_rows))
        return (time.perf_counter() - started) * n_passes * work / algorithm.n_threads

    def fingerprint(self) -> tuple[Any, ...]:
        return self.problem, is_compiled(device_of(self.model))

    def folds(self, n_rows: int) -> list[NDArray[np.int64]]:
        """Return the rows of each fold; the first are those that every method holds out."""
        if not self.settings.held_out:
            return []
        first = self.settings.held_out_rows(n_rows)
        if n_rows > min(_FEW_ROWS, most_held_out(self.model.intercepts.numel())):
            return [first]
        others = np.random.default_rng(self.settings.seed).permutation(np.setdiff1d(np.arange(n_rows), first))
        return [first, *(np.sort(part) for part in np.array_split(others, _N_FOLDS - 1))]

    def _algorithm(self, data: Dataset, folds: list[NDArray[np.int64]], problem: Problem | None = None) -> Blocks:
        device, problem = device_of(self.model), problem or self.problem
        rows = MarginRows(data.X, data.Y, folds)
        tolerance = _PRUNED / max(1.0, float(np.sqrt(rows.squares.max(initial=0))))
        every = label_blocks(data.X, data.Y, device, self.settings.seed)
        blocks = [Block(rows, labels, labels, problem.cost, tolerance) for labels in every]
        n_before = (1 + len(self.model.groups)) * data.n_labels
        for number in range(len(self.model.groups)):
            blocks += self._tree(data, rows, number, n_before, _TREE_PRUNED / _PRUNED * tolerance)
            n_before = int(self.model.groups[number].max()) + 1
        n_at_once = torch.get_num_threads() if is_compiled(device) else 1
        work = sum(block.work for block in blocks)
        pace = _Pace(problem, self.settings.time_budget, work, n_at_once, len(folds))

        def timed(block: Block) -> Solved:
            own, started = pace.next()._replace(cost=block.cost), time.perf_counter()
            solved = solve(block.rows, block.labels, own, device, block.taking_part)
            pace.note(time.perf_counter() - started, own, block.work)
            return solved

        return Blocks(blocks, n_at_once, timed, data.n_rows, sum(fold.size for fold in folds))

    def _tree(self, data: Dataset, rows: MarginRows, number: int, n_before: int, tolerance: float) -> list[Block]:
        """Return the blocks of a label tree: those of its groups, and each group's labels on the rows of the group.

        The machines of groups are numbered from `n_before` on.
        """
        model, device = self.model, device_of(self.model)
        groups = similar_labels(data.X, data.Y, group_size(number), self.settings.seed + 1 + number)
        group_of = np.zeros(model.n_labels, np.int64)
        for place, labels in enumerate(groups):
            group_of[labels] = place
        model.groups[number] = torch.from_numpy(n_before + group_of)
        held = np.unique(row_of_entries(data.Y) * len(groups) + group_of[data.Y.indices])
        counts = np.bincount(held // len(groups), minlength=data.n_rows)
        held = from_counts(counts, (held % len(groups)).astype(np.int32), None, len(groups))
        own = MarginRows(data.X, held, rows.folds)
        every = label_blocks(data.X, held, device, self.settings.seed)
        blocks = [Block(own, labels, n_before + labels, TREE_COST, tolerance) for labels in every]
        for place, labels in enumerate(groups):
            machines, taking_part = (1 + number) * model.n_labels + labels, own.positives(np.array([place]))[0]
            blocks.append(Block(rows, labels, machines, TREE_COST, tolerance, taking_part))
        return blocks

    def _hold(self, found: Machines, label_counts: NDArray[np.int64]) -> None:
        """Put the weights into the model, machine after machine."""
        order = np.argsort(np.repeat(found.labels, found.sizes), kind="stable")
        n_machines = self.model.intercepts.numel()
        sizes, intercepts = np.zeros(n_machines, np.int64), np.zeros(n_machines, np.float32)
        sizes[found.labels] = found.sizes
        intercepts[found.labels] = found.intercepts
        arrays = np.r_[0, np.cumsum(sizes)], found.features[order], found.weights[order], intercepts
        self.model.fill(*(torch.from_numpy(array) for array in arrays))
        self.model.stack.count(label_counts)

    def _learn(self, found: Machines, data: Dataset, folds: list[NDArray[np.int64]]) -> dict[str, Tensor]:
        """Learn log-odds and calibration from the scores of held-out rows; return what to remember of the first fold.

        Log-odds are learned from the labels with the best scores, calibration from the best by log-odds.
        """
        device, model = device_of(self.model), self.model.cpu()
        truth = gather_rows(data.Y, np.concatenate(folds))
        scores = torch.zeros(truth.shape[0], model.intercepts.numel())
        scores[:, found.labels] = torch.from_numpy(found.held_out)
        # Labels without positives, which come last whatever is learned, are left out.
        known = np.unique(data.Y.indices).astype(np.int64)
        parts = [part[:, known] for part in model.parts(scores)]
        scored, start = ScoredRows(parts, known, truth), deepcopy(model.stack)

        def learn(stack: Stack, calibration: Calibration, rows: NDArray[np.bool_]) -> tuple[Any, Any]:
            """Learn from some rows; return the best labels of all, and their raw probabilities."""
            odds = scored.learn_log_odds(stack, rows)
            p, best = odds.sigmoid_().topk(min(N_REMEMBERED, known.size), dim=1)
            labels = known[best.numpy()]
            calibration.fit(p.numpy()[rows, :N_RANKED], holds(truth, labels)[rows, :N_RANKED])
            return labels, p.numpy()

        def learn_apart(rows: NDArray[np.bool_]) -> tuple[Any, Any]:
            own = Calibration(model.calibration.has_lead)
            labels, p = learn(deepcopy(start), own, rows)
            return labels, by_rank(own, p)

        labels, p = learn(model.stack, model.calibration, np.ones(truth.shape[0], np.bool_))
        evidence = cross_fitted(learn_apart, truth)
        model.to(device)
        n_first = folds[0].size
        return as_memory(labels[:n_first], p[:n_first], gather_rows(data.Y, folds[0])) | evidence
