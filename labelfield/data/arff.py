"""Mulan data: an ARFF file with its label list in an XML file or, as in MEKA, in the `-C n` of its relation.

Numeric attributes are features. A nominal attribute becomes a number if its values are numbers, 0 or 1 if it has two
values, and otherwise one feature per value. Rows may be dense or sparse (`{index value, …}`).
"""

import re
from collections.abc import Iterator
from math import isinf
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree import ElementTree as ET

import numpy as np

from labelfield.csr import from_counts
from labelfield.data.dataset import Dataset, Names
from labelfield.data.reading import FileContents, Options, line_blocks, parse_number, read_bytes, stem
from labelfield.errors import DataError
from labelfield.mapped import Growing

_QUOTED = r"""'((?:[^'\\]|\\.)*)'|"((?:[^"\\]|\\.)*)\""""
_TOKEN = re.compile(rf"""\s*(?:{_QUOTED}|([^,\s'"{{}}%]+))\s*""")
_ATTRIBUTE = re.compile(rf"(?i)@attribute\s+(?:{_QUOTED}|(\S+))\s*(\{{.*\}}|(?<=\s)[a-z]+)\s*(?:\[.*\])?\s*(?:%.*)?\Z")
# A pair of a sparse row, in which commas may be quoted; what is matched once is not tried again.
_PAIR = re.compile(r"""(?:[^,'"]|'(?:[^'\\]|\\.)*+'|"(?:[^"\\]|\\.)*+")*+""")
_MEKA = re.compile(r"-C\s+(-?\d{1,9})\b")
_TRUE = ("1", "true", "yes", "t", "y")
_FALSE = ("0", "false", "no", "f", "n")
_FIX_ROW = "Correct the row."
# Rows that are kept as lists, which take ten times as much memory as arrays.
_ROWS_IN_LISTS = 4096
# The feature (counted from the first of its attribute) and the number that each nominal value stands for.
_Codes = dict[str, tuple[int, float]]


class _Attribute(NamedTuple):
    """A column of the file: its name and its values, which are None if it is numeric."""

    name: str
    values: tuple[str, ...] | None

    def features(self) -> tuple[list[str], _Codes | None]:
        """Return the names of the features that the attribute becomes, and the codes of its values."""
        if self.values is None:
            return [self.name], None
        numbers = [_number(value) for value in self.values]
        if all(number is not None for number in numbers):
            return [self.name], {v: (0, n) for v, n in zip(self.values, numbers, strict=True) if n is not None}
        if len(self.values) <= 2:
            return [self.name], {value: (0, float(i)) for i, value in enumerate(self.values)}
        return [f"{self.name}={value}" for value in self.values], {v: (i, 1.0) for i, v in enumerate(self.values)}

    def truth_values(self) -> _Codes:
        """Return the codes of the values of a label."""
        values = ("0", "1") if self.values is None else self.values
        for value in values:
            if value.lower() not in _TRUE + _FALSE:
                raise DataError(f"label {self.name!r} has the value {value!r}", "0 and 1", "Recode the label.")
        return {value: (0, float(value.lower() in _TRUE)) for value in values}


def read_arff(path: Path, options: Options) -> FileContents:
    """Read an ARFF file and its label list."""
    with line_blocks(path, options.progress) as blocks:
        reader = _Reader(path, blocks, options.scratch)
        try:
            return FileContents(reader.read(), True, holds_names=True)
        except DataError as error:
            raise error.at(path, reader.line or None) from None


