"""The encoder of words: the same counts as scikit-learn's, and the compiled loops as their plain twin."""

import gzip
import json
import tempfile
from collections import Counter
from itertools import chain, pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.feature_extraction.text import CountVectorizer

from labelfield import LinearClassifier
from labelfield.compiled import tokens
from labelfield.compiled.tokens import SEPARATOR, UNKNOWN, split_words
from labelfield.mapped import map_of
from labelfield.synth import make_texts
from labelfield.text import counting, letters
from labelfield.text import words as module
from labelfield.text.encoders import described_encoder
from labelfield.text.languages import detect_language, normalise, stemmer
from labelfield.text.letters import spans_of, words_of
from labelfield.text.lexicon import Lexicon, split
from labelfield.text.words import WordEncoder
from labelfield.text.wordtable import Packed, WordTable

CORPUS = [
    "The librarian catalogues books; the books are old.",
    "Old books and new libraries, catalogued by librarians",
    "A library of new books",
    "",
    "C'est l'été à la bibliothèque: des livres, des LIVRES!",
]
TEXTS = st.lists(st.text(st.sampled_from("abÄé İß_19 .,-\n\u0301\0漢字กА"), max_size=30), min_size=1, max_size=8)


def plain(monkeypatch):
    monkeypatch.setattr(module, "has_numba", lambda: False)


@pytest.mark.parametrize("pairs", [False, True])
def test_columns_and_counts_are_those_of_scikit_learn(pairs):
    texts = [text.replace("'", " ") for text in CORPUS]
    encoder = WordEncoder(language="none", pairs=pairs, characters="off", min_documents=1).fit(texts)
    theirs = CountVectorizer(ngram_range=(1, 2 if pairs else 1))
    X = theirs.fit_transform(texts)
    names = theirs.get_feature_names_out().tolist()
    assert sorted(encoder.feature_names()) == sorted(names)
    frequency = dict(zip(encoder.feature_names(), encoder.vocabulary_.frequency, strict=True))
    assert [frequency[name] for name in names] == np.bincount(X.indices, minlength=X.shape[1]).tolist()
    # values: log(1 + tf) idf, half of it for pairs, norm 1
    rows = encoder.transform(texts).toarray()
    order = [encoder.feature_names().index(name) for name in names]
    df = np.array([frequency[name] for name in names])
    weight = [0.5 if " " in name else 1 for name in names]
    expected = np.log1p(X.toarray()) * (np.log((1 + len(texts)) / (1 + df)) + 1) * weight
    expected /= np.maximum(np.linalg.norm(expected, axis=1, keepdims=True), 1e-12)
    np.testing.assert_allclose(rows[:, order], expected, rtol=1e-5, atol=1e-6)


@given(TEXTS, st.sampled_from([("fi", "on"), ("none", "off")]))
@settings(max_examples=80, deadline=None)
def test_the_compiled_loops_do_as_their_plain_twin(texts, units):
    fields = [(text, text[::-1]) for text in texts]
    options = {"language": units[0], "characters": units[1], "min_documents": 1}
    compiled = WordEncoder(**options)
    rows = compiled.fit_transform(fields, (2.0, 1.0))
    with pytest.MonkeyPatch.context() as patch:
        plain(patch)
        twin = WordEncoder(**options)
        plain_rows = twin.fit_transform(fields, (2.0, 1.0))
    assert compiled.feature_names() == twin.feature_names()
    assert compiled.vocabulary_.frequency.tolist() == twin.vocabulary_.frequency.tolist()
    for found in (rows, compiled.transform(fields)):
        np.testing.assert_array_equal(found.indptr, plain_rows.indptr)
        np.testing.assert_array_equal(found.indices, plain_rows.indices)
        np.testing.assert_allclose(found.data, plain_rows.data, rtol=1e-5)


@given(TEXTS)
@settings(max_examples=60, deadline=None)
def test_words_and_their_places_agree(texts):
    for text in texts:
        normal, spans = spans_of(text)
        assert [word for _, _, word in spans] == words_of(text)
        assert all(words_of(normal[start:end]) == [word] for start, end, word in spans)


