"""A suite is run cell by cell, and each cell is recorded with where it comes from."""

import json
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from labelfield.bench import Choices, append_record, latest_of, load_records, read_suite, run, run_cells
from labelfield.bench.comparison import Measured
from labelfield.bench.environments import ENVIRONMENTS, PEERS, SCRIPTS, MissingPeerError, Peer, python_of
from labelfield.bench.scoreboard import scoreboard
from scipy import sparse

import labelfield
from benchmarks import record as benchmarks_record
from labelfield.errors import DataError
from labelfield.metrics import evaluate, popularity

# A peer that ranks labels by how often they held in training.
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


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    drawn = labelfield.synth.make_multilabel(160, 30, 6, labels_per_row=2.0, seed=0)
    labelfield.write(drawn.split(0.25), folder / "toy")
    return folder


@pytest.fixture
def popular(monkeypatch, tmp_path):
    """A peer that needs no environment of its own."""
    script = tmp_path / "popular.py"
    script.write_text(POPULARITY.format(scripts=str(SCRIPTS)))
    monkeypatch.setitem(PEERS, "omikuji-bonsai", Peer("omikuji", str(script.with_suffix(""))))
    monkeypatch.setattr(run, "python_of", lambda _: Path(sys.executable))


def suite(tmp_path, rows, **others):
    path = tmp_path / "mine.yaml"
    path.write_text(json.dumps({"title": "a test", "datasets": ["toy"], "rows": rows, **others}))
    return read_suite(path)


def test_ours_and_a_peer_get_the_same_scores_from_the_same_files(tmp_path, data, popular):
    mine = suite(
        tmp_path,
        {
            "ours": {"method": "mlgpf", "options": {"max_epochs": 2, "n_inducing": 10}},
            "theirs": {"peer": "omikuji-bonsai"},
        },
        reference="theirs",
        scores=["P@1", "AUC_micro"],
        by_epoch=True,
    )
    choices = Choices(data=data, records=tmp_path / "records", device="cpu", command="labelfield bench mine")
    done = {cell.row: record for cell, record in run_cells(mine, choices)}
    assert not any("skipped" in record for record in done.values()), done
    for record in done.values():
        assert record["machine"]["cores"] >= 1
        assert record["commit"]
        assert record["command"] == "labelfield bench mine"
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
    records = load_records(tmp_path / "records")["mine"]
    assert [record["row"] for record in records] == ["ours", "theirs"]
    table = scoreboard(mine, latest_of(mine, records))
    scores = done["ours"]["scores"]
    assert f"| ours | {scores['P@1']:.2f} | {scores['AUC_micro']:.4f} |" in table
    assert f"| theirs | {done['theirs']['scores']['P@1']:.2f} |  |" in table  # a peer ranks a few labels only
    assert "| 1× | 1× |" in table


def test_a_peer_or_a_data_set_that_is_missing_is_skipped_with_its_reason(tmp_path, data, monkeypatch):
    def missing(_):
        raise MissingPeerError("omikuji==0.5.2 cannot be installed: no wheel")

    monkeypatch.setattr(run, "python_of", missing)
    mine = suite(tmp_path, {"theirs": {"peer": "omikuji-bonsai", "datasets": ["toy", "nowhere"]}})
    found = [record["skipped"] for _, record in run_cells(mine, Choices(data=data, records=tmp_path / "records"))]
    assert found[0] == "omikuji==0.5.2 cannot be installed: no wheel"
    assert "no data set nowhere" in found[1]
    assert "theirs was skipped: omikuji==0.5.2" in scoreboard(
        mine, latest_of(mine, load_records(tmp_path / "records")["mine"])
    )


def test_a_peer_that_fails_is_skipped_with_its_last_line(tmp_path, data, popular):
    Path(f"{PEERS['omikuji-bonsai'].script}.py").write_text("raise RuntimeError('no such tree')")
    mine = suite(tmp_path, {"theirs": {"peer": "omikuji-bonsai"}})
    ((_, record),) = run_cells(mine, Choices(data=data, records=tmp_path / "records"))
    assert record["skipped"] == "ended with 1: RuntimeError: no such tree"


