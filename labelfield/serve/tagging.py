"""The one function that answers requests: documents or rows in, the lines of `labelfield tag` out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from labelfield.decide import Policy
from labelfield.text.parts import TagNames, TextParts, ranked

if TYPE_CHECKING:
    from labelfield.estimators.protocol import FittedClassifier

Line = dict[str, Any]


class Tagger(Protocol):
    """What tags need of a model, whole or light."""

    @property
    def text_(self) -> TextParts | None: ...
    def label_names(self) -> list[str]: ...
    def predict_topk(self, X: Any, k: int = 5, *, search: Any = "auto") -> sparse.csr_array: ...
    def predict_uncertainty(self, X: Any, best: sparse.csr_array | None = None) -> NDArray[np.float32]: ...


@dataclass(frozen=True)
class Question:
    """What is asked about a document or row.

    The `k` most probable tags that reach a `threshold`; with `precision`, instead all tags of a set that is guaranteed
    to have it; `review` is the uncertainty from which a person should look; `explain` is a number of words per tag.
    """

    k: int = 5
    threshold: float = 0.0
    precision: float | None = None
    review: float = 0.5
    explain: int = 0


def tag_items(
    tagger: Tagger,
    items: Sequence[Any],
    questions: Sequence[Question],
    names: TagNames,
    whole: Callable[[], FittedClassifier],
    promise: Callable[[float], Policy] | None = None,
) -> tuple[list[Line], sparse.csr_array]:
    """Answer a question about each document, or about each row (N, D), all in one pass of the model.

    An answer is what `labelfield tag` writes: tags (label, uri, probability), uncertainty, review; on request also an
    explanation of each tag. Promises and explanations come from the `whole` classifier; `promise` returns the policy
    for a precision if it is known already. The rows that documents became are returned beside the answers.
    """
    parts = tagger.text_
    rows = stacked_rows(items, whole().n_features_in_) if parts is None else parts.rows(items)
    lines = ranked_lines(tagger, rows, questions, names)
    for precision in sorted({one.precision for one in questions if one.precision is not None}):
        policy = whole().policy(precision=precision) if promise is None else promise(precision)
        places = [place for place, one in enumerate(questions) if one.precision == precision]
        found = promised_lines(whole(), rows[places], policy, names)
        for place, line in zip(places, found, strict=True):
            lines[place] = line | {"guarantee": policy.guarantee}
    for place, (item, question) in enumerate(zip(items, questions, strict=True)):
        if question.explain:
            n_tags = len(lines[place]["tags"])
            lines[place]["explanation"] = _explained(whole(), item, rows[[place]], n_tags, question.explain)
    return lines, rows


def ranked_lines(
    tagger: Tagger, rows: sparse.csr_array, questions: Sequence[Question], names: TagNames, search: str = "auto"
) -> list[Line]:
    """Return the most probable tags of each row, as many as were asked for."""
    best = tagger.predict_topk(rows, max(one.k for one in questions), search=search)
    lines = []
    for own, unsure, question in zip(ranked(best), _uncertainty(tagger, rows, best), questions, strict=True):
        kept = [one for one in own[: question.k] if one[0] >= question.threshold]
        lines.append({"tags": names.written(kept), "uncertainty": unsure, "review": unsure >= question.review})
    return lines


def tag_names(tagger: Tagger) -> TagNames:
    """Return what the labels of a model are called."""
    return TagNames(tagger.label_names(), None if tagger.text_ is None else tagger.text_.vocabulary)


def promised_lines(tagger: Tagger, rows: sparse.csr_array, policy: Policy, names: TagNames) -> list[Line]:
    """Return the tags of each row that a policy promises something of, and whether a person should see it."""
    best = tagger.predict_topk(rows, policy.n_listed)
    decision = policy.apply(best)
    each = zip(ranked(decision.tags), _uncertainty(tagger, rows, best), decision.review.tolist(), strict=True)
    return [{"tags": names.written(own), "uncertainty": unsure, "review": review} for own, unsure, review in each]


def _uncertainty(tagger: Tagger, rows: sparse.csr_array, best: sparse.csr_array) -> list[float]:
    found: list[float] = np.round(tagger.predict_uncertainty(rows, best).astype(np.float64), 4).tolist()
    return found


def _explained(
    estimator: FittedClassifier, item: Any, row: sparse.csr_array, k: int, n_words: int
) -> list[dict[str, Any]]:
    """Return the words of a text, or the features of a row, that carried each of its first k tags."""
    if not k:
        return []
    if estimator.text_ is None:
        from labelfield.explain.row import explain_row

        found = explain_row(estimator, row, k=k, n_features=n_words).labels
        return [
            {
                "label": label.name,
                "features": [
                    {"feature": name, "value": value, "effect": round(effect, 4)}
                    for name, value, effect in label.features
                ],
            }
            for label in found
        ]
    from labelfield.estimators.text import explain_text

    return [
        {
            "label": own.tag.label,
            "text": own.text,
            "words": [
                {"word": word.word, "places": word.places, "effect": round(word.effect, 4)} for word in own.words
            ],
        }
        for own in explain_text(estimator, item, k, n_words)
    ]


def stacked_rows(items: Sequence[Any], n_features: int) -> sparse.csr_array:
    """Return rows that were given as (columns, values) each as one CSR array."""
    counts = np.array([len(columns) for columns, _ in items], np.int64)
    indptr = np.concatenate([[0], np.cumsum(counts)])
    columns = np.concatenate([np.asarray(columns, np.int32) for columns, _ in items])
    values = np.concatenate([np.asarray(values, np.float32) for _, values in items])
    return sparse.csr_array((values, columns, indptr), shape=(len(items), n_features))
