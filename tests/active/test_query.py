"""Which rows are chosen: against naive twins, and that the choice helps."""

import json

import numpy as np
import pytest
from scipy import sparse
from test_commands import message, run

import labelfield
from labelfield.active import STRATEGIES, query
from labelfield.active.design import _NOISE, _sketch
from labelfield.active.query import binary_entropy, row_scores

FAST = {"row_transform": "unit", "cost": 1.0, "device": "cpu", "random_state": 0}


@pytest.fixture(scope="module")
def data():
    return labelfield.synth.make_multilabel(600, 60, 12, seed=2)


@pytest.fixture(scope="module")
def model(data):
    return labelfield.LinearClassifier(**FAST).fit(data.X[:100], data.Y[:100])


def test_uncertainty_is_the_entropy_of_all_labels(model, data):
    pool = data.X[100:200]
    P = model.predict_proba(pool).astype(np.float64)
    naive = [sum(-p * np.log(p) - (1 - p) * np.log(1 - p) for p in row if 0 < p < 1) for row in P]
    assert row_scores(model, pool, "uncertainty") == pytest.approx(naive, rel=1e-4)
    chosen = query(model, pool, 7, "uncertainty")
    assert sorted(np.array(naive)[chosen], reverse=True) == pytest.approx(sorted(naive, reverse=True)[:7], rel=1e-4)


def test_information_without_a_posterior_counts_what_is_known(model, data):
    pool = data.X[100:200]
    P, n = model.predict_proba(pool).astype(np.float64), model.label_counts_
    assert row_scores(model, pool, "information") == pytest.approx((P * (1 - P) / (1 + n)).sum(axis=1), rel=1e-3)


def test_information_of_a_posterior_is_that_of_many_draws(data):
    gp = labelfield.MLGPFClassifier(n_latent=4, n_inducing=20, max_epochs=3, device="cpu", random_state=0)
    gp.fit(data.X[:100], data.Y[:100])
    pool = data.X[100:120]
    latent, rng = gp.predict_latent(pool), np.random.default_rng(0)
    f = latent.f_mean + np.sqrt(latent.f_var) * rng.standard_normal((20_000, *latent.f_mean.shape))
    p = 1 / (1 + np.exp(-f))
    naive = (binary_entropy(p.mean(0)) - binary_entropy(p).mean(0)).sum(axis=1)
    assert row_scores(gp, pool, "information") == pytest.approx(naive, rel=0.05, abs=2e-3)


@pytest.mark.parametrize("n_labelled", [0, 5])
def test_diverse_lowers_the_variance_of_uncertain_rows_the_most(model, data, n_labelled):
    pool, labelled = data.X[100:160], data.X[:n_labelled] if n_labelled else None
    unsure = model.predict_uncertainty(pool).astype(np.float64)
    unit, known = (
        rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in (pool.toarray(), data.X[:5].toarray())
    )

    def variance(rows):
        """The sum over the pool of what stays unknown of a linear function once these rows are labelled."""
        S = np.linalg.inv(np.eye(unit.shape[1]) + np.array(rows).T @ np.array(rows) / _NOISE)
        return float(unsure @ np.einsum("nd,de,ne->n", unit, S, unit))

    chosen = []
    for _ in range(6):
        rows = [*known[:n_labelled], *unit[chosen]]
        left = [row for row in range(60) if row not in chosen]
        chosen.append(min(left, key=lambda row: variance([*rows, unit[row]])))
    assert query(model, pool, 6, "diverse", X_labelled=labelled).tolist() == chosen


def test_diverse_does_not_choose_copies(model, data):
    pool = data.X[100:160]
    twice = sparse.csr_array(sparse.vstack([pool, pool]))
    found = query(model, twice, 10, "diverse") % 60
    assert len(set(found.tolist())) == 10
    first = query(model, pool, 5, "diverse")
    assert not set(first.tolist()) & set(query(model, pool, 5, "diverse", X_labelled=pool[first]).tolist())


def test_a_sketch_keeps_products_of_rows():
    rng = np.random.default_rng(0)
    rows = sparse.random_array((300, 5000), density=0.02, rng=rng, format="csr", dtype=np.float32)
    Phi, norms = _sketch(rows), np.sqrt(np.asarray(rows.multiply(rows).sum(axis=1))).ravel()
    assert Phi.shape == (300, 256)
    assert np.linalg.norm(Phi, axis=1) == pytest.approx(1, abs=1e-5)
    error = (Phi @ Phi.T - (rows @ rows.T).toarray() / np.outer(norms, norms))[np.triu_indices(300, 1)]
    assert abs(error.mean()) < 0.1 / 256**0.5  # pairs share one sketch, so that their errors do not average out wholly
    assert error.std() < 1.3 / 256**0.5  # as of the mean of 256 random signs
    assert (_sketch(rows[:7]) == Phi[:7]).all()


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_rows_are_chosen_once_and_the_same_for_a_seed(model, data, strategy):
    first = query(model, data.X, 40, strategy, random_state=3)
    assert len(set(first.tolist())) == 40
    assert first.tolist() == query(model, data.X, 40, strategy, random_state=3).tolist()
    assert sorted(query(model, data.X[:5], 40, strategy).tolist()) == list(range(5))
    if strategy == "random":
        assert first.tolist() != query(model, data.X, 40, strategy, random_state=4).tolist()