def test_an_interrupted_run_goes_on_and_again_measures_anew(tmp_path, data, popular, monkeypatch):
    monkeypatch.setattr(run, "commit", lambda: "abc1234")
    monkeypatch.setattr("labelfield.bench.provenance.commit", lambda: "abc1234")
    mine = suite(tmp_path, {"theirs": {"peer": "omikuji-bonsai"}, "theirs too": {"peer": "omikuji-bonsai"}})
    choices = Choices(data=data, records=tmp_path / "records")
    next(run_cells(mine, choices))  # and then it was interrupted
    assert [cell.row for cell, _ in run_cells(mine, choices)] == ["theirs too"]
    assert list(run_cells(mine, choices)) == []
    again = Choices(data=data, records=tmp_path / "records", again=True, wanted=lambda cell: cell.row == "theirs")
    assert [cell.row for cell, _ in run_cells(mine, again)] == ["theirs"]
    assert len(load_records(tmp_path / "records")["mine"]) == 3


def test_what_was_measured_with_other_options_was_not_measured(tmp_path, data, popular, monkeypatch):
    monkeypatch.setattr(run, "commit", lambda: "abc1234")
    monkeypatch.setattr("labelfield.bench.provenance.commit", lambda: "abc1234")
    choices = Choices(data=data, records=tmp_path / "records", device="cpu")
    first = suite(tmp_path, {"theirs": {"peer": "omikuji-bonsai"}})
    assert len(list(run_cells(first, choices))) == 1
    other = suite(tmp_path, {"theirs": {"peer": "omikuji-bonsai", "options": {"max_depth": 2}}})
    assert latest_of(other, load_records(tmp_path / "records")["mine"]) == {}
    assert len(list(run_cells(other, choices))) == 1
    assert list(run_cells(other, choices)) == []


def test_other_data_of_the_same_name_are_measured_anew(tmp_path, data, popular, monkeypatch):
    monkeypatch.setattr(run, "commit", lambda: "abc1234")
    monkeypatch.setattr("labelfield.bench.provenance.commit", lambda: "abc1234")
    toy = labelfield.read(data / "toy")
    Y = toy.Y[:, ::-1].tocsr()
    labelfield.write(labelfield.Dataset(toy.X, Y, test=toy.test), tmp_path / "other" / "toy")
    labelfield.write(toy, tmp_path / "copy" / "toy")
    mine = suite(tmp_path, {"theirs": {"peer": "omikuji-bonsai"}})

    def n_measured(folder):
        return len(list(run_cells(mine, Choices(data=folder, records=tmp_path / "records"))))

    assert [n_measured(folder) for folder in (data, tmp_path / "copy")] == [1, 0]
    assert [n_measured(tmp_path / "other") for _ in range(2)] == [1, 0]
    first, second = (record["data"] for record in load_records(tmp_path / "records")["mine"])
    sizes = {"rows": toy.n_rows, "test_rows": toy.test.n_rows, "features": toy.n_features, "labels": toy.n_labels}
    assert first == {**sizes, "digest": first["digest"]}
    assert second == {**sizes, "digest": second["digest"]} != first


def test_records_that_do_not_say_their_data_still_count(tmp_path, monkeypatch):
    mine = suite(tmp_path, {"ours": {"method": "mlgpf"}})
    monkeypatch.setattr(run, "commit", lambda: "abc1234")
    append_record(tmp_path / "records", "mine", measured("ours", commit="abc1234", machine=run.machine(), device="cpu"))
    choices = Choices(data=tmp_path / "nowhere", records=tmp_path / "records", device="cpu")
    assert list(run_cells(mine, choices)) == []


def test_cells_that_run_at_the_same_time_are_all_recorded(tmp_path, data, popular):
    mine = suite(tmp_path, {f"row {number}": {"peer": "omikuji-bonsai"} for number in range(4)})
    done = list(run_cells(mine, Choices(data=data, records=tmp_path / "records", jobs=3)))
    assert sorted(cell.row for cell, _ in done) == [f"row {number}" for number in range(4)]
    assert len({json.dumps(record["scores"]) for _, record in done}) == 1


def test_ending_early_ends_what_runs_at_the_same_time(tmp_path, data, popular):
    script = Path(f"{PEERS['omikuji-bonsai'].script}.py")
    slow = "if task()['options']:\n    __import__('time').sleep(60)\n"
    script.write_text(script.read_text().replace("asked, clock", f"{slow}asked, clock", 1))
    rows = {"slow": {"peer": "omikuji-bonsai", "options": {"slow": True}}, "fast": {"peer": "omikuji-bonsai"}}
    cells = run_cells(suite(tmp_path, rows), Choices(data=data, records=tmp_path / "records", jobs=2))
    started = time.monotonic()
    assert next(cells)[0].row == "fast"  # recorded before the slow one is done
    cells.close()
    assert time.monotonic() - started < 30


