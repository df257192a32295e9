"""Settings of the documentation site: `make docs` builds it into build/docs/html, offline, with warnings as errors."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import labelfield
from from_code import (
    Commands,
    Methods,
    Options,
    as_rst,
    is_hidden_member,
    without_options,
)

project = "labelfield"
version = release = labelfield.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc"]
exclude_patterns = ["images/*.md"]
# Headings down to this level can be linked to, as [text](PAGE.md#heading), in a repository browser too.
myst_heading_anchors = 4
suppress_warnings = ["myst.strikethrough"]  # a tilde is never meant as one

autodoc_typehints = "signature"
autodoc_member_order = "alphabetical"
python_maximum_signature_line_length = 96
python_use_unqualified_type_names = True
# Types of other packages have their pages elsewhere, and the site is built without a network.
nitpick_ignore_regex = [
    (
        "py:.*",
        r"(numpy|np|scipy|sparse|torch|nn|pathlib|os|collections|dataclasses|Dataset|Names|Scores|Progress)\b.*",
    ),
    (
        "py:.*",
        r".*(NDArray|ArrayLike|Tensor|Path|PathLike|Self|Sequence|Mapping|Iterable|csr_array|Unlabelled).*",
    ),
    (
        "py:.*",
        r"(typing|Literal|Module|RandomState|sklearn|labelfield\.progress|labelfield\.cluster|labelfield\.models\.predictor|tuple\[~typing|labelfield\.metrics\.(inputs|ranking))\b.*",
    ),
    (
        "py:class",
        r"labelfield\.(inference\.(run\.Settings|fitting\.Trainer)|data\.dataset\.Names|estimators\.classifier\.Classifier)",
    ),  # internal, and named for what they are
    (
        "py:class",
        r"labelfield\.(active\.tools\.Task|decide\.evidence\.Outcome)",
    ),  # listed as labelfield.active.Task; a pair of arrays that methods return
    (
        "py:class",
        r"(dict|tuple)\[\w+",
    ),  # types of fields, which Sphinx cuts at the comma
]

html_theme = "furo"
html_title = "labelfield"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sourcelink = False
html_show_sphinx = False
html_show_copyright = False
pygments_style = "friendly"
pygments_dark_style = "github-dark"
html_theme_options = {
    "light_css_variables": {
        "color-brand-primary": "#0f5c7a",
        "color-api-name": "#0f5c7a",
        "color-api-pre-name": "#4a6b78",
        "color-brand-content": "#0f6a8c",
    },
    "dark_css_variables": {
        "color-brand-primary": "#6cc4e4",
        "color-api-name": "#8fd3ec",
        "color-api-pre-name": "#8aa4ae",
        "color-brand-content": "#7fcbe6",
    },
}


# CONTRIBUTING.md stands at the root of the repository; on the site it is a page like the others.
_ON_THE_SITE = {"](../CONTRIBUTING.md": "](contributing.md"}


def _read(_: Any, __: str, source: list[str]) -> None:
    for there, here in _ON_THE_SITE.items():
        source[0] = source[0].replace(there, here)


def setup(app: Any) -> None:
    """Register the directives and hooks that generate pages from the code."""
    app.add_directive("commands", Commands)
    app.add_directive("methods", Methods)
    app.add_directive("options", Options)
    app.connect("source-read", _read)
    app.connect("autodoc-process-docstring", as_rst)
    app.connect("autodoc-process-signature", without_options)
    app.connect("autodoc-skip-member", is_hidden_member)
