"""Labels with a name, a URI and names in other languages; vocabularies of them, and reading these from files."""

from __future__ import annotations

import csv
import json
import logging
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

from labelfield.data.reading import read_bytes
from labelfield.errors import DataError
from labelfield.text.sources import located, numbered_lines, open_text

_SKOS = {".ttl": "turtle", ".rdf": "xml", ".xml": "xml", ".owl": "xml", ".nt": "nt", ".n3": "n3", ".jsonld": "json-ld"}
_BESIDE = tuple(f"vocabulary{suffix}" for suffix in (".tsv", ".csv", *_SKOS, ".jsonl"))
_SHOWN = 3


class Label(NamedTuple):
    """A label: what it is called, its URI if it has one, its names by language, and its notation."""

    name: str
    uri: str | None = None
    names: dict[str, str] = {}  # noqa: RUF012  # never changed
    notation: str | None = None


class LabelVocabulary:
    """Labels by URI, by name in any language, and by number.

    `name_of` gives what a label of a document is called; one that is not in the vocabulary keeps its name. Whether é is
    written as one character or, as some systems do, as two, makes no difference.
    """

    def __init__(self, labels: Iterable[Label] = ()) -> None:
        self.labels = _distinct(labels)
        self.by_uri = {label.uri: label for label in self.labels if label.uri is not None}
        self.by_name: dict[str, Label] = {}
        for label in self.labels:
            for name in (*label.names.values(), *([label.notation] if label.notation else [])):
                self.by_name.setdefault(_composed(name), label)
        self.by_name |= {name: label for label in self.labels for name in (_composed(label.name), label.name)}

    def __len__(self) -> int:
        return len(self.labels)

    def find(self, given: str) -> Label | None:
        """Return the label that has this URI, name or notation."""
        return self.by_uri.get(given) or self.by_name.get(given) or self.by_name.get(_composed(given))

    def name_of(self, given: str) -> str:
        """Return what a label is called that a document gives by its URI, or by its name in any language."""
        found = self.find(given)
        return _composed(given) if found is None else found.name

    def translated(self, given: str, other: LabelVocabulary) -> str:
        """Return what finds a label of this vocabulary in another: its URI, if that has it, or else its name here."""
        found = self.find(given)
        if found is None:
            return given
        return found.uri if found.uri is not None and found.uri in other.by_uri else found.name

    def updated(self, new: LabelVocabulary) -> LabelVocabulary:
        """Return a new vocabulary with the labels that only this one has: labels are the same if their URIs are."""
        return LabelVocabulary([*new.labels, *(label for label in self.labels if label.uri not in new.by_uri)])

    def for_numbers(self, lists: Sequence[Sequence[str]]) -> LabelVocabulary:
        """Return the vocabulary with numbers from 0 as notations, if documents give all labels so, as PECOS does.

        A model keeps the notations of its labels, so that it knows the numbers of other documents too.
        """
        are_numbers = all(one.isdecimal() for own in lists for one in own)
        if not are_numbers or any(self.find(one) for own in lists for one in own):
            return self
        return LabelVocabulary(label._replace(notation=str(number)) for number, label in enumerate(self.labels))

    def named(self, lists: Sequence[Sequence[str]]) -> list[list[str]]:
        """Return the labels of documents by name, each once per document."""
        return [list(dict.fromkeys(map(self.name_of, own))) for own in lists]

    def compared(self, lists: Sequence[Sequence[str]]) -> str:
        """Say in a sentence which labels of documents (by name) are unknown, and how many entries are not used."""
        used = {one for own in lists for one in own}
        unknown = sorted(used - {label.name for label in self.labels})
        unused = len(self.labels) - (len(used) - len(unknown))
        parts = [f"a vocabulary of {len(self.labels):,} labels"]
        if unknown:
            more = f" and {len(unknown) - _SHOWN:,} more" if len(unknown) > _SHOWN else ""
            what = "label of documents is" if len(unknown) == 1 else "labels of documents are"
            parts.append(f"{len(unknown):,} {what} not in it ({', '.join(unknown[:_SHOWN])}{more})")
        if unused:
            parts.append(f"{unused:,} of its labels {'is' if unused == 1 else 'are'} not used")
        return "; ".join(parts)

    def of(self, names: Sequence[str]) -> LabelVocabulary:
        """Return the vocabulary of these names, in their order, as a model keeps it."""
        return LabelVocabulary(self.by_name.get(name) or Label(name, name if _is_uri(name) else None) for name in names)

    def with_names(self, names: dict[str, str]) -> LabelVocabulary:
        """Return the vocabulary with names of URIs that it does not have, as files of documents give them.

        A label of that name without a URI gets it.
        """
        new = {uri: name for uri, name in names.items() if uri not in self.by_uri}
        if not new:
            return self
        uris = {name: uri for uri, name in reversed(new.items())}
        old = [label if label.uri else label._replace(uri=uris.get(label.name)) for label in self.labels]
        taken = {label.uri for label in old}
        return LabelVocabulary([*old, *(Label(name, uri) for uri, name in new.items() if uri not in taken)])

    def to_lines(self) -> list[str]:
        """Return a line of JSON for each label."""
        lines = []
        for label in self.labels:
            described = {"name": label.name, "uri": label.uri, "names": label.names, "notation": label.notation}
            lines.append(json.dumps({key: part for key, part in described.items() if part}, ensure_ascii=False))
        return lines

    @classmethod
    def from_lines(cls, lines: Sequence[str]) -> LabelVocabulary:
        """Return the vocabulary of `to_lines`; raise a ValueError for anything else."""
        return cls(_from_json(json.loads(line)) for line in lines)

    @property
    def says_more(self) -> bool:
        """Whether any label has more than a name."""
        return any(label.uri or label.names or label.notation for label in self.labels)


