"""Deep kernels beside the same network alone: the paper's data sets, MNIST, EUR-Lex, and the cost of the layer."""

from __future__ import annotations

import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.paths import DATA
from benchmarks.studies import tabular
from benchmarks.studies.multiclass import read_mnist

__all__ = ["TABLES", "run_mnist_binary", "run_mnist_written", "run_on_gpu", "run_tables", "run_written"]

# The paper's network. What all tables share was set once; epochs and dropout were chosen on training rows alone.
_RATES = {"learning_rate": 1e-3, "joint_learning_rate": 1e-3}
_PAPER: dict[str, Any] = {"network": "mlp", "hidden": (1000, 1000, 500, 50), **_RATES, "n_samples": 8}
_PAPER |= {"calibrate": False, "row_transform": "none"}
# For each table: the epochs of the network alone, and again of everything jointly; options; and the accuracies that
# the paper reports for the network alone and for SV-DKL.
TABLES: dict[str, tuple[int, dict[str, Any], tuple[float, float] | None]] = {
    "adult": (10, {"dropout": 0.35, "batch_size": 1000}, (0.852, 0.857)),
    "connect4": (20, {"dropout": 0.35, "batch_size": 1000}, (0.805, 0.841)),
    "covertype": (40, {"dropout": 0.2, "batch_size": 5000}, (0.824, 0.860)),
    "diabetes130": (4, {"dropout": 0.2, "batch_size": 1000, "joint_learning_rate": 3e-4}, None),
    "diabetes130-30days": (4, {"dropout": 0.2, "batch_size": 1000, "joint_learning_rate": 3e-4}, None),
}
_PROCESS_EPOCHS = 3
_AT_ONCE = 14
_MNIST: dict[str, Any] = {"network": "cnn", "hidden": (512,), "dropout": 0.5, "batch_size": 500, "calibrate": False}
_MNIST |= {**_RATES, "n_samples": 8}
_MNIST_EPOCHS = 15
# The paper's batches of images; as it does not say how many epochs, as many steps as with ours.
_MNIST_BATCH = 5000
_MNIST_WRITTEN_EPOCHS = _MNIST_EPOCHS * _MNIST_BATCH // int(_MNIST["batch_size"])
_EURLEX: dict[str, Any] = {"network": "bag", "hidden": (1024,), "dropout": 0.5, "batch_size": 500, "n_processes": 1000}
_EURLEX |= {"learning_rate": 3e-3, "joint_learning_rate": 3e-3}
_EURLEX_EPOCHS = 15
_EURLEX_SEEDS = range(5)


def _stages(n_epochs: int) -> dict[str, dict[str, Any]]:
    """Return the stages of SV-DKL, and of its network alone for as many epochs as both stages together."""
    joint = {"network_epochs": n_epochs, "process_epochs": _PROCESS_EPOCHS, "max_epochs": n_epochs}
    return {"svdkl": joint, "network as long": {"network_epochs": 2 * n_epochs, "process_epochs": 0, "max_epochs": 0}}


def _quality(P: NDArray[np.float32], y: NDArray[np.int64]) -> dict[str, float]:
    from labelfield import metrics

    Y = np.zeros(P.shape, np.int8)
    Y[np.arange(len(y)), y] = 1
    ece = 100 * metrics.ece_at_k(Y, P, 1)
    return {"accuracy": float(np.mean(P.argmax(1) == y)), "nlpd": float(metrics.nlpd(y, P)), "ECE@1": float(ece)}


def _fit_classes(options: dict[str, Any], X: Any, y: Any, X_test: Any, y_test: Any) -> dict[str, Any]:
    import labelfield

    model = labelfield.DeepKernelClassifier(**options).fit(X, y)
    found: dict[str, Any] = _quality(model.predict_proba(X_test), y_test)
    if model.spec_.has_baseline:
        found["network before"] = _quality(model.baseline_proba(X_test), y_test)
    return found


def _table_job(
    name: str, train: NDArray[np.int64], test: NDArray[np.int64], fold: int, which: str
) -> tuple[str, int, str, dict[str, Any]]:
    import torch

    torch.set_num_threads(1)
    n_epochs, options, _ = TABLES[name]
    table = tabular.read(name)
    X, X_test = tabular.scaled(table.X[train], table.X[test])
    options = {**_PAPER, **options, **_stages(n_epochs)[which]}
    return name, fold, which, _fit_classes(options, X, table.y[train], X_test, table.y[test])


