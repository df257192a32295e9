"""Encoders by name or as objects: our words, anything with fit and transform, and anything with encode."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from labelfield.constraints import Integer
from labelfield.csr import as_features
from labelfield.errors import DataError
from labelfield.text.foreign import ForeignEncoder, named_encoder, restore_foreign
from labelfield.text.languages import STEMMERS
from labelfield.text.words import WordEncoder


class Encoder(Protocol):
    """The interface of objects that turn documents, given as texts of fields, into sparse rows."""

    def fit_transform(self, documents: Any, weights: Sequence[float] = (1.0,)) -> sparse.csr_array: ...
    def transform(self, documents: Iterable[Any]) -> sparse.csr_array: ...
    def feature_names(self) -> list[str] | None: ...


class GivenRows:
    """No encoder: rows that were made elsewhere are taken as they are, dense or sparse."""

    n_features_ = 0

    def fit_transform(self, documents: Any, weights: Sequence[float] = (1.0,)) -> sparse.csr_array:
        """Return the rows, and remember how many columns they have."""
        rows = _given(documents)
        self.n_features_ = int(rows.shape[1])
        return rows

    def transform(self, documents: Any) -> sparse.csr_array:
        """Return the rows, which must have as many columns as before."""
        rows = _given(documents)
        if rows.shape[1] != self.n_features_:
            raise DataError(f"rows of {rows.shape[1]} columns", expected=f"{self.n_features_} as in training")
        return rows

    def feature_names(self) -> list[str] | None:
        """Return None: nothing is known about the columns."""
        return None


def _given(rows: Any) -> sparse.csr_array:
    """Return rows of numbers in our form; texts are refused."""
    try:
        return as_features(rows if sparse.issparse(rows) else np.asarray(rows, np.float32))
    except (TypeError, ValueError) as error:
        if isinstance(error, DataError):
            raise
        fix = 'Pass them in the place of texts, or leave out encoder="rows".'
        raise DataError("these are no rows of numbers", expected="a matrix with a row for each text", fix=fix) from None


def beside_each_other(*parts: sparse.csr_array) -> sparse.csr_array:
    """Return rows whose columns are those of all parts, which must be of the same rows."""
    if len({part.shape[0] for part in parts}) > 1:
        found = " and ".join(f"{part.shape[0]}" for part in parts)
        raise DataError(f"{found} rows beside each other", expected="one precomputed row for each text")
    return as_features(sparse.hstack(parts, format="csr"))


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
        return beside_each_other(*parts)

    def transform(self, documents: Iterable[Any]) -> sparse.csr_array:
        """Return the rows of documents."""
        seen = self._seen(list(documents))
        return beside_each_other(*(encoder.transform(own) for encoder, own in zip(self.encoders, seen, strict=True)))

    def feature_names(self) -> list[str]:
        """Return the names of all columns; those of an encoder without names are numbered."""
        found: list[str] = []
        for place, (encoder, width) in enumerate(zip(self.encoders, self.widths, strict=True)):
            names = encoder.feature_names()
            found += names if names is not None else [f"encoder {place}: {column}" for column in range(width)]
        return found


def make_encoder(encoder: Any, **options: Any) -> Encoder:
    """Return an encoder by its name, an object as one, and a list of them side by side; `options` are those of words.

    Names are words, rows for none, and those of pretrained encoders.
    """
    if isinstance(encoder, list | tuple):
        if not encoder:
            raise ValueError(f"encoder={encoder!r}; expected at least one")
        if "rows" in encoder:
            raise ValueError("encoder='rows' beside others; pass the rows themselves: fit(texts, labels, rows=…)")
        return SideBySide([make_encoder(one, **options) for one in encoder])
    if isinstance(encoder, str):
        if encoder == "rows":
            return GivenRows()
        return WordEncoder(**options) if encoder == "words" else named_encoder(encoder)
    if isinstance(encoder, WordEncoder | ForeignEncoder | SideBySide | GivenRows):
        return encoder
    return ForeignEncoder(encoder)


def describe_encoder(encoder: Encoder) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Return an encoder in words and arrays."""
    if isinstance(encoder, WordEncoder):
        config, arrays = encoder.describe()
        return {"kind": "words", **config}, arrays
    if isinstance(encoder, ForeignEncoder):
        return encoder.describe(), {}
    if isinstance(encoder, GivenRows):
        return {"kind": "rows", "n_features": encoder.n_features_}, {}
    assert isinstance(encoder, SideBySide)
    parts = [describe_encoder(one) for one in encoder.encoders]
    arrays = {f"{place}.{name}": array for place, (_, own) in enumerate(parts) for name, array in own.items()}
    described = {"kind": "side by side", "widths": encoder.widths, "fields": encoder.fields}
    return described | {"encoders": [config for config, _ in parts]}, arrays


