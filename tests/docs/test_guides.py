"""All Python and all commands on the pages run, in the order of reading, and give the results that are shown."""

import shlex

import numpy as np
import pytest
from pages import DOCS, ROOT, blocks, commands, run_python
from typer.testing import CliRunner

import labelfield
from benchmarks import commands as benchmarks
from labelfield.cli.main import app
from labelfield.methods import METHODS

APPS = {"labelfield": app, "python -m benchmarks": benchmarks.app}
PAGES = [ROOT / "README.md", *sorted(path for path in DOCS.glob("*.md") if any(blocks(path.read_text())))]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Write the files that pages use: rows with several labels in svmlight, and with one class each in CSV."""
    folder = tmp_path_factory.mktemp("files")
    several = labelfield.synth.make_multilabel(400, 80, 10, seed=0)
    words, subjects = ([f"{what}{i}" for i in range(n)] for what, n in (("word", 80), ("subject", 10)))
    named = labelfield.Dataset(several.X, several.Y, subjects, words)
    labelfield.write(named, folder / "mine.svm")
    rings = labelfield.synth.make_rings(400, 3, seed=0)
    table = np.column_stack([rings.X.toarray(), rings.Y.indices])
    np.savetxt(folder / "rings.csv", table, "%.4f,%.4f,%d", header="east,north,ring", comments="")
    return folder


@pytest.fixture(autouse=True)
def same_methods():
    """Forget the method that a how-to adds."""
    before = dict(METHODS)
    yield
    METHODS.clear()
    METHODS.update(before)


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_what_a_page_shows_is_what_happens(path, files, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for file in files.iterdir():
        (tmp_path / file.name).symlink_to(file)
    names = {"__name__": path.stem}
    for language, line, text in blocks(path.read_text()):
        where = f"{path.name}:{line}"
        if language == "python":
            run_python(text, names, where)
            continue
        for program, words in commands(text):
            done = CliRunner().invoke(APPS[program], words)
            assert done.exit_code == 0, f"{where}: {program} {shlex.join(words)}: {done.output} {done.exception!r}"


def test_a_wrong_page_fails():
    """The runner notices a wrong result and an arrow without an expression, and skips a command in a comment."""
    with pytest.raises(AssertionError, match="page:1"):
        run_python("1 + 1  # → 3", {}, "page:1")
    with pytest.raises(AssertionError, match="no expression"):
        run_python("x = 2  # → 2", {}, "page:1")
    run_python("x = 1\nx + 1  # → 2", {}, "page:1")
    block = "make demo\nlabelfield info a \\\n  --json  # what it holds\n# labelfield nothing\n"
    block += "python -m benchmarks bench list\npython -m venv here\n"
    assert list(commands(block)) == [
        ("labelfield", ["info", "a", "--json"]),
        ("python -m benchmarks", ["bench", "list"]),
    ]
    assert [part[:2] for part in blocks("a\n```sh\nb\n```\n```python\nc\n```\n")] == [("sh", 3), ("python", 6)]
