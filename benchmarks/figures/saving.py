"""How pictures are saved in docs/images."""

from __future__ import annotations

from io import BytesIO
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt
from PIL import Image

from benchmarks import paths

__all__ = ["save_png", "save_svg"]


def save_svg(figure: Any, name: str) -> str:
    """Save a figure as SVG, the same file from the same records; return its path in the repository."""
    with mpl.rc_context({"svg.hashsalt": "labelfield"}):
        figure.savefig(paths.IMAGES / name, metadata={"Date": None})
    plt.close(figure)
    return f"docs/images/{name}"


def save_png(figure: Any, name: str, dpi: int, n_colours: int) -> str:
    """Save a figure as PNG with few colours, which makes it small; return its path in the repository."""
    drawn = BytesIO()
    figure.savefig(drawn, dpi=dpi)
    plt.close(figure)
    Image.open(drawn).convert("RGB").quantize(n_colours).save(paths.IMAGES / name, optimize=True)
    return f"docs/images/{name}"
