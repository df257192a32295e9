"""What requests say: JSON, documents, rows and questions, each refused with one sentence if it is something else."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import unquote_to_bytes

from labelfield.serve.refusal import RefusedError, require_few
from labelfield.serve.store import Served
from labelfield.serve.tagging import Question

_SURROGATES = re.compile("[\ud800-\udfff]")
MOST_TAGS, _MOST_WORDS = 1000, 50
_WORDS, _LONGEST_LABEL = 8, 500


def parse_json(body: bytes) -> Any:
    """Return what a body of JSON says; anything else is a 400."""
    try:
        return json.loads(body, parse_constant=_no_number)
    except UnicodeDecodeError:
        raise RefusedError(400, "the body is not UTF-8") from None
    except json.JSONDecodeError as error:
        said = error.msg.removesuffix(" at")  # as some messages end
        raise RefusedError(400, f"the body is not JSON: {said} at line {error.lineno}, column {error.colno}") from None
    except RecursionError:
        raise RefusedError(400, "the body is not JSON: it is nested too deeply") from None
    except ValueError:  # Python reads no whole numbers of thousands of digits
        raise RefusedError(400, "the body has a number that is too long") from None


def _no_number(name: str) -> Any:
    raise RefusedError(400, f"the body is not JSON: {name} is no number of JSON")


def parse_text(body: bytes) -> str:
    """Return a text in UTF-8; anything else is a 400."""
    try:
        return body.decode()
    except UnicodeDecodeError:
        raise RefusedError(400, "the body is not UTF-8") from None


def parse_object(body: bytes) -> dict[str, Any]:
    """Return a JSON object."""
    return as_object(parse_json(body), "the body")


def parse_form(body: bytes) -> dict[str, str]:
    """Return the fields of a form; of fields with the same name the last."""
    found = {}
    for field in body.split(b"&"):
        if field:
            name, _, value = field.replace(b"+", b" ").partition(b"=")
            found[_unquoted(name)] = _unquoted(value)
    return found


def _unquoted(value: bytes) -> str:
    """Return what a part of a form stands for; %41 is read as Python reads \\x41, in a tenth of the time."""
    try:
        octets = value.replace(b"\\", b"\\\\").replace(b"%", b"\\x").decode("unicode_escape").encode("latin-1")
    except UnicodeDecodeError:  # a sign of per cent that stands for itself
        octets = unquote_to_bytes(value)
    return octets.decode(errors="replace")


def as_object(found: Any, what: str) -> dict[str, Any]:
    """Return an object, or refuse what is none."""
    if not isinstance(found, dict):
        raise RefusedError(422, f"{what} is {kind_of(found)}; expected an object")
    return found


def as_list(found: Any, what: str, most: int | None = None) -> list[Any]:
    """Return a list, or refuse what is none, or too long."""
    if not isinstance(found, list):
        raise RefusedError(422, f"{what} is {kind_of(found)}; expected a list")
    if most is not None and len(found) > most:
        raise RefusedError(422, f"{what} has {len(found)} entries; expected at most {most}")
    return found


def as_text(found: Any, what: str) -> str:
    """Return a text; halves of surrogate pairs, which no encoding has, become a replacement character."""
    if not isinstance(found, str):
        raise RefusedError(422, f"{what} is {kind_of(found)}; expected text")
    try:
        found.encode()
    except UnicodeEncodeError:
        return _SURROGATES.sub("\ufffd", found)
    return found


def as_label(found: Any, what: str) -> str:
    """Return the name of a label, which has to fit in a line."""
    label = as_text(found, what).strip()
    if not label or "\n" in label or len(label) > _LONGEST_LABEL:
        raise RefusedError(422, f"{what} is empty, too long, or has several lines")
    return label


def as_number(found: Any, what: str, low: float, high: float) -> float:
    """Return a number within bounds, given as a number or as text of a form."""
    if isinstance(found, str):
        try:
            found = float(found)
        except ValueError:
            raise RefusedError(422, f"{what} is {found[:40]!r}; expected a number") from None
    if isinstance(found, bool) or not isinstance(found, int | float):
        raise RefusedError(422, f"{what} is {kind_of(found)}; expected a number")
    if not low <= found <= high:  # also not a number
        is_huge = isinstance(found, int) and abs(found) > 1e30  # no float is as large
        said = "out of range" if is_huge else f"{found:.15g}"
        raise RefusedError(422, f"{what} is {said}; expected {low:g} to {high:.15g}")
    return float(found)


def as_count(found: Any, what: str, low: int = 1, high: int = MOST_TAGS) -> int:
    """Return a whole number within bounds."""
    number = as_number(found, what, low, high)
    if number != int(number):
        raise RefusedError(422, f"{what} is {number:g}; expected a whole number")
    return int(number)


def kind_of(found: Any) -> str:
    """Return what JSON calls a value."""
    kinds: Mapping[type, str] = {
        dict: "an object",
        list: "a list",
        str: "text",
        bool: "true or false",
        int: "a number",
        float: "a number",
        type(None): "null",
    }
    return kinds.get(type(found), "something else")


def require_known(given: dict[str, Any], known: Sequence[str], what: str = "the body") -> None:
    """Refuse keys that nothing would look at: most are misspelt."""
    unknown = [key for key in given if key not in known]
    if unknown:
        raise RefusedError(422, f"{what} has {unknown[0][:100]!r}, which is not known; known are {', '.join(known)}")


def question_of(given: Mapping[str, Any]) -> Question:
    """Return the question that the options of a request ask."""
    found: dict[str, Any] = {}
    if (k := given.get("k")) is not None:
        found["k"] = as_count(k, "k")
    for name in ("threshold", "review"):
        if (value := given.get(name)) is not None:
            found[name] = as_number(value, name, 0, 1)
    if (precision := given.get("precision")) is not None:
        found["precision"] = as_number(precision, "precision", 0.01, 0.999)
    explain = given.get("explain")
    if explain is not None:
        explain = {"true": True, "false": False}.get(explain, explain) if isinstance(explain, str) else explain
        n_words = explain * _WORDS if isinstance(explain, bool) else explain
        found["explain"] = as_count(n_words, "explain", 0, _MOST_WORDS)
    return Question(**found)


def items_of(served: Served, given: dict[str, Any], most: int) -> tuple[list[Any], list[str | None]]:
    """Return the documents or rows of a request, so many at the most, as the model takes them, with their ids."""
    named = [key for key in ("text", "documents", "rows") if key in given]
    if len(named) != 1:
        raise RefusedError(422, "the body has to have exactly one of text, documents, rows")
    if named == ["text"]:
        return [document_of(served, as_text(given["text"], "text"), "text")], [None]
    listed = as_list(given[named[0]], named[0])
    if not listed:
        raise RefusedError(422, f"{named[0]} is empty; expected at least one")
    require_few(len(listed), most)
    read = document_of if named[0] == "documents" else row_of
    items = [read(served, one, f"{named[0]}[{place}]") for place, one in enumerate(listed)]
    given_ids = [one.get("id") if isinstance(one, dict) else None for one in listed]
    ids = [as_id(one, f"the id of {named[0]}[{place}]") for place, one in enumerate(given_ids)]
    return items, ids


def as_id(found: Any, what: str) -> str | None:
    """Return an id as text, or None if there is none."""
    if found is None or isinstance(found, str):
        return None if found is None else as_text(found, what)
    if isinstance(found, int) and not isinstance(found, bool):
        return str(found)
    raise RefusedError(422, f"{what} is {kind_of(found)}; expected text or a whole number")


def document_of(served: Served, given: Any, what: str) -> tuple[str, ...]:
    """Return the texts of a document's fields: one text alone is the last field."""
    fields = served.fields
    if fields is None:
        raise RefusedError(422, f"the model {served.name!r} takes rows of numbers, not documents; send rows")
    if isinstance(given, str):
        return (*("",) * (len(fields) - 1), as_text(given, what))
    if not isinstance(given, dict):
        raise RefusedError(422, f"{what} is {kind_of(given)}; expected text, or an object with {', '.join(fields)}")
    found: dict[str, Any] = given
    if not any(field in found for field in fields) and "text" in found:
        return document_of(served, found["text"], f"text of {what}")
    if not any(field in found for field in fields):
        raise RefusedError(422, f"{what} has none of the fields {', '.join(fields)}")
    return tuple("" if found.get(field) is None else as_text(found[field], f"{field} of {what}") for field in fields)


