"""Training linear machines: what is dropped hardly matters, held-out rows stay unseen, and time makes passes fewer."""

from copy import deepcopy

import numpy as np
import pytest
import torch
from scipy import sparse

from labelfield import Dataset, synth
from labelfield.csr import gather_rows
from labelfield.inference import linear, trials
from labelfield.inference.checkpoint import read_checkpoint, write_checkpoint
from labelfield.inference.label_groups import nested_groups
from labelfield.inference.linear import Blocks, LinearTrainer, _Pace
from labelfield.inference.machines import chosen, in_pieces, pruned, rounded
from labelfield.inference.margin import Problem, Solved, solve
from labelfield.inference.margin_rows import MarginRows
from labelfield.inference.run import Monitor, Settings
from labelfield.inference.trials import choose_machine
from labelfield.mapped import room_in_file
from labelfield.models.linear import plan as linear_plan
from labelfield.models.linear.model import LinearMachines
from labelfield.models.linear.plan import TREE_DEVIATION, n_machines
from labelfield.models.linear.scores import LARGEST

CPU = torch.device("cpu")


def unit(X):
    norms = np.maximum(sparse.linalg.norm(X, axis=1), 1e-9)
    return sparse.csr_array(sparse.diags_array(1 / norms) @ X).astype(np.float32)


DRAWN = synth.make_multilabel(400, 80, 30, seed=1)
DATA = Dataset(unit(DRAWN.X), DRAWN.Y)


