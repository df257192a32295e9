"""The parts that a model of documents adds to its classifier: the encoder, labels with URIs, and field names."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from labelfield.constraints import Integer
from labelfield.errors import DataError
from labelfield.text.encoders import Encoder, GivenRows, beside_each_other, describe_encoder, restore_encoder
from labelfield.text.vocabulary import LabelVocabulary


class Tag(NamedTuple):
    """A label of a document: what it is called, its URI if it has one, and its probability."""

    label: str
    uri: str | None
    probability: float


class TagNames:
    """The names and URIs of labels, looked up once for any number of answers."""

    def __init__(self, names: Sequence[str], vocabulary: LabelVocabulary | None = None) -> None:
        known = {} if vocabulary is None else {label.name: label.uri for label in vocabulary.labels}
        self.names, self.uris = list(names), [known.get(name) for name in names]

    def tags(self, best: sparse.csr_array, threshold: float = 0.0) -> list[list[Tag]]:
        """Return predicted labels of each row (CSR) as tags, best first."""
        kept = ([one for one in own if one[0] >= threshold] for own in ranked(best))
        return [[Tag(self.names[j], self.uris[j], p) for p, j in own] for own in kept]

    def written(self, own: Sequence[tuple[float, int]]) -> list[dict[str, Any]]:
        """Return probabilities with their labels as JSON has tags."""
        return [{"label": self.names[j], "uri": self.uris[j], "probability": round(p, 4)} for p, j in own]


def ranked(best: sparse.csr_array) -> Iterator[list[tuple[float, int]]]:
    """Yield the probabilities of each row with their labels, the largest first."""
    entries, ends = list(zip(best.data.tolist(), best.indices.tolist(), strict=True)), best.indptr.tolist()
    return (sorted(entries[first:last], reverse=True) for first, last in pairwise(ends))


def tags_of(
    names: Sequence[str], vocabulary: LabelVocabulary, best: sparse.csr_array, threshold: float = 0.0
) -> list[list[Tag]]:
    """Return predicted labels of each row (CSR) as tags, best first."""
    return TagNames(names, vocabulary).tags(best, threshold)


def written(tags: Sequence[Tag]) -> list[dict[str, Any]]:
    """Return tags as JSON has them."""
    return [{"label": one.label, "uri": one.uri, "probability": round(one.probability, 4)} for one in tags]


@dataclass
class TextParts:
    """The encoder that makes rows of documents, the vocabulary of labels, and the fields that documents have."""

    encoder: Encoder
    vocabulary: LabelVocabulary = field(default_factory=LabelVocabulary)
    fields: tuple[str, ...] = ("text",)
    # How the training file was read, so that files of the same kind are read alike.
    columns: dict[str, Any] = field(default_factory=dict)
    # Columns of precomputed rows, which come after those of the encoder.
    beside: GivenRows | None = None

    def rows(self, documents: Any, beside: Any = None) -> sparse.csr_array:
        """Return the rows of documents: texts, or sequences of the texts of fields, and precomputed rows beside."""
        if (beside is None) != (self.beside is None):
            found = "no precomputed rows" if beside is None else "precomputed rows"
            expected = "those beside the texts, as in training" if beside is None else "none, as in training"
            raise DataError(found, expected=expected, fix="" if beside is not None else "Pass rows=…")
        are_rows = isinstance(self.encoder, GivenRows)
        X = self.encoder.transform(documents if are_rows else map(self.document, documents))
        return X if self.beside is None else beside_each_other(X, self.beside.transform(beside))

    def document(self, given: Any) -> Sequence[str]:
        """Return the texts of all fields; one text alone is the last field, after a title, say."""
        if isinstance(given, str):
            return ("",) * (len(self.fields) - 1) + (given,)
        return tuple(given)

    def describe(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return the parts in words and arrays, apart from the vocabulary and the names of features."""
        config, arrays = describe_encoder(self.encoder)
        n_beside = 0 if self.beside is None else self.beside.n_features_
        beside = {"n_beside": n_beside} if n_beside else {}
        return {"encoder": config, "fields": list(self.fields), "columns": self.columns, **beside}, arrays

    @classmethod
    def restore(
        cls,
        config: Any,
        arrays: dict[str, NDArray[np.generic]],
        names: list[str] | None,
        labels: list[str] | None,
        encoder: Any = None,
        trust: bool = False,
    ) -> TextParts:
        """Return the parts that `describe` described; raise a ValueError, KeyError or TypeError for nonsense."""
        fields, columns = config["fields"], config["columns"]
        if not isinstance(fields, list) or not fields or not all(isinstance(name, str) for name in fields):
            raise ValueError("the fields of documents are not names")
        if not isinstance(columns, dict) or not all(isinstance(part, str | None) for part in columns.values()):
            raise ValueError("the columns of documents are not names")
        if max(config["encoder"].get("fields") or [0]) >= len(fields):
            raise ValueError("an encoder of a field that documents do not have")
        n_beside, beside = config.get("n_beside", 0), None
        if not Integer(0).accepts(n_beside):
            raise ValueError("the number of precomputed columns is not one")
        if n_beside:
            beside = GivenRows()
            beside.n_features_ = n_beside
            names = None if names is None else names[:-n_beside]
        restored = restore_encoder(config["encoder"], arrays, names or [], encoder, trust)
        vocabulary = LabelVocabulary() if labels is None else LabelVocabulary.from_lines(labels)
        return cls(restored, vocabulary, tuple(fields), columns, beside)
