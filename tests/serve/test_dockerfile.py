"""What can be said about the image without building it."""

import ast
import json
import re
from pathlib import Path

import pytest

from labelfield.cli.serve import serve

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def stages():
    """The instructions of each stage, as (name, text), with continued lines joined."""
    text = re.sub(r"(?m)^\s*#.*\n", "", (ROOT / "Dockerfile").read_text()).replace("\\\n", " ")
    steps = [line.split(maxsplit=1) for line in text.splitlines() if line.strip()]
    found = []
    for name, rest in steps:
        found += [[]] if name == "FROM" else []
        found[-1].append((name, " ".join(rest.split())))
    return found


def of(stage, name):
    return [rest for own, rest in stage if own == name]


def test_all_packages_are_those_of_the_lock_file(stages):
    build, final = stages
    assert any("PIP_CONSTRAINT=/source/requirements.lock" in one for one in of(build, "ENV"))
    assert of(build, "WORKDIR") == ["/source"]
    assert "requirements.lock" in of(build, "COPY")[0].split()
    # The first thing that pip installs is pinned by the file itself, and everything else by the constraint.
    installs = [one for run in of(build, "RUN") for one in re.findall(r"pip install [^&]*", run)]
    assert len(installs) == 2
    assert """"$(grep '^torch==' requirements.lock)\"""" in installs[0]
    assert installs[1].strip() == 'pip install ".[serve]"'
    assert not any("pip" in run for run in of(final, "RUN"))
    names = {re.sub(r"[-_.]+", "-", line.partition("==")[0]).lower() for line in pinned()}
    for package in required():
        assert package in names, f"{package} is not in requirements.lock"


def pinned():
    lines = (ROOT / "requirements.lock").read_text().splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def required():
    """What the package needs with the extra `serve`, and to be built."""
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    asked = project["project"]["dependencies"] + project["project"]["optional-dependencies"]["serve"]
    asked += project["build-system"]["requires"]
    return [re.sub(r"[-_.]+", "-", re.match(r"[A-Za-z0-9._-]+", one)[0]).lower() for one in asked]


def test_every_pin_is_exact():
    assert all(re.fullmatch(r"[A-Za-z0-9._-]+==[^\s*]+", line) for line in pinned())


def test_it_does_not_run_as_root(stages):
    final = [name for name, _ in stages[-1]]
    assert of(stages[-1], "USER") == ["serve"]
    assert any("useradd" in run and run.endswith(" serve") for run in of(stages[-1], "RUN"))
    assert final.index("USER") < final.index("ENTRYPOINT")
    assert "RUN" not in final[final.index("USER") :]  # nothing is installed by a user that could change it later


def test_it_has_no_secrets_and_copies_only_what_it_needs(stages):
    everything = [rest for stage in stages for _, rest in stage]
    assert not any(re.search(r"(?i)(token|secret|password|key)\s*=", one) for one in everything)
    copied = {name for one in of(stages[0], "COPY") for name in one.split()[:-1]}
    assert copied == {"requirements.lock", "pyproject.toml", "README.md", "LICENSE", "labelfield"}
    assert of(stages[-1], "COPY") == ["--from=build /venv /venv"]
    ignored = (ROOT / ".dockerignore").read_text().split()
    assert ignored[0] == "*"  # then names what may come in
    assert {one.removeprefix("!") for one in ignored if one.startswith("!")} == copied


def test_its_probe_and_its_command_are_those_of_the_server(stages):
    final = stages[-1]
    probe = json.loads(of(final, "HEALTHCHECK")[0].partition("CMD ")[2])
    assert probe[:2] == ["python", "-c"]
    ast.parse(probe[2])
    assert "http://127.0.0.1:8000/readyz" in probe[2]
    assert of(final, "EXPOSE") == ["8000"]
    assert json.loads(of(final, "ENTRYPOINT")[0]) == ["labelfield", "serve"]
    model, *options = json.loads(of(final, "CMD")[0])
    assert (model, options) == ("/model", ["--host", "0.0.0.0", "--port", "8000"])
    assert {"host", "port"} <= set(serve.__annotations__)
    assert of(final, "STOPSIGNAL") == ["SIGTERM"]