def run_tables() -> dict[str, Any]:
    """Run five folds of each table, and MNIST, several jobs at once; times would mean nothing, and are left out."""
    found: dict[str, dict[str, dict[int, dict[str, Any]]]] = {}
    # The longest first.
    names = sorted(TABLES, key=lambda name: name != "covertype")
    with ProcessPoolExecutor(_AT_ONCE, mp_context=get_context("spawn")) as pool:
        images = [
            pool.submit(_mnist_job, transform, which)
            for transform in ("range", "deskew")
            for which in ("svdkl", "network as long")
        ]
        jobs = [
            pool.submit(_table_job, name, *rows, fold, which)
            for name in names
            for fold, rows in enumerate(tabular.folds(tabular.read(name)))
            for which in ("svdkl", "network as long")
        ]
        for job in jobs:
            name, fold, which, result = job.result()
            found.setdefault(name, {}).setdefault(which, {})[fold] = result
            print(f"{name}, fold {fold}, {which}: {result}", flush=True)
        results: dict[str, Any] = {name: _summary(name, found[name]) for name in TABLES}
        for image in images:
            transform, which, result = image.result()
            results.setdefault(f"mnist, {transform}", {"epochs": _MNIST_EPOCHS})[which] = result
            print(f"mnist, {transform}, {which}: {result}", flush=True)
    return results


def _summary(name: str, found: dict[str, dict[int, dict[str, Any]]]) -> dict[str, Any]:
    """Return mean and standard deviation over folds, for SV-DKL, its baseline, and the network trained as long."""
    n_epochs, options, published = TABLES[name]
    parts = {
        "svdkl": list(found["svdkl"].values()),
        "network before": [result["network before"] for result in found["svdkl"].values()],
        "network as long": list(found["network as long"].values()),
    }
    summary: dict[str, Any] = {"epochs": n_epochs, **options, "published": published}
    for part, results in parts.items():
        summary[part] = {}
        for score in ("accuracy", "nlpd"):
            values = [result[score] for result in results]
            summary[part][score] = float(np.mean(values))
            summary[part][f"{score} sd"] = float(np.std(values, ddof=1))
    for part in ("network before", "network as long"):
        better = [
            (ours["accuracy"] > theirs["accuracy"], ours["nlpd"] < theirs["nlpd"])
            for ours, theirs in zip(parts["svdkl"], parts[part], strict=True)
        ]
        summary[f"folds better than {part}: accuracy, nlpd"] = [sum(column) for column in zip(*better, strict=True)]
    return summary


def _mnist_job(transform: str, which: str) -> tuple[str, str, dict[str, Any]]:
    (X, y), (X_test, y_test) = read_mnist("train"), read_mnist("test")
    options = {**_MNIST, "row_transform": transform, **_stages(_MNIST_EPOCHS)[which]}
    return transform, which, _fit_classes(options, X, y.astype(np.int64), X_test, y_test.astype(np.int64))


def _written_job(
    name: str, train: NDArray[np.int64], test: NDArray[np.int64], stages: dict[str, int]
) -> dict[str, Any]:
    import torch

    from labelfield.presets import PRESETS

    torch.set_num_threads(1)
    table = tabular.read(name)
    X, X_test = tabular.scaled(table.X[train], table.X[test])
    # The paper does not say batches and rates; these are those of our own settings.
    options = {**PRESETS["svdkl"].options, "network": "mlp", "row_transform": "none", **_RATES, **stages}
    options["batch_size"] = TABLES[name][1]["batch_size"]
    return _fit_classes(options, X, table.y[train], X_test, table.y[test])


def run_written() -> dict[str, Any]:
    """Run the paper's model to the letter on five folds of its tables, and its DNN+GP: processes on a fixed network."""
    results: dict[str, Any] = {}
    with ProcessPoolExecutor(_AT_ONCE, mp_context=get_context("spawn")) as pool:
        for name in ("adult", "connect4", "covertype"):
            n_epochs, folds = TABLES[name][0], list(tabular.folds(tabular.read(name)))
            before = {"network_epochs": n_epochs, "process_epochs": _PROCESS_EPOCHS}
            ways = {"svdkl": before | {"max_epochs": n_epochs}, "DNN+GP": before | {"max_epochs": 0}}
            jobs = {
                way: [pool.submit(_written_job, name, *rows, stages) for rows in folds] for way, stages in ways.items()
            }
            for way, own in jobs.items():
                found = [job.result() for job in own]
                means = {score: float(np.mean([one[score] for one in found])) for score in ("accuracy", "nlpd")}
                results.setdefault(name, {})[way] = means
                print(name, way, means, flush=True)
    return results


def run_mnist_written() -> dict[str, Any]:
    """Run the paper's model to the letter on digits, and on odd and even ones, beside its CNN+GP and the network."""
    stages = _stages(_MNIST_WRITTEN_EPOCHS)
    ways = stages | {"CNN+GP": stages["svdkl"] | {"max_epochs": 0}}
    names = {"mnist": 10, "odd or even": 2}
    results: dict[str, Any] = {name: {} for name in names}
    with ProcessPoolExecutor(_AT_ONCE, mp_context=get_context("spawn")) as pool:
        jobs = {
            (name, way): pool.submit(_mnist_written_job, n_classes, own)
            for name, n_classes in names.items()
            for way, own in ways.items()
        }
        for (name, way), job in jobs.items():
            results[name][way] = job.result()
            print(name, way, results[name][way], flush=True)
    return results