def restore_encoder(
    config: Any, arrays: dict[str, NDArray[Any]], names: list[str], given: Any = None, trust: bool = False
) -> Encoder:
    """Return the encoder that `describe_encoder` described; a foreign one must be `given` or trusted."""
    kind = config["kind"]
    if kind == "words":
        return WordEncoder.restore(config, arrays, names)
    if kind == "foreign":
        return restore_foreign(config, given, trust)
    if kind == "rows":
        rows = GivenRows()
        rows.n_features_ = config["n_features"]
        if not Integer(0).accepts(rows.n_features_):
            raise ValueError("the number of columns of rows is not one")
        return rows
    if kind != "side by side":
        raise ValueError(f"an encoder of the unknown kind {kind!r}")
    found, first = [], 0
    given = given.encoders if isinstance(given, SideBySide) else given
    if len(config["widths"]) != len(config["encoders"]):
        raise ValueError("the encoders have no widths")
    for place, (own, width) in enumerate(zip(config["encoders"], config["widths"], strict=True)):
        parts = {name.partition(".")[2]: array for name, array in arrays.items() if name.startswith(f"{place}.")}
        found.append(restore_encoder(own, parts, names[first : first + width], given, trust))
        first += width
    fields = config["fields"]
    if fields is not None and not (len(fields) == len(found) and all(Integer(0).accepts(field) for field in fields)):
        raise ValueError("the fields of the encoders are not numbers")
    encoder = SideBySide(found, fields)
    encoder.widths = list(config["widths"])
    return encoder


def require_features(X: sparse.csr_array) -> None:
    """Refuse rows without columns."""
    if not X.shape[1]:
        fix = "Add documents, or check the column of text."
        raise DataError("no word occurs in two documents", expected="documents that share words", fix=fix)


def unfitted_encoder(encoder: Encoder) -> Encoder:
    """Return the same encoder, to be fitted to other documents of the same language."""
    if isinstance(encoder, WordEncoder):
        options = {name: getattr(encoder, name) for name in encoder.constraints}
        has_characters = "on" if encoder.has_characters_ else "off"
        return WordEncoder(**options | {"language": encoder.language_ or "none", "characters": has_characters})
    if isinstance(encoder, SideBySide):
        return SideBySide([unfitted_encoder(one) for one in encoder.encoders], encoder.fields)
    return encoder


def field_weights(encoder: Encoder, n_fields: int) -> tuple[float, ...]:
    """Return how much words of each field count for an encoder that was fitted."""
    if isinstance(encoder, WordEncoder):
        return tuple(encoder.weights_.tolist())
    if isinstance(encoder, SideBySide):
        if encoder.fields is None:
            each = [field_weights(one, n_fields) for one in encoder.encoders if isinstance(one, WordEncoder)]
            return each[0] if each else (1.0,) * n_fields
        return tuple(field_weights(one, 1)[0] for one in encoder.encoders)
    return (1.0,) * n_fields


def described_encoder(encoder: Encoder) -> str:
    """Describe an encoder in words."""
    if isinstance(encoder, SideBySide):
        return "; ".join(map(described_encoder, encoder.encoders))
    if isinstance(encoder, ForeignEncoder):
        return encoder.name or encoder.path
    if not isinstance(encoder, WordEncoder):
        return "rows as they are"
    language = encoder.language_
    stems = "words as they are" if language not in STEMMERS else f"{STEMMERS[language].capitalize()} stems"
    how = "detected" if language is not None else "no language is known by its words"
    found = f" ({how}; --language decides)" if encoder.language == "auto" else ""
    if encoder.language not in ("auto", "none") and language not in STEMMERS:
        found = f" (no stemmer is known for --language {encoder.language})"
    parts = [f"{stems}{found}", *(["pairs"] if encoder.pairs else [])]
    if getattr(encoder, "has_too_many_", False):  # which a saved encoder does not remember
        parts.append("no character n-grams for so many documents")
    return ", ".join([*parts, *(["character n-grams"] if encoder.has_characters_ else [])])
