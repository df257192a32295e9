"""Peers: other packages, each in a virtual environment of its own, and the script that runs it there."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any

from labelfield.errors import LabelfieldError

__all__ = ["ENVIRONMENTS", "PEERS", "Environment", "MissingPeerError", "Peer", "python_of"]

SCRIPTS = Path(__file__).parent / "scripts"


class MissingPeerError(LabelfieldError):
    """A peer cannot be installed here; the message says why."""


@dataclass(frozen=True)
class Environment:
    """Pinned packages. `before` are installed first; `alone` come last, without their dependencies."""

    packages: tuple[str, ...]
    before: tuple[str, ...] = ()
    alone: tuple[str, ...] = ()

    @property
    def versions(self) -> dict[str, str]:
        """The version of each pinned package."""
        pinned = (package.partition("==") for package in (*self.before, *self.packages, *self.alone))
        return {name: version for name, _, version in pinned}


# A tree of labels needs neither the transformers nor the GPU libraries that libpecos depends on.
_PECOS_NEEDS = ("numpy==1.26.4", "scipy==1.13.1", "scikit-learn==1.7.2")
# Installed before what depends on it: a looser request may fetch a build of several gigabytes.
_TORCH = ("torch==2.13.0",)

ENVIRONMENTS = {
    "omikuji": Environment(("omikuji==0.5.2",)),
    # Both choose rows to label; they are older than NumPy 2.
    "active": Environment(
        ("numpy==1.26.4", "scipy==1.13.1", "scikit-learn==1.5.2", "modAL-python==0.4.2.1", "small-text==1.4.1")
    ),
    "annif": Environment(("annif[omikuji,fasttext]==1.4.3",)),
    "napkinxc": Environment(("napkinxc==0.7.2",)),
    "pecos": Environment(_PECOS_NEEDS, alone=("libpecos==1.2.8",)),
    "scikit-learn": Environment(("scikit-learn==1.9.1",)),
    "gpytorch": Environment(("gpytorch==1.15.2",), before=_TORCH),
    "gpflow": Environment(("gpflow==2.11.2", "tf_keras==2.21.0")),
}


@dataclass(frozen=True)
class Peer:
    """A script, the environment it runs in, and its settings."""

    environment: str
    script: str
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def path(self) -> Path:
        """The script; it imports nothing of labelfield."""
        return SCRIPTS / f"{self.script}.py"


PEERS = {
    # Three balanced trees, hinge loss: the package's defaults.
    "omikuji-parabel": Peer("omikuji", "omikuji_trees"),
    "omikuji-parabel-log": Peer("omikuji", "omikuji_trees", {"linear_loss_type": 1}),
    # As the README of the package sets it for this kind of tree.
    "omikuji-bonsai": Peer("omikuji", "omikuji_trees", {"cluster_balanced": False, "cluster_k": 100, "max_depth": 3}),
    "napkinxc-plt": Peer("napkinxc", "napkinxc_models", {"model": "PLT"}),
    "napkinxc-ovr": Peer("napkinxc", "napkinxc_models", {"model": "BR"}),
    # Its defaults, on rows of norm one; on other rows it ranks at random without a warning.
    "pecos-xrlinear": Peer("pecos", "pecos_xrlinear"),
    "sklearn-ovr": Peer("scikit-learn", "sklearn_ovr"),
    "sklearn-svc": Peer("scikit-learn", "sklearn_svc"),
}


_making = Lock()
# Why an environment could not be made. It is not tried again for every data set: without a network each try is slow.
_missing: dict[Path, str] = {}


def _peers_folder() -> Path:
    """Return where environments are kept: LABELFIELD_PEERS, or the user's cache."""
    if "LABELFIELD_PEERS" in os.environ:
        return Path(os.environ["LABELFIELD_PEERS"])
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "labelfield" / "peers"


def python_of(name: str) -> Path:
    """Return the interpreter of a peer's environment, made on first use; raise MissingPeerError if that fails."""
    environment = ENVIRONMENTS[name]
    folder = _peers_folder() / f"{name}-{'-'.join(environment.versions.values())}-py{sys.version_info.minor}"
    python = folder / ("Scripts" if os.name == "nt" else "bin") / "python"
    with _making:  # several cells may ask for it at the same time
        if folder in _missing:
            raise MissingPeerError(_missing[folder])
        if not (folder / "ready").exists():
            try:
                _make(environment, folder, python)
            except MissingPeerError as error:
                _missing[folder] = str(error)
                raise
    return python


def _make(environment: Environment, folder: Path, python: Path) -> None:
    """Make an environment and install its packages."""
    shutil.rmtree(folder, ignore_errors=True)  # an installation that was interrupted
    try:
        venv.EnvBuilder(with_pip=True, symlinks=os.name != "nt").create(folder)
    except (OSError, subprocess.CalledProcessError) as error:
        shutil.rmtree(folder, ignore_errors=True)
        raise MissingPeerError(f"cannot make an environment in {folder.parent}: {error}") from None
    for packages, options in (
        (environment.before, ()),
        (environment.packages, ()),
        (environment.alone, ("--no-deps",)),
    ):
        if not packages:
            continue
        # Only wheels: a peer compiled here would not be the one that people run.
        pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--only-binary", ":all:"]
        done = subprocess.run([*pip, *options, *packages], capture_output=True, text=True, check=False)
        if done.returncode:
            shutil.rmtree(folder, ignore_errors=True)
            errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR")] or ["pip failed"]
            raise MissingPeerError(f"{' '.join(packages)} cannot be installed: {errors[-1].removeprefix('ERROR: ')}")
    (folder / "ready").touch()
