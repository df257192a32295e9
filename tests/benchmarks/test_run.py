"""A suite is run cell by cell, and each cell is recorded with where it comes from."""

import json
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse

import labelfield
from benchmarks.peers.environments import ENVIRONMENTS, PEERS, SCRIPTS, MissingPeerError, Peer, python_of
from benchmarks.record import Records, append_record
from benchmarks.suites import run
from benchmarks.suites.run import Choices, run_cells
from benchmarks.tables.scoreboard import scoreboard
from labelfield.errors import DataError
from labelfield.metrics import evaluate, popularity

# A peer that ranks labels by their frequency in training.
POPULARITY = """
import sys
sys.path.insert(0, {scripts!r})
from collections import Counter
from pathlib import Path
from protocol import Clock, finish, pairs, task
asked, clock = task(), Clock()
with clock("train"):
    lines = Path(asked["train"]).read_text().splitlines()[1:]
    counts = Counter(int(label) for line in lines for label in line.split(" ")[0].split(",") if label)
rows = list(pairs(asked["test"]))
with clock("predict"):
    order = sorted(counts, key=lambda label: (-counts[label], label))[: asked["k"]]
    ranked = [[(label, counts[label] / len(lines)) for label in order] for _ in rows]
finish(asked, clock, ranked, 17 * 2**20)
"""
THEIRS = {"peer": "omikuji-bonsai"}


@pytest.fixture
def popular(monkeypatch, tmp_path):
    """The script of a peer that needs no environment of its own."""
    script = tmp_path / "popular.py"
    script.write_text(POPULARITY.format(scripts=str(SCRIPTS)))
    monkeypatch.setitem(PEERS, "omikuji-bonsai", Peer("omikuji", str(script.with_suffix(""))))
    monkeypatch.setattr(run, "python_of", lambda _: Path(sys.executable))
    return script


@pytest.fixture
def unchanged(monkeypatch):
    """A commit without changes: nothing measured with changed code counts as done."""
    for module in ("suites.run", "provenance"):
        monkeypatch.setattr(f"benchmarks.{module}.commit", lambda: "abc1234")


@pytest.fixture
def choices(data, tmp_path):
    """A function that makes choices, with records in a folder of the test."""
    return lambda **others: Choices(**{"data": data, "records": tmp_path / "records", **others})


def latest(suite, records):
    return Records.of({suite.name: records}).latest(suite)


def test_ours_and_a_peer_get_the_same_scores_from_the_same_files(suite, data, choices, tmp_path, popular):
    mine = suite(
        {"ours": {"method": "mlgpf", "options": {"max_epochs": 2, "n_inducing": 10}}, "theirs": THEIRS},
        reference="theirs",
        scores=["P@1", "AUC_micro"],
        by_epoch=True,
    )
    done = {cell.row: record for cell, record in run_cells(mine, choices(device="cpu", command="mine"))}
    assert not any("skipped" in record for record in done.values()), done
    for record in done.values():
        assert record["machine"]["cores"] >= 1
        assert record["commit"]
        assert record["command"] == "mine"
        assert record["seconds"] > record["train_seconds"] > 0
        assert record["cpu_seconds"] > 0
        assert record["peak_mb"] > 5
        assert record["predict_seconds"] > 0
    assert done["theirs"]["packages"] == {"omikuji": "0.5.2"}
    assert done["theirs"]["model_mb"] == 17
    assert 0 < done["ours"]["model_mb"] < 1
    assert 0 < done["ours"]["scores"]["AUC_micro"] <= 1
    after_each = done["ours"]["history"]["P@1"]
    assert len(after_each) == len(done["ours"]["history"]["bound"]) == 2
    assert after_each[-1] == pytest.approx(done["ours"]["scores"]["P@1"], rel=1e-5)
    toy = labelfield.read(data / "toy")
    expected = evaluate(toy.test.Y, popularity(toy.Y, toy.test.n_rows, 5), toy.Y)
    for name in ("P@1", "P@5", "PSP@3", "nDCG@5"):
        assert done["theirs"]["scores"][name] == pytest.approx(expected[name])
    records = Records.load(tmp_path / "records")
    assert [record["row"] for record in records.runs["mine"]] == ["ours", "theirs"]
    table = scoreboard(mine, records.latest(mine))
    scores = done["ours"]["scores"]
    assert f"| ours | {scores['P@1']:.2f} | {scores['AUC_micro']:.4f} |" in table
    assert f"| theirs | {done['theirs']['scores']['P@1']:.2f} |  |" in table  # a peer ranks a few labels only
    assert "| 1× | 1× |" in table


