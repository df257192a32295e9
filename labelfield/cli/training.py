"""train, show, config: fit a model and look at it."""

from __future__ import annotations

import json
import re
import time
import tomllib
from contextlib import ExitStack
from dataclasses import asdict
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
import typer
from numpy.typing import NDArray

from labelfield.atomic import replacing_file, replacing_folder, require_only_ours
from labelfield.cli import documents
from labelfield.cli.options import (
    AsJson,
    Device,
    Overwrite,
    Reading,
    load_model,
    read_entries,
    reads_files,
    require_columns,
    require_rows,
)
from labelfield.cli.output import joined_quietly, named, print_facts, print_json, say
from labelfield.cluster import is_restarted
from labelfield.constraints import Integer, Real
from labelfield.data import Dataset, align_classes
from labelfield.data.classes import class_values
from labelfield.errors import DataError
from labelfield.mapped import map_of
from labelfield.memory import own_bytes
from labelfield.methods import METHODS, methods_by_labels
from labelfield.presets import PRESETS
from labelfield.text.coded import LabelLists
from labelfield.text.encoders import Encoder, make_encoder
from labelfield.text.foreign import ENCODER_NAMES
from labelfield.text.kept import KeptDocuments
from labelfield.text.parts import TextParts
from labelfield.text.reading import is_documents

if TYPE_CHECKING:
    from labelfield.estimators.protocol import FittedClassifier
    from labelfield.inference.run import Settings

    Method = str
    Preset = str
else:  # for tools that read the signature at run time
    Method = Literal[tuple(METHODS)]
    Preset = Literal[tuple(PRESETS)]
Resume = Annotated[bool, typer.Option("--resume", help="Continue an interrupted run from its checkpoint.")]

# Longer lists are not shown in full.
_MOST_LISTED = 10
_UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}


