"""Documents for commands: read as the options say, or as the model's training file was; encoded; and `tag`."""

from __future__ import annotations

import csv
import io
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, cast

import numpy as np
import typer
from numpy.typing import NDArray
from scipy import sparse

from labelfield.atomic import replacing_file
from labelfield.cli.options import Device, Reading, Search, load_model, reads_files, require_file_name
from labelfield.cli.output import Bar, as_json_text, counted, say
from labelfield.csr import from_counts
from labelfield.data import Dataset, Names
from labelfield.data.reading import open_for_writing
from labelfield.decide import Policy
from labelfield.errors import CannotAnswerError, DataError
from labelfield.models.artifact import DOCUMENTS
from labelfield.serve.tagging import Question, promised_lines, ranked_lines, tag_names
from labelfield.text.coded import IdCounter, LabelCoder, LabelLists
from labelfield.text.documents import Document, Documents, Wanted, no_labels, usual_weights
from labelfield.text.encoders import Encoder, described_encoder, field_weights, require_features, unfitted_encoder
from labelfield.text.kept import KeptDocuments, read_kept
from labelfield.text.languages import detect_language
from labelfield.text.parts import TagNames, TextParts
from labelfield.text.reading import STDIN, DocumentFile, open_documents, split_of
from labelfield.text.vocabulary import LabelVocabulary, read_vocabulary, vocabulary_beside

if TYPE_CHECKING:
    from labelfield.estimators.protocol import FittedClassifier
    from labelfield.light.model import LightModel

# Names of files that tags are written to; without a suffix, and with any other by --format, they are lines of JSON.
_SUFFIXES = (".jsonl", ".ndjson", ".json", ".csv", "")
# Rows of numbers that are tagged at a time.
_ROWS_AT_ONCE = 1024
# Texts that show the language.
_SAMPLE = 1000


def read_training(
    reading: Reading,
    path: Path,
    encoder: Encoder,
    *,
    one_each: bool,
    kept: KeptDocuments | None = None,
) -> tuple[Dataset, TextParts, LabelLists]:
    """Read documents, fit an encoder, and return their rows with what makes rows of further documents, and labels.

    The file is read once, as a stream: texts are forgotten as soon as their words are counted, or `kept` on disk.
    """
    with Bar(f"reading {path.name}"), opened(reading, path, None, "train", labelled=True) as file:
        say(f"{path}: {file.columns.said(file.kind)}")
        X, lists = _encoded(file.documents, encoder, usual_weights(file.columns.texts), kept)
    _say_encoder(encoder, X)
    chosen = reading.vocabulary or vocabulary_beside(path)
    vocabulary = LabelVocabulary()
    if chosen is not None:
        vocabulary = read_vocabulary(chosen, getattr(encoder, "language_", None)).for_numbers([lists.names])
        say(f"{chosen}: {vocabulary.compared(vocabulary.named([lists.names]))}")
    columns = file.columns
    parts = TextParts(encoder, vocabulary.with_names(file.names), columns.texts, _saved(columns._asdict()))
    return _labelled(X, lists, parts, columns.labels, path, one_each)


def read_again(
    reading: Reading,
    model: Path,
    data: Path | None,
    known: TextParts,
    corrected: Documents,
    *,
    one_each: bool,
    kept: KeptDocuments | None,
) -> tuple[Dataset, TextParts, LabelLists]:
    """Return the documents of a model with those that were corrected, as `read_training` does.

    They are those in its folder, unless `data` names others. Documents that were corrected take the place of those with
    the same id, or come after all others.
    """
    path = model / DOCUMENTS if data is None else data
    if data is None and not path.exists():
        fix = "Pass the documents that it was trained on: --data FILE."
        raise DataError("the model folder does not hold its documents", path=model, fix=fix)
    encoder, weights = unfitted_encoder(known.encoder), field_weights(known.encoder, len(known.fields))
    vocabulary, columns, names = known.vocabulary, known.columns, dict[str, str]()
    with ExitStack() as stack:
        stack.enter_context(Bar(f"reading {path.name}"))
        if data is None:
            stream = read_kept(path, len(known.fields))
        else:
            file = stack.enter_context(opened(reading, path, known, "train", labelled=True))
            say(f"{path}: {file.columns.said(file.kind)}")
            stream, names = file.documents, file.names
        X, lists = _encoded(_merged(stream, corrected, path), encoder, weights, kept)
    _say_encoder(encoder, X)
    if reading.vocabulary is not None:
        new = read_vocabulary(reading.vocabulary, getattr(encoder, "language_", None))
        vocabulary = known.vocabulary.updated(new)
        # Labels of the model keep their URIs, whatever the new vocabulary calls them.
        lists = lists.renamed(lambda given: known.vocabulary.translated(given, vocabulary))
        say(f"{reading.vocabulary}: {new.compared(vocabulary.named([lists.names]))}")
    vocabulary = vocabulary.with_names(corrected.names).with_names(names)
    parts = TextParts(encoder, vocabulary, known.fields, columns)
    return _labelled(X, lists, parts, columns.get("labels"), path, one_each)


