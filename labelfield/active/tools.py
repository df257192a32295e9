"""Files of labelling tools: tasks for Label Studio, doccano, Argilla and Prodigy, and the labels that people gave."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

from labelfield.atomic import replacing_file
from labelfield.errors import DataError
from labelfield.text.documents import Documents
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
    return {"text": _text(task), "label": _likely(task), "document_id": task.id}


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
            taken = [(line, read(record)) for line, record in records]
            return _as_documents([(line, own) for line, own in taken if own is not None], found), tool
    fix = f"Export it from {', '.join(tool for tool in TOOLS if tool != 'jsonl')} as JSON or JSON lines."
    raise DataError("records of none of the labelling tools", path=found, fix=fix)


def _records(path: Path) -> list[tuple[int, dict[str, Any]]]:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise DataError("not UTF-8", path=path, fix="Export it again.") from None
    if text.lstrip().startswith("["):
        try:
            listed = list(enumerate(json.loads(text), 1))
        except ValueError as error:
            raise DataError(f"not JSON ({error})", path=path) from None
    else:
        listed = []
        for line, content in enumerate(text.splitlines(), 1):
            if not content.strip():
                continue
            try:
                listed.append((line, json.loads(content)))
            except ValueError as error:
                raise DataError(f"not JSON ({error})", path=path, line=line) from None
    if not listed:
        raise DataError("no records", path=path, expected="at least one")
    for line, record in listed:
        if not isinstance(record, dict):
            raise DataError("not an object", path=path, line=line)
    return listed


class _Labelled(NamedTuple):
    id: str | None
    fields: dict[str, str]
    labels: list[str]


def _from_label_studio(record: dict[str, Any]) -> _Labelled | None:
    answers = [one for one in record["annotations"] if not one.get("was_cancelled")]
    if not answers:
        return None
    labels = list[str]()
    for result in answers[-1].get("result") or []:
        value = result.get("value") or {}
        labels += value.get("choices") or []
        labels += [path[-1] for path in value.get("taxonomy") or [] if path]
    data = record["data"]
    fields = {name: text for name, text in data.items() if isinstance(text, str) and name != "document_id"}
    return _Labelled(data.get("document_id"), fields, labels)


def _from_doccano(record: dict[str, Any]) -> _Labelled | None:
    given: list[str] = record["label"] if "label" in record else record["labels"]
    metadata = record.get("meta") or {}
    identifier = record.get("document_id", metadata.get("document_id"))
    return _Labelled(identifier, {"text": record["text"]}, given)


def _from_argilla(record: dict[str, Any]) -> _Labelled | None:
    responses = record["responses"]
    answers = responses if isinstance(responses, list) else [one for own in responses.values() for one in own]
    done = [one for one in answers if one.get("status", "submitted") == "submitted"]
    if not done:
        return None
    value = done[-1].get("value", done[-1].get("values"))
    if isinstance(value, dict):  # by question
        value = next(iter(value.values()))
        value = value.get("value") if isinstance(value, dict) else value
    return _Labelled(record.get("id"), dict(record["fields"]), [value] if isinstance(value, str) else list(value))


def _from_prodigy(record: dict[str, Any]) -> _Labelled | None:
    if record["answer"] != "accept":
        return None
    fields = record.get("fields") or {"text": record["text"]}
    identifier = (record.get("meta") or {}).get("document_id")
    names = {option.get("id"): option.get("text", option.get("id")) for option in record.get("options") or []}
    return _Labelled(identifier, fields, [str(names.get(one, one)) for one in record.get("accept") or []])


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
    for line, one in found:
        if not all(isinstance(label, str) for label in one.labels):
            raise DataError("a label is not text", path=path, line=line)
    return Documents(
        texts=[tuple(str(one.fields.get(name) or "") for name in names) for _, one in found],
        labels=[list(dict.fromkeys(one.labels)) for _, one in found],
        ids=[str(line) if one.id is None else str(one.id) for line, one in found],
        fields=names,
        has_id=[one.id is not None for _, one in found],
    )
