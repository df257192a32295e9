"""Files of labelling tools: tasks for Label Studio, doccano, Argilla and Prodigy, and the labels that people gave."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar, get_args

from labelfield.atomic import replacing_file
from labelfield.errors import DataError, locating
from labelfield.text.documents import Documents, whole
from labelfield.text.parts import Tag, written

Tool = Literal["jsonl", "label-studio", "doccano", "argilla", "prodigy"]
TOOLS: tuple[str, ...] = get_args(Tool)
# Probability from which a tag is proposed as an answer.
_LIKELY = 0.5


class Task(NamedTuple):
    """A document for a person: its id, its texts by field, and what the model thinks of it."""

    id: str
    fields: dict[str, str]
    tags: list[Tag]
    score: float


def write_tasks(path: str | PathLike[str], tasks: Sequence[Task], tool: Tool = "jsonl") -> None:
    """Write documents to be labelled as a tool imports them, with the model's tags as proposals."""
    if tool not in TOOLS:
        raise ValueError(f"tool={tool!r}; expected one of {', '.join(TOOLS)}")
    records = [_WRITERS[tool](task) for task in tasks]
    if tool in ("label-studio", "argilla"):
        text = json.dumps(records, ensure_ascii=False, indent=1) + "\n"
    else:
        text = "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)
    with replacing_file(Path(path)) as new:
        new.write_text(text, encoding="utf-8")


def _likely(task: Task) -> list[str]:
    return [tag.label for tag in task.tags if tag.probability >= _LIKELY]


def _text(task: Task) -> str:
    return "\n".join(text for text in task.fields.values() if text)


def _to_jsonl(task: Task) -> dict[str, Any]:
    return {"id": task.id, **task.fields, "proposed": written(task.tags), "score": round(task.score, 6)}


def _to_label_studio(task: Task) -> dict[str, Any]:
    result = [{"from_name": "tags", "to_name": "text", "type": "choices", "value": {"choices": _likely(task)}}]
    data = {**task.fields, "text": task.fields.get("text", _text(task)), "document_id": task.id}
    return {"data": data, "predictions": [{"model_version": "labelfield", "score": task.score, "result": result}]}


def _to_doccano(task: Task) -> dict[str, Any]:
    return {"text": _text(task), "label": _likely(task), "document_id": task.id, "fields": task.fields}


def _to_argilla(task: Task) -> dict[str, Any]:
    suggestions = [{"question_name": "tags", "value": _likely(task), "agent": "labelfield"}] if _likely(task) else []
    return {"id": task.id, "fields": task.fields, "metadata": {"score": task.score}, "suggestions": suggestions}


def _to_prodigy(task: Task) -> dict[str, Any]:
    options = [{"id": tag.label, "text": tag.label} for tag in task.tags]
    meta = {"score": round(task.score, 4), "document_id": task.id}
    return {"text": _text(task), "options": options, "accept": _likely(task), "meta": meta, "fields": task.fields}


_WRITERS: dict[str, Callable[[Task], dict[str, Any]]] = {
    "jsonl": _to_jsonl,
    "label-studio": _to_label_studio,
    "doccano": _to_doccano,
    "argilla": _to_argilla,
    "prodigy": _to_prodigy,
}


def read_annotations(path: str | PathLike[str]) -> tuple[Documents, str]:
    """Read what people labelled in one of the tools, and return with it which tool that was.

    Documents that were skipped or rejected as a whole are left out. Of several answers the last one counts.
    """
    found = Path(path)
    records = _records(found)
    for tool, (is_of, read) in _READERS.items():
        if all(is_of(record) for _, record in records):
            taken = []
            for line, record in records:
                with locating(found, line):
                    if (own := read(record)) is not None:
                        taken.append((line, own))
            return _as_documents(taken, found), tool
    fix = f"Export it from {', '.join(tool for tool in TOOLS if tool != 'jsonl')} as JSON or JSON lines."
    raise DataError("records of none of the labelling tools", path=found, fix=fix)


def _records(path: Path) -> list[tuple[int, dict[str, Any]]]:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise DataError("not UTF-8", path=path, fix="Export it again.") from None
    if text.lstrip().startswith("["):
        listed = list(enumerate(_parsed(text, path), 1))
    else:
        lines = enumerate(text.split("\n"), 1)  # others that Python takes for ends of lines may stand in a text
        listed = [(line, _parsed(content, path, line)) for line, content in lines if content.strip()]
    if not listed:
        raise DataError("no records", path=path, expected="at least one")
    for line, record in listed:
        if not isinstance(record, dict):
            raise DataError("not an object", path=path, line=line)
    return listed


def _parsed(text: str, path: Path, line: int | None = None) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DataError(f"not JSON ({error})", path=path, line=line) from None


class _Labelled(NamedTuple):
    id: str | None
    fields: dict[str, str]
    labels: list[str]