def _encoded(
    documents: Iterable[Document], encoder: Encoder, weights: Sequence[float], kept: KeptDocuments | None
) -> tuple[sparse.csr_array, LabelLists]:
    """Fit an encoder to documents; return their rows and their labels."""
    coder, ids, n_empty = LabelCoder(), IdCounter(), 0

    def texts() -> Iterator[Sequence[str]]:
        nonlocal n_empty
        for document in documents:
            n_empty += _is_empty(document.texts)
            coder.add(document.labels)
            ids.add([document.id] if document.has_id else [])
            if kept is not None:
                kept.add(document)
            yield document.texts

    X = encoder.fit_transform(texts(), weights)
    _say_repeated(*ids.repeated(), "each document counts")
    _say_empty(n_empty)
    return X, coder.finish()


def _labelled(
    X: sparse.csr_array, lists: LabelLists, text: TextParts, column: str | None, path: Path, one_each: bool
) -> tuple[Dataset, TextParts, LabelLists]:
    """Return rows with their labels by name."""
    named = lists.renamed(text.vocabulary.name_of)
    _require_labels(named.counts, column, path, one_each)
    names = sorted(named.names)
    Y = named.positives(names)
    features = text.encoder.feature_names()
    text = replace(text, vocabulary=text.vocabulary.of(names))
    return Dataset(X, Y, Names(names), None if features is None else Names(features), trusted=True), text, named


def _merged(documents: Iterable[Document], corrected: Documents, path: Path) -> Iterator[Document]:
    """Yield documents, with those that were corrected in the place of those with the same id."""
    new = _each(corrected)
    by_id = {one.id: one for one in new if one.has_id}
    done = set[str]()
    for document in documents:
        if not document.has_id or document.id not in by_id:
            yield document
            continue
        if document.id in done:
            found = f"the id {document.id!r}, which a correction has, occurs more than once"
            raise DataError(found, path=path, expected="one document to correct", fix="Give each document its own id.")
        done.add(document.id)
        yield by_id[document.id]
    left = [one for one in new if not (one.has_id and one.id in done)]
    was = "was corrected by its id" if len(done) == 1 else "were corrected by their ids"
    say(f"{counted(len(done), 'document')} {was}, {len(left):,} {'is' if len(left) == 1 else 'are'} new")
    yield from left


def _each(documents: Documents) -> list[Document]:
    labels = documents.labels or [[] for _ in documents.texts]
    has_id = documents.has_id or [True] * len(documents)
    return [Document(*one) for one in zip(documents.texts, labels, documents.ids, has_id, strict=True)]


def read_corrections(text: TextParts, reading: Reading, path: Path) -> Documents:
    """Read corrected documents; if several have the same id, the last one counts, with a message.

    A correction without labels says that none of them holds.
    """
    found = read_for(text, reading, path, "train", may_have_none=True)
    every = _each(found)
    ids = IdCounter()
    ids.add(one.id for one in every if one.has_id)
    _say_repeated(*ids.repeated(), "the last correction of each counts")
    kept = list({(one.id if one.has_id else place): one for place, one in enumerate(every)}.values())
    return replace(
        found,
        texts=[one.texts for one in kept],
        labels=[one.labels for one in kept],
        ids=[one.id for one in kept],
        has_id=[one.has_id for one in kept],
    )


