"""Functions that save fitted classifiers to folders and load them."""

from dataclasses import asdict, replace
from os import PathLike
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import nn

from labelfield.data import Names
from labelfield.errors import DataError, LabelfieldError
from labelfield.estimators.blueprint import Fitted
from labelfield.estimators.classifier import Classifier, hold
from labelfield.estimators.ensemble import MOST_MEMBERS, EnsembleClassifier, EnsembleModel, EnsembleSpec
from labelfield.estimators.inputs import LABEL_KINDS, Labels
from labelfield.estimators.options import check_parameters, plain_options
from labelfield.estimators.validation import (
    CODES,
    COUNTS,
    SHIFTS,
    WEIGHTS,
    restore_history,
    restore_model,
    restore_transform,
)
from labelfield.inference.calibrating import EVIDENCE, evidence_of
from labelfield.inference.checkpoint import under
from labelfield.inference.run import Settings
from labelfield.methods import METHODS
from labelfield.models.artifact import FEATURES, VOCABULARY, ModelError, load_artifact, load_lines, save_artifact
from labelfield.models.index import Index
from labelfield.models.upgrade import upgraded
from labelfield.models.validation import check_modules, integer, one_of, restore_classes, restore_scores, restore_trials
from labelfield.text.parts import TextParts

Config: TypeAlias = dict[str, Any]
Arrays: TypeAlias = dict[str, torch.Tensor]
_ENSEMBLE = "ensemble"
# Prefix of the names of an encoder's arrays.
_TEXT = "text."
# Prefix of the names of the arrays of an index.
_INDEX = "index."


def save(estimator: Classifier, folder: Path, label_names: Any = None) -> None:
    """Write a fitted model to a folder, with the names of features if the training rows had them."""
    fitted = estimator.fitted()
    names = estimator.label_names() if label_names is None else [str(name) for name in label_names]
    if len(names) != fitted.spec.n_labels:
        raise DataError(f"{len(names)} label names", expected=f"{fitted.spec.n_labels}")
    _require_lines(names, "label")
    features = estimator.feature_names()
    if features is not None:
        _require_lines(features, "feature")
    config, arrays = _describe(estimator)
    digest = fitted.feature_names_digest if features is None else Names(features).digest()
    config["feature_names_sha256"] = digest
    config["no_evidence"] = fitted.no_evidence
    config["classes"] = fitted.labels.classes.tolist() if fitted.labels.kind != "indicator" else None
    if fitted.evidence is not None:
        found = fitted.evidence.arrays()
        arrays |= {f"{EVIDENCE}{name}": torch.from_numpy(array) for name, array in found.items()}
    if fitted.index is not None:
        config["index"] = fitted.index.describe()
        arrays |= {f"{_INDEX}{name}": torch.from_numpy(array) for name, array in fitted.index.arrays().items()}
    vocabulary = None
    if fitted.text is not None:
        config["text"], own = fitted.text.describe()
        arrays |= {f"{_TEXT}{name}": torch.from_numpy(array) for name, array in own.items()}
        vocabulary = fitted.text.vocabulary.to_lines() if fitted.text.vocabulary.says_more else None
    save_artifact(folder, config, arrays, names, features, vocabulary)


def _describe(estimator: Classifier) -> tuple[Config, Arrays]:
    """Return the description of a model: words and arrays."""
    fitted = estimator.fitted()
    if isinstance(fitted.model, EnsembleModel):
        return _describe_members(estimator, fitted.model)
    config = {
        "method": estimator.method,
        "options": _describe_options(fitted.options, fitted.settings.seed, estimator.threshold),
        "spec": asdict(fitted.spec),
        "settings": asdict(fitted.settings),
        "row_transform": fitted.row_transform.name,
        "n_features": estimator.n_features_in_,
        "n_negatives": fitted.n_negatives,
        "label_kind": fitted.labels.kind,
        "n_rows": fitted.n_rows,
        "history": fitted.history,
        "held_out_scores": fitted.held_out_scores,
        "trials": fitted.trials,
    }
    skipped = estimator.blueprint.training_only
    own = {name: value for name, value in fitted.model.state_dict().items() if not name.startswith(skipped or ("\0",))}
    arrays = {**own, COUNTS: torch.from_numpy(fitted.label_counts)}
    transform = fitted.row_transform
    codes = None if transform.codes is None else np.stack(transform.codes)
    for name, values in ((WEIGHTS, transform.weights), (SHIFTS, transform.shifts), (CODES, codes)):
        if values is not None:
            arrays[name] = torch.from_numpy(values)
    return config, arrays


