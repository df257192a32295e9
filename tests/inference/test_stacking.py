"""Members of a mix are weighed by what they say of held-out rows: none gets a say that it did not earn."""

import numpy as np
import pytest
import torch
from scipy import sparse
from scipy.special import expit, logit

from labelfield import metrics
from labelfield.inference.calibrating import as_memory, balance, calibrate_mean, fit_stack, holds
from labelfield.models.calibration import Calibration
from labelfield.models.stack import Stack, log_odds_of

N_ROWS, N_LABELS = 400, 30
COUNTS = np.geomspace(3, 2000, N_LABELS).astype(np.int64)


def planted(seed, noises):
    """Truth of rows, and what members say of them that see its log-odds under more or less noise."""
    rng = np.random.default_rng(seed)
    z = 2 * rng.normal(size=(N_ROWS, N_LABELS)) - 3
    Y = sparse.csr_array((rng.random(z.shape) < expit(z)).astype(np.float32))
    return Y, [expit(z + noise * rng.normal(size=z.shape)).astype(np.float32) for noise in noises]


def remembered(P, Y, n_kept=20):
    labels = np.argsort(-P, axis=1, kind="stable")[:, :n_kept]
    return as_memory(labels.astype(np.int64), np.take_along_axis(P, labels, 1), Y)


def learned(Y, said, n_kept=20):
    stack, calibration = Stack(len(said), N_LABELS), Calibration()
    stack.count(COUNTS)
    scores, _ = fit_stack(stack, calibration, [remembered(P, Y, n_kept) for P in said], N_LABELS)
    stack.check()
    return stack, calibration, scores


def mixed(stack, said):
    return stack([log_odds_of(torch.from_numpy(P)) for P in said]).sigmoid().numpy()


def precision(Y, P):
    return metrics.evaluate(Y, P)["P@1"]


def test_which_labels_hold():
    Y = sparse.csr_array(np.eye(3, 4, dtype=np.float32))
    found = holds(Y, np.array([[0, 3], [0, 1], [3, 2]]))
    assert found.tolist() == [[True, False], [False, True], [False, True]]
    assert holds(Y, np.array([2, 2]), np.array([2, 0])).tolist() == [True, False]


def test_first_rows_are_weighed_until_they_are_as_surprising_as_all():
    rng = np.random.default_rng(0)
    surprise = rng.normal(size=(2000, 2), scale=0.4) + np.array([0.01, -0.02])
    surprise[:200] += [0.05, 0]  # lucky ones
    (weight,) = (part.numpy() for part in balance(surprise, 200).values())
    assert weight.mean() == pytest.approx(1)
    np.testing.assert_allclose(weight @ surprise[:200] / 200, surprise.mean(axis=0), atol=1e-3)
    assert np.corrcoef(weight, surprise[:200, 0])[0, 1] < -0.7
    (nothing,) = (part.numpy() for part in balance(surprise, 2000).values())
    np.testing.assert_allclose(nothing, 1, atol=1e-5)
    (bounded,) = (part.numpy() for part in balance(np.ones((10, 1)) * [[1]] + np.arange(10)[:, None], 2).values())
    assert np.isfinite(bounded).all()


def test_a_mix_is_calibrated_better_if_its_first_member_was_on_more_rows():
    errors = []
    for seed in range(12):
        rng = np.random.default_rng(seed)
        true = expit(2 * rng.normal(size=(4 * N_ROWS, N_LABELS)) - 3).astype(np.float32)
        Y = sparse.csr_array((rng.random(true.shape) < true).astype(np.float32))
        first, own = np.sort(true, axis=1)[:, ::-1][:, :5], Y[:N_ROWS]
        hit = np.take_along_axis(Y.toarray(), np.argsort(-true, axis=1), 1)[:, :5]
        weights = balance(np.stack([(hit - first)[:, 0], (hit - first)[:, 1:].sum(1)], 1), N_ROWS)
        memory = remembered(true[:N_ROWS], own)
        for number, known in enumerate(({}, weights)):
            stack, calibration = Stack(2, N_LABELS), Calibration()
            stack.count(COUNTS)
            fit_stack(stack, calibration, [memory | known, memory], N_LABELS)
            P = np.sort(mixed(stack, [true, true]), axis=1)[:, ::-1][:, :1].copy()
            mean = calibration(torch.from_numpy(P), torch.zeros(1, dtype=torch.long)).numpy().mean()
            errors.append((number, mean - np.take_along_axis(true, true.argmax(1)[:, None], 1).mean()))
    without, with_weights = (np.std([error for own, error in errors if own == number]) for number in (0, 1))
    assert with_weights < 0.7 * without


