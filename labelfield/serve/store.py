"""The models of a server by name, each replaced whole when it is loaded again."""

from __future__ import annotations

import ctypes
import gc
import hashlib
import json
import re
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from labelfield.decide import Policy
from labelfield.errors import DataError
from labelfield.light.model import load_light
from labelfield.methods import METHODS
from labelfield.models.artifact import SAVED_FILES
from labelfield.serve.refusal import RefusedError
from labelfield.serve.tagging import Question, Tagger, tag_items, tag_names

if TYPE_CHECKING:
    from labelfield.estimators.protocol import FittedClassifier

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._ -]{0,99}")
# What config.json of a model folder says changes with every save, and it is written last.
_CONFIG = "config.json"
# The time, number and size of each file of a model folder.
_Mark = dict[str, tuple[int, int, int]] | None
# Items beyond which models prepare themselves for many more.
_MANY = 100


class Served:
    """A model that is ready to answer; its answers never change once it is there.

    Tags come from the `tagger`: in NumPy alone where that can be, which is faster for a few documents and starts
    without torch. Explanations and promises need the whole `estimator()`, which is loaded when it is first needed.
    """

    def __init__(self, name: str, folder: Path, device: str) -> None:
        started = time.perf_counter()
        self.name, self.folder, self.device = name, folder, device
        self.version, config = read_version(folder)
        self._whole: FittedClassifier | None = None
        self._lock = threading.Lock()
        self._policies: dict[float, Policy] = {}
        light = None if device == "cuda" else load_light(folder)
        if light is not None:
            light.prepare()
        self.tagger: Tagger = light or self.estimator()
        self.method = str(config.get("method"))
        self.text = self.tagger.text_
        self.names = tag_names(self.tagger)
        self.modified = datetime.fromtimestamp((folder / _CONFIG).stat().st_mtime, UTC)
        first: Any = ([0], [1.0]) if self.fields is None else ("",) * (len(self.fields) - 1) + ("a first text",)
        for n_items in (1, _MANY):
            tag_items(self.tagger, [first] * n_items, [Question()] * n_items, self.names, self.estimator)
        self.seconds = time.perf_counter() - started

    def estimator(self) -> FittedClassifier:
        """Return the whole classifier; if its folder has changed since, it cannot be loaded any more."""
        with self._lock:
            if self._whole is None:
                from labelfield.estimators.persistence import load_classifier

                # Who copies a new model over an old one must not change or end what answers.
                found: FittedClassifier = load_classifier(self.folder, device=self.device, copied=True)
                if read_version(self.folder)[0] != self.version:
                    raise RefusedError(503, "the model is being replaced; try again", {"Retry-After": "2"})
                self._whole = found
                settle_memory()
            return self._whole

    def promise(self, precision: float) -> Policy:
        """Return the policy that promises a precision; found once."""
        if precision not in self._policies:
            self._policies[precision] = self.estimator().policy(precision=precision)
        return self._policies[precision]

    @property
    def is_complete(self) -> bool:
        """Whether the whole classifier is in memory."""
        return self._whole is not None

    @property
    def n_features(self) -> int:
        """The number of features of rows."""
        return self.estimator().n_features_in_

    @property
    def fields(self) -> tuple[str, ...] | None:
        """The fields of documents; None for a model of rows."""
        return None if self.text is None else self.text.fields

    @cached_property
    def known(self) -> frozenset[str]:
        """The names of all labels."""
        return frozenset(self.names.names)

    def knows(self, given: str) -> bool:
        """Return whether a label is known by this name, URI or notation."""
        return given in self.known or (self.text is not None and self.text.vocabulary.find(given) is not None)

    @cached_property
    def columns(self) -> dict[str, int] | None:
        """The columns of features by name, for a model of rows that has names."""
        names = None if self.fields is not None else self.estimator().feature_names()
        return None if names is None else {name: column for column, name in enumerate(names)}

    @property
    def language(self) -> str | None:
        """The language of documents, where the encoder knows it."""
        return None if self.text is None else getattr(self.text.encoder, "language_", None)

    def facts(self) -> dict[str, object]:
        """Return what clients may know of the model; the folder is not part of it."""
        return {
            "name": self.name,
            "version": self.version,
            "kind": "rows" if self.fields is None else "documents",
            "method": self.method,
            "summary": METHODS[self.method].sentence if self.method in METHODS else self.method,
            "labels": len(self.names.names),
            "fields": None if self.fields is None else list(self.fields),
            "language": self.language,
            "modified": self.modified.isoformat(timespec="seconds"),
        }


