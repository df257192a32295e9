"""train, show, config: fit a model and look at it."""

from __future__ import annotations

import inspect
import re
import time
import tomllib
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import typer
from numpy.typing import NDArray

from labelfield.atomic import require_only_ours
from labelfield.cli.options import (
    AsJson,
    LabelColumn,
    OneBased,
    OneBasedLabels,
    Overwrite,
    load,
    load_model,
    require_columns,
    require_rows,
)
from labelfield.cli.output import print_json, print_table, say, shown
from labelfield.data import Dataset, align_classes
from labelfield.data.classes import class_values
from labelfield.errors import DataError

__all__ = ["config", "show", "train"]

Method = Literal["mlgpf", "one_vs_each", "robustmax", "softmax", "svdkl", "topics"]
# Longer lists are not shown in full.
_MOST_LISTED = 10
_UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
# What each option is, for `labelfield config` and messages; those of the estimator's signature, in its order.
_MEANING = {
    "n_latent": "latent processes P",
    "n_inducing": "inducing inputs M",
    "kernel": "a kernel, or a sum such as 'se_ard + linear'",
    "posterior": "whitened_diagonal, whitened_shared, whitened_full, full or parsimonious",
    "inducing": "free, fixed, subspace or subspace_basis",
    "rank": "dimensions R of the subspace",
    "basis": "of the subspace: svd or kmeans",
    "precompute": "project all rows onto the subspace once",
    "unit_norm": "keep inducing inputs at norm 1",
    "private": "a linear process of each label's own: off, point or mean_field",
    "private_scale": "its prior scale, or where that starts",
    "row_transform": "of rows: unit, sqrt, log, tfidf, some of these joined by +, or none",
    "n_negatives": "labels drawn a batch beside its own; 0 for all labels",
    "propensity": "how much more rare labels count where they hold; 0.5 helps the tail",
    "max_epochs": "passes over the rows",
    "batch_size": "rows a step B",
    "learning_rate": "of Adam, at its highest",
    "schedule": "one_cycle, cosine, linear or constant",
    "kl_weight": "of the divergence; 1 is the true bound",
    "clip_norm": "longest gradient",
    "patience": "epochs without a better bound before stopping",
    "time_budget": "seconds of training",
    "n_points": "quadrature points in training",
    "n_points_predict": "quadrature points in prediction",
    "jitter": "added to the diagonal of K_Z, relative to its mean",
    "ensemble": "unlike members whose probabilities are averaged: auto, or from 2 to 8",
    "calibrated": "map probabilities by a tenth of the rows, which then join the training",
    "threshold": "probability from which on predict says yes",
    "device": "auto, cpu or cuda",
    "random_state": "seed",
}
# Where it differs for one class a row.
_MEANING_OF_CLASSES = {
    "own_kernel": "a kernel of each class's own",
    "posterior": "whitened_diagonal, whitened_shared, whitened_full, full, parsimonious, or point for linear utilities",
    "inducing": "per_class, or shared by all classes: free or fixed",
    "row_transform": "of rows: scaled, deskew, unit, sqrt, log, tfidf, some of the last four joined by +, or none",
    "n_negatives": "rival classes drawn a batch beside its own; 0 for all classes",
    "rivals": "how they are drawn: uniform, or importance for those that scored high",
    "classes_per_batch": "rows of a batch are of so many classes",
    "epsilon": "of robustmax: the chance that the largest utility is not the class",
    "scale": "of the prior of the weights of a point estimate",
    "n_samples": "draws of the utilities in prediction",
}
# Where it differs for deep kernels.
_MEANING_OF_DEEP = {
    "network": "mlp, bag for sparse rows, or cnn for images; a network of your own is for Python alone",
    "hidden": "widths of its hidden layers, such as [256, 128]",
    "channels": "of the convolutions of a cnn",
    "image_shape": "of a cnn: channels, height and width; found out for square images",
    "dropout": "share of hidden numbers that a step leaves out",
    "n_processes": "processes J; as many as classes if not given",
    "subset_size": "features of each process: 1, 2 or 3",
    "subsets": "which features each process is on, such as [[0, 1], [1, 2]], instead of one after the other",
    "grid_size": "grid points a dimension",
    "kernel": "of the processes: se, matern12, matern32, matern52 or spectral_mixture",
    "n_mixtures": "components of a spectral mixture",
    "own_kernel": "a kernel of each process's own",
    "posterior": "whitened_kronecker, or kronecker as in the paper, which suits more than 1,000 points a dimension",
    "likelihood": "softmax for one class a row, bernoulli for several labels; by the data if not given",
    "moments": "exact, or sampled as in the paper",
    "n_samples": "draws in a step of training T",
    "n_samples_predict": "draws in prediction, for one class a row",
    "row_transform": "of rows: scaled, range, deskew, unit, sqrt, log, tfidf, some of the last four joined by +, none",
    "network_epochs": "passes over the rows that train the network alone, the baseline",
    "process_epochs": "… the processes alone",
    "max_epochs": "… everything jointly",
    "learning_rate": "of Adam for the network alone, at its highest",
    "process_learning_rate": "… for the processes",
    "joint_learning_rate": "… for the network in the joint stage",
    "keep_baseline": "keep the plain network beside the model",
    "mixed_precision": "the network in bfloat16 on a GPU",
}
# Where it differs for topics.
_MEANING_OF_TOPICS = {
    "n_topics": "topics K",
    "algorithm": "em, online_em for rows that do not fit in memory, or gibbs",
    "n_gradient_steps": "of conjugate gradients for the weights of features, a step; 0 to solve for them",
    "max_epochs": "passes over the rows at most",
    "tolerance": "EM ends when a step raises the objective by fewer nats a row",
    "batch_size": "rows a step of online EM",
    "step_power": "the t-th step of online EM counts (t + step_offset)^-step_power",
    "step_offset": "see step_power",
    "n_draws": "draws of the sampler that are kept",
    "weight_scale": "how much weights of features vary at least",
    "shape_strength": "how strongly r_k is held near 1",
    "learn_hyper": "learn r_k, λ_d and η",
}
_MEANINGS: dict[str, dict[str, str]] = {"mlgpf": {}, "svdkl": _MEANING_OF_DEEP, "topics": _MEANING_OF_TOPICS}