def trained(data=DATA, problem=None, **settings):
    model = LinearMachines(data.n_features, data.n_labels)
    own = Settings(1, data.n_rows, **{"held_out": data.n_rows // 10} | settings)
    run = LinearTrainer(model, own, problem or Problem(1.0, 10)).train(data, Monitor())
    return model, run


def dense(machines, n_labels):
    W = np.zeros((DATA.n_features, n_labels))
    W[machines.features, np.repeat(machines.labels, machines.sizes)] = machines.weights
    return W


def test_dropping_small_weights_changes_no_score_of_a_row_of_norm_1_by_more_than_promised():
    rng = np.random.default_rng(0)
    W = (rng.normal(size=(80, 3)) * 10 ** rng.uniform(-4, 0, (80, 3))).astype(np.float32)
    W[:, 1] = linear._PRUNED / 80**0.5  # the worst case: all are dropped
    features, nothing = rng.permutation(80).astype(np.int32), np.zeros((0, 3), np.float32)
    solved = Solved(features, torch.from_numpy(W), torch.zeros(3), 0.0, nothing)
    kept = dense(pruned(0, np.arange(3), solved, linear._PRUNED), 3)
    full = np.zeros_like(kept)
    full[solved.features] = W
    assert 0 < (kept != 0).sum() < 160
    step = np.abs(W).max(axis=0) / 2**14  # to which the others are rounded
    dropped = np.where(kept == 0, full, 0)
    assert np.linalg.norm(dropped, axis=0).max() <= linear._PRUNED * (1 + 1e-6)
    assert np.abs(DATA.X @ dropped).max() <= linear._PRUNED * (1 + 1e-6)
    assert (np.abs(full - kept - dropped) <= step / 2).all()


def test_weights_are_rounded_to_16_bits_of_each_machine():
    rng = np.random.default_rng(4)
    W = torch.from_numpy((rng.normal(size=(6, 50)) * 10.0 ** np.arange(-3, 3)[:, None]).astype(np.float32))
    W[5] = 0
    found = rounded(W, 1.0)
    largest = W.abs().amax(dim=1, keepdim=True)
    assert ((found - W).abs() <= largest / 2**15).all()
    steps = torch.ldexp(torch.ones(6, 1), torch.frexp(largest / LARGEST).exponent)
    assert torch.equal((found / steps).to(torch.int16) * steps, found)
    assert torch.equal(rounded(found, 1.0), found)


def test_weights_of_a_machine_are_rounded_only_if_a_step_is_at_most_the_tolerance():
    """Of features that differ much in scale, one has a weight of no step, and values that make it matter."""
    W = torch.tensor([[1000.0, 1e-3], [1.0, 1e-6]])
    found = rounded(W, tolerance=1e-3)
    assert torch.equal(found[0], W[0])
    assert found[1].tolist() == [1, 0]


def test_the_model_holds_the_solved_weights_of_every_label():
    model, run = trained(held_out=0)
    labels = np.unique(DATA.Y.indices)
    solved = solve(MarginRows(DATA.X, DATA.Y, []), labels, Problem(1.0, 200, 1e-4), CPU)
    expected = np.zeros((80, 30))
    expected[np.ix_(solved.features, labels)] = solved.W
    found = sparse.csr_array((model.weights, model.features, model.pointers), shape=(30, 80)).T
    scores = DATA.X @ (found - expected) + (model.intercepts[labels].numpy() - solved.intercepts.numpy()).max()
    assert np.abs(scores).max() < 2 * linear._PRUNED + 0.15  # dropped weights, and what ten passes leave
    assert run.history[-1].bound == pytest.approx(-solved.objective / 400, rel=0.02)


@pytest.mark.parametrize("n_rows", [100, 399, 6000])
def test_folds_are_apart_and_begin_with_the_rows_that_every_method_holds_out(n_rows):
    settings = Settings(1, n_rows, held_out=n_rows // 10, seed=3)
    folds = LinearTrainer(LinearMachines(5, 7), settings, Problem(1.0, 1)).folds(n_rows)
    np.testing.assert_array_equal(folds[0], settings.held_out_rows(n_rows))
    together = np.concatenate(folds)
    assert np.unique(together).size == together.size
    assert together.size == (n_rows if n_rows <= 5000 else 600)
    assert LinearTrainer(LinearMachines(5, 7), Settings(1, n_rows), Problem(1.0, 1)).folds(n_rows) == []


def test_log_odds_are_learned_on_rows_that_the_weights_have_not_seen():
    """Labels that say nothing: weights fit the training rows all the same, and held-out rows tell."""
    rng = np.random.default_rng(0)
    X = unit(sparse.csr_array(sparse.random(300, 400, 0.05, format="csr", rng=0, dtype=np.float32)))
    Y = sparse.csr_array((rng.random((300, 10)) < 0.1).astype(np.float32))
    model, _ = trained(Dataset(X, Y))
    W = sparse.csr_array((model.weights, model.features, model.pointers), shape=(10, 400)).T
    scores = torch.from_numpy((X @ W).toarray()) + model.intercepts
    p = model.stack([scores]).sigmoid().numpy()
    held = Y.toarray() > 0
    assert scores.numpy()[held].mean() > 4 * np.abs(scores.numpy()[~held].mean())  # they know these rows by heart
    assert p[held].mean() < 0.5


def test_what_is_remembered_is_of_the_first_fold():
    _, run = trained()
    rows = Settings(1, 400, held_out=40).held_out_rows(400)
    assert run.memory["labels"].shape == run.memory["p"].shape
    assert len(run.memory["labels"]) == 40
    np.testing.assert_array_equal(run.memory["true_labels"], DATA.Y[rows].indices)
    assert (run.memory["p"].diff(dim=1) <= 0).all()


def test_labels_without_positives_get_the_lowest_log_odds():
    Y = DATA.Y.tolil()
    Y[:, [4, 9]] = 0
    model, _ = trained(Dataset(DATA.X, sparse.csr_array(Y)))
    z = model.stack([torch.zeros(1, 30)])[0]
    assert z[[4, 9]].max() < np.delete(z.numpy(), [4, 9]).min() - 10
    assert not model.pointers.diff()[[4, 9]].any()


def test_nothing_to_learn_from():
    for Y in (sparse.csr_array((400, 30), dtype=np.float32), sparse.csr_array((400, 1), dtype=np.float32)):
        model, run = trained(Dataset(DATA.X, Y))
        assert model.weights.numel() == 0
        assert len(run.history) == 1
        assert np.isfinite(run.history[0].bound)


def test_a_state_survives_a_checkpoint_and_can_be_parted(tmp_path):
    solved = solve(MarginRows(DATA.X, DATA.Y, [np.arange(5)]), np.array([3, 1, 8]), Problem(1.0, 3), CPU)
    algorithm = Blocks([], 1, lambda labels: solved, 400, 5)
    state = [pruned(7, np.array([3, 1, 8]), solved, 0.05), pruned(4, np.array([0, 2, 5]), solved, 0.05)]

    def through_a_file(state):
        write_checkpoint(tmp_path / "one", algorithm.tensors(state), {})
        return algorithm.restore(read_checkpoint(tmp_path / "one")[0])

    (whole,) = through_a_file(state)
    np.testing.assert_array_equal(dense(whole, 30), sum(dense(part, 30) for part in state))
    np.testing.assert_array_equal(whole.held_out, np.concatenate([part.held_out for part in state]))
    assert through_a_file([])[0].held_out.shape == (0, 5)
    for part in state:
        for one, other in zip(chosen(whole, part.blocks), part, strict=True):
            np.testing.assert_array_equal(one, other)
    pieces = list(in_pieces(whole, int(whole.sizes[:2].sum())))
    assert pieces[0].labels.tolist() == [3, 1]
    assert max(piece.weights.size for piece in pieces) <= max(whole.sizes[:2].sum(), whole.sizes.max())
    np.testing.assert_array_equal(sum(dense(piece, 30) for piece in pieces), dense(whole, 30))


def test_many_weights_are_laid_out_in_a_file_and_are_the_same(monkeypatch, tmp_path):
    few, _ = trained()
    monkeypatch.setattr(linear, "_WEIGHTS_IN_MEMORY", 100)
    monkeypatch.setattr(linear, "_WEIGHTS_AT_ONCE", 50)
    rooms = []
    monkeypatch.setattr(linear, "room_in_file", lambda *given: rooms.append(room_in_file(*given)) or rooms[-1])
    many, _ = trained()
    assert [room.size for room in rooms] == 2 * [few.weights.numel()]
    torch.save(many.state_dict(), tmp_path / "saved")
    for found in (many.state_dict(), deepcopy(many).state_dict(), torch.load(tmp_path / "saved")):
        for name, tensor in few.state_dict().items():
            torch.testing.assert_close(found[name], tensor, rtol=0, atol=0)


class TestTrees:
    """Groups of similar labels with a machine each, and a machine per label on the rows of its group."""

    N_SEEN = np.unique(DATA.Y.indices).size

    def fit(self, monkeypatch, n_trees=2, **settings):
        monkeypatch.setattr(linear_plan, "_LEAST_UPPER_SIZE", 8)
        for place in (linear, linear_plan):
            monkeypatch.setattr(place, "LOWER_SIZE", 3)
        model = LinearMachines(80, 30, 0, n_trees, n_machines(30, self.N_SEEN, n_trees))
        own = Settings(1, 400, **{"held_out": 40} | settings)
        trainer = LinearTrainer(model, own, Problem(1.0, 300, 1e-4))
        run = trainer.train(DATA, Monitor())
        return model, trainer, run

    def test_every_machine_is_solved_on_the_rows_and_labels_that_it_is_for(self, monkeypatch):
        monkeypatch.setattr(linear, "_PRUNED", 1e-9)
        monkeypatch.setattr(linear, "_TREE_PRUNED", 1e-9)
        model, _, _ = self.fit(monkeypatch, held_out=0)
        n_all, Y = model.intercepts.numel(), DATA.Y.toarray() > 0
        W = sparse.csr_array((model.weights, model.features, model.pointers), shape=(n_all, 80)).T
        scores, seen = DATA.X @ W + model.intercepts.numpy(), np.flatnonzero(Y.any(0))

        def assert_solved(machines, held, rows):
            """Assert that these machines are those of labels `held` (N, k) on these rows, as one block."""
            if len(machines) == 1 and held[rows].all():
                np.testing.assert_array_equal(scores[:, machines], 2)
                return
            own = MarginRows(
                gather_rows(DATA.X, rows), sparse.csr_array(held[rows].astype(np.float32)), deviation=TREE_DEVIATION
            )
            solved = solve(own, np.arange(len(machines)), Problem(1.0, 300, 1e-5), CPU)
            expected = DATA.X[:, solved.features] @ solved.W.numpy() + solved.intercepts.numpy()
            np.testing.assert_allclose(scores[:, machines], expected, atol=2e-3)

        def any_of(groups, machines):
            return np.stack([Y[:, seen[groups[seen] == machine]].any(1) for machine in machines], 1)

        for number, (upper, lower) in enumerate(model.groups.numpy().reshape(2, 2, 30)):
            every = np.unique(upper[seen])
            assert_solved(every, any_of(upper, every), np.arange(400))
            for group in every:
                inside = np.unique(lower[seen[upper[seen] == group]])
                assert_solved(inside, any_of(lower, inside), np.flatnonzero(any_of(upper, [group])[:, 0]))
            for group in np.unique(lower[seen]):
                labels = seen[lower[seen] == group]
                assert_solved(number * 30 + labels, Y[:, labels], np.flatnonzero(Y[:, labels].any(1)))

    def test_scores_of_a_tree_are_products_along_its_path(self, monkeypatch):
        model, _, _ = self.fit(monkeypatch)
        scores = np.random.default_rng(0).normal(1, 1, (5, model.intercepts.numel())).astype(np.float32)
        rho = -(np.maximum(2 - scores, 0) ** 2)
        upper, lower = model.groups.numpy().reshape(2, 2, 30).swapaxes(0, 1)
        each = [rho[:, upper[t]] + rho[:, lower[t]] + rho[:, t * 30 : t * 30 + 30] for t in range(2)]
        p = np.clip(np.mean(np.exp(each), 0), np.exp(-10), 0.9999)
        np.testing.assert_allclose(model.parts(torch.from_numpy(scores))[0], np.log(p / (1 - p)), rtol=1e-4, atol=1e-5)

    def test_groups_are_nested_differ_between_trees_and_are_numbered_last(self, monkeypatch):
        model, trainer, _ = self.fit(monkeypatch, 3)
        seen, numbers = np.unique(DATA.Y.indices), model.groups.numpy()
        used = np.unique(numbers[:, seen])
        np.testing.assert_array_equal(used, np.arange(3 * 30, 3 * 30 + used.size))
        assert used[-1] < model.intercepts.numel()
        together = [own[seen][:, None] == own[seen] for own in numbers]
        assert (together[0] != together[2]).any()
        for upper, lower in zip(together[::2], together[1::2], strict=True):
            assert (lower <= upper).all()
        assert trainer.expected_seconds(DATA) > 0

    def test_groups_do_not_know_of_rows_held_out(self):
        """Rows without labels are as good as rows that are left out, and no copy of all others."""
        seen, fold = np.unique(DATA.Y.indices), np.arange(7, 400, 9)
        kept, of_kept = np.setdiff1d(np.arange(400), fold), MarginRows(DATA.X, DATA.Y, [fold]).others()
        assert of_kept[fold].nnz == 0
        assert (of_kept[kept] != DATA.Y[kept]).nnz == 0
        alone = nested_groups(gather_rows(DATA.X, kept), gather_rows(DATA.Y, kept), seen, 4, 3, 0)
        for own, other in zip(nested_groups(DATA.X, of_kept, seen, 4, 3, 0), alone, strict=True):
            np.testing.assert_array_equal(own, other)

    def test_held_out_rows_give_trees_a_scale(self, monkeypatch):
        model, _, run = self.fit(monkeypatch)
        assert model.stack.slopes.shape[0] == 1
        assert (model.stack.slopes >= 0).all()
        assert (run.memory["p"].diff(dim=1) <= 0).all()

    def test_a_budget_is_shared_by_work_not_by_blocks(self, monkeypatch):
        """Blocks within groups are many and short: they must not take passes from the others."""
        now, passes = [0.0], []

        def timed(rows, labels, problem, device, taking_part):
            n_rows = 400 if taking_part is None else taking_part.size
            now[0] += problem.n_passes * n_rows / 400
            passes.append((taking_part is None, problem.n_passes))
            return solve(rows, labels, problem._replace(n_passes=1), device, taking_part)

        monkeypatch.setattr("labelfield.inference.margin._BLOCK_LABELS", 4)
        monkeypatch.setattr(linear, "solve", timed)
        monkeypatch.setattr(linear.time, "perf_counter", lambda: now[0])
        monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
        self.fit(monkeypatch, held_out=0)
        whole, passes[:] = now[0], []
        now[0] = 0.0
        self.fit(monkeypatch, held_out=0, time_budget=whole / 2)
        assert 0.4 * whole < now[0] < 0.7 * whole + 300  # the first block knows nothing and takes all its passes
        assert min(n for is_whole, n in passes if is_whole) > 60

    def test_the_time_expected_is_that_of_all_rows_and_of_two_passes_at_least(self, monkeypatch):
        """A pass over a few rows tells how long one over all takes; a budget cannot leave out the last two."""
        now = [0.0]

        def timed(rows, labels, problem, device, taking_part):
            now[0] += rows.X.shape[0] / 100
            return solve(rows, labels, problem, device, taking_part)

        monkeypatch.setattr(linear, "solve", timed)
        monkeypatch.setattr(linear.time, "perf_counter", lambda: now[0])
        monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
        rows, n_passes = DATA.n_rows, 10
        for n_timed in (rows, rows // 4):
            monkeypatch.setattr(linear, "_TIMED_ROWS", n_timed)
            for budget, expected in ((None, n_passes), (1e-3, 2), (5 * rows / 100, 5), (1e6, n_passes)):
                model, settings = LinearMachines(DATA.n_features, DATA.n_labels, 0), Settings(time_budget=budget)
                trainer = LinearTrainer(model, settings, Problem(1.0, n_passes))
                assert trainer.expected_seconds(DATA) == pytest.approx(expected * rows / 100)

    def test_without_labels_nothing_is_learned(self, monkeypatch):
        from labelfield import LinearClassifier

        model = LinearClassifier(n_trees=2).fit(DATA.X, np.zeros((400, 3)))
        assert model.spec_.n_trees == 0
        assert np.isfinite(model.predict_proba(DATA.X[:3])).all()


class TestTime:
    def test_a_budget_makes_passes_fewer_never_labels(self, monkeypatch):
        monkeypatch.setattr("labelfield.inference.margin._BLOCK_LABELS", 4)
        asked = []

        def noted(rows, labels, problem, device, taking_part):
            asked.append((labels.size, problem.n_passes))
            return solve(rows, labels, problem, device, taking_part)

        monkeypatch.setattr(linear, "solve", noted)
        model, _ = trained(problem=Problem(1.0, 50, 0.0), time_budget=1e-9)
        assert sum(size for size, _ in asked) == np.unique(DATA.Y.indices).size
        assert min(n for _, n in asked) == linear._LEAST_PASSES
        held = np.bincount(DATA.Y.indices, minlength=30) > 0
        assert (model.pointers.diff().numpy() > 0).tolist() == held.tolist()

    def test_passes_fill_what_is_left(self, monkeypatch):
        now = [0.0]
        monkeypatch.setattr(linear.time, "perf_counter", lambda: now[0])
        pace = _Pace(Problem(1.0, 100), 40.0, 4, 1, 0, n_products=0)
        assert pace.next().n_passes == 100  # nothing is known yet
        now[0] = 10.0
        pace.note(10.0, pace.next())  # a tenth of a second for each pass
        assert pace.next().n_passes == 100
        now[0] = 25.0  # half of the time that is left for three blocks
        assert pace.next().n_passes == 50
        now[0] = 99.0
        assert pace.next().n_passes == linear._LEAST_PASSES
        assert _Pace(Problem(1.0, 7), None, 4, 1, 0, n_products=10**12).next().n_passes == 7

    def test_the_first_blocks_of_very_many_rows_get_what_fits_at_the_best(self):
        first = [_Pace(Problem(1.0, 10), 60.0, 4, 2, 1, n_products).next().n_passes for n_products in (10**7, 10**11)]
        assert first == [10, 2]


class TestTrials:
    HELD_OUT = np.flatnonzero(np.diff(DATA.Y.indptr))[::10]

    def choose(self, data=DATA, names=("unit", "sqrt"), costs=(1.0, 0.1), held_out=HELD_OUT):
        return choose_machine(data.X, data.Y, names, costs, held_out, 0, CPU)

    def test_every_transform_at_the_first_cost_then_other_costs_with_the_best_while_that_helps(self):
        found = self.choose(names=("unit", "sqrt", "log"), costs=(1.0, 0.3, 0.1))
        chosen, *others = found
        assert [trial.score for trial in others] == sorted((trial.score for trial in others), reverse=True)
        best = max(found, key=lambda trial: trial.score)
        assert chosen is best or chosen.cost < best.cost
        assert chosen.score == max(trial.score for trial in found if trial.cost == chosen.cost)
        at_first = [trial for trial in found if trial.cost == 1.0]
        assert {trial.row_transform for trial in at_first} == {"unit", "sqrt", "log"}
        first, second, _ = sorted(at_first, key=lambda trial: -trial.score)
        tried = {(trial.row_transform, trial.cost) for trial in found if trial.cost != 1.0}
        again = {(second.row_transform, chosen.cost)} if chosen.cost != 1.0 else set()
        assert {name for name, _ in tried - again} == {first.row_transform}
        assert again <= tried
        assert all(0 <= trial.score <= 100 and trial.seconds >= 0 for trial in found)

    @pytest.mark.parametrize(("loss", "taken"), [(1.0, 0.1), (8.0, 1.0)])
    def test_the_smallest_cost_within_a_standard_error_of_the_best_is_taken(self, monkeypatch, loss, taken):
        """Smaller costs lose `loss` points, 20 more or less on each of 40 rows: an error of 20 / √40 = 3.2."""
        noise = np.tile([-20.0, 20.0], 20)

        def told(X, Y, n_trained, problem, *_, **__):
            return np.full(40, 50.0) if problem.cost == 1 else 50 - loss + noise

        monkeypatch.setattr(trials, "_scores", told)
        assert self.choose(names=("unit",), costs=(1.0, 0.3, 0.1))[0].cost == taken

    def test_held_out_rows_are_never_trained_on(self, monkeypatch):
        """Whatever their labels are, the machines are the same, bit by bit."""
        weights = []

        def noted(rows, labels, problem, device):
            weights.append(found := solve(rows, labels, problem, device))
            assert rows.X.shape[0] == 400 - self.HELD_OUT.size
            return found

        monkeypatch.setattr(trials, "solve", noted)
        self.choose(names=("unit",), costs=(1.0,))
        Y = DATA.Y.tolil()
        Y[self.HELD_OUT] = 0
        Y[self.HELD_OUT, np.unique(DATA.Y.indices)[0]] = 1
        self.choose(Dataset(DATA.X, sparse.csr_array(Y)), ("unit",), (1.0,))
        a, b = weights
        np.testing.assert_array_equal(a.W, b.W)

    def test_the_score_is_that_of_the_held_out_rows(self):
        """Labels that a word gives away are ranked first; labels at random are not."""
        rng = np.random.default_rng(0)
        X = sparse.csr_array(sparse.random(400, 40, 0.05, format="csr", rng=0, dtype=np.float32))
        told = Dataset(X, sparse.csr_array((X.toarray() > 0).astype(np.float32)))
        guessed = Dataset(X, sparse.csr_array((rng.random((400, 40)) < 0.03).astype(np.float32)))
        assert self.choose(told)[0].score > 98
        assert self.choose(guessed)[0].score < 30

    def test_of_large_data_some_labels_take_part(self, monkeypatch):
        monkeypatch.setattr(trials, "_ENTRIES", 10)
        monkeypatch.setattr(trials, "_LEAST_LABELS", 6)
        seen = []
        monkeypatch.setattr(trials, "solve", lambda rows, *rest: seen.append(rows.n_labels) or solve(rows, *rest))
        self.choose(names=("unit",), costs=(1.0,))
        assert seen == [6]

    def test_without_labels_nothing_is_told_apart(self):
        nothing = Dataset(DATA.X, sparse.csr_array((400, 3), dtype=np.float32))
        assert [trial.score for trial in self.choose(nothing)] == [0, 0, 0]