def test_tables_grow_and_forget_without_losing_words(monkeypatch):
    monkeypatch.setattr("labelfield.text.wordtable._FEW_WORDS", 4)
    monkeypatch.setattr("labelfield.text.lexicon._MOST_WORDS", 50)
    rng = np.random.default_rng(0)
    texts = [" ".join(f"word{i}" for i in rng.integers(0, 300, 60)) for _ in range(40)]
    encoder = WordEncoder(language="none", characters="on")
    rows = encoder.fit_transform(texts)
    again = encoder.transform(texts)
    one_by_one = [encoder.transform([text]) for text in texts]
    assert (rows != again).nnz == 0
    assert all((rows[[i]] != own).nnz == 0 for i, own in enumerate(one_by_one))
    lexicon = Lexicon(lambda words: ([1] * (words.starts.size - 1), np.arange(words.starts.size - 1, dtype=np.int32)))
    assert lexicon.tokens(split(["a b aa bb aa cc", "", "bb"])).tolist() == [0, 1, 0, 2, -1, -1, 1, -1]
    with monkeypatch.context() as patched:
        patched.setattr(lexicon, "units_of", lambda words: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            lexicon.tokens(split(["dd"]))
    assert lexicon.tokens(split(["dd aa"])).tolist() == [0, 1, -1]  # a word without units is not kept
    assert lexicon.pointers[:3].tolist() == [0, 1, 2]


@given(st.lists(st.lists(st.text("ab\U0001f600\ud800", min_size=1, max_size=3), max_size=20), max_size=4))
@settings(max_examples=60, deadline=None)
def test_a_table_numbers_words_as_a_dict_does(batches):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("labelfield.text.wordtable._FEW_WORDS", 1)
        patch.setattr("labelfield.text.wordtable._AT_ONCE", 3)
        table, numbers = WordTable(), {}
        for words in batches:
            expected = [numbers.setdefault(word, len(numbers)) for word in words]
            assert table.add(Packed.of(words)).tolist() == expected
        assert table.names(np.arange(len(table))) == table.since(0).words() == list(numbers)
        asked = ["", "a", "b", "zz"]
        assert table.find(Packed.of(asked)).tolist() == [numbers.get(word, -1) for word in asked]


def test_pairs_are_counted_as_a_counter_does_however_often_the_list_is_full(monkeypatch):
    monkeypatch.setattr(counting, "_LISTED", 16)
    monkeypatch.setattr(counting, "_FEW_SLOTS", 2)
    monkeypatch.setattr(module, "_BATCH_DOCUMENTS", 2)
    monkeypatch.setattr(module, "_FEW_DOCUMENTS", 2)
    monkeypatch.setattr(module, "_MANY_DOCUMENTS", 2)
    rng = np.random.default_rng(0)
    texts = [" ".join(f"w{i}" for i in rng.integers(10, 20, n)) for n in rng.integers(0, 40, 60)]
    encoder = WordEncoder(language="none", characters="off").fit(texts)
    expected = Counter(chain.from_iterable({*pairwise(text.split())} for text in texts))
    frequency = dict(zip(encoder.feature_names(), encoder.vocabulary_.frequency.tolist(), strict=True))
    found = {tuple(name.split()): count for name, count in frequency.items() if " " in name}
    assert found == {pair: count for pair, count in expected.items() if count >= 2}


def test_pairs_seen_once_are_forgotten_when_there_are_too_many(monkeypatch):
    monkeypatch.setattr(counting, "_LISTED", 64)
    monkeypatch.setattr(counting, "_MOST_PAIRS", 128)
    rng = np.random.default_rng(0)
    texts = ["red apple " + " ".join(f"w{i}" for i in rng.integers(0, 200, 30)) for _ in range(60)]
    monkeypatch.setattr(module, "_BATCH_DOCUMENTS", 1)
    encoder = WordEncoder(language="none", characters="off").fit(texts)
    names, frequency = encoder.feature_names(), encoder.vocabulary_.frequency
    assert frequency[names.index("red apple")] == 60
    assert len(encoder.vocabulary_.pairs) <= 128


def test_the_most_frequent_columns_are_kept():
    texts = [f"common {'often ' * (i % 2)}rare{i % 5} alpha beta" for i in range(20)]
    encoder = WordEncoder(language="none", characters="off", max_features=4).fit(texts)
    # "common", "alpha", "beta" and "alpha beta" are in all texts; the pair is dropped among equals only if full
    assert {"alpha", "beta", "common"} <= set(encoder.feature_names())
    assert encoder.n_features_ <= 4
    assert WordEncoder(language="none", max_features=1).fit(["aa bb", "aa bb"]).feature_names() == ["aa"]


@pytest.mark.parametrize("options", [("none", "off"), ("en", "on")])
def test_any_number_of_threads_gives_the_same_bits(monkeypatch, options):
    rng = np.random.default_rng(0)
    words = np.array([f"w{number}" for number in range(3000)])
    texts = [" ".join(row) for row in words[rng.integers(0, 3000, (600, 40))]]
    monkeypatch.setattr(module, "_BATCH_DOCUMENTS", 20)
    monkeypatch.setattr(module, "_MANY_DOCUMENTS", 20)
    found = []
    for n_threads in (1, 2, 5):
        monkeypatch.setenv("OMP_NUM_THREADS", str(n_threads))
        encoder = WordEncoder(language=options[0], characters=options[1], min_documents=1)
        rows = encoder.fit_transform(texts)
        for _ in range(2):  # with the words of the training documents, and without them
            again = encoder.transform(texts)
            assert (again != rows).nnz == 0
            encoder._table = encoder._lexicon = None  # threads meet at the table of pairs
        found.append((encoder.feature_names(), rows.indptr.tobytes(), rows.indices.tobytes(), rows.data.tobytes()))
    assert found[0] == found[1] == found[2]


def test_many_rows_are_files_with_the_same_bits(monkeypatch, tmp_path):
    texts, labels = make_texts(300, seed=0)
    texts = [text for _, text in texts]
    in_memory = WordEncoder().fit_transform(texts)
    assert map_of(in_memory.indices) is None
    monkeypatch.setattr(module, "_MOST_IN_MEMORY", 10)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    encoder = WordEncoder()
    in_files = encoder.fit_transform(texts)
    assert map_of(in_files.indices) is not None
    assert map_of(in_files.data) is not None
    assert not list(tmp_path.iterdir())  # files have no names, and end with the rows
    assert (in_files != in_memory).nnz == 0
    assert (in_files.indptr == in_memory.indptr).all()
    # a classifier learns the same from both, and the encoder goes on in memory
    P = [LinearClassifier(cost=1.0).fit(X, labels).predict_proba(in_memory[:20]) for X in (in_memory, in_files)]
    assert (P[0] == P[1]).all()
    assert map_of(encoder.transform(texts).indices) is None


def test_stems_join_the_forms_of_a_word():
    encoder = WordEncoder(language="en", pairs=False, characters="off").fit(CORPUS)
    assert "book" in encoder.feature_names()
    assert "books" not in encoder.feature_names()
    assert encoder.transform(["book"]).nnz == encoder.transform(["Books"]).nnz == 1
    assert stemmer("xx")(["books"]) == ["books"]


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("The house that stands on the hill is for the people of this town and it was built by them", "en"),
        ("Talo on mäellä ja se on vanha, mutta ihmiset jotka asuvat siellä ovat myös nuoria", "fi"),
        ("Viulukonsertti oli illalla, laiva lähti satamasta ja merimiehet olivat sen kanssa", "fi"),
        ("Das Haus steht auf dem Hügel und die Leute, die dort wohnen, sind nicht alt", "de"),
        ("La maison est sur la colline et les gens qui y habitent ne sont pas vieux", "fr"),
        ("Дом стоит на холме, и люди, которые живут в нём, не старые, но это так", "ru"),
        ("xylophone quartz", None),
        ("", None),
    ],
)
def test_languages_are_detected_by_their_frequent_words(text, language):
    assert detect_language([text]) == language


