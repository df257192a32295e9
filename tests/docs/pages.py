"""Run the pages of the documentation."""

import ast
import re
import shlex
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
# The value of an expression, as a page shows it.
_ARROW = re.compile(r"# → (.*)$")


def blocks(page):
    """Yield each ```python and ```sh block of a page: its language, its line, its text."""
    for found in re.finditer(r"^```(python|sh)\n(.*?)^```$", page, re.DOTALL | re.MULTILINE):
        yield found[1], page[: found.start()].count("\n") + 2, found[2]


def run_python(code, names, where):
    """Run code statement by statement; an expression with an arrow must have the value behind it."""
    lines = code.splitlines()
    for statement in ast.parse(code).body:
        arrow = _ARROW.search(lines[statement.end_lineno - 1])
        if isinstance(statement, ast.Expr) and arrow:
            value = eval(compile(ast.Expression(statement.value), where, "eval"), names)
            assert repr(value) == arrow[1], f"{where}: {lines[statement.end_lineno - 1]}"
        else:
            assert not arrow, f"{where}: an arrow behind what is no expression"
            exec(compile(ast.Module([statement], []), where, "exec"), names)


def commands(block):
    """Yield the calls of labelfield and of the benchmarks in a block, each as program and arguments.

    Comments are dropped, and continued lines joined.
    """
    for line in block.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        for program in ("labelfield", "python -m benchmarks"):
            n_words = len(program.split())
            if " ".join(words[:n_words]) == program:
                yield program, words[n_words:]