def _describe_members(estimator: Classifier, model: EnsembleModel) -> tuple[Config, Arrays]:
    """Return the description of an ensemble or a mix, and of each of its members."""
    members, arrays = [], {f"calibration.{name}": value for name, value in model.calibration.state_dict().items()}
    for number, member in enumerate(model.members):
        config, own = _describe(member)
        members.append(config)
        arrays |= {f"member.{number}.{name}": value for name, value in own.items()}
    given = plain_options(estimator)
    if model.stack is not None:
        arrays |= {f"stack.{name}": value for name, value in model.stack.state_dict().items()}
        seed = model.members[0].settings_.seed
        options = _describe_options(estimator.fitted().options, seed, estimator.threshold)
        described = {"history": estimator.history_, "trials": estimator.trials_, "members": members}
        return {"method": estimator.method, "options": options, **described}, arrays
    # The options as given: members share the time.
    options = members[0]["options"]
    if given.estimator is not None:
        first = model.members[0]
        options = _describe_options(plain_options(given.estimator), first.settings_.seed, first.threshold)
    return {"method": _ENSEMBLE, "n_members": given.n_members, "options": options, "members": members}, arrays


def _describe_options(options: Any, seed: int, threshold: float) -> Config:
    """Return options as they were when the model was built; the threshold, which only predictions use, as it is now."""
    present = {"random_state": seed, "device": "auto", "threshold": threshold}
    described = {name: _as_json(value) for name, value in vars(options).items()}
    return described | {name: value for name, value in present.items() if name in described}


def _as_json(value: Any) -> Any:
    """Return an option as JSON can hold it; a network of the user's own is not in the folder."""
    return "own" if isinstance(value, nn.Module) else value


def load_classifier(
    folder: str | PathLike[str],
    *,
    device: str = "auto",
    network: nn.Module | None = None,
    encoder: Any = None,
    trust: bool = False,
    copied: bool = False,
) -> Any:
    """Load the classifier that `save` wrote; an unknown, incomplete or damaged folder gives a ModelError.

    A deep kernel model with a network of your own needs that `network`, built as it was; its weights are loaded. A
    model of documents with an encoder of another package needs that `encoder`, or `trust` to import it. One that has
    been `copied` to memory stays as it is, whatever is written over its files.
    """
    path = Path(folder)
    config, arrays, names = load_artifact(path)
    if copied:  # else they are read from the file when needed, and change or end the process with what is written there
        arrays = {name: array.clone() for name, array in arrays.items()}
    try:
        config, arrays = upgraded(config, arrays)
        own = {name: arrays.pop(name) for name in list(arrays) if name.startswith(_TEXT)}
        said = {name: arrays.pop(name) for name in list(arrays) if name.startswith(EVIDENCE)}
        index = {name.removeprefix(_INDEX): arrays.pop(name) for name in list(arrays) if name.startswith(_INDEX)}
        estimator = _restore(config, arrays, names, network)
        if bool(index) != ("index" in config):
            raise ValueError("an index that is not described, or the other way round")
        if index:
            estimator.fitted_.index = _restore_index(estimator, config["index"], index)
        estimator.fitted_.evidence = evidence_of(said, estimator.spec_.n_labels)
        estimator.fitted_.no_evidence = str(config["no_evidence"])
        features = load_lines(path, config, FEATURES)
        _take_feature_names(estimator, features, config["feature_names_sha256"])
        if "text" in config:
            encoded = {name.removeprefix(_TEXT): array.numpy() for name, array in own.items()}
            lines = load_lines(path, config, VOCABULARY)
            estimator.fitted_.text = TextParts.restore(config["text"], encoded, features, lines, encoder, trust)
    except LabelfieldError as error:
        raise ModelError(f"{path}: {error}") from None
    except KeyError as error:
        raise ModelError(f"{path}: {error.args[0]!r} is missing in config.json. Train the model again") from None
    except (TypeError, ValueError, RuntimeError, AttributeError, IndexError) as error:
        lines = [line.strip() for line in str(error).splitlines()] or [type(error).__name__]
        raise ModelError(f"{path}: no model can be made of it: {' '.join(lines[:2])}. Train it again") from None
    return estimator.to(device)


