"""Documents: texts, labels and ids, taken from the columns of records that hold them."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import isnan
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

from labelfield.errors import DataError
from labelfield.text.sources import Record

# Usual names of columns, the most certain first.
_TEXTS = (
    *("text", "abstract", "body", "content", "contents", "document", "description", "article", "sentence"),
    *("review", "comment", "question", "message", "summary", "fulltext", "full_text", "plot", "excerpt"),
)
_TITLES = ("title", "headline", "heading", "name")
# How much a word of a title counts beside one of the text: chosen on held-out training documents (docs/LAB.md).
_TITLE_WEIGHT = 4.0
_LABELS = (
    *("labels", "label", "tags", "tag", "subjects", "subject_uris", "subject", "categories", "category", "cats"),
    *("classes", "class", "keywords", "topics", "topic", "genres", "genre", "target", "targets", "target_ind", "y"),
)
_IDS = ("id", "document_id", "doc_id", "docid", "uid", "_id", "identifier", "key", "uuid")
USUAL_TEXTS = frozenset(_TEXTS)
USUAL_NAMES = frozenset((*_TEXTS, *_TITLES, *_LABELS, *_IDS))
# Separators of labels in one cell. The first are hardly ever part of a label; the others may be.
_CERTAIN, _POSSIBLE = ("|", ";", "\t"), (",", "#")
_URIS = re.compile(r"<?[a-z][a-z0-9+.-]*://\S+>?(\s+<?[a-z][a-z0-9+.-]*://\S+>?)*", re.IGNORECASE)
# Cells that show a separator in a long file.
_SEVERAL = 3
# In how many different cells each part of them is on average, where they are lists of labels.
_RECURRENCE = 1.5
_SURROGATES = re.compile("[\ud800-\udfff]")
_URI = re.compile(r"<[A-Za-z][\w+.-]*:[^<>\s]*>")
# What is matched once is not tried again: a cell of megabytes is read in one go.
_STRING = re.compile(r"""'(?:[^'\\]|\\.)*+'|"(?:[^"\\]|\\.)*+\"""", re.DOTALL)
_LIST = re.compile(rf"\[\s*+(?:(?:{_STRING.pattern})\s*+,?\s*+)*+\]", re.DOTALL)
_LISTED = 8
# Letters of a column's name that a message shows.
_LONGEST_NAME = 40
# What messages call values that are neither text nor numbers.
_KINDS = {dict: "an object", list: "a list", bytes: "bytes"}
# The least probability of a label in spaCy's {label: number}.
_HOLDS = 0.5


@dataclass(frozen=True)
class Documents:
    """Documents in memory: a text for each field, a list of labels, and an id, for each document.

    `fields` are the names of the columns that texts came from. Labels are as the file has them, names or URIs; None if
    it has no column of labels. The id of a document without one is its line number, and its `has_id` is False (None:
    all have one). `guessed` says which columns were taken; `names` are those that the file gives for URIs of labels.
    """

    texts: list[tuple[str, ...]]
    labels: list[list[str]] | None
    ids: list[str]
    fields: tuple[str, ...] = ("text",)
    guessed: str = field(default="", compare=False)
    has_id: list[bool] | None = None
    names: dict[str, str] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.texts)

    def in_fields(self, fields: Sequence[str]) -> list[tuple[str, ...]]:
        """Return the texts as the fields of a model, in their order; those that these documents lack are empty."""
        order = by_field(self.fields, fields)
        if order == tuple(self.fields):
            return self.texts
        places = [self.fields.index(name) if name in self.fields else None for name in order]
        return [tuple("" if place is None else own[place] for place in places) for own in self.texts]


def write_documents(path: Path, texts: Sequence[Sequence[str]], labels: Sequence[Sequence[str]], first_id: int) -> None:
    """Write documents of a title and a text as CSV, with ids from a number on, and labels joined by |."""
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "title", "text", "labels"])
        writer.writerows(
            [i, *text, "|".join(own)] for i, (text, own) in enumerate(zip(texts, labels, strict=True), first_id)
        )


