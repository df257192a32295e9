"""Short trials on held-out rows, from which linear machines choose their row transform and their cost."""

import time
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse

from labelfield.cluster import ALONE, Arrays, Cluster
from labelfield.csr import column_counts, gather_rows
from labelfield.data.transform import RowTransform
from labelfield.inference.log_odds import ScoredRows
from labelfield.inference.margin import Problem, from_first, is_compiled, label_blocks, solve
from labelfield.inference.margin_rows import MarginRows
from labelfield.inference.parallel import at_most_threads, single_threads
from labelfield.linalg.rows import dot, to_tensor
from labelfield.metrics.ranking import score_ranking
from labelfield.models.predictor import to_csr
from labelfield.models.stack import Stack

# Passes of a trial: by then the order of candidates is settled, though not their scores.
_PASSES = 3
# The plain solver needs more of them for the same precision, most of all with the large batches of a GPU: there four
# passes were so far from the optimum that one seed of EUR-Lex chose too large a cost.
_PLAIN_PASSES = {"cpu": 4, "cuda": 8}
# By how much another cost must be better than the first where only some labels are ranked, in percent: their noise.
_NOISE = 0.5
# Entries of X, times labels and alone, up to which all labels and rows take part, and the share and number of labels
# that do beyond.
_ENTRIES, _MOST_ENTRIES, _SHARE, _LEAST_LABELS = 1 << 30, 1 << 26, 1 / 6, 512
# Beyond that, rows that candidates are trained on, at the most; and rows by which they are compared.
_TRAINED_ROWS, _MOST_ROWS = 8000, 2000


class Trial(NamedTuple):
    """A candidate, its nDCG on held-out rows in percent, and the seconds it took."""

    row_transform: str
    cost: float
    score: float
    seconds: float


def choose_machine(
    X: sparse.csr_array,
    Y: sparse.csr_array,
    transforms: Iterable[str],
    costs: Iterable[float],
    held_out: NDArray[np.int64],
    seed: int,
    device: torch.device,
    budget: float | None = None,
    cluster: Cluster = ALONE,
) -> list[Trial]:
    """Return what was tried: every transform at the first cost, other costs with the best of them, and the second best.

    The one to take comes first, then the others, best first. It is the smallest cost that is behind the best by at most
    a standard error: a small cost suits more rows than trials are trained on. The score is nDCG@5. Where the data are
    large, candidates are trained on some of the rows, and a random sixth of the labels is ranked, by nDCG@2: the fifth
    of these would be far down among all labels. After `budget` seconds no further candidate is tried.
    The ranks of a cluster solve the labels of each candidate together, and come to the same decisions.
    """
    first, *others = costs
    labels, k, noise = np.flatnonzero(column_counts(Y)), 5, 0.0
    kept, rng = np.setdiff1d(np.arange(X.shape[0]), held_out), np.random.default_rng(seed)
    if X.nnz * labels.size > _ENTRIES or X.nnz > _MOST_ENTRIES:
        n_chosen = min(labels.size, max(_LEAST_LABELS, int(_SHARE * labels.size)))
        labels, k, noise = np.sort(rng.permutation(labels)[:n_chosen]), 2, _NOISE
        kept = np.sort(rng.permutation(kept)[:_TRAINED_ROWS])
    some = sparse.csr_array(Y[:, labels])
    held_out = held_out[np.diff(some.indptr)[held_out] > 0][:_MOST_ROWS]
    some, seen = (gather_rows(array, np.concatenate([kept, held_out])) for array in (some, X))
    views: dict[str, sparse.csr_array] = {}
    by_row: dict[tuple[str, float], NDArray[np.float64]] = {}
    n_at_once = torch.get_num_threads() if is_compiled(device) else 1

    def attempt(name: str, cost: float) -> Trial:
        started = time.perf_counter()
        if name not in views:
            views[name] = RowTransform.fit(name, seen)(seen)
        n_passes = _PASSES if is_compiled(device) else _PLAIN_PASSES[device.type]
        problem = Problem(cost, n_passes, 0.0, seed, whole_every=1)  # so few leave no time for less than all rows
        with at_most_threads(1 if is_compiled(device) else None):  # beside the threads that solve
            scores = _scores(
                views[name], some, kept.size, problem, k, device, n_at_once, by_odds=not noise, cluster=cluster
            )
        by_row[name, cost] = scores
        score = float(scores.mean()) if scores.size else 0.0
        return Trial(name, cost, score, time.perf_counter() - started)

    def rank(trials: list[Trial]) -> list[Trial]:
        return sorted(trials, key=lambda trial: -trial.score - noise * (trial.cost == first))

    def is_as_good(trial: Trial, best: Trial) -> bool:
        """Return whether a trial is behind the best by at most a standard error over rows."""
        behind = by_row[best[:2]] - by_row[trial[:2]]
        return not noise and behind.size > 1 and float(behind.mean()) <= float(behind.std()) / behind.size**0.5

    started = time.perf_counter()

    def is_late() -> bool:
        if budget is None:
            return False
        # By the clock of the first rank: all must come to the same decision.
        told = cluster.share(
            "a look at the clock", lambda: {"late": np.array([time.perf_counter() - started >= budget])}
        )
        return bool(told["late"][0])

    at_first = rank([attempt(name, first) for number, name in enumerate(transforms) if number == 0 or not is_late()])
    trials, start = list(at_first), at_first[0]
    for side in (sorted(cost for cost in others if cost > first), sorted(c for c in others if c < first)[::-1]):
        best = start
        for cost in side:  # further away from the first cost, as long as that helps, or costs nothing for a smaller one
            if is_late():
                break
            trials.append(attempt(start.row_transform, cost))
            best, last = max(best, trials[-1], key=lambda trial: trial.score), best
            if best is last and not (cost < first and is_as_good(trials[-1], best)):
                break
    trials = rank(trials)
    best = trials[0]
    rivals = [trial for trial in trials[1:] if trial.row_transform == best.row_transform and trial.cost < best.cost]
    chosen = min([best, *(trial for trial in rivals if is_as_good(trial, best))], key=lambda trial: trial.cost)
    if len(at_first) > 1 and chosen.cost != first and not is_late():
        # Which transform is better depends on the cost: the runner-up gets a second chance.
        trials = rank([*trials, attempt(at_first[1].row_transform, chosen.cost)])
        chosen = max((trial for trial in trials if trial.cost == chosen.cost), key=lambda trial: trial.score)
    return [chosen, *(trial for trial in trials if trial is not chosen)]