def _say_repeated(n: int, first: str, what: str) -> None:
    if n:
        say(f"{counted(n, 'id')} {'occurs' if n == 1 else 'occur'} more than once, such as {first!r}; {what}")


def _is_empty(texts: Sequence[str]) -> bool:
    return not any(text and not text.isspace() for text in texts)


def _say_empty(n: int) -> None:
    """Say how many documents have no text: in lines of JSON, theirs may be in another column."""
    if n:
        say(f"{counted(n, 'document')} {'has' if n == 1 else 'have'} no text")


def _saved(columns: dict[str, Any]) -> dict[str, Any]:
    return {"labels": columns["labels"], "label_sep": columns["separator"], "id": columns["id"]}


def _say_encoder(encoder: Encoder, X: sparse.csr_array) -> None:
    say(f"{counted(X.shape[0], 'document')}, {counted(X.shape[1], 'feature')}: {described_encoder(encoder)}")
    require_features(X)


def _require_labels(counts: NDArray[np.int32], column: str | None, path: Path, one_each: bool) -> None:
    n_empty = int(np.count_nonzero(counts == 0))
    if n_empty == counts.size:
        raise no_labels(column, path)
    if n_empty:
        has, count = ("has", "it counts as one") if n_empty == 1 else ("have", "they count as documents")
        say(f"{counted(n_empty, 'document')} {has} no labels; {count} with none of the labels")
    if one_each and (counts != 1).any():
        bad = int(np.argmax(counts != 1))
        found = f"document {bad + 1} has {counts[bad]} labels"
        raise DataError(found, path=path, expected="one class per document", fix="Use --method auto.")


def _positives(lists: list[list[str]], columns: dict[str, int], n_labels: int) -> sparse.csr_array:
    rows = [sorted(columns[label] for label in own) for own in lists]
    counts = np.array([len(own) for own in rows], np.int64)
    return from_counts(counts, np.array([label for own in rows for label in own], np.int32), None, n_labels)


@contextmanager
def opened(
    reading: Reading, path: Path, known: TextParts | None, part: str, *, labelled: bool | None
) -> Iterator[DocumentFile]:
    """Open documents as the options say; where they say nothing, use the training file's columns."""
    text = None if reading.text is None else [name.strip() for name in reading.text.split(",")]
    wanted = Wanted(text, reading.labels, reading.label_sep, reading.id)
    usual = None if known is None else Wanted(known.fields, **known.columns)
    with open_documents(path, wanted, usual, encoding=reading.encoding, part=part, labelled=labelled) as file:
        if known is not None and len(file.columns.texts) > len(known.fields):
            found = f"text from {' + '.join(file.columns.texts)}"
            fix = f"Name {counted(len(known.fields), 'column')}: --text COLUMN."
            raise DataError(found, path=path, expected=f"fields {', '.join(known.fields)} as in training", fix=fix)
        yield file


def describe_documents(reading: Reading, path: Path) -> dict[str, dict[str, Any]]:
    """Return what a file of documents holds, or each split of a folder, reading it as a stream."""
    parts = [part for part in ("train", "test") if path.is_dir() and split_of(path, part)] or ["all"]
    found = {}
    for part in parts:
        n, n_letters, n_empty, n_bare, sample = 0, 0, 0, 0, list[str]()
        counts, ids = Counter[str](), IdCounter()
        with Bar(f"reading {path.name}"), opened(reading, path, None, part, labelled=False) as file:
            for texts, labels, identifier, has_id in file.documents:
                ids.add([identifier] if has_id else [])
                n, n_letters = n + 1, n_letters + sum(map(len, texts))
                n_empty, n_bare = n_empty + (not "".join(texts).strip()), n_bare + (not labels)
                counts.update(labels)
                if len(sample) < _SAMPLE:
                    sample.extend(texts)
        found[part] = {
            "read as": file.columns.said(file.kind),
            "documents": n,
            "letters per document": n_letters / n,
            "documents without text": n_empty,
            "documents without labels": n_bare,
            "ids that occur more than once": ids.repeated()[0],
            "labels": len(counts),
            "labels per document": counts.total() / n,
            "labels seen once": sum(count == 1 for count in counts.values()),
            "most frequent labels": ", ".join(f"{name} ({count})" for name, count in counts.most_common(5)),
            "language": detect_language(sample),
        }
    return found


