"""The house rules that a machine can check."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "labelfield"

# What each room may import from. Reading downwards is the direction drawn in docs/ARCHITECTURE.md.
ALONE = {"errors", "progress", "version", "atomic", "constraints", "memory", "methods", "presets"}
FOUNDATION = {*ALONE, "mapped", "csr", "cluster"}
MAY_IMPORT = {
    **{name: set() for name in ALONE},
    "mapped": {"errors"},
    "csr": {"errors", "mapped"},
    "cluster": {"errors"},
    "compiled": set(),
    "linalg": FOUNDATION,
    "kernels": FOUNDATION | {"linalg"},
    "inducing": FOUNDATION | {"linalg", "kernels"},
    "variational": FOUNDATION | {"linalg", "kernels", "inducing"},
    "likelihoods": FOUNDATION | {"linalg", "compiled"},
    "networks": FOUNDATION | {"linalg"},
    "models": FOUNDATION | {"compiled", "linalg", "kernels", "inducing", "variational", "likelihoods", "networks"},
    "data": FOUNDATION | {"linalg"},
    "synth": FOUNDATION | {"data", "linalg"},
    "text": FOUNDATION | {"data", "compiled"},
    "metrics": FOUNDATION,
    "decide": FOUNDATION,
    "topics": FOUNDATION | {"linalg", "models"},
    "light": FOUNDATION | {"compiled", "data", "text", "models"},
}
MAY_IMPORT["inference"] = {*MAY_IMPORT} - {"synth"}
MAY_IMPORT["estimators"] = {*MAY_IMPORT} - {"synth"}
MAY_IMPORT["explain"] = {*MAY_IMPORT, "estimators"}
MAY_IMPORT["report"] = {*MAY_IMPORT, "explain"}
MAY_IMPORT["active"] = {*MAY_IMPORT} - {"synth", "report"}
MAY_IMPORT["share"] = {*MAY_IMPORT} - {"synth", "report", "active"}
MAY_IMPORT["serve"] = {*MAY_IMPORT} - {"synth"}
MAY_IMPORT["cli"] = {*MAY_IMPORT, "report"}
FRONT = {"__init__", "__main__"}


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def room_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported_names(path: Path):
    for node in ast.walk(tree_of(path)):
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
            assert parts[0] not in ("benchmarks", "tests", "torture"), (
                f"{path.relative_to(ROOT)}:{line}: {'.'.join(parts)}"
            )


@pytest.mark.parametrize("room", ["metrics", "decide"])
def test_metrics_and_decisions_need_no_torch(room):
    for path in (PACKAGE / room).glob("*.py"):
        assert not re.search(r"^(import|from) (torch|sklearn)", path.read_text(), re.MULTILINE), path


def test_every_module_has_a_docstring():
    for path in MODULES:
        assert ast.get_docstring(tree_of(path)), path


def test_every_public_name_exists():
    import importlib

    for path in MODULES:
        if path.name == "__main__.py":
            continue
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        module = importlib.import_module(name)
        for public in getattr(module, "__all__", ()):
            assert hasattr(module, public), f"{name}.{public}"


def class_definitions(path: Path):
    return [node for node in ast.walk(tree_of(path)) if isinstance(node, ast.ClassDef)]


def our_depths(definitions: dict[str, list[str]]) -> dict[str, int]:
    """How many of our own classes each class is the last of: 1 without a base of ours, 2 with one."""

    def depth(name: str) -> int:
        return 0 if name not in definitions else 1 + max(map(depth, definitions[name]), default=0)

    return {name: depth(name) for name in definitions}


def test_inheritance_is_at_most_two_deep():
    bases: dict[str, list[str]] = {}
    for path in MODULES:
        for node in class_definitions(path):  # two classes of one name count as one with the bases of both
            bases.setdefault(node.name, []).extend(
                ast.unparse(base).split("[")[0].split(".")[-1] for base in node.bases
            )
    assert len(bases) > 150
    too_deep = {name: depth for name, depth in our_depths(bases).items() if depth > 2}
    assert not too_deep


def test_a_third_level_is_seen():
    assert our_depths({"Base": ["ABC"], "Final": ["Base"], "Finer": ["Final"]}) == {"Base": 1, "Final": 2, "Finer": 3}


def test_no_class_has_more_than_about_thirty_methods():
    for path in MODULES:
        for node in class_definitions(path):
            methods = [part for part in node.body if isinstance(part, ast.FunctionDef)]
            assert len(methods) <= 37, f"{path.relative_to(ROOT)}: {node.name} has {len(methods)} methods"


# All classes of estimators/ that are classifiers, the base included.
ESTIMATORS = {
    node.name
    for path in (PACKAGE / "estimators").glob("*.py")
    for node in class_definitions(path)
    if node.name.endswith("Classifier") and node.name != "FittedClassifier"  # which is the waist itself
}


def looks_behind_the_waist(tree: ast.Module):
    """Lines above estimators/ that ask for the class of an estimator, or for a name of it that is not public."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("isinstance", "issubclass", "type"):
            named = {name.id for name in ast.walk(node) if isinstance(name, ast.Name)}
            named |= {name.attr for name in ast.walk(node) if isinstance(name, ast.Attribute)}
            if named & ESTIMATORS or (ast.unparse(node.func) == "type" and "estimator" in named):
                yield node.lineno
        if not isinstance(node, ast.Attribute):
            continue
        is_ours = ast.unparse(node.value) in ("self", "cls") or node.attr in ("_replace", "_asdict", "_fields")
        if node.attr in ("__class__", "blueprint", "fitted_") or (
            node.attr.startswith("_") and not node.attr.startswith("__") and not is_ours
        ):
            yield node.lineno


def test_nothing_above_estimators_looks_behind_the_waist():
    for path in MODULES:
        if room_of(path) in ("explain", "report", "active", "share", "serve", "cli"):
            assert not list(looks_behind_the_waist(tree_of(path))), path
            named = {parts[-1] for _, parts in imported_names(path)}
            assert not named & ESTIMATORS, f"{path}: {named & ESTIMATORS}"


def test_a_look_behind_the_waist_is_seen():
    assert {"Classifier", "AutoClassifier", "GPClassifier", "TextClassifier"} <= ESTIMATORS
    bad = ["isinstance(estimator, GPClassifier)", "first._rows(X)", "type(estimator)", "a.__class__", "model.fitted_"]
    assert sorted(looks_behind_the_waist(ast.parse("\n".join(bad)))) == [1, 2, 3, 4, 5]
    assert not list(looks_behind_the_waist(ast.parse("estimator.rows(X)\nself._x\nfound._replace(a=1)\n")))


def test_every_option_is_documented_and_constrained():
    from labelfield.estimators import EnsembleClassifier
    from labelfield.estimators.options import parameters
    from labelfield.methods import METHODS

    # Options whose values are checked where they are read: they are no plain numbers, words or flags.
    free = {
        "network",
        "hidden",
        "channels",
        "image_shape",
        "subsets",
        "device",
        "random_state",
        "estimator",
        "n_members",
    }
    for estimator in {*(method.load() for method in METHODS.values()), EnsembleClassifier}:
        for name, option in parameters(estimator).items():
            assert option.meaning, f"{estimator.__name__}: {name} is not documented"
            assert option.kind, f"{estimator.__name__}: {name} has no type in the documentation"
            assert option.constraint is not None or name in free, f"{estimator.__name__}: {name} has no constraint"
        assert set(estimator.constraints) <= set(parameters(estimator)), estimator.__name__
