"""Commands: what they print where, their exit codes, and that they agree with the functions they wrap."""

import io
import json
import os
import pty
import runpy
import select
import signal
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import patch

import numpy as np
import pytest
import typer

import labelfield
from labelfield import metrics
from labelfield.cli.main import interruptible, main
from labelfield.cli.output import Bar

COMMANDS = ("info", "convert", "split", "synth", "evaluate")


def run(*arguments, check=0):
    """Run a command in this process, as `main` does."""
    stdout, stderr = io.StringIO(), io.StringIO()
    code = 0
    with redirect_stdout(stdout), redirect_stderr(stderr), patch("sys.argv", ["labelfield", *map(str, arguments)]):
        try:
            main()
        except SystemExit as stop:
            code = stop.code or 0
    assert code == check, stderr.getvalue()
    return SimpleNamespace(stdout=stdout.getvalue(), stderr=stderr.getvalue())


def message(done):
    """What was said on stderr, in one line and without the box around it."""
    return " ".join(done.stderr.replace("│", " ").split())


@pytest.fixture(scope="module")
def toy(tmp_path_factory):
    path = tmp_path_factory.mktemp("cli") / "toy"
    run("synth", "--out", path, "--rows", 400, "--features", 200, "--labels", 30, "--seed", 3)
    return path


