"""What the site shows of the code itself: commands and options as tables, docstrings as they are meant."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from contextlib import redirect_stdout
from typing import Any, Literal, get_args, get_origin

from docutils import nodes
from sphinx.util.docutils import SphinxDirective
from typer.main import get_command

from labelfield.cli.main import app
from labelfield.cli.training import config

__all__ = [
    "Commands",
    "Options",
    "as_rst",
    "commands",
    "is_foreign_member",
    "option_table",
    "without_options",
]


# Commands


def commands() -> str:
    """All commands of `labelfield` in Markdown, from what they say of themselves with --help."""
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


# Options of estimators


def option_table(method: str) -> str:
    """The options of a method with their defaults and meanings in Markdown, from what `labelfield config` prints."""
    with redirect_stdout(io.StringIO()) as printed:
        config(method)
    lines = ["| option | default | what it is |", "| --- | --- | --- |"]
    for line in printed.getvalue().splitlines()[1:]:
        found = re.fullmatch(r"(?:# )?(\w+) =\s?(.*?)\s+# (.*)", line)
        assert found, line
        name, default, meaning = found.groups()
        lines.append(
            f"| `{name}` | {f'`{default}`' if default else 'by the data'} | {_cell(meaning)} |"
        )
    return "\n".join([*lines, ""])


class Commands(SphinxDirective):
    """All commands."""

    def run(self) -> list[nodes.Node]:
        return self.parse_text_to_nodes(commands(), allow_section_headings=True)


class Options(SphinxDirective):
    """The options of a method."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        return self.parse_text_to_nodes(option_table(self.arguments[0]))


# Docstrings


def as_rst(_: Any, __: str, ___: str, ____: Any, _____: Any, lines: list[str]) -> None:
    """Docstrings are plain text with `code` in backticks; nothing else in them is markup."""
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
    """Estimators have thirty options, which a table shows better than a signature; and that X is Any says nothing."""
    if what == "class" and name.endswith("Classifier"):
        return "(**options)", None
    if signature is None:
        return None
    is_open = returns is None or returns.endswith("Any")
    plain = re.sub(r": (~?typing\.)?Any\b", "", _without_shapes(signature))
    return plain, None if is_open else _without_shapes(returns)


def _without_shapes(types: str) -> str:
    """An array is an array: of what shape, the text says."""
    return re.sub(r"(numpy\.ndarray)\[tuple\[[^]]*\], [^[]*\[[^]]*\]\]", r"\1", types)


def is_foreign_member(
    _: Any, __: str, name: str, member: Any, *___: Any
) -> bool | None:
    """scikit-learn gives its classes methods such as `set_fit_request`, which are its own affair."""
    module = getattr(member, "__module__", None) or ""
    is_request = name.startswith("set_") and name.endswith("_request")
    return True if is_request or module.startswith("sklearn.") else None
