"""Writing safetensors piece by piece: no array is copied, and one that is in parts need not be joined first."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

_ALIGNED = 8
# Bytes that are written at a time: what lies on a GPU or in a memory-mapped file is never in memory whole.
_AT_ONCE = 1 << 24


def write_arrays(path: Path, arrays: Mapping[str, Tensor | Sequence[Tensor]], metadata: dict[str, str]) -> None:
    """Write arrays by name, with texts about them, as the safetensors package reads them.

    The parts of an array follow each other along its first dimension.
    """
    parts = {name: _parts(array) for name, array in arrays.items()}
    # Wide types first, so that every array begins where its type can be read.
    order = sorted(parts, key=lambda name: (-parts[name][0].element_size(), name))
    header: dict[str, Any] = {"__metadata__": metadata}
    at = 0
    for name in order:
        first, *others = (list(part.shape) for part in parts[name])
        shape = [first[0] + sum(other[0] for other in others), *first[1:]] if first else []
        size = sum(part.numel() * part.element_size() for part in parts[name])
        header[name] = {"dtype": _name_of_type(parts[name][0]), "shape": shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % _ALIGNED)
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little"))
        file.write(text)
        for name in order:
            for piece in bytes_of(arrays[name]):
                file.write(piece)


def bytes_of(array: Tensor | Sequence[Tensor]) -> Iterator[memoryview]:
    """Yield the contents of an array, or of its parts, as they are in a file."""
    import torch

    for part in _parts(array):
        flat, step = part.detach().reshape(-1), _AT_ONCE // part.element_size()
        for first in range(0, flat.numel(), step):  # nothing of an empty one, which torch cannot view as bytes
            yield flat[first : first + step].cpu().contiguous().view(torch.uint8).numpy().data


def _parts(array: Tensor | Sequence[Tensor]) -> Sequence[Tensor]:
    return array if isinstance(array, list | tuple) else [array]  # type: ignore[list-item]


def _name_of_type(array: Tensor) -> str:
    """Return the name of a type in safetensors, such as F32 for float32."""
    name = str(array.dtype).removeprefix("torch.")
    known = {"bool": "BOOL", "bfloat16": "BF16"}
    return known.get(name) or name.replace("uint", "U").replace("int", "I").replace("float", "F")