def _mnist_written_job(n_classes: int, stages: dict[str, int]) -> dict[str, Any]:
    from labelfield.presets import PRESETS

    own = {"network": "cnn", "hidden": (512,), "batch_size": _MNIST_BATCH, "row_transform": "range", **_RATES}
    (X, y), (X_test, y_test) = read_mnist("train"), read_mnist("test")
    options = {**PRESETS["svdkl"].options, **own, **stages}
    return _fit_classes(options, X, y % n_classes, X_test, y_test % n_classes)


def run_mnist_binary() -> dict[str, Any]:
    """Run the same network on two classes: odd and even digits."""
    (X, y), (X_test, y_test) = read_mnist("train"), read_mnist("test")
    found: dict[str, Any] = {"epochs": _MNIST_EPOCHS}
    for which, stages in _stages(_MNIST_EPOCHS).items():
        options = {**_MNIST, "row_transform": "range", **stages}
        found[which] = _fit_classes(options, X, y % 2, X_test, y_test % 2)
        print(which, found[which], flush=True)
    return found


def _eurlex(which: str, seed: int) -> dict[str, Any]:
    import labelfield
    from labelfield import metrics

    data = labelfield.read(DATA / "eurlex-4k")
    assert data.test is not None
    test = data.test

    def quality(ranked: Any) -> dict[str, float]:
        scores = metrics.evaluate(test.Y, ranked, data.Y)
        return {f"{name}@{k}": scores[f"{name}@{k}"] for name in ("P", "PSP", "ECE") for k in (1, 3, 5)}

    options = {**_EURLEX, **_stages(_EURLEX_EPOCHS)[which], "random_state": seed}
    model = labelfield.DeepKernelClassifier(**options).fit(data.X, data.Y)
    found: dict[str, Any] = {**quality(model.predict_topk(test.X, 5)), "seconds": float(model.history_[-1]["seconds"])}
    if model.spec_.has_baseline:
        found["network before"] = quality(model.baseline_topk(test.X, 5))
    return found


def _overhead(is_mixed: bool) -> dict[str, float]:
    """Return milliseconds of a step of the network alone and of everything jointly.

    The shape is that of the paper's airline task: 8 features, two classes, batches of 50,000, m = 70.
    """
    import torch

    import labelfield
    from labelfield.inference.adam import RowAdam
    from labelfield.inference.deep import DeepTrainer
    from labelfield.inference.stepper import Stepper

    rng = np.random.default_rng(0)
    n, batch = 200_000, 50_000
    X = rng.normal(size=(n, 8)).astype(np.float32)
    y = (X[:, 0] * X[:, 1] + 0.5 * rng.normal(size=n) > 0).astype(np.int64)
    times = {}
    options: dict[str, Any] = {**_PAPER, "grid_size": 70, "n_samples": 1, "batch_size": batch, "dropout": 0.0}
    model = labelfield.DeepKernelClassifier(**options, mixed_precision=is_mixed, device="cuda")
    data = model.prepare(X, y)
    trainer = model.trainer_
    assert isinstance(trainer, DeepTrainer)
    source = trainer.source(data)
    for name in ("network", "joint"):
        objective = trainer.objective(name)
        parameters = [parameter for parameter in model.model_.parameters() if parameter.requires_grad]
        stepper = Stepper(
            objective, source, RowAdam(parameters, 1e-4), torch.Generator().manual_seed(0), is_capturable=True
        )
        rows = [np.sort(rng.choice(n, batch, replace=False)) for _ in range(4)]
        rounds = []
        for number in range(6):  # the first warms up
            torch.cuda.synchronize()
            started = time.perf_counter()
            for step in range(20):
                stepper.step(rows[step % 4], n)
            torch.cuda.synchronize()
            if number:
                rounds.append((time.perf_counter() - started) / 20)
        times[name] = 1000 * float(np.median(rounds))
    return {"network_ms": times["network"], "joint_ms": times["joint"], "ratio": times["joint"] / times["network"]}


def run_on_gpu() -> dict[str, Any]:
    """Measure the cost of the layer, and EUR-Lex, with nothing else on the GPU."""
    results: dict[str, Any] = {
        "overhead, m = 70, batch 50,000": {
            "bfloat16 network": _overhead(is_mixed=True),
            "float32 network": _overhead(is_mixed=False),
        }
    }
    print(results, flush=True)
    runs: dict[str, list[dict[str, Any]]] = {"svdkl": [], "network before": [], "network as long": []}
    for seed in _EURLEX_SEEDS:
        for which in ("svdkl", "network as long"):
            found = _eurlex(which, seed)
            print(seed, which, found, flush=True)
            if "network before" in found:
                runs["network before"].append(found.pop("network before"))
            runs[which].append(found)
    results["eurlex-4k"] = {"epochs": _EURLEX_EPOCHS, "seeds": len(_EURLEX_SEEDS)}
    for part, each in runs.items():
        results["eurlex-4k"][part] = {score: float(np.mean([one[score] for one in each])) for score in each[0]}
        results["eurlex-4k"][part]["sd"] = {
            score: float(np.std([one[score] for one in each], ddof=1)) for score in each[0]
        }
    return results
