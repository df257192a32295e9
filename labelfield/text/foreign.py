"""Encoders of other packages: objects, functions, and pretrained ones by name.

None of them is in a model folder, which has its name or import path and a fingerprint of what it makes of a few texts.
A folder may come from anyone, so nothing is imported because a folder says so, except the packages known by name.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from labelfield.csr import as_features
from labelfield.errors import DataError, LabelfieldError

# Documents that are given to a foreign encoder at a time.
_BATCH = 1024
# What an encoder makes of these texts is its fingerprint.
_PROBES = ["a short text about libraries and books", "Viro-instituutti tekee tunnetuksi kulttuuria", ""]
_DIGITS = 3
# Letters of a text that a pretrained encoder sees: it pads all texts of a batch to the longest.
_MOST_LETTERS = 8_000
# A name on a hub, which is no path.
_HUB_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?")
_GIVE_IT = "pass it: labelfield.load(folder, encoder=…)"


class ForeignEncoder:
    """An encoder of another package: an object with fit and transform, with encode or embed, or a function of texts.

    It is not saved with a model: the folder has its `name`, if it was made by name, or the path of its class, and a
    fingerprint of what it makes of three texts.
    """

    def __init__(self, encoder: Any, name: str | None = None) -> None:
        self.encoder, self.name = encoder, name
        path = type(encoder) if not isinstance(encoder, type) and not hasattr(encoder, "__name__") else encoder
        self.path = f"{path.__module__}:{path.__qualname__}"
        methods = ("transform", "encode", "embed")
        self.encode: Callable[[list[str]], Any] = next(
            (getattr(encoder, name) for name in methods if hasattr(encoder, name)), encoder
        )
        if not callable(self.encode):
            expected = "words, or an object with fit and transform, or with encode, or a function of a list of texts"
            raise ValueError(f"encoder={encoder!r}; expected {expected}")

    def fit_transform(self, documents: Any, weights: Sequence[float] = (1.0,)) -> sparse.csr_array:
        """Fit the encoder if it can be fitted, and return the rows of the same documents."""
        texts = [_joined(document) for document in documents]
        if hasattr(self.encoder, "fit"):
            self.encoder.fit(texts)
        return self.transform(texts)

    def transform(self, documents: Iterable[Any]) -> sparse.csr_array:
        """Return the rows of documents, whose fields are joined by line ends."""
        texts, parts = map(_joined, documents), []
        while batch := list(islice(texts, _BATCH)):
            made = self.encode(batch)
            rows = as_features(made if sparse.issparse(made) else np.asarray(made, np.float32))
            if rows.shape[0] != len(batch):
                raise DataError(f"{self.path} made {rows.shape[0]} rows of {len(batch)} texts", expected="one for each")
            parts.append(rows)
        if not parts:
            return as_features(self._probe()[:0])
        return parts[0] if len(parts) == 1 else as_features(sparse.vstack(parts, format="csr"))

    def feature_names(self) -> list[str] | None:
        """Return the names of columns, where the encoder has some."""
        ask = getattr(self.encoder, "get_feature_names_out", None)
        return None if ask is None else [" ".join(str(name).split()) for name in ask()]

    def _probe(self) -> sparse.csr_array:
        made = self.encode(list(_PROBES))
        return sparse.csr_array(made if sparse.issparse(made) else np.asarray(made, np.float32))

    def fingerprint(self) -> str:
        """Return a digest of what the encoder makes of a few texts, in a few digits."""
        dense = np.round(self._probe().toarray().astype(np.float64), _DIGITS) + 0.0
        return hashlib.sha256(repr(dense.shape).encode() + dense.tobytes()).hexdigest()

    def describe(self) -> dict[str, Any]:
        """Return what a model folder says of the encoder."""
        described = {"kind": "foreign", "path": self.path, "fingerprint": self.fingerprint()}
        if self.name is not None:
            return described | {"name": self.name}
        ask = getattr(self.encoder, "get_params", None)
        try:
            return described | {"options": {} if ask is None else json.loads(json.dumps(ask(deep=False)))}
        except (TypeError, ValueError):
            return described | {"options": {}}


def restore_foreign(config: dict[str, Any], given: Any, trust: bool) -> ForeignEncoder:
    """Return the encoder that a folder describes: one that is `given`, one by name, or with `trust` an imported one."""
    path, name = config["path"], config.get("name")
    if not isinstance(path, str) or not isinstance(name, str | None):
        raise ValueError("the path of an encoder is not text")
    if given is not None:
        return _same_of(given if isinstance(given, list | tuple) else [given], config["fingerprint"], name or path)
    if name is not None:
        own = name.partition(":")[2]
        if not trust and own and (Path(own).exists() or not _HUB_NAME.fullmatch(own)):
            found_there = f"the model needs the encoder {name}, a folder of this machine, which may hold code"
            raise LabelfieldError(f"{found_there}. If you trust it, pass trust=True (--trust)")
        restored = named_encoder(name)
    elif trust:
        restored = _imported(path, config.get("options", {}))
    else:
        raise LabelfieldError(
            f"the model needs the encoder {path}, which is not in its folder; {_GIVE_IT}. Or, if you trust the model "
            "and that code, have it imported: trust=True (--trust)"
        )
    try:
        is_same = restored.fingerprint() == config["fingerprint"]
    except Exception as error:  # the code of others raises what it likes
        raise LabelfieldError(f"the encoder {name or path} does not work as it is ({error}); {_GIVE_IT}") from None
    if not is_same:
        found_there = f"the encoder {name or path} makes other rows here than when the model was trained"
        raise LabelfieldError(f"{found_there}; install the version of that time, or {_GIVE_IT}")
    return restored


def _same_of(given: Sequence[Any], fingerprint: str, asked: str) -> ForeignEncoder:
    """Return the one of these encoders, objects or names as in training, that has this fingerprint."""
    tried, why = "nothing", ""
    for one in given:
        if isinstance(one, str) and one == "words":  # which is in the folder
            continue
        try:
            own = named_encoder(one) if isinstance(one, str) else one
            own = own if isinstance(own, ForeignEncoder) else ForeignEncoder(own)
        except ValueError as error:
            raise LabelfieldError(str(error)) from None
        tried = own.name or own.path
        try:
            if own.fingerprint() == fingerprint:
                return own
        except Exception as error:  # the code of others raises what it likes
            why = f" ({error}); pass what was fitted: load(folder, encoder=tagger.text_.encoder)"
    raise LabelfieldError(f"{tried} is not the encoder {asked} that the model was trained with{why}")


def _imported(path: str, options: Any) -> ForeignEncoder:
    """Import an encoder: a function, or a class, of which an object is made."""
    module, colon, names = path.partition(":")
    if not colon:  # as older folders have it
        module, _, names = path.rpartition(".")
    try:
        found: Any = import_module(module)
        for name in names.split("."):
            found = getattr(found, name)
        return ForeignEncoder(found(**options) if isinstance(found, type) else found)
    except Exception as error:  # the code of others raises what it likes
        raise LabelfieldError(f"the encoder {path} cannot be imported ({error}); {_GIVE_IT}") from None


def _joined(document: Any) -> str:
    return document if isinstance(document, str) else "\n".join(filter(None, document))


# Pretrained encoders by name


def named_encoder(name: str) -> ForeignEncoder:
    """Return a pretrained encoder by its name: `wordllama`, `sentence-transformers:NAME` or `model2vec:NAME`.

    The package is imported now, and nothing is downloaded: its model must be on this machine.
    """
    package, _, own = name.partition(":")
    if package not in _PRETRAINED or (not own and package != "wordllama"):
        raise ValueError(f"encoder={name!r}; expected {', '.join(ENCODER_NAMES)}, an object, or a list of these")
    if find_spec(package.replace("-", "_")) is None:
        raise LabelfieldError(f"encoder={name!r} needs the package {package}. Install it: pip install {package}")
    try:
        with _offline(), _quiet():
            encode = _PRETRAINED[package](own)
    except (OSError, ValueError, AttributeError) as error:
        said = str(error).strip().splitlines() or [type(error).__name__]
        where = "nothing is downloaded, so that it must be on this machine"
        raise LabelfieldError(f"encoder={name!r}: the model {own!r} is not found ({said[0][:120]}); {where}") from None

    def rows(texts: list[str]) -> Any:
        found = np.asarray(encode([text[:_MOST_LETTERS] for text in texts]), np.float32)
        return np.nan_to_num(found, copy=False)  # an empty text has no mean

    return ForeignEncoder(rows, name)


def _wordllama(own: str) -> Callable[[list[str]], Any]:
    import wordllama

    # Its wheel has weights and tokenizer in folders named as those of its cache.
    inside = Path(wordllama.__file__).parent
    model = wordllama.WordLlama.load(own or "l2_supercat", cache_dir=inside, disable_download=True)

    def encode(texts: list[str]) -> Any:
        # A text of no tokens at all, alone in its batch, is more than its tokenizer can take.
        with np.errstate(invalid="ignore", divide="ignore"):
            return model.embed([text if text.strip() else "." for text in texts], norm=True)

    return encode


def _sentence_transformers(own: str) -> Callable[[list[str]], Any]:
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(own, local_files_only=True)
    return lambda texts: model.encode(texts, normalize_embeddings=True, show_progress_bar=False)


def _model2vec(own: str) -> Callable[[list[str]], Any]:
    from model2vec import StaticModel

    return StaticModel.from_pretrained(own).encode  # type: ignore[no-any-return]


_PRETRAINED = {"wordllama": _wordllama, "sentence-transformers": _sentence_transformers, "model2vec": _model2vec}
ENCODER_NAMES = ("words", "wordllama", "sentence-transformers:NAME", "model2vec:NAME")


@contextmanager
def _offline() -> Iterator[None]:
    """Keep hubs from downloading, where they are first imported inside."""
    names = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
    before = {name: os.environ.get(name) for name in names}
    os.environ.update(dict.fromkeys(names, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@contextmanager
def _quiet() -> Iterator[None]:
    """Undo what an import does to the logging of the whole process."""
    root = logging.getLogger()
    before, level = list(root.handlers), root.level
    try:
        yield
    finally:
        root.handlers[:] = before
        root.setLevel(level)
