"""Several processes: nobody waits for ever, everything is done once, and whoever differs or is missing has a number."""

import errno
import os
import resource
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file
from torch.distributed import HashStore

import labelfield
from labelfield import synth
from labelfield.atomic import require_only_ours
from labelfield.cluster import ALONE, Cluster, ClusterError, _leave, _pack, _unpack, joined
from labelfield.errors import DataError
from labelfield.estimators.classifier import spread
from labelfield.inference.checkpoint import read_checkpoint, write_checkpoint
from labelfield.inference.shards import _owners, shard_path
from labelfield.mapped import room_in_file
from labelfield.methods import METHODS
from labelfield.models.artifact import CHECKPOINT, MODEL_FILES, is_unfinished, remove_checkpoints
from labelfield.models.divided import RowShares
from labelfield.models.streaming import write_arrays
from tests import threads


def together(size, act, timeout=20.0):
    """Let the ranks of a cluster act, each in a thread: all that goes over the store works there."""
    store = HashStore()
    with ThreadPoolExecutor(size) as pool:
        return list(pool.map(lambda rank: act(Cluster(rank, size, store, timeout)), range(size)))


def test_a_rank_that_does_not_come_is_named():
    def act(cluster):
        if cluster.rank in (1, 3):
            return ""
        with pytest.raises(ClusterError) as caught:
            cluster.meet("the start")
        return str(caught.value)

    for told in together(4, act, timeout=0.3)[::2]:
        assert told.startswith("ranks 1, 3 have not come to the start within 0.3 s, of 4 ranks. ")
        assert "LABELFIELD_RANK_TIMEOUT" in told


def test_whoever_waits_can_be_interrupted():
    def act(cluster):
        if cluster.rank == 0:
            cluster.while_waiting = lambda: (_ for _ in ()).throw(KeyboardInterrupt)
            with pytest.raises(KeyboardInterrupt):
                cluster.meet("nothing")

    together(2, act)


def test_ranks_that_differ_are_told_at_once_in_what():
    def act(cluster):
        cluster.agree({"options": "a", "training rows": "1"})
        with pytest.raises(ClusterError) as caught:
            cluster.agree({"options": "a", "training rows": "1" if cluster.rank != 2 else "2"})
        assert caught.value.is_known_to_all
        return str(caught.value)

    told = "rank 2 has other training rows than rank 0. Start all ranks with the same command, on the same data"
    assert together(3, act) == [told] * 3


@given(st.integers(0, 40), st.integers(1, 5), st.integers(1, 7))
def test_every_piece_of_work_is_taken_once(n, size, most):
    def act(cluster):
        claims, own = cluster.claims(n), []
        while taken := claims.take(most):
            assert len(taken) <= most
            own += taken
        assert claims.n_left() == 0
        return own

    assert sorted(piece for own in together(size, act) for piece in own) == list(range(n))


def test_the_last_claims_are_single_pieces():
    claims = Cluster(0, 2, HashStore()).claims(20)
    assert [len(claims.take(4)) for _ in range(7)] == [4, 4, 3, 2, 1, 1, 1]


def test_a_process_alone_has_what_it_gives():
    one = {"a": np.arange(3)}
    assert ALONE.share("", lambda: one) is one
    assert list(ALONE.gather("", iter([one, one]))) == [(0, one), (0, one)]
    assert ALONE.exchange("", one) == [one]
    ALONE.meet("")
    ALONE.agree({"anything": "at all"})
    with joined() as cluster:
        assert cluster is ALONE


def test_arrays_travel_unchanged():
    for one in ({"a": np.zeros((0, 3), np.int32), "b": np.arange(4.0).reshape(2, 2).T, "c": np.array(7.0)}, {}):
        there = _unpack(_pack(one))
        assert there.keys() == one.keys()
        for name, array in one.items():
            np.testing.assert_array_equal(there[name], array)
            assert (there[name].dtype, there[name].shape) == (array.dtype, array.shape)


@pytest.mark.parametrize("text", ["soon", "-3", "0"])
def test_a_time_out_that_is_no_time(monkeypatch, text):
    told = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}
    for name, value in (told | {"LABELFIELD_RANK_TIMEOUT": text}).items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ClusterError, match=f"LABELFIELD_RANK_TIMEOUT={text}; expected a number of seconds"), joined():
        pass


