"""Documents in, tags out: an encoder and any of our classifiers, composed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.exceptions import NotFittedError

from labelfield.data import Names
from labelfield.decide import Decision
from labelfield.errors import CannotAnswerError, DataError
from labelfield.estimators.auto import AutoClassifier
from labelfield.estimators.classifier import Classifier
from labelfield.estimators.options import count_of
from labelfield.estimators.persistence import load_classifier
from labelfield.estimators.protocol import FittedClassifier
from labelfield.estimators.searching import Search
from labelfield.metrics.propensity import RankBy
from labelfield.text.documents import Documents, usual_weights
from labelfield.text.encoders import Encoder, GivenRows, SideBySide, beside_each_other, make_encoder, require_features
from labelfield.text.letters import spans_of
from labelfield.text.parts import Tag, TextParts, tags_of
from labelfield.text.vocabulary import LabelVocabulary

# Words of a document that are taken out one at a time, those that occur first; and letters that are looked at.
_MOST_WORDS, _MOST_LETTERS = 400, 50_000
# What is no label itself, though it has a text that could be one.
_NESTED = (list, tuple, set, dict, np.ndarray)


class WordEffect(NamedTuple):
    """A word of a document, where it stands, and by how much the log-odds of a label fall without it."""

    word: str
    places: list[tuple[int, int]]
    effect: float


class TagExplanation(NamedTuple):
    """A tag and the words that carried it, the strongest first; `text` is what their places refer to."""

    tag: Tag
    words: list[WordEffect]
    text: str


@dataclass(kw_only=True, eq=False, repr=False)
class TextClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn is untyped
    """Tags for documents: an encoder makes rows of texts, and any of our classifiers learns from them.

    Parameters
    ----------
    encoder : str or object
        words: tf-idf of stems, pairs and character n-grams. wordllama, sentence-transformers:NAME or model2vec:NAME:
        pretrained, of these packages. rows: texts are rows already. Also an object with fit and transform or with
        encode, a function of a list of texts, or a list of these, whose rows then stand side by side.
    model : object or None
        The classifier; AutoClassifier() by default.
    language : str
        The language of the documents, such as fi; auto detects it, none leaves words as they are.
    field_weights : sequence or None
        How much a word counts in each field, where documents have several; by default a word in a field called title
        counts four times.
    fields : str
        joined: a word means the same in all fields; apart: each field has columns of its own.
    """

    encoder: Any = "words"
    model: Any = None
    language: str = "auto"
    field_weights: Sequence[float] | None = None
    fields: str = "joined"

    def fit(self, texts: Any, labels: Any, *, rows: Any = None, vocabulary: LabelVocabulary | None = None) -> Self:
        """Train on texts (or sequences of the texts of fields, or Documents) and a list of labels for each.

        Labels may also be one label for each text, or a matrix of 0 and 1, as scikit-learn's MultiLabelBinarizer makes,
        whose columns are then called 0, 1, …; those of a table keep their names.
        Precomputed `rows` (N, columns), dense or sparse, stand beside those of the encoder; predictions then need such
        rows too. A `vocabulary` gives labels their URIs and names; what it leaves open is as the documents' file has
        it.
        """
        named = texts.fields if isinstance(texts, Documents) else None
        if hasattr(texts, "columns") and len(texts.columns) > 1:
            named = tuple(map(str, texts.columns))
        are_rows = self.encoder == "rows" if isinstance(self.encoder, str) else False
        documents: Any = texts.texts if isinstance(texts, Documents) else texts if are_rows else list(_checked(texts))
        vocabulary = vocabulary or LabelVocabulary()
        if isinstance(texts, Documents):
            vocabulary = vocabulary.with_names(texts.names)
        given = _as_labels(labels)
        label_names = _column_names(labels, vocabulary) if sparse.issparse(given) else None
        if not sparse.issparse(given):
            vocabulary = vocabulary.for_numbers(given)
            given = vocabulary.named(given)
        n_labelled = given.shape[0] if sparse.issparse(given) else len(given)
        n_documents = documents.shape[0] if sparse.issparse(documents) else len(documents)
        if n_labelled != n_documents:
            raise DataError(f"{n_documents} texts and {n_labelled} lists of labels", expected="one for each text")
        if not (given.nnz if sparse.issparse(given) else any(given)):
            raise DataError("no document has a label", expected="lists of labels", fix="Check the labels.")
        if not isinstance(self.model, Classifier | None):
            raise ValueError(f"model={self.model!r}; expected a classifier of labelfield, such as LinearClassifier()")
        n_fields = 1 if are_rows or not documents or isinstance(documents[0], str) else len(documents[0])
        encoder = self._new_encoder(n_fields)
        fields = named or _numbered(n_fields)
        if self.field_weights is not None and len(self.field_weights) != n_fields:
            expected = f"a weight for each of {n_fields} fields" if n_fields > 1 else "None, since texts have one field"
            raise ValueError(f"field_weights={self.field_weights!r}; expected {expected}")
        X = encoder.fit_transform(documents, self.field_weights or usual_weights(fields))
        names, beside = encoder.feature_names(), None
        if rows is not None:
            beside = GivenRows()
            X = beside_each_other(X, beside.fit_transform(rows))
            names = None if names is None else [*names, *(f"row {column}" for column in range(beside.n_features_))]
        require_features(X)
        classifier = AutoClassifier() if self.model is None else clone(self.model)
        classifier.fit(X, given)
        if label_names is not None:
            classifier.fitted().label_names = label_names
        self.classifier_ = classifier
        text = TextParts(encoder, vocabulary.of(classifier.label_names()), fields, beside=beside)
        classifier.name_features(_as_names(names), text)
        return self

    def _new_encoder(self, n_fields: int) -> Encoder:
        if self.fields not in ("joined", "apart"):
            raise ValueError(f"fields={self.fields!r}; expected one of joined, apart")

        def new() -> Encoder:
            given = self.encoder if isinstance(self.encoder, str | list | tuple) else clone(self.encoder, safe=False)
            return make_encoder(given, language=self.language)

        if self.fields == "joined" or n_fields == 1:
            return new()
        return SideBySide([new() for _ in range(n_fields)], range(n_fields))

    @classmethod
    def around(cls, classifier: Any) -> TextClassifier:
        """Return a text classifier around a fitted one that knows how to read documents."""
        found = cls(model=classifier)
        found.classifier_ = classifier
        return found

    def rows(self, texts: Any, rows: Any = None) -> sparse.csr_array:
        """Return the rows of texts, with precomputed `rows` beside them; what was encoded before stays as it is.

        Of a table or of documents of a file, the columns are taken that training had, whatever their order; fields that
        the file lacks are left empty.
        """
        if sparse.issparse(texts):
            return texts
        are_rows = isinstance(self.text_.encoder, GivenRows)
        if isinstance(texts, Documents):
            documents: Any = texts.in_fields(self.text_.fields)
        else:
            documents = texts if are_rows else _checked(_with_fields(texts, self.text_.fields))
        return self.text_.rows(documents, rows)

    @property
    def text_(self) -> TextParts:
        """The encoder, the vocabulary of labels, and the names of fields."""
        found: TextParts | None = self._fitted().text_
        assert found is not None  # both are set together
        return found

    @property
    def classes_(self) -> NDArray[Any]:
        """The names of all labels."""
        return np.asarray(self._fitted().label_names())

    def predict(self, texts: Any, k: int | None = None, *, rows: Any = None) -> Any:
        """Return the labels whose probability reaches the threshold, or the k most probable, as a CSR indicator."""
        return self._fitted().predict(self.rows(texts, rows), k)

    def score(self, texts: Any, labels: Any, sample_weight: Any = None, *, rows: Any = None) -> float:
        """Return the share of texts whose labels, given as in `fit`, are all right; one not seen there is missed."""
        given = _as_labels(labels)
        if not sparse.issparse(given):
            given = self.text_.vocabulary.named(given)
        elif (names := _column_names(labels, self.text_.vocabulary)) is not None:
            given = _in_order(given, names, self._fitted().label_names())
        return float(self._fitted().score(self.rows(texts, rows), given, sample_weight))

    def predict_proba(self, texts: Any, *, rows: Any = None, calibrated: bool = True) -> NDArray[np.float32]:
        """Return the probability of each label (N, K)."""
        return self._fitted().predict_proba(self.rows(texts, rows), calibrated=calibrated)

    def predict_topk(
        self,
        texts: Any,
        k: int = 5,
        *,
        rows: Any = None,
        calibrated: bool = True,
        rank_by: RankBy = "probability",
        search: Search = "auto",
    ) -> sparse.csr_array:
        """Return the k best labels of each text and their probabilities, as CSR (N, K)."""
        how: dict[str, Any] = {"calibrated": calibrated, "rank_by": rank_by, "search": search}
        return self._fitted().predict_topk(self.rows(texts, rows), k, **how)

    def predict_uncertainty(self, texts: Any, *, rows: Any = None) -> NDArray[np.float32]:
        """Return how far the first label of each text (N,) should be distrusted, from 0 to 1."""
        return self._fitted().predict_uncertainty(self.rows(texts, rows))

    def decide(self, texts: Any, *, rows: Any = None, **asked: Any) -> Decision:
        """Return tags for texts, and which of them a person should see, as `decide` of the classifier promises."""
        return self._fitted().decide(self.rows(texts, rows), **asked)

    def tags(self, texts: Any, k: int = 5, threshold: float = 0.0, *, rows: Any = None) -> list[list[Tag]]:
        """Return the k most probable tags of each text whose probability reaches a threshold, best first."""
        best = self.predict_topk(texts, count_of(k), rows=rows)
        return tags_of(self._fitted().label_names(), self.text_.vocabulary, best, threshold)

    def explain(self, text: Any, k: int = 5, n_words: int = 8, *, row: Any = None) -> list[TagExplanation]:
        """Return the k most probable tags of one text, with the words that did most for or against each.

        A model with precomputed rows needs the `row` of the text.
        """
        return explain_text(self._fitted(), text, k, n_words, row)

    def save(self, folder: str | Path) -> None:
        """Write the model with its encoder to a folder that `labelfield.load` reads anywhere."""
        self._fitted().save(folder)

    def _fitted(self) -> FittedClassifier:
        if "classifier_" not in self.__dict__:
            raise NotFittedError("this TextClassifier is not fitted yet; call fit first")
        classifier: FittedClassifier = self.classifier_
        return classifier

    def __sklearn_is_fitted__(self) -> bool:
        return "classifier_" in self.__dict__

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string, tags.input_tags.two_d_array = True, False
        tags.classifier_tags.multi_label = True
        return tags


def load(
    folder: str | PathLike[str], *, device: str = "auto", network: Any = None, encoder: Any = None, trust: bool = False
) -> Any:
    """Load the fitted estimator that `save` wrote; an unknown, incomplete or damaged folder gives a ModelError.

    A model that was trained on documents is a TextClassifier. One with an encoder of another package needs that
    `encoder`; with `trust`, its code is imported by the path that the folder names, which is safe only if you know
    where the folder comes from. A deep kernel model with a network of your own needs that `network`, built as it was.
    """
    classifier = load_classifier(folder, device=device, network=network, encoder=encoder, trust=trust)
    return classifier if classifier.text_ is None else TextClassifier.around(classifier)


def explain_text(
    classifier: FittedClassifier, text: Any, k: int = 5, n_words: int = 8, row: Any = None
) -> list[TagExplanation]:
    """Explain the most probable tags of a text: a word's effect is by how much a tag's log-odds fall without it.

    The text is predicted again without each of its words, which is exact for any encoder and any classifier. Of a long
    text the first 400 different words are taken out.
    """
    parts = classifier.text_
    if parts is None:
        raise DataError("a model of rows, not of documents", expected="a model that was trained on documents")
    if isinstance(parts.encoder, GivenRows):
        raise CannotAnswerError("the model was given rows, and knows no words; ask labelfield.explain about its rows")
    document = parts.document(text)

    def rows(versions: list[Any]) -> sparse.csr_array:
        given = None if row is None else sparse.vstack([sparse.csr_array(np.atleast_2d(row))] * len(versions))
        return parts.rows(versions, given)

    # Words by where they stand: in which field, and where in the text that is shown, all fields one after another.
    fields: list[str] = []
    shown, places = "", dict[str, list[tuple[int, int, int, int]]]()
    for number, field in enumerate(document):
        normal, spans = spans_of(field[: _MOST_LETTERS - len(shown)])
        for start, end, word in spans:
            places.setdefault(word, []).append((number, start, end, len(shown) + start))
        fields.append(normal)
        shown += f"{normal}\n" if normal and number < len(document) - 1 else normal
    words = list(places)[:_MOST_WORDS]
    best = classifier.predict_topk(rows([document]), k)
    order = np.lexsort((-best.indices, -best.data))  # as tags are ordered, also where probabilities are equal
    labels = best.indices[order].astype(np.int64)
    tags = tags_of(classifier.label_names(), parts.vocabulary, best)[0]
    versions = [fields, *(_without(fields, places[word]) for word in words)]
    log_odds = classifier.predictor_.log_odds(classifier.rows(rows(versions)))[:, labels]
    effects = log_odds[0] - log_odds[1:]
    found = []
    for column, tag in enumerate(tags):
        strongest = np.argsort(-np.abs(effects[:, column]), kind="stable")[:n_words].tolist()
        own = [
            WordEffect(words[i], [(at, at + end - start) for _, start, end, at in places[words[i]]], effect)
            for i in strongest
            if (effect := float(effects[i, column])) != 0
        ]
        found.append(TagExplanation(tag, own, shown))
    return found


def _without(fields: list[str], places: list[tuple[int, int, int, int]]) -> list[str]:
    """Return the texts of fields with a blank for what stands at these places."""
    left = list(fields)
    for number, start, end, _ in reversed(places):  # from the end, so that places before stay right
        left[number] = f"{left[number][:start]} {left[number][end:]}"
    return left


def _with_fields(texts: Any, fields: tuple[str, ...]) -> Any:
    """Return the columns of a table by the names of fields, in their order; anything else as it is."""
    if not hasattr(texts, "columns"):
        return texts
    by_name = {str(column): column for column in texts.columns}
    had_no_names = fields == _numbered(len(fields)) and len(texts.columns) == len(fields)
    if had_no_names or tuple(map(str, texts.columns)) == fields:
        return texts
    if missing := [name for name in fields if name not in by_name]:
        found, columns = f"a table without {', '.join(missing)}", ", ".join(fields)
        raise DataError(found, expected=f"the columns {columns}, as in training", fix="Rename its columns.")
    return texts[[by_name[name] for name in fields]]


def _checked(texts: Any) -> Iterable[Any]:
    """Return texts; one text alone, and numbers, are refused with a word on what to pass."""
    if isinstance(texts, str):
        raise DataError("one text", expected="a list of texts", fix="Pass [text].")
    # A table, of pandas or polars, has the texts of fields in its columns.
    is_table = hasattr(texts, "to_numpy") and len(texts.shape) == 2
    values = texts.to_numpy().tolist() if is_table else texts.tolist() if hasattr(texts, "tolist") else list(texts)
    for place, value in enumerate(values):
        is_document = isinstance(value, str) or (
            isinstance(value, list | tuple) and all(isinstance(part, str) for part in value)
        )
        if not is_document:
            raise DataError(f"text {place} is {type(value).__name__} {str(value)[:40]!r}", expected="text")
    return values


def _as_labels(labels: Any) -> Any:
    """Return labels as lists of texts, or indicators as a sparse matrix."""
    if labels is None:
        fix = "If a file has them, name their column: read_documents(path, labels=COLUMN)."
        raise DataError("the labels are None", expected="a list of names for each text", fix=fix)
    if sparse.issparse(labels):
        return labels
    if hasattr(labels, "shape") and len(labels.shape) == 2 and np.asarray(labels).dtype.kind in "biuf":
        return sparse.csr_array(np.asarray(labels))
    # Sets of labels, and one label per document, are lists as well.
    lists = []
    for place, one in enumerate(labels):
        own = one if isinstance(one, Iterable) and not isinstance(one, str | bytes) else [one]
        own = own if isinstance(own, dict) else list(own)
        if isinstance(own, dict) or any(isinstance(label, _NESTED) or _is_missing(label) for label in own):
            raise DataError(f"the labels of text {place} are {str(one)[:40]}", expected="a list of names")
        lists.append([str(label) for label in own])
    return lists


def _column_names(labels: Any, vocabulary: LabelVocabulary) -> list[str] | None:
    """Return the labels that the columns of a table of indicators are called by; None if they have no names."""
    columns = list(getattr(labels, "columns", ()))
    if not columns or not all(isinstance(column, str) for column in columns):
        return None
    names = [vocabulary.name_of(column) for column in columns]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise DataError(f"two columns are the label {twice!r}", expected="a column for each label", fix="Join them.")
    return names


def _in_order(given: sparse.csr_array, names: list[str], known: list[str]) -> sparse.csr_array:
    """Return indicators, whose columns have names, in the order of the labels that a model knows."""
    place = {name: column for column, name in enumerate(names)}
    if strange := sorted(place.keys() ^ known):
        found = f"the label {strange[0]!r} is only in the {'table' if strange[0] in place else 'model'}"
        raise DataError(found, expected="a column for each label of the model", fix="Pass lists of labels instead.")
    return given[:, [place[name] for name in known]]


def _is_missing(label: Any) -> bool:
    """Return whether a label is None, NaN, which is not itself, or NA of pandas, which says neither yes nor no."""
    try:
        return label is None or bool(label != label)
    except TypeError:
        return True


def _as_names(names: list[str] | None) -> Names | None:
    return None if names is None else Names(names)


def _numbered(n_fields: int) -> tuple[str, ...]:
    return ("text",) if n_fields == 1 else tuple(f"text {place}" for place in range(1, n_fields + 1))
