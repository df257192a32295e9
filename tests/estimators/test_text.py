"""TextClassifier: documents in, tags out."""

import json
import pickle
import sys

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, KFold, cross_val_predict, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, MultiLabelBinarizer

import labelfield
from labelfield import LinearClassifier, TextClassifier
from labelfield.errors import DataError
from labelfield.estimators.text import explain_text
from labelfield.models.artifact import ModelError
from labelfield.synth import make_texts
from labelfield.text import Documents, Label, LabelVocabulary

TEXTS, LABELS = make_texts(160, seed=0)
VOCABULARY = LabelVocabulary([Label("music", "u:music", {"fi": "musiikki"}), Label("unused", "u:no")])


def fitted(**options):
    model = LinearClassifier(row_transform="unit", cost=1.0)
    return TextClassifier(model=model, **options)


@pytest.fixture(scope="module")
def classifier():
    labels = [["u:music" if one == "music" else one for one in own] for own in LABELS]
    return fitted().fit(TEXTS, labels, vocabulary=VOCABULARY)


def test_tags_are_those_of_new_documents(classifier):
    texts, labels = make_texts(60, seed=1)
    tags = classifier.tags(texts, k=1)
    assert np.mean([own[0].label in true for own, true in zip(tags, labels, strict=True)]) > 0.9
    assert {own[0].uri for own in tags if own[0].label == "music"} == {"u:music"}
    assert classifier.tags(["violin concert"], k=12, threshold=0.99)[0] != classifier.tags(["violin concert"], k=12)[0]


def test_answers_have_the_forms_of_other_classifiers(classifier):
    P, best = classifier.predict_proba(TEXTS[:5]), classifier.predict_topk(TEXTS[:5], 3)
    assert P.shape == (5, 12) == (5, len(classifier.classes_))
    assert (np.diff(best.indptr) == 3).all()
    assert sparse.issparse(classifier.predict(TEXTS[:5]))
    assert ((classifier.predict_uncertainty(TEXTS[:5]) >= 0) & (classifier.predict_uncertainty(TEXTS[:5]) <= 1)).all()
    rows = classifier.rows(TEXTS[:5])
    np.testing.assert_array_equal(classifier.predict_proba(rows), P)  # rows that were made before


def test_a_saved_classifier_answers_the_same(classifier, tmp_path):
    classifier.save(tmp_path / "model")
    assert {entry.suffix for entry in (tmp_path / "model").iterdir()} == {".json", ".safetensors", ".txt", ".jsonl"}
    again = labelfield.load(tmp_path / "model")
    assert isinstance(again, TextClassifier)
    assert again.tags(TEXTS[:9], 12) == classifier.tags(TEXTS[:9], 12)
    assert again.text_.vocabulary.name_of("musiikki") == "music"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda text: text.pop("encoder"), "'encoder' is missing"),
        (lambda text: text["encoder"].update(kind="pickle"), "unknown kind 'pickle'"),
        (lambda text: text["encoder"].update(n_words=1), "neither a word|no model can be made"),
        (lambda text: text.update(fields=[1]), "fields of documents are not names"),
        (lambda text: text.update(columns=[1]), "columns of documents are not names"),
    ],
)
def test_a_folder_that_makes_no_sense_is_refused(classifier, tmp_path, change, message):
    from labelfield.models.artifact import _digest_of_config

    classifier.save(tmp_path / "model")
    path = tmp_path / "model" / "config.json"
    config = json.loads(path.read_text())
    change(config["text"])
    config["sha256"]["config.json"] = _digest_of_config(config)
    path.write_text(json.dumps(config))
    with pytest.raises(ModelError, match=message):
        labelfield.load(tmp_path / "model")


def test_a_word_carries_the_tag_that_falls_without_it(classifier):
    text = "The orchestra and the piano; the piano is old."
    first = classifier.explain(text, k=1)[0]
    assert first.tag.label == "music"
    strongest = first.words[0]
    assert strongest.word in ("orchestra", "piano")
    assert strongest.effect > 0
    assert {first.text[start:end].lower() for start, end in strongest.places} == {strongest.word}
    # the definition: log-odds with and without all places of the word
    model, label = classifier.classifier_, classifier.classes_.tolist().index("music")
    rows = classifier.rows([text, text.replace(strongest.word, " ")])
    whole, left = model.predictor_.log_odds(model.rows(rows))[:, label]
    assert whole - left == pytest.approx(strongest.effect, abs=1e-5)