def test_the_installed_command(toy, monkeypatch, capsys):
    command = [Path(sys.executable).with_name("labelfield"), "info", toy, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert json.loads(done.stdout)["splits"]["train"]["rows"] == 320
    monkeypatch.setattr("sys.argv", ["labelfield", "info", "nowhere"])
    with pytest.raises(SystemExit) as stop:
        runpy.run_module("labelfield", run_name="__main__")
    assert (stop.value.code, capsys.readouterr().out) == (3, "")


def test_synth_equals_the_function(toy):
    ours, theirs = labelfield.read(toy), labelfield.synth.make_multilabel(400, 200, 30, seed=3).split(0.2, seed=3)
    for a, b in ((ours.X, theirs.X), (ours.Y, theirs.Y), (ours.test.X, theirs.test.X), (ours.test.Y, theirs.test.Y)):
        np.testing.assert_array_equal(a.toarray(), b.toarray())


def test_info_equals_describe(toy):
    done = run("info", toy, "--json")
    shown = json.loads(done.stdout)
    dataset = labelfield.read(toy)
    assert shown["splits"]["train"] == json.loads(json.dumps(labelfield.describe(dataset.train)))
    assert shown["splits"]["test"]["rows"] == 80
    assert "320" in run("info", toy).stdout


def test_convert_and_back(toy, tmp_path):
    dataset = labelfield.read(toy)
    for name in ("a.txt.gz", "b.svm", "c.npz", "d"):
        done = run("convert", toy / "test", tmp_path / name, "--json")
        assert json.loads(done.stdout)["rows"] == {"all": 80}
        again = labelfield.read(tmp_path / name)
        np.testing.assert_array_equal(again.X.toarray(), dataset.test.X.toarray())
    run("convert", toy, tmp_path / "splits", "--format", "txt")
    assert sorted(p.name for p in (tmp_path / "splits").iterdir()) == ["test.txt", "train.txt"]
    assert labelfield.read(tmp_path / "splits").test.n_rows == 80


def test_class_files(tmp_path):
    (tmp_path / "d.csv").write_text("kind,u,v\nb,1,2\na,3,4\n")
    (tmp_path / "d.svm").write_text("-1 1:1\n+1 2:1\n+1 1:3\n")
    card = json.loads(run("info", tmp_path / "d.csv", "--label-column", "kind", "--json").stdout)["splits"]["all"]
    assert (card["features"], card["labels"], card["label_names"]) == (2, 2, True)
    assert "'b' in column 'kind' is not a number" in run("info", tmp_path / "d.csv", check=3).stderr
    run("convert", tmp_path / "d.svm", tmp_path / "d", "--classes")
    assert labelfield.read(tmp_path / "d").label_names == ["-1", "1"]
    run("split", tmp_path / "d.csv", "--label-column", "0", "--test", 0.5, "--out", tmp_path / "s")
    assert labelfield.read(tmp_path / "s").label_names == ["a", "b"]


def test_split_equals_the_method(toy, tmp_path):
    run("split", toy / "train", "--test", 0.25, "--seed", 7, "--out", tmp_path / "cut")
    ours, theirs = labelfield.read(tmp_path / "cut"), labelfield.read(toy).train.split(0.25, seed=7)
    np.testing.assert_array_equal(ours.test.X.toarray(), theirs.test.X.toarray())


@pytest.mark.parametrize("name", ["p.txt", "p.txt.gz", "lists.npz", "dense.npz"])
def test_evaluate_equals_the_function(name, toy, tmp_path):
    dataset = labelfield.read(toy)
    scores = np.random.default_rng(0).random((80, 30)).astype(np.float32)
    if name != "dense.npz":
        best = np.sort(scores, axis=1)[:, -5][:, None]
        scores = labelfield.Dataset(np.where(scores >= best, scores, 0), dataset.test.Y).X
    labelfield.write_predictions(scores, tmp_path / name)
    done = run("evaluate", tmp_path / name, toy / "test", "--train", toy / "train", "--json")
    shown = json.loads(done.stdout)
    expected = metrics.evaluate(dataset.test.Y, scores, dataset.Y)
    assert {key: shown[key] for key in expected} == pytest.approx(expected)
    assert shown["seconds"] >= 0
    run("evaluate", tmp_path / name, toy)  # the test split, its training rows beside it
    assert json.loads(run("evaluate", tmp_path / name, toy, "--json").stdout)["PSP@5"] == shown["PSP@5"]
    assert "PSP@1" not in json.loads(run("evaluate", tmp_path / name, toy / "test", "--json").stdout)


def test_popularity_equals_the_function(toy):
    dataset = labelfield.read(toy)
    shown = json.loads(run("evaluate", "popularity", toy, "--json", "-k", "1,2").stdout)
    expected = metrics.evaluate(dataset.test.Y, metrics.popularity(dataset.Y, 80, 2), dataset.Y, k=(1, 2))
    assert {key: shown[key] for key in expected} == pytest.approx(expected)


def test_unlabelled_rows_can_be_dropped(toy):
    kept, dropped = (
        json.loads(run("evaluate", "popularity", toy, "--json", "--unlabelled", how).stdout) for how in ("miss", "drop")
    )
    assert dropped["rows"] == kept["rows"] - kept["unlabelled_rows"]
    assert dropped["P@1"] * dropped["rows"] == pytest.approx(kept["P@1"] * kept["rows"])


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_an_example(command):
    text = run(command, "--help").stdout
    assert f"Example: labelfield {command}" in " ".join(text.split())


def test_help_and_version():
    text = run("--help").stdout
    for command in COMMANDS:
        assert command in text
    assert labelfield.__version__ in run("--version").stdout


def test_wrong_usage_exits_2(toy, tmp_path):
    for arguments in (
        ["info"],
        ["info", toy, "--nonsense"],
        ["nonsense"],
        ["convert", toy, tmp_path / "x.csv"],
        ["convert", toy, tmp_path / "x.txt"],  # two splits, one file
        ["convert", toy, tmp_path / "x", "--format", "csv"],
        ["convert", toy, toy],
        ["split", toy / "train", "--test", 1.5, "--out", tmp_path / "x"],
        ["split", toy / "train", "--out", toy],
        ["synth", "--out", tmp_path / "x", "--labels-per-row", 1e6],
        ["synth", "--out", tmp_path / "x", "--kernel", "cubic"],
        ["synth", "--out", toy],
        ["evaluate", "popularity", toy / "test"],
        ["evaluate", "popularity", toy, "-k", "0"],
        ["evaluate", "popularity", toy, "-k", "a,b"],
        ["evaluate", "popularity", toy, "--propensity-b", "-5"],
        ["evaluate", "popularity", toy, "--propensity-a", "nan"],
    ):
        done = run(*arguments, check=2)
        assert not done.stdout
        assert "Traceback" not in done.stderr
    assert not list(tmp_path.iterdir())


def test_bad_data_exits_3_with_one_line(toy, tmp_path):
    bad = tmp_path / "bad.txt"
    bad.write_text("1 5 4\n0 7:1\n")
    short = tmp_path / "short.txt"
    short.write_text("1:1\n")
    (empty := tmp_path / "empty.txt").write_text("0 5 30\n")
    for arguments, words in (
        (["info", bad], f"{bad}:2: "),
        (["evaluate", "popularity", toy / "test", "--train", empty], "no training rows"),
        (["info", tmp_path / "nowhere"], "nowhere"),
        (["info", bad, "--json"], f"{bad}:2: "),
        (["info", tmp_path], "without train rows"),
        (["convert", bad, tmp_path / "out"], f"{bad}:2: "),
        (["split", bad, "--out", tmp_path / "out"], f"{bad}:2: "),
        (["split", toy, "--out", tmp_path / "out"], "already has two splits"),
        (["evaluate", short, toy], f"{short}:1: "),
        (["evaluate", tmp_path / "nothing.txt", toy], "nothing.txt"),
    ):
        done = run(*arguments, check=3)
        assert not done.stdout
        assert done.stderr.count("\n") == 1, done.stderr
        assert words in done.stderr
    assert sorted(p.name for p in tmp_path.iterdir()) == ["bad.txt", "empty.txt", "short.txt"]


def test_wide_data_and_long_lists_need_no_memory(tmp_path):
    wide = tmp_path / "wide.txt"
    wide.write_text("1 3 2147483647\n2147483646 0:1\n")
    assert json.loads(run("info", wide, "--json").stdout)["splits"]["all"]["labels_used"] == 1
    few = tmp_path / "few.txt"
    few.write_text("1 3 4\n2 0:1\n")
    shown = json.loads(run("evaluate", "popularity", few, "--train", few, "-k", "2000000000", "--json").stdout)
    assert shown["R@2000000000"] == 100


def test_overwrite(toy, tmp_path):
    target = tmp_path / "out"
    for format in ("folder", "txt.gz", "npz"):
        run("convert", toy, target, "--format", format, "--overwrite")
        assert labelfield.read(target).n_rows == 320
    (target / "mine.md").write_text("keep me")
    assert "mine.md" in run("convert", toy, target, "--overwrite", check=2).stderr
    assert (target / "mine.md").exists()


def test_json_is_alone_on_stdout(toy, tmp_path):
    for arguments in (
        ["synth", "--rows", 50, "--out", tmp_path / "s"],
        ["split", toy / "train", "--out", tmp_path / "t"],
    ):
        json.loads(run(*arguments, "--json").stdout)


def test_bad_folder_from_a_stranger_is_refused(toy, tmp_path):
    run("convert", toy / "train", tmp_path / "store")
    indices = np.load(tmp_path / "store" / "X_indices.npy")
    indices[0] = 10**9
    np.save(tmp_path / "store" / "X_indices.npy", indices)
    assert "damaged" in run("info", tmp_path / "store", check=3).stderr


def test_a_progress_bar_is_shown_on_a_terminal_alone(monkeypatch, capsys):
    monkeypatch.setattr("labelfield.cli.output._PATIENCE_S", 0.0)

    def work():
        with Bar("working") as bar:
            if bar.timer.ident is not None:
                bar.timer.join()  # as work does that takes longer than the bar waits
            bar(1, 5)

    work()
    assert capsys.readouterr() == ("", "")
    terminal, child = pty.openpty()
    with open(child, "w") as stderr, monkeypatch.context() as patched:
        patched.setattr("sys.stderr", stderr)
        work()
        stderr.flush()
        shown = ""
        while "working" not in shown:  # a terminal gives what it has, which may be the beginning alone
            assert select.select([terminal], [], [], 10)[0], shown
            shown += os.read(terminal, 65536).decode()
    os.close(terminal)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(("signals", "code"), [([], 130), ([signal.SIGTERM], 143)], ids=["SIGINT", "SIGTERM"])
def test_an_interrupted_command_says_so(signals, code, capsys):
    @interruptible
    def command():
        for number in signals:
            signal.raise_signal(number)
        raise KeyboardInterrupt

    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(typer.Exit) as stop:
        command()
    assert (stop.value.exit_code, capsys.readouterr().err) == (code, "interrupted\n")
    assert signal.getsignal(signal.SIGTERM) is before
