"""The house rules that a machine can check."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "labelfield"

# What each room may import from. Reading downwards is the direction drawn in docs/ARCHITECTURE.md.
FOUNDATION = {"errors", "progress", "version", "csr", "atomic"}
MAY_IMPORT = {
    "errors": set(),
    "progress": set(),
    "version": set(),
    "csr": {"errors"},
    "atomic": set(),
    "linalg": FOUNDATION,
    "kernels": FOUNDATION | {"linalg"},
    "inducing": FOUNDATION | {"linalg", "kernels"},
    "variational": FOUNDATION | {"linalg", "kernels", "inducing"},
    "likelihoods": FOUNDATION | {"linalg"},
    "networks": FOUNDATION | {"linalg"},
    "models": FOUNDATION | {"linalg", "kernels", "inducing", "variational", "likelihoods", "networks"},
    "data": FOUNDATION | {"linalg"},
    "synth": FOUNDATION | {"data", "linalg"},
    "metrics": FOUNDATION,
    "topics": FOUNDATION | {"linalg"},
    "inference": FOUNDATION
    | {"data", "linalg", "kernels", "inducing", "variational", "likelihoods", "networks", "models", "topics"},
}
MAY_IMPORT["estimators"] = {*MAY_IMPORT, "metrics"}
MAY_IMPORT["explain"] = {*MAY_IMPORT, "estimators"}
MAY_IMPORT["report"] = {*MAY_IMPORT, "explain"}
MAY_IMPORT["cli"] = {*MAY_IMPORT, "report"}
FRONT = {"__init__", "__main__"}


def room_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported_names(path: Path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: relative import"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        for name in names:
            yield node.lineno, name.split(".")


def imported_rooms(path: Path):
    for line, parts in imported_names(path):
        if parts[0] == "labelfield":
            yield line, parts[1] if len(parts) > 1 else "__init__"


MODULES = sorted(PACKAGE.rglob("*.py"))


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_point_one_way(path):
    room = room_of(path)
    if room in FRONT:
        return
    assert room in MAY_IMPORT, f"{room} is not drawn in the architecture; add it to docs/ARCHITECTURE.md and here"
    for line, other in imported_rooms(path):
        # The version is a name of the package itself.
        allowed = MAY_IMPORT[room] | {room} | ({"__version__"} if room == "cli" else set())
        assert other in allowed, f"{path.relative_to(ROOT)}:{line}: {room} must not import {other}"


def test_an_arrow_that_turns_back_is_seen(tmp_path):
    bad = tmp_path / "bad.py"
    bad.write_text("from labelfield.cli import main\nimport labelfield.models\n")
    assert list(imported_rooms(bad)) == [(1, "cli"), (2, "models")]
    assert "cli" not in MAY_IMPORT["metrics"]
    assert "models" not in MAY_IMPORT["kernels"]


def test_the_package_imports_nothing_of_the_benchmarks():
    for path in MODULES:
        for line, parts in imported_names(path):
            assert parts[0] not in ("benchmarks", "tests"), f"{path.relative_to(ROOT)}:{line}: {'.'.join(parts)}"


def test_metrics_need_no_torch():
    for path in (PACKAGE / "metrics").glob("*.py"):
        assert not re.search(r"^(import|from) (torch|sklearn)", path.read_text(), re.MULTILINE), path


def test_every_module_has_a_docstring():
    for path in MODULES:
        assert ast.get_docstring(ast.parse(path.read_text())), path


def test_every_public_name_exists():
    import importlib

    for path in MODULES:
        if path.name == "__main__.py":
            continue
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        module = importlib.import_module(name)
        for public in getattr(module, "__all__", ()):
            assert hasattr(module, public), f"{name}.{public}"