def test_explanations_of_odd_texts(classifier):
    for text in ("", "?!", "\0", "x" * 100, "漢字", "nothing that is known"):
        assert len(classifier.explain(text, k=2)) == 2
    with pytest.raises(DataError, match="a model of rows"):
        explain_text(LinearClassifier(row_transform="unit", cost=1.0).fit(np.eye(4), np.eye(4)[:, :2]), "text")


def test_fields_are_weighted():
    texts = [("good bread", "noise words here")] * 4 + [("good music", "other noise words")] * 4
    labels = [["a"]] * 4 + [["b"]] * 4
    rows = [
        fitted(field_weights=weights, language="none").fit(texts, labels).rows(texts[:1])
        for weights in ((1, 1), (5, 1))
    ]
    title, plain = (row.toarray()[0] for row in rows[::-1])
    names = fitted(language="none").fit(texts, labels).text_.encoder.feature_names()
    ratio = [row[names.index("bread")] / row[names.index("noise")] for row in (title, plain)]
    assert ratio[0] > 1.5 * ratio[1]


def test_fields_are_kept_apart(tmp_path):
    texts = [("bread", "music here")] * 4 + [("music", "bread here")] * 4
    found = fitted(fields="apart", language="none", field_weights=(2, 1)).fit(texts, [["a"]] * 4 + [["b"]] * 4)
    assert [tags[0].label for tags in found.tags([("bread", "music"), ("music", "bread")], 1)] == ["a", "b"]
    found.save(tmp_path / "model")
    again = labelfield.load(tmp_path / "model")
    assert again.tags(texts, 2) == found.tags(texts, 2)
    # a word in the title counts apart from the same word in the text
    effects = {word.word: word.effect for word in again.explain(("bread", "music"), 1)[0].words}
    assert min(effects.values()) > 0
    with pytest.raises(ValueError, match="fields='both'; expected one of joined, apart"):
        fitted(fields="both").fit(texts, [["a"]] * 8)


def test_documents_are_taken_as_they_are_read(tmp_path):
    documents = Documents(TEXTS, LABELS, [str(i) for i in range(len(TEXTS))], ("title", "text"))
    found = fitted().fit(documents, documents.labels)
    assert found.text_.fields == ("title", "text")
    assert found.tags(["violin concert"])[0][0].label == "music"  # one text is the last field


@pytest.mark.parametrize(
    "encoder",
    [
        TfidfVectorizer(),
        [TfidfVectorizer(), "words"],
        lambda texts: np.array([[len(t), t.count("e"), 1.0] for t in texts]),
    ],
    ids=["scikit-learn", "side by side", "function"],
)
def test_encoders_of_others(tmp_path, encoder):
    texts = [text for _, text in TEXTS]
    found = fitted(encoder=encoder).fit(texts, LABELS)
    assert found.predict_proba(texts[:3]).shape == (3, 12)
    found.save(tmp_path / "model")
    with pytest.raises(ModelError, match=r"needs the encoder .*pass it: labelfield.load"):
        labelfield.load(tmp_path / "model")
    own = found.text_.encoder
    foreign = own.encoders[0] if isinstance(encoder, list) else own
    again = labelfield.load(tmp_path / "model", encoder=foreign)
    np.testing.assert_array_equal(again.predict_proba(texts[:9]), found.predict_proba(texts[:9]))
    again = labelfield.load(tmp_path / "model", encoder=own)
    np.testing.assert_array_equal(again.predict_proba(texts[:9]), found.predict_proba(texts[:9]))
    with pytest.raises(ModelError, match="is not the encoder"):
        labelfield.load(tmp_path / "model", encoder=lambda texts: np.ones((len(texts), 4)))