def test_languages_have_many_names():
    assert [normalise(name) for name in ("fi", "FI", "fi-FI", "Finnish", "nb", "xx")] == [
        "fi",
        "fi",
        "fi",
        "fi",
        "no",
        "xx",
    ]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("שלום עולם", ["שלום", "עולם"]),
        ("مرحبا بالعالم", ["مرحبا", "بالعالم"]),
        ("東京タワー", list("東京タワー")),
        ("हिन्दी भाषा", ["हिन्दी", "भाषा"]),
        ("e\u0301te\u0301", ["été"]),
        ("a bc" + "x" * 65, []),
        ("nul\0byte", ["nul", "byte"]),
        ("it's 42 a", ["it", "42"]),
        ("lone \ud800 surrogate", ["lone", "surrogate"]),
    ],
)
def test_words_of_many_scripts(text, words):
    assert words_of(text) == words
    encoder = WordEncoder(language="none", pairs=False, characters="off", min_documents=1).fit([text])
    assert sorted(encoder.feature_names()) == sorted(set(words))


def test_a_long_document_is_read_as_any_other():
    long = "word other " * 400_000
    encoder = WordEncoder(min_documents=1, language="none").fit([long, "short"])
    assert encoder.transform([long]).nnz == 4  # two words, and two pairs