def test_an_environment_that_cannot_be_made_says_where(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("LABELFIELD_PEERS", str(tmp_path / "file" / "peers"))
    for _ in range(2):
        with pytest.raises(MissingPeerError, match=r"no environment can be made in .*file/peers: "):
            python_of("omikuji")


def test_an_answer_that_cannot_be_scored_is_told(tmp_path, data, popular):
    script = Path(f"{PEERS['omikuji-bonsai'].script}.py")
    script.write_text(script.read_text().replace("for _ in rows", "for _ in rows[1:]"))
    mine = suite(tmp_path, {"theirs": {"peer": "omikuji-bonsai"}})
    ((_, record),) = run_cells(mine, Choices(data=data, records=tmp_path / "records"))
    assert record["skipped"].startswith("ended with an answer that cannot be scored: ")


def test_a_later_skip_does_not_hide_a_measurement(tmp_path):
    mine = suite(tmp_path, {"ours": {"method": "mlgpf"}})
    first = {"dataset": "toy", "row": "ours", "budget": "full", "seed": 0, "method": "mlgpf", "options": {}}
    measured, skipped = {**first, "scores": {}}, {**first, "skipped": "no wheel"}
    assert list(latest_of(mine, [measured, skipped]).values()) == [measured]
    assert list(latest_of(mine, [skipped, measured]).values()) == [measured]
    assert list(latest_of(mine, [skipped]).values()) == [skipped]


def test_runs_do_not_hide_a_study_of_the_same_name(tmp_path, monkeypatch):
    lines = [{"study": "steps", "results": 1}, {"study": "steps", "results": 2}, {"row": "mine"}]
    for line in lines:
        append_record(tmp_path, "steps", line)
    append_record(tmp_path, "mine", lines[2])
    (tmp_path / "empty.jsonl").touch()
    found = Measured.load(tmp_path)
    assert found.runs == {"mine": [lines[2]], "steps": [lines[2]]}
    assert found.studies == {"steps": lines[1]}
    monkeypatch.setattr(benchmarks_record, "RECORDS", tmp_path)
    assert benchmarks_record.load_studies() == found.studies


def test_every_package_of_a_peer_has_its_version():
    for environment in ENVIRONMENTS.values():
        assert all(environment.versions.values()), environment


def test_a_broken_record_is_told_with_its_line(tmp_path):
    (tmp_path / "mine.jsonl").write_text('{"row": "a"}\n{"row"\n')
    with pytest.raises(DataError, match=r"mine.jsonl:2: no JSON"):
        load_records(tmp_path)


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


def test_means_and_deviations_of_several_starts(tmp_path):
    mine = suite(tmp_path, {"ours": {"method": "mlgpf", "seeds": 3}})
    records = [measured("ours", seed) for seed in range(3)]
    assert "| ours | 61.0 / 33.3 / 20.0 (± 1.0 in 3 starts) |" in scoreboard(mine, latest_of(mine, records))
    del records[1]["scores"]
    records[1]["skipped"] = "ended with -9: it said nothing"
    shown = scoreboard(mine, latest_of(mine, records))
    assert "(± 1.4 in 2 starts) |" in shown
    assert "ours was skipped in 1 of 3 starts: ended with -9" in shown


def test_a_table_has_the_scores_that_its_suite_says(tmp_path):
    mine = suite(
        tmp_path, {"ours": {"method": "mlgpf", "seeds": 2}}, scores=["nlpd", "error rate %", "epochs", "bound"]
    )
    scores = [{"nlpd": 0.5, "error rate %": 2.0, "P@1": 98.0}, {"nlpd": 0.7, "error rate %": 4.0, "P@1": 96.0}]
    records = [measured("ours", seed, scores=one, epochs=7 + seed) for seed, one in enumerate(scores)]
    table = scoreboard(mine, latest_of(mine, records))
    assert "| toy | nlpd | error rate % | epochs | bound | peak memory |" in table
    assert "| ours | 0.6000 (± 0.1414 in 2 starts) | 3.00 | 7.5000 |  | 100 MB |" in table


def test_times_of_other_machines_are_not_compared(tmp_path):
    mine = suite(tmp_path, {"ours": {"method": "mlgpf"}, "also": {"method": "mlgpf"}}, reference="ours")
    here, there = ({"machine": {"cpu": name, "cores": 2}, "threads": 2} for name in ("here", "there"))
    records = [measured("ours", **here), measured("also", **here)]
    assert scoreboard(mine, latest_of(mine, records)).count("| 1× | 1× |") == 2
    records[1] = measured("also", **there)
    assert scoreboard(mine, latest_of(mine, records)).count("| 1× | 1× |") == 1