def test_an_object_with_encode(tmp_path):
    class Embeddings:
        def encode(self, texts):
            return np.array([[len(text), text.count(" ")] for text in texts], float)

    assert fitted(encoder=Embeddings()).fit([t for _, t in TEXTS], LABELS).rows(["a b"]).toarray().tolist() == [[3, 1]]


def lengths(texts):
    return np.array([[len(text), text.count("e"), 1.0] for text in texts])


class Vowels:
    """An encoder that can be made again from its import path."""

    def encode(self, texts):
        return np.array([[text.count(letter) for letter in "aeiou"] for text in texts], float)


@pytest.mark.parametrize("encoder", [lengths, Vowels(), ["words", Vowels()]], ids=["function", "object", "beside"])
def test_code_is_imported_only_with_trust(tmp_path, monkeypatch, encoder):
    monkeypatch.setitem(
        __import__("sys").modules, "own_encoders", type("module", (), {"lengths": lengths, "Vowels": Vowels})
    )
    monkeypatch.setattr(lengths, "__module__", "own_encoders")
    monkeypatch.setattr(Vowels, "__module__", "own_encoders")
    texts = [text for _, text in TEXTS]
    found = fitted(encoder=encoder).fit(texts, LABELS)
    found.save(tmp_path / "model")
    with pytest.raises(ModelError, match=r"own_encoders:.*not in its folder.*trust=True \(--trust\)"):
        labelfield.load(tmp_path / "model")
    again = labelfield.load(tmp_path / "model", trust=True)
    np.testing.assert_array_equal(again.predict_proba(texts[:9]), found.predict_proba(texts[:9]))
    monkeypatch.delitem(sys.modules, "own_encoders")
    with pytest.raises(ModelError, match="cannot be imported"):
        labelfield.load(tmp_path / "model", trust=True)


def test_a_trusted_encoder_must_make_the_same_rows(tmp_path):
    texts = [text for _, text in TEXTS]
    fitted(encoder=TfidfVectorizer(min_df=2)).fit(texts, LABELS).save(tmp_path / "model")
    with pytest.raises(ModelError, match="does not work as it is"):  # what it learned is not in the folder
        labelfield.load(tmp_path / "model", trust=True)


def test_an_encoder_that_was_not_fitted_is_told(tmp_path):
    texts, encoder = [text for _, text in TEXTS], TfidfVectorizer()
    fitted(encoder=encoder).fit(texts, LABELS).save(tmp_path / "model")  # which fits a copy
    with pytest.raises(ModelError, match=r"is not fitted\); pass what was fitted: load\(folder, encoder=tagger"):
        labelfield.load(tmp_path / "model", encoder=encoder)
    with pytest.raises(ModelError, match="nothing is not the encoder"):
        labelfield.load(tmp_path / "model", encoder=["words"])


@pytest.mark.parametrize("texts", [["", ""], ["a b", "a b"], ["one word", "and another"]])
def test_documents_that_share_no_word_are_refused(texts):
    with pytest.raises(DataError, match="no word occurs in two documents"):
        fitted().fit(texts, [["x"], ["y"]])


@pytest.mark.parametrize("encoder", ["wordllama", ["words", "wordllama"]])
def test_a_pretrained_encoder_by_name(tmp_path, encoder):
    texts = [text for _, text in TEXTS]
    found = fitted(encoder=encoder).fit(texts, LABELS)
    found.save(tmp_path / "model")
    again = labelfield.load(tmp_path / "model")  # known by its name: nothing else is imported
    np.testing.assert_array_equal(again.predict_proba(texts[:9]), found.predict_proba(texts[:9]))
    named = labelfield.load(tmp_path / "model", encoder=encoder)  # as it was named in training
    np.testing.assert_array_equal(named.predict_proba(texts[:9]), found.predict_proba(texts[:9]))
    with pytest.raises(ModelError, match="encoder='nothing'; expected words"):
        labelfield.load(tmp_path / "model", encoder="nothing")
    assert found.rows(["", "a text " * 100_000]).shape[0] == 2
    assert again.tags(["violin concert"], 1)[0][0].label == "music"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("model2vec:some/model", "needs the package model2vec. Install it: pip install model2vec"),
        ("sentence-transformers:some", "needs the package sentence-transformers"),
        ("wordllama:other", "the model 'other' is not found.*nothing is downloaded"),
    ],
)
def test_a_missing_pretrained_encoder_is_said(name, message):
    with pytest.raises(labelfield.LabelfieldError, match=message):
        fitted(encoder=name).fit(["a"], [["b"]])