def read_for(
    text: TextParts,
    reading: Reading,
    path: Path,
    part: str = "test",
    labelled: bool = True,
    may_have_none: bool = False,
) -> Documents:
    """Read documents for a model into memory; unless they `may_have_none`, some must have labels where `labelled`."""
    with Bar(f"reading {path.name}"), opened(reading, path, text, part, labelled=labelled) as file:
        documents = file.gathered()
    say(f"{path}: {documents.guessed}")
    if labelled and not may_have_none and not any(documents.labels or []):
        raise no_labels(file.columns.labels, path)
    if reading.vocabulary is not None and documents.labels is not None:
        documents = replace(documents, labels=_translated(documents.labels, text, reading.vocabulary))
    return documents


def _translated(lists: list[list[str]], text: TextParts, path: Path) -> list[list[str]]:
    """Return labels that are given as a vocabulary has them as the model knows them."""
    known = read_vocabulary(path, getattr(text.encoder, "language_", None)).for_numbers(lists)
    return [[known.translated(one, text.vocabulary) for one in own] for own in lists]


def read_rows(
    names: Sequence[str], text: TextParts, reading: Reading, path: Path, part: str = "test", labelled: bool = True
) -> Dataset:
    """Read documents as rows of a model with these labels: as a stream, texts are forgotten once they are rows."""
    lists: list[list[str]] = []
    n_empty = 0

    def texts(documents: Iterable[Document]) -> Iterator[Sequence[str]]:
        nonlocal n_empty
        for document in documents:
            n_empty += _is_empty(document.texts)
            lists.append(document.labels)
            yield document.texts

    with Bar(f"reading {path.name}"), opened(reading, path, text, part, labelled=labelled) as file:
        X = text.rows(texts(file.documents))
    say(f"{path}: {file.columns.said(file.kind)}")
    _say_empty(n_empty)
    if labelled and not any(lists):
        raise no_labels(file.columns.labels, path)
    if reading.vocabulary is not None:
        lists = _translated(lists, text, reading.vocabulary)
    return _aligned(names, text, X, lists, path)


def encoded(names: Sequence[str], text: TextParts, documents: Documents, path: Path) -> Dataset:
    """Return documents as rows of a model with these labels; others come after them, and are said."""
    lists = documents.labels or [[] for _ in documents.texts]
    return _aligned(names, text, text.rows(documents.texts), lists, path)


def _aligned(names: Sequence[str], text: TextParts, X: sparse.csr_array, lists: list[list[str]], path: Path) -> Dataset:
    """Return rows with labels in the columns of these names, by what the model calls them."""
    lists = text.vocabulary.named(lists)
    columns = {name: column for column, name in enumerate(names)}
    unseen = sorted({label for own in lists for label in own} - set(names))
    if unseen:
        n = sum(label not in columns for own in lists for label in own)
        some = ", ".join(map(repr, unseen[:3])) + (", …" if len(unseen) > 3 else "")
        was = (
            f"was not in the training data: {some}; it counts"
            if len(unseen) == 1
            else (f"were not in the training data: {some}; they count")
        )
        say(f"{path}: {counted(len(unseen), 'label')} ({counted(n, 'occurrence')}) {was} as missed")
    columns |= {name: len(names) + place for place, name in enumerate(unseen)}
    Y = _positives(lists, columns, len(columns))
    return Dataset(X, Y, Names([*names, *unseen]), trusted=True)


