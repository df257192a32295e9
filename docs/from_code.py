"""Parts of the site that are generated from the code: commands and options as tables, docstrings as RST."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Literal, get_args, get_origin

from docutils import nodes
from sphinx.util.docutils import SphinxDirective
from typer.main import get_command

import labelfield
from labelfield.cli.main import app
from labelfield.estimators.options import parameters
from labelfield.methods import METHODS

__all__ = [
    "Commands",
    "Methods",
    "Options",
    "as_rst",
    "commands",
    "is_hidden_member",
    "method_table",
    "option_table",
    "without_options",
]


# Commands


def commands() -> str:
    """Return all commands of `labelfield` in Markdown, as --help describes them."""
    return "\n".join(_pages(get_command(app), "labelfield"))


def _pages(command: Any, name: str) -> Iterator[str]:
    for part in command.commands.values():
        if not getattr(part, "hidden", False):
            yield _page(part, f"{name} {part.name}")


def _page(command: Any, name: str) -> str:
    text, _, example = (command.help or "").partition("Example:")
    arguments = [part for part in command.params if part.param_type_name == "argument"]
    options = [part for part in command.params if part.param_type_name == "option"]
    words = [part.name.upper() for part in arguments]
    lines = [
        f"## {name}",
        "",
        " ".join(text.split()),
        "",
        "```sh",
        " ".join([name, *words, "[OPTIONS]"]),
    ]
    if example:
        lines += ["", "# for example", " ".join(example.split())]
    lines += [
        "```",
        "",
        "| argument or option | what it is | default |",
        "| --- | --- | --- |",
    ]
    for part, word in zip(arguments, words, strict=True):
        lines.append(f"| `{word}` | {_cell(part.help)} | {_default(part)} |")
    for part in options:
        if "--help" not in part.opts:
            names = ", ".join(
                f"`{name}`" for name in (*part.opts, *part.secondary_opts)
            )
            lines.append(
                f"| {names} | {_cell(part.help)} {_choices(part)} | {_default(part)} |"
            )
    return "\n".join([*lines, ""])


def _cell(text: str | None) -> str:
    return " ".join((text or "").split()).replace("|", "\\|")


def _choices(part: Any) -> str:
    annotation = part.type_descriptor.annotation
    return (
        f"({', '.join(get_args(annotation))})"
        if get_origin(annotation) is Literal
        else ""
    )


def _default(part: Any) -> str:
    value = part.default
    is_plain = isinstance(value, str | int | float) and not isinstance(value, bool)
    return "required" if part.required else f"`{value}`" if is_plain else ""


# Methods


def method_table() -> str:
    """Return all methods of `labelfield train` in Markdown: their labels, their class and a sentence about each."""
    lines = ["| method | for | class | what it is |", "| --- | --- | --- | --- |"]
    for name, method in METHODS.items():
        estimator = method.load().__name__
        lines.append(
            f"| `{name}` | {method.labels} | `{estimator}` | {_cell(method.sentence)} |"
        )
    return "\n".join([*lines, ""])


class Methods(SphinxDirective):
    """A table of the methods."""

    def run(self) -> list[nodes.Node]:
        return self.parse_text_to_nodes(method_table())


# Options of estimators


def option_table(estimator: str) -> str:
    """Return the options of a classifier in Markdown: default, meaning and constraint, as its class declares them."""
    lines = [
        "| option | default | what it is | what it may be |",
        "| --- | --- | --- | --- |",
    ]
    for option in parameters(getattr(labelfield, estimator)).values():
        allowed = option.kind if option.constraint is None else str(option.constraint)
        if option.constraint is not None and option.default is None:
            allowed += ", or None"
        lines.append(
            f"| `{option.name}` | `{option.default!r}` | {_cell(option.meaning)} | {_cell(allowed)} |"
        )
    return "\n".join([*lines, ""])


class Commands(SphinxDirective):
    """A table for each command."""

    def run(self) -> list[nodes.Node]:
        return self.parse_text_to_nodes(commands(), allow_section_headings=True)


class Options(SphinxDirective):
    """A table of the options of a classifier."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        return self.parse_text_to_nodes(option_table(self.arguments[0]))


# Docstrings


def as_rst(_: Any, __: str, ___: str, ____: Any, _____: Any, lines: list[str]) -> None:
    """Turn a docstring, which is plain text with `code` in backticks, into RST.

    The options of a classifier are left out: a table shows them.
    """
    if "Parameters" in lines:
        del lines[lines.index("Parameters") :]
    lines[:] = [_escaped(line) for line in lines]


def _escaped(line: str) -> str:
    parts = re.split(r"(`[^`]+`)", line)
    return "".join(
        f"`{part}`" if part.startswith("`") else re.sub(r"([\\*|_])", r"\\\1", part)
        for part in parts
    )


def without_options(
    _: Any, what: str, name: str, __: Any, ___: Any, signature: str | None, returns: Any
) -> tuple[str, Any] | None:
    """Leave options of classifiers, which a table shows, and the type Any, which says nothing, out of signatures."""
    if what == "class" and re.fullmatch(r"labelfield\.\w+Classifier", name):
        return "(**options)", None
    if signature is None:
        return None
    is_open = returns is None or returns.endswith("Any")
    plain = re.sub(r": (~?typing\.)?Any\b", "", _without_shapes(signature))
    return plain, None if is_open else _without_shapes(returns)


def _without_shapes(types: str) -> str:
    """Leave out the shapes of arrays, which the text describes."""
    return re.sub(r"(numpy\.ndarray)\[tuple\[[^]]*\], [^[]*\[[^]]*\]\]", r"\1", types)


# Methods of classifiers that other parts of the package call, such as ensembles and commands.
_INTERNAL = {
    "fitted",
    "topic_predictor",
    "topic_trainer",
}


def is_hidden_member(_: Any, __: str, name: str, member: Any, *___: Any) -> bool | None:
    """Skip internal methods, and what scikit-learn adds to its classes, such as `set_fit_request`."""
    module = getattr(member, "__module__", None) or ""
    is_request = name.startswith("set_") and name.endswith("_request")
    is_hidden = name in _INTERNAL or is_request or module.startswith("sklearn.")
    return True if is_hidden else None