def usual_weights(fields: Sequence[str]) -> tuple[float, ...]:
    """Return how much words of each field count: those of a title more than those of the text that it is about."""
    is_title = [name.strip().lower() in _TITLES for name in fields]
    return tuple(_TITLE_WEIGHT if own and not all(is_title) else 1.0 for own in is_title)


class Document(NamedTuple):
    """A document of a file; without an id of its own, its id is the number of its line."""

    texts: tuple[str, ...]
    labels: list[str]
    id: str
    has_id: bool


class Columns(NamedTuple):
    """Which columns hold texts, labels and the id, and how labels are joined in one cell.

    Of the `texts`, those that are `missing` in the file are left empty.
    """

    texts: tuple[str, ...]
    labels: str | None
    id: str | None
    separator: str | None
    missing: tuple[str, ...] = ()

    def said(self, kind: str) -> str:
        """Describe the columns in words."""
        parts = [f"text from {' + '.join(_in_line(name) for name in self.texts if name not in self.missing)}"]
        if self.missing:
            parts[0] += f" ({', '.join(map(_in_line, self.missing))} left empty)"
        if self.labels is not None:
            joined = "" if not self.separator else f" split at {self.separator!r}"
            parts.append(f"labels from {_in_line(self.labels)}{joined}")
        if self.id is not None:
            parts.append(f"ids from {_in_line(self.id)}")
        return f"{kind}: {', '.join(parts)}"


def _in_line(name: str) -> str:
    """Return the name of a column as a message can show it: in one line, and not at any length."""
    name = " ".join(name.split())
    return name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 1]}…"


def by_field(own: Sequence[str], fields: Sequence[str]) -> tuple[str, ...]:
    """Return the column that each field of a model is: that of its name, and columns of other names as the last fields.

    Fields that are left keep their names. More columns than fields stay as they are.
    """
    others, left = [name for name in own if name not in fields], [name for name in fields if name not in own]
    if len(others) > len(left):
        return tuple(own)
    column = dict(zip(left[len(left) - len(others) :], others, strict=True))
    return tuple(column.get(name, name) for name in fields)


def usual_text(names: Sequence[str], taken: Sequence[str | None]) -> str | None:
    """Return the column that is most certainly text by its name."""
    known = {name.strip().lower(): name for name in reversed(names) if name not in taken}
    return next((known[name] for name in _TEXTS if name in known), None)


class Wanted(NamedTuple):
    """The columns that the user named; None means guess."""

    text: Sequence[str] | None = None
    labels: str | None = None
    label_sep: str | None = None
    id: str | None = None


def choose_columns(
    names: list[str], sample: list[dict[str, Any]], wanted: Wanted, *, labelled: bool, path: Path
) -> Columns:
    """Decide which columns hold what, by what the user said, usual names, and how the first records look."""
    known = {name.strip().lower(): name for name in reversed(names)}

    def find(asked: str, option: str) -> str:
        if asked in names:
            return asked
        if asked.strip().lower() in known:
            return known[asked.strip().lower()]
        if asked.isdecimal() and int(asked) < len(names):
            return names[int(asked)]
        raise DataError(
            f"there is no column {asked!r}", path=path, expected=f"one of {_listed(names)}", fix=f"Correct {option}."
        )

    def usual(candidates: Sequence[str], taken: Sequence[str | None] = ()) -> str | None:
        return next((known[name] for name in candidates if name in known and known[name] not in taken), None)

    texts = None if wanted.text is None else tuple(find(one, "--text") for one in wanted.text)
    labels = None if wanted.labels is None else find(wanted.labels, "--labels")
    identifier = None if wanted.id is None else find(wanted.id, "--id")
    if texts is not None and labels in texts:
        found = f"column {labels!r} is both text and labels"
        raise DataError(found, path=path, expected="different columns", fix="Correct --text or --labels.")
    if texts is None:
        first, body = usual(_TITLES, (labels, identifier)), usual(_TEXTS, (labels, identifier))
        texts = tuple(name for name in (first if first != body else None, body) if name is not None)
        if first is not None and body is None and first == known.get("name"):
            texts = ()  # a name alone is no text
    labels = labels or usual(_LABELS, texts)
    identifier = identifier or usual(_IDS, (*texts, labels))
    if not texts:
        longest = _longest(names, sample, (labels, identifier))
        if longest is None:
            expected, fix = "a column of text", "Name it: --text COLUMN (text=…)."
            found = f"none of the columns {_listed(names)} is text" if names else "there are no columns"
            raise DataError(found, path=path, expected=expected, fix=fix)
        texts = (longest,)
    if labels is None and labelled:
        others = [name for name in names if name not in (*texts, identifier)]
        if not others:
            fix = "Add a column of labels, or write lines such as `__label__music text`."
            raise DataError("documents without labels", path=path, expected="labels to learn or to compare", fix=fix)
        if len(others) != 1:
            fix = f"Name it: --labels COLUMN (labels=…); there are {_listed(names)}."
            raise DataError("no column of labels is known by its name", path=path, expected="labels or tags", fix=fix)
        labels = others[0]
    separator = wanted.label_sep
    if labels is not None and separator is None:
        separator = guess_separator([value for record in sample if isinstance(value := record.get(labels), str)])
    return Columns(texts, labels, identifier, separator)