def read_version(folder: Path) -> tuple[str, dict[str, Any]]:
    """Return what tells this version of a model from others, and its description."""
    try:
        content = (folder / _CONFIG).read_bytes()
        found = json.loads(content)
    except (OSError, ValueError):
        content, found = b"", {}
    return hashlib.sha256(content).hexdigest()[:12], found if isinstance(found, dict) else {}


def parse_names(given: Sequence[str]) -> dict[str, Path]:
    """Return folders by name from arguments FOLDER or NAME=FOLDER; a folder's own name is the default."""
    found: dict[str, Path] = {}
    for one in given:
        name, sign, rest = one.partition("=")
        folder = Path(rest if sign else one)
        name = name if sign else folder.resolve().name
        if not _NAME.fullmatch(name):
            fix = "Pass NAME=FOLDER with letters, digits, spaces, dots, dashes and underscores."
            raise DataError(f"the model name {name!r}", expected="a plain name", fix=fix)
        if name in found:
            raise DataError(f"two models named {name!r}", expected="different names", fix="Pass NAME=FOLDER.")
        found[name] = folder
    return found


class ModelStore:
    """Models by name. Reading is one look-up; `reload` swaps a model when the new one has answered a question."""

    def __init__(self, folders: dict[str, Path], device: str = "cpu") -> None:
        self.folders, self.device = folders, device
        self.models: dict[str, Served] = {}
        self._lock = threading.Lock()
        self._seen: dict[str, _Mark] = {}

    def load_all(self) -> None:
        """Load all models for the first time; a failure is raised."""
        for name, folder in self.folders.items():
            self._seen[name] = self._mark(name)
            self.models[name] = Served(name, folder, self.device)
        settle_memory()

    @property
    def is_ready(self) -> bool:
        """Whether all models are loaded and warm."""
        return len(self.models) == len(self.folders)

    @property
    def default(self) -> str:
        """The name of the first model."""
        return next(iter(self.folders))

    def find(self, name: str | None = None) -> Served:
        """Return a model by its name, by default the first; an unknown one is a 404."""
        name = self.default if name is None else name
        if name not in self.folders:
            raise RefusedError(404, f"there is no model {name[:100]!r}; there are {', '.join(map(repr, self.folders))}")
        if name not in self.models:
            raise RefusedError(503, f"the model {name!r} is still loading", {"Retry-After": "1"})
        return self.models[name]

    def reload(self, name: str) -> Served:
        """Load a model again and put it in the place of the old one; if it fails, the old one stays, and it raises."""
        with self._lock:  # one at a time: two models in memory are enough
            new = self.models[name] = Served(name, self.folders[name], self.device)
        return new

    def version_in_folder(self, name: str) -> str:
        """Return the version that a model's folder has now, which may not be the one that answers."""
        return read_version(self.folders[name])[0]

    def is_current(self, name: str) -> bool:
        """Return whether a model is the one that its folder has now."""
        return self.version_in_folder(name) == self.models[name].version

    def changed(self) -> list[str]:
        """Return the models whose folders have changed since the last call, and are complete."""
        found = []
        for name in self.folders:
            mark = self._mark(name)
            if mark is not None and mark != self._seen.get(name):
                found.append(name)
                self._seen[name] = mark
        return found

    def _mark(self, name: str) -> _Mark:
        """Return what changes with every file of a model: those that are copied into a folder come one by one."""
        found = {}
        for file in SAVED_FILES:
            with suppress(OSError):
                of_file = (self.folders[name] / file).stat()
                found[file] = of_file.st_mtime_ns, of_file.st_ino, of_file.st_size
        return found if _CONFIG in found else None  # the folder is being replaced


def settle_memory() -> None:
    """Return the memory of a model that was replaced to the system, where this is known to work.

    What is left, such as a hundred thousand words, is not searched for garbage again: that took a busy server a seventh
    of its time.
    """
    gc.unfreeze()
    gc.collect()
    gc.freeze()
    try:
        trim: Callable[[int], int] = ctypes.CDLL("libc.so.6").malloc_trim
    except (OSError, AttributeError):  # another system
        return
    trim(0)