def test_a_missing_peer_or_data_set_is_skipped_with_its_reason(suite, choices, tmp_path, monkeypatch):
    def missing(_):
        raise MissingPeerError("omikuji==0.5.2 cannot be installed: no wheel")

    monkeypatch.setattr(run, "python_of", missing)
    mine = suite({"theirs": {**THEIRS, "datasets": ["toy", "nowhere"]}})
    found = [record["skipped"] for _, record in run_cells(mine, choices())]
    assert found[0] == "omikuji==0.5.2 cannot be installed: no wheel"
    assert "no data set nowhere" in found[1]
    assert "theirs was skipped: omikuji==0.5.2" in scoreboard(mine, Records.load(tmp_path / "records").latest(mine))


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("asked, clock =", "raise RuntimeError('no such tree') #", "ended with 1: RuntimeError: no such tree"),
        ("for _ in rows", "for _ in rows[1:]", "ended with an answer that cannot be scored: "),
    ],
)
def test_a_peer_that_fails_is_skipped_with_its_reason(suite, choices, popular, old, new, reason):
    popular.write_text(popular.read_text().replace(old, new))
    ((_, record),) = run_cells(suite({"theirs": THEIRS}), choices())
    assert record["skipped"].startswith(reason)
    assert run.is_failure(record)


@pytest.mark.usefixtures("popular", "unchanged")
def test_an_interrupted_run_continues_and_again_measures_again(suite, choices, tmp_path):
    mine = suite({"theirs": THEIRS, "theirs too": THEIRS})
    next(run_cells(mine, choices()))  # and then it was interrupted
    again = choices(again=True, wanted=lambda cell: cell.row == "theirs")
    for asked, measured in ((choices(), ["theirs too"]), (choices(), []), (again, ["theirs"])):
        assert [cell.row for cell, _ in run_cells(mine, asked)] == measured
    assert len(Records.load(tmp_path / "records").runs["mine"]) == 3


@pytest.mark.usefixtures("popular", "unchanged")
def test_a_run_with_other_options_does_not_count(suite, choices, tmp_path):
    assert len(list(run_cells(suite({"theirs": THEIRS}), choices()))) == 1
    other = suite({"theirs": {**THEIRS, "options": {"max_depth": 2}}})
    assert Records.load(tmp_path / "records").latest(other) == {}
    assert [len(list(run_cells(other, choices()))) for _ in range(2)] == [1, 0]


@pytest.mark.parametrize(
    ("method", "options", "before"),
    [
        ("mlgpf", {"label_linear": "off", "calibrate": False}, {"private": "off", "calibrated": False}),
        ("softmax", {"kernel_per_class": True}, {"own_kernel": True}),
        ("svdkl", {"kernel_per_process": True}, {"own_kernel": True}),
    ],
)
def test_options_that_were_renamed_still_count(suite, method, options, before):
    mine = suite({"ours": {"method": method, "options": options}})
    for recorded in (options, before):
        (found,) = latest(mine, [measured("ours", method=method, options=recorded)]).values()
        assert found["options"] == options


@pytest.mark.usefixtures("popular", "unchanged")
def test_other_data_of_the_same_name_are_measured_again(suite, choices, data, tmp_path):
    toy = labelfield.read(data / "toy")
    Y = toy.Y[:, ::-1].tocsr()
    labelfield.write(labelfield.Dataset(toy.X, Y, test=toy.test), tmp_path / "other" / "toy")
    labelfield.write(toy, tmp_path / "copy" / "toy")
    mine = suite({"theirs": THEIRS})
    folders = (data, tmp_path / "copy", tmp_path / "other", tmp_path / "other")
    assert [len(list(run_cells(mine, choices(data=folder)))) for folder in folders] == [1, 0, 1, 0]
    first, second = (record["data"] for record in Records.load(tmp_path / "records").runs["mine"])
    sizes = {"rows": toy.n_rows, "test_rows": toy.test.n_rows, "features": toy.n_features, "labels": toy.n_labels}
    assert first == {**sizes, "digest": first["digest"]}
    assert second == {**sizes, "digest": second["digest"]} != first


@pytest.mark.usefixtures("unchanged")
def test_records_that_do_not_name_their_data_still_count(suite, choices, tmp_path):
    record = measured("ours", commit="abc1234", machine=run.machine(), device="cpu")
    append_record(tmp_path / "records", "mine", record)
    asked = choices(data=tmp_path / "nowhere", device="cpu")
    assert list(run_cells(suite({"ours": {"method": "mlgpf"}}), asked)) == []


@pytest.mark.usefixtures("popular")
def test_cells_that_run_at_the_same_time_are_all_recorded(suite, choices):
    done = list(run_cells(suite({f"row {number}": THEIRS for number in range(4)}), choices(jobs=3)))
    assert sorted(cell.row for cell, _ in done) == [f"row {number}" for number in range(4)]
    assert len({json.dumps(record["scores"]) for _, record in done}) == 1


def test_ending_early_ends_what_runs_at_the_same_time(suite, choices, popular):
    slow = "if task()['options']:\n    __import__('time').sleep(60)\n"
    popular.write_text(popular.read_text().replace("asked, clock", f"{slow}asked, clock", 1))
    cells = run_cells(suite({"slow": {**THEIRS, "options": {"slow": True}}, "fast": THEIRS}), choices(jobs=2))
    started = time.monotonic()
    assert next(cells)[0].row == "fast"  # recorded before the slow one is done
    cells.close()
    assert time.monotonic() - started < 30


