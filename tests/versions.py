"""`python tests/versions.py lowest|newest`: what pyproject.toml asks for, as a list for pip, at one end of its ranges.

Packages that only tests need are at their newest in both.
"""

import re
import sys
import tomllib
from pathlib import Path

PROJECT = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]


def wanted(which: str) -> list[str]:
    """Return the requirements; the lowest version is pinned, with whatever follows it after a dot."""
    groups = PROJECT["optional-dependencies"]
    own = [*PROJECT["dependencies"], *(one for name in groups if name != "dev" for one in groups[name])]
    if which == "lowest":
        own = [re.sub(r">=([\w.]+)", r"==\1", one) for one in own]
    names = {re.split(r"[=><;]", one)[0] for one in own}
    return own + [one for one in groups["dev"] if re.split(r"[=><;]", one)[0] not in names]


if __name__ == "__main__":
    print("\n".join(wanted(sys.argv[1])))
