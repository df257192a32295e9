"""A training state in one file, replaced whole: a kill at any moment leaves the older or the newer one."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from labelfield.atomic import replacing_file, sync
from labelfield.errors import DataError

__all__ = ["HOW_LONG", "damaged", "read_checkpoint", "require_same", "under", "write_checkpoint"]

# Settings that may change when a training goes on.
HOW_LONG = ("max_epochs", "finishing_epochs", "time_budget", "checkpoint_every", "patience")
_FORMAT = "labelfield checkpoint 2"


def write_checkpoint(path: Path, tensors: dict[str, Tensor], facts: dict[str, Any]) -> None:
    """Tensors, and facts that JSON can hold."""
    own = {name: tensor.detach().to("cpu", copy=True).contiguous() for name, tensor in tensors.items()}
    with replacing_file(path) as new:
        save_file(own, new, {"format": _FORMAT, "facts": json.dumps(facts), "sha256": _digest(own)})
        sync(new)


def _digest(tensors: dict[str, Tensor]) -> str:
    digest = hashlib.sha256()
    for name in sorted(tensors):
        digest.update(name.encode())
        digest.update(tensors[name].reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def read_checkpoint(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """What `write_checkpoint` wrote."""
    try:
        with safe_open(path, "pt") as file:
            metadata = file.metadata() or {}
            if metadata.get("format") != _FORMAT:
                raise DataError("not a checkpoint of this version", path=path, fix="Start anew with --overwrite.")
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  # not a dictionary
            facts = json.loads(metadata["facts"])
            if metadata["sha256"] != _digest(tensors):
                raise ValueError("its checksum is another")
            return tensors, facts
    except FileNotFoundError:
        raise DataError("there is no checkpoint", path=path, fix="Start without --resume.") from None
    except (SafetensorError, OSError, ValueError, KeyError) as error:
        if isinstance(error, DataError):
            raise
        raise damaged(path, error) from None


def damaged(path: Path, error: Exception) -> DataError:
    """The error for a checkpoint that cannot be used."""
    reason = str(error).splitlines()[0] if str(error) else type(error).__name__
    return DataError(f"the checkpoint is damaged ({reason})", path=path, fix="Start anew with --overwrite.")


def require_same(path: Path, facts: dict[str, Any], settings: dict[str, Any], identity: str) -> None:
    """How long to go on may change; what has been done may not."""
    theirs = dict(facts["settings"])
    differs = [name for name in settings if name not in HOW_LONG and settings[name] != theirs[name]]
    if differs or facts["identity"] != identity:
        raise DataError(
            f"the checkpoint was made with another {differs[0] if differs else 'model or other training data'}",
            path=path,
            expected="the same options and data",
            fix="Resume with the options it was started with, or start anew.",
        )


def under(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Those whose names begin so, by the rest of their names."""
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