def no_labels(column: str | None, path: str | PathLike[str]) -> DataError:
    """Return the error of documents that all have an empty cell of labels."""
    found = f"column {column!r} has no labels in any document"
    return DataError(found, path=path, expected="labels", fix="Name the right one: --labels COLUMN (labels=…).")


def _listed(names: Sequence[str]) -> str:
    return ", ".join(map(_in_line, names[:_LISTED])) + (
        f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    )


def _longest(names: list[str], sample: list[dict[str, Any]], taken: Sequence[str | None]) -> str | None:
    """Return the column with the longest texts, if these have several words."""
    best, most = None, 0
    for name in names:
        values = [record.get(name) for record in sample]
        texts = [value for value in values if isinstance(value, str)]
        has_words = 2 * sum(" " in text.strip() or not text.isascii() for text in texts) > len(sample)
        if name not in taken and has_words and (size := sum(map(len, texts))) > most:
            best, most = name, size
    return best


def guess_separator(values: list[str], remembered: str | None = None) -> str | None:
    """Guess how labels are joined in cells: by what makes labels that occur again; None if they are not.

    One that is `remembered` from another file is taken if it occurs here, or if nothing else joins labels here.
    """
    values = [value.strip() for value in values if value.strip() and not value.strip().startswith(("[", "{"))]
    if values and all(_URIS.fullmatch(value) for value in values):
        return " "
    guessed = _most_repeating(values)
    if remembered is None or guessed is None:
        return remembered or guessed
    # A comma may be part of a label where a bar joins them.
    occurs = any(remembered in value for value in values) and not (guessed in _CERTAIN and remembered not in _CERTAIN)
    return remembered if occurs else guessed