@reads_files(documents=True)
def tag(
    reading: Reading,
    model: Annotated[Path, typer.Argument(help="The folder of a model.")],
    documents: Annotated[
        Path, typer.Argument(help="Documents in any format that train reads, or - for stdin; rows for a model of rows.")
    ],
    out: Annotated[Path | None, typer.Option("--out", help="A file; .gz is compressed. Default: stdout.")] = None,
    format: Annotated[
        Literal["jsonl", "csv"] | None, typer.Option("--format", help="Default: from the name of --out, or jsonl.")
    ] = None,
    k: Annotated[int | None, typer.Option("-k", min=1, help="The most tags per document. Default: 5.")] = None,
    threshold: Annotated[
        float | None, typer.Option("--threshold", min=0, max=1, help="Least probability of a tag. Default: 0.")
    ] = None,
    review: Annotated[
        float | None,
        typer.Option("--review", min=0, max=1, help="Uncertainty from which a person should look. Default: 0.5."),
    ] = None,
    precision: Annotated[
        float | None, typer.Option("--precision", help="Promise that this share of all tags is right, such as 0.95.")
    ] = None,
    recall: Annotated[
        float | None, typer.Option("--recall", help="Promise that tags include this share of a document's labels.")
    ] = None,
    review_rate: Annotated[
        float | None, typer.Option("--review-rate", help="Leave at most this share of documents to a person.")
    ] = None,
    max_tags: Annotated[
        int | None,
        typer.Option("--max-tags", min=1, help="The most tags per document, with the precision that this promises."),
    ] = None,
    f1: Annotated[bool, typer.Option("--f1", help="A threshold for each label, with the best F1.")] = False,
    confidence: Annotated[
        float | None,
        typer.Option("--confidence", help="How sure a promise is to be; see docs/DECIDE.md. Default: 0.95."),
    ] = None,
    search: Search = "auto",
    device: Device = "auto",
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an older file.")] = False,
) -> None:
    """Tag documents or rows: a line {"id", "tags": [{"label", "uri", "probability"}], "uncertainty", "review"} each.

    With --precision, --recall, --review-rate, --max-tags or --f1, documents held out in training decide which tags to
    give and which documents to leave to a person, and the promise is printed. Rows have their numbers, from 1, as ids.

    Example: labelfield tag model new.csv --precision 0.95 --out tags.jsonl
    """
    aims = {"precision": precision, "recall": recall, "review_rate": review_rate, "max_tags": max_tags, "f1": f1}
    aims = {name: value for name, value in aims.items() if value is not None and value is not False}
    if not aims and confidence is not None:
        raise typer.BadParameter("--confidence is that of a promise; ask for one, such as --precision 0.95")
    if aims and search == "index":
        raise typer.BadParameter("promises are about lists of all labels; drop --search index")
    if aims and any(value is not None for value in (k, threshold, review)):
        raise typer.BadParameter(
            "-k, --threshold and --review cannot be combined with a promise; use --max-tags to limit its tags"
        )
    out = None if out == Path(STDIN) else out  # as in other tools, the sign of stdin is that of stdout
    if out is not None:
        require_file_name(out, overwrite)
        suffix = Path(out.name.removesuffix(".gz")).suffix.lower()
        if format is None and suffix not in _SUFFIXES:
            raise typer.BadParameter(f"--out {out}: name it .jsonl or .csv, or pass --format jsonl or csv")
    started = time.perf_counter()
    estimator = _load_tagger(model, device, reading.trust, is_light=not aims and search != "index")
    is_csv = format == "csv" or (format is None and out is not None and ".csv" in out.suffixes)
    rule: Question | Policy = Question(k or 5, threshold or 0.0, review=0.5 if review is None else review)
    if aims:
        rule = _promised(estimator, aims | {"confidence": 0.95 if confidence is None else confidence})
    n, n_empty, ids, n_review, names = 0, 0, IdCounter(), 0, tag_names(estimator)
    with _rows_to_tag(estimator, reading, documents) as (said, batches), _writing(out) as target:
        say(f"{documents}: {said}")
        write, separator = csv.writer(target, lineterminator="\n").writerow, _separator(names) if is_csv else "|"
        if separator != "|":
            say(f"tags are joined by {separator!r}, because a label has |")
        if is_csv:
            write(["id", "tags", "uris", "probabilities", "uncertainty", "review"])
        for own in batches:
            for identifier, line in zip(own.ids, _tagged(estimator, own.rows, rule, names, search), strict=True):
                n_review += line["review"]
                found = {"id": identifier, **line}
                write(_cells(found, separator)) if is_csv else target.write(as_json_text(found) + "\n")
            n, n_empty = n + len(own.ids), n_empty + own.n_empty
            ids.add(one for one, is_given in zip(own.ids, own.has_id, strict=True) if is_given)
    _say_repeated(*ids.repeated(), "each document has its own line")
    _say_empty(n_empty)
    where = "" if out is None else f" to {out}"
    left = f"; {n_review:,} for a person to see" if aims else ""
    kind = "row" if estimator.text_ is None else "document"
    say(f"tagged {counted(n, kind)}{where} in {time.perf_counter() - started:.1f} s{left}")