def _from_json(value: Any) -> Label:
    if not isinstance(value, dict):
        raise ValueError("a label is not an object")
    name, uri, names, notation = (value.get(key) for key in ("name", "uri", "names", "notation"))
    name = name or value.get("label") or value.get("title")  # as other tools call it
    names = names or {}
    if not isinstance(name, str) or not all(isinstance(part, str | None) for part in (uri, notation)):
        raise ValueError("a label has no name")
    if not isinstance(names, dict) or not all(isinstance(part, str) for pair in names.items() for part in pair):
        raise ValueError(f"the names of {name!r} are not texts by language")
    if not (line := _line(name)):
        raise ValueError("a label has no name")
    return Label(line, _line(uri or "") or None, names, notation or None)


def _distinct(labels: Iterable[Label]) -> list[Label]:
    """Return labels of which no two have the same name: a name that is taken is followed by the URI."""
    found: dict[str, Label] = {}
    for label in labels:
        name = label.name
        if name in found and label.uri is not None and label.uri != found[name].uri:
            name = f"{name} <{label.uri}>"
        if name not in found:
            found[name] = label._replace(name=name)
    return list(found.values())


def _is_uri(name: str) -> bool:
    return "://" in name and name.partition("://")[0].isalnum() and " " not in name


def _line(text: str) -> str:
    return " ".join(text.replace("\0", " ").split())


def _composed(name: str) -> str:
    return unicodedata.normalize("NFC", name)


def vocabulary_beside(path: Path) -> Path | None:
    """Return the vocabulary that lies in a folder of documents, or beside a file of them."""
    folder = path if path.is_dir() else path.parent
    return next((folder / name for name in _BESIDE if (folder / name).is_file()), None)


def read_vocabulary(path: str | PathLike[str], language: str | None = None) -> LabelVocabulary:
    """Read labels: TSV `<uri>` TAB name TAB notation, CSV `uri,label_en,…,notation`, SKOS, JSON lines, or names alone.

    With a `language`, labels are called by their name in it where they have one. SKOS needs the package rdflib.
    """
    path = Path(path)
    if not path.is_file():
        raise DataError("there is no such vocabulary", path=path, fix="Check the path.")
    suffix = Path(path.name.removesuffix(".gz")).suffix.lower()
    try:
        if suffix in _SKOS:
            found = list(_read_skos(path, _SKOS[suffix], language))
        elif suffix == ".csv":
            found = list(_read_csv(path, language))
        else:
            found = _read_lines(path)
    except DataError as error:
        if error.expected != "UTF-8":
            raise
        # Options name the encoding of documents, not that of vocabularies.
        raise DataError(error.found, error.expected, "Save it as UTF-8.", path=path, line=error.line) from None
    if not found:
        raise DataError("the vocabulary has no labels", path=path, fix="Check the file.")
    return LabelVocabulary(found)


