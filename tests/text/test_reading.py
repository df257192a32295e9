"""Documents from every format that people have, and one clear error for what cannot be read."""

# ruff: noqa: E501  # contents of files read best in one line

import bz2
import csv
import gzip
import io
import json
import lzma
import os
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from labelfield.errors import DataError
from labelfield.text import read_documents
from labelfield.text.documents import Wanted, guess_separator
from labelfield.text.reading import is_documents, open_documents
from labelfield.text.sources import read_json

TEXTS = ["first text about bread", "second text, about music"]
LABELS = [["baking", "food"], ["music"]]
ROWS = list(zip(TEXTS, LABELS, strict=True))


def jsonl(records):
    return "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)


# name of a file, its contents, and the labels if they are not those above
FORMATS = {
    "csv": ("a.csv", "text,labels\nfirst text about bread,baking|food\n\"second text, about music\",music\n", None),
    "csv semicolons": ("a.csv", "Text;Tags\nfirst text about bread;baking|food\nsecond text, about music;music\n", None),
    "csv windows": ("a.csv", '\ufefftext,label\r\n"first text about bread","[""baking"", ""food""]"\r\n"second text, about music",music\r\n', None),
    "csv of pandas": ("a.csv", "text,tags\nfirst text about bread,\"['baking', 'food']\"\n\"second text, about music\",['music']\n", None),
    "csv without header": ("a.csv", "first text about bread,baking|food\n\"second text, about music\",music\n", None),
    "csv without header, labels that recur": ("a.csv", "first text about bread,baking|food\n\"second text, about music\",music\nthe third one,baking|food\n", None),
    "csv with long names": (
        "a.csv",
        "Der Text des Dokuments,Seine Themen\n" + "".join(f'"{text}{" " * 70}","{"|".join(own)}"\n' for text, own in ROWS),
        None,
    ),
    "tsv": ("a.tsv", "title\ttopics\nfirst text about bread\tbaking;food\nsecond text, about music\tmusic\n", None),
    "json lines": ("a.jsonl", jsonl({"text": t, "labels": own} for t, own in ROWS), None),
    "json": ("a.json", json.dumps([{"text": t, "label": own} for t, own in ROWS]), None),
    "json in an object": ("a.json", json.dumps({"version": 1, "data": [{"text": t, "tags": o} for t, o in ROWS]}), None),
    "json of pandas": ("a.json", json.dumps({"text": dict(enumerate(TEXTS)), "labels": dict(enumerate(LABELS))}), None),
    "json lines called json": ("a.json", jsonl({"text": t, "labels": own} for t, own in ROWS), None),
    "fastText": ("a.txt", "__label__baking __label__food first text about bread\n__label__music second text, about music\n", None),
    "fastText with labels anywhere": ("a.txt", "__label__baking\tfirst text about __label__food bread\nsecond text, about music __label__music\n", None),
    "annif tsv": (
        "a.tsv",
        "first text about bread\t<http://x/1> <http://x/2>\nsecond text, about music\t<http://x/3>\n",
        [["http://x/1", "http://x/2"], ["http://x/3"]],
    ),
    "annif csv": (
        "a.csv",
        "document_id,text,subject_uris\nd1,first text about bread,<http://x/1> <http://x/2>\nd2,\"second text, about music\",<http://x/3>\n",
        [["http://x/1", "http://x/2"], ["http://x/3"]],
    ),
    "annif json lines": (
        "a.jsonl",
        jsonl({"document_id": str(i), "text": t, "metadata": {}, "subjects": [{"label": one} for one in own]} for i, (t, own) in enumerate(ROWS)),
        None,
    ),
    "pecos": ("a.txt", "0,3\tfirst text about bread\n7\tsecond text, about music\n", [["0", "3"], ["7"]]),
    "xmc raw": (
        "a.json",
        jsonl({"uid": str(i), "title": "", "content": t, "target_ind": [i, 5], "target_rel": [1.0, 1.0]} for i, t in enumerate(TEXTS)),
        [["0", "5"], ["1", "5"]],
    ),
    "spaCy": ("a.jsonl", jsonl([{"text": TEXTS[0], "cats": {"baking": 1, "food": 1.0, "music": 0}}, {"text": TEXTS[1], "cats": {"baking": False, "music": True}}]), None),
    "doccano": ("a.jsonl", jsonl({"id": i, "text": t, "label": own} for i, (t, own) in enumerate(ROWS)), None),
    "doccano csv": ("a.csv", "id,text,label\n1,first text about bread,baking#food\n2,\"second text, about music\",music\n3,third,food\n4,fourth,baking\n", None),
}  # fmt: skip