def test_an_environment_that_cannot_be_made_says_where(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("not a folder")
    monkeypatch.setenv("LABELFIELD_PEERS", str(tmp_path / "file" / "peers"))
    for _ in range(2):
        with pytest.raises(MissingPeerError, match=r"cannot make an environment in .*file/peers: "):
            python_of("omikuji")


def test_a_later_skip_does_not_hide_a_measurement(suite):
    mine = suite({"ours": {"method": "mlgpf"}})
    good, skipped = measured("ours"), {**measured("ours"), "skipped": "no wheel"}
    for records, shown in (([good, skipped], good), ([skipped, good], good), ([skipped], skipped)):
        assert list(latest(mine, records).values()) == [shown]
    both = Records.of({"mine": [good, skipped]})
    assert list(both.without_measured("mine", {("toy", "ours", "full", 0)}).latest(mine).values()) == [skipped]


def test_runs_do_not_hide_a_study_of_the_same_name(tmp_path):
    lines = [{"study": "steps", "results": 1}, {"study": "steps", "results": 2}, {"row": "mine"}]
    for line in lines:
        append_record(tmp_path, "steps", line)
    append_record(tmp_path, "mine", lines[2])
    (tmp_path / "empty.jsonl").touch()
    assert Records.load(tmp_path) == Records({"mine": [lines[2]], "steps": [lines[2]]}, {"steps": lines[1]})


def test_every_package_of_a_peer_has_its_version():
    for environment in ENVIRONMENTS.values():
        assert all(environment.versions.values()), environment


@pytest.mark.parametrize(("line", "told"), [('{"row"', "not JSON"), ("[1]", "not a JSON object")])
def test_a_broken_record_is_reported_with_its_line(tmp_path, line, told):
    (tmp_path / "mine.jsonl").write_text(f'{{"row": "a"}}\n{line}\n')
    with pytest.raises(DataError, match=rf"mine.jsonl:2: {told}"):
        Records.load(tmp_path)


def measured(row, seed=0, **others):
    scores = sparse.csr_array(np.eye(3, dtype=np.float32))
    return {
        "dataset": "toy",
        "row": row,
        "budget": "full",
        "seed": seed,
        "method": "mlgpf",
        "options": {},
        "train_seconds": 2.0,
        "predict_seconds": 0.1,
        "peak_mb": 100.0,
        "scores": {**evaluate(scores, scores), "P@1": 60.0 + seed},
        **others,
    }


def test_means_and_deviations_of_several_starts(suite):
    mine = suite({"ours": {"method": "mlgpf", "seeds": 3}})
    records = [measured("ours", seed) for seed in range(3)]
    assert "| ours | 61.0 / 33.3 / 20.0 (± 1.0 in 3 starts) |" in scoreboard(mine, latest(mine, records))
    del records[1]["scores"]
    records[1]["skipped"] = "ended with -9: it said nothing"
    shown = scoreboard(mine, latest(mine, records))
    assert "(± 1.4 in 2 starts) |" in shown
    assert "ours was skipped in 1 of 3 starts: ended with -9" in shown


def test_a_table_has_the_scores_of_its_suite(suite):
    mine = suite({"ours": {"method": "mlgpf", "seeds": 2}}, scores=["nlpd", "error rate %", "epochs", "bound"])
    scores = [{"nlpd": 0.5, "error rate %": 2.0, "P@1": 98.0}, {"nlpd": 0.7, "error rate %": 4.0, "P@1": 96.0}]
    records = [measured("ours", seed, scores=one, epochs=7 + seed) for seed, one in enumerate(scores)]
    table = scoreboard(mine, latest(mine, records))
    assert "| toy | nlpd | error rate % | epochs | bound | peak memory |" in table
    assert "| ours | 0.6000 (± 0.1414 in 2 starts) | 3.00 | 7.5000 |  | 100 MB |" in table


def test_times_of_other_machines_are_not_compared(suite):
    mine = suite({"ours": {"method": "mlgpf"}, "also": {"method": "mlgpf"}}, reference="ours")
    here, there = ({"machine": {"cpu": name, "cores": 2}, "threads": 2} for name in ("here", "there"))
    records = [measured("ours", **here), measured("also", **here)]
    assert scoreboard(mine, latest(mine, records)).count("| 1× | 1× |") == 2
    records[1] = measured("also", **there)
    assert scoreboard(mine, latest(mine, records)).count("| 1× | 1× |") == 1


def test_a_row_is_compared_with_the_reference_of_its_own_day(suite):
    """On a slow day the reference takes twice as long: rows of the day before keep their ratio."""
    mine = suite({"ours": {"method": "mlgpf"}, "also": {"method": "mlgpf"}}, reference="ours")
    day, slow = "2026-01-01T10:00:00+00:00", "2026-01-02T10:00:00+00:00"
    before = measured("ours", when=day)
    after = {**before, "when": slow, "train_seconds": 2 * before["train_seconds"]}
    records = [before, measured("also", when=day), after]
    also = [line for line in scoreboard(mine, latest(mine, records), records).splitlines() if line.startswith("| also")]
    assert "| 1× | 1× |" in also[0]
    alone = [line for line in scoreboard(mine, latest(mine, records)).splitlines() if line.startswith("| also")]
    assert "| 0.5× | 1× |" in alone[0]
