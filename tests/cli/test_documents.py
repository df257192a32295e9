"""Documents in, tags out: train, tag, evaluate, explain and report on files of documents."""

import csv
import gzip
import io
import json
import re
import shutil
import signal
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import sparse
from test_commands import message, run
from test_models import SMALL

import labelfield
from labelfield.light.model import load_light

FAST = ("--method", "linear", "--set", "row_transform=unit", "--set", "cost=1.0", "--device=cpu")


@pytest.fixture(scope="module")
def toy(tmp_path_factory):
    path = tmp_path_factory.mktemp("documents") / "toy"
    run("synth", "--kind", "texts", "--rows", 200, "--out", path)
    names = sorted({one for own in labelfield.read_documents(path).labels for one in own})
    (path / "vocabulary.tsv").write_text("".join(f"<http://x/{name}>\t{name}\n" for name in [*names, "unused"]))
    return path


@pytest.fixture(scope="module")
def trained(toy, tmp_path_factory):
    out = tmp_path_factory.mktemp("models") / "model"
    return out, run("train", toy, "--out", out, *FAST)


def test_three_commands_lead_from_a_csv_to_tags(toy, trained, tmp_path):
    model, done = trained
    said = message(done)
    assert "CSV: text from title + text, labels from labels split at '|', ids from id" in said
    assert "160 documents" in said
    assert "English stems (detected; --language decides)" in said
    assert "a vocabulary of 13 labels; 1 of its labels is not used" in said
    lines = [json.loads(line) for line in run("tag", model, toy, "-k", 3).stdout.splitlines()]
    documents = labelfield.read_documents(toy, part="test")
    assert [line["id"] for line in lines] == documents.ids
    assert list(lines[0]) == ["id", "tags", "uncertainty", "review"]
    assert all(len(line["tags"]) == 3 for line in lines)
    assert lines[0]["tags"][0]["uri"] == f"http://x/{lines[0]['tags'][0]['label']}"
    expected = labelfield.load(model).tags(documents, 3)
    assert [[tag["label"] for tag in line["tags"]] for line in lines] == [
        [tag.label for tag in own] for own in expected
    ]
    assert all(line["review"] == (line["uncertainty"] >= 0.5) for line in lines)


def test_tags_as_csv_and_compressed(toy, trained, tmp_path):
    model, _ = trained
    run("tag", model, toy, "--out", tmp_path / "tags.csv", "--threshold", 0.9)
    with open(tmp_path / "tags.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["id", "tags", "uris", "probabilities", "uncertainty", "review"]
    assert all(
        row["uris"].split("|") == [f"http://x/{tag}" for tag in row["tags"].split("|")] for row in rows if row["tags"]
    )
    assert all(float(p) >= 0.9 for row in rows for p in row["probabilities"].split("|") if p)
    assert run("tag", model, toy, "--out", "-", "--format", "csv").stdout.splitlines()[0] == ",".join(rows[0])
    run("tag", model, toy, "--out", tmp_path / "tags.jsonl.gz")
    lines = gzip.decompress((tmp_path / "tags.jsonl.gz").read_bytes()).splitlines()
    assert len(lines) == len(rows) == 40
    assert "exists; pass --overwrite" in message(run("tag", model, toy, "--out", tmp_path / "tags.csv", check=2))
    assert "name it .jsonl or .csv" in message(run("tag", model, toy, "--out", tmp_path / "tags.xml", check=2))


def test_tags_with_bars_are_joined_by_another_sign(tmp_path):
    labels = ["a|b", "c, d", 'say "x"']
    lines = [{"text": f"{('bread', 'violin', 'wool')[i % 3]} and more", "labels": [labels[i % 3]]} for i in range(12)]
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    run("train", path, "--out", tmp_path / "model", *FAST)
    done = run("tag", tmp_path / "model", path, "-k", 2, "--out", tmp_path / "tags.csv")
    assert "tags are joined by ';', because a label has |" in message(done)
    with open(tmp_path / "tags.csv", newline="") as file:
        found = [row["tags"].split(";") for row in csv.DictReader(file)]
    assert [own[0] for own in found] == [line["labels"][0] for line in lines]
    assert all(set(own) < set(labels) and len(own) == 2 for own in found)


def test_numbers_of_labels_mean_the_same_in_files_after_training(tmp_path):
    (tmp_path / "labels.txt").write_text("zebra\nunused\nant\nunused too\nbee\n")
    numbers, words = [0, 2, 4], ["bread", "violin", "wool"]
    path = tmp_path / "a.txt"
    path.write_text("".join(f"{numbers[i % 3]}\t{words[i % 3]} and more\n" for i in range(12)))
    run("train", path, "--vocabulary", tmp_path / "labels.txt", "--out", tmp_path / "model", *FAST)
    assert json.loads(run("evaluate", tmp_path / "model", path, "--json").stdout)["P@1"] == 100
    (tmp_path / "new.txt").write_text("3\tsugar and more\n3\tsugar and others\n0\tbread too\n")
    names = ("--vocabulary", tmp_path / "labels.txt", "--json")
    done = json.loads(run("learn", tmp_path / "model", tmp_path / "new.txt", *names).stdout)
    assert done["new labels"] == ["unused too"]


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (("--precision", 0), "precision=0.0; expected a number between 0 and 1"),
        (("--precision", 1.5), "precision=1.5; expected a number between 0 and 1"),
        (("--precision", "nan"), "precision=nan; expected a number between 0 and 1"),
        (("--recall", 0), "recall=0.0; expected a number between 0 and 1"),
        (("--precision", 0.9, "--recall", 0.9), "precision and recall are different aims"),
        (("--precision", 0.9, "-k", 3), "cannot be combined with a promise"),
        (("--confidence", 0.9), "--confidence is that of a promise"),
    ],
)
def test_promises_that_make_no_sense_are_refused(toy, trained, asked, said):
    assert said in message(run("tag", trained[0], toy, *asked, check=2))