@pytest.mark.parametrize("name", ["a.csv", "a.txt", "a.xlsx", "a"])
def test_what_is_no_text_is_named_by_the_reader_of_documents(name, tmp_path):
    path = tmp_path / name
    path.write_bytes(b"%PDF-1.7\n1 0 obj\n")
    assert is_documents(path)
    path.write_bytes(b"0 1:0.5\n")
    assert not is_documents(path)


@pytest.mark.parametrize(
    ("content", "encoding", "message"),
    [
        ("text,labels\na,b\n", "utf-16", r"a.csv:1: the text is not utf-16\. Pass the right --encoding"),
        ("text,labels\na,b\nä,b\n", "ascii", r"a.csv:3: the text is not ascii\. Pass the right --encoding"),
        ("text,labels\na,b\n", "rot13", "the encoding 'rot13' is not known"),
        ("text,labels\na,b\n", "undefined", "the encoding 'undefined' is not known"),
    ],
)
def test_texts_that_are_not_in_the_encoding_that_was_asked_for(content, encoding, message, tmp_path):
    (tmp_path / "a.csv").write_text(content, encoding="utf-8")
    with pytest.raises(DataError, match=message):
        read_documents(tmp_path / "a.csv", encoding=encoding)


def test_a_column_is_not_text_and_labels(tmp_path):
    (tmp_path / "a.csv").write_text("text,labels\na,b\n")
    with pytest.raises(DataError, match="column 'text' is both text and labels"):
        read_documents(tmp_path / "a.csv", text="text", labels="text")


@pytest.mark.parametrize(
    ("content", "labels"),
    [
        ("first text\t\nsecond text\t<http://x/1> <http://x/2>\n", [[], ["http://x/1", "http://x/2"]]),
        ("first text\nsecond text\t<http://x/1>\n", [[], ["http://x/1"]]),
        ("\tfirst text\n0,3\tsecond\x0btext\n", [[], ["0", "3"]]),
    ],
    ids=["Annif", "Annif without a tab", "PECOS"],
)
def test_a_first_document_without_labels_does_not_hide_the_format(content, labels, tmp_path):
    for name in ("a.tsv", "a.txt"):
        (tmp_path / name).write_text(content)
        found = read_documents(tmp_path / name)
        assert (found.labels, len(found), found.texts[0]) == (labels, 2, ("first text",))


def test_a_long_line_that_is_cut_off_does_not_hide_the_format(tmp_path):
    line = "words " * 100_000 + "\t<http://x/1> <http://x/2>\n"
    (tmp_path / "a.txt").write_text(3 * line)
    assert read_documents(tmp_path / "a.txt").labels == 3 * [["http://x/1", "http://x/2"]]


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzip"])
@pytest.mark.parametrize("name", FORMATS)
def test_every_format_gives_the_same_documents(tmp_path, name, packed):
    file, content, labels = FORMATS[name]
    path = tmp_path / (file + ".gz" * packed)
    path.write_bytes(gzip.compress(content.encode()) if packed else content.encode())
    assert is_documents(path) or name.startswith("csv without header")
    found = read_documents(path, labelled=True)
    assert ["".join(text).strip() for text in found.texts[:2]] == TEXTS
    assert found.labels[:2] == (labels or LABELS)
    assert "text from" in found.guessed


@pytest.mark.parametrize("name", ["csv", "tsv", "json lines", "json", "fastText", "annif tsv", "pecos"])
def test_stdin_is_read_by_its_contents(monkeypatch, name):
    _, content, labels = FORMATS[name]
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(gzip.compress(content.encode()))))
    found = read_documents("-")
    assert ["".join(text) for text in found.texts] == TEXTS
    assert found.labels == (labels or LABELS)


