"""One step (bound, gradient, Adam) of the papers' model on dense rows, ours, GPyTorch's and GPflow's, in the same run.

The shapes are those of the papers on Bibtex and a smaller one: SE-ARD, a learned Z, a full q(u), float32, the same
number of quadrature points; and ours with its default q(u). Ours and GPflow's share Z and the kernel among all
processes. GPyTorch's strategy for linear models of coregionalisation is written three ways:

- "gpytorch": Z shared, a kernel for each process, as the strategy's batch of processes has it.
- "gpytorch_documented": as its documentation writes it, where each process also has a Z of its own.
- "gpytorch_one_kernel": one kernel without a batch, which broadcasting allows: the same model as ours.

Each runs in an environment of its own, made on first use; if that fails, the record says why it was left out.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.measuring.isolated import isolated
from benchmarks.paths import ROOT
from benchmarks.peers.environments import MissingPeerError, python_of

N_ROWS, N_FEATURES, N_LABELS = 500, 1836, 159
SHAPES = ((30, 100), (159, 400))
N_POINTS = 10


def _rows() -> tuple[Any, Any]:
    import torch

    generator = torch.Generator().manual_seed(0)
    X = torch.randn(N_ROWS, N_FEATURES, generator=generator)
    Y = (torch.rand(N_ROWS, N_LABELS, generator=generator) < 0.02).float()
    return X / X.norm(dim=1, keepdim=True), Y


def _time(step: Any, n_steps: int) -> float:
    for _ in range(2):  # the first makes Adam's state, the second finds its memory
        step()
    started = time.perf_counter()
    for _ in range(n_steps):
        step()
    return (time.perf_counter() - started) / n_steps


def _prepare_ours() -> Any:
    import labelfield.estimators  # noqa: F401  # imported before the measurement

    return _rows()


def _ours(n_latent: int, n_inducing: int, posterior: str, rows: Any) -> float:
    import torch

    from labelfield.models.mlgpf.spec import Spec, build

    X, Y = rows
    spec = Spec(N_FEATURES, N_LABELS, n_latent, n_inducing, posterior=posterior, unit_norm=False, n_points=N_POINTS)
    model = build(spec)
    with torch.no_grad():
        model.inducing.fill(X[:n_inducing])  # type: ignore[operator]  # these are free
        model.Phi.normal_(0, n_latent**-0.5)
    optimiser = torch.optim.Adam(model.parameters(), lr=0.01, fused=True)
    labels = Y.to_sparse_csr()

    def step() -> None:
        optimiser.zero_grad()
        (-model.elbo(X, labels, N_ROWS).bound() / N_ROWS).backward()  # type: ignore[no-untyped-call]  # torch's is untyped
        optimiser.step()

    return _time(step, 10)


def _peer(environment: str, *arguments: object) -> dict[str, Any]:
    """Return what `benchmarks.peers.ENVIRONMENT_step` prints in its environment, or the reason why it was left out."""
    import numpy as np

    try:
        python = python_of(environment)
    except MissingPeerError as error:
        return {"skipped": str(error)}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.npz"
        X, Y = _rows()
        np.savez(path, X=X.numpy(), Y=Y.numpy())
        command = [str(python), "-m", f"benchmarks.peers.{environment}_step", *map(str, arguments), str(path)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        return {"skipped": f"it ended with {done.returncode}: {(done.stderr.splitlines() or [''])[-1]}"}
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


# Whether each process has a Z and a kernel of its own.
GPYTORCH = {"gpytorch": (False, True), "gpytorch_documented": (True, True), "gpytorch_one_kernel": (False, False)}


def run() -> dict[str, Any]:
    results: dict[str, Any] = {}
    for n_latent, n_inducing in SHAPES:
        result: dict[str, Any] = {}
        for name, own in GPYTORCH.items():
            theirs = _peer("gpytorch", n_latent, n_inducing, *map(int, own))
            result |= {f"{name}_{key}": value for key, value in theirs.items()}
        result |= {f"gpflow_{key}": value for key, value in _peer("gpflow", n_latent, n_inducing).items()}
        for name, posterior in (("full_q", "whitened_full"), ("default_q", "whitened_diagonal")):
            ours = isolated(_prepare_ours, partial(_ours, n_latent, n_inducing, posterior))
            result |= {f"{name}_seconds": ours.value, f"{name}_peak_mb": ours.peak_mb}
        results[f"P={n_latent}, M={n_inducing}"] = result
    return results
