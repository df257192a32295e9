"""Small pieces of HTML. Whatever comes from outside is escaped here, and only here."""

from __future__ import annotations

import base64
import re
import struct
import zlib
from collections.abc import Iterable, Sequence
from html import escape

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "NO_BREAK",
    "bar",
    "element",
    "figure",
    "number",
    "percent",
    "picture",
    "plain",
    "section",
    "table",
    "text",
    "verdict",
]

# Between a number and its unit, where no line may end.
NO_BREAK = "\N{NO-BREAK SPACE}"
_STRANGE = "\N{REPLACEMENT CHARACTER}"


def plain(value: object) -> str:
    """Text without characters that turn the direction of writing or are no characters at all, lest a name undo what is
    around it; tabs and ends of lines are spaces."""
    return "".join(c if c.isprintable() or c == NO_BREAK else " " if c.isspace() else _STRANGE for c in str(value))


def text(value: object) -> str:
    """Text as HTML."""
    return escape(re.sub(r"(?<=\d) (?=%)", NO_BREAK, plain(value)), quote=True)


def element(tag: str, content: str, **attributes: str) -> str:
    """An element around HTML; `class_` stands for class, and _ in other names for -."""
    named = "".join(f' {_attribute(name)}="{text(value)}"' for name, value in attributes.items())
    return f"<{tag}{named}>{content}</{tag}>"


def _attribute(name: str) -> str:
    return "class" if name == "class_" else name.replace("_", "-")


def section(identifier: str, title: str, *parts: str) -> str:
    """A part of the page with a heading; nothing at all where there is nothing in it."""
    content = "\n".join(part for part in parts if part)
    return element("section", f"<h2>{text(title)}</h2>\n{content}", id=identifier) if content else ""


def figure(drawing: str, caption: str) -> str:
    """A figure with the caption (HTML) that says what to look for."""
    return element("figure", f"{drawing}\n<figcaption>{caption}</figcaption>")


def table(head: Sequence[str], rows: Iterable[Sequence[str]], *, class_: str = "") -> str:
    """A table of cells that are HTML; the first of a row is its header. It scrolls in itself where it is too wide."""
    top = "".join(f'<th scope="col">{cell}</th>' for cell in head)
    lines = []
    for first, *others in rows:
        lines.append(f'<tr><th scope="row">{first}</th>' + "".join(f"<td>{cell}</td>" for cell in others) + "</tr>")
    inner = f"<table><thead><tr>{top}</tr></thead><tbody>{''.join(lines)}</tbody></table>"
    return element("div", inner, class_=f"scroll {class_}".strip(), tabindex="0", role="group")


def percent(value: float, digits: int = 1) -> str:
    """A share as a person reads it."""
    return "–" if not np.isfinite(value) else f"{100 * value:.{digits}f}{NO_BREAK}%"


def number(value: float | None, digits: int = 1) -> str:
    """A number, or a dash for none."""
    return "–" if value is None or not np.isfinite(value) else f"{value:,.{digits}f}"


def verdict(is_right: bool) -> str:
    """Right or wrong: a sign, and a word for those who do not see it."""
    sign, word = ("✓", "right") if is_right else ("✗", "wrong")
    return f'<span class="{word}"><span aria-hidden="true">{sign}</span><span class="unseen">{word}</span></span>'


def bar(value: float, ends: tuple[float, float] | None = None) -> str:
    """A probability on a line from 0 to 1, with the interval around it."""
    at = f"{100 * min(max(value, 0.0), 1.0):.1f}%"
    inner = ""
    if ends is not None:
        low, high = (min(max(end, 0.0), 1.0) for end in ends)
        low = min(low, 0.99)  # or the line would lie beyond the end
        inner = f'<i class="range" style="left:{100 * low:.1f}%;width:{100 * max(high - low, 0):.1f}%"></i>'
    return f'<span class="bar" aria-hidden="true"><i class="fill" style="width:{at}"></i>{inner}</span>'


def picture(image: NDArray[np.float64], label: str) -> str:
    """Values from 0 to 1 as ink on the page, whatever colour that is."""
    height, width = image.shape
    grey_alpha = np.zeros((height, width, 2), np.uint8)
    grey_alpha[..., 1] = np.round(255 * np.clip(image, 0, 1)).astype(np.uint8)
    lines = b"".join(b"\0" + line.tobytes() for line in grey_alpha)
    header = struct.pack(">IIBBBBB", width, height, 8, 4, 0, 0, 0)
    png = b"\x89PNG\r\n\x1a\n" + b"".join(
        _chunk(kind, content)
        for kind, content in ((b"IHDR", header), (b"IDAT", zlib.compress(lines, 9)), (b"IEND", b""))
    )
    source = f"data:image/png;base64,{base64.b64encode(png).decode()}"
    return f'<img class="ink" src="{source}" width="{width}" height="{height}" alt="{text(label)}">'


def _chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