def test_characters_are_for_short_documents():
    assert WordEncoder(language="none").fit(["short text"] * 3).has_characters_
    one_long = WordEncoder().fit(["qwertz asdf " * 50_000, *["the cat is on the mat and it was here"] * 9])
    assert (one_long.language_, one_long.has_characters_) == ("en", True)
    assert not WordEncoder(language="none").fit(["long text " * 100] * 3).has_characters_


@pytest.mark.parametrize("is_compiled", [True, False])
def test_characters_are_left_out_where_rows_would_be_too_many(monkeypatch, is_compiled):
    if not is_compiled:
        plain(monkeypatch)
    texts = ["short words here", "words of short texts"] * 3
    expected = WordEncoder(language="none", characters="off").fit(texts)
    monkeypatch.setattr(module, "_MOST_ENTRIES", 50)
    encoder = WordEncoder(language="none")
    rows = encoder.fit_transform(texts)
    assert not encoder.has_characters_
    assert "no character n-grams for so many documents" in described_encoder(encoder)
    assert encoder.feature_names() == expected.feature_names()
    np.testing.assert_array_equal(rows.toarray(), expected.transform(texts).toarray())
    np.testing.assert_array_equal(encoder.transform(texts).toarray(), rows.toarray())
    assert WordEncoder(language="none", characters="on").fit(texts).has_characters_
    monkeypatch.setattr(module, "_MOST_ENTRIES", 10**6)
    assert WordEncoder(language="none").fit(texts).has_characters_


def test_a_code_point_that_becomes_known_while_a_word_ends_does_not_split_it():
    class Folding:
        """A table whose page of the third code point is filled by another thread after it was first read."""

        def __init__(self):
            self.n_asked = 0

        def __getitem__(self, code):
            self.n_asked += code == ord("c")
            return UNKNOWN if code == ord("c") and self.n_asked == 1 else SEPARATOR if code == 0 else code

    codes, room = np.array([*map(ord, "abcd"), 0], np.uint32), np.zeros(9, np.uint32)
    split_one = getattr(split_words, "py_func", split_words)
    with np.errstate(over="ignore"):  # hashes wrap around
        assert split_one(codes, Folding(), room, np.zeros(9, np.int64), np.zeros(9, np.uint64)) == -1


def test_words_have_the_same_lengths_in_both_twins():
    assert (letters.SHORTEST, letters.LONGEST) == (tokens.SHORTEST, tokens.LONGEST)


@pytest.mark.parametrize("weights", [(), (0.0, 1.0), (-1.0,), (float("nan"),)])
def test_weights_of_fields_are_positive(weights):
    with pytest.raises(ValueError, match="not positive numbers"):
        WordEncoder().fit([("a", "b")], weights)


def test_bad_options_and_documents_are_refused():
    with pytest.raises(ValueError, match="min_documents=0; expected an integer"):
        WordEncoder(min_documents=0).fit(CORPUS)
    with pytest.raises(ValueError, match="a document with 1 fields"):
        WordEncoder().fit([("a", "b"), ("a",)], (1, 1))


def test_a_described_encoder_is_restored_exactly():
    encoder = WordEncoder(language="en", characters="on")
    rows = encoder.fit_transform(CORPUS)
    config, arrays = encoder.describe()
    again = WordEncoder.restore(json.loads(json.dumps(config)), arrays, encoder.feature_names())
    assert (again.transform(CORPUS) != rows).nnz == 0


@pytest.mark.parametrize(
    "change",
    [
        {"n_words": 10**6},
        {"n_pairs": -1},
        {"weights": [float("nan")]},
        {"weights": []},
        {"language_": 3},
        {"n_documents": 1},
        {"pairs": "yes"},
        {"n_words": 1},
    ],
)
def test_a_description_that_makes_no_sense_is_refused(change):
    encoder = WordEncoder(language="en").fit(CORPUS)
    config, arrays = encoder.describe()
    with pytest.raises((ValueError, KeyError, TypeError)):
        WordEncoder.restore(config | change, arrays, encoder.feature_names())


@pytest.mark.slow
def test_real_documents_have_the_words_that_scikit_learn_finds():
    path = Path("../shared/data/makupalat/train.tsv.gz")
    if not path.exists():
        pytest.skip("no data")
    with gzip.open(path, "rt", encoding="utf-8") as file:
        texts = [line.split("\t")[0] for line in file]
    encoder = WordEncoder(language="none", characters="off").fit(texts)
    theirs = CountVectorizer(ngram_range=(1, 2), min_df=2).fit(texts)
    assert set(encoder.feature_names()) == set(theirs.get_feature_names_out())
