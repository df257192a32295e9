"""A saved model is a folder: config.json, arrays.safetensors, labels.txt, features.txt where features have names, and
vocabulary.jsonl where labels have URIs or several names. No code, no pickle; it loads anywhere."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors import SafetensorError, safe_open

from labelfield.atomic import replacing_file, require_only_ours, sweep, sync
from labelfield.errors import LabelfieldError

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
# An ensemble has one for each member.
CHECKPOINTS = (CHECKPOINT, *(f"checkpoint-{i}.safetensors" for i in range(1, 8)))
MODEL_FILES = (_CONFIG, *_CHECKED, DOCUMENTS, *CHECKPOINTS)


class ModelError(LabelfieldError):
    """A model folder that cannot be read."""

    exit_code = 3


def save_artifact(
    folder: Path,
    config: dict[str, Any],
    arrays: dict[str, Tensor],
    labels: Iterable[str] | None,
    features: Iterable[str] | None = None,
    vocabulary: Iterable[str] | None = None,
) -> None:
    """Write a model, replacing an older one. Each file is replaced whole, and config.json, without which there is no
    model, comes last and goes first: a kill at any moment leaves the old model, the new one, or none, never a mixture.
    It holds checksums of the other files and of itself.
    """
    from safetensors.torch import save_file

    require_only_ours(folder, MODEL_FILES)
    described = json.loads(json.dumps({"format": _FORMAT, "version": _VERSION, **config}))
    lists = {
        name: None if lines is None else "".join(f"{line}\n" for line in lines).encode()
        for name, lines in ((_LABELS, labels), (FEATURES, features), (VOCABULARY, vocabulary))
    }
    folder.mkdir(parents=True, exist_ok=True)
    for name in (_CONFIG, DOCUMENTS):  # documents of an older model
        (folder / name).unlink(missing_ok=True)
    own = {name: array.detach().to("cpu", copy=True).contiguous() for name, array in arrays.items()}
    with replacing_file(folder / _ARRAYS) as new:
        save_file(own, new, {"format": _FORMAT})
        sync(new)
    for name, content in lists.items():
        if content is None:
            (folder / name).unlink(missing_ok=True)
            continue
        with replacing_file(folder / name) as new:
            new.write_bytes(content)
    files = [name for name in _CHECKED if (folder / name).exists()]
    described["sha256"] = {name: _digest_of_file(folder / name) for name in files}
    described["sha256"][_CONFIG] = _digest_of_config(described)
    with replacing_file(folder / _CONFIG) as new:
        new.write_text(json.dumps(described, indent=2) + "\n", encoding="utf-8")
        sync(new)
    sweep(folder)


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
    if not (folder / _CONFIG).is_file() and (folder / CHECKPOINT).exists():
        raise ModelError(f"{folder}: training has not finished; train with --resume to continue")
    config = _read_config(folder / _CONFIG)
    expected = config.get("sha256")
    if not isinstance(expected, dict) or expected.get(_CONFIG) != _digest_of_config(config):
        raise _damaged(folder / _CONFIG, "changed since it was saved")
    for name, digest in expected.items():
        if name in _CHECKED and (folder / name).is_file() and _digest_of_file(folder / name) != digest:
            raise _damaged(folder / name, "changed since it was saved, or from another model")
    path = folder / _ARRAYS
    try:
        with safe_open(path, framework) as file:
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  # not a dictionary
    except FileNotFoundError:
        raise _damaged(path, "missing") from None
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
    if not path.exists():
        if name in expected:
            raise _damaged(path, "missing")
        return None
    try:
        return path.read_bytes().decode().split("\n")[:-1]
    except (OSError, ValueError) as error:
        raise _damaged(path, str(error)) from None


def _read_config(path: Path) -> dict[str, Any]:
    try:
        config = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise _damaged(path, "missing") from None
    except (OSError, ValueError, RecursionError):
        raise _damaged(path, "not JSON") from None
    if not isinstance(config, dict) or config.get("format") != _FORMAT:
        raise _damaged(path, "not the description of a labelfield model")
    if config.get("version") not in _READABLE or config.get("version") is True:
        raise ModelError(
            f"{path}: a model of version {config.get('version')!r}; this labelfield reads versions "
            f"{_READABLE[0]} to {_READABLE[-1]}. Train it again, or use the labelfield it was made with"
        )
    return config


def _damaged(path: Path, found: str) -> ModelError:
    return ModelError(
        f"{path}: {found}; expected the files that labelfield saved. Copy the model again, or train it again"
    )
