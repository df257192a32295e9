"""A saved model is a folder: config.json, arrays.safetensors, labels.txt, features.txt where features have names, and
vocabulary.jsonl where labels have URIs or several names. No code, no pickle; it loads anywhere."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors import SafetensorError, safe_open

from labelfield.atomic import replacing_file, require_only_ours, sweep, sync
from labelfield.errors import LabelfieldError
from labelfield.version import __version__

if TYPE_CHECKING:
    from torch import Tensor

_FORMAT = "labelfield model"
_VERSION = 7
# Layouts that `labelfield.models.upgrade` can convert to the present one.
_READABLE = (4, 5, 6, 7)
_CONFIG, _ARRAYS, _LABELS = "config.json", "arrays.safetensors", "labels.txt"
FEATURES, VOCABULARY = "features.txt", "vocabulary.jsonl"
# The documents that a model was trained on, if they are kept. Only further learning reads them.
DOCUMENTS = "documents.jsonl.gz"
# The files whose checksums are in config.json.
_CHECKED = (_ARRAYS, _LABELS, FEATURES, VOCABULARY)
CHECKPOINT = "checkpoint.safetensors"
# Of several processes each has one, such as checkpoint.1-of-2.safetensors.
SHARDS = "checkpoint*.*-of-*.safetensors"
# Of a model that learns on; it lies beside the model that it will replace.
LEARNING = "learning.safetensors"
# An ensemble has one for each member.
LEARNINGS = (LEARNING, *(f"learning-{i}.safetensors" for i in range(1, 8)))
CHECKPOINTS = (*(CHECKPOINT, SHARDS), *(f"checkpoint-{i}.safetensors" for i in range(1, 8)), *LEARNINGS)
SAVED_FILES = (_CONFIG, *_CHECKED, DOCUMENTS)
MODEL_FILES = (*SAVED_FILES, *CHECKPOINTS)


class ModelError(LabelfieldError):
    """A model folder that cannot be read."""

    exit_code = 3

    def __init__(self, message: str) -> None:
        # What a folder says may be of any length; a message is for a person.
        super().__init__(message if len(message) <= 600 else f"{message[:599]}…")


def save_artifact(
    folder: Path,
    config: dict[str, Any],
    arrays: dict[str, Tensor],
    labels: Iterable[str] | None,
    features: Iterable[str] | None = None,
    vocabulary: Iterable[str] | None = None,
) -> None:
    """Write a model, replacing an older one. All files are written before the first is replaced, so that a failure
    leaves the old model. Then config.json, without which there is no model, goes first and comes last: a kill in that
    moment leaves no model, and never a mixture. It holds checksums of the other files and of itself.
    """
    from labelfield.models.streaming import write_arrays

    require_only_ours(folder, MODEL_FILES)
    described = json.loads(json.dumps({"format": _FORMAT, "version": _VERSION, "labelfield": __version__, **config}))
    lists = {
        name: None if lines is None else "".join(f"{line}\n" for line in lines).encode()
        for name, lines in ((_LABELS, labels), (FEATURES, features), (VOCABULARY, vocabulary))
    }
    folder.mkdir(parents=True, exist_ok=True)
    written = [_CONFIG, *(name for name, content in lists.items() if content is not None), _ARRAYS]
    with ExitStack() as stack:  # which is left from its end: config.json is replaced last
        new = {name: stack.enter_context(replacing_file(folder / name)) for name in written}
        write_arrays(new[_ARRAYS], arrays, {"format": _FORMAT})
        for name, content in lists.items():
            if content is not None:
                new[name].write_bytes(content)
        described["sha256"] = {name: _digest_of_file(new[name]) for name in _CHECKED if name in new}
        described["sha256"][_CONFIG] = _digest_of_config(described)
        new[_CONFIG].write_text(json.dumps(described, indent=2) + "\n", encoding="utf-8")
        for path in new.values():
            sync(path)
        for name in (_CONFIG, DOCUMENTS, *(name for name, content in lists.items() if content is None)):
            (folder / name).unlink(missing_ok=True)  # of an older model
    sweep(folder)


def is_unfinished(folder: Path) -> bool:
    """Return whether a folder has a checkpoint of a training that has not ended."""
    return (folder / CHECKPOINT).exists() or any(folder.glob(SHARDS))


def remove_checkpoints(folder: Path, patterns: Sequence[str] = CHECKPOINTS) -> None:
    """Remove checkpoints that nobody will continue, by default all."""
    for pattern in patterns:
        for path in folder.glob(pattern):
            path.unlink(missing_ok=True)


def _digest_of_file(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _digest_of_config(config: dict[str, Any]) -> str:
    """Return the digest of everything but the checksums."""
    content = {name: value for name, value in config.items() if name != "sha256"}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def load_artifact(folder: Path, framework: str = "pt") -> tuple[dict[str, Any], dict[str, Any], list[str] | None]:
    """Return what `save_artifact` wrote: config, arrays, labels. Arrays are tensors, or NumPy's with "np"."""
    if not folder.is_dir():
        raise ModelError(f"{folder}: there is no such model folder. Check the path")
    if not (folder / _CONFIG).is_file() and is_unfinished(folder):
        raise ModelError(f"{folder}: training has not finished; train with --resume to continue")
    config = _read_config(folder / _CONFIG)
    expected = config.get("sha256")
    if not isinstance(expected, dict) or expected.get(_CONFIG) != _digest_of_config(config):
        raise _damaged(folder / _CONFIG, "changed since it was saved")
    for name in _CHECKED:
        # One without a checksum may be a link to any file of this machine, whose lines would become names of labels.
        if (folder / name).is_file() and _digest_of_file(folder / name) != expected.get(name):
            raise _damaged(folder / name, "changed since it was saved, or from another model")
    path = folder / _ARRAYS
    if not path.is_file():
        raise _damaged(path, "missing, or not a file")
    try:
        with safe_open(path, framework) as file:
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  # not a dictionary
    except (SafetensorError, OSError, ValueError) as error:
        raise _damaged(path, str(error).splitlines()[0]) from None
    return config, arrays, _read_lines(folder, _LABELS, expected)


