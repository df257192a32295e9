"""Small pieces of HTML. Text from outside is escaped here, and only here."""

import base64
import re
import struct
import zlib
from collections.abc import Iterable, Sequence
from html import escape

import numpy as np
from numpy.typing import NDArray

# Between a number and its unit, where a line must not break.
NO_BREAK = "\N{NO-BREAK SPACE}"
_STRANGE = "\N{REPLACEMENT CHARACTER}"


def plain(value: object) -> str:
    """Return text without control characters, which could reverse or hide what is around it; line ends as spaces."""
    return "".join(c if c.isprintable() or c == NO_BREAK else " " if c.isspace() else _STRANGE for c in str(value))


def text(value: object) -> str:
    """Return text as HTML."""
    return escape(re.sub(r"(?<=\d) (?=%)", NO_BREAK, plain(value)), quote=True)


def element(tag: str, content: str, **attributes: str) -> str:
    """Return an element around HTML; `class_` stands for class, and _ in other names for -."""
    named = "".join(
        f' {name.removesuffix("_").replace("_", "-")}="{text(value)}"' for name, value in attributes.items()
    )
    return f"<{tag}{named}>{content}</{tag}>"


def paragraph(*sentences: str, class_: str = "") -> str:
    """Return sentences of plain text, those that are not empty, as a paragraph."""
    content = text(" ".join(filter(None, sentences)))
    return element("p", content, class_=class_) if class_ else f"<p>{content}</p>"


def muted(value: str) -> str:
    """Return plain text in a muted colour."""
    return f'<span class="muted">{text(value)}</span>'


def section(identifier: str, title: str, *parts: str) -> str:
    """Return a part of the page with a heading; nothing if it has no content."""
    content = "\n".join(part for part in parts if part)
    return element("section", f"<h2>{text(title)}</h2>\n{content}", id=identifier) if content else ""


def figure(drawing: str, *sentences: str) -> str:
    """Return a figure with a caption in plain text, which says what to look for."""
    return element("figure", f"{drawing}\n<figcaption>{text(' '.join(filter(None, sentences)))}</figcaption>")


def table(head: Sequence[str], rows: Iterable[Sequence[str]], *, class_: str = "") -> str:
    """Return a table of cells that are HTML, the first of each row its header; it scrolls if it is too wide."""
    top = "".join(f'<th scope="col">{cell}</th>' for cell in head)
    lines = "".join(
        f'<tr><th scope="row">{first}</th>' + "".join(f"<td>{cell}</td>" for cell in others) + "</tr>"
        for first, *others in rows
    )
    inner = f"<table><thead><tr>{top}</tr></thead><tbody>{lines}</tbody></table>"
    return element("div", inner, class_=f"scroll {class_}".strip(), tabindex="0", role="group")


def percent(value: float, digits: int = 1) -> str:
    """Return a share in percent, or a dash for none."""
    return "–" if not np.isfinite(value) else f"{100 * value:.{digits}f}{NO_BREAK}%"


def number(value: float | None, digits: int = 1) -> str:
    """Return a number, or a dash for none."""
    return "–" if value is None or not np.isfinite(value) else f"{value:,.{digits}f}"


def verdict(is_right: bool) -> str:
    """Return a sign for right or wrong, and the word for screen readers."""
    sign, word = ("✓", "right") if is_right else ("✗", "wrong")
    return f'<span class="{word}"><span aria-hidden="true">{sign}</span><span class="unseen">{word}</span></span>'


def bar(value: float, ends: tuple[float, float] | None = None) -> str:
    """Return a probability as a bar from 0 to 1, with the interval around it."""
    at = f"{100 * min(max(value, 0.0), 1.0):.1f}%"
    inner = ""
    if ends is not None:
        low, high = (min(max(end, 0.0), 1.0) for end in ends)
        low = min(low, 0.99)  # so that the line does not lie beyond the end
        inner = f'<i class="range" style="left:{100 * low:.1f}%;width:{100 * max(high - low, 0):.1f}%"></i>'
    return f'<span class="bar" aria-hidden="true"><i class="fill" style="width:{at}"></i>{inner}</span>'


def picture(image: NDArray[np.float64], label: str) -> str:
    """Return values from 0 to 1 as an image, in the colour that the page has for ink."""
    height, width = image.shape
    grey_alpha = np.zeros((height, width, 2), np.uint8)
    grey_alpha[..., 1] = np.round(255 * np.clip(image, 0, 1)).astype(np.uint8)
    lines = b"".join(b"\0" + line.tobytes() for line in grey_alpha)
    header = struct.pack(">IIBBBBB", width, height, 8, 4, 0, 0, 0)
    png = b"\x89PNG\r\n\x1a\n"
    for kind, content in ((b"IHDR", header), (b"IDAT", zlib.compress(lines, 9)), (b"IEND", b"")):
        png += struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
    source = f"data:image/png;base64,{base64.b64encode(png).decode()}"
    return f'<img class="ink" src="{source}" width="{width}" height="{height}" alt="{text(label)}">'
