"""Vocabularies: labels by URI, name and number."""

# ruff: noqa: E501

import pytest

from labelfield.errors import DataError
from labelfield.text import Label, LabelVocabulary, read_vocabulary

SKOS = """
@prefix skos: <http://www.w3.org/2004/02/skos/core#> .
<http://x/1> a skos:Concept ; skos:prefLabel "bread"@en , "leipä"@fi ; skos:notation "64.2" .
<http://x/2> a skos:Concept ; skos:prefLabel "music"@en .
"""


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("v.tsv", "<http://x/1>\tleipä\t64.2\n<http://x/2>\tmusic\n"),
        ("v.csv", "uri,label_en,label_fi,notation\nhttp://x/1,bread,leipä,64.2\n<http://x/2>,music,,\n"),
        ("v.csv", "uri;label_en;label_fi;notation\nhttp://x/1;bread;leipä;64.2\n<http://x/2>;music;;\n"),
        ("v.ttl", SKOS),
        (
            "v.jsonl",
            '{"name": "leipä", "uri": "http://x/1", "notation": "64.2"}\n{"title": "music", "uri": "http://x/2"}\n',
        ),
    ],
)
def test_every_format_gives_the_same_labels(tmp_path, name, content):
    if name.endswith("ttl"):
        pytest.importorskip("rdflib")
    (tmp_path / name).write_text(content, encoding="utf-8")
    found = read_vocabulary(tmp_path / name, "fi")
    assert [label.name for label in found.labels] == ["leipä", "music"]
    assert found.named([["http://x/1", "64.2"], ["music", "unknown"]]) == [["leipä"], ["music", "unknown"]]
    again = LabelVocabulary.from_lines(found.to_lines())
    assert again.labels == found.labels


def test_unknown_and_unused_labels_are_said():
    vocabulary = LabelVocabulary([Label("a", "u:a"), Label("b", "u:b")])
    said = vocabulary.compared([["a"], ["x", "y", "z", "w"]])
    assert (
        said
        == "a vocabulary of 2 labels; 4 labels of documents are not in it (w, x, y and 1 more); 1 of its labels is not used"
    )


def test_numbers_are_lines_of_a_list(tmp_path):
    def numbered(path, lists):
        return read_vocabulary(path).for_numbers(lists).named(lists)

    (tmp_path / "labels.txt").write_text("zero\none\ntwo\n")
    assert numbered(tmp_path / "labels.txt", [["2", "0"], ["9"]]) == [["two", "zero"], ["9"]]
    (tmp_path / "labels.txt").write_text("zero\nzero\n\nthree\n\n")
    found = read_vocabulary(tmp_path / "labels.txt").for_numbers([["0"]])
    assert found.named([["0", "1"], ["2", "3"], ["4"]]) == [["zero", "zero <1>"], ["label 2", "three"], ["4"]]
    (tmp_path / "labels.tsv").write_text("<u:1>\tone\n\n<u:2>\ttwo\n")
    assert [label.name for label in read_vocabulary(tmp_path / "labels.tsv").labels] == ["one", "two"]  # URIs count
    (tmp_path / "labels.jsonl").write_text('{"uid": "a", "title": "x"}\n{"uid": "b", "title": "x"}\n{"title": "y"}\n')
    assert numbered(tmp_path / "labels.jsonl", [["0", "1", "2"]]) == [["x", "x <1>", "y"]]


def test_one_name_for_two_uris_becomes_two_labels():
    vocabulary = LabelVocabulary([Label("bank", "u:1"), Label("bank", "u:2"), Label("bank", "u:1")])
    assert vocabulary.named([["u:1", "u:2"]]) == [["bank", "bank <u:2>"]]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("v.tsv", "<http://x/1>\n", "v.tsv:1: '<http://x/1>'; expected <uri>, a tab, and a name"),
        ("v.csv", "a,b\n1,2\n", "columns a, b; expected columns uri and label"),
        ("v.csv", '"a\nb",c\n1,2\n', "columns a b, c; expected columns uri and label"),
        ("v.ttl", "this is <not turtle", "not SKOS"),
        ("v.jsonl", "{}\n", "v.jsonl:1: not a label"),
        ("v.tsv", "", "the vocabulary has no labels"),
        ("w.tsv", None, "there is no such vocabulary"),
    ],
)
def test_bad_vocabularies_are_one_clear_error(tmp_path, name, content, message):
    if name.endswith("ttl"):
        pytest.importorskip("rdflib")
    if content is not None:
        (tmp_path / name).write_text(content)
    with pytest.raises(DataError, match=message):
        read_vocabulary(tmp_path / name)


def test_names_beside_uris_complete_a_vocabulary():
    known = LabelVocabulary([Label("food"), Label("old name", "http://x/2")])
    found = known.with_names({"http://x/1": "food", "http://x/2": "new name", "http://x/3": "art", "http://x/4": "art"})
    assert [(label.name, label.uri) for label in found.labels] == [
        ("food", "http://x/1"),
        ("old name", "http://x/2"),
        ("art", "http://x/3"),
        ("art <http://x/4>", "http://x/4"),
    ]
    assert found.named([["http://x/1", "food", "http://x/4"]]) == [["food", "art <http://x/4>"]]
    assert known.of(["food", "http://x/9"]).labels[1].uri == "http://x/9"


def test_the_encoding_of_a_vocabulary_is_not_that_of_documents(tmp_path):
    path = tmp_path / "v.tsv"
    path.write_bytes("<http://x/1>\tMusik\n<http://x/2>\tHäfen\n".encode("latin-1"))
    with pytest.raises(DataError, match=r"v.tsv:2: the text is not UTF-8; expected UTF-8. Save it as UTF-8.$"):
        read_vocabulary(path)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("v.jsonl", '{"name": "a", "uri": "", "notation": ""}\n'),
        ("v.jsonl", '{"name": "a", "uri": "b"}\n{"name": "a", "uri": "c\\u00a0"}\n'),
        ("v.ttl", SKOS.replace('"64.2"', '""')),
    ],
)
def test_what_is_empty_is_not_there(tmp_path, name, content):
    if name.endswith("ttl"):
        pytest.importorskip("rdflib")
    (tmp_path / name).write_text(content)
    found = read_vocabulary(tmp_path / name)
    assert found.labels[0].notation is None
    assert LabelVocabulary.from_lines(found.to_lines()).labels == found.labels


def test_a_name_is_the_same_however_its_accents_are_encoded():
    composed, decomposed = "M\u00e9decine", "Me\u0301decine"
    for vocabulary in (
        LabelVocabulary(),
        LabelVocabulary([Label(composed)]),
        LabelVocabulary([Label("medicine", "http://x/1", {"fr": decomposed})]),
        LabelVocabulary([Label(decomposed)]),  # of a model that was trained on these alone
    ):
        (first,), (second,) = vocabulary.named([[composed], [decomposed, composed]])
        assert first == second
    assert LabelVocabulary().named([[decomposed]]) == [[composed]]