def test_rows_whose_labels_are_a_coin_flip_are_uncertain():
    rng = np.random.default_rng(0)
    kinds = rng.integers(0, 10, 600)
    X = sparse.csr_array(np.eye(10, dtype=np.float32)[kinds])
    clear, coin = (kinds == 0), (kinds >= 5) & (rng.random(600) < 0.5)
    Y = sparse.csr_array(np.stack([clear, coin], 1).astype(np.float32))
    model = labelfield.LinearClassifier(**FAST).fit(X, Y)
    assert (kinds[query(model, X, 50, "uncertainty")] >= 5).all()


def test_texts_are_chosen_by_a_text_classifier():
    texts = ["bread and flour", "violin and song"] * 20
    labels = [["food"], ["music"]] * 20
    model = labelfield.TextClassifier(model=labelfield.LinearClassifier(**FAST)).fit(texts, labels)
    pool = ["bread and flour", "violin and song", "something else entirely"]
    assert query(model, pool, 1, "uncertainty").tolist() == [2]


@pytest.mark.parametrize(
    ("given", "said"),
    [({"strategy": "best"}, "strategy='best'"), ({"n": 0}, "n=0"), ({"n": 1.5}, "n=1.5"), ({"n": True}, "n=True")],
)
def test_wrong_arguments(model, data, given, said):
    with pytest.raises(ValueError, match=said):
        query(model, data.X, **({"n": 5} | given))


def test_an_empty_pool_is_refused(model, data):
    with pytest.raises(labelfield.DataError, match=r"a pool without rows|0 sample"):
        query(model, data.X[:0], 5)


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """A model of documents and a pool."""
    folder = tmp_path_factory.mktemp("active")
    run("synth", "--kind", "texts", "--rows", 150, "--out", folder / "docs")
    fast = ("--method", "linear", "--set", "row_transform=unit", "--set", "cost=1.0", "--device=cpu")
    run("train", folder / "docs", "--out", folder / "model", *fast)
    return folder / "model", folder / "docs" / "test.csv"


def test_the_command_writes_documents_with_proposals(served, tmp_path):
    model, pool = served
    done = run("query", model, pool, "-n", 5, "--strategy", "uncertainty", "--out", tmp_path / "next.jsonl")
    assert "5 of 30" in message(done)
    lines = [json.loads(line) for line in (tmp_path / "next.jsonl").read_text().splitlines()]
    assert [line["score"] for line in lines] == sorted((line["score"] for line in lines), reverse=True)
    known = labelfield.read_documents(pool)
    documents = dict(zip(known.ids, known.texts, strict=True))
    assert all((line["title"], line["text"]) == documents[line["id"]] for line in lines)
    assert lines[0]["proposed"][0]["probability"] > 0
    assert "exists" in message(run("query", model, pool, "--out", tmp_path / "next.jsonl", check=2))


def test_the_command_knows_what_is_labelled(served, tmp_path):
    model, pool = served
    known = labelfield.read_documents(pool)
    for name, options in (("kept", ()), ("named", ("--labelled", pool))):
        run("query", model, pool, "-n", 5, "--out", tmp_path / name, *options)
        found = [json.loads(line)["id"] for line in (tmp_path / name).read_text().splitlines()]
        labelled = labelfield.read_documents(pool if options else pool.with_name("train.csv")).texts
        chosen = query(labelfield.load(model), known.texts, 5, "diverse", X_labelled=labelled)
        assert found == [known.ids[row] for row in chosen.tolist()]


ANSWERS = {
    "label-studio": lambda task: {
        "id": 1,
        "data": task["data"],
        "annotations": [{"result": [{"value": {"choices": ["music", "new"]}, "type": "choices"}]}],
    },
    "doccano": lambda task: {"id": 4, **task, "label": ["music", "new"]},
    "argilla": lambda task: (
        task | {"responses": {"tags": [{"user_id": "u", "value": ["music", "new"], "status": "submitted"}]}}
    ),
    "prodigy": lambda task: task | {"accept": ["music", "new"], "answer": "accept"},
}