def _scores(
    X: sparse.csr_array,
    Y: sparse.csr_array,
    n_trained: int,
    problem: Problem,
    k: int,
    device: torch.device,
    n_at_once: int,
    by_odds: bool,
    cluster: Cluster = ALONE,
) -> NDArray[np.float64]:
    """Return nDCG@k in percent of each row after the first n_trained, by machines that were solved on the first.

    Labels are ranked by log-odds, as the finished model ranks them, or by scores, with which too large a cost would win
    where all labels take part.
    """
    trained, others = np.arange(n_trained), np.arange(n_trained, X.shape[0])
    if not others.size:
        return np.zeros(0)
    rows, asked = MarginRows(gather_rows(X, trained), gather_rows(Y, trained)), gather_rows(X, others)
    blocks = from_first(cluster, lambda: label_blocks(rows.X, gather_rows(Y, trained), device, problem.seed))
    claims = cluster.claims(len(blocks))

    def solve_some() -> list[Arrays]:
        """Return the scores of the labels of the blocks that this thread of this rank takes."""
        found = list[Arrays]()
        while taken := claims.take():
            labels = blocks[taken[0]]
            solved = solve(rows, labels, problem, device)
            own = dot(to_tensor(sparse.csr_array(asked[:, solved.features]), device), solved.W) + solved.intercepts
            found.append({"labels": labels, "scores": own.cpu().numpy()})
        return found

    with single_threads(n_at_once) as pool:
        own = [part for some in pool.map(lambda _: solve_some(), range(n_at_once)) for part in some]
    scores = np.full((others.size, Y.shape[1]), -1.0, np.float32)
    for _, part in cluster.gather("a trial", iter(own)):
        scores[:, part["labels"]] = part["scores"]

    def by_row() -> Arrays:
        truth, known, k_there = gather_rows(Y, others), np.arange(Y.shape[1]), min(k, Y.shape[1])
        ranked_by = torch.from_numpy(scores)
        if by_odds:
            stack = Stack(1, known.size)
            stack.count(np.bincount(gather_rows(Y, trained).indices, minlength=known.size))
            ranked_by = ScoredRows([ranked_by], known, truth).learn_log_odds(stack)
        best = ranked_by.topk(k_there, dim=1)
        ranked: Any = to_csr([(best.indices, best.values)], k_there, Y.shape[1])
        return {"ndcg": 100 * score_ranking(truth, ranked, k_there).ndcg_by_row(k_there)}

    return cluster.share("the comparison of a trial", by_row)["ndcg"]