def _most_repeating(values: list[str]) -> str | None:
    """Return the separator whose parts repeat most, of those in several cells, else of those that make labels.

    Several are three that differ, or all. One stray separator in a long file is part of a label, or a mistake.
    """
    distinct = set(values)
    common, possible = dict[str, float](), dict[str, float]()
    for separator in (*_CERTAIN, *_POSSIBLE):
        n_joined = sum(separator in value for value in distinct)
        parts = [part for value in values for part in _parts(value, separator)]
        if not n_joined or not parts or (separator in _POSSIBLE and len(parts) <= len(values)):  # as in C#
            continue
        repeats = len(parts) / len(set(parts))
        if separator in _CERTAIN and n_joined >= min(_SEVERAL, len(distinct), -(-len(values) // 10)):
            common[separator] = repeats
        elif _make_labels([_parts(value, separator) for value in distinct]):
            possible[separator] = repeats
    found = common or possible
    return max(found, key=lambda separator: found[separator]) if found else None


def _parts(value: str, separator: str) -> list[str]:
    return [part.strip() for part in value.split(separator) if part.strip()]


def _make_labels(cells: list[list[str]]) -> bool:
    """Return whether the parts of different cells are labels: no more than cells, or many of them in several cells.

    The latter counts only where cells have different numbers of parts, as lists of labels do, and places such as
    "Turku, Finland" do not.
    """
    lengths = [len(set(parts)) for parts in cells]
    n_labels = len({part for parts in cells for part in parts})
    return n_labels <= len(cells) or (len(set(lengths)) > 1 and sum(lengths) >= _RECURRENCE * n_labels)


def documents_of(
    records: Iterator[Record], columns: Columns, path: Path, unit: str, names: dict[str, str]
) -> Iterator[Document]:
    """Yield the document of each record; what cannot be read is an error with its row and column.

    Names that records give for URIs of labels are put into `names`.
    """
    for number, record in records:
        texts = tuple(_text(record.get(name), name, path, number, unit) for name in columns.texts)
        labels = []
        if columns.labels is not None:
            labels = _labels(record.get(columns.labels), columns, path, number, unit, names)
        identifier = None if columns.id is None else _known(record.get(columns.id))
        has_id = identifier is not None and str(identifier).strip() != ""
        yield Document(texts, labels, whole(str(identifier if has_id else number)), has_id)


def _known(value: Any) -> Any:
    """Return a value; None for one that is not a number, and an integer for 2.0, which tables make of it."""
    if not isinstance(value, float):
        return value
    return None if isnan(value) else int(value) if value.is_integer() else value


def whole(text: str) -> str:
    """Return a text that can be written: halves of surrogate pairs, which JSON may have, are replaced."""
    return text if text.isascii() else _SURROGATES.sub("\ufffd", text)


def _text(value: Any, column: str, path: Path, number: int, unit: str) -> str:
    value = _known(value)
    if isinstance(value, str):
        return whole(value)
    if value is None:
        return ""
    if isinstance(value, list) and all(isinstance(part, str | None) for part in value):
        return whole("\n".join(part for part in value if part))
    if isinstance(value, dict | list | bytes):
        raise _bad(_KINDS[type(value)], column, "text", path, number, unit)
    return str(value)


def _labels(value: Any, columns: Columns, path: Path, number: int, unit: str, names: dict[str, str]) -> list[str]:
    """Return labels given as a list, an object of spaCy, or text, each once and without blanks around them."""
    column = columns.labels or ""
    if isinstance(value, str):
        text = value.strip()
        if text.startswith("[") and text.endswith("]") and columns.separator is None:
            try:
                value = json.loads(text)
            except (ValueError, RecursionError):
                value = _python_list(text)
        else:
            value = text.split(columns.separator) if columns.separator else [text]
    if (value := _known(value)) is None:
        return []
    if isinstance(value, dict):
        if not all(isinstance(part, int | float) for part in value.values()):
            raise _bad("an object", column, "{label: 0 or 1}, a list or text", path, number, unit)
        value = [label for label, part in value.items() if part >= _HOLDS]
    if not isinstance(value, list):
        value = [value]
    found = []
    for given in value:
        part = given.get("uri") or given.get("label") or given.get("name") if isinstance(given, dict) else given
        if isinstance(part, list | dict | bytes):
            raise _bad(f"{_KINDS[type(part)]} in the list", column, "names of labels", path, number, unit)
        found.append(_name(part))
        if isinstance(given, dict) and given.get("uri") and (name := _name(given.get("label") or given.get("name"))):
            names.setdefault(found[-1], name)
    return list(dict.fromkeys(name for name in found if name))


def _name(part: Any) -> str:
    """Return a label as one line; a URI may be in angle brackets."""
    part = _known(part)
    name = "" if part is None else " ".join(whole(str(part)).replace("\0", " ").split())
    return name[1:-1] if _URI.fullmatch(name) else name


def _python_list(text: str) -> list[str]:
    """Return the words of a list as Python or NumPy writes it, which pandas puts into CSV files, or without quotes."""
    if not _LIST.fullmatch(text):
        return [part.strip() for part in text[1:-1].split(",")]
    return [re.sub(r"\\(['\"\\])", r"\1", found[1:-1]) for found in _STRING.findall(text)]


def _bad(found: str, column: str, expected: str, path: Path, number: int, unit: str) -> DataError:
    where = {"line": number} if unit == "line" else {}
    place = "" if unit == "line" else f"{unit} {number}, "
    return DataError(
        f"{place}column {column!r} has {found}", path=path, expected=expected, fix="Convert it first.", **where
    )
