"""The site builds without a warning, and without a network."""

import subprocess
import sys

from pages import DOCS


def test_the_site_builds_without_a_warning(tmp_path):
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-n", "-q", "-d", tmp_path / "read"]
    done = subprocess.run([*command, DOCS, tmp_path / "html"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    api, cli = ((tmp_path / "html" / name).read_text() for name in ("API.html", "CLI.html"))
    # Made from the code, and not lost on the way.
    assert 'id="labelfield.MLGPFClassifier.predict_topk"' in api
    assert "inducing inputs M" in api
    assert 'id="labelfield-train"' in cli
    assert "--time-budget" in cli
