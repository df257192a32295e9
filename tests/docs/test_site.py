"""The site builds without a warning and without a network, and shows all commands and options."""

import importlib.util
import subprocess
import sys

import pytest
from pages import DOCS

from labelfield import EnsembleClassifier
from labelfield.cli.main import app
from labelfield.estimators.options import parameters
from labelfield.methods import METHODS


@pytest.mark.slow
def test_the_site_builds_without_a_warning(tmp_path):
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-n", "-q", "-d", tmp_path / "read"]
    done = subprocess.run([*command, DOCS, tmp_path / "html"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    api, cli = ((tmp_path / "html" / name).read_text() for name in ("API.html", "CLI.html"))
    # Generated from the code.
    assert 'id="labelfield.MLGPFClassifier.predict_topk"' in api
    assert "Number of inducing inputs M" in api
    assert 'id="labelfield-train"' in cli
    assert "--time-budget" in cli


@pytest.fixture(scope="module")
def from_code():
    spec = importlib.util.spec_from_file_location("from_code", DOCS / "from_code.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_all_commands_are_shown(from_code):
    page = from_code.commands()
    names = {command.name or command.callback.__name__ for command in app.registered_commands}
    assert {"report", "explain"} <= names
    for name in names:
        assert f"## labelfield {name}\n" in page
    assert "| `--method` | auto, mlgpf or topics for several labels" in page
    assert f"({', '.join(METHODS)}) | `auto` |" in page
    assert "| `--out` | The folder of the model.  | required |" in page


def test_all_methods_are_shown(from_code):
    table = from_code.method_table()
    assert all(f"| `{name}` | {method.labels} | " in table for name, method in METHODS.items())


@pytest.mark.parametrize(
    "estimator",
    [*dict.fromkeys(method.load() for method in METHODS.values()), EnsembleClassifier],
    ids=lambda one: one.__name__,
)
def test_all_options_are_shown(from_code, estimator):
    table = from_code.option_table(estimator.__name__)
    for option in parameters(estimator).values():
        assert f"| `{option.name}` | " in table
        assert option.meaning in table.replace("\\|", "|")


def test_an_option_shows_default_meaning_and_constraint(from_code):
    table = from_code.option_table("GPClassifier")
    assert "| `kernel` | `None` | Name of a kernel" in table
    assert "| `max_epochs` | `None` | Passes over the rows. | an integer of at least 1, or None |" in table
    assert "| `schedule` | `'one_cycle'` |" in table
    assert "| one of one_cycle, cosine, linear, constant |" in table


def test_docstrings_are_plain_text_except_for_code(from_code):
    assert (
        from_code._escaped("what `fit` learns ends in _, *all* of it")
        == "what ``fit`` learns ends in \\_, \\*all\\* of it"
    )


def test_docstrings_leave_options_to_the_table(from_code):
    lines = ["A classifier of `rows`.", "", "Parameters", "----------", "a : int", "    A number."]
    from_code.as_rst(None, "class", "labelfield.GPClassifier", None, None, lines)
    assert lines == ["A classifier of ``rows``.", ""]


def test_signatures_say_what_a_reader_wants_to_know(from_code):
    shape = "~numpy.ndarray[tuple[~typing.Any, ...], ~numpy.dtype[~numpy.float32]]"
    method = (None, "method", "labelfield.GPClassifier.bound", None, None)
    found = from_code.without_options(*method, "(X: ~typing.Any, k: int = 5)", f"tuple[{shape}, {shape}]")
    assert found == ("(X, k: int = 5)", "tuple[~numpy.ndarray, ~numpy.ndarray]")
    assert from_code.without_options(*method, "()", "~typing.Any") == ("()", None)
    of_class = from_code.without_options(None, "class", "labelfield.GPClassifier", None, None, "(*, a=1)", None)
    assert of_class == ("(**options)", None)
