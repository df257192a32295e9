"""`python tests/licences.py > docs/LICENCES.md`: the licences of all packages that labelfield needs, as they say."""

import re
import tomllib
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]
HEAD = """# Licences of dependencies

What the packages that labelfield needs say of their licences, directly or through others, on Linux; made by
`python tests/licences.py`. labelfield itself is under Apache-2.0, and ships none of them.

| package | needed for | licence |
|---|---|---|
"""
# What packages write instead of a name.
_NAMES = {
    "apache software license": "Apache-2.0",
    "apache 2.0": "Apache-2.0",
    "apache license 2.0": "Apache-2.0",
    "apache license, version 2.0": "Apache-2.0",
    "bsd license": "BSD",
    "bsd": "BSD",
    "mit license": "MIT",
    "mozilla public license 2.0 (mpl 2.0)": "MPL-2.0",
    "python software foundation license": "PSF-2.0",
    "isc license (iscl)": "ISC",
}
# All that may be among them: none asks for anything of those who use labelfield as it is.
KNOWN = {"0BSD", "Apache-2.0", "BSD", "BSD-2-Clause", "BSD-3-Clause", "BSL-1.0", "CC0-1.0", "ISC", "LLVM-exception"}
KNOWN |= {"MIT", "MIT-CMU", "MPL-2.0", "PSF-2.0", "Zlib"}


def needed() -> dict[str, set[str]]:
    """Return every package that labelfield needs, with the groups of pyproject.toml that ask for it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    groups = {"always": project["dependencies"], **project["optional-dependencies"]}
    found: dict[str, set[str]] = {}
    for group, wanted in groups.items():
        if group == "dev":
            continue
        waiting = [Requirement(text) for text in wanted]
        while waiting:
            one = waiting.pop()
            name = re.sub(r"[-_.]+", "-", one.name).lower()
            if (one.marker is not None and not one.marker.evaluate({"extra": ""})) or group in found.get(name, ()):
                continue
            try:
                waiting += [Requirement(text) for text in distribution(name).requires or ()]
            except PackageNotFoundError:
                continue  # of other builds of torch
            found.setdefault(name, set()).add(group)
    return found


def licence(name: str) -> str:
    """Return the licence that a package states, by the short name that is usual."""
    said = distribution(name).metadata
    if said["License-Expression"]:
        return str(said["License-Expression"])
    classes = [one.rpartition(" :: ")[2] for one in said.get_all("Classifier", []) if one.startswith("License ::")]
    stated = [one for one in classes if one != "OSI Approved"] or (said["License"] or "not stated").splitlines()[:1]
    return " AND ".join(sorted({_NAMES.get(one.strip().lower(), one.strip()) for one in stated}))


def parts(text: str) -> set[str]:
    """Return the names in an expression."""
    return set(re.split(r" AND | OR | WITH |[(), ]+", text)) - {""}


def page() -> str:
    """Return the page with all of them."""
    found = needed()
    rows = [f"| {name} | {', '.join(sorted(found[name]))} | {licence(name)} |\n" for name in sorted(found)]
    return HEAD + "".join(rows)


if __name__ == "__main__":
    print(page(), end="")