def _restore(config: Config, arrays: Arrays, names: list[str] | None, network: nn.Module | None) -> Classifier:
    if "members" in config:
        return _restore_members(config, arrays, names, network)
    return _restore_one(config, arrays, config["classes"], names, network)


def _restore_index(estimator: Classifier, described: Any, arrays: Arrays) -> Index:
    scorer = estimator.fitted().predictor.scorer()
    sizes = scorer.n_labels, scorer.n_numbers, scorer.n_features
    return Index.restore(described, {name: array.numpy() for name, array in arrays.items()}, *sizes)


def _restore_members(config: Config, arrays: Arrays, names: list[str] | None, network: nn.Module | None) -> Classifier:
    described = config["members"]
    if not isinstance(described, list) or not 1 <= len(described) <= MOST_MEMBERS:
        raise ValueError("the members are not a short list")
    members = [
        _restore_one(own, under(f"member.{number}.", arrays), config["classes"], names, network)
        for number, own in enumerate(described)
    ]
    first, is_mix = members[0], config["method"] != _ENSEMBLE
    if len({(member.spec_.n_labels, member.n_features_in_, is_mix or type(member)) for member in members}) > 1:
        raise ValueError("the members are of different shapes")
    known = ("calibration.", "stack.", *(f"member.{number}." for number in range(len(members))))
    if not all(name.startswith(known) for name in arrays):
        raise ValueError("arrays of a member that is not described")
    estimator: Classifier
    if is_mix:
        estimator = METHODS[one_of(config, "method", ("auto",))].load()(**config["options"])
    else:
        options = config["options"] | ({"network": first.network} if "network" in config["options"] else {})
        check_parameters(given := type(first)(**options))
        estimator = EnsembleClassifier(estimator=given, n_members=config["n_members"])
    check_parameters(estimator)
    model = EnsembleModel(EnsembleSpec(first.n_features_in_, first.spec_.n_labels, len(members)), is_mix)
    model.fill(members)
    model.calibration.load_state_dict(under("calibration.", arrays))
    check_modules(model.calibration)
    if model.stack is not None:
        model.stack.load_state_dict(under("stack.", arrays))
        model.stack.check()
    parts = first.fitted_.labels, first.label_counts_, first.n_rows_, first.n_negatives_
    transform = restore_transform("none", n_features=first.n_features_in_)
    settings = first.settings_
    if is_mix:  # whose members each have a share of the time, and their own batches
        whole = {"time_budget": estimator.get_params()["time_budget"], "batch_size": first.n_rows_}
        settings = replace(settings, **whole)
    fitted = Fitted(
        model.spec,
        settings,
        model,
        transform,
        *parts,
        history=restore_history(config["history"]) if is_mix else first.history_,
        trials=restore_trials(config["trials"]) if is_mix else first.trials_,
        label_names=names,
        options=plain_options(estimator),
    )
    estimator.n_features_in_ = first.n_features_in_
    hold(estimator, fitted)
    return estimator


