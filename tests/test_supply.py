"""What labelfield is built on: versions with hashes, ranges that hold, licences that are listed."""

import re
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest
from licences import KNOWN, licence, needed, page, parts
from messages import never_raised, sites
from packaging.requirements import Requirement
from packaging.version import Version

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def plain(name):
    return re.sub(r"[-_.]+", "-", name).lower()


def pinned(name):
    """The versions in a file, by package."""
    found = re.findall(r"^([\w.-]+)==(\S+)", (ROOT / name).read_text(), re.MULTILINE)
    assert len(found) == len(dict(found))
    return {plain(package): number for package, number in found}


def test_all_but_torch_is_locked_with_hashes():
    locked, hashed = pinned("requirements.lock"), pinned("requirements.hashes")
    torch = locked.pop("torch")
    assert re.fullmatch(r"\d+\.\d+\.\d+", torch)  # whose build differs from machine to machine
    assert hashed == locked
    blocks = re.split(r"\n(?=\S)", (ROOT / "requirements.hashes").read_text().strip())
    entries = [block for block in blocks if not block.startswith("#")]
    assert len(entries) == len(hashed)
    assert all(re.search(r"--hash=sha256:[0-9a-f]{64}\b", block) for block in entries)


@pytest.mark.parametrize("group", ["always", *PROJECT["optional-dependencies"]])
def test_what_is_asked_for_is_locked_at_a_version_that_is_allowed(group):
    locked = pinned("requirements.lock")
    wanted = PROJECT["dependencies"] if group == "always" else PROJECT["optional-dependencies"][group]
    for one in map(Requirement, wanted):
        assert one.specifier.contains(Version(locked[plain(one.name)])), one
        (least,) = [part for part in one.specifier if part.operator == ">="]
        assert least.version


def test_licences_are_known_and_listed():
    found = {name: licence(name) for name in needed()}
    assert len(found) > 40
    assert {name: said for name, said in found.items() if not parts(said) <= KNOWN} == {}
    locked = pinned("requirements.lock")
    if any(version(name).partition("+")[0] != locked[name] for name in found):
        pytest.skip("other versions than those of requirements.lock may have other licences and needs")
    assert (ROOT / "docs" / "LICENCES.md").read_text() == page(), "run `python tests/licences.py > docs/LICENCES.md`"


def test_errors_that_no_test_raises_are_found(tmp_path):
    source = "def f(a):\n    if a:\n        raise ValueError(\n            1\n        )\n    raise a\n\n\ndef g():\n"
    source += "    return DataError(1)\n\n\ndef h():\n    raise\n"
    assert sorted(sites(source)) == [(3, "ValueError(1)"), (10, "DataError(1)")]
    (tmp_path / "none.json").write_text('{"files": {}}')
    missing, n_sites = never_raised(tmp_path / "none.json")
    assert len(missing) == n_sites > 500