def test_a_folder_of_this_machine_is_not_loaded_because_a_model_names_it(tmp_path):
    from labelfield.text.foreign import restore_foreign

    config = {"kind": "foreign", "path": "x:y", "name": f"sentence-transformers:{tmp_path}", "fingerprint": ""}
    with pytest.raises(labelfield.LabelfieldError, match="which may hold code"):
        restore_foreign(config, None, False)


@pytest.mark.parametrize("as_given", [np.asarray, sparse.csr_array], ids=["dense", "sparse"])
def test_precomputed_rows_beside_words(tmp_path, as_given):
    hint = np.array([["music" in own, 1.0] for own in LABELS], np.float32)
    found = fitted().fit(TEXTS, LABELS, rows=as_given(hint))
    found.save(tmp_path / "model")
    again = labelfield.load(tmp_path / "model")
    empty = [("", "")] * 2
    music = list(found.classes_).index("music")
    P = again.predict_proba(empty, rows=as_given(np.array([[1.0, 1.0], [0.0, 1.0]], np.float32)))
    np.testing.assert_array_equal(P, found.predict_proba(empty, rows=np.array([[1.0, 1.0], [0.0, 1.0]])))
    assert P[0, music] > P[1, music] + 0.2
    assert again.explain(("", "A violin concert"), 1, row=[1.0, 1.0])[0].tag.label == "music"
    with pytest.raises(DataError, match=r"no precomputed rows; expected those beside the texts.*rows="):
        again.predict_proba(empty)
    with pytest.raises(DataError, match="rows of 3 columns; expected 2 as in training"):
        again.predict_proba(empty, rows=np.ones((2, 3)))
    with pytest.raises(DataError, match="2 and 1 rows beside each other"):
        again.predict_proba(empty, rows=np.ones((1, 2)))


def test_rows_alone_with_labels_as_strings(tmp_path, classifier):
    X = classifier.rows(TEXTS)
    found = fitted(encoder="rows").fit(X, LABELS)
    found.save(tmp_path / "model")
    again = labelfield.load(tmp_path / "model")
    assert again.tags(X[:5], 2) == found.tags(X[:5], 2)
    with pytest.raises(DataError, match=r"these are no rows of numbers; .*leave out encoder"):
        fitted(encoder="rows").fit(TEXTS, LABELS, rows=X)
    with pytest.raises(ValueError, match=r"pass the rows themselves: fit\(texts, labels, rows=…\)"):
        fitted(encoder=["words", "rows"]).fit(TEXTS, LABELS)


def test_words_of_a_title_count_more():
    texts = [("music", "bread"), ("bread", "music")] * 4
    documents = Documents(texts, [["a"], ["b"]] * 4, [str(i) for i in range(8)], ("title", "text"))
    found = fitted().fit(documents, documents.labels)
    columns = [found.text_.encoder.feature_names().index(word) for word in ("music", "bread")]
    in_title, in_text = found.rows(texts[:1]).toarray()[0, columns]
    assert in_title / in_text == pytest.approx(np.log(5) / np.log(2), rel=1e-5)  # log(1 + 4) and log(1 + 1)
    alike = fitted(field_weights=(1, 1)).fit(documents, documents.labels).rows(texts[:1]).toarray()[0, columns]
    assert alike[0] == alike[1]


