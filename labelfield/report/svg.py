"""Figures as SVG inside a page: text stays text, colours follow the page, and figures do not interfere."""

import io
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from html import escape
from typing import Any

import matplotlib as mpl
from cycler import cycler

# Stand-ins that no figure has by chance; the page replaces them by colours of its style sheet.
INK, MUTED, LINE, ACCENT, OTHER, THIRD = (f"#0badc{number}" for number in range(6))
_VARIABLES = {INK: "ink", MUTED: "muted", LINE: "line", ACCENT: "c1", OTHER: "c2", THIRD: "c3"}
# In points: a figure is about as many points wide as a phone is pixels.
_SIZE = 11.0
_SETTINGS: dict[str, Any] = {
    "svg.fonttype": "none",
    "font.size": _SIZE,
    "font.family": "DejaVu Sans",  # comes with matplotlib, and is wider than the fonts of browsers, so nothing overlaps
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.grid": True,
    "grid.color": LINE,
    "grid.linewidth": 0.8,
    "text.color": INK,
    **dict.fromkeys(("axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color"), MUTED),
    **dict.fromkeys(("axes.facecolor", "figure.facecolor", "savefig.facecolor"), "none"),
    **dict.fromkeys(("xtick.labelsize", "ytick.labelsize", "legend.fontsize"), _SIZE - 1),
    "legend.frameon": False,
    "lines.linewidth": 1.8,
    "lines.markersize": 5,
    "hatch.linewidth": 0.8,
}


@contextmanager
def drawing(name: str) -> Iterator[None]:
    """Set matplotlib up for a figure of this name, within the block alone."""
    # Any, because matplotlib types the names of settings from version 3.11 on.
    own: Any = _SETTINGS | {"axes.prop_cycle": cycler(color=[ACCENT, OTHER, THIRD]), "svg.hashsalt": name}
    with mpl.rc_context(own), warnings.catch_warnings():
        # Text stays text: the browser finds a font that has the glyph.
        warnings.filterwarnings("ignore", r"Glyph \d+ .* missing from font")
        yield


def to_svg(figure: Any, name: str, label: str) -> str:
    """Return a figure as an <svg> element with a label that says what it shows; call it within `drawing`."""
    text = io.StringIO()
    figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    svg = text.getvalue()
    # The rules of its style would apply to the whole page.
    extra = r"<metadata>.*?</metadata>|<style.*?</style>|<!--.*?-->\s*"
    svg = re.sub(extra, "", svg[svg.index("<svg") :], flags=re.DOTALL).replace("xlink:href", "href")
    svg = _own_ids(svg, name)
    view = re.search(r'viewBox="([^"]*)"', svg)
    assert view is not None  # matplotlib writes one
    opening = f'<svg viewBox="{view[1]}" role="img" aria-label="{escape(label, quote=True)}">'
    svg = re.sub(r"<svg\b[^>]*>", lambda _: opening, svg, count=1)
    # The figure takes the font of the page.
    svg = re.sub(r"font: ((?:[a-z0-9]+ )*)([0-9.]+)px [^;\"]*", _font, svg)  # as matplotlib before 3.10 writes it
    svg = re.sub(r"font-family: [^;\"]*;? ?", "", svg)
    for stand_in, variable in _VARIABLES.items():
        svg = svg.replace(stand_in, f"var(--{variable})")
    return re.sub(r"\n\s*", "\n", svg).strip()


def _font(found: re.Match[str]) -> str:
    weight = "font-weight: 600; " if "bold" in found[1] or "700" in found[1] else ""
    return f"{weight}font-size: {found[2]}px"


def _own_ids(svg: str, name: str) -> str:
    """Begin ids that are referred to with the name of the figure; drop the others, which all figures share."""
    refers = r'(url\(#|href="#)([^)"]+)'
    used = {found[2] for found in re.finditer(refers, svg)}
    svg = re.sub(r' id="([^"]*)"', lambda found: f' id="{name}-{found[1]}"' if found[1] in used else "", svg)
    return re.sub(refers, rf"\1{name}-\2", svg)