@reads_files(documents=True, model=False)
def train(
    reading: Reading,
    data: Annotated[
        Path, typer.Argument(help="Rows or documents; for two splits, the training ones. - reads documents from stdin.")
    ],
    out: Annotated[Path, typer.Option("--out", help="The folder of the model.")],
    method: Annotated[Method, typer.Option("--method", help=methods_by_labels())] = "auto",
    preset: Annotated[
        Preset | None, typer.Option("--preset", help="The model of a paper, exactly as published.")
    ] = None,
    config_file: Annotated[
        Path | None, typer.Option("--config", help="A TOML file, as labelfield config prints.")
    ] = None,
    set_options: Annotated[
        list[str] | None, typer.Option("--set", help="An option as key=value; can be repeated.")
    ] = None,
    observed: Annotated[
        Path | None, typer.Option("--observed", help="The labels that were checked: lines `label:1 …`, or .npz.")
    ] = None,
    valid: Annotated[Path | None, typer.Option("--valid", help="Rows to score after each epoch.")] = None,
    device: Annotated[Literal["auto", "cpu", "cuda"] | None, typer.Option("--device", help="Where to train.")] = None,
    quality: Annotated[
        Literal["fast", "good", "best"] | None, typer.Option("--quality", help="How much to try, for --method auto.")
    ] = None,
    seed: Annotated[int | None, typer.Option("--seed", min=0, help="The same seed gives the same model.")] = None,
    language: Annotated[
        str,
        typer.Option("--language", help="For documents: a code such as fi, auto, or none to leave words as they are."),
    ] = "auto",
    encoder: Annotated[
        str, typer.Option("--encoder", help=f"For documents: {', '.join(ENCODER_NAMES)}, or several joined by commas.")
    ] = "words",
    keep_documents: Annotated[
        bool, typer.Option(help="Keep the documents in the folder of the model, which labelfield learn needs.")
    ] = True,
    time_budget: Annotated[str | None, typer.Option("--time-budget", help="Such as 60s, 5m or 2h.")] = None,
    resume: Resume = False,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """Train a model on rows or documents. Without options, held-out training rows decide what suits the data.

    Documents are CSV, TSV, JSON lines, JSON, Parquet, fastText, PECOS, or files and folders of Annif. Columns are
    guessed, and the guess is printed.

    With --observed, labels that nobody checked are ignored (for the methods mlgpf and topics). The file has one line
    per training row.

    Example: labelfield train data/bibtex --out model --time-budget 60s
    """
    from labelfield.cli.live import TrainingBar
    from labelfield.estimators.methods import new_estimator
    from labelfield.inference.signals import Interrupted
    from labelfield.models.artifact import CHECKPOINT, MODEL_FILES, is_unfinished, remove_checkpoints

    seconds = None if time_budget is None else _parse_seconds(time_budget)
    method = _method_of(method, preset)
    if quality is not None and method != "auto":
        raise typer.BadParameter(f"--quality {quality} is for --method auto; {method} has its own options")
    given = {"device": device, "random_state": seed, "time_budget": seconds, "quality": quality}
    options: dict[str, Any] = {} if preset is None else dict(PRESETS[preset].options)
    options |= _gather_options(method, config_file, set_options or [])
    options |= {name: value for name, value in given.items() if value is not None}
    with ExitStack() as stack:
        cluster = stack.enter_context(joined_quietly())
        if cluster.size > 1 and is_restarted():
            resume, overwrite = True, overwrite and not is_unfinished(out)
        if out.exists() and not overwrite:
            can_go_on = out.is_dir() and (not any(out.iterdir()) or is_unfinished(out))
            if cluster.has_noted("a training") and not can_go_on:
                say(f"{out} is complete")  # a process has failed after the model was saved
                return
            if not (resume and can_go_on):
                hint = "--resume to continue or --overwrite to replace it" if can_go_on else "--overwrite to replace it"
                raise typer.BadParameter(f"{out} exists; pass {hint}, or choose another name")
        require_only_ours(out, MODEL_FILES)
        cluster.note("a training")  # it may replace what is there
        kept = stack.enter_context(KeptDocuments()) if keep_documents else None
        how = encoder, language
        dataset, has_classes, text, labels = _read_any(reading, data, method, preset, options, how, kept)
        validation = None if valid is None else _read_validation(reading, valid, dataset, has_classes, text)
        estimator = new_estimator(method, options)
        told: dict[str, Any] = {}
        if observed is not None:
            if not estimator.takes_missing or has_classes:
                raise typer.BadParameter(f"--observed: {method} needs all labels; use --method mlgpf or topics")
            what = "1 for a label that was checked, 0 for one that was not"
            told["observed"] = read_entries(observed, dataset.n_rows, dataset.n_labels, (0, 1), what)
        started = time.perf_counter()
        try:
            # A model already in the folder stays until the new one is saved.
            truth = _classes_of(dataset, dataset) if has_classes else dataset.Y
            prepared = estimator.prepare(dataset.X, truth, **told, cluster=cluster)
            estimator.name_features(dataset.feature_names, text)
            stages = _announce(estimator, prepared, cluster.size) if cluster.is_first else {}
            with TrainingBar(stages) as bar:
                estimator.train_prepared(
                    prepared,
                    validation=validation,
                    checkpoint=out / CHECKPOINT,
                    resume=resume,
                    on_step=bar if cluster.is_first else None,
                    cluster=cluster,
                )
        except Interrupted as stop:
            say(f"{stop}; the same command with --resume continues")
            raise typer.Exit(128 + stop.signal_number) from None
        except (ValueError, TypeError) as error:
            if isinstance(error, DataError):
                raise
            raise typer.BadParameter(str(error)) from None
        if cluster.is_first:
            estimator.save(out, None if has_classes else dataset.label_names)  # classes have names already
            if labels is not None and kept is not None:
                _keep(kept, out, labels)
        cluster.meet("the saving of the model")
        remove_checkpoints(out)
        if not cluster.is_first:
            return
    last = estimator.history_[-1] if estimator.history_ else {}
    result = {"path": str(out), "epochs": len(estimator.history_), "bound": last.get("bound")}
    result |= {"seconds": time.perf_counter() - started, **last.get("scores", {}), **_members(estimator)}
    if as_json:
        print_json(result)
    else:
        print_facts("trained", result)


def _read_any(
    reading: Reading,
    data: Path,
    method: str,
    preset: str | None,
    options: dict[str, Any],
    how: tuple[str, str],
    kept: KeptDocuments | None,
) -> tuple[Dataset, bool, TextParts | None, LabelLists | None]:
    """Read rows or documents; return whether each has one class, and of documents what encodes them, and labels."""
    text, labels = None, None
    try:
        if is_documents(data) or reading.text or reading.labels:
            has_classes = bool(METHODS[method].has_classes(options))
            dataset, text, labels = documents.read_training(
                reading, data, _new_encoder(*how), one_each=has_classes, kept=kept
            )
        else:
            if how[0] != "words":
                raise typer.BadParameter(f"--encoder {how[0]} is for documents; {data} holds rows of numbers")
            dataset, has_classes = _read_training(reading, data, method, options)
    except DataError as error:
        if preset is None or not (error.expected or "").startswith("one class per"):
            raise
        fix = f"--preset {preset} is for one class each; for any number of labels use --preset journal."
        raise DataError(error.found, error.expected, fix, path=error.path, line=error.line) from None
    return dataset, has_classes, text, labels


def _new_encoder(names: str, language: str) -> Encoder:
    """Make the encoder of this name, or several side by side."""
    each = [name.strip() for name in names.split(",")]
    if not all(each) or "rows" in each:
        raise typer.BadParameter(f"--encoder {names}; expected {', '.join(ENCODER_NAMES)}")
    try:
        return make_encoder(each[0] if len(each) == 1 else each, language=language)
    except ValueError as error:
        raise typer.BadParameter(f"--{error}") from None


def _keep(kept: KeptDocuments, folder: Path, labels: LabelLists) -> None:
    """Put documents into the folder of a model."""
    from labelfield.models.artifact import DOCUMENTS

    with replacing_file(folder / DOCUMENTS) as new:
        kept.write(new, labels)


@reads_files(rows=False, documents=True)
def learn(
    reading: Reading,
    model: Annotated[Path, typer.Argument(help="The folder of a model that was trained on documents.")],
    corrections: Annotated[Path, typer.Argument(help="Documents with the right labels; new labels are allowed.")],
    data: Annotated[
        Path | None,
        typer.Option("--data", help="The old documents. Default: those that the model keeps."),
    ] = None,
    device: Device = "auto",
    resume: Resume = False,
    progress: Annotated[bool, typer.Option("--progress", help="Print lines `progress 0.42` on stderr.")] = False,
    as_json: AsJson = False,
) -> None:
    """Learn from corrected documents: train again on all documents, old and new, and replace the model.

    A correction replaces the document with the same id; corrections with a new id are added. The old documents are
    those that the model keeps in its folder. The old model stays in place until the new one is complete, also if
    training is interrupted; the same command with --resume then continues.

    Example: labelfield learn model corrections.jsonl
    """
    from labelfield.cli.live import ProgressLines, TrainingBar
    from labelfield.estimators.methods import unfitted
    from labelfield.inference.signals import Interrupted
    from labelfield.models.artifact import DOCUMENTS, LEARNING, MODEL_FILES

    estimator = load_model(model, device, reading.trust)
    if (known := estimator.text_) is None:
        raise typer.BadParameter(f"{model} was trained on rows, not on documents")
    started, has_classes = time.perf_counter(), estimator.label_kind_ == "classes"
    corrected = documents.read_corrections(known, reading, corrections)
    keeps = (model / DOCUMENTS).exists()
    with ExitStack() as stack:
        kept = stack.enter_context(KeptDocuments()) if keeps else None
        dataset, text, labels = documents.read_again(
            reading, model, data, known, corrected, one_each=has_classes, kept=kept
        )
        new = unfitted(estimator)
        prepared = new.prepare(dataset.X, _classes_of(dataset, dataset) if has_classes else dataset.Y)
        new.name_features(dataset.feature_names, text)
        shown = ProgressLines if progress else TrainingBar
        try:
            with shown(_announce(new, prepared)) as bar:
                new.train_prepared(prepared, checkpoint=model / LEARNING, resume=resume, on_step=bar)
        except Interrupted as stop:
            say(f"{stop}; the model in {model} is as it was, and the same command with --resume continues")
            raise typer.Exit(128 + stop.signal_number) from None
        with replacing_folder(model, MODEL_FILES) as folder:
            new.save(folder, None if has_classes else dataset.label_names)
            if kept is not None:
                _keep(kept, folder, labels)
    facts = {"path": str(model), "documents": dataset.n_rows, "corrections": len(corrected)}
    before = (known.vocabulary.translated(name, text.vocabulary) for name in estimator.label_names())
    new_labels = sorted(set(dataset.label_names or ()).difference(map(text.vocabulary.name_of, before)))
    facts["new labels"] = new_labels if as_json else "\n".join(new_labels) or None
    facts["seconds"] = time.perf_counter() - started
    if as_json:
        print_json(facts)
    else:
        print_facts("learned", facts)


def _read_training(reading: Reading, path: Path, method: str, options: dict[str, Any]) -> tuple[Dataset, bool]:
    """Read the training rows, and return with them whether each has one class: by the method, else by the rows."""
    is_classes = METHODS[method].has_classes(options)
    if is_classes is not None:
        dataset = reading(path, classes=is_classes)
    else:
        try:
            dataset, is_classes = reading(path, classes=True), True
        except DataError as error:  # several labels per row, or a mistake in the file
            try:
                dataset, is_classes = reading(path), False
            except DataError as other:
                # The reading that suits the file gets further before it finds the mistake.
                raise max(error, other, key=lambda found: found.line or 0) from None
    require_rows(dataset, path)
    if is_classes and len(names := _class_names(dataset)) < 2:
        raise DataError(
            f"all rows have the class {names[0]!r}", path=path, expected="at least two classes", fix="Check the file."
        )
    return dataset, is_classes


def _read_validation(
    reading: Reading, path: Path, training: Dataset, has_classes: bool, text: TextParts | None
) -> tuple[Any, Any]:
    """Read rows to be scored, X and Y, in the columns of the training rows, which must have all of their classes."""
    n_features, n_labels = training.n_features, 0 if has_classes else training.n_labels
    if text is not None:
        rows = documents.read_rows(training.label_names or (), text, reading, path)
        require_rows(rows, path)
        return rows.X, _classes_of(rows, training) if has_classes else rows.Y[:, :n_labels]
    rows = reading(path, classes=has_classes, n_features=n_features, n_labels=n_labels, narrow=True)
    rows = rows if rows.test is None else rows.test
    require_columns(rows, path, n_features, None if has_classes else n_labels)
    require_rows(rows, path)
    if not has_classes:
        return rows.X, rows.Y[:, :n_labels]
    unseen = set(_class_names(rows)) - set(_class_names(training))
    if unseen:
        raise DataError(
            f"the class {min(unseen)!r}", path=path, expected="classes of the training rows", fix="Remove its rows."
        )
    return rows.X, _classes_of(align_classes(rows, training.label_names or ()), training)


def _class_names(dataset: Dataset) -> list[str]:
    """Return the names of the classes that occur, in the order of their columns."""
    assert dataset.label_names is not None  # rows that are read with classes have names
    return [dataset.label_names[column] for column in np.unique(dataset.Y.indices)]


def _classes_of(rows: Dataset, training: Dataset) -> NDArray[Any]:
    """Return the class of each row by its value, for rows in the columns of the training rows."""
    return np.asarray(class_values(list(training.label_names or ()))[rows.Y.indices])


def _announce(estimator: FittedClassifier, data: Dataset, n_ranks: int = 1) -> dict[str, Settings]:
    """Say on stderr what is about to be trained and what it will cost; return the settings of each stage."""
    from labelfield.estimators.options import choose_device

    cost, transform = estimator.training_cost(data), estimator.members()[0].row_transform_
    # Rows are copied once, where they are not in files.
    copied = sum(part.nbytes for part in (data.X.data, data.X.indices) if map_of(part) is None)
    device = choose_device(estimator.device)
    before = copied if device.type == "cuda" else own_bytes()  # what is there already: rows on a GPU, or this process
    megabytes = (before + copied + cost.n_bytes) / 2**20
    say(
        f"{estimator.method}: {data.n_rows} rows, {estimator.n_features_in_} features ({transform.name}), "
        f"{estimator.summary()}"
    )
    if transform.codes is not None:
        coded = named(np.unique(transform.codes.columns).tolist(), estimator.feature_names())
        say(f"codes of categories: {coded} (row_transform=scaled treats them as numbers)")
    n_steps, epochs = -(-data.n_rows // estimator.settings_.batch_size), ""
    if n_steps > 1:
        parts = [f"{stage.max_epochs} {name}".strip() for name, stage in cost.stages.items()]
        epochs = f"; {' + '.join(parts)} epochs of {n_steps} steps"
    where = f"{device}" + (f" in {n_ranks} processes" if n_ranks > 1 else "")
    say(f"about {megabytes:.0f} MB and {cost.seconds / n_ranks:.0f} s on {where}{epochs}")
    return cost.stages


def _parse_seconds(text: str) -> float:
    """Return 60, 60s, 5m, 5min or 2h as seconds."""
    match = re.fullmatch(r"([0-9]+\.?[0-9]*|\.[0-9]+)\s*([a-z]*)", text.strip())
    if not match or match[2] not in _UNITS or not float(match[1]) > 0:
        raise typer.BadParameter(f"--time-budget {text}; expected a time such as 60s, 5m or 2h")
    return float(match[1]) * _UNITS[match[2]]


# Options of methods


def config(
    method: Annotated[Method, typer.Argument(help="A method of labelfield train.")] = "auto",
    preset: Annotated[Preset | None, typer.Option("--preset", help="Print the values of a paper's model.")] = None,
) -> None:
    """Print all options of a method with their defaults and meanings, as a file for `train --config`.

    Example: labelfield config mlgpf
    """
    from labelfield.estimators.methods import method_parameters

    method = _method_of(method, preset)
    print(f"# {METHODS[method].sentence if preset is None else PRESETS[preset].sentence}")
    print(f"# Options of {method}. Those without a value are off, or chosen from the data.")
    own: dict[str, Any] = {} if preset is None else dict(PRESETS[preset].options)
    for name, option in method_parameters(method).items():
        value = own.get(name, option.default)
        text = f"# {name} =" if value is None else f"{name} = {json.dumps(value)}"
        meaning, expected = option.meaning, str(option.constraint)
        if isinstance(option.constraint, Integer | Real):  # the meaning already lists the words that an option may be
            meaning += f" {expected[0].upper()}{expected[1:]}."
        print(f"{text:<36} # {meaning}")


def _method_of(method: str, preset: str | None) -> str:
    """Return the method that is meant: that of a preset, which any other than the default contradicts."""
    if preset is None:
        return method
    if method not in ("auto", PRESETS[preset].method):
        raise typer.BadParameter(f"--preset {preset} is a model of --method {PRESETS[preset].method}, not {method}")
    return PRESETS[preset].method


def _gather_options(method: str, config_file: Path | None, assignments: list[str]) -> dict[str, Any]:
    """Return the options of a file and of --set, which goes before; refuse unknown names and values."""
    from labelfield.estimators.methods import method_parameters

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
    known = method_parameters(method)
    for name, value in options.items():
        if name not in known:
            near = get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]!r}? All options: " if near else "all options: "
            raise typer.BadParameter(f"{method} has no option {name!r}; {hint}labelfield config {method}")
        constraint = known[name].constraint
        if constraint is not None and not constraint.accepts(value):
            raise typer.BadParameter(f"{name}={value!r}; expected {constraint}")
    return options