_T = TypeVar("_T")
_NAMES: dict[type, str] = {dict: "an object", list: "a list", str: "text"}


def _as(kind: type[_T], found: Any, what: str) -> _T:
    """Return what is of a kind, or refuse it."""
    if not isinstance(found, kind):
        raise DataError(f"{what} is {json.dumps(found)}", expected=_NAMES[kind])
    return found


def _object(found: Any, what: str) -> dict[str, Any]:
    return _as(dict, {} if found is None else found, what)


def _objects(found: Any, what: str) -> list[dict[str, Any]]:
    return [_as(dict, one, f"one of {what}") for one in _as(list, [] if found is None else found, what)]


def _labels(found: Any, what: str) -> list[str]:
    labels = [_as(str, one, "a label").strip() for one in _as(list, [] if found is None else found, what)]
    for label in labels:
        if not label or "\n" in label:
            raise DataError(f"a label is {json.dumps(label)}", expected="one line of text")
    return labels


def _fields(found: Any, what: str) -> dict[str, str]:
    given = _object(found, what)
    return {name: _as(str, "" if text is None else text, f"{name} of {what}") for name, text in given.items()}


def _from_label_studio(record: dict[str, Any]) -> _Labelled | None:
    answers = [one for one in _objects(record["annotations"], "annotations") if not one.get("was_cancelled")]
    if not answers:
        return None
    labels = list[str]()
    for result in _objects(answers[-1].get("result"), "result"):
        value = _object(result.get("value"), "value")
        for kind in ("choices", "taxonomy"):
            chosen = _as(list, value.get(kind) or [], kind)
            # Nested ones are lists, from the top down.
            labels += _labels([one[-1] if isinstance(one, list) and one else one for one in chosen], kind)
    data = _object(record["data"], "data")
    fields = {name: text for name, text in data.items() if isinstance(text, str) and name != "document_id"}
    if not fields:
        raise DataError("data has no text", expected="at least one field with text")
    return _Labelled(data.get("document_id"), fields, labels)


def _from_doccano(record: dict[str, Any]) -> _Labelled | None:
    metadata = _object(record.get("meta"), "meta")
    identifier = record.get("document_id", metadata.get("document_id"))
    fields = record.get("fields", metadata.get("fields")) or {"text": _as(str, record["text"], "text")}
    return _Labelled(identifier, _fields(fields, "fields"), _labels(record.get("label", record.get("labels")), "label"))


def _from_argilla(record: dict[str, Any]) -> _Labelled | None:
    responses = record["responses"]
    if isinstance(responses, dict):  # by question
        responses = [one for name, own in responses.items() for one in _objects(own, f"responses to {name}")]
    answers = _objects(responses, "responses")
    done = [one for one in answers if one.get("status", "submitted") == "submitted"]
    if not done:
        return None
    value = done[-1].get("value", done[-1].get("values"))
    if isinstance(value, dict):  # by question
        value = next(iter(value.values()), None)
        value = value.get("value") if isinstance(value, dict) else value
    labels = _labels([value] if isinstance(value, str) else value, "value")
    return _Labelled(record.get("id"), _fields(record["fields"], "fields"), labels)


def _from_prodigy(record: dict[str, Any]) -> _Labelled | None:
    if record["answer"] != "accept":
        return None
    fields = record.get("fields") or {"text": _as(str, record["text"], "text")}
    identifier = _object(record.get("meta"), "meta").get("document_id")
    names = {str(one.get("id")): one.get("text", one.get("id")) for one in _objects(record.get("options"), "options")}
    labels = [str(names.get(one, one)) for one in _labels(record.get("accept"), "accept")]
    return _Labelled(identifier, _fields(fields, "fields"), labels)


def _has(*names: str) -> Callable[[dict[str, Any]], bool]:
    return lambda record: all(name in record for name in names)


_READERS: dict[str, tuple[Callable[[dict[str, Any]], bool], Callable[[dict[str, Any]], _Labelled | None]]] = {
    "label-studio": (_has("annotations", "data"), _from_label_studio),
    "argilla": (_has("fields", "responses"), _from_argilla),
    "prodigy": (_has("text", "answer"), _from_prodigy),
    "doccano": (
        lambda record: "text" in record and isinstance(record.get("label", record.get("labels")), list),
        _from_doccano,
    ),
}


def _as_documents(found: list[tuple[int, _Labelled]], path: Path) -> Documents:
    if not found:
        raise DataError("no document was labelled", path=path, expected="at least one answer")
    names = tuple(dict.fromkeys(name for _, one in found for name in one.fields))
    return Documents(
        texts=[tuple(whole(one.fields.get(name, "")) for name in names) for _, one in found],
        labels=[list(dict.fromkeys(map(whole, one.labels))) for _, one in found],
        ids=[str(line) if one.id is None else whole(str(one.id)) for line, one in found],
        fields=names,
        has_id=[one.id is not None for _, one in found],
    )
