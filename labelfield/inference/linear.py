"""Train linear machines: solve one block of labels after another to its optimum, then learn log-odds from scores."""

import time
from collections.abc import Callable, Collection
from copy import deepcopy
from dataclasses import replace
from functools import partial
from math import ceil
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from labelfield.cluster import ALONE, Cluster
from labelfield.csr import column_counts, gather_rows
from labelfield.data import Dataset
from labelfield.errors import CannotAnswerError
from labelfield.inference.calibrating import (
    N_RANKED,
    N_REMEMBERED,
    Rows,
    as_memory,
    balance,
    by_rank,
    cross_fitted,
    holds,
)
from labelfield.inference.checkpoint import Tensors, save_run
from labelfield.inference.fitting import Past
from labelfield.inference.label_groups import nested_groups
from labelfield.inference.log_odds import ScoredRows
from labelfield.inference.loop import Algorithm, Info, Loop
from labelfield.inference.machines import Machines, as_tensors, from_tensors, in_pieces, pruned
from labelfield.inference.margin import (
    FOLD_PASSES,
    Problem,
    Solved,
    from_first,
    is_compiled,
    label_blocks,
    solve,
)
from labelfield.inference.margin_rows import INTERCEPT_DEVIATION, MarginRows
from labelfield.inference.parallel import at_most_threads, single_threads
from labelfield.inference.run import Monitor, Run, Settings
from labelfield.inference.shards import shard_path, take_over
from labelfield.linalg.rows import device_of
from labelfield.mapped import room_in_file, scratch_folder
from labelfield.models.calibration import Calibration
from labelfield.models.linear.model import LinearMachines
from labelfield.models.linear.plan import (
    CERTAIN,
    LOWER_SIZE,
    N_LEVELS,
    TREE_DEVIATION,
    most_held_out,
    most_upper,
)

NOT_IN_PARTS = "linear machines are solved on all rows at once and cannot be fitted in parts"
# By how much the score of a row of norm 1 may change when the smallest weights of a label are dropped.
_PRUNED = 0.05
# The same for the machines of label trees, which are many: a third of the weights, and the same scores on trial.
_TREE_PRUNED = 2.0
# With fewer rows, all of them are held out in turn.
_FEW_ROWS, _N_FOLDS = 5000, 5
# The best labels of a row by which the first fold is compared with all.
_N_SURPRISES = 5
# Labels per held-out row, the best by what all rows taught, among which its N_RANKED best are by what half of them did.
_N_NEAR = 2 * N_RANKED
# Passes that also a short time budget leaves.
_LEAST_PASSES = 2
# Rows that a pass is tried on, to say how long all of them take.
_TIMED_ROWS = 1 << 15
# Entries times labels that a core goes over in a second, at the most.
_PRODUCTS_PER_SECOND = 4e9
# Blocks of labels per step, for each thread.
_BLOCKS_PER_THREAD = 2
# Weights that go from one rank to another at a time, and that a process alone has in memory twice while it joins them.
_WEIGHTS_AT_ONCE, _WEIGHTS_IN_MEMORY = 1 << 22, 1 << 26
# Seconds between two checkpoints, unless writing one takes long.
_CHECKPOINT_EVERY = 1.0


class Block(NamedTuple):
    """Labels that are solved together, in rows and labels of their own where these are groups, and the numbers of their
    machines. Machines within a group see the rows of the group alone."""

    rows: MarginRows
    labels: NDArray[np.int64]
    machines: NDArray[np.int64]
    cost: float
    tolerance: float
    taking_part: NDArray[np.integer] | None = None

    @property
    def work(self) -> float:
        """About how long a pass takes, relative to one over all rows."""
        return 1.0 if self.taking_part is None else self.taking_part.size / max(self.rows.X.shape[0], 1)