def test_rank_0_that_cannot_be_reached_is_told(monkeypatch):
    told = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "9"}
    for name, value in (told | {"LABELFIELD_RANK_TIMEOUT": "0.2"}).items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ClusterError, match=r"rank 1 finds no rank 0 at 127\.0\.0\.1:9 within 0\.2 s"), joined():
        pass


def test_the_first_rank_which_has_the_store_leaves_last(monkeypatch):
    left = []

    def act(cluster):
        time.sleep(0.3 * cluster.rank)
        _leave(cluster)
        left.append(cluster.rank)

    together(3, act)
    assert left[:2] == [1, 2] or left == [1, 0, 2]  # 0 may be told of 2 before 2 goes on
    monkeypatch.setattr("labelfield.cluster._LINGERING", 0.2)
    _leave(Cluster(0, 2, HashStore()))  # nobody else leaves, and it ends


# Checkpoints


@given(st.data(), st.integers(1, 5), st.integers(1, 30))
def test_every_block_that_is_seen_is_taken_over_by_one_rank_that_sees_it(data, size, n):
    seen = [np.array(data.draw(st.lists(st.integers(0, n), unique=True)), np.int64) for _ in range(size)]
    own, free = [], set(range(n + 1))
    for part in seen:
        own.append(np.array([block for block in part if block in free and block % 3 == 0], np.int64))
        free -= set(own[-1].tolist())
    known = np.unique(np.concatenate(seen))
    owners = _owners(known, [{"seen": a, "own": b} for a, b in zip(seen, own, strict=True)])
    for block, owner in zip(known, owners, strict=True):
        assert block in seen[owner]
        holders = [rank for rank in range(size) if block in own[rank]]
        assert not holders or owner == holders[0]


def test_blocks_that_all_ranks_see_are_dealt_out_evenly():
    known = np.arange(10)
    owners = _owners(known, [{"seen": known, "own": known[:0]}] * 3)
    assert np.bincount(owners).tolist() == [4, 3, 3]


def test_files_of_ranks_belong_to_the_model(tmp_path):
    paths = [shard_path(tmp_path / CHECKPOINT, Cluster(rank, 2, HashStore())) for rank in range(2)]
    assert [path.name for path in paths] == ["checkpoint.1-of-2.safetensors", "checkpoint.2-of-2.safetensors"]
    assert shard_path(tmp_path / CHECKPOINT, ALONE) == tmp_path / CHECKPOINT
    for path in paths:
        path.touch()
    require_only_ours(tmp_path, MODEL_FILES)
    assert is_unfinished(tmp_path)
    (tmp_path / "mine.txt").touch()
    remove_checkpoints(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]
    with pytest.raises(FileExistsError, match=r"mine\.txt"):
        require_only_ours(tmp_path, MODEL_FILES)


