"""Encoders by name or as objects: our words, anything with fit and transform, and anything with encode."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from labelfield.constraints import Integer
from labelfield.csr import as_features
from labelfield.errors import DataError
from labelfield.text.words import WordEncoder

# Documents that are given to a foreign encoder at a time.
_BATCH = 1024
# What an encoder makes of these texts is its fingerprint.
_PROBES = ["a short text about libraries and books", "Viro-instituutti tekee tunnetuksi kulttuuria", ""]
_DIGITS = 3


class Encoder(Protocol):
    """What turns documents, given as texts of fields, into sparse rows."""

    def fit_transform(self, documents: Any, weights: Sequence[float] = (1.0,)) -> sparse.csr_array: ...
    def transform(self, documents: Iterable[Any]) -> sparse.csr_array: ...
    def feature_names(self) -> list[str] | None: ...


class ForeignEncoder:
    """An encoder of another package: an object with fit and transform, with encode or embed, or a function of texts.

    It is not saved with a model: the folder has the name of its class and a fingerprint of what it makes of three
    texts, and whoever loads the model must pass the same object.
    """

    def __init__(self, encoder: Any) -> None:
        self.encoder = encoder
        path = type(encoder) if not isinstance(encoder, type) and not hasattr(encoder, "__name__") else encoder
        self.path = f"{path.__module__}.{path.__qualname__}"
        methods = ("transform", "encode", "embed")
        self.encode: Callable[[list[str]], Any] = next(
            (getattr(encoder, name) for name in methods if hasattr(encoder, name)), encoder
        )
        if not callable(self.encode):
            expected = "words, or an object with fit and transform, or with encode, or a function of a list of texts"
            raise ValueError(f"encoder={encoder!r}; expected {expected}")

    def fit_transform(self, documents: Any, weights: Sequence[float] = (1.0,)) -> sparse.csr_array:
        """Fit the encoder if it can be fitted, and return the rows of the same documents."""
        texts = [_joined(document) for document in documents]
        if hasattr(self.encoder, "fit"):
            self.encoder.fit(texts)
        return self.transform(texts)

    def transform(self, documents: Iterable[Any]) -> sparse.csr_array:
        """Return the rows of documents, whose fields are joined by line ends."""
        texts, parts = map(_joined, documents), []
        while batch := list(islice(texts, _BATCH)):
            made = self.encode(batch)
            rows = as_features(made if sparse.issparse(made) else np.asarray(made, np.float32))
            if rows.shape[0] != len(batch):
                raise DataError(f"{self.path} made {rows.shape[0]} rows of {len(batch)} texts", expected="one for each")
            parts.append(rows)
        if not parts:
            return as_features(self._probe()[:0])
        return parts[0] if len(parts) == 1 else as_features(sparse.vstack(parts, format="csr"))

    def feature_names(self) -> list[str] | None:
        """Return the names of columns, where the encoder has some."""
        ask = getattr(self.encoder, "get_feature_names_out", None)
        return None if ask is None else [" ".join(str(name).split()) for name in ask()]

    def _probe(self) -> sparse.csr_array:
        made = self.encode(list(_PROBES))
        return sparse.csr_array(made if sparse.issparse(made) else np.asarray(made, np.float32))

    def fingerprint(self) -> str:
        """Return a digest of what the encoder makes of a few texts, in a few digits."""
        dense = np.round(self._probe().toarray().astype(np.float64), _DIGITS) + 0.0
        return hashlib.sha256(repr(dense.shape).encode() + dense.tobytes()).hexdigest()


class SideBySide:
    """Several encoders whose rows stand side by side, such as words and a pretrained encoder.

    With `fields`, each encoder sees one field of the documents alone.
    """

    def __init__(self, encoders: Sequence[Encoder], fields: Sequence[int] | None = None) -> None:
        self.encoders, self.fields = list(encoders), None if fields is None else list(fields)
        self.widths: list[int] = []

    def _seen(self, documents: list[Any]) -> list[list[Any]]:
        """Return what each encoder sees of documents."""
        if self.fields is None:
            return [documents] * len(self.encoders)
        return [[document[field] for document in documents] for field in self.fields]

    def fit_transform(self, documents: Any, weights: Sequence[float] = (1.0,)) -> sparse.csr_array:
        """Fit all encoders, and return the rows of the same documents."""
        seen = self._seen(list(documents))
        own = [weights] * len(seen) if self.fields is None else [(weights[field],) for field in self.fields]
        parts = [encoder.fit_transform(*given) for encoder, *given in zip(self.encoders, seen, own, strict=True)]
        self.widths = [int(part.shape[1]) for part in parts]
        return as_features(sparse.hstack(parts, format="csr"))

    def transform(self, documents: Iterable[Any]) -> sparse.csr_array:
        """Return the rows of documents."""
        seen = self._seen(list(documents))
        parts = [encoder.transform(own) for encoder, own in zip(self.encoders, seen, strict=True)]
        return as_features(sparse.hstack(parts, format="csr"))

    def feature_names(self) -> list[str]:
        """Return the names of all columns; those of an encoder without names are numbered."""
        found: list[str] = []
        for place, (encoder, width) in enumerate(zip(self.encoders, self.widths, strict=True)):
            names = encoder.feature_names()
            found += names if names is not None else [f"encoder {place}: {column}" for column in range(width)]
        return found


def make_encoder(encoder: Any, **options: Any) -> Encoder:
    """Return an encoder by its name, "words"; an object as one; and a list of them side by side."""
    if isinstance(encoder, list | tuple):
        return SideBySide([make_encoder(one, **options) for one in encoder])
    if isinstance(encoder, str):
        if encoder != "words":
            raise ValueError(f"encoder={encoder!r}; expected 'words', an object, or a list of these")
        return WordEncoder(**options)
    if isinstance(encoder, WordEncoder | ForeignEncoder | SideBySide):
        return encoder
    return ForeignEncoder(encoder)


def describe_encoder(encoder: Encoder) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Return an encoder in words and arrays."""
    if isinstance(encoder, WordEncoder):
        config, arrays = encoder.describe()
        return {"kind": "words", **config}, arrays
    if isinstance(encoder, ForeignEncoder):
        return {"kind": "foreign", "path": encoder.path, "fingerprint": encoder.fingerprint()}, {}
    assert isinstance(encoder, SideBySide)
    parts = [describe_encoder(one) for one in encoder.encoders]
    arrays = {f"{place}.{name}": array for place, (_, own) in enumerate(parts) for name, array in own.items()}
    described = {"kind": "side by side", "widths": encoder.widths, "fields": encoder.fields}
    return described | {"encoders": [config for config, _ in parts]}, arrays


