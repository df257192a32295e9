"""Changes to files: of single bytes, of lines and numbers, of JSON, of archives and of arrays with their headers."""

from __future__ import annotations

import io
import json
import re
import struct
import zipfile
from collections.abc import Callable
from random import Random
from typing import Any

_NUMBER = re.compile(rb"-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?")
ODD_NUMBERS = (
    *(
        b"0",
        b"-1",
        b"1e30",
        b"1e-30",
        b"1e39",
        b"-1e400",
        b"nan",
        b"inf",
        b"-inf",
        b"NaN",
        b"Infinity",
        b"0x10",
        b"1_0",
    ),
    *(b"2147483647", b"2147483648", b"4294967296", b"9223372036854775807", b"9223372036854775808", b"1" * 25),
    *(b"1" * 5000, b"1000000000000", b"00", b"1.", b".5", b"1e", b"\xd9\xa1", b""),
)
_ODD_BYTES = (
    *(b"\x00", b"\xff", b"\xef\xbb\xbf", b"\xed\xa0\x80", b"\r", b"\n", b"\r\n", b"\t", b" ", b",", b":", b'"', b"'"),
    *(b"{", b"}", b"[", b"]", b"<", b">", b"%", b"#", b"@", b"\\", b"\x1f\x8b", b"BZh", b"PK\x03\x04", b"\xc2\xa0"),
    *("\u2028".encode(), "é".encode(), "١".encode(), b"[" * 3000, b'{"a":' * 3000, b"\x0b", b"\x0c", b"\x1c", b"\x85"),
)
_MOST_BYTES = 1 << 20


def mutated(content: bytes, rng: Random) -> bytes:
    """Return the content with one to three changes."""
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        content = rng.choice(_CHANGES)(content, rng)[:_MOST_BYTES]
    return content


def _flip(content: bytes, rng: Random) -> bytes:
    if not content:
        return b"\0"
    place = rng.randrange(len(content))
    return content[:place] + bytes([content[place] ^ 1 << rng.randrange(8)]) + content[place + 1 :]


def _set_byte(content: bytes, rng: Random) -> bytes:
    place = rng.randrange(len(content) + 1)
    return content[:place] + bytes([rng.randrange(256)]) + content[place + 1 :]


def _insert(content: bytes, rng: Random) -> bytes:
    place = rng.randrange(len(content) + 1)
    return content[:place] + rng.choice(_ODD_BYTES) + content[place:]


def _cut(content: bytes, rng: Random) -> bytes:
    first, last = sorted(rng.randrange(len(content) + 1) for _ in range(2))
    return content[:first] + content[last:]


def _end(content: bytes, rng: Random) -> bytes:
    return content[: rng.randrange(len(content) + 1)]


def _repeat(content: bytes, rng: Random) -> bytes:
    first, last = sorted(rng.randrange(len(content) + 1) for _ in range(2))
    return content[:last] + content[first:last] * rng.choice((1, 2, 20)) + content[last:]


def _lines(content: bytes, rng: Random) -> bytes:
    lines = content.split(b"\n")
    a, b = (rng.randrange(len(lines)) for _ in range(2))
    how = rng.randrange(4)
    if how == 0:
        lines[a], lines[b] = lines[b], lines[a]
    elif how == 1:
        lines.insert(a, lines[b])
    elif how == 2:
        del lines[a]
    else:
        lines[a] = b""
    return b"\n".join(lines)


def _number(content: bytes, rng: Random) -> bytes:
    found = list(_NUMBER.finditer(content))
    if not found:
        return _flip(content, rng)
    one = rng.choice(found)
    return content[: one.start()] + rng.choice(ODD_NUMBERS) + content[one.end() :]


def _swap(content: bytes, rng: Random) -> bytes:
    a, b, c, d = sorted(rng.randrange(len(content) + 1) for _ in range(4))
    return content[:a] + content[c:d] + content[b:c] + content[a:b] + content[d:]


_CHANGES: tuple[Callable[[bytes, Random], bytes], ...] = (
    *(_flip, _set_byte, _insert, _cut, _end, _repeat, _lines, _lines, _number, _number, _swap),
)


# JSON

_ODD_VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 2, 10**12, 2**31, 2**63, 10**30, 1e30, 1e-30, float("nan"), float("inf"), "", "x"),
    *("../../etc/passwd", "\0", "\ud800", "é" * 50, [], {}, [None], [[]], [1, "a"], {"a": 1}, {"": None}, [0] * 1000),
)