def test_a_copy_answers_the_same(classifier):
    again = pickle.loads(pickle.dumps(classifier))
    assert again.tags(TEXTS[:5]) == classifier.tags(TEXTS[:5])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "precision", "f1"),
    [("makupalat", (33.5, 17.3, 11.9), 0.19), ("eurovoc-text", (86.1, 74.5, 61.5), 0.611)],
)
def test_real_documents_get_tags_at_least_as_good_as_those_of_annif(real_data, name, precision, f1):
    docs, test = (labelfield.read_documents(real_data(name), part=part) for part in ("train", "test"))
    tags = TextClassifier(model=LinearClassifier()).fit(docs, docs.labels).tags(test, 5)
    hits = np.array([[tag.label in true for tag in own] for own, true in zip(tags, test.labels, strict=True)])
    assert all(100 * hits[:, :k].mean() >= least for k, least in zip((1, 3, 5), precision, strict=True))
    n_true = np.array([len(true) for true in test.labels])
    assert np.mean(2 * hits.sum(1) / (5 + n_true)) >= f1


def test_scikit_learn_can_clone_and_chain_it():
    texts = [text for _, text in TEXTS]
    chain = make_pipeline(FunctionTransformer(lambda some: [text.upper() for text in some]), clone(fitted()))
    chain.fit(texts, LABELS)
    assert chain.predict(texts[:3]).shape == (3, 12)
    assert fitted(language="fi").get_params()["language"] == "fi"


def test_scikit_learn_can_score_it():
    texts = [text for _, text in TEXTS]
    found = fitted().fit(texts, LABELS)
    tags = [
        {label for label, is_tag in zip(found.classes_, row, strict=True) if is_tag}
        for row in found.predict(texts).toarray()
    ]
    assert found.score(texts, LABELS) == np.mean([own == set(true) for own, true in zip(tags, LABELS, strict=True)])
    # scikit-learn itself refuses lists of labels where it chooses the folds
    assert np.isfinite(cross_val_score(fitted(), texts, LABELS, cv=KFold(2))).all()


def test_labels_that_a_fold_has_not_seen_are_missed():
    texts = [text for _, text in TEXTS]
    labels = [[*own, "here alone"] if place in (3, 100) else own for place, own in enumerate(LABELS)]
    found = fitted().fit(texts[:80], LABELS[:80])
    right = [set(found.classes_[row.nonzero()[0]]) for row in found.predict(texts[80:]).toarray().astype(bool)]
    expected = np.mean([own == set(true) for own, true in zip(right, labels[80:], strict=True)])
    assert found.score(texts[80:], labels[80:]) == expected < 1
    weights = np.arange(80.0)
    assert found.score(texts[80:], labels[80:], weights) != expected
    assert np.isfinite(cross_val_score(fitted(), texts, labels, cv=KFold(4), error_score="raise")).all()
    search = GridSearchCV(fitted(), {"model__cost": [1e-4, 1.0]}, cv=KFold(2), error_score="raise")
    assert search.fit(texts, labels).best_params_ == {"model__cost": 1.0}
    rare = [own[0] if place else "here alone" for place, own in enumerate(LABELS)]
    assert np.isfinite(cross_val_score(fitted(), texts, rare, cv=KFold(4), error_score="raise")).all()


def test_a_matrix_of_indicators_is_taken_as_scikit_learn_makes_it():
    texts = [text for _, text in TEXTS]
    binarizer = MultiLabelBinarizer(sparse_output=True)
    Y = binarizer.fit_transform(LABELS)
    lists = fitted().fit(texts, LABELS)
    for given in (Y, Y.toarray(), Y.toarray().astype(bool)):
        found = fitted().fit(texts, given)
        assert list(binarizer.classes_[[int(name) for name in found.classes_]]) == list(lists.classes_)
        assert (found.predict_proba(texts[:9]) == lists.predict_proba(texts[:9])).all()
        assert found.score(texts, given) == lists.score(texts, LABELS)
    dense = Y.toarray()
    assert np.isfinite(cross_val_score(fitted(), texts, dense, cv=3, scoring="f1_micro", error_score="raise")).all()
    assert cross_val_predict(fitted(), texts, dense, cv=3, method="predict_proba").shape == dense.shape