class Blocks(Algorithm[list[Machines]]):
    """Steps over a few blocks of labels, which threads solve side by side; the state is the machines so far.

    All ranks of a cluster take their blocks from one list, large ones first. A block is solved in the same way whoever
    takes it and when, so that a run can be resumed with other numbers of ranks and threads; those that are `done` are
    left out.
    """

    def __init__(
        self,
        blocks: list[Block],
        n_threads: int,
        solve: Callable[[Block], Solved],
        n_rows: int,
        n_held_out: int,
        cluster: Cluster = ALONE,
        done: Collection[int] = (),
    ) -> None:
        self.blocks, self.n_threads, self.solve, self.cluster = blocks, n_threads, solve, cluster
        self.n_rows, self.n_held_out, self.n_at_once = n_rows, n_held_out, _BLOCKS_PER_THREAD * n_threads
        is_done = set(done)
        left = [number for number in range(len(blocks)) if number not in is_done]
        self.left = sorted(left, key=lambda number: -blocks[number].work)
        self.claims = cluster.claims(len(self.left))
        self.n_steps = max(1, ceil(len(self.left) / (self.n_at_once * cluster.size)))

    def step(self, state: list[Machines], run: Run) -> tuple[list[Machines], Info]:
        numbers = [self.left[place] for place in self.claims.take(self.n_at_once)]

        def solve(number: int) -> Machines:
            block = self.blocks[number]
            return pruned(number, block.machines, self.solve(block), block.tolerance)

        with single_threads(self.n_threads) as pool:
            found = list(pool.map(solve, numbers))
        # How many steps are left depends on the other ranks.
        run.n_steps = run.step + 1 + ceil(self.claims.n_left() / (self.n_at_once * self.cluster.size))
        # An epoch shows the mean over its steps, and the objective is the sum over all labels.
        share = max(len(numbers), 1) / max(len(self.blocks), 1)
        return [*state, *found], Info(-sum(float(one.objectives.sum()) for one in found) / share / self.n_rows, 1)

    def tensors(self, state: list[Machines]) -> Tensors:
        return as_tensors(state, self.n_held_out)

    def restore(self, tensors: dict[str, Tensor]) -> list[Machines]:
        return [from_tensors(tensors)]


class _Pace:
    """Decides how many passes each block gets, so that all of them fit into a time budget."""

    def __init__(
        self, problem: Problem, budget: float | None, work: float, n_at_once: int, n_folds: int, n_products: int
    ) -> None:
        self.problem, self.budget, self.work_left, self.n_at_once = problem, budget, work, n_at_once
        self.n_beside = FOLD_PASSES * n_folds
        self.started, self.spent, self.n_passes = time.perf_counter(), 0.0, 0.0
        # The first blocks are begun before any is measured: of very many rows, each of their passes takes minutes.
        self.seconds_per_pass = n_products / _PRODUCTS_PER_SECOND

    def next(self) -> Problem:
        """Return the problem for the next block."""
        if self.budget is None:
            return self.problem
        if self.n_passes:
            self.seconds_per_pass = self.spent / self.n_passes
        left = self.budget - (time.perf_counter() - self.started)
        fitting = left * self.n_at_once / max(self.work_left, 1e-9) / max(self.seconds_per_pass, 1e-9) - self.n_beside
        n_passes = int(np.clip(fitting, _LEAST_PASSES, self.problem.n_passes))
        return self.problem._replace(n_passes=n_passes)

    def note(self, seconds: float, problem: Problem, work: float = 1.0) -> None:
        """Take note of a block of this much work that is done."""
        self.spent, self.n_passes = self.spent + seconds, self.n_passes + work * (problem.n_passes + self.n_beside)
        self.work_left -= work


