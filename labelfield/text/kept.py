"""The documents that a model was trained on, kept in its folder as compressed lines, so that it can learn on."""

from __future__ import annotations

import gzip
import json
import tempfile
import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from labelfield.errors import DataError
from labelfield.mapped import scratch_folder
from labelfield.text.documents import Document, whole

_LEVEL = 3


class KeptDocuments:
    """Documents on their way into a model folder: texts as they are read, labels by name when all are known."""

    def __init__(self) -> None:
        folder = scratch_folder()
        self._file: IO[str] = tempfile.TemporaryFile("w+", dir=folder, encoding="utf-8", newline="\n")  # noqa: SIM115  # at exit

    def add(self, document: Document) -> None:
        """Keep the id and the texts of the next document."""
        identifier = document.id if document.has_id else None
        self._file.write(json.dumps([identifier, *document.texts], ensure_ascii=False) + "\n")

    def write(self, path: Path, labels: Iterable[Sequence[str]]) -> None:
        """Write all documents with their labels."""
        self._file.seek(0)
        with gzip.open(path, "wb", _LEVEL) as out:
            for line, own in zip(self._file, labels, strict=True):
                identifier, *texts = json.loads(line)
                described = {"id": identifier, "texts": texts, "labels": list(own)}
                out.write((json.dumps(described, ensure_ascii=False) + "\n").encode())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()


def read_kept(path: Path, n_fields: int) -> Iterator[Document]:
    """Yield the documents of a model folder, which may come from anyone."""
    line = 0
    try:
        with gzip.open(path, "rb") as file:
            for line, content in enumerate(file, 1):
                one = json.loads(content)
                identifier, texts, labels = one["id"], one["texts"], one["labels"]
                parts = [*texts, *labels, "" if identifier is None else identifier]
                if len(texts) != n_fields or not all(isinstance(part, str) for part in parts):
                    raise ValueError("not a document of this model")
                texts, labels = tuple(map(whole, texts)), list(map(whole, labels))
                if any(label.splitlines() != [label] or "\0" in label for label in labels):
                    raise ValueError("a label that is not one line")
                known = str(line) if identifier is None else whole(identifier)
                yield Document(texts, labels, known, identifier is not None)
    except (OSError, EOFError, zlib.error, ValueError, KeyError, TypeError, RecursionError) as error:
        fix = "Pass the documents that the model was trained on: --data FILE."
        raise DataError(
            f"the documents of the model are damaged ({error})", path=path, line=line or None, fix=fix
        ) from None