@pytest.mark.parametrize("tool", ANSWERS)
def test_tasks_go_to_a_tool_and_answers_come_back(served, tmp_path, tool):
    model, pool = served
    run("query", model, pool, "-n", 3, "--tool", tool, "--out", tmp_path / "tasks")
    text = (tmp_path / "tasks").read_text()
    tasks = json.loads(text) if text.startswith("[") else [json.loads(line) for line in text.splitlines()]
    assert len(tasks) == 3
    answers = [ANSWERS[tool](task) for task in tasks]
    (tmp_path / "export.json").write_text(json.dumps(answers))
    (tmp_path / "export.jsonl").write_text("".join(json.dumps(one) + "\n" for one in answers))
    run("collect", tmp_path / "export.json", "--out", tmp_path / "labelled.jsonl")
    done = run("collect", tmp_path / "export.jsonl", "--out", tmp_path / "again.jsonl")
    assert f"3 documents of {tool}" in message(done)
    assert (tmp_path / "labelled.jsonl").read_text() == (tmp_path / "again.jsonl").read_text()
    found = labelfield.read_documents(tmp_path / "labelled.jsonl")
    assert found.labels == [["music", "new"]] * 3
    known = labelfield.read_documents(pool)
    assert found.fields == known.fields == ("title", "text")
    assert all(texts == known.texts[known.ids.index(one)] for one, texts in zip(found.ids, found.texts, strict=True))


def test_what_people_skipped_is_left_out(tmp_path):
    records = [
        {"text": "a", "accept": ["x"], "answer": "accept", "options": [{"id": "x", "text": "Label X"}]},
        {"text": "b", "accept": ["x"], "answer": "reject"},
        {"text": "c", "accept": [], "answer": "ignore"},
    ]
    (tmp_path / "p.jsonl").write_text("".join(json.dumps(one) + "\n" for one in records))
    documents, tool = labelfield.active.read_annotations(tmp_path / "p.jsonl")
    assert (tool, documents.texts, documents.labels) == ("prodigy", [("a",)], [["Label X"]])


def test_nested_choices_count_by_their_last_level_and_any_text_is_kept(tmp_path):
    value = [{"value": {"choices": [["Arts", "music"]], "taxonomy": [["A", "B"], ["C"]]}}]
    record = {"data": {"text": "half a pair HERE, NUL \0 and a separator \u2028"}, "annotations": [{"result": value}]}
    written = json.dumps(record, ensure_ascii=False).replace("HERE", "\\ud800")
    (tmp_path / "s.jsonl").write_text(written + "\r\n", newline="")
    run("collect", tmp_path / "s.jsonl", "--out", tmp_path / "out.jsonl")
    text = "half a pair \ufffd, NUL \0 and a separator \u2028"
    assert json.loads((tmp_path / "out.jsonl").read_text()) == {"text": text, "labels": ["music", "B", "C"]}


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "no records"),
        ("[]", "no records"),
        ("{", "not JSON"),
        ("[1]", "not an object"),
        ('{"text": "x"}', "none of the labelling tools"),
        ("[" * 100_000, "not JSON"),
        ('{"text": "x", "label": [1]}', ":1: a label is 1; expected text"),
        ('{"text": "x", "label": [[0, 1, "span"]]}', 'a label is [0, 1, "span"]; expected text'),
        ('{"text": "x", "label": [" "]}', 'a label is ""; expected one line of text'),
        ('{"text": "x", "label": ["a\\nb"]}', 'a label is "a\\nb"; expected one line of text'),
        ('{"text": null, "label": ["a"]}', "text is null; expected text"),
        ('{"text": "x", "label": ["a"], "meta": 1}', "meta is 1; expected an object"),
        ('{"text": "x", "answer": "accept", "accept": "a"}', 'accept is "a"; expected a list'),
        ('{"text": "x", "answer": "accept", "options": [1]}', "one of options is 1; expected an object"),
        ('{"fields": "x", "responses": [{"value": "a"}]}', 'fields is "x"; expected an object'),
        ('{"fields": {}, "responses": {"tags": "a"}}', 'responses to tags is "a"; expected a list'),
        ('{"data": {"text": "x"}, "annotations": [1]}', "one of annotations is 1; expected an object"),
        ('{"data": {"text": 1}, "annotations": [{}]}', "data has no text"),
        (
            '{"data": {"text": "x"}, "annotations": [{"result": [{"value": {"choices": "music"}}]}]}',
            'choices is "music"; expected a list',
        ),
        ('{"text": "x", "answer": "reject"}', "no document was labelled"),
    ],
)
def test_bad_exports(tmp_path, content, said):
    (tmp_path / "bad.jsonl").write_text(content)
    assert said in message(run("collect", tmp_path / "bad.jsonl", "--out", tmp_path / "out.jsonl", check=3))
    assert not (tmp_path / "out.jsonl").exists()


def test_rows_are_chosen_by_number(tmp_path):
    run("synth", "--out", tmp_path / "rows", "--rows", 60, "--features", 30, "--labels", 5)
    run("train", tmp_path / "rows", "--out", tmp_path / "model", "--method", "linear", "--set", "row_transform=unit")
    run("query", tmp_path / "model", tmp_path / "rows", "-n", 4, "--out", tmp_path / "next.jsonl")
    rows = [json.loads(line)["row"] for line in (tmp_path / "next.jsonl").read_text().splitlines()]
    assert len(set(rows)) == 4
    done = run("query", tmp_path / "model", tmp_path / "rows", "--tool", "prodigy", "--out", tmp_path / "x", check=2)
    assert "is for documents" in message(done)