def _defaults(method: str) -> dict[str, Any]:
    """The options of a method; of multi-class Gaussian processes the likelihood is what the method is."""
    from labelfield.estimators.saving import METHODS

    parameters = inspect.signature(METHODS[method]).parameters
    return {
        name: parameter.default
        for name, parameter in parameters.items()
        if name != "likelihood" or not _is_likelihood(method)
    }


def _is_likelihood(method: str) -> bool:
    """Whether a method is a likelihood of multi-class Gaussian processes."""
    return method not in _MEANINGS


def train(
    data: Annotated[Path, typer.Argument(help="Training data; of a folder with two splits, the training rows.")],
    out: Annotated[Path, typer.Option("--out", help="The folder of the model.")],
    method: Annotated[
        Method,
        typer.Option(
            "--method", help="mlgpf or topics for several labels a row, svdkl for both, the others for one class a row."
        ),
    ] = "mlgpf",
    config_file: Annotated[
        Path | None, typer.Option("--config", help="Options in TOML; see labelfield config.")
    ] = None,
    set_options: Annotated[list[str] | None, typer.Option("--set", help="key=value, again and again.")] = None,
    valid: Annotated[Path | None, typer.Option("--valid", help="Rows to score after each epoch.")] = None,
    device: Annotated[Literal["auto", "cpu", "cuda"] | None, typer.Option("--device", help="Where to train.")] = None,
    seed: Annotated[int | None, typer.Option("--seed", min=0, help="The same seed gives the same model.")] = None,
    time_budget: Annotated[str | None, typer.Option("--time-budget", help="Such as 60s, 5m or 2h.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the checkpoint of an interrupted run.")] = False,
    one_based: OneBased = None,
    one_based_labels: OneBasedLabels = False,
    label_column: LabelColumn = None,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """Train a model. Without options, sizes and rates follow a rule of the data's size.

    Example: labelfield train data/bibtex --out model --time-budget 60s
    """
    from labelfield.estimators.saving import new_estimator
    from labelfield.inference.signals import Interrupted
    from labelfield.models.artifact import CHECKPOINT, CHECKPOINTS, MODEL_FILES

    options = _gather_options(method, config_file, set_options or [])
    if device is not None:
        options["device"] = device
    if seed is not None:
        options["random_state"] = seed
    if time_budget is not None:
        options["time_budget"] = parse_seconds(time_budget)
    if out.exists() and not overwrite:
        is_unfinished = out.is_dir() and (not any(out.iterdir()) or (out / CHECKPOINT).exists())
        if not (resume and is_unfinished):
            hint = "--resume to go on or --overwrite to replace it" if is_unfinished else "--overwrite to replace it"
            raise typer.BadParameter(f"{out} exists; pass {hint}, or choose another name")
    require_only_ours(out, MODEL_FILES)
    reading = partial(load, one_based=one_based, one_based_labels=one_based_labels, label_column=label_column)
    dataset, has_classes = _read_training(reading, data, method, options)
    require_rows(dataset, data)
    if has_classes:
        _require_two_classes(dataset, data)
    validation = None
    if valid is not None:
        n_features, n_labels = dataset.n_features, 0 if has_classes else dataset.n_labels
        rows = reading(valid, classes=has_classes, n_features=n_features, n_labels=n_labels, narrow=True)
        rows = rows if rows.test is None else rows.test
        require_columns(rows, valid, n_features, None if has_classes else n_labels)
        require_rows(rows, valid)
        validation = (rows.X, _known_classes(rows, dataset, valid) if has_classes else rows.Y[:, :n_labels])
    estimator = new_estimator(method, options)
    started = time.perf_counter()
    try:
        _fit(estimator, dataset, out, validation, resume, has_classes)
    except Interrupted as stop:
        say(f"{stop}; the same command with --resume goes on")
        raise typer.Exit(128 + stop.signal_number) from None
    except (ValueError, TypeError) as error:
        if isinstance(error, DataError):
            raise
        raise typer.BadParameter(str(error)) from None
    estimator.save(out, None if has_classes else dataset.label_names)  # classes name themselves
    for name in CHECKPOINTS:
        (out / name).unlink(missing_ok=True)
    _report(estimator, out, time.perf_counter() - started, as_json)


def _read_training(
    reading: Callable[..., Dataset], data: Path, method: str, options: dict[str, Any]
) -> tuple[Dataset, bool]:
    """The training rows, and whether they have one class each: by the method, the likelihood, or else the rows."""
    if method == "svdkl" and options.get("likelihood") is None:
        try:
            return reading(data, classes=True), True
        except DataError as error:  # not one class a row, or wrong however it is read
            try:
                return reading(data), False
            except DataError as other:
                # What was found further down was found by the reading that suits the file.
                raise max(error, other, key=lambda found: found.line or 0) from None
    has_classes = method not in ("mlgpf", "topics") and options.get("likelihood") != "bernoulli"
    return reading(data, classes=has_classes), has_classes


def _class_names(dataset: Dataset) -> list[str]:
    """What the classes that occur are called, in the order of their columns."""
    assert dataset.label_names is not None  # whatever is read with classes has names
    return [dataset.label_names[column] for column in np.unique(dataset.Y.indices)]


def _require_two_classes(dataset: Dataset, path: Path) -> None:
    names = _class_names(dataset)
    if len(names) < 2:
        raise DataError(
            f"all rows are of the class {names[0]!r}", path=path, expected="at least two classes", fix="Check the file."
        )


def _classes_of(rows: Dataset, training: Dataset) -> NDArray[Any]:
    """The class of each row, by its value, for rows in the columns of the training rows."""
    return np.asarray(class_values(list(training.label_names or ()))[rows.Y.indices])


def _known_classes(rows: Dataset, training: Dataset, path: Path) -> NDArray[Any]:
    """The classes of rows to be scored, which the training rows must have all."""
    unseen = set(_class_names(rows)) - set(_class_names(training))
    if unseen:
        raise DataError(
            f"the class {min(unseen)!r}", path=path, expected="classes of the training rows", fix="Remove its rows."
        )
    return _classes_of(align_classes(rows, training.label_names or ()), training)


def _fit(estimator: Any, dataset: Dataset, out: Path, validation: Any, resume: bool, has_classes: bool) -> None:
    """Train with checkpoints in the folder of the model; a model that is there stays until the new one is saved."""
    from labelfield.cli.live import TrainingBar
    from labelfield.models.artifact import CHECKPOINT

    prepared = estimator.prepare(dataset.X, _classes_of(dataset, dataset) if has_classes else dataset.Y)
    if dataset.feature_names is not None:
        estimator.feature_names_ = list(dataset.feature_names)
        estimator.feature_names_digest_ = dataset.feature_names.digest()
    _announce(estimator, prepared)
    with TrainingBar(estimator.stage_settings()) as bar:
        estimator.train_prepared(
            prepared, validation=validation, checkpoint=out / CHECKPOINT, resume=resume, on_step=bar
        )


def _announce(estimator: Any, data: Dataset) -> None:
    """What is about to happen and what it will cost, on stderr."""
    settings = estimator.settings_
    megabytes = (estimator.training_bytes() + 2 * (data.X.data.nbytes + data.X.indices.nbytes)) / 2**20
    say(
        f"{estimator._method()}: {data.n_rows} rows, {estimator.n_features_in_} features "
        f"({estimator.row_transform_.name}), {estimator.summary()}"
    )
    n_steps = -(-data.n_rows // settings.batch_size)
    stages = estimator.stage_settings()
    seconds = estimator.n_whole_epochs() * n_steps * estimator.seconds_per_step(data)
    if settings.time_budget is not None:
        seconds = min(seconds, sum(stage.time_budget for stage in stages.values()))
    epochs = " + ".join(f"{stage.max_epochs} {name}".strip() for name, stage in stages.items())
    if getattr(estimator, "ensemble", None) is not None:
        say(f"an ensemble of {estimator.n_members}; the first member is this, others may take twice as long:")
    say(
        f"{estimator.n_parameters()} parameters, about {megabytes:.0f} MB and {seconds:.0f} s; {epochs} epochs of "
        f"{n_steps} steps on {next(iter(estimator.model_.state_dict().values())).device}"
    )


def _report(estimator: Any, out: Path, seconds: float, as_json: bool) -> None:
    last = estimator.history_[-1] if estimator.history_ else {}
    result = {"path": str(out), "epochs": len(estimator.history_), "bound": last.get("bound"), "seconds": seconds}
    result |= last.get("scores", {}) | _members(estimator)
    if as_json:
        print_json(result)
    else:
        print_table("trained", ["", ""], [[name, shown(value)] for name, value in result.items()])


def parse_seconds(text: str) -> float:
    """60, 60s, 5m, 5min or 2h as seconds."""
    match = re.fullmatch(r"([0-9]+\.?[0-9]*|\.[0-9]+)\s*([a-z]*)", text.strip())
    if not match or match[2] not in _UNITS or not float(match[1]) > 0:
        raise typer.BadParameter(f"--time-budget {text}; expected such as 60s, 5m or 2h")
    return float(match[1]) * _UNITS[match[2]]


def _gather_options(method: str, config_file: Path | None, assignments: list[str]) -> dict[str, Any]:
    """Options from a file, then from --set; unknown names are refused."""
    options: dict[str, Any] = {}
    if config_file is not None:
        try:
            options |= tomllib.loads(config_file.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise DataError("there is no such file", path=config_file, fix="Check the path.") from None
        except (tomllib.TOMLDecodeError, ValueError) as error:
            raise DataError(f"not TOML ({error})", path=config_file, fix=f"See labelfield config {method}.") from None
    for assignment in assignments:
        key, equals, value = assignment.partition("=")
        if not equals:
            raise typer.BadParameter(f"--set {assignment}; expected key=value")
        options[key.strip()] = _parse_value(value.strip())
    known = _defaults(method)
    for name in options:
        if name not in known:
            raise typer.BadParameter(f"no option {name!r}; there are {', '.join(known)}")
    return options


def _parse_value(text: str) -> Any:
    """A TOML value; a word without quotes is a string."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def show(model: Annotated[Path, typer.Argument(help="The folder of a model.")], as_json: AsJson = False) -> None:
    """Show what a model is and how it was trained.

    Example: labelfield show model
    """
    estimator = load_model(model, "cpu")
    history = estimator.history_
    facts = {
        "method": estimator._method(),
        **_parts(asdict(estimator.spec_)),
        "row_transform": estimator.row_transform_.name,
        "n_negatives": estimator.n_negatives_,
        "training rows": estimator.n_rows_,
        "parameters": estimator.n_parameters(),
        **{f"training: {name}": value for name, value in asdict(estimator.settings_).items()},
        "epochs done": len(history),
        "seconds of training": history[-1]["seconds"] if history else None,
        "bound of the last epoch (nats a row)": history[-1]["bound"] if history else None,
    }
    facts |= _members(estimator)
    if as_json:
        print_json({"path": str(model), **facts, "history": history})
    else:
        print_table(str(model), ["", ""], [[name, shown(value)] for name, value in facts.items()])


def _parts(facts: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """What a model is made of, with the parts of its parts by name, and long lists by their length."""
    result: dict[str, Any] = {}
    for name, value in facts.items():
        if isinstance(value, dict):
            result |= _parts(value, f"{prefix}{name}: ")
        elif isinstance(value, tuple | list):
            is_long = len(value) > _MOST_LISTED
            result[f"{prefix}{name}"] = f"{len(value)}, from {value[0]} on" if is_long else str(list(value))
        else:
            result[f"{prefix}{name}"] = value
    return result


def _members(estimator: Any) -> dict[str, Any]:
    """What each member of an ensemble is, and what it adds on rows that were held out."""
    if not getattr(estimator, "others_", None):
        return {}
    facts: dict[str, Any] = {}
    for number, member in enumerate((estimator, *estimator.others_), 1):
        own, scores = member.spec_, member.held_out_scores_
        facts[f"member {number}"] = (
            f"{member.row_transform_.name}, {own.kernel}, private {own.private}, P={own.n_latent}, M={own.n_inducing}"
        )
        for kind, what in (("alone", f"member {number} alone"), ("together", f"members up to {number}")):
            if kind in scores:
                values = " / ".join(f"{value:.1f}" for value in scores[kind])
                facts[f"{what}: P@1 / 3 / 5 on held-out rows"] = values
    return facts


def config(
    method: Annotated[Method, typer.Argument(help="Which model.")] = "mlgpf",
) -> None:
    """Print all options of a method with their defaults, as a commented file for `train --config`.

    Example: labelfield config mlgpf
    """
    print(f"# Options of {method}. A line without value follows a rule of the data's size.")
    meaning = _MEANING | _MEANINGS.get(method, _MEANING_OF_CLASSES)
    for name, default in _defaults(method).items():
        text = f"# {name} =" if default is None else f"{name} = {_toml(default)}"
        print(f"{text:<36} # {meaning[name]}")


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return repr(list(value))
    return f'"{value}"' if isinstance(value, str) else repr(value)