@pytest.mark.parametrize("kind", ["csv", "json lines"])
def test_pipes_of_a_shell_are_read_as_stdin_is(kind):
    _, content, _ = FORMATS[kind]

    @contextmanager
    def pipe_of(text):
        reading, writing = os.pipe()
        os.write(writing, text)
        os.close(writing)
        yield Path(f"/dev/fd/{reading}")
        os.close(reading)

    for text in (content.encode(), gzip.compress(content.encode())):
        with pipe_of(text) as pipe:
            assert is_documents(pipe)
            assert read_documents(pipe).labels == LABELS
    with pipe_of(b"") as pipe, pytest.raises(DataError, match=f"{pipe}: the file has no documents"):
        read_documents(pipe)


def test_columns_of_the_training_file_show_what_a_header_is(tmp_path):
    path = tmp_path / "without a suffix"
    path.write_text("package,abridged,debtags\na,some words here,x|y\nb,some others here,x\n")
    with open_documents(path, usual=Wanted(["abridged"], "debtags", "|", "package")) as file:
        found = file.gathered()
    assert (found.texts, found.ids) == ([("some words here",), ("some others here",)], ["a", "b"])
    assert found.labels == [["x", "y"], ["x"]]


@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a"])
def test_numbers_of_columns_in_training_are_no_header(tmp_path, name):
    path = tmp_path / name
    content = "first text about bread,0|3,1\nsecond text about music,1,0\n"
    path.write_text(content.replace(",", "\t") if name != "a.csv" else content)
    with open_documents(path, usual=Wanted(["0"], "1", "|", "2")) as file:
        found = file.gathered()
    assert found.texts == [("first text about bread",), ("second text about music",)]
    assert (found.labels, found.ids) == ([["0", "3"], ["1"]], ["1", "0"])


def test_a_column_of_the_model_alone_is_a_header(monkeypatch):
    content = b'text\nviolin, piano; drum\n"quoted, here"\n'
    for usual, texts in (
        (Wanted(["text"]), [("violin, piano; drum",), ("quoted, here",)]),
        (Wanted(["title", "text"]), [("", "violin, piano; drum"), ("", "quoted, here")]),
        (Wanted(["abstract"]), [("text",), ("violin, piano; drum",), ('"quoted, here"',)]),
    ):
        monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(content)))
        with open_documents("-", usual=usual) as file:
            assert file.gathered().texts == texts


@pytest.mark.parametrize(
    ("header", "fields", "texts", "said"),
    [
        ("title,body", ["title", "text"], ("a", "b"), "text from title + body"),
        ("body,title", ["title", "text"], ("b", "a"), "text from title + body"),
        ("title,body", ["text", "title"], ("b", "a"), "text from body + title"),
        ("title,body", ["title", "abstract", "text"], ("a", "", "b"), "text from title + body (abstract left empty)"),
        ("title,price", ["title", "text"], ("a", ""), "text from title (text left empty)"),
        ("text,body", ["title", "text"], ("", "a"), "text from text (title left empty)"),
        ("title,question", ["title", "text"], ("a", ""), "text from title (text left empty)"),
    ],
)
def test_texts_of_another_name_are_a_field_that_the_file_lacks(tmp_path, header, fields, texts, said):
    path = tmp_path / "a.csv"
    path.write_text(f"{header}\na,b\n")
    with open_documents(path, usual=Wanted(fields, "question"), labelled=None) as file:
        assert file.gathered().texts == [texts]
    assert said in file.columns.said(file.kind)


def test_errors_of_other_files_keep_their_place_while_stdin_is_read(monkeypatch):
    stdin = SimpleNamespace(buffer=io.BytesIO(b"text,labels\na,b\n"))
    monkeypatch.setattr("sys.stdin", stdin)
    with pytest.raises(DataError, match=r"^labels\.txt:7: bad"), open_documents("-"):
        raise DataError("bad", path="labels.txt", line=7)
    stdin.buffer = io.BytesIO(b"text,labels\na,b\na,b,c\n")
    with pytest.raises(DataError, match=r"^stdin:3: 3 cells"):
        read_documents("-")