def test_documents_of_a_file_have_their_fields_by_name():
    texts = [(title, body) for title, body in TEXTS]
    found = fitted().fit(Documents(texts, LABELS, [], ("title", "text")), LABELS)
    expected = found.predict_proba(texts[:5])
    turned = Documents([(body, title) for title, body in texts[:5]], None, [], ("text", "title"))
    np.testing.assert_array_equal(found.predict_proba(turned), expected)
    bodies = [body for _, body in texts[:5]]
    for name in ("text", "abstract"):
        alone = Documents([(body,) for body in bodies], None, [], (name,))
        np.testing.assert_array_equal(found.predict_proba(alone), found.predict_proba(bodies))
    headings = Documents([(title,) for title, _ in texts[:5]], None, [], ("title",))
    np.testing.assert_array_equal(found.predict_proba(headings), found.predict_proba([(t, "") for t, _ in texts[:5]]))


def test_indicators_in_a_table_keep_the_names_of_their_columns(tmp_path):
    pandas = pytest.importorskip("pandas")
    texts, binarizer = [text for _, text in TEXTS], MultiLabelBinarizer()
    Y = binarizer.fit_transform(LABELS)
    table = pandas.DataFrame(Y, columns=binarizer.classes_)[binarizer.classes_[::-1]]
    found, lists = fitted().fit(texts, table), fitted().fit(texts, LABELS)
    assert list(found.classes_) == list(table.columns) == list(lists.classes_[::-1])
    np.testing.assert_allclose(found.predict_proba(texts[:9])[:, ::-1], lists.predict_proba(texts[:9]), atol=1e-5)
    assert {tag.label for tag in found.tags(texts[:1], k=12)[0]} == set(binarizer.classes_)
    for model in (found, lists):
        assert model.score(texts, table) == model.score(texts, table[binarizer.classes_]) == lists.score(texts, LABELS)
    found.save(tmp_path / "model")
    assert list(labelfield.load(tmp_path / "model").classes_) == list(table.columns)
    uris = fitted().fit(texts, table.rename(columns={"music": "u:music"}), vocabulary=VOCABULARY)
    assert list(uris.classes_) == list(table.columns)
    with pytest.raises(DataError, match="the label 'music' is only in the model; expected a column for each label"):
        found.score(texts, table.drop(columns="music"))
    with pytest.raises(DataError, match="two columns are the label 'music'"):
        fitted().fit(texts, table.assign(**{"u:music": 1}), vocabulary=VOCABULARY)
    assert list(fitted().fit(texts, pandas.DataFrame(Y)).classes_) == list(map(str, range(12)))


def test_classes_may_be_numbers_as_data_sets_of_scikit_learn_have_them():
    texts = [text for _, text in TEXTS]
    numbers = np.array([sorted(lists)[0] == "music" for lists in LABELS], np.int64)
    found = fitted().fit(texts, numbers)
    assert list(found.classes_) == ["0", "1"]
    assert found.score(texts, numbers) > 0.9


def test_tables_have_the_fields_in_their_columns():
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame({"title": [own[0] for own in TEXTS], "text": [own[1] for own in TEXTS]})
    found, same = fitted().fit(table, pandas.Series(LABELS)), fitted().fit(TEXTS, LABELS)
    assert found.text_.fields == ("title", "text")
    assert (found.text_.encoder.weights_ == [4, 1]).all()
    assert same.predict_proba(TEXTS[:5]).shape == found.predict_proba(table[:5]).shape
    assert found.tags(table[:5], k=2) == found.tags(TEXTS[:5], k=2)


def test_columns_of_a_table_are_known_by_their_names():
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame(TEXTS, columns=["title", "text"])
    found = fitted().fit(table, LABELS)
    expected = found.predict_proba(table[:9])
    other = table.assign(author="violin")[["text", "author", "title"]]
    np.testing.assert_array_equal(found.predict_proba(other[:9]), expected)
    assert found.score(other, LABELS) == found.score(table, LABELS)
    with pytest.raises(DataError, match="a table without title; expected the columns title, text, as in training"):
        found.predict(table[["text"]])
    # fields that had no names are known by their places
    unnamed = fitted().fit(TEXTS, LABELS)
    np.testing.assert_array_equal(unnamed.predict_proba(table[:9]), unnamed.predict_proba(TEXTS[:9]))
    bodies = table[["text"]].rename(columns={"text": "body"})
    one = fitted().fit(bodies, LABELS)
    np.testing.assert_array_equal(one.predict_proba(bodies[:9]), one.predict_proba([text for _, text in TEXTS[:9]]))


