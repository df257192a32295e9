"""What is shipped: a wheel that works in an empty environment, and a source archive that builds it."""

import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[1]
# As setuptools is asked by any builder.
BUILD = "import sys, setuptools.build_meta as b; print(getattr(b, sys.argv[1])(sys.argv[2]))"


def run(*command, cwd):
    done = subprocess.run([*map(str, command)], cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def sources(folder):
    """The files that are in the repository, so that nothing else is shipped by accident."""
    names = run("git", "ls-files", "-z", cwd=ROOT).split("\0")
    for name in filter(None, names):
        if name.startswith("labelfield/") or "/" not in name:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes((ROOT / name).read_bytes())
    return folder


@pytest.mark.slow
def test_the_wheel_runs_the_quick_start_in_an_empty_environment(tmp_path):
    run(sys.executable, "-c", BUILD, "build_sdist", tmp_path, cwd=sources(tmp_path / "source"))
    (archive,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(archive) as file:
        file.extractall(tmp_path / "unpacked", filter="data")
    (unpacked,) = (tmp_path / "unpacked").iterdir()
    run(sys.executable, "-c", BUILD, "build_wheel", tmp_path, cwd=unpacked)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as file:
        names = file.namelist()
    assert {"labelfield/py.typed", "labelfield/report/style.css", "labelfield/serve/page/page.html"} <= set(names)
    assert not [name for name in names if not name.startswith("labelfield")]

    venv.create(tmp_path / "empty", with_pip=False, symlinks=True)
    packages = Path(sysconfig.get_path("purelib", vars={"base": str(tmp_path / "empty")}))
    with zipfile.ZipFile(wheel) as file:  # what installing a wheel without scripts is
        file.extractall(packages)
    # The dependencies are those of this environment, after the new package and without the repository.
    (packages / "others.pth").write_text(f"{Path(np.__file__).parents[1]}\n")
    python = [tmp_path / "empty" / "bin" / "python", "-m", "labelfield"]
    where = run(python[0], "-c", "import labelfield; print(labelfield.__file__)", cwd=tmp_path)
    assert str(packages) in where
    run(*python, "synth", "--out", "data", "--rows", 300, "--features", 50, "--labels", 6, cwd=tmp_path)
    run(*python, "train", "data", "--out", "model", "--method", "linear", cwd=tmp_path)
    assert "microF1" in run(*python, "evaluate", "model", "data", cwd=tmp_path)
    run(*python, "report", "model", "data", "--out", "report.html", cwd=tmp_path)
    assert (tmp_path / "report.html").stat().st_size > 1000
    assert "labelfield 0." in run(*python, "--version", cwd=tmp_path)