def test_stdin_is_tagged(trained, monkeypatch):
    model, _ = trained
    text = b'{"text": "a violin concert with the orchestra", "title": ""}\n'
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(text)))
    line = json.loads(run("tag", model, "-").stdout)
    assert (line["id"], line["tags"][0]["label"]) == ("1", "music")


def test_scores_are_those_of_the_estimator(toy, trained):
    model, _ = trained
    scores = json.loads(run("evaluate", model, toy, "--json").stdout)
    found, documents = labelfield.load(model), labelfield.read_documents(toy, part="test")
    tags = found.tags(documents, 5)
    f1 = [
        2 * len({tag.label for tag in own} & set(true)) / (5 + len(true))
        for own, true in zip(tags, documents.labels, strict=True)
    ]
    assert scores["F1@5"] == pytest.approx(100 * sum(f1) / len(f1))
    chosen, names = found.predict(documents), found.classes_
    sets = [{names[j] for j in chosen.indices[a:b]} for a, b in zip(chosen.indptr, chosen.indptr[1:], strict=False)]
    hits = sum(len(own & set(true)) for own, true in zip(sets, documents.labels, strict=True))
    assert scores["microF1"] == pytest.approx(200 * hits / (sum(map(len, sets)) + sum(map(len, documents.labels))))
    assert "F1" in run("evaluate", model, toy).stdout


def test_labels_that_are_new_count_as_missed(trained, tmp_path):
    model, _ = trained
    path = tmp_path / "new.jsonl"
    path.write_text('{"title": "", "text": "a violin", "labels": ["http://x/music", "brand new"]}\n' * 2)
    done = run("evaluate", model, path, "--json")
    assert "new.jsonl: JSON lines: text from title + text, labels from labels" in message(done)
    assert "1 label (2 occurrences) was not in the training data: 'brand new'; it counts as missed" in message(done)
    assert json.loads(done.stdout)["P@1"] == 100


def test_words_that_carried_a_tag(toy, trained):
    model, _ = trained
    found = json.loads(run("explain", model, "--text", "A violin near the harbour", "-k", 2, "--json").stdout)
    first = found["labels"][0]
    place = first["words"][0]["places"][0]
    assert found["text"][slice(*place)].lower() == first["words"][0]["word"]
    shown = run("explain", model, toy, "--row", 3).stdout
    assert "✓" in shown
    assert "words: how much" in shown
    assert "has no such row" in message(run("explain", model, toy, "--row", 999, check=2))
    assert "pass a file and --row, or --text" in message(run("explain", model, check=2))


