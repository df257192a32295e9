"""Commands in several processes: the same model and answers as in one, whoever is killed, and whatever is wrong."""

import os
import random
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file
from scipy import sparse

from labelfield import Dataset, LinearClassifier, MLGPFClassifier, TopicClassifier, synth, write

WORDS = ("--method", "linear", "--set", "n_trees=1")


def free_port():
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return server.getsockname()[1]


class Ranks:
    """Processes that run the same command, or each its own, as a launcher starts them."""

    def __init__(self, size, *arguments, of_rank=None, only=None, timeout=120, **more):
        told = {"WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
        told |= {"OMP_NUM_THREADS": "1", "LABELFIELD_RANK_TIMEOUT": str(timeout), **more}
        self.processes = {
            rank: subprocess.Popen(
                [sys.executable, "-m", "labelfield", *map(str, (of_rank or {}).get(rank, arguments))],
                env=os.environ | told | {"RANK": str(rank)},
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for rank in (range(size) if only is None else only)
        }

    def end(self):
        """Return exit code, stdout and stderr of each."""
        try:
            found = {
                rank: process.communicate(timeout=240)
                for rank, process in self.processes.items()
                if not process.stdout.closed
            }
        finally:
            self.kill()
        return {rank: (self.processes[rank].returncode, *texts) for rank, texts in found.items()}

    def kill(self, *ranks):
        for rank in ranks or self.processes:
            self.processes[rank].kill()
            if not self.processes[rank].stdout.closed:
                self.processes[rank].communicate()


def done(size, *arguments, **more):
    found = Ranks(size, *arguments, **more).end()
    assert all(code == 0 for code, _, _ in found.values()), found
    assert all(out == err == "" for rank, (_, out, err) in found.items() if rank), found
    return found[0]


def make(folder, n_rows=300, n_features=80, n_labels=70, seed=0, unseen=()):
    drawn = synth.make_multilabel(n_rows, n_features, n_labels, seed=seed)
    Y = drawn.Y.tolil()
    Y[:, list(unseen)] = 0
    write(Dataset(drawn.X, sparse.csr_array(Y)).split(0.2), folder)
    return folder


def assert_same(one, other):
    a, b = (load_file(folder / "arrays.safetensors") for folder in (one, other))
    assert a.keys() == b.keys()
    for name in a:
        np.testing.assert_array_equal(a[name], b[name], name)


def assert_close(one, other, tolerance=1e-4):
    a, b = (load_file(folder / "arrays.safetensors") for folder in (one, other))
    assert a.keys() == b.keys()
    for name in a:
        np.testing.assert_allclose(a[name].astype(float), b[name].astype(float), atol=tolerance, err_msg=name)


# Two processes that share the time of importing: forked before anything has run.
FORKED = """
import os, sys
from labelfield import Dataset, synth
from labelfield import LinearClassifier, MLGPFClassifier, TopicClassifier
from labelfield.cluster import joined

models = [LinearClassifier(n_trees=1)]
models += [MLGPFClassifier(max_epochs=2, n_latent=5, n_inducing=9), TopicClassifier(max_epochs=5, n_topics=4)]
data, child = synth.make_multilabel(200, 60, 70, seed=0), os.fork()
os.environ["RANK"] = "1" if child == 0 else "0"
with joined() as cluster:
    for model in models:
        prepared = model.prepare(data.X, data.Y, cluster=cluster)
        model.train_prepared(prepared, cluster=cluster, checkpoint=f"{sys.argv[1]}-run/{model.method}")
        if cluster.is_first:
            model.save(f"{sys.argv[1]}-{model.method}")
if child == 0:
    os._exit(0)
assert os.wait()[1] == 0
"""


def test_two_processes_train_the_same_model_as_one(tmp_path):
    told = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "OMP_NUM_THREADS": "1"}
    subprocess.run([sys.executable, "-c", FORKED, tmp_path / "two"], env=os.environ | told, check=True, timeout=120)
    data = synth.make_multilabel(200, 60, 70, seed=0)
    for model in (
        LinearClassifier(n_trees=1),
        MLGPFClassifier(max_epochs=2, n_latent=5, n_inducing=9),
        TopicClassifier(max_epochs=5, n_topics=4),
    ):
        model.fit(data.X, data.Y).save(tmp_path / "one")
        same = assert_same if model.method == "linear" else assert_close
        same(tmp_path / "one", tmp_path / f"two-{model.method}")


@pytest.mark.slow
def test_nothing_but_the_model_is_left(tmp_path):
    data = make(tmp_path / "data", unseen=range(50, 60))
    done(1, "train", data, *WORDS, "--out", tmp_path / "one")
    done(2, "train", data, *WORDS, "--out", tmp_path / "two")
    assert_same(tmp_path / "one", tmp_path / "two")
    left = sorted(path.name for path in (tmp_path / "two").iterdir())
    assert left == ["arrays.safetensors", "config.json", "labels.txt"]


@pytest.mark.slow
class TestAnyNumber:
    def test_of_processes_more_than_blocks_and_blocks_without_positives(self, tmp_path):
        """Trials take part, half of the labels are never seen, and there are fewer blocks than ranks."""
        data = make(tmp_path / "data", unseen=range(30, 70))
        for size in (1, 2, 5):
            done(size, "train", data, "--method", "linear", "--out", tmp_path / f"{size}")
            assert_same(tmp_path / "1", tmp_path / f"{size}")

    @pytest.mark.parametrize("how", [(), ("--rank-by", "propensity")])
    def test_predicts_and_scores_alike(self, tmp_path, how):
        data = make(tmp_path / "data", unseen=range(10))
        done(1, "train", data, *WORDS, "--out", tmp_path / "model")
        scores, lists = [], []
        for size in (1, 3):
            out = tmp_path / f"{size}.npz"
            done(size, "predict", tmp_path / "model", data, "-k", 7, "--out", out, *how)
            scores.append(done(size, "evaluate", tmp_path / "model", data, *how)[1])
            lists.append(sparse.load_npz(out))
        assert scores[0] == scores[1]
        np.testing.assert_array_equal(lists[0].indices, lists[1].indices)
        np.testing.assert_allclose(lists[0].data, lists[1].data, rtol=1e-5)


def hard(folder):
    """Rows that take some seconds to solve: many, with labels at random."""
    rng = np.random.default_rng(0)
    X = sparse.csr_array(sparse.random(6000, 3000, 0.01, format="csr", rng=0, dtype=np.float32))
    Y = sparse.csr_array((rng.random((6000, 700)) < 0.01).astype(np.float32))
    write(Dataset(X, Y).split(0.05), folder)
    return folder


HARD = (*WORDS, "--set", "row_transform=unit", "--set", "cost=1.0", "--set", "tol=0.0", "--set", "n_passes=30")


def n_saved(folder, of="*"):
    return sum(path.stat().st_size for path in folder.glob(f"checkpoint.*-of-{of}.safetensors"))


def wait_for_blocks(folder, ranks, n_bytes=100_000):
    """Wait until the ranks have saved so many bytes of blocks."""
    for _ in range(1200):
        if n_saved(folder, len(ranks.processes)) > n_bytes:
            return
        if any(process.poll() is not None for process in ranks.processes.values()):
            return
        time.sleep(0.1)


@pytest.mark.slow
def test_a_checkpoint_of_three_goes_on_with_two_and_then_with_one(tmp_path):
    data, out = hard(tmp_path / "data"), tmp_path / "model"
    done(1, "train", data, *HARD, "--out", tmp_path / "whole")
    for size in (3, 2):
        before = n_saved(out)
        ranks = Ranks(size, "train", data, *HARD, "--out", out, "--resume")
        wait_for_blocks(out, ranks, before + 100_000)
        ranks.kill()
        assert list(out.glob(f"checkpoint.*-of-{size}.safetensors"))
    done(1, "train", data, *HARD, "--out", out, "--resume")
    assert_same(tmp_path / "whole", out)
    assert not list(out.glob("checkpoint*"))


@pytest.mark.slow
def test_a_rank_killed_at_random_moments_changes_nothing(tmp_path):
    """torchrun starts all ranks again after each kill, and they go on where their checkpoints are."""
    data, out = hard(tmp_path / "data"), tmp_path / "model"
    done(1, "train", data, *HARD, "--out", tmp_path / "whole")
    rng, n_kills = random.Random(0), 20
    command = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", f"--max-restarts={n_kills + 1}"]
    command += ["-m", "labelfield", "train", str(data), *HARD, "--out", str(out)]
    launched = subprocess.Popen(
        [sys.executable, *command],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    n_killed, killed = 0, set()
    while n_killed < n_kills and launched.poll() is None:
        time.sleep(rng.uniform(0.2, 12))
        young = [number for number in children(launched.pid) if number not in killed]
        if young:
            killed.add(victim := rng.choice(young))
            os.kill(victim, signal.SIGKILL)
            n_killed += 1
    assert launched.wait(300) == 0
    assert n_killed >= 3  # a fast machine may be done before the last
    assert_same(tmp_path / "whole", out)


def children(parent):
    path = Path(f"/proc/{parent}/task/{parent}/children")
    return [int(number) for number in path.read_text().split()] if path.exists() else []


@pytest.mark.slow
class TestBadRanks:
    def test_other_rows_are_told_at_once(self, tmp_path):
        data, other = make(tmp_path / "data"), make(tmp_path / "other", seed=1)
        theirs = ("train", other, *WORDS, "--out", tmp_path / "model")
        found = Ranks(2, "train", data, *WORDS, "--out", tmp_path / "model", of_rank={1: theirs}).end()
        assert found[0][0] == found[1][0] == 1
        told = "rank 1 has other training rows than rank 0. Start all ranks with the same command, on the same data"
        assert found[0][2].endswith(f"error: {told}\n")
        assert found[1][2] == ""
        assert not (tmp_path / "model").exists()

    def test_other_options_are_told_at_once(self, tmp_path):
        data = make(tmp_path / "data")
        theirs = ("train", data, "--method", "linear", "--set", "n_trees=2", "--out", tmp_path / "model")
        found = Ranks(2, "train", data, *WORDS, "--out", tmp_path / "model", of_rank={1: theirs}).end()
        assert "error: rank 1 has other options than rank 0" in found[0][2]

    def test_a_rank_that_never_starts_is_named(self, tmp_path):
        command = "train", make(tmp_path / "data"), *WORDS, "--out", tmp_path / "model"
        found = Ranks(3, *command, only=(0, 1), timeout=8).end()
        for rank in (0, 1):
            assert found[rank][0] == 1
            assert "error: rank 2 has not come to the start within 8 s, of 3 ranks" in found[rank][2]

    def test_a_rank_that_is_gone_is_missed(self, tmp_path):
        out = tmp_path / "model"
        ranks = Ranks(2, "train", hard(tmp_path / "data"), *HARD, "--out", out, timeout=10)
        wait_for_blocks(out, ranks)
        ranks.kill(1)
        code, _, told = ranks.end()[0]
        assert code == 1
        assert "error: rank 1 has not come to the end of training within 10 s" in told

    def test_a_model_of_another_kind(self, tmp_path):
        found = Ranks(2, "train", make(tmp_path / "data"), "--out", tmp_path / "model").end()
        assert "error: auto: a factor model takes part, which trains in one process" in found[0][2]


# Factor models and topics, which take every step together

FACTOR = ("--method", "mlgpf", "--set", "n_latent=12", "--set", "n_inducing=20", "--set", "batch_size=50")
TOPICS = ("--method", "topics", "--set", "n_topics=6", "--set", "max_epochs=30")


@pytest.mark.slow
class TestTogether:
    @pytest.mark.parametrize("words", [FACTOR, (*FACTOR, "--set", "label_linear=point"), TOPICS], ids=str)
    def test_any_number_of_processes_trains_and_answers_alike(self, tmp_path, words):
        """Half of the labels are never seen, and with 70 labels there are fewer blocks than processes."""
        data = make(tmp_path / "data", unseen=range(30, 70))
        scores = set()
        for size in (1, 2, 4):
            done(size, "train", data, *words, "--out", tmp_path / f"{size}")
            assert_close(tmp_path / "1", tmp_path / f"{size}")
            scores.add(done(size, "evaluate", tmp_path / "1", data)[1])
            left = sorted(path.name for path in (tmp_path / f"{size}").iterdir())
            assert left == ["arrays.safetensors", "config.json", "labels.txt"]
        assert len(scores) == 1

    def test_a_process_that_is_killed_is_named_and_the_run_goes_on(self, tmp_path):
        data, out = hard(tmp_path / "data"), tmp_path / "model"
        words = (*FACTOR, "--set", "max_epochs=6", "--set", "calibrate=false")
        done(1, "train", data, *words, "--out", tmp_path / "whole")
        ranks = Ranks(2, "train", data, *words, "--out", out, timeout=20)
        wait_for(out / "checkpoint.safetensors", ranks)
        time.sleep(1.0)
        ranks.kill(1)
        code, _, told = ranks.end()[0]
        assert code == 1
        assert "rank 0 has lost the others in a step: rank 1 does not answer" in told
        done(3, "train", data, *words, "--out", out, "--resume")
        assert_close(tmp_path / "whole", out)

    def test_a_process_that_is_asked_to_stop_stops_all_and_they_go_on(self, tmp_path):
        data, out = hard(tmp_path / "data"), tmp_path / "model"
        words = (*FACTOR, "--set", "max_epochs=6", "--set", "calibrate=false")
        done(1, "train", data, *words, "--out", tmp_path / "whole")
        ranks = Ranks(2, "train", data, *words, "--out", out)
        wait_for(out / "checkpoint.safetensors", ranks)
        ranks.processes[1].send_signal(signal.SIGTERM)
        found = ranks.end()
        assert [found[rank][0] for rank in (0, 1)] == [143, 143]
        assert "the same command with --resume continues" in found[0][2]
        done(2, "train", data, *words, "--out", out, "--resume")
        assert_close(tmp_path / "whole", out)

    def test_other_rows_and_options_are_told_at_once(self, tmp_path):
        data, other = make(tmp_path / "data"), make(tmp_path / "other", seed=1)
        out = ("--out", tmp_path / "model")
        theirs = ("train", other, *FACTOR, *out)
        found = Ranks(2, "train", data, *FACTOR, *out, of_rank={1: theirs}).end()
        assert "error: rank 1 has other training rows than rank 0" in found[0][2]
        theirs = ("train", data, *FACTOR, "--set", "learning_rate=0.5", *out)
        found = Ranks(2, "train", data, *FACTOR, *out, of_rank={1: theirs}).end()
        assert "error: rank 1 has other options than rank 0" in found[0][2]
        assert not (tmp_path / "model").exists()

    def test_a_full_disk_is_told_and_leaves_the_checkpoint_before_it(self, tmp_path):
        """A limit on the size of files fails as a full disk does; 20 kB are enough for the rows and not for a model."""
        data, out = make(tmp_path / "data"), tmp_path / "model"
        limited = "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000)); "
        limited += "from labelfield.cli.main import main; main()"
        told = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-c", limited, "train", str(data), *FACTOR, "--out", str(out)]
        ranks = [
            subprocess.Popen(command, env=os.environ | told | {"RANK": str(rank)}, stderr=subprocess.PIPE, text=True)
            for rank in range(2)
        ]
        said = [process.communicate(timeout=120)[1] for process in ranks]
        assert ranks[0].returncode
        assert "File too large" in said[0]
        assert not list(out.glob("*")) if out.exists() else True


def wait_for(path, ranks):
    for _ in range(1200):
        if path.exists() or any(process.poll() is not None for process in ranks.processes.values()):
            return
        time.sleep(0.05)


@pytest.mark.slow
def test_a_restart_onto_a_model_of_another_training_is_refused_again(tmp_path):
    data, out = make(tmp_path / "data"), tmp_path / "model"
    done(1, "train", data, *WORDS, "--out", out)
    before = (out / "arrays.safetensors").read_bytes()
    command = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "--max-restarts=2"]
    command += ["-m", "labelfield", "train", str(data), *WORDS, "--out", str(out)]
    found = subprocess.run([sys.executable, *command], capture_output=True, text=True, timeout=240, check=False)
    assert found.returncode != 0
    assert "exists; pass --overwrite to replace it" in found.stderr
    assert "is complete" not in found.stderr
    assert (out / "arrays.safetensors").read_bytes() == before