def _promised(estimator: Any, asked: dict[str, Any]) -> Policy:
    """Fit the policy that was asked for, and say what it promises and what it did on held-out documents."""
    try:
        policy: Policy = estimator.policy(**asked)
    except CannotAnswerError:
        raise
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    say(policy.guarantee)
    say(policy.said())
    return policy


def _load_tagger(model: Path, device: str, trust: bool, *, is_light: bool) -> FittedClassifier | LightModel:
    """Load a model for tagging: in NumPy alone where that can be, since importing the estimators takes seconds."""
    from labelfield.light.model import load_light

    light = load_light(model) if is_light and device != "cuda" else None
    if light is not None:
        return light
    return load_model(model, device, trust)


class _Batch(NamedTuple):
    """Some rows to tag, their ids, which of these were given, and how many documents have no text."""

    ids: Sequence[str]
    has_id: Sequence[bool]
    rows: sparse.csr_array
    n_empty: int = 0


@contextmanager
def _rows_to_tag(
    tagger: FittedClassifier | LightModel, reading: Reading, path: Path
) -> Iterator[tuple[str, Iterator[_Batch]]]:
    """Open documents, or rows for a model of rows: say how they were read, and yield them in batches."""
    text = tagger.text_
    if text is None:
        X = reading.for_model(cast("FittedClassifier", tagger), path, labelled=False).X
        starts = range(0, X.shape[0], _ROWS_AT_ONCE)
        places = (range(start, min(start + _ROWS_AT_ONCE, X.shape[0])) for start in starts)
        ids = ((own, [str(1 + place) for place in own]) for own in places)
        some = (_Batch(named, [False] * len(named), X[own.start : own.stop]) for own, named in ids)
        yield f"{counted(X.shape[0], 'row')}", some
        return
    with opened(reading, path, text, "test", labelled=None) as file:

        def batches() -> Iterator[_Batch]:
            for own in file.batches():
                n_empty = sum(map(_is_empty, own.texts))
                yield _Batch(own.ids, own.has_id or [False] * len(own), text.rows(own.texts), n_empty)

        yield file.columns.said(file.kind), batches()


def _tagged(
    tagger: FittedClassifier | LightModel, rows: sparse.csr_array, rule: Question | Policy, names: TagNames, search: str
) -> list[dict[str, Any]]:
    """Return the tags of each row: by numbers, or by a policy with a promise."""
    if isinstance(rule, Question):
        return ranked_lines(tagger, rows, [rule] * rows.shape[0], names, search)
    return promised_lines(tagger, rows, rule, names)


def _separator(names: TagNames) -> str:
    """Return what joins tags in a cell: a sign that is in none of them; labels have no tabs."""
    known = [*names.names, *(uri for uri in names.uris if uri is not None)]
    return next(sign for sign in "|;\t" if sign == "\t" or not any(sign in name for name in known))


def _cells(line: dict[str, Any], separator: str) -> list[Any]:
    keys = ("label", "uri", "probability")
    labels, uris, p = (separator.join(str(tag[key] or "") for tag in line["tags"]) for key in keys)
    return [
        line["id"],
        labels,
        uris if uris.strip(separator) else "",
        p,
        line["uncertainty"],
        "yes" if line["review"] else "no",
    ]


@contextmanager
def _writing(out: Path | None) -> Iterator[IO[str]]:
    """Open stdout, or a file that appears when it is complete."""
    if out is None:
        yield sys.stdout
        return
    with replacing_file(out) as new, open_for_writing(new, out.name) as file:
        text = io.TextIOWrapper(file, "utf-8", newline="", write_through=True)
        yield text
        text.detach()