class LinearTrainer:
    """Solves the machines of all labels, learns log-odds from scores of held-out rows, and calls `finish`."""

    def __init__(
        self, model: LinearMachines, settings: Settings, problem: Problem, finish: Callable[[], None] = lambda: None
    ) -> None:
        self.model, self.settings, self.problem, self.finish = model, settings, problem, finish

    def train(self, data: Dataset, monitor: Monitor) -> Run:
        cluster, folds = monitor.cluster, self.folds(data.n_rows)
        # A time budget shortens passes instead of leaving labels out.
        settings = replace(self.settings, time_budget=None, checkpoint_every=_CHECKPOINT_EVERY)
        before = take_over(monitor, settings)
        run = Run(max_epochs=1, seconds=before.seconds)
        algorithm = self._algorithm(data, folds, cluster=cluster, done=before.blocks.tolist())
        path = None if monitor.checkpoint is None else shard_path(monitor.checkpoint, cluster)
        watched = replace(monitor, validate=None, checkpoint=path)
        if before.blocks.size and path is not None:
            # What was taken over from other files is saved before these go.
            save_run(watched, run, settings, algorithm.tensors(before.machines))
            cluster.meet("the saving of checkpoints")
            for file in before.outdated:
                file.unlink(missing_ok=True)
        loop: Any = Loop(lambda run: algorithm, run, settings, watched)
        own = loop.drive(before.machines)
        scores, objective = self._hold(own, algorithm.n_held_out, monitor)
        run.history[-1] = replace(run.history[-1], bound=-objective / data.n_rows)
        if cluster.is_first:
            self.model.stack.count(column_counts(data.Y))
            if folds:
                with at_most_threads(1):
                    run.memory = self._learn(scores, data, folds)
        self.finish()
        if monitor.validate is not None and cluster.is_first:  # now that the model holds its weights
            run.history[-1] = replace(run.history[-1], scores=monitor.validate())
        return run

    def train_more(self, data: Dataset, past: Past) -> Run:
        raise CannotAnswerError(NOT_IN_PARTS)

    def stage_settings(self) -> dict[str, Settings]:
        return {"": self.settings}

    def expected_seconds(self, data: Dataset) -> float:
        """Return how long all labels take, by trying a pass over some rows on one block."""
        some = data.take(slice(_TIMED_ROWS)) if data.n_rows > _TIMED_ROWS else data
        algorithm = self._algorithm(some, [], self.problem._replace(n_passes=1))
        if not algorithm.blocks:
            return 0.0
        first, work = algorithm.blocks[0], sum(block.work for block in algorithm.blocks)
        algorithm.solve(first._replace(labels=first.labels[:1]))  # compiles, or warms up
        started = time.perf_counter()
        algorithm.solve(first)
        per_block = (time.perf_counter() - started) * data.n_rows / some.n_rows / algorithm.n_threads
        n_labels, n_tried = (np.count_nonzero(column_counts(rows.Y)) for rows in (data, some))
        per_pass, n_beside = per_block * work * n_labels / n_tried, FOLD_PASSES * len(self.folds(data.n_rows))
        whole, least = (per_pass * (n_beside + n_passes) for n_passes in (self.problem.n_passes, _LEAST_PASSES))
        budget = self.settings.time_budget
        return whole if budget is None else min(whole, max(budget, least))

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

    def _algorithm(
        self,
        data: Dataset,
        folds: list[NDArray[np.int64]],
        problem: Problem | None = None,
        cluster: Cluster = ALONE,
        done: Collection[int] = (),
    ) -> Blocks:
        device, problem = device_of(self.model), problem or self.problem
        rows = MarginRows(data.X, data.Y, folds, TREE_DEVIATION if self.model.n_trees else INTERCEPT_DEVIATION)
        tolerance = _PRUNED / max(1.0, rows.largest**0.5)
        if self.model.n_trees:
            blocks = self._trees(rows, problem.cost, _TREE_PRUNED / _PRUNED * tolerance, cluster)
        else:
            every = from_first(cluster, lambda: label_blocks(data.X, data.Y, device, self.settings.seed))
            blocks = [Block(rows, labels, labels, problem.cost, tolerance) for labels in every]
        n_at_once = torch.get_num_threads() if is_compiled(device) else 1
        is_done = set(done)
        work = sum(block.work for number, block in enumerate(blocks) if number not in is_done) / cluster.size
        n_products = data.X.indices.size * max((block.labels.size for block in blocks), default=0)
        pace = _Pace(problem, self.settings.time_budget, work, n_at_once, len(folds), n_products)

        def timed(block: Block) -> Solved:
            own, started = pace.next()._replace(cost=block.cost), time.perf_counter()
            solved = solve(block.rows, block.labels, own, device, block.taking_part)
            pace.note(time.perf_counter() - started, own, block.work)
            return solved

        n_held_out = sum(fold.size for fold in folds)
        return Blocks(blocks, n_at_once, timed, data.n_rows, n_held_out, cluster, is_done)

    def _trees(self, rows: MarginRows, cost: float, tolerance: float, cluster: Cluster) -> list[Block]:
        """Return the blocks of all label trees: of upper groups on all rows, of the lower groups in each on its rows,
        and of the labels in each lower group on its rows. What is the only one in its group needs no machine."""
        model, device, seed = self.model, device_of(self.model), self.settings.seed
        blocks, n_before = list[Block](), model.n_trees * model.n_labels
        seen = np.unique(rows.Y.indices).astype(np.int64)
        # Groups must not know of the rows that judge them: a rare label would be where its only row is.
        Y = rows.Y if rows.is_covered else rows.others()
        for number in range(model.n_trees):
            nested = partial(nested_groups, rows.X, Y, seen, most_upper(seen.size), LOWER_SIZE, seed + 1 + number)
            found = from_first(cluster, nested)
            n_upper = 1 + int(np.searchsorted(np.cumsum([group.size for group in found]), seen.size))
            levels = [(found[:n_upper], n_before), (found[n_upper:], n_before + n_upper)]
            upper, lower = (rows.of_groups(groups) for groups, _ in levels)
            for labels in from_first(cluster, partial(label_blocks, rows.X, upper.Y, device, seed)):
                blocks.append(Block(upper, labels, n_before + labels, cost, tolerance))
            ends = np.cumsum([ceil(group.size / LOWER_SIZE) for group in found[:n_upper]])
            inside = np.split(np.arange(len(found) - n_upper), ends[:-1])
            for own, outside, groups, first in (
                (lower, upper, inside, n_before + n_upper),
                (rows, lower, found[n_upper:], number * model.n_labels),
            ):
                for place, group in enumerate(groups):
                    if group.size > 1:
                        taking_part = outside.rows_with(place)
                        blocks.append(Block(own, group, first + group, cost, tolerance, taking_part))
            for level, (groups, first) in enumerate(levels):
                of_label = model.groups[N_LEVELS * number + level].fill_(first)
                for place, group in enumerate(groups):
                    of_label[torch.from_numpy(group)] = first + place
            n_before += len(found)
        return blocks

    def _hold(self, own: list[Machines], n_held_out: int, monitor: Monitor) -> tuple[Tensor, float]:
        """Put the weights of all ranks into the model of the first, machine after machine.

        Return the scores of held-out rows and the dual objective of all blocks, which the first rank alone has. Many
        weights, and those of several ranks, are laid out in a file, piece by piece: no rank has more of them in memory
        than it has solved.
        """
        cluster, n_machines = monitor.cluster, self.model.intercepts.numel()
        others = CERTAIN if self.model.n_trees else 0.0  # what machines say that are not solved
        sizes, intercepts = np.zeros(n_machines, np.int64), np.full(n_machines, others, np.float32)
        scores = torch.full((n_machines, n_held_out if cluster.is_first else 0), others)
        objectives = dict[int, float]()
        facts = ({name: getattr(part, name) for name in Machines._fields[:-2]} for part in own)
        for _, part in cluster.gather("the end of training", facts):
            sizes[part["labels"]], intercepts[part["labels"]] = part["sizes"], part["intercepts"]
            scores[part["labels"]] = torch.from_numpy(part["held_out"])
            objectives |= dict(zip(part["blocks"].tolist(), part["objectives"].tolist(), strict=True))
        pointers = np.r_[0, np.cumsum(sizes)]
        n_weights = int(pointers[-1])
        folder = scratch_folder() if monitor.checkpoint is None else monitor.checkpoint.parent
        kinds, is_long = (np.int32, np.float32), cluster.size > 1 or n_weights > _WEIGHTS_IN_MEMORY
        features, weights = (
            room_in_file(n_weights, kind, folder) if is_long else np.empty(n_weights, kind) for kind in kinds
        )
        pieces = (piece for part in own for piece in in_pieces(part, _WEIGHTS_AT_ONCE))
        names = "labels", "sizes", "features", "weights"
        for _, piece in cluster.gather(
            "the collection of weights", ({name: getattr(piece, name) for name in names} for piece in pieces)
        ):
            starts = np.cumsum(piece["sizes"]) - piece["sizes"]
            where = np.arange(piece["weights"].size) + np.repeat(pointers[piece["labels"]] - starts, piece["sizes"])
            features[where], weights[where] = piece["features"], piece["weights"]
        if cluster.is_first:
            self.model.fill(*(torch.from_numpy(array) for array in (pointers, features, weights, intercepts)))
        return scores.T.contiguous(), sum(objectives[number] for number in sorted(objectives))

    def _learn(self, scores: Tensor, data: Dataset, folds: list[NDArray[np.int64]]) -> dict[str, Tensor]:
        """Learn log-odds and calibration from the scores of held-out rows; return what to remember of the first fold.

        Log-odds are learned from the labels with the best scores, calibration from the best by log-odds.
        """
        device, model = device_of(self.model), self.model.cpu()
        truth = gather_rows(data.Y, np.concatenate(folds))
        # Labels without positives, which come last whatever is learned, are left out.
        known = np.unique(data.Y.indices).astype(np.int64)
        parts = [part[:, known] for part in model.parts(scores)]
        scored, start = ScoredRows(parts, known, truth), deepcopy(model.stack)

        odds = scored.learn_log_odds(model.stack)
        p, best = (part.numpy() for part in odds.sigmoid_().topk(min(N_REMEMBERED, known.size), dim=1))
        labels = known[best]
        hit = holds(truth, labels)
        model.calibration.fit(p[:, :N_RANKED], hit[:, :N_RANKED])

        near = [part.gather(1, torch.from_numpy(best)) for part in parts]

        def learn_apart(taking_part: Rows, own: Rows) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
            """Learn from some rows; return the best labels of others in their new order, and their probabilities."""
            stack, calibration = deepcopy(start), Calibration(model.calibration.has_lead)
            scored.learn_apart(stack, model.stack, taking_part)

            def ranked(rows: Rows, n_first: int) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
                of_best = [part[torch.from_numpy(rows), :n_first] for part in near]
                odds = stack(of_best, torch.from_numpy(labels[rows, :n_first]))
                p, order = (part.numpy() for part in odds.sigmoid_().sort(dim=1, descending=True, stable=True))
                return order, p

            # The new order differs little from that of all rows: the first labels are among a few more of it.
            order, p = ranked(taking_part, _N_NEAR)
            calibration.fit(p[:, :N_RANKED], hit[taking_part[:, None], order[:, :N_RANKED]])
            order, p = ranked(own, N_REMEMBERED)
            return np.take_along_axis(labels[own], order, 1), by_rank(calibration, p)

        evidence = cross_fitted(learn_apart, truth)
        model.to(device)
        n_first = folds[0].size
        memory = as_memory(labels[:n_first], p[:n_first], gather_rows(data.Y, folds[0])) | evidence
        if len(folds) == 1:
            return memory
        surprise = hit[:, :_N_SURPRISES] - by_rank(model.calibration, p[:, :_N_SURPRISES])
        return memory | balance(np.stack([surprise[:, :1].sum(axis=1), surprise[:, 1:].sum(axis=1)], axis=1), n_first)