def _parse_value(text: str) -> Any:
    """Read a TOML value, or True or False as Python writes them; a word without quotes is a string."""
    try:
        return tomllib.loads(f"value = {text.lower() if text in ('True', 'False') else text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


# Looking at a model


def show(model: Annotated[Path, typer.Argument(help="The folder of a model.")], as_json: AsJson = False) -> None:
    """Show what a model is and how it was trained. For an ensemble, sizes are those of its first member.

    Example: labelfield show model
    """
    estimator = load_model(model, "cpu")
    first, history = estimator.members()[0], estimator.history_
    facts = {
        "method": estimator.method,
        **_flatten(asdict(first.spec_)),
        "row_transform": first.row_transform_.name,
        "n_negatives": estimator.n_negatives_,
        "training rows": estimator.n_rows_,
        "parameters": estimator.n_parameters(),
        **{f"training: {name}": value for name, value in asdict(estimator.settings_).items()},
        "epochs done": len(history),
        "seconds of training": history[-1]["seconds"] if history else None,
        "bound of the last epoch (nats per row)": history[-1]["bound"] if history else None,
        **_members(estimator),
        **_left_out(estimator),
        **_trials(estimator),
    }
    if as_json:
        print_json({"path": str(model), **facts, "history": history})
    else:
        print_facts(str(model), facts)


def _trials(estimator: FittedClassifier) -> dict[str, Any]:
    """Return what was compared on held-out rows before training, best first."""
    facts = {}
    for trial in estimator.trials_:
        what = f"tried: {trial['row_transform']}, cost {trial['cost']:g}"
        facts[what] = f"nDCG {trial['score']:.1f} on held-out rows, {trial['seconds']:.1f} s"
    return facts


def _left_out(estimator: FittedClassifier) -> dict[str, Any]:
    """Return what a further member would have added on held-out rows, where one was left out for that."""
    members = estimator.members()
    scores = members[0].held_out_scores_ if len(members) == 1 else {}
    if "together" not in scores:
        return {}
    without, with_it = (" / ".join(f"{value:.1f}" for value in scores[kind]) for kind in ("alone", "together"))
    what = "left out: a factor model that adds nothing; P@1 / 3 / 5 on held-out rows"
    return {what: f"{without} without it, {with_it} with it after half of its training"}


def _flatten(facts: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested facts by their full names, and long lists by their length."""
    result: dict[str, Any] = {}
    for name, value in facts.items():
        if isinstance(value, dict):
            result |= _flatten(value, f"{prefix}{name}: ")
        elif isinstance(value, tuple | list):
            is_long = len(value) > _MOST_LISTED
            result[f"{prefix}{name}"] = f"{len(value)}, from {value[0]} on" if is_long else str(list(value))
        else:
            result[f"{prefix}{name}"] = value
    return result


def _members(estimator: FittedClassifier) -> dict[str, Any]:
    """Return what each member of an ensemble is, and what it adds on held-out rows; nothing for a single model."""
    members = estimator.members()
    facts: dict[str, Any] = {}
    for number, member in enumerate(members if len(members) > 1 else [], 1):
        facts[f"member {number}"] = (
            f"{member.method}, {member.row_transform_.name}, seed {member.settings_.seed}, {member.summary()}"
        )
        scores = member.held_out_scores_
        for kind, what in (("alone", f"member {number} alone"), ("together", f"members up to {number}")):
            if kind in scores:
                values = " / ".join(f"{value:.1f}" for value in scores[kind])
                facts[f"{what}: P@1 / 3 / 5 on held-out rows"] = values
    return facts