def test_a_useless_member_gets_nearly_no_weight():
    Y, (good, _) = planted(0, [0.2, 0.2])
    noise = planted(1, [0.2])[1][0]
    stack = learned(Y, [good, noise])[0]
    weight = (stack.places @ stack.slopes.T).numpy()
    assert weight[:, 0].min() > 0.5
    assert weight[:, 1].max() < 0.15


def test_two_copies_of_a_member_are_as_one():
    Y, (good,) = planted(0, [0.5])
    fresh = planted(2, [0.5])[1][0]
    once, twice = learned(Y, [good])[0], learned(Y, [good, good])[0]
    torch.testing.assert_close(twice.slopes[0], twice.slopes[1], atol=1e-3, rtol=0)
    np.testing.assert_allclose(mixed(once, [fresh]), mixed(twice, [fresh, fresh]), atol=0.01)


@pytest.mark.parametrize("noises", [(0.5, 2.0), (2.0, 0.5), (1.0, 1.0)])
def test_a_mix_ranks_fresh_rows_at_least_as_well_as_its_best_member(noises):
    stack = learned(*planted(0, noises))[0]
    Y, said = planted(3, noises)
    best = max(precision(Y, P) for P in said)
    assert precision(Y, mixed(stack, said)) > best - 1
    if noises[0] == noises[1]:
        assert precision(Y, mixed(stack, said)) > best + 2  # both together see more than each


def test_scores_are_of_each_member_alone_and_of_the_whole():
    Y, said = planted(0, [0.5, 2.0])
    stack, _, scores = learned(Y, said, N_LABELS)
    found = [scores[0]["alone"], scores[1]["alone"], scores[1]["together"]]
    for own, P in zip(found, [*said, mixed(stack, said)], strict=True):
        expected = metrics.evaluate(Y, P)
        assert own == pytest.approx([expected[f"P@{k}"] for k in (1, 3, 5)])
    assert "together" not in scores[0]


def test_probabilities_of_the_mix_are_calibrated():
    stack, calibration, _ = learned(*planted(0, [0.5, 1.0]))
    Y, said = planted(4, [0.5, 1.0])
    P = mixed(stack, said)
    ranks = torch.from_numpy(np.argsort(np.argsort(-P, axis=1), axis=1))
    q = calibration(torch.from_numpy(P), ranks).numpy()
    assert metrics.ece_at_k(Y, q, 5) < 0.04


def test_members_may_remember_different_numbers_of_labels_and_rows():
    """As where one method holds out fewer rows: the first ones are the same."""
    Y, said = planted(0, [0.5, 1.0])
    few = sparse.csr_array(Y[:150])
    memories = [remembered(said[0][:150], few, 20), remembered(said[1], Y, 10)]
    stack = Stack(2, N_LABELS)
    stack.count(COUNTS)
    fit_stack(stack, Calibration(), memories, N_LABELS)
    same = Stack(2, N_LABELS)
    same.count(COUNTS)
    fit_stack(same, Calibration(), [memories[0], remembered(said[1][:150], few, 10)], N_LABELS)
    torch.testing.assert_close(stack.slopes, same.slopes)
    assert stack.slopes[0].mean() > stack.slopes[1].mean()


def test_without_held_out_rows_or_labels_members_count_alike():
    nothing = remembered(np.zeros((N_ROWS, N_LABELS), np.float32), planted(0, [])[0], 0)
    for memory in ({}, nothing):
        stack = Stack(2, N_LABELS)
        assert fit_stack(stack, Calibration(), [memory, memory], N_LABELS) == ([{}, {}], {})
        assert (stack.slopes == 0.5).all()


@pytest.mark.parametrize("n_kept", [1, 7])
def test_few_remembered_labels_are_calibrated_alone(n_kept):
    """Linear machines remember no label that never held: lists may be shorter than the calibration asks for."""
    Y, said = planted(0, [0.5])
    _, calibration, _ = learned(Y, said, n_kept)
    assert all(bool(torch.isfinite(values).all()) for values in calibration.buffers())
    assert not calibration.is_identity()
    other = Calibration()
    calibrate_mean(other, [remembered(said[0], Y, n_kept)] * 2, N_LABELS)
    assert all(bool(torch.isfinite(values).all()) for values in other.buffers())


def test_certain_probabilities_do_no_harm():
    Y, (good,) = planted(0, [0.5])
    sure = (good > 0.5).astype(np.float32)
    stack = learned(Y, [good, sure])[0]
    assert np.isfinite(logit(mixed(stack, [good, sure]).astype(np.float64))).all()