def _places(value: Any, found: list[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    """Return all (container, key) in a JSON value."""
    for key in list(value) if isinstance(value, dict) else range(len(value)):
        found.append((value, key))
        if isinstance(value[key], dict | list):
            _places(value[key], found)
    return found


def mutate_json(value: Any, rng: Random) -> Any:
    """Change one place of a JSON object: another value, none, a deep one, or that of another place."""
    places = _places(value, [])
    if not places:
        return value
    container, key = rng.choice(places)
    how = rng.randrange(6)
    if how <= 2:
        container[key] = rng.choice(_ODD_VALUES)
    elif how == 3:
        del container[key]
    elif how == 4:
        other, its_key = rng.choice(places)
        try:
            container[key] = json.loads(json.dumps(other[its_key]))
        except (KeyError, IndexError):
            container[key] = None
    elif isinstance(container, dict):
        container[rng.choice(("", "members", "text", "n_labels", "kind", "\0"))] = rng.choice(_ODD_VALUES)
    else:
        container.append(rng.choice(_ODD_VALUES))
    return value


# Arrays


def npy_header(content: bytes) -> tuple[bytes, bytes]:
    """Return the header of a .npy file as text, and the bytes of the array."""
    (size,) = struct.unpack("<H", content[8:10])
    return content[10 : 10 + size], content[10 + size :]


_ODD_TYPES = (b"<f8", b"<f4", b"<i8", b"<i4", b">f4", b">i4", b"|O", b"|b1", b"<U3", b"<c16", b"|V8", b"<M8[s]", b"<f2")
_ODD_SHAPES = (
    *(b"(0,)", b"()", b"(1,)", b"(-1,)", b"(1000000000000,)", b"(9223372036854775807,)", b"(4294967296, 4294967296)"),
    *(b"(2, 2)", b"(True,)", b"(1.5,)", b"(None,)", b"(1000000000,)", b"(0, 1000000000000)", b"(1,) * 9", b"((1,),)"),
)


def mutate_npy(content: bytes, rng: Random) -> bytes:
    """Change a .npy file: its header, with the right length, or its numbers."""
    try:
        header, data = npy_header(content)
    except struct.error:
        return mutated(content, rng)
    how = rng.randrange(5)
    if how == 0:
        header = re.sub(rb"'shape': \([^)]*\)", lambda _: b"'shape': " + rng.choice(_ODD_SHAPES), header)
    elif how == 1:
        header = re.sub(rb"'descr': '[^']*'", lambda _: b"'descr': '" + rng.choice(_ODD_TYPES) + b"'", header)
    elif how == 2:
        header = mutated(header, rng)[:60000]
    elif how == 3:
        words = [data[i : i + 4] for i in range(0, len(data), 4)] or [b""]
        odd = (b"\xff" * 4, b"\0" * 4, struct.pack("<f", float("nan")), struct.pack("<i", 2**31 - 1), b"\0\0\x80\x7f")
        words[rng.randrange(len(words))] = rng.choice(odd)
        data = b"".join(words)
    else:
        data = mutated(data, rng)
    return content[:8] + struct.pack("<H", len(header)) + header + data


def mutate_zip(content: bytes, rng: Random) -> bytes:
    """Change one member of an archive, or drop, double or rename it; checksums are right."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = [(name, archive.read(name)) for name in archive.namelist()]
    place, how = rng.randrange(len(members)), rng.randrange(8)
    name, data = members[place]
    if how == 0:
        del members[place]
    elif how == 1:
        members[place] = (rng.choice(("../x.npy", "/x.npy", "X.npy", "y.npy", "a", "x\0y")), data)
    elif how == 2:
        members.append(rng.choice(members))
    elif how == 3:
        members[place] = (name, rng.choice(members)[1])
    else:
        members[place] = (name, mutate_npy(data, rng))
    out = io.BytesIO()
    import warnings

    with warnings.catch_warnings(), zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        warnings.simplefilter("ignore")  # about a name that occurs twice
        for name, data in members:
            archive.writestr(name, data)
    return out.getvalue()


def mutate_safetensors(content: bytes, rng: Random) -> bytes:
    """Change a file of safetensors: its header, with the right length or another, or its numbers."""
    (size,) = struct.unpack("<Q", content[:8])
    header, data = content[8 : 8 + size], content[8 + size :]
    how = rng.randrange(5)
    if how == 0:
        wrong = (0, 1, size + 1, size - 1, 2**31, 2**63, 2**64 - 1, 10**12, len(content))
        return struct.pack("<Q", rng.choice(wrong)) + header + data
    if how == 1:
        header = mutated(header, rng)
    elif how in (2, 3):
        header = json.dumps(mutate_json(json.loads(header), rng)).encode(errors="surrogatepass")
    else:
        data = mutated(data, rng)
    return struct.pack("<Q", len(header)) + header + data