def test_one_label_in_every_document_and_one_label_each():
    texts = [text for _, text in TEXTS]
    everywhere = fitted().fit(texts, [[*own, "all"] for own in LABELS])
    new = [text for _, text in make_texts(20, seed=2)[0]]
    assert all("all" in {tag.label for tag in tags if tag.probability > 0.5} for tags in everywhere.tags(new))
    single = fitted().fit(texts, [own[0] for own in LABELS])
    assert len(single.classes_) == 12


@pytest.mark.parametrize(
    ("texts", "labels", "message"),
    [
        ("one text", [["a"]], "one text; expected a list of texts"),
        (["a b", 3], [["a"], ["b"]], "text 1 is int '3'; expected text"),
        (["a b"], [["a"], ["b"]], "1 texts and 2 lists of labels"),
        (["a b", "c d"], [[], []], "no document has a label"),
        (["a b", "c d"], None, r"the labels are None; .*read_documents\(path, labels=COLUMN\)"),
        (["a b", "c d"], [["a"], None], "the labels of text 1 are None; expected a list of names"),
        (["a b", "c d"], [["a"], float("nan")], "the labels of text 1 are nan"),
        (["a b", "c d"], [{"a": 1, "b": 0}, ["a"]], "the labels of text 0 are {'a': 1, 'b': 0}"),
        (["a b", "c d"], [["a"], [["a", "b"]]], r"the labels of text 1 are \[\['a', 'b'\]\]"),
    ],
)
def test_what_cannot_be_learned_from_is_refused(texts, labels, message):
    with pytest.raises(DataError, match=message):
        fitted().fit(texts, labels)


def test_missing_labels_of_pandas_are_refused():
    pandas = pytest.importorskip("pandas")
    for labels in (pandas.Series(["a", None], dtype="string"), [["a"], ["b", pandas.NA]]):
        with pytest.raises(DataError, match=r"the labels of text 1 are .*<NA>.*; expected a list of names"):
            fitted().fit(["a b", "c d"], labels)


def test_bad_options_are_refused():
    with pytest.raises(ValueError, match="encoder='bert'; expected words, wordllama"):
        fitted(encoder="bert").fit(["a"], [["b"]])
    with pytest.raises(ValueError, match=r"encoder=\[\]; expected at least one"):
        fitted(encoder=[]).fit(["a b", "a c"], [["b"], ["c"]])
    with pytest.raises(ValueError, match=r"field_weights=\(2, 1\); expected None, since texts have one field"):
        fitted(field_weights=(2, 1)).fit(["a b", "a c"], [["b"], ["c"]])
    for model in ("linear", LogisticRegression()):
        with pytest.raises(ValueError, match="expected a classifier of labelfield, such as LinearClassifier"):
            TextClassifier(model=model).fit(["a b", "a c"], [["b"], ["c"]])
    with pytest.raises(NotFittedError):
        fitted().predict(["a"])


def test_words_are_those_of_their_tag_where_probabilities_are_equal(monkeypatch):
    texts = ["alpha beta", "alpha beta", "alpha", "beta", "gamma", "delta gamma"] * 20
    labels = [[one for one in ("alpha", "beta") if one in text] for text in texts]
    model = labelfield.LinearClassifier(row_transform="unit", cost=1.0, device="cpu")
    tagger = labelfield.TextClassifier(model=model, language="none").fit(texts, labels)
    real = tagger.classifier_.predict_topk

    def equal(X, k):
        found = real(X, k)
        found.data[:] = 1
        return found

    monkeypatch.setattr(tagger.classifier_, "predict_topk", equal)
    found = tagger.explain("alpha beta", k=2, n_words=1)
    assert sorted(one.tag.label for one in found) == ["alpha", "beta"]
    assert all(one.words[0].word == one.tag.label for one in found)