class _Reader:
    def __init__(self, path: Path, blocks: Iterator[bytes], scratch: Path | None) -> None:
        self.path, self.line, self.relation, self.scratch = path, 0, "", scratch
        self.lines = self.numbered_lines(blocks)
        self.attributes: list[_Attribute] = []

    def numbered_lines(self, blocks: Iterator[bytes]) -> Iterator[str]:
        for block in blocks:
            for raw in block.split(b"\n")[:-1]:
                self.line += 1
                line = raw.decode("utf-8", "replace").strip()
                if line and not line.startswith("%"):
                    yield line

    def read(self) -> Dataset:
        self.read_header()
        # For each attribute: whether it is a label, its first index, the codes of its nominal values.
        columns: list[tuple[bool, int, _Codes | None]] = []
        label_names: list[str] = []
        feature_names: list[str] = []
        for attribute, is_label in zip(self.attributes, self.find_labels(), strict=True):
            if is_label:
                columns.append((True, len(label_names), attribute.truth_values()))
                label_names.append(attribute.name)
            else:
                of_values, codes = attribute.features()
                columns.append((False, len(feature_names), codes))
                feature_names += of_values
        names = Names(label_names), Names(feature_names)
        types = (np.int64, np.int32, np.float32, np.int64, np.int32)
        parts = [Growing(dtype, self.scratch) for dtype in types]
        lists: tuple[list[Any], ...] = ([], [], [], [], [])
        counts, indices, values, label_counts, labels = lists

        def flush() -> None:
            for part, own in zip(parts, lists, strict=True):
                part.extend(np.array(own, part.array.dtype))
                own.clear()

        # An attribute that a sparse row leaves out has the first declared value, which need not stand for 0.
        unsaid = {i: text for i, (_, _, codes) in enumerate(columns) if codes and codes[text := next(iter(codes))][1]}
        for line in self.lines:
            features: dict[int, float] = {}
            row_labels: set[int] = set()
            for position, text in (unsaid | dict(self.cells(line))).items():
                is_label, first, codes = columns[position]
                offset, value = self.cell_value(position, text, codes)
                if value and is_label:
                    row_labels.add(first)
                elif value:
                    features[first + offset] = value
            counts.append(len(features))
            indices += sorted(features)
            values += (features[index] for index in sorted(features))
            label_counts.append(len(row_labels))
            labels += sorted(row_labels)
            if len(counts) == _ROWS_IN_LISTS:
                flush()
        flush()
        arrays = [part.finish() for part in parts]
        X = from_counts(arrays[0], arrays[1], arrays[2], len(feature_names))
        Y = from_counts(arrays[3], arrays[4], None, len(label_names))
        return Dataset(X, Y, *names, trusted=True)

    def read_header(self) -> None:
        for line in self.lines:
            keyword = line.split(None, 1)[0].lower()
            if keyword == "@relation":
                self.relation = line
            elif keyword == "@attribute":
                self.attributes.append(_parse_attribute(line))
            elif keyword == "@data":
                return
            else:
                found = f"{line[:40]!r} in the header"
                raise DataError(found, "@relation, @attribute or @data", "Check that this is ARFF.")
        raise DataError("no @data line", "@relation, @attribute … and @data", "The file may be truncated.")

    def cells(self, line: str) -> Iterator[tuple[int, str]]:
        """Yield the (attribute, text) pairs of a row."""
        n = len(self.attributes)
        if not line.startswith("{"):
            cells = line.split(",") if "'" not in line and '"' not in line else list(_tokens(line))
            if len(cells) != n:
                raise DataError(f"{len(cells)} values", f"{n}, one for each attribute", _FIX_ROW)
            yield from enumerate(cell.strip() for cell in cells)
            return
        if not line.endswith("}"):
            raise DataError("a sparse row without its closing brace", "{index value, …}", "The file may be truncated.")
        seen: set[int] = set()
        for pair in filter(None, (part.strip() for part in _split_pairs(line[1:-1]))):
            index, text = (*pair.split(None, 1), "")[:2]
            if not (index.isascii() and index.isdecimal()) or len(index) > 9 or int(index) >= n:
                raise DataError(f"the attribute index {index[:40]!r}", f"an integer from 0 to {n - 1}", _FIX_ROW)
            if int(index) in seen:
                raise DataError(f"attribute {index} occurs twice in this row", "each once", "Remove one.")
            seen.add(int(index))
            yield int(index), _unquote(text.strip())

    def cell_value(self, position: int, text: str, codes: _Codes | None) -> tuple[int, float]:
        if codes is not None and text in codes:
            return codes[text]
        name, value = self.attributes[position].name, _number(text)
        if text == "?":
            raise DataError(f"the value of {name!r} is missing (?)", "a value", "Impute missing values first.")
        if codes is None and value is not None:
            return 0, value
        for key, coded in (codes or {}).items():  # files often have 1.0 for a nominal 1
            if value is not None and _number(key) == value:
                return coded
        expected = "a finite float32 number" if codes is None else f"one of {', '.join(list(codes)[:8])}"
        raise DataError(f"the value {text[:40]!r} of {name!r}", expected, _FIX_ROW)

    def find_labels(self) -> list[bool]:
        """Return for each attribute whether it is a label."""
        names = [attribute.name for attribute in self.attributes]
        if (listing := _label_file(self.path)) is not None:
            wanted = _read_label_file(listing)
            missing = [name for name in wanted if name not in names]
            if missing or not wanted:
                found = f"label {missing[0]!r} is not an attribute of {self.path.name}" if missing else "no labels"
                fix = "Use the XML file that belongs to this ARFF file."
                raise DataError(found, "the names of attributes", fix, path=listing)
            return [name in set(wanted) for name in names]
        if match := _MEKA.search(self.relation):
            count = int(match[1])
            if 0 < abs(count) <= len(names):
                first = 0 if count > 0 else len(names) + count
                return [first <= i < first + abs(count) for i in range(len(names))]
        expected = f"{stem(self.path)}.xml beside it, or -C n in @relation"
        fix = "Put Mulan's XML file beside the ARFF file."
        raise DataError("no list of labels", expected, fix, path=self.path)


