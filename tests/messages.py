"""`python tests/messages.py build/coverage.json`: the errors that the package can raise and no test has raised.

`make coverage` runs the fast tests, writes that file, and fails where this list is not empty.
"""

import ast
import json
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]


def sites(source: str) -> Iterator[tuple[int, str]]:
    """Yield the line and the text of every statement that raises or makes an error.

    `raise` alone and `raise error` pass on what was raised elsewhere.
    """
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Raise):
            made = node.exc
        elif isinstance(node, ast.Return | ast.Assign):
            made = node.value
        else:
            continue
        if isinstance(made, ast.Call) and (isinstance(node, ast.Raise) or _name(made).endswith("Error")):
            yield node.lineno, " ".join(ast.unparse(made).split())


def _name(call: ast.Call) -> str:
    called = call.func
    return called.attr if isinstance(called, ast.Attribute) else called.id if isinstance(called, ast.Name) else ""


def never_raised(coverage: Path) -> tuple[list[str], int]:
    """Return the errors that no test has raised, each with its place, and how many there are in all."""
    files = json.loads(coverage.read_text())["files"]
    found, n_sites = [], 0
    for path in sorted((ROOT / "labelfield").rglob("*.py")):
        name = path.relative_to(ROOT).as_posix()
        run = set(files[name]["executed_lines"]) if name in files else set()
        left_out = set(files[name]["excluded_lines"]) if name in files else set()
        for line, text in sorted(sites(path.read_text())):
            n_sites += line not in left_out
            if line not in run and line not in left_out:
                found.append(f"{name}:{line}: {text[:110]}")
    return found, n_sites


if __name__ == "__main__":
    missing, n_sites = never_raised(Path(sys.argv[1]))
    print("\n".join(missing))
    print(f"{n_sites - len(missing)} of {n_sites} errors are raised by a test")
    sys.exit(len(missing) > 0)
