"""The order of an epoch: every row once, in blocks that lie together, mixed within windows."""

import numpy as np
import pytest
import torch

import labelfield
from labelfield import MLGPFClassifier, synth
from labelfield.inference.source import DatasetSource
from labelfield.inference.windows import Windows

DATA = synth.make_multilabel(500, 40, 12, n_nonzeros=10, seed=0)
N = DATA.X.indices.size


@pytest.mark.parametrize(("block", "window"), [(50, 500), (N // 3, N // 2), (1, 7), (64, 64), (N, N)])
def test_an_epoch_has_every_row_once(block, window):
    order = Windows(DATA, block, window).order(np.random.default_rng(0))
    assert sorted(order.tolist()) == list(range(500))
    again = Windows(DATA, block, window).order(np.random.default_rng(0))
    np.testing.assert_array_equal(order, again)
    assert (order != Windows(DATA, block, window).order(np.random.default_rng(1))).any()


def test_small_data_are_in_random_order():
    order = DatasetSource(DATA).order(np.random.default_rng(5))
    np.testing.assert_array_equal(order, np.random.default_rng(5).permutation(500))


def test_a_window_reads_few_blocks_and_mixes_all_parts_of_the_data():
    windows = Windows(DATA, block=N // 50, window=N // 5)
    order, size = windows.order(np.random.default_rng(0)), windows.rows_per_block
    first = 0
    for number in range(windows._n_windows() - 1):
        n_rows = sum(last - start for start, last in map(windows._rows_of, windows._blocks_of(number)))
        some = order[first : first + n_rows]
        assert len(np.unique(some // size)) == 10  # blocks, each read in one piece
        assert some.max() - some.min() > 250
        assert (np.diff(some) == 1).mean() < 0.1
        first += n_rows
    # Over many epochs each row is as likely as any other to come first.
    first = [windows.order(np.random.default_rng(seed))[:50] for seed in range(400)]
    counts = np.bincount(np.concatenate(first), minlength=500)
    assert abs(counts.mean() - 40) < 1e-9
    assert counts.std() < 2 * 40**0.5  # rows of a block come together


def test_rows_on_disk_train_the_model_that_rows_in_memory_train(tmp_path, monkeypatch):
    monkeypatch.setattr(Windows.__init__, "__defaults__", (200, 1000))
    labelfield.write(DATA, tmp_path / "rows")
    mapped = labelfield.read(tmp_path / "rows")
    how = {"n_latent": 4, "n_inducing": 6, "batch_size": 50, "max_epochs": 3, "device": "cpu"}
    here, there = (MLGPFClassifier(**how).fit(data.X, data.Y) for data in (DATA, mapped))
    for name, value in here.model_.state_dict().items():
        assert torch.equal(value, there.model_.state_dict()[name]), name


def test_hints_follow_the_windows(tmp_path, monkeypatch):
    labelfield.write(DATA, tmp_path / "rows")
    windows, told = Windows(labelfield.read(tmp_path / "rows"), 100, 500), []
    monkeypatch.setattr(windows, "_advise", lambda window, advice: told.append((window, advice)))
    order = windows.order(np.random.default_rng(0))
    for first in range(0, 500, 20):
        windows.read_ahead(order[first : first + 20])
    wanted = [window for window, advice in told if advice == "MADV_WILLNEED"]
    dropped = [window for window, advice in told if advice == "MADV_DONTNEED"]
    assert set(wanted) == set(range(windows._n_windows()))
    assert dropped == list(range(windows._n_windows() - 2))