def _restore_one(
    config: Config, arrays: Arrays, classes: Any, names: list[str] | None, network: nn.Module | None
) -> Classifier:
    """Make one classifier from the contents of a folder; raise an error for anything that does not fit."""
    if not isinstance(config["method"], str) or config["method"] not in METHODS:
        raise ModelError(f"a model of the unknown method {config['method']!r}; known are {', '.join(METHODS)}")
    method, options = METHODS[config["method"]].load(), dict(config["options"])
    blueprint = method.blueprint
    if "network" in options:
        options["network"] = _choose_network(config["spec"], options["network"], network)
    elif network is not None:
        raise ModelError(f"a model of the method {config['method']!r}, which has no network; load it without network=")
    estimator: Classifier = method(**options)
    check_parameters(estimator)
    spec, settings = blueprint.spec(**config["spec"]), Settings(**config["settings"])
    # Checked before anything is made of that length.
    if names is None or len(names) != spec.n_labels:
        raise ValueError(f"{len(names or [])} label names for {spec.n_labels} labels")
    estimator.n_features_in_ = n_features = integer(config, "n_features")
    arrays = dict(arrays)
    parts = [arrays.pop(name, None) for name in (WEIGHTS, SHIFTS, CODES)]
    transform = restore_transform(config["row_transform"], *parts, n_features=n_features)
    if transform.n_columns(n_features) != spec.n_features:
        raise ValueError(f"{n_features} features do not make {spec.n_features} columns")
    kind = one_of(config, "label_kind", LABEL_KINDS)
    labels = Labels(kind, restore_classes(classes, spec.n_labels, kind))
    options_then = plain_options(estimator)
    counts, model = restore_model(blueprint, spec, options_then, arrays)
    fitted = Fitted(
        spec,
        settings,
        model,
        transform,
        labels,
        counts,
        integer(config, "n_rows"),
        None if config["n_negatives"] is None else integer(config, "n_negatives"),
        history=restore_history(config["history"]),
        held_out_scores=restore_scores(config["held_out_scores"]),
        trials=restore_trials(config.get("trials", [])),
        label_names=names,
        options=options_then,
    )
    blueprint.check(options_then, fitted)
    hold(estimator, fitted)
    if estimator.method != config["method"]:
        raise ValueError(f"a model of {estimator.method} under the name of {config['method']}")
    return estimator


def _choose_network(spec: Any, named: Any, own: nn.Module | None) -> Any:
    """Return the network of a deep kernel model: by its name, or the user's own, which is not in the folder."""
    if not isinstance(named, str | None):
        raise ValueError(f"network is {named!r}, not a name")
    is_own = bool(spec["network_class"])
    if is_own == bool(spec["network"]):
        raise ValueError("the network is described twice or not at all")
    if is_own and own is None:
        raise ModelError(
            f"the model has a network of your own, {spec['network_class']}, which is not in its folder; build it as it "
            "was and pass it: labelfield.load(folder, network=…)"
        )
    if own is not None and not is_own:
        raise ModelError("the model has a network of its own; load it without network=")
    return named if own is None else own


def _take_feature_names(estimator: Classifier, names: list[str] | None, digest: Any) -> None:
    """Keep the names that a folder has, which must be those that its config.json was made with."""
    if digest is not None and not isinstance(digest, str):
        raise ValueError("feature_names_sha256 is not text")
    if names is not None and len(names) != estimator.n_features_in_:
        raise ValueError(f"{len(names)} feature names for {estimator.n_features_in_} features")
    if names is not None and Names(names).digest() != digest:
        raise ValueError("the feature names are not those of the training rows")
    estimator.fitted_.feature_names, estimator.fitted_.feature_names_digest = names, digest


def _require_lines(names: list[str], what: str) -> None:
    """Check that each name can be a line of its file."""
    # Half a surrogate pair is in no encoding.
    if bad := [name for name in names if "\n" in name or name != name.encode(errors="ignore").decode()]:
        raise DataError(f"the {what} name {bad[0]!r}", expected="a line of text", fix=f"Rename the {what}.")