def _read_lines(path: Path) -> list[Label]:
    """Return a label per line. Where no label has a URI the number of the line counts (PECOS), so that empty lines and
    names that recur have labels too."""
    found = [_label_of(text, path, line) if _line(text) else None for line, text in numbered_lines(path)]
    while found and found[-1] is None:
        found.pop()
    if any(label is not None and label.uri is not None for label in found):
        return [label for label in found if label is not None]
    seen, labels = set[str](), list[Label]()
    for number, label in enumerate(found):
        own = Label(f"label {number}") if label is None else label
        if own.name in seen:
            own = own._replace(name=f"{own.name} <{number}>")
        seen.add(own.name)
        labels.append(own)
    return labels


def _label_of(text: str, path: Path, line: int) -> Label:
    if text.startswith("{"):
        try:
            return _from_json(json.loads(text))
        except (ValueError, RecursionError) as error:
            raise DataError(f"not a label ({error})", path=path, line=line) from None
    cells = [cell.strip() for cell in text.split("\t")]
    if len(cells) == 1 and not cells[0].startswith("<"):
        return Label(_line(cells[0]))
    uri = _line(cells[0].strip("<>"))
    if len(cells) < 2 or not uri:
        raise DataError(f"{text[:40]!r}", path=path, line=line, expected="<uri>, a tab, and a name")
    return Label(_line(cells[1]) or uri, uri, {}, cells[2] if len(cells) > 2 and cells[2] else None)


def _read_csv(path: Path, language: str | None) -> Iterator[Label]:
    header = next(numbered_lines(path), (1, ""))[1]
    with open_text(path, "utf-8") as file:
        reader = csv.DictReader(file, delimiter=max(",;\t", key=header.count))  # as spreadsheets of the country write
        lines = located(path, ((reader.line_num, row) for row in reader))
        first = next(lines, None)  # which reads the names of columns, too
        columns = {(name or "").strip().lower(): name for name in reader.fieldnames or []}
        named = {key.removeprefix("label").strip("_"): name for key, name in columns.items() if key.startswith("label")}
        if not named:
            expected, fix = "columns uri and label, or label_en", "Name the columns."
            raise DataError(f"columns {', '.join(columns) or 'none'}", path=path, line=1, expected=expected, fix=fix)
        for _, row in chain([] if first is None else [first], lines):
            names = {key: line for key, name in named.items() if (line := _line(row[name] or ""))}
            uri = _line((row[columns["uri"]] or "").strip().strip("<>")) if "uri" in columns else ""
            notation = (row[columns["notation"]] or "").strip() if "notation" in columns else ""
            if names or uri:
                plain = names.pop("", None)
                yield Label(_preferred(names, language, plain) or uri, uri or None, names, notation or None)


def _preferred(names: dict[str, str], language: str | None, plain: str | None = None) -> str | None:
    """Return the name in the language, else the one without a language, else in English, else the first."""
    return names.get(language or "") or plain or names.get("en") or next(iter(names.values()), None)


def _read_skos(path: Path, format: str, language: str | None) -> Iterator[Label]:
    try:
        import rdflib
        from rdflib.namespace import SKOS
    except ImportError:
        fix = "Install it with `pip install labelfield[skos]`, or save the vocabulary as TSV."
        raise DataError("SKOS needs the package rdflib", path=path, fix=fix) from None
    graph, content, logger = rdflib.Graph(), read_bytes(path), logging.getLogger("rdflib")
    before = logger.level
    logger.setLevel(logging.CRITICAL)  # it logs every odd URI
    try:
        graph.parse(data=content, format=format)
    except Exception as error:  # rdflib's parsers raise what they like
        said = str(error).strip().splitlines() or [type(error).__name__]
        raise DataError(f"not SKOS ({said[0][:80]})", path=path, fix="Check the file.") from None
    finally:
        logger.setLevel(before)
    concepts = sorted(set(graph.subjects(rdflib.RDF.type, SKOS.Concept)) | set(graph.subjects(SKOS.prefLabel)), key=str)
    for concept in concepts:
        literals = sorted(graph.objects(concept, SKOS.prefLabel), key=str)
        spoken = [(getattr(one, "language", None), line) for one in literals if (line := _line(str(one)))]
        names = {code: name for code, name in spoken if code}
        plain = next((name for code, name in spoken if not code), None)
        notation = next((str(one) for one in sorted(graph.objects(concept, SKOS.notation), key=str)), None)
        if uri := _line(str(concept)):
            yield Label(_preferred(names, language, plain) or uri, uri, names, notation or None)