@pytest.fixture
def small_files():
    """A limit on the size of files, which fails as a full disk does."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_full_disk_leaves_the_checkpoint_before_it(tmp_path, small_files):
    path = tmp_path / "checkpoint.safetensors"
    with pytest.raises(DataError, match=r"cannot be written \(File too large\)\. Free some space and go on"):
        write_checkpoint(path, {"a": torch.zeros(100_000)}, {})
    assert list(tmp_path.iterdir()) == []
    write_checkpoint(path, {"a": torch.ones(3)}, {"n": 1})
    with pytest.raises(DataError, match=r"The checkpoint before it is kept\. Free some space"):
        write_checkpoint(path, {"a": torch.zeros(100_000)}, {})
    tensors, facts = read_checkpoint(path)
    assert (tensors["a"].tolist(), facts) == ([1, 1, 1], {"n": 1})
    assert list(tmp_path.iterdir()) == [path]


def test_no_room_for_the_weights_is_told_before_they_are_written(tmp_path, small_files):
    with pytest.raises(DataError, match=r"no room for arrays \(File too large\)\. Free 0 MiB there"):
        room_in_file(100_000, np.float32, tmp_path)
    room = room_in_file(1000, np.float32, tmp_path)
    room[:] = np.arange(1000)
    assert float(room.sum()) == 499_500
    assert room_in_file(0, np.int32, None).shape == (0,)


def test_other_failures_of_the_disk_are_not_called_full(tmp_path, monkeypatch):
    def fail(*_):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr("labelfield.inference.checkpoint.write_arrays", fail)
    with pytest.raises(OSError, match="Input/output error") as caught:
        write_checkpoint(tmp_path / "one", {}, {})
    assert caught.value.errno == errno.EIO


def test_arrays_in_parts_are_written_as_if_joined(tmp_path):
    path, whole = tmp_path / "one.safetensors", torch.arange(12).view(6, 2)
    arrays = {
        "whole": whole,
        "parts": [whole[:1], whole[1:1], whole[1:]],
        "turned": whole.T,
        "number": torch.tensor(2.5, dtype=torch.float64),
        "none": torch.zeros(0, 3, dtype=torch.bool),
        "short": torch.arange(3, dtype=torch.uint8),
        "brain": torch.arange(3, dtype=torch.bfloat16),
    }
    write_arrays(path, arrays, {"format": "x"})
    found = load_file(path)
    assert found.keys() == arrays.keys()
    for name, array in arrays.items():
        expected = whole if name == "parts" else array
        assert found[name].dtype == expected.dtype
        assert torch.equal(found[name], expected)


# Methods


@pytest.mark.parametrize("method", [name for name in METHODS if name not in ("linear", "mlgpf", "topics")])
def test_methods_that_train_in_one_process_say_so_at_once(method):
    data = synth.make_multilabel(60, 20, 5, seed=0)
    estimator = METHODS[method].load()()
    Y = data.Y if METHODS[method].has_classes({}) is not True else np.arange(60) % 3
    with pytest.raises(ClusterError, match=r"in one process: start (it )?without torchrun"):
        estimator.prepare(data.X, Y, cluster=Cluster(0, 2, HashStore()))


@pytest.mark.parametrize("method", [labelfield.MLGPFClassifier, labelfield.TopicClassifier])
def test_processes_divide_the_rows_of_a_question(method):
    data = synth.make_multilabel(60, 20, 5, seed=0)
    model = method(max_epochs=1).fit(data.X, data.Y)
    before, rows = model.predictor_, model.rows(data.X)
    spread(model, ALONE)
    assert model.predictor_ is before

    def act(cluster):
        found = RowShares(before, cluster)
        return [found.top_k(rows, 3), found.reached(rows, 0.2)], found.proba(rows)

    expected = [before.top_k(rows, 3), before.reached(rows, 0.2)]
    for lists, P in threads.together(3, act):
        for one, other in zip(lists, expected, strict=True):
            np.testing.assert_allclose(one.toarray(), other.toarray(), atol=1e-6)
        np.testing.assert_array_equal(P, before.proba(rows))


def test_what_rank_0_could_not_share_is_said_on_all_others(monkeypatch):
    monkeypatch.setattr("torch.distributed.broadcast", lambda tensor, source: tensor.fill_(-1))
    with pytest.raises(ClusterError, match="rank 0 has failed at the trials, and says why"):
        Cluster(1, 2, None, 1.0)._spread(None, "the trials")


@pytest.mark.parametrize(
    ("who", "told"),
    [((), "ranks 1, 2 do not answer"), ((1,), "rank 2 does not answer"), ((1, 2), "one of them has ended")],
    ids=["two", "one", "none"],
)
def test_a_sum_that_fails_names_who_did_not_notice(monkeypatch, who, told):
    def broken(tensor):
        raise RuntimeError("Connection reset by peer\n[more]")

    monkeypatch.setattr(torch.distributed, "all_reduce", broken)
    monkeypatch.setattr("labelfield.cluster._LINGERING", 0.2)
    store = HashStore()
    for rank in who:
        store.set(f"lost/{rank}", "a step")
    with pytest.raises(ClusterError) as caught:
        Cluster(0, 3, store).sum("a step", torch.ones(2))
    assert str(caught.value) == (
        f"rank 0 has lost the others in a step: {told} (Connection reset by peer). Look at what they say, and start "
        "all ranks again with --resume"
    )