def row_of(served: Served, given: Any, what: str) -> tuple[list[int], list[float]]:
    """Return the columns and values of a row: a list of all values, columns with values, or values by name."""
    if served.fields is not None:
        raise RefusedError(422, f"the model {served.name!r} takes documents, not rows; send documents")
    n_features = served.n_features
    if isinstance(given, list):
        if len(given) != n_features:
            raise RefusedError(422, f"{what} has {len(given)} values; expected {n_features}")
        values = _numbers(given, what)
        columns = [place for place, value in enumerate(values) if value]
        return columns, [values[place] for place in columns]
    found = {key: value for key, value in as_object(given, what).items() if key != "id"}
    if set(found) == {"indices", "values"}:
        columns = as_list(found["indices"], f"indices of {what}", n_features)
        values = _numbers(as_list(found["values"], f"values of {what}", n_features), what)
        if len(columns) != len(values):
            raise RefusedError(422, f"{what} has {len(columns)} indices and {len(values)} values")
        columns = [as_count(column, f"an index of {what}", 0, n_features - 1) for column in columns]
    else:
        columns, values = _named_columns(served, found, what), _numbers(list(found.values()), what)
    if len(set(columns)) < len(columns):
        raise RefusedError(422, f"{what} has a feature twice")
    order = sorted(range(len(columns)), key=columns.__getitem__)
    return [columns[place] for place in order], [values[place] for place in order]


def _named_columns(served: Served, found: dict[str, Any], what: str) -> list[int]:
    if served.columns is None:
        raise RefusedError(422, f"{what} names features, and the model {served.name!r} knows them by number only")
    unknown = [name for name in found if name not in served.columns]
    if unknown:
        raise RefusedError(422, f"{what} has the feature {unknown[0][:100]!r}, which the model does not know")
    return [served.columns[name] for name in found]


def _numbers(given: list[Any], what: str) -> list[float]:
    for value in given:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise RefusedError(422, f"{what} has {kind_of(value)} among its values; expected numbers")
        if not abs(value) <= 1e30:  # nan is not, and a whole number may be too large for a float
            raise RefusedError(422, f"{what} has a value that is too large")
    return [float(value) for value in given]