def test_the_report_shows_documents_as_text(toy, trained, tmp_path):
    model, _ = trained
    run("report", model, toy, "--out", tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert '<mark class="for">' in page
    documents = labelfield.read_documents(toy, part="test")
    named = re.findall("<h4>Document (.*?)</h4>", page)
    assert len(named) == 10
    assert set(named) < set(documents.ids)
    page = re.sub("</?mark[^>]*>", "", page)
    assert sum(title in page for title, _ in documents.texts) >= 5


def test_a_method_of_classes_and_validation(toy, tmp_path):
    path = tmp_path / "one.jsonl"
    documents = labelfield.read_documents(toy)
    lines = [{"text": text, "label": own[0]} for (_, text), own in zip(documents.texts, documents.labels, strict=True)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    run("train", path, "--out", tmp_path / "model", "--method", "softmax", "--time-budget", "1s", "--valid", path)
    assert labelfield.load(tmp_path / "model").classifier_.label_kind_ == "classes"
    done = run("train", toy, "--out", tmp_path / "no", "--method", "softmax", check=3)
    assert "expected one class per document" in message(done)


@pytest.mark.parametrize(
    ("content", "message_part"),
    [
        ("text,labels\nsome words here,\nother words here,\n", "column 'labels' has no labels in any document"),
        ("text,labels\nalpha,a\nbeta,b\n", "no word occurs in two documents"),
        ("text,labels,extra\nsome words here,a\n", "2 cells; expected 3"),
    ],
)
def test_bad_training_files_leave_nothing_behind(tmp_path, content, message_part):
    (tmp_path / "bad.csv").write_text(content)
    done = run("train", tmp_path / "bad.csv", "--out", tmp_path / "model", *FAST, "--text", "text", check=3)
    assert message_part in message(done)
    assert not (tmp_path / "model").exists()


def test_empty_documents_are_trained_on_and_tagged(tmp_path):
    rows = [
        ["text", "tags"],
        *([f"about bread {i}", "food"] for i in range(9)),
        ["", "food"],
        ["", ""],
        ["new music", "art"],
    ]
    with open(tmp_path / "a.csv", "w", newline="") as file:
        csv.writer(file).writerows(rows)
    done = run("train", tmp_path / "a.csv", "--out", tmp_path / "model", *FAST)
    assert "1 document has no labels; it counts as one with none of the labels" in message(done)
    assert "2 documents have no text" in message(done)
    tagged = run("tag", tmp_path / "model", tmp_path / "a.csv")
    assert len(tagged.stdout.splitlines()) == 12
    assert "2 documents have no text" in message(tagged)
    assert "2 documents have no text" in message(run("evaluate", tmp_path / "model", tmp_path / "a.csv"))


def test_models_of_rows_and_of_documents_are_told_apart(toy, trained, tmp_path):
    rows, model = tmp_path / "rows", tmp_path / "model"
    run("synth", "--out", rows, "--rows", 60, "--features", 30, "--labels", 5)
    run("train", rows, "--out", model, *FAST)
    assert "expected rows of numbers" in message(run("tag", model, toy / "test.csv", check=3))
    assert "expected rows of numbers" in message(run("evaluate", model, toy / "test.csv", check=3))
    assert "--text is for a model of documents" in message(run("explain", model, "--text", "x", check=2))


def test_rows_are_tagged_as_predict_topk_and_decide_say(tmp_path):
    rows, model = tmp_path / "rows", tmp_path / "model"
    run("synth", "--out", rows, "--rows", 1500, "--features", 30, "--labels", 5, "--seed", 2)
    run("train", rows, "--out", model, "--quality", "fast")
    estimator, X = labelfield.load(model), labelfield.read(rows).test.X
    lines = [json.loads(line) for line in run("tag", model, rows, "-k", 2).stdout.splitlines()]
    assert [line["id"] for line in lines] == [str(1 + i) for i in range(X.shape[0])]
    best, names = estimator.predict_topk(X, 2), estimator.label_names()
    for i, line in enumerate(lines):
        own = best[[i]]
        assert {tag["label"] for tag in line["tags"]} == {names[label] for label in own.indices}
        np.testing.assert_allclose(sorted(tag["probability"] for tag in line["tags"]), sorted(own.data), atol=1e-4)
    done = run("tag", model, rows, "--precision", 0.3)
    decision = estimator.decide(X, precision=0.3)
    told = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line["review"] for line in told] == decision.review.tolist()
    assert [len(line["tags"]) for line in told] == np.diff(decision.tags.indptr).tolist()
    assert f"tagged {X.shape[0]:,} rows" in message(done)


def test_duplicate_ids_are_said(trained, tmp_path):
    model, _ = trained
    (tmp_path / "twice.csv").write_text("id,title,text\n7,a,some bread\n7,b,some music\n")
    done = run("tag", model, tmp_path / "twice.csv")
    assert "1 id occurs more than once, such as '7'" in message(done)
    assert len(done.stdout.splitlines()) == 2
    facts = json.loads(run("info", tmp_path / "twice.csv", "--json").stdout)["splits"]["all"]
    assert facts["ids that occur more than once"] == 1


def test_labels_that_tagging_does_not_need_are_not_looked_at(trained, tmp_path):
    model, _ = trained
    (tmp_path / "odd.jsonl").write_text('{"id": "a", "text": "some bread", "labels": [["nested"]]}\n')
    assert json.loads(run("tag", model, tmp_path / "odd.jsonl", "-k", 1).stdout)["id"] == "a"
    assert "a list in the list" in message(run("evaluate", model, tmp_path / "odd.jsonl", check=3))


def test_a_model_learns_on_without_its_documents_being_named(toy, tmp_path):
    model, data = tmp_path / "model", tmp_path / "toy.csv"
    data.write_bytes((toy / "train.csv").read_bytes())
    run("train", data, "--out", model, *FAST)
    data.unlink()  # what is learned from is in the folder
    text = "a bright quasar seen"
    new = [{"id": f"n{i}", "title": "quasar", "text": f"{text} {i}", "labels": ["quasars"]} for i in range(4)]
    (tmp_path / "corrections.jsonl").write_text("\n".join(map(json.dumps, new)))
    before = json.loads(run("evaluate", model, toy, "--json").stdout)
    for _ in range(2):  # documents learned from are kept too: the second time they are corrected by their ids
        done = run("learn", model, tmp_path / "corrections.jsonl", "--json")
    assert "4 documents were corrected by their ids, 0 are new" in message(done)
    assert json.loads(done.stdout)["documents"] == 164
    after = json.loads(run("evaluate", model, toy, "--json").stdout)
    assert after["P@1"] >= before["P@1"] - 5
    (tmp_path / "new.txt").write_text("a quasar far away")
    tags = json.loads(run("tag", model, tmp_path / "new.txt", "-k", 1).stdout)["tags"]
    assert tags[0]["label"] == "quasars"  # also the new word counts


@pytest.mark.parametrize("kind", ["linear", pytest.param("mlgpf", marks=pytest.mark.slow)])
def test_interrupted_learning_keeps_the_old_model_and_resumes(kind, toy, tmp_path, interrupt_after, monkeypatch):
    method = FAST if kind == "linear" else (*SMALL, "--set=max_epochs=2")
    run("train", toy, "--out", tmp_path / "model", *method)
    old = files_of(tmp_path / "model")
    shutil.copytree(tmp_path / "model", tmp_path / "whole")
    (tmp_path / "corrections.jsonl").write_text(json.dumps({"title": "", "text": "wool yarn", "labels": ["knitting"]}))
    learn = ("learn", tmp_path / "model", tmp_path / "corrections.jsonl", "--device=cpu")
    for number in (signal.SIGINT, signal.SIGTERM):
        with monkeypatch.context() as patched:
            patched.setattr("labelfield.cli.live.TrainingBar.__call__", interrupt_after(1, number))
            done = run(*learn, check=128 + number)
        assert "is as it was, and the same command with --resume continues" in message(done)
        left = files_of(tmp_path / "model")
        assert {name: left.pop(name) for name in old} == old
        assert {name.partition("-")[0].partition(".")[0] for name in left} <= {"learning"}
        again = message(run("train", toy, "--out", tmp_path / "model", *method, check=2))
        assert "--overwrite" in again  # it is a model, not an unfinished training
        assert "--resume" not in again
        assert len(run("tag", tmp_path / "model", toy).stdout.splitlines()) == 40
    (tmp_path / "other.jsonl").write_text(json.dumps({"title": "", "text": "wool", "labels": ["music"]}))
    refused = run(*learn[:2], tmp_path / "other.jsonl", "--device=cpu", "--resume", check=3)
    assert "the checkpoint was made with another model or other training data" in message(refused)
    run(*learn, "--resume")
    run("learn", tmp_path / "whole", *learn[2:])  # without an interruption
    found, whole = files_of(tmp_path / "model"), files_of(tmp_path / "whole")
    assert found.keys() == whole.keys() == old.keys()
    assert found["arrays.safetensors"] == whole["arrays.safetensors"]
    assert "knitting" in found["labels.txt"].decode().splitlines()


def files_of(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_documents_are_kept_only_if_wanted_and_whole(toy, tmp_path):
    model = tmp_path / "model"
    run("train", toy, "--out", model, *FAST, "--no-keep-documents")
    (tmp_path / "corrections.jsonl").write_text(json.dumps({"text": "a concert", "labels": ["music"]}))
    done = run("learn", model, tmp_path / "corrections.jsonl", check=3)
    assert "the model folder does not hold its documents" in message(done)
    assert "--data FILE" in message(done)
    run("train", toy, "--out", model, *FAST, "--overwrite")
    path = model / "documents.jsonl.gz"
    content = path.read_bytes()
    two_lines = gzip.compress(b'{"id": "1", "texts": ["", "a"], "labels": ["a\\nb"]}\n')
    for damaged in (content[:200], b"nonsense", gzip.compress(b'{"id": 1}\n'), gzip.compress(b"[]\n"), two_lines):
        path.write_bytes(damaged)
        assert "the documents of the model are damaged" in message(
            run("learn", model, tmp_path / "corrections.jsonl", check=3)
        )
    assert len(run("tag", model, toy).stdout.splitlines()) == 40  # the old model is as it was
    halves = b'{"id": "\\ud800", "texts": ["", "concert \\udfff"], "labels": ["m\\ud800"]}\n'
    path.write_bytes(gzip.compress(2 * halves))  # of surrogate pairs, which cannot be written
    assert "m\ufffd" in run("learn", model, tmp_path / "corrections.jsonl").stdout


def test_encoders_on_the_command_line(toy, tmp_path):
    done = run("train", toy, "--out", tmp_path / "model", *FAST, "--encoder", "words,wordllama")
    assert "character n-grams; wordllama" in message(done)
    lines = run("tag", tmp_path / "model", toy, "-k", 1).stdout.splitlines()
    assert len(lines) == 40
    assert "--encoder='bert'; expected words" in message(
        run("train", toy, "--out", tmp_path / "other", "--encoder", "bert", check=2)
    )
    done = run("train", toy, "--out", tmp_path / "other", "--encoder", "model2vec:x", check=1)
    assert "needs the package model2vec" in message(done)


def test_a_wide_table_of_documents_is_known_by_its_words(toy, tmp_path):
    texts = labelfield.read_documents(toy)
    with open(tmp_path / "wide.csv", "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*(f"c{i}" for i in range(9998)), "foo", "bar"])
        rows = zip(texts.texts[:30], texts.labels[:30], strict=True)
        writer.writerows([*range(9998), text, "|".join(own)] for (_, text), own in rows)
    done = run("train", tmp_path / "wide.csv", "--out", tmp_path / "model", *FAST, check=3)
    assert "no column of labels is known by its name" in message(done)
    run("train", tmp_path / "wide.csv", "--out", tmp_path / "model", *FAST, "--labels", "bar")


def test_corrections_are_learned_and_nothing_is_forgotten(toy, tmp_path):
    model = tmp_path / "model"
    run("train", toy, "--out", model, *FAST)
    before = json.loads(run("evaluate", model, toy, "--json").stdout)
    documents = labelfield.read_documents(toy)
    new = [
        {"id": f"new{i}", "title": "", "text": f"knitting wool and yarn {i}", "labels": ["knitting"]} for i in range(9)
    ]
    title, text = documents.texts[0]
    new.append({"id": documents.ids[0], "title": title, "text": text, "labels": [*documents.labels[0], "knitting"]})
    (tmp_path / "corrections.jsonl").write_text("".join(json.dumps(one) + "\n" for one in new))
    done = run("learn", model, tmp_path / "corrections.jsonl", "--data", toy, "--json")
    assert "1 document was corrected by its id, 9 are new" in message(done)
    facts = json.loads(done.stdout)
    assert (facts["documents"], facts["new labels"]) == (169, ["knitting"])
    found = labelfield.load(model)
    assert found.tags(["the wool and the yarn"], 1)[0][0].label == "knitting"
    assert found.text_.vocabulary.find("music").uri == "http://x/music"
    after = json.loads(run("evaluate", model, toy, "--json").stdout)
    assert after["P@1"] >= before["P@1"] - 3
    bare = tmp_path / "bare.jsonl"  # the numbers of its lines are no ids
    bare.write_text(json.dumps({"title": "", "text": "knitting again", "labels": ["knitting"]}) + "\n")
    done = run("learn", model, bare, "--data", toy, "--json")
    assert "0 documents were corrected by their ids, 1 is new" in message(done)
    rows = tmp_path / "bad.jsonl"
    rows.write_text('{"text": "x"}\n')
    kept = (model / "config.json").read_bytes()
    run("learn", model, rows, "--data", toy, check=3)
    assert (model / "config.json").read_bytes() == kept


def test_a_correction_may_say_that_no_label_holds(tmp_path):
    records = [
        {"id": str(i), "text": ("violin concert", "ship dock")[i % 2], "labels": [("music", "sea")[i % 2]]}
        for i in range(40)
    ]
    (tmp_path / "train.jsonl").write_text("".join(json.dumps(one) + "\n" for one in records))
    (tmp_path / "right.jsonl").write_text('{"id": "0", "text": "violin concert", "labels": []}\n')
    run("train", tmp_path / "train.jsonl", "--out", tmp_path / "model", *FAST)
    said = message(run("learn", tmp_path / "model", tmp_path / "right.jsonl"))
    assert "1 document was corrected by its id, 0 are new" in said
    assert "1 document has no labels; it counts as one with none of the labels" in said


def test_tags_are_searched_with_an_index(toy, trained, tmp_path):
    model, _ = trained

    def tags(folder, search):
        return run("tag", folder, toy, "-k", 2, "--search", search).stdout

    assert tags(model, "exact") == tags(model, "auto") == run("tag", model, toy, "-k", 2).stdout
    assert "have no index" in message(run("tag", model, toy, "--search", "index", check=1))
    assert "drop --search index" in message(run("tag", model, toy, "--search", "index", "--f1", check=2))
    estimator = labelfield.load(model, device="cpu")
    rows = estimator.rows(labelfield.read_documents(toy).texts)
    estimator.classifier_.index_labels(sparse.vstack([rows] * (1 + 400 // rows.shape[0])))
    estimator.save(tmp_path / "m")
    assert load_light(tmp_path / "m") is None
    found, exact = (
        [json.loads(line) for line in tags(tmp_path / "m", search).splitlines()] for search in ("index", "exact")
    )
    same = [one["tags"][0]["label"] == other["tags"][0]["label"] for one, other in zip(found, exact, strict=True)]
    assert sum(same) >= 0.9 * len(same)


@pytest.fixture
def small(tmp_path):
    """Return ten documents with the ids 1 to 10 in a file, and a model of them."""
    path = tmp_path / "small.csv"
    words = ["bread flour", "violin song"] * 5
    lines = [f"{i},some {word} here,{'food|baking' if i % 2 else 'music'}" for i, word in enumerate(words, 1)]
    path.write_text("id,text,labels\n" + "\n".join(lines) + "\n")
    run("train", path, "--out", tmp_path / "small", *FAST)
    return path, tmp_path / "small"


@pytest.mark.parametrize(
    ("corrections", "said", "n", "new"),
    [
        # a number of a line is no id, though a document has this id
        (
            "id,text,labels\n,new wool here,knitting\n2,some violin here,art\n",
            "1 document was corrected by its id, 1 is new",
            11,
            ["art", "knitting"],
        ),
        (
            "id,text,labels\n2,violin,art\n2,violin song,music;art\n3,flour,food; art\n",
            "1 id occurs more than once, such as '2'; the last correction of each counts",
            10,
            ["art"],
        ),
        ("id,text,labels\n77,wool,food\n", "0 documents were corrected by their ids, 1 is new", 11, []),
    ],
)
def test_corrections_without_ids_repeated_or_joined_otherwise(small, tmp_path, corrections, said, n, new):
    path, model = small
    (tmp_path / "corrections.csv").write_text(corrections)
    done = run("learn", model, tmp_path / "corrections.csv", "--data", path, "--json")
    assert said in message(done)
    facts = json.loads(done.stdout)
    assert (facts["documents"], facts["new labels"]) == (n, new)


def test_a_correction_of_an_id_that_is_not_unique_is_refused(small, tmp_path):
    path, model = small
    path.write_text(path.read_text() + "2,other words here,music\n")
    assert "1 id occurs more than once" in message(run("train", path, "--out", tmp_path / "again", *FAST))
    (tmp_path / "corrections.csv").write_text("id,text,labels\n2,violin,art\n")
    done = run("learn", model, tmp_path / "corrections.csv", "--data", path, check=3)
    assert "the id '2', which a correction has, occurs more than once" in message(done)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.txt", "a violin concert with the orchestra\n", "text from text (title left empty)"),
        ("a.jsonl", '{"text": "a violin concert \\ud800"}\n', "text from text (title left empty)"),
        ("a.jsonl", '{"body": "a violin concert"}\n', "text from body (title left empty)"),
    ],
)
def test_fields_that_a_file_does_not_have_are_empty(trained, tmp_path, name, content, said):
    model, _ = trained
    (tmp_path / name).write_text(content)
    done = run("tag", model, tmp_path / name)
    assert said in message(done)
    assert json.loads(done.stdout)["tags"][0]["label"] == "music"
    assert "violin" in run("explain", model, tmp_path / name, "--row", 0).stdout


def test_explaining_shows_no_controls_and_says_when_no_word_is_known(trained):
    model, _ = trained
    shown = run("explain", model, "--text", "a violin \x1b[31mconcert\x9b2J \ud800").stdout
    assert "violin" in shown
    assert not set("\x1b\x9b\ud800") & set(shown)
    assert "the model knows no word of this text" in run("explain", model, "--text", "").stdout


def test_names_of_uris_in_documents_are_those_of_labels(tmp_path):
    subjects = [[{"uri": "http://x/1", "label": "food"}], [{"uri": "http://x/2"}]] * 5
    path = tmp_path / "a.jsonl"
    lines = [{"text": f"some {('bread', 'violin')[i % 2]} here", "subjects": own} for i, own in enumerate(subjects)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    run("train", path, "--out", tmp_path / "model", *FAST)
    found = {(tag["label"], tag["uri"]) for line in run("tag", tmp_path / "model", path).stdout.splitlines()
             for tag in json.loads(line)["tags"]}  # fmt: skip
    assert found == {("food", "http://x/1"), ("http://x/2", "http://x/2")}
    assert json.loads(run("evaluate", tmp_path / "model", path, "--json").stdout)["P@1"] == 100


def test_what_is_missing_for_training_and_scores_is_said(small, tmp_path):
    path, model = small
    (tmp_path / "lines.txt").write_text("A title\nsome words here\nother words there\n")
    assert "documents without labels" in message(run("train", tmp_path / "lines.txt", "--out", tmp_path / "x", check=3))
    (tmp_path / "bare.csv").write_text("text,labels\nsome words,\n")
    assert "has no labels in any" in message(run("evaluate", model, tmp_path / "bare.csv", check=3))
    done = run("report", model, tmp_path / "bare.csv", "--out", tmp_path / "report.html", check=3)
    assert "has no labels in any" in message(done)
    done = run("evaluate", tmp_path / "none", path, check=3)
    assert "none: there is no such model or file of predictions" in message(done)
    done = run("train", path, "--out", tmp_path / "x", *FAST, "--language", "klingon")
    assert "no stemmer is known for --language klingon" in message(done)
    done = run("train", path, "--out", tmp_path / "y", "--preset", "thesis", check=3)
    assert "use --preset journal" in message(done)


def test_info_describes_documents(toy, tmp_path):
    found = json.loads(run("info", toy, "--json").stdout)["splits"]
    assert list(found) == ["train", "test"]
    labels = labelfield.read_documents(toy).labels
    facts = found["train"]
    assert (facts["documents"], facts["labels"], facts["language"]) == (160, 12, "en")
    assert facts["labels per document"] == pytest.approx(sum(map(len, labels)) / 160)
    (tmp_path / "a.jsonl").write_text('{"text": "", "labels": []}\n')
    assert "documents without text" in run("info", tmp_path / "a.jsonl").stdout


@pytest.mark.slow
def test_real_documents_with_a_new_label_are_learned_and_no_old_one_is_forgotten(real_data, tmp_path):
    folder, new = real_data("eurovoc-text"), "white sugar"

    def lines(part):
        return [json.loads(line) for line in gzip.open(folder / f"{part}.jsonl.gz", "rt", encoding="utf-8")]

    train, test = lines("train")[:5000], lines("test")
    old, corrections = ([one for one in train if (new in one["labels"]) == is_new] for is_new in (False, True))
    for name, documents in (("old", old), ("corrections", corrections), ("test", test)):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(one) + "\n" for one in documents))
    model = tmp_path / "model"
    run("train", tmp_path / "old.jsonl", "--out", model, *FAST)

    def hits():
        """Return how many of five tags are right in documents without the new label, and how often it is found."""
        tagged = map(json.loads, run("tag", model, tmp_path / "test.jsonl").stdout.splitlines())
        first = [[tag["label"] for tag in line["tags"]] for line in tagged]
        found = [len(set(own) & set(one["labels"])) / 5 for own, one in zip(first, test, strict=True)]
        is_new = np.array([new in one["labels"] for one in test])
        return np.array(found)[~is_new], np.mean(
            [new in own for own, asked in zip(first, is_new, strict=True) if asked]
        )

    before, unknown = hits()
    assert unknown == 0
    done = run("learn", model, tmp_path / "corrections.jsonl")
    assert f"{len(corrections)} are new" in message(done)
    after, known = hits()
    assert known > 0.8
    gained = after - before
    assert gained.mean() > -2 * gained.std() / gained.size**0.5
    assert before.mean() > 0.55  # else there would be little to forget


def test_labels_that_a_vocabulary_calls_otherwise_are_the_same_by_their_uri(tmp_path):
    def write(name, uris, first):
        rows = [{"id": f"{first}{i}", "text": f"about {uri} {i}", "labels": [uri]} for i in range(9) for uri in uris]
        (tmp_path / name).write_text("".join(f"{json.dumps(row)}\n" for row in rows))

    uris = ["http://x/bread", "http://x/music"]
    write("old.jsonl", uris, "old")
    write("new.jsonl", [uris[0], "http://x/sea"], "new")
    (tmp_path / "vocabulary.tsv").write_text(f"<{uris[0]}>\tbread\n<{uris[1]}>\tmusic\n")
    (tmp_path / "renamed.tsv").write_text(f"<{uris[0]}>\tbakery\n<http://x/sea>\tsea\n")
    run("train", tmp_path / "old.jsonl", "--out", tmp_path / "model", *FAST)
    done = run(
        "evaluate", tmp_path / "model", tmp_path / "old.jsonl", "--vocabulary", tmp_path / "renamed.tsv", "--json"
    )
    assert json.loads(done.stdout)["P@1"] == 100
    done = run("learn", tmp_path / "model", tmp_path / "new.jsonl", "--vocabulary", tmp_path / "renamed.tsv", "--json")
    assert json.loads(done.stdout)["new labels"] == ["sea"]
    known = labelfield.load(tmp_path / "model").text_.vocabulary.labels
    assert [(label.name, label.uri) for label in known] == [
        ("bakery", uris[0]),
        ("music", uris[1]),
        ("sea", "http://x/sea"),
    ]