def test_an_empty_separator_keeps_cells_whole(tmp_path):
    (tmp_path / "a.csv").write_text("text,labels\nsome words,a|b\nothers here,a|c\n")
    found = read_documents(tmp_path / "a.csv", label_sep="")
    assert found.labels == [["a|b"], ["a|c"]]
    assert "split" not in found.guessed


def test_plain_lines_are_documents(monkeypatch):
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(b"one text here\n\nand another, here\n")))
    assert read_documents("-").texts == [("one text here",), ("and another, here",)]


@pytest.mark.parametrize("packed", [gzip, bz2, lzma], ids=lambda module: module.__name__)
def test_compressed_parquet(packed, tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    parquet.write_table(pyarrow.table({"text": ["a violin", "a harbour"], "tags": [["x"], []]}), tmp_path / "a.parquet")
    path = tmp_path / "a.parquet.packed"
    path.write_bytes(packed.compress((tmp_path / "a.parquet").read_bytes()))
    found = read_documents(path)
    assert (found.texts, found.labels) == ([("a violin",), ("a harbour",)], [["x"], []])
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(DataError, match=r"truncated or damaged|not a whole Parquet file"):
        read_documents(path)


def test_parquet_with_lists_and_nothing(tmp_path):
    pa = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    table = pa.table({"title": ["a", None], "text": TEXTS, "labels": [LABELS[0], None], "n": [1, 2]})
    parquet.write_table(table, tmp_path / "a.parquet")
    found = read_documents(tmp_path / "a.parquet")
    assert found.texts == [("a", TEXTS[0]), ("", TEXTS[1])]
    assert found.labels == [LABELS[0], []]
    (tmp_path / "a").write_bytes((tmp_path / "a.parquet").read_bytes())
    assert is_documents(tmp_path / "a")
    parquet.write_table(pa.table({"text": TEXTS, "labels": [[["a"]], [["b"]]]}), tmp_path / "nested.parquet")
    with pytest.raises(DataError, match="row 1, column 'labels' has a list in the list; expected names of labels"):
        read_documents(tmp_path / "nested.parquet")
    (tmp_path / "cut.parquet").write_bytes((tmp_path / "a.parquet").read_bytes()[:200])
    with pytest.raises(DataError, match="not a whole Parquet file"):
        read_documents(tmp_path / "cut.parquet")


@pytest.mark.parametrize("chunk", [7, 8, 20, 1 << 20])
def test_arrays_of_json_are_read_some_entries_at_a_time(tmp_path, monkeypatch, chunk):
    monkeypatch.setattr("labelfield.text.sources._CHUNK", chunk)
    entries = [
        {"text": 'a "b" \\ ü\n漢', "labels": ["x", "ö"], "n": [-2.5e3, True, None, {}]},
        {"text": "[{,", "labels": []},
    ]
    path = tmp_path / "a.json"
    for indent in (None, 0, 2):
        path.write_text(json.dumps(entries, indent=indent, ensure_ascii=indent is None) + " \n", encoding="utf-8")
        assert [record for _, record in read_json(path, "utf-8").records] == entries
    for content, line, reason in (
        ('[{"a":1} {"b":2}]', 1, "Expecting ','"),
        ('[{"a":1},\n]', 2, "Expecting value"),
        ('[{"a":1},\n\n{"b":', 3, "Expecting value"),
        ('[{"a":1}\n]\nx', 3, "Extra data"),
        ('[{"a":\n"b', 2, "Unterminated string"),
    ):
        path.write_text(content)
        with pytest.raises(DataError, match=rf"a.json:{line}: not JSON \({reason}"):
            list(read_json(path, "utf-8").records)


def test_folders_of_annif_and_folders_of_splits(tmp_path):
    annif = tmp_path / "annif"
    annif.mkdir()
    for name, text in zip("ab", TEXTS, strict=True):
        (annif / f"{name}.txt").write_text(text)
    (annif / "a.tsv").write_text("<http://x/1>\tbaking\n<http://x/2>\tfood\n")
    (annif / "b.key").write_text("music\n")
    found = read_documents(annif)
    assert (found.ids, found.labels) == (["a", "b"], [["http://x/1", "http://x/2"], ["music"]])
    assert found.names == {"http://x/1": "baking", "http://x/2": "food"}
    (annif / "a.tsv").write_text("no uri\n")
    with pytest.raises(DataError, match=r"a.tsv:1: 'no uri'; expected <uri>, a tab, and a label"):
        read_documents(annif)
    splits = tmp_path / "splits"
    splits.mkdir()
    for part, text in zip(("train", "test"), TEXTS, strict=True):
        (splits / f"{part}.jsonl").write_text(jsonl([{"text": text, "labels": [part]}]))
    assert is_documents(splits)
    assert read_documents(splits).labels == [["train"]]
    assert read_documents(splits, part="test").labels == [["test"]]


def test_columns_are_chosen_by_name_or_number(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("doc,headline,abstract,mesh\n7,A title,Some words here,x / y\n8,Another,More words here,y\n")
    found = read_documents(path, text="headline,abstract", labels="mesh", label_sep="/", id="doc")
    assert found.texts[0] == ("A title", "Some words here")
    assert (found.labels, found.ids) == ([["x", "y"], ["y"]], ["7", "8"])
    assert found.guessed == "CSV: text from headline + abstract, labels from mesh split at '/', ids from doc"
    assert read_documents(path, text="1", labels="3").texts == [("A title",), ("Another",)]
    with pytest.raises(DataError, match="there is no column 'abstrakt'; expected one of doc, headline"):
        read_documents(path, text="abstrakt")


@pytest.mark.parametrize(
    ("cells", "labels"),
    [
        (["Smith, John", "Doe, Jane", "Smith, John"], [["Smith, John"], ["Doe, Jane"], ["Smith, John"]]),
        (["a,b", "b,c", "a,c", "a,b,c"], [["a", "b"], ["b", "c"], ["a", "c"], ["a", "b", "c"]]),
        (['say "x"|tab\there', "y", "y"], [['say "x"', "tab here"], ["y"], ["y"]]),
        (["a|a| a ", "", "|"], [["a"], [], []]),
        (["p; q", *["x", "z"] * 30], [["p; q"], *[["x"], ["z"]] * 30]),
        (
            ["a,b; c", *["a,b", "b,c", "a,c", "c,b"] * 9],
            [["a", "b; c"], *[["a", "b"], ["b", "c"], ["a", "c"], ["c", "b"]] * 9],
        ),
        (["x|y", *["x", "y"] * 30], [["x", "y"], *[["x"], ["y"]] * 30]),
    ],
)
def test_labels_with_commas_tabs_and_quotes(tmp_path, cells, labels):
    import csv

    path = tmp_path / "a.csv"
    with open(path, "w", newline="") as file:
        csv.writer(file).writerows([["text", "labels"], *(["some words here", cell] for cell in cells)])
    assert read_documents(path).labels == labels


def test_one_object_of_json_is_one_document_unless_its_keys_are_numbers_of_rows(tmp_path):
    path = tmp_path / "a.json"
    path.write_text(json.dumps({"text": {"3": "a b", "7": "c d"}, "labels": {"3": ["x"], "7": ["y"]}}))
    assert read_documents(path).texts == [("a b",), ("c d",)]
    path.write_text(json.dumps({"title": {"en": "bread", "fi": "leipä"}, "labels": {"en": "food", "fi": "ruoka"}}))
    with pytest.raises(DataError, match="column 'title' has an object; expected text"):
        read_documents(path, text="title")


def test_values_of_mixed_types_are_read_as_people_mean_them(tmp_path):
    path = tmp_path / "a.jsonl"
    records = [
        {"id": 1, "text": "x y", "labels": "one"},
        {"id": "1", "text": 5, "labels": ["one", 2, None, 3.0]},
        {"text": None, "labels": None},
        {"text": ["two", "parts"], "labels": {"a": 0.9, "b": 0.1}},
        {"id": 2.0, "text": 7.0, "labels": float("nan")},
        {"id": float("nan"), "text": float("nan"), "labels": 1.0},
    ]
    path.write_text(jsonl(records))
    found = read_documents(path)
    assert found.texts == [("x y",), ("5",), ("",), ("two\nparts",), ("7",), ("",)]
    assert found.labels == [["one"], ["one", "2", "3"], [], ["a"], [], ["1"]]
    assert found.ids == ["1", "1", "3", "4", "2", "6"]
    assert found.has_id == [True, True, False, False, True, False]


BAD = {
    "latin-1": ("a.csv", "text,labels\nfine words,a\nkäse und brot,b\n".encode("latin-1"), r"a.csv:3: the text is not UTF-8.*--encoding latin-1"),
    "utf-16": ("a.csv", "text,labels\nfine words,a\n".encode("utf-16"), "the text is not UTF-8.*--encoding utf-16"),
    "utf-16 without a mark": ("a.csv", "text,labels\nfine words,a\n".encode("utf-16-le"), "the text is not UTF-8.*--encoding utf-16-le"),
    "utf-16 without a mark, large bytes first": ("a.csv", "text,labels\nfine words,a\n".encode("utf-16-be"), "the text is not UTF-8.*--encoding utf-16-be"),
    "lines": ("a.txt", b"some words here\nand others\n", "documents without labels; expected labels"),
    "truncated gzip": ("a.jsonl.gz", gzip.compress(jsonl({"text": f"{i} " * 99, "labels": []} for i in range(9999)).encode())[:-99], "truncated or damaged"),
    "cells": ("a.csv", b"text,labels\na b,c\na,b,c\n", r"a.csv:3: 3 cells; expected 2 as the first line has"),
    "a stray quote": ("a.tsv", b'text\tlabels\na\tb\n"Some words\tb\n"More" words\tb\n', r"a.tsv:3: a quote .* lines 3 to 4 are one row"),
    "an open quote": ("a.csv", b'text,labels\na,b\n"some words,b\nmore,b\n', r"a.csv:3: a quote .* lines 3 to 4 are one row"),
    "not json": ("a.jsonl", b'{"text": "a", "labels": []}\n{"text": \n', r"a.jsonl:2: not JSON"),
    "json cut in a text": ("a.jsonl", b'{"text": "a\n', r"a.jsonl:1: not JSON \(Unterminated string starting at column 10\)"),
    "json of numbers": ("a.json", b"[1, 2]", "entry 1 is '1'; expected an object"),
    "json cut": ("a.json", b'[{"text": "a"', "not JSON"),
    "an object cut": ("a.json", b'{"text": "a",\n "labels": ["b"', "a.json:2: not JSON"),
    "an array in a line": ("a.jsonl", b'{"text": "a"}\n[1]\n', r"a.jsonl:2: '\[1\]'; expected an object"),
    "no labels": ("a.csv", b"text,author,year\nsome words,me,1999\n", "no column of labels is known by its name.*--labels COLUMN"),
    "empty labels": ("a.csv", b"text,labels\nsome words,\nand others,\n", r"a.csv: column 'labels' has no labels in any document"),
    "no text": ("a.csv", b"label,x\n1,2\n", "none of the columns label, x is text"),
    "names of several lines": ("a.csv", b"\"la\n bel\",x\n1,2\n", "none of the columns la bel, x is text"),
    "twice": ("a.csv", b"text,text,labels\na,b,c\n", "two columns are called 'text'"),
    "empty": ("a.csv", b"", "the file is empty"),
    "an empty object": ("a.json", b"{}", "there are no columns; expected a column of text"),
    "header alone": ("a.csv", b"text,labels\n", "the file has no documents"),
    "an object as text": ("a.jsonl", b'{"text": {"a": 1}, "labels": []}\n', r"a.jsonl:1: column 'text' has an object; expected text"),
    "entities": ("a.jsonl", b'{"text": "a", "label": [[0, 3, "PER"]]}\n', r"column 'label' has a list in the list"),
    "words for pecos": ("a.txt", b"0,3\ttext\nx,y\ttext\n", r"a.txt:2: a line 'x,y\\ttext'; expected label numbers"),
    "words for annif": ("a.tsv", b"text\t<http://x/1>\ntext\tword\n", r"a.tsv:2: subjects 'word'"),
    "windows": ("a.csv", "text,labels\nfine words,a\n“käse” – brot,b\n".encode("cp1252"), r"a.csv:3: the text is not UTF-8.*--encoding cp1252"),
    "windows, letters first": ("a.csv", "text,labels\nkäse,b\n“brot” – 5 €,b\n".encode("cp1252"), r"a.csv:2: the text is not UTF-8.*--encoding cp1252"),
    "latin-1 among letters of UTF-8": ("a.csv", "text,labels\nfine – ”words”,a\n– k".encode() + b"\xe4se,b\n", r"a.csv:3: the text is not UTF-8.*--encoding latin-1"),
    "a spreadsheet": ("a.xlsx", b"PK\x03\x04" + bytes(99), "the file is a ZIP archive or a spreadsheet; .*save its table as CSV"),
    "a PDF": ("a.pdf", b"%PDF-1.7\n1 0 obj\n", "the file is a PDF"),
    "zstd": ("a.csv.zst", b"\x28\xb5\x2f\xfd" + bytes(99), "the file is compressed by zstd; .*Unpack it"),
    "missing": ("none.csv", None, "there is no such file or folder"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_what_cannot_be_read_is_one_clear_error(tmp_path, name):
    file, content, message = BAD[name]
    if content is not None:
        (tmp_path / file).write_bytes(content)
    with pytest.raises(DataError, match=message):
        read_documents(tmp_path / file, labelled=True)


def test_other_encodings_are_read_if_they_are_named(tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes("text,labels\nkäse und brot,b\n".encode("latin-1"))
    assert read_documents(path, encoding="latin-1").texts == [("käse und brot",)]
    lines = tmp_path / "a.jsonl"
    lines.write_bytes('{"text": "käse und brot", "labels": ["b"]}\n'.encode("utf-16"))
    assert read_documents(lines, encoding="utf-16").texts == [("käse und brot",)]
    for order in ("utf-16-le", "utf-16-be"):
        lines.write_bytes('{"text": "käse und brot", "labels": ["b"]}\n'.encode(order))
        assert read_documents(lines, encoding=order).labels == [["b"]]
    with pytest.raises(DataError, match="the encoding 'klingon' is not known"):
        read_documents(path, encoding="klingon")


def test_odd_but_right_files_are_read(tmp_path):
    wide = tmp_path / "wide.csv"
    names = [f"c{i}" for i in range(9_998)]
    wide.write_text(
        ",".join(["text", "labels", *names]) + "\n" + ",".join(["some words", "a|b", *("1" for _ in names)]) + "\n"
    )
    assert read_documents(wide).labels == [["a", "b"]]
    long = tmp_path / "long.csv"
    long.write_text(f'text,labels\n"{"word " * 2_000_000}",a\n')
    assert len(read_documents(long).texts[0][0]) == 10_000_000
    nul = tmp_path / "nul.jsonl"
    nul.write_bytes(b'{"text": "a\\u0000b", "labels": ["x\\u0000y"]}\n')
    assert read_documents(nul).labels == [["x y"]]
    half = tmp_path / "half.jsonl"
    half.write_text('{"id": "\\ud800", "text": "a\\udfff", "labels": ["x\\ud800"]}\n')
    found = read_documents(half)
    assert (found.ids, found.texts, found.labels) == (["\ufffd"], [("a\ufffd",)], [["x\ufffd"]])
    late = tmp_path / "late.csv"
    late.write_text("\n\ntext,labels\nsome words,a\n")
    assert read_documents(late).labels == [["a"]]
    lines = tmp_path / "lines.csv"
    lines.write_text('text,labels\n"two\nlines",a\n\n"x y",b,\n')
    with pytest.raises(DataError, match=r"lines.csv:5: 3 cells"):
        read_documents(lines)


@pytest.mark.parametrize("name", ["a.dat", "a.txt", "a", "a.export", "a.data.gz"])
def test_a_table_is_known_by_its_header_whatever_it_is_called(tmp_path, name):
    content = b"id;text;labels\n1;first text about bread;baking|food\n2;second text, about music;music\n"
    path = tmp_path / name
    path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    assert is_documents(path)
    found = read_documents(path)
    assert (found.ids, ["".join(text) for text in found.texts], found.labels) == (["1", "2"], TEXTS, LABELS)


@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_a_line_for_spreadsheets_is_no_header(tmp_path, separator):
    rows = [["text", "labels"], ["some words", "a"], ["others here", "b"]]
    path = tmp_path / "a.csv"
    path.write_text("".join(f"{separator.join(row)}\r\n" for row in [[f"sep={separator}"], *rows]), newline="")
    assert is_documents(path)
    found = read_documents(path)
    assert (found.texts, found.labels, found.ids) == ([("some words",), ("others here",)], [["a"], ["b"]], ["3", "4"])


def test_a_label_that_is_a_usual_name_makes_no_header(tmp_path):
    lines = [
        "A long sentence about something,review",
        "Another long sentence follows,article",
        "And a third one,review",
    ]
    (tmp_path / "a.csv").write_text("\n".join(lines))
    found = read_documents(tmp_path / "a.csv", labels="1")
    assert found.labels == [["review"], ["article"], ["review"]]
    (tmp_path / "a.csv").write_text("\n".join(["text,label", "some words,label", "others here,text"]))
    assert read_documents(tmp_path / "a.csv").labels == [["label"], ["text"]]


def test_rows_of_numbers_are_no_documents(tmp_path):
    for name, content in (
        ("a.csv", "x,y,label\n1,2,a\n3,4,b\n"),
        ("a.txt", "2 3 2\n0 1:0.5\n1 0:1\n"),
        ("a.svm", "1 1:2\n"),
        ("b.txt", "0,3 1:2 4:1\n"),
        ("a.dat", "0,3 1:2 4:1\n"),
        ("a.arff", "@relation some words here\n@attribute text numeric\n"),
    ):
        (tmp_path / name).write_text(content)
        assert not is_documents(tmp_path / name), name


def test_a_separator_is_remembered_only_where_it_fits():
    for cells, remembered, expected in (
        (["a;b", "c"], "|", ";"),
        (["a|b", "c;d", "e;f"], "|", "|"),
        (["a", "c"], "|", "|"),
        (["Smith, John|Doe, Jane", "Doe, Jane"], ",", "|"),
        (["a,b", "a"], ",", ","),
        (["music|all", "sea|all"] * 20, None, "|"),  # one label in every document
        (["all;sea"] * 20, None, ";"),
        (["music", "sea|all"] * 20, None, None),
        (["C#", "F#", "C#"], None, None),
        (["C#", "F#", "C#"], "#", "#"),
    ):
        assert guess_separator(cells, remembered) == expected, cells


@pytest.mark.parametrize("separator", [", ", "#"])
def test_many_labels_are_split_though_there_are_fewer_different_cells(separator):
    def some(number: int) -> list[str]:
        return [f"label {(7 * number + 31 * step * step) % 131}" for step in range(2 + number % 4)]

    cells = [separator.join(some(number)) for number in range(100)]
    assert len({label for number in range(100) for label in some(number)}) > len(cells)
    assert guess_separator(cells) == separator.strip()
    places = [f"town {i}{separator}region {i % 50}{separator}country {i % 7}" for i in range(1000)]
    assert guess_separator(places) is None
    assert guess_separator([f"food{separator}drink", "war", f"arts{separator}crafts{separator}leisure"] * 20) is None


def test_only_addresses_lose_their_angle_brackets(tmp_path):
    labels = ["<http://x/1>", "<urn:x:1>", "<script>alert(1)</script>", "<unk>", "<a: b>"]
    (tmp_path / "a.jsonl").write_text(json.dumps({"text": "x", "labels": labels}) + "\n")
    (found,) = read_documents(tmp_path / "a.jsonl").labels
    assert found == ["http://x/1", "urn:x:1", *labels[2:]]


@pytest.mark.parametrize(
    ("cell", "labels"),
    [
        ("['a', \"it's\"]", ["a", "it's"]),
        ("['a' 'b']", ["a", "b"]),
        ("[a, b c]", ["a", "b c"]),
        (r"['it\'s']", ["it's"]),
        ("[]", []),
        ("['a'" + "\\'" * 200_000 + "]", None),
        ("[" * 200_000 + "]", None),
    ],
)
def test_lists_in_a_cell_are_read_at_once(tmp_path, cell, labels):
    with open(tmp_path / "a.csv", "w", newline="") as file:
        csv.writer(file).writerows([["text", "tags"], ["some words", cell], ["more words", "['z']"]])
    found = read_documents(tmp_path / "a.csv").labels
    assert found[1] == ["z"]
    assert labels is None or found[0] == labels