def restore_encoder(config: Any, arrays: dict[str, NDArray[Any]], names: list[str], given: Any = None) -> Encoder:
    """Return the encoder that `describe_encoder` described; a foreign one must be `given`."""
    kind = config["kind"]
    if kind == "words":
        return WordEncoder.restore(config, arrays, names)
    if kind == "foreign":
        if given is None:
            raise ValueError(
                f"the model needs the encoder {config['path']}, which is not in its folder; pass it: "
                "labelfield.load(folder, encoder=…)"
            )
        own = given if isinstance(given, ForeignEncoder) else ForeignEncoder(given)
        if own.fingerprint() != config["fingerprint"]:
            raise ValueError(f"{own.path} is not the encoder {config['path']} that the model was trained with")
        return own
    if kind != "side by side":
        raise ValueError(f"an encoder of the unknown kind {kind!r}")
    found, first = [], 0
    if len(config["widths"]) != len(config["encoders"]):
        raise ValueError("the encoders have no widths")
    for place, (own, width) in enumerate(zip(config["encoders"], config["widths"], strict=True)):
        parts = {name.partition(".")[2]: array for name, array in arrays.items() if name.startswith(f"{place}.")}
        found.append(restore_encoder(own, parts, names[first : first + width], given))
        first += width
    fields = config["fields"]
    if fields is not None and not (len(fields) == len(found) and all(Integer(0).accepts(field) for field in fields)):
        raise ValueError("the fields of the encoders are not numbers")
    encoder = SideBySide(found, fields)
    encoder.widths = list(config["widths"])
    return encoder


def _joined(document: Any) -> str:
    return document if isinstance(document, str) else "\n".join(filter(None, document))