def load_lines(folder: Path, config: dict[str, Any], name: str) -> list[str] | None:
    """Return the lines of FEATURES or VOCABULARY, for the config that `load_artifact` gave; None if there are none."""
    expected = config.get("sha256")
    return _read_lines(folder, name, expected if isinstance(expected, dict) else {})


def _read_lines(folder: Path, name: str, expected: dict[str, Any]) -> list[str] | None:
    """Return the lines of a list, if there is one."""
    path = folder / name
    if not path.is_file():
        if name in expected or path.exists():
            raise _damaged(path, "missing, or not a file")
        return None
    try:
        return path.read_bytes().decode().split("\n")[:-1]
    except (OSError, ValueError) as error:
        raise _damaged(path, str(error)) from None


def _read_config(path: Path) -> dict[str, Any]:
    try:
        if not path.is_file():  # a device never ends
            raise _damaged(path, "missing, or not a file")
        config = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        raise _damaged(path, "not JSON") from None
    if not isinstance(config, dict) or config.get("format") != _FORMAT:
        raise _damaged(path, "not the description of a labelfield model")
    version, maker = config.get("version"), config.get("labelfield")
    if version not in _READABLE or version is True:
        by = f", made by labelfield {maker}" if isinstance(maker, str) else ""
        reads = f"this labelfield ({__version__}) reads versions {_READABLE[0]} to {_READABLE[-1]}"
        fix = "Train it again, or use the labelfield it was made with"
        if isinstance(version, int) and version > _VERSION:
            fix = "Install a newer one: pip install --upgrade labelfield"
        raise ModelError(f"{path}: a model of version {version!r}{by}; {reads}. {fix}")
    return config


def _damaged(path: Path, found: str) -> ModelError:
    return ModelError(
        f"{path}: {found}; expected the files that labelfield saved. Copy the model again, or train it again"
    )