def _parse_attribute(line: str) -> _Attribute:
    match = _ATTRIBUTE.match(line)
    if not match:
        raise DataError(f"{line[:60]!r}", "@attribute name type", "Correct the declaration.")
    name, kind = _text(match), match[4]
    if kind.startswith("{"):
        return _Attribute(name, tuple(_tokens(kind[1:-1])))
    if kind.lower() not in ("numeric", "real", "integer"):
        found = f"attribute {name!r} of type {kind}"
        raise DataError(found, "numeric or nominal attributes", "Remove or encode it.")
    return _Attribute(name, None)


def _tokens(text: str) -> Iterator[str]:
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if not match:
            raise DataError(f"{text[position : position + 40]!r}", "values separated by commas", "Quote odd values.")
        yield _text(match)
        position = match.end()
        if position < len(text) and text[position] != ",":
            raise DataError(f"{text[position : position + 40]!r}", "a comma", "Quote values with blanks.")
        position += 1


def _number(text: str) -> float | None:
    value = parse_number(text.strip())
    return None if value is None or isinf(value) else value


def _text(match: re.Match[str]) -> str:
    """Return the first group that matched, quoted or not, without its escapes."""
    return _unescape(next(group for group in match.groups() if group is not None))


def _unescape(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text)


def _unquote(text: str) -> str:
    return _unescape(text[1:-1]) if len(text) > 1 and text[0] in "'\"" and text[-1] == text[0] else text


def _split_pairs(text: str) -> Iterator[str]:
    if "'" not in text and '"' not in text:
        yield from text.split(",")
        return
    position = 0
    while position <= len(text):
        match = _PAIR.match(text, position)
        assert match is not None  # it may be empty
        if not text.startswith(",", match.end()) and match.end() < len(text):
            found = f"{text[match.end() : match.end() + 40]!r}"
            raise DataError(found, "a quote that is closed in the same line", "Quote odd values.")
        yield match[0]
        position = match.end() + 1


def _label_file(path: Path) -> Path | None:
    """Find the XML beside an ARFF file: of the same name, of the name without its split, or the only one."""
    own = stem(path)
    for name in (own, re.sub(r"[-_.](train|test)\Z", "", own)):
        candidate = path.with_name(f"{name}.xml")
        if candidate.exists():
            return candidate
    found = sorted(path.parent.glob("*.xml"))
    return found[0] if len(found) == 1 else None


def _read_label_file(path: Path) -> list[str]:
    content = read_bytes(path)
    if b"<!DOCTYPE" in content or b"<!ENTITY" in content:
        raise DataError("a document type declaration", path=path, expected="plain XML", fix="Remove it.")
    try:
        root = ET.fromstring(content)
    except ET.ParseError as error:
        raise DataError(f"not XML ({error})", path=path, line=error.position[0], fix="Correct the file.") from None
    return [element.get("name", "") for element in root.iter() if element.tag.rsplit("}", 1)[-1] == "label"]
