"""Messages about documents, vocabularies and encoders that no other test asks for."""

import csv
import gzip
import io
import json
import sys
from types import SimpleNamespace
from unittest.mock import patch

import numpy as np
import pytest

import labelfield
from labelfield import DataError
from labelfield.errors import LabelfieldError
from labelfield.synth import make_texts
from labelfield.text.encoders import restore_encoder
from labelfield.text.foreign import ForeignEncoder, restore_foreign
from labelfield.text.kept import read_kept
from labelfield.text.parts import TextParts
from labelfield.text.vocabulary import LabelVocabulary
from labelfield.text.words import WordEncoder


def lengths(texts):
    return [[len(text), 1.0] for text in texts]


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.jsonl", '{"text": "a", "labels": {"x": "yes"}}\n', r"a.jsonl:1: .*an object.*expected \{label: 0 or 1\}"),
        ("a.csv", ",".join("abcdefgh") * 20_000 + "\n1\n", "columns; expected at most"),
    ],
    ids=["object", "columns"],
)
def test_documents(tmp_path, name, content, words):
    (tmp_path / name).write_text(content)
    with pytest.raises(DataError, match=words):
        labelfield.read_documents(tmp_path / name)


def test_a_cell_that_the_csv_module_refuses(tmp_path, monkeypatch):
    (tmp_path / "a.csv").write_text("text,labels\na,b\n" + "x" * 5000 + ",a\n")
    refused = csv.field_size_limit(1000)
    monkeypatch.setattr(csv, "field_size_limit", lambda *size: refused)
    try:
        with pytest.raises(DataError, match=r"a.csv:3: cannot be read \(field larger"):
            labelfield.read_documents(tmp_path / "a.csv")
    finally:
        monkeypatch.undo()
        csv.field_size_limit(refused)


def test_documents_of_stdin_are_called_stdin(monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"[1")))
    with pytest.raises(DataError, match=r"^stdin"):
        labelfield.read_documents("-")


@pytest.mark.parametrize(("package", "name"), [("pyarrow", "a.parquet"), ("rdflib", "a.ttl")])
def test_packages_that_are_not_installed_are_named(tmp_path, monkeypatch, package, name):
    monkeypatch.setitem(sys.modules, package, None)
    (tmp_path / name).write_bytes(b"PAR1")
    read = labelfield.read_documents if package == "pyarrow" else labelfield.read_vocabulary
    with pytest.raises(DataError, match=f"needs the package {package}.*pip install labelfield"):
        read(tmp_path / name)


def test_parquet_that_is_damaged_after_its_first_rows(tmp_path):
    import pyarrow as pa
    from pyarrow import parquet

    path = tmp_path / "a.parquet"
    parquet.write_table(
        pa.table({"text": [f"{i} {i * i}" for i in range(3000)], "labels": ["a"] * 3000}), path, row_group_size=1000
    )
    content = bytearray(path.read_bytes())
    content[len(content) // 2 : len(content) // 2 + 200] = bytes(200)
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"a.parquet:\d+: damaged \("):
        labelfield.read_documents(path)


def test_text_in_an_encoding_without_a_decoder_error(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"a\nb\n")
    with pytest.raises(DataError, match=r"a.txt:1: not .*utf-16|a.txt.*UTF"):
        labelfield.read_documents(tmp_path / "a.txt", encoding="utf-16")


@pytest.mark.parametrize(
    ("line", "words"), [("[1]", "a label is not an object"), ('{"name": "a", "names": {"fi": 1}}', "names of 'a'")]
)
def test_vocabularies(line, words):
    with pytest.raises(ValueError, match=words):
        LabelVocabulary.from_lines([line])


def test_documents_kept_in_a_folder(tmp_path):
    with gzip.open(tmp_path / "documents.jsonl.gz", "wt") as file:
        file.write(json.dumps({"id": None, "texts": ["a"], "labels": []}) + "\n")
    with pytest.raises((DataError, LabelfieldError), match=r"documents\.jsonl\.gz"):
        list(read_kept(tmp_path / "documents.jsonl.gz", 2))


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"kind": "rows", "n_features": -1}, "columns of rows"),
        ({"kind": "side by side", "widths": [], "encoders": [{}]}, "no widths"),
        (
            {"kind": "side by side", "widths": [1], "encoders": [{"kind": "rows", "n_features": 1}], "fields": ["a"]},
            "fields of the encoders",
        ),
        ({"kind": "foreign", "path": 3}, "path of an encoder"),
    ],
)
def test_encoders_of_a_folder(config, words):
    with pytest.raises(ValueError, match=words):
        restore_encoder(config, {}, [], None, False)


@pytest.mark.parametrize(
    ("change", "words"), [({"encoder": {"fields": [7]}}, "field that documents"), ({"n_beside": -1}, "precomputed")]
)
def test_parts_of_a_folder(change, words):
    config = {"fields": ["text"], "columns": {}, "encoder": {"kind": "rows", "n_features": 1}}
    with pytest.raises(ValueError, match=words):
        TextParts.restore(config | change, {}, None, None)


def test_encoders_of_others():
    with pytest.raises(ValueError, match="expected words, or an object with fit"):
        ForeignEncoder(3)
    with pytest.raises(DataError, match="made 1 rows of 2 texts"):
        ForeignEncoder(lambda texts: [[1.0]]).transform(["a", "b"])
    described = ForeignEncoder(lengths).describe()
    with patch("labelfield.text.foreign.import_module", return_value=SimpleNamespace(lengths=lengths)):
        assert restore_foreign(described, None, True).fingerprint() == described["fingerprint"]
        with pytest.raises(LabelfieldError, match="makes other rows here than when the model was trained"):
            restore_foreign(described | {"fingerprint": "0"}, None, True)


def test_words_whose_columns_are_in_disorder():
    encoder = WordEncoder(min_documents=2, characters="off")
    encoder.fit_transform(make_texts(60, seed=0)[0], (1.0, 1.0))
    config, arrays = encoder.describe()
    names = list(encoder.feature_names())
    first, last = config["n_words"], config["n_words"] + config["n_pairs"] - 1
    assert first < last
    names[first], names[last] = names[last], names[first]
    with pytest.raises(ValueError, match="not in order"):
        WordEncoder.restore(config, arrays, names)
    names[last] = names[first]
    with pytest.raises(ValueError, match="the same name"):
        WordEncoder.restore(config, arrays, names)
    assert np.all(arrays["frequency"] >= 0)
